// outage-notice.js: the notice to clients that the broker is away, and that it is back.
//
// After GRACE_MS of outage, the worker sends `degraded` to all connections that have said hello or
// are in a room, and sets it in every `welcome`. A shorter outage costs clients no more than an
// UNAVAILABLE. The worker withdraws the notice when the broker is up and every room with history
// has been compared with it: from then on, everything that can be recovered has been recovered. The
// notices to 50,000 connections are paced.

import { encodeDegraded } from '../protocol/encode.js';

const GRACE_MS = 1000;
/** Connections that get the notice in one turn of the event loop: some 4 ms. */
const BATCH = 500;

/** @typedef {import('../backend/broker.js').BrokerState} BrokerState */
/** @typedef {import('../hub/connection.js').Connection} Connection */

export class OutageNotice {
  /**
   * @param {object} parts
   * @param {{readonly connections: readonly Connection[]}} parts.hub
   * @param {import('./scheduler.js').SyncScheduler} parts.scheduler
   * @param {number} [parts.graceMs]
   */
  constructor({ hub, scheduler, graceMs = GRACE_MS }) {
    this.hub = hub;
    this.scheduler = scheduler;
    this.graceMs = graceMs;
    /** Is the notice in force? */
    this.isOn = false;
    this.isUp = true;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Rounds of notices begun. A later round ends an earlier one. */
    this.rounds = 0;
    scheduler.catchUp.listen(() => this.#turn(false));
  }

  /** The broker is away when this worker starts, and no client is connected yet. */
  startAway() {
    this.isUp = false;
    this.isOn = true;
  }

  /** The broker's state has changed. @param {BrokerState} state */
  onState(state) {
    this.isUp = state === 'up';
    clearTimeout(this.timer);
    if (state === 'degraded') this.timer = setTimeout(() => this.#turn(true), this.graceMs).unref();
    this.scheduler.onState(state);
  }

  close() {
    clearTimeout(this.timer);
    this.rounds++;
  }

  /** @param {boolean} isOn */
  #turn(isOn) {
    if (isOn === this.isOn || isOn === this.isUp) return;
    this.isOn = isOn;
    const round = ++this.rounds;
    // Publications that have just been recovered wait in the outbox: they go first.
    setImmediate(() => this.#send([...this.hub.connections], encodeDegraded(isOn), 0, round));
  }

  /**
   * @param {readonly Connection[]} connections
   * @param {string} text
   * @param {number} from
   * @param {number} round
   */
  #send(connections, text, from, round) {
    if (round !== this.rounds) return;
    const end = Math.min(connections.length, from + BATCH);
    for (let i = from; i < end; i++) {
      const connection = connections[i];
      if (connection.isGreeted || connection.roomCount > 0) connection.send(text);
    }
    if (end < connections.length) setImmediate(() => this.#send(connections, text, end, round));
  }
}
