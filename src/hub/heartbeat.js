// heartbeat.js: pings connections, spread evenly over the period, and closes silent ones.
//
// Each step pings the connections in one place of a wheel. PONG_TIMEOUT later it checks them: any
// byte from the peer counts as life. If the event loop was blocked, the peers' bytes are still
// unread, and the check is postponed by one turn of the wheel.
//
// The wheel also finds connections at their maximum age, up to one period late. It turns only while
// there are connections.

const PLACE_MS = 250;
const MAX_PLACES = 240;
/** Connections end between this part of the maximum age and all of it. */
const MIN_AGE_PART = 0.75;

/** @import { Connection } from './connection.js' */

export class Heartbeat {
  /**
   * @param {object} parts @param {number} parts.intervalMs
   * @param {number} parts.timeoutMs shorter than intervalMs
   * @param {number} [parts.maxAgeMs] longest life of a connection; 0: no limit
   * @param {(connection: Connection) => void} [parts.onAge] called at each ping after that age
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ intervalMs, timeoutMs, maxAgeMs = 0, onAge = () => {}, counters }) {
    const places = Math.max(2, Math.min(MAX_PLACES, Math.floor(intervalMs / PLACE_MS)));
    this.stepMs = intervalMs / places;
    this.timeoutPlaces = Math.max(1, Math.min(places - 1, Math.ceil(timeoutMs / this.stepMs)));
    this.maxAgeMs = maxAgeMs;
    this.onAge = onAge;
    this.counters = counters;
    /** @type {Set<Connection>[]} */
    this.places = Array.from({ length: places }, () => new Set());
    /** Connections on the wheel. */
    this.size = 0;
    /** The place to ping next. */
    this.at = 0;
    /** Steps left without a check. */
    this.graceSteps = 0;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    this.lastStepMs = 0;
  }

  #turn() {
    this.lastStepMs = performance.now();
    this.timer = setInterval(() => this.pingDue(performance.now()), this.stepMs).unref();
  }

  /** @param {Connection} connection */
  watchConnection(connection) {
    if (this.size++ === 0) this.#turn();
    this.#placeOf(connection).add(connection);
    if (this.maxAgeMs > 0) connection.limitAge(this.#endOfLife());
  }

  /** The second at which a connection ends, spread for those that began together. */
  #endOfLife() {
    const ageMs = this.maxAgeMs * (1 - Math.random() * (1 - MIN_AGE_PART));
    return Math.ceil((this.lastStepMs + ageMs) / 1000);
  }

  /** May be called twice. @param {Connection} connection */
  unwatchConnection(connection) {
    if (this.#placeOf(connection).delete(connection) && --this.size === 0)
      clearInterval(this.timer);
  }

  /** @param {Connection} connection */
  #placeOf({ number }) {
    return this.places[number % this.places.length];
  }

  /** @param {number} nowMs */
  pingDue(nowMs) {
    const lateMs = nowMs - this.lastStepMs - this.stepMs;
    this.lastStepMs = nowMs;
    if (lateMs > Math.max(500, 2 * this.stepMs)) this.graceSteps = this.timeoutPlaces;
    const { length } = this.places;
    const checked = this.places[(this.at - this.timeoutPlaces + length) % length];
    // During the grace, silent peers are pinged and checked again in the next turn.
    if (this.graceSteps > 0) this.graceSteps--;
    else this.#endSilent(checked);
    for (const connection of this.places[this.at]) {
      connection.ping();
      if (connection.endsS !== 0 && connection.endsS * 1000 <= nowMs) this.onAge(connection);
    }
    this.at = (this.at + 1) % length;
  }

  /** @param {Set<Connection>} connections may shrink meanwhile */
  #endSilent(connections) {
    for (const connection of connections) {
      const { isAlive, isOpen, transport } = connection;
      if (isAlive) continue;
      this.counters.heartbeatTimeouts++;
      const { silentClose } = transport.door;
      if (silentClose === undefined || !isOpen) transport.terminate();
      else connection.close(silentClose);
    }
  }
}
