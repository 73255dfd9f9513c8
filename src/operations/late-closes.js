// late-closes.js: closes connections at a random time, so that clients do not return together.
//
// Guests: some clients take an HTTP status for a network failure, and return after 15, 30, then 60
// seconds. After a refusal inside the WebSocket they all return in one second. So a client that is
// refused because of limits or load, whatever its app, waits here for a random time, in which the
// server holds only its socket. If too many wait, or if sockets or memory are short, the server
// answers with the HTTP status.
//
// Members: some clients never repeat a request that was refused because of a limit, or that failed
// while the broker was unavailable. The server closes these connections, in the second case when
// the broker is back, and the clients reconnect. A drain closes them with the others.

import { refusal } from '../protocol/refusal.js';

/** Clients wait at least 10 s for the first frame. */
const MAX_WAIT_MS = 8000;
const MAX_GUESTS = 5000;
/** Refusals that are sent inside the WebSocket. @type {ReadonlySet<RefusalCode>} */
const OF_ADMISSION = new Set(
  /** @type {const} */ ([
    'handshakes_per_ip',
    'per_ip',
    'uncounted',
    'loop_lag',
    'tokens',
    'hooks',
    'service_unavailable',
    'origin',
  ]),
);
/**
 * Refusals after which a wait helps nobody: if this worker drains, another one can take the client
 * at once, and the page will have the same origin when it returns.
 * @type {ReadonlySet<RefusalCode>}
 */
const AT_ONCE = new Set(/** @type {const} */ (['service_unavailable', 'origin']));

/** @import { Connection } from '../hub/connection.js' */
/** @import { RefusalCode } from '../protocol/codes.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @typedef {{code: number, reason: string}} Close */
/** @typedef {{endMs: number, close: Close, isGuest: boolean, untilUp: boolean}} Late */

export class LateCloses {
  /** @type {Map<Connection, Late>} */
  #late = new Map();
  #guests = 0;

  /**
   * @param {object} parts @param {(connections: Connection[], close: Close) => void} parts.closeAll
   * @param {{readonly isDraining: boolean}} parts.phase of the worker
   * @param {{readonly state: string}} parts.broker
   * @param {(refused: Refusal) => Close} parts.closeOf the door's words
   * @param {() => number} [parts.random]
   */
  constructor({ closeAll, phase, broker, closeOf, random = Math.random }) {
    this.closeAll = closeAll;
    this.phase = phase;
    this.broker = broker;
    this.closeOf = closeOf;
    this.random = random;
  }

  /** Is the refusal sent inside the WebSocket? @param {Refusal} refused */
  takes(refused) {
    return isOfAdmission(refused) && this.#guests < MAX_GUESTS;
  }

  /**
   * @param {Connection} connection just opened
   * @param {Refusal} refused which `takes` accepts, or a refusal that only an open connection can get
   */
  refuseGuest(connection, refused) {
    if (AT_ONCE.has(refused.code) || this.#guests >= MAX_GUESTS)
      return connection.close(this.closeOf(refused));
    this.#guests++;
    this.#closeLater(connection, refused, true);
  }

  /** One of its requests is refused. @param {Connection} connection @param {Refusal} refused */
  refuseMember(connection, refused) {
    this.forgetConnection(connection);
    if (connection.isOpen) this.#closeLater(connection, refused, false);
  }

  /** @param {Connection} connection @param {Refusal} refused @param {boolean} isGuest */
  #closeLater(connection, refused, isGuest) {
    const endMs = this.#someTimeAfter(performance.now());
    const untilUp = refused.code === 'UNAVAILABLE';
    this.#late.set(connection, { endMs, close: this.closeOf(refused), isGuest, untilUp });
  }

  /** @param {number} nowMs */
  #someTimeAfter(nowMs) {
    return nowMs + this.random() * MAX_WAIT_MS;
  }

  /**
   * Closes a guest that sends something: these clients are silent until the first frame.
   * @param {Connection} connection may not be waiting here
   */
  endGuest(connection) {
    const late = this.#late.get(connection);
    if (late?.isGuest) connection.close(late.close);
  }

  /** @param {Connection} connection */
  forgetConnection(connection) {
    if (this.#late.get(connection)?.isGuest) this.#guests--;
    this.#late.delete(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    if (this.phase.isDraining) return this.closeGuests();
    for (const [connection, late] of this.#late) {
      if (late.endMs > nowMs) continue;
      if (!late.untilUp || this.broker.state === 'up') this.closeAll([connection], late.close);
      else late.endMs = this.#someTimeAfter(nowMs);
    }
  }

  /** The worker drains. */
  closeGuests() {
    for (const [connection, { isGuest }] of this.#late)
      if (isGuest) this.closeAll([connection], this.closeOf(DRAINING));
  }
}

const DRAINING = refusal('service_unavailable');

/** @param {Refusal} refused @returns {boolean} false: a token or hook is the reason */
export function isOfAdmission({ code }) {
  return OF_ADMISSION.has(code);
}
