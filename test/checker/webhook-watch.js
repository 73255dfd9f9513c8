// webhook-watch.js: the webhooks of a run with faults: an endpoint for all states, a receiver that
// fails a third of its requests, and what must be so when all is calm.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pause } from '../harness/run.js';
import { COMMUTED_ROOMS, KEPT_PRESENCE_ROOM, PRESENCE_PREFIX, PUSHER_ROOM } from './population.js';
import { WEBHOOK_SECRET, WebhookReceiver } from './webhook-receiver.js';
import { readTruth } from './webhook-truth.js';

const FAILING = 1 / 3;
/** Of calm, after which the receiver must know the truth. */
const CALM_MS = 60_000;
/** An answer is committed so long after it, at most. */
const COMMIT_MS = 1000;
/** A fault has its effects so long after it: a lease that ends. */
const AFTER_MS = 20_000;
/** Who stops or stands still gets no answer to what is under way. */
const UNDER_WAY_MS = 3000;
const TYPES = Object.freeze([
  ...['room.occupied', 'room.vacated', 'member.joined', 'member.left'],
  ...['user.connected', 'user.disconnected'],
]);
const ENDPOINT = Object.freeze({
  name: 'back-end',
  secret: WEBHOOK_SECRET,
  types: TYPES,
  graceMs: 1000,
  timeoutMs: 2000,
  concurrency: 16,
});

/** @typedef {import('./webhook-model.js').Truth} Truth */
/**
 * @typedef {object} Where
 * @property {number[]} ports of the servers
 * @property {string} secret of an API key
 * @property {string[]} users of the clients
 * @property {() => Promise<number>} pending events that couriers have still to deliver
 */

export class WebhookWatch {
  /** @param {WebhookReceiver} receiver @param {string} file of the endpoint */
  constructor(receiver, file) {
    this.receiver = receiver;
    this.file = file;
    /** @type {Where} */
    this.where = { ports: [], secret: '', users: [], pending: async () => 0 };
    /** The receiver's knowledge at the end. */
    this.known = '';
    /** @type {{fromMs: number, toMs: number}[]} */
    this.faults = [];
    receiver.readTruth = () => this.#readTruth();
  }

  /** @param {Where} where */
  begin(where) {
    this.where = where;
    this.resume();
  }

  /** A fault begins. @param {number} [lostMs] of data @returns {() => void} it is healed */
  fault(lostMs = 0) {
    const fromMs = performance.now() - lostMs - COMMIT_MS;
    const fault = { fromMs, toMs: Number.POSITIVE_INFINITY };
    this.faults.push(fault);
    return () => {
      fault.toMs = performance.now() + AFTER_MS;
    };
  }

  /** A courier stops or stands still. Others go on, and nothing that was stored is lost. */
  stop() {
    const nowMs = performance.now();
    this.faults.push({ fromMs: nowMs - COMMIT_MS, toMs: nowMs + UNDER_WAY_MS });
  }

  /**
   * Waits for calm.
   * @param {number} [alreadyMs] that it has lasted
   * @returns {Promise<string[]>} how the receiver's model differs from the truth
   */
  async settle(alreadyMs = 0) {
    // An event that failed three times waits up to 36 s. If it could fail again, or hold up others of
    // its room, no time would be enough.
    this.receiver.failing = 0;
    await pause(CALM_MS - alreadyMs);
    const { rooms, members, users } = this.receiver.model.state;
    const known = `${rooms.length} rooms, ${members.length} members, ${users.length} users`;
    this.known = `${known}; ${await this.where.pending()} events wait`;
    return this.receiver.model.differences(await this.#readTruth());
  }

  /** Requests fail again. */
  resume() {
    this.receiver.failing = FAILING;
  }

  /** Events that were repeated although the courier knew that they were delivered. */
  get repeated() {
    return this.receiver.repeated.filter(({ acceptedMs }) => !this.#isInDoubt(acceptedMs));
  }

  /** Events that did not wait for the one before them. */
  get overlapping() {
    return this.receiver.overlapping.filter(({ atMs }) => !this.#isInDoubt(atMs));
  }

  /** @param {number} ms @returns {boolean} may a fault have lost what the courier knew then? */
  #isInDoubt(ms) {
    return this.faults.some(({ fromMs, toMs }) => ms > fromMs && ms < toMs);
  }

  /** From any server that answers in full. @returns {Promise<Truth>} */
  async #readTruth() {
    const { ports, secret, users } = this.where;
    /** @type {unknown} */
    let cause;
    for (const port of ports)
      try {
        return await readTruth({
          port,
          secret,
          prefixes: [PRESENCE_PREFIX, PUSHER_ROOM, KEPT_PRESENCE_ROOM],
          rooms: COMMUTED_ROOMS,
          users,
        });
      } catch (error) {
        cause = error;
      }
    throw new Error('no server answers', { cause });
  }
}

/**
 * @param {import('./trial.js').Lifetime} t
 * @param {import('./random.js').Random} random
 */
export async function watchWebhooks(t, random) {
  const receiver = await new WebhookReceiver({ random }).start(t);
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-webhooks-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'webhooks.json');
  writeFileSync(file, JSON.stringify([{ ...ENDPOINT, url: receiver.url }]));
  return new WebhookWatch(receiver, file);
}
