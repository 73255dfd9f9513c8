// publisher.js: passes publications of commands and the HTTP API to the broker, and counts those
// without an answer, so that a drain can wait for them.
//
// A client's message to a large room costs more of its rate, because the work is in its deliveries
// (rate-limit.js).

import { fingerprintOf } from '../protocol/fingerprint.js';
import { EVERYONE } from './hub.js';

/** The error that a listener gets while the worker settles. */
const REFUSING = Object.freeze({ code: 'UNAVAILABLE' });

/** @import { Position } from '../protocol/position.js' */
/** @import { Connection } from './connection.js' */
/** @typedef {string|number|undefined} Id */

/** @typedef {import('../backend/broker.js').PublishOptions} PublishOptions */
/** @typedef {(connection: Connection, members: number, bytes: number) => void} ChargeMembers */

/**
 * A command that publishes. One object serves all its publications.
 * @typedef {object} PublishListener
 * @property {(connection: Connection, id: Id) => void} onPublish called before the broker gets it
 * @property {(connection: Connection, id: Id, position: Position|void) => void} onPublished
 * @property {(connection: Connection, id: Id, error: unknown) => void} onRefused
 */

export class Publisher {
  /**
   * @param {object} parts
   * @param {Pick<import('../backend/broker.js').Broker, 'publish'>} parts.broker
   * @param {Pick<import('./hub.js').Hub, 'rooms'>} parts.hub
   * @param {{readonly isSettling: boolean}} parts.phase of the worker
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ broker, hub, phase, counters }) {
    this.broker = broker;
    this.hub = hub;
    this.phase = phase;
    this.counters = counters;
    /** @type {ChargeMembers} */
    this.chargeMembers = () => {};
    /** Publications that the broker has not answered. */
    this.unanswered = 0;
  }

  /**
   * Call it before the first publication of a client.
   * @param {ChargeMembers} charge counts the members of a message's room against its sender's rate
   */
  limitBy(charge) {
    this.chargeMembers = charge;
  }

  /**
   * Publishes for a command. A listener gets the answer, which saves a promise.
   * @param {PublishListener} listener @param {Connection} connection @param {Id} id
   * @param {string} room @param {Buffer} publication @param {PublishOptions} [options]
   */
  publishFor(listener, connection, id, room, publication, options) {
    if (this.phase.isSettling) return listener.onRefused(connection, id, REFUSING);
    listener.onPublish(connection, id);
    // Broadcasts have a limit of their own.
    const members = room === EVERYONE ? 0 : (this.hub.rooms.get(room)?.members.length ?? 0);
    this.chargeMembers(connection, members, publication.length);
    this.counters.publications++;
    this.unanswered++;
    this.broker.publish(room, publication, options).then(
      (position) => {
        this.unanswered--;
        listener.onPublished(connection, id, position);
      },
      (error) => {
        this.unanswered--;
        if (error.code === 'STATE_FULL') this.counters.stateFull++;
        listener.onRefused(connection, id, error);
      },
    );
  }

  /**
   * Publishes for the HTTP API: accepted requests also while the worker drains.
   * @param {string} room @param {Buffer} publication @param {PublishOptions} [options]
   */
  async publish(room, publication, options) {
    this.counters.publications++;
    this.unanswered++;
    try {
      return await this.broker.publish(room, publication, options);
    } catch (error) {
      if (/** @type {{code?: string}} */ (error).code === 'STATE_FULL') this.counters.stateFull++;
      throw error;
    } finally {
      this.unanswered--;
    }
  }
}

/**
 * @param {string} owner has its own keys; '': the HTTP API
 * @param {string|undefined} key @param {Buffer} publication
 * @returns {PublishOptions|undefined} undefined without a key
 */
export function onceOnly(owner, key, publication) {
  if (key === undefined) return undefined;
  const idempotencyKey = owner === '' ? key : `${owner} ${key}`;
  return { idempotencyKey, fingerprint: fingerprintOf(publication) };
}
