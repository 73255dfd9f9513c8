// outage-notice.js: whether clients are told that the broker is away.
//
// Away for GRACE_MS, it is said to all who have said hello or are in a room, and in every
// `welcome`; a shorter absence costs nobody more than an UNAVAILABLE. It is taken back when the
// broker is up and every room with history has been compared with it: from then on nothing is
// missing any more that can be had. The notices of 50,000 connections are paced.

import { encodeDegraded } from '../protocol/encode.js';

const GRACE_MS = 1000;
/** Connections told in one turn of the event loop: some 4 ms. */
const BATCH = 500;

/** @typedef {import('../backend/broker.js').BrokerState} BrokerState */

export class Degraded {
  /**
   * @param
   *   {{hub: import('../hub/hub.js').Hub, recovery: import('./scheduler.js').SyncScheduler, graceMs?: number}}
   *   parts
   */
  constructor({ hub, recovery, graceMs = GRACE_MS }) {
    this.hub = hub;
    this.recovery = recovery;
    this.graceMs = graceMs;
    /** What clients are told. */
    this.isOn = false;
    this.isUp = true;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Rounds of notices begun: a later one ends an earlier. */
    this.rounds = 0;
    recovery.onProven = () => this.#turn(false);
  }

  /** The broker is away as this worker starts: nobody is there to be told. */
  startAway() {
    this.isUp = false;
    this.isOn = true;
  }

  /** The broker's state has changed. @param {BrokerState} state */
  onState(state) {
    this.isUp = state === 'up';
    clearTimeout(this.timer);
    if (state === 'degraded') this.timer = setTimeout(() => this.#turn(true), this.graceMs).unref();
    this.recovery.onState(state);
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
    // What has just been fetched waits in the outbox: it comes first.
    setImmediate(() => this.#tell([...this.hub.connections], encodeDegraded(isOn), 0, round));
  }

  /**
   * @param {readonly import('../hub/connection.js').Connection[]} connections
   * @param {string} text
   * @param {number} from
   * @param {number} round
   */
  #tell(connections, text, from, round) {
    if (round !== this.rounds) return;
    const end = Math.min(connections.length, from + BATCH);
    for (let i = from; i < end; i++) {
      const connection = connections[i];
      if (connection.isGreeted || (connection.rooms !== null && connection.rooms.size > 0))
        connection.send(text);
    }
    if (end < connections.length) setImmediate(() => this.#tell(connections, text, end, round));
  }
}
