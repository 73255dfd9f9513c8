// refused.js: connections refused because of limits or load, whatever their app.
//
// Pusher clients take an HTTP status for a network failure, and return after 15, 30, then 60
// seconds. After a refusal inside the WebSocket they all return in one second. So a refused client
// waits here for a random time, in which the server holds only its socket. If too many wait, or if
// sockets or memory are short, the server answers with the HTTP status.
//
// The clients do not repeat a sign-in that was refused because of a limit, and no subscription,
// sign-in or watch list that failed while the broker was unavailable. So the server closes these
// connections at a random time, in the second case after the broker is back, and the clients
// reconnect. They may be in rooms: they do not count here, and a drain closes them with the others.

import { refusal } from '../../protocol/refusal.js';
import { PUSHER_CLOSES, PusherClose } from './codec/closes.js';

/** Clients wait at least 10 s for the first frame. */
const MAX_WAIT_MS = 8000;
const MAX_WAITING = 5000;
/** Refusals that are sent inside the WebSocket. */
const CODES = new Set(
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

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { DoorServices } from '../contract.js' */

export class RefusedConnections {
  /** @type {Map<Connection, {endMs: number, close: PusherClose}>} */
  #waiting = new Map();
  /**
   * To be closed at the earliest at this time, `unavailable` ones when the broker is up.
   * @type {Map<Connection, {endMs: number, close: PusherClose}>}
   */
  #lacking = new Map();
  /** One for each code. @type {Map<string, PusherClose>} */
  #closes = new Map();

  /**
   * @param {Pick<DoorServices, 'closeAll'|'phase'> & {broker: Pick<DoorServices['broker'], 'state'>}}
   *   services
   * @param {() => number} [random]
   */
  constructor({ closeAll, phase, broker }, random = Math.random) {
    this.closeAll = closeAll;
    this.phase = phase;
    this.broker = broker;
    this.random = random;
    this.unavailable = this.#closeOf(refusal('UNAVAILABLE'));
  }

  /** Is the refusal sent inside the WebSocket? @param {Refusal} refused */
  takes(refused) {
    return isOfAdmission(refused) && this.#waiting.size < MAX_WAITING;
  }

  /**
   * @param {Connection} connection just opened
   * @param {Refusal} refused which `takes` accepts, or a refusal that only an open connection can get
   */
  add(connection, refused) {
    // If this worker drains, another one can take the client at once.
    if (refused.code === 'service_unavailable') return connection.close(PUSHER_CLOSES.RESTART);
    // The page will have the same origin when it returns.
    if (refused.code === 'origin') return connection.close(PUSHER_CLOSES.ORIGIN);
    const close = this.#closeOf(refused);
    if (this.#waiting.size >= MAX_WAITING) return connection.close(close);
    this.#waiting.set(connection, { endMs: this.#someTimeAfter(performance.now()), close });
  }

  /** The broker was unavailable for one of its requests. @param {Connection} connection */
  addLacking(connection) {
    this.#closeLater(connection, this.unavailable);
  }

  /** One of its requests is refused. @param {Connection} connection @param {Refusal} refused */
  closeLater(connection, refused) {
    this.#closeLater(connection, this.#closeOf(refused));
  }

  /** @param {Connection} connection @param {PusherClose} close */
  #closeLater(connection, close) {
    if (!connection.isOpen) return;
    this.#lacking.set(connection, { endMs: this.#someTimeAfter(performance.now()), close });
  }

  /** @param {number} nowMs */
  #someTimeAfter(nowMs) {
    return nowMs + this.random() * MAX_WAIT_MS;
  }

  /**
   * Closes a waiting client that sends something. Pusher clients are silent until the first frame.
   * @param {Connection} connection may not be waiting here
   */
  end(connection) {
    const waiting = this.#waiting.get(connection);
    if (waiting !== undefined) connection.close(waiting.close);
  }

  /** @param {Connection} connection */
  delete(connection) {
    this.#waiting.delete(connection);
    this.#lacking.delete(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    if (this.phase.isDraining) return this.close();
    /** @type {Map<PusherClose, Connection[]>} */
    const due = new Map([...this.#closes.values()].map((close) => [close, []]));
    for (const [connection, { endMs, close }] of this.#waiting)
      if (endMs <= nowMs) due.get(close)?.push(connection);
    const isUp = this.broker.state === 'up';
    for (const [connection, lacking] of this.#lacking) {
      const { endMs, close } = lacking;
      if (endMs > nowMs) continue;
      if (isUp || close !== this.unavailable) due.get(close)?.push(connection);
      else lacking.endMs = this.#someTimeAfter(nowMs);
    }
    for (const [close, connections] of due) this.closeAll(connections, close);
  }

  /** The worker drains. */
  close() {
    this.closeAll([...this.#waiting.keys()], PUSHER_CLOSES.RESTART);
  }

  /** @param {Refusal} refused */
  #closeOf({ code, message }) {
    let close = this.#closes.get(code);
    if (close === undefined) {
      close = new PusherClose(PUSHER_CLOSES.OVER_CAPACITY.code, message);
      this.#closes.set(code, close);
    }
    return close;
  }
}

/** @param {Refusal} refused @returns {boolean} false: a token or hook is the reason */
export function isOfAdmission({ code }) {
  return /** @type {ReadonlySet<string>} */ (CODES).has(code);
}
