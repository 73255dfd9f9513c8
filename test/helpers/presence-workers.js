// presence-workers.js: workers with presence on each backend, and the events that each receives.

import assert from 'node:assert/strict';
import { until } from '../harness/server.js';

/** @typedef {import('../../src/backend/presence.js').Presence} Presence */
/** @typedef {import('../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('node:test').TestContext} TestContext */

export const MAX_MEMBERS = 5;
export const TIMEOUT_MS = 20_000;

/**
 * The same if other workers return slowly from an outage, or announce thousands of users.
 */
export const LONG_TTL_MS = 3000;

export const HEARTBEAT_MS = 200;
export const SETTLE_MS = 300;

/**
 * A worker: its broker, its presence and its events. `kill` ends it without cleaning up.
 */
export class Worker {
  /** @param {{broker: Broker, presence: Presence, kill: () => void}} parts */
  constructor({ broker, presence, kill }) {
    this.broker = broker;
    this.presence = presence;
    this.kill = kill;
    /** `room +member` or `room -member`. @type {string[]} */
    this.events = [];
    /** @param {string} room @param {Buffer} publication */
    this.onPublication = (room, publication) => void this.events.push(`${room} ${publication}`);
  }

  onState() {}

  /** @param {string} room @param {string} user @param {string} [member] */
  join(room, user, member = user) {
    this.presence.join(room, user, Buffer.from(member));
  }

  /**
   * @param {string} room
   * @returns {Promise<string>} `count: members`, sorted
   */
  async read(room) {
    const { count, members } = await this.presence.read(room);
    return members === null ? `${count}` : `${count}: ${members.map(String).sort().join(' ')}`;
  }

  /** @param {string[]} events all its events so far; in order within a room */
  async got(events) {
    await until(
      () => this.events.length >= events.length,
      5000,
      `${events.length} events (${this.events})`,
    );
    assert.deepEqual(this.events, events);
  }
}

/** @type {Partial<import('../../src/config/settings.js').Config>} */
export const CONFIG = Object.freeze({
  presence: [{ pattern: '*', value: /** @type {const} */ (true) }],
  presenceMaxMembers: MAX_MEMBERS,
});

/**
 * @param {TestContext} t
 * @param {Worker} worker
 * @param {string[]} rooms that it subscribes
 */
export async function started(t, worker, rooms) {
  t.after(async () => {
    await worker.presence.close();
    await worker.broker.close();
  });
  await worker.presence.start();
  await worker.broker.start(worker);
  await Promise.all(rooms.map((room) => worker.broker.subscribe(room)));
  return worker;
}
