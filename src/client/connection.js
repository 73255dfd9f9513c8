// connection.js: one lasting connection over many sockets: notices dead ones and reconnects.
//   idle ──> connecting ──> connected ──> waiting ──> connecting …
//                 │             │            ├─ the page hides: sleeping, until it is shown
//                 └─────────────┴────────────┴─ close(), or a close code that means stop: closed
//
// One timer runs at a time: connecting waits for `welcome`, connected for a message or `pong`.

import { NO_WEBSOCKET } from './advice.js';
import { mayReconnect, reconnectDelay } from './delay.js';
import { FanfareError } from './error.js';
import {
  CLOSE_TIMEOUT_MS,
  CONNECT_TIMEOUT_MS,
  PONG_TIMEOUT_MS,
  STABLE_MS,
  TOKEN_RETRY_MS,
  WAKE_PONG_TIMEOUT_MS,
} from './limits.js';
import { TokenSource } from './token.js';

/** @import { Welcome } from './wire.js' */
/** @typedef {import('./wire.js').Message} Message */
/** @typedef {import('./wire.js').Command} Command */

/**
 * What the client uses of a WebSocket, in browsers, Node 22 or `ws`.
 * @typedef {{send: (data: string) => void, close: (code?: number, reason?: string) => void,
 *   onopen: ((event: any) => void)|null, onmessage: ((event: any) => void)|null,
 *   onerror: ((event: any) => void)|null, onclose: ((event: any) => void)|null}} Socket
 */

/**
 * How a socket ended. `isFinal` and `retryAfterMs` come from the HTTP answer that refused a
 * handshake, which only node.js can see.
 * @typedef {object} Ending
 * @property {number} [code] 1006 if absent
 * @property {string} [reason]
 * @property {boolean} [isFinal] would a new handshake fail, too?
 * @property {number} [retryAfterMs]
 */

/** @typedef {new (url: any, protocols?: any) => Socket} SocketClass */

/** @typedef {'idle'|'connecting'|'connected'|'waiting'|'sleeping'|'closed'} State */

/**
 * @typedef {object} StateDetail
 * @property {number} [code] close code of the last connection
 * @property {string} [reason]
 * @property {number} [delayMs] in state `waiting`: until the next attempt
 */

/**
 * @typedef {object} ConnectionListener
 * @property {(state: State, detail: StateDetail) => void} _entered
 * @property {(welcome: Welcome) => void} _welcomed the connection is usable; before `_entered`
 * @property {(message: Message) => void} _receive
 * @property {() => void} _lost the connection has ended; before `_entered`
 * @property {(error: FanfareError) => void} _report
 */

/**
 * @typedef {object} ConnectionParts
 * @property {string} url
 * @property {SocketClass} [WebSocket] in place of the global one
 * @property {import('./token.js').TokenOption} [token] @property {number} [firstDelayMs]
 * @property {number} [maxDelayMs]
 */

/**
 * What the client uses of a connection: a ClientConnection, or a Tab that shares one
 * (shared/tab.js).
 * @typedef {Pick<ClientConnection, 'state'|'open'|'send'|'_sleep'|'_wake'|'close'>} Link
 */

/** @typedef {new (parts: ConnectionParts, listener: ConnectionListener) => Link} LinkClass */

/** @implements {Link} */
export class ClientConnection {
  /** @type {State} */
  state = 'idle';
  #parts;
  #listener;
  #tokens;
  /** @type {Socket|undefined} */
  #socket;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** Connections lost in a row. */
  #attempt = 0;
  #welcomedAtMs = 0;
  #heartbeatMs = 0;
  /**
   * May a page that wakes up act before the timer? Reconnect, unless the server chose the delay.
   * Ping, unless a pong is awaited.
   */
  #mayHurry = false;
  /** @type {number|undefined} */
  #serverDelayMs;

  /** @param {ConnectionParts} parts @param {ConnectionListener} listener */
  constructor(parts, listener) {
    this.#parts = parts;
    this.#listener = listener;
    this.#tokens = new TokenSource(parts.token);
  }

  /** Connects, unless it is connected, connecting or waiting. */
  open() {
    // Only `idle`, `closed` and `sleeping` have no timer.
    if (this.#timer) return;
    this.#attempt = 0;
    this.#connect();
  }

  /** Sends a command, or drops it if there is no connection. @param {string} text JSON */
  send(text) {
    this.#socket?.send(text);
  }

  _sleep() {
    this.#drop();
    this.#setState('sleeping');
  }

  /** The page is shown again, or the network is back. */
  _wake() {
    if (this.state === 'sleeping') this.#connect();
    else if (this.#mayHurry && this.state === 'connected') this.#ping(WAKE_PONG_TIMEOUT_MS);
    else if (this.#mayHurry && this.state === 'waiting')
      // A network comes back for many clients at the same time.
      this.#arm(reconnectDelay(0, this.#parts), () => this.#connect());
  }

  /** @returns {Promise<void>} when the socket has closed */
  async close() {
    const socket = this.state === 'connected' && this.#socket;
    this.#drop();
    // The user may change before the next connection. A token that is still awaited is not for it.
    this.#tokens = new TokenSource(this.#parts.token);
    this.#setState('closed');
    if (!socket) return;
    await new Promise((resolve) => {
      socket.onclose = resolve;
      setTimeout(resolve, CLOSE_TIMEOUT_MS).unref?.(); // must not keep a Node program running
    });
  }

  async #connect() {
    const timer = this.#arm(CONNECT_TIMEOUT_MS, () => failed());
    /** @param {unknown} [cause] none: timed out */
    const failed = (cause) => {
      if (timer === this.#timer && !this.#socket) this.#tokenFailed(cause);
      // A listener may have closed the client.
      if (timer === this.#timer) this.#lost();
    };
    this.#setState('connecting');
    const token = await this.#tokens.get().catch(failed);
    // The client was closed, or another attempt has begun.
    if (timer !== this.#timer) return;
    const { url, WebSocket = /** @type {any} */ (globalThis).WebSocket } = this.#parts;
    /** @type {Socket} */
    let socket;
    try {
      socket = new WebSocket(url, 'fanfare');
    } catch (error) {
      // No WebSocket can have this URL, or the page may not connect to it.
      return this.#lost({
        reason:
          /** @type {any} */ (globalThis).FANFARE_BRIEF || WebSocket
            ? /** @type {Error} */ (error).message
            : NO_WEBSOCKET,
        isFinal: true,
      });
    }
    this.#socket = socket;
    socket.onopen = () => this.#command({ type: 'hello', id: 0, token: token || undefined });
    socket.onmessage = ({ data }) => this.#receiveMessage(JSON.parse(data));
    socket.onclose = (ending) => this.#lost(ending);
    // Node 22 emits no `close` after a failed handshake. React Native does at once, with a reason.
    socket.onerror = (error) => queueMicrotask(() => socket.onclose?.(error));
  }

  /** @param {unknown} cause */
  #tokenFailed(cause) {
    this.#listener._report(new FanfareError('TOKEN_UNAVAILABLE', { cause }));
  }

  /** @param {Message} message */
  #receiveMessage(message) {
    // Only SERVER_SHUTDOWN has the field.
    this.#serverDelayMs = message.reconnectAfterMs ?? this.#serverDelayMs;
    if (message.id !== 0) this.#listener._receive(message);
    else if (this.state === 'connecting') this.#greeted(message);
    else this.#renewed(message);
    if (this.state !== 'connected') return;
    // Pings when no message arrives for a heartbeat.
    this.#mayHurry = true;
    this.#arm(this.#heartbeatMs, () => this.#ping(PONG_TIMEOUT_MS));
  }

  /** @param {Message} reply to `hello` */
  #greeted(reply) {
    if (reply.error) {
      const error = new FanfareError(reply.error, reply);
      // Other errors concern the token: the server closes the connection.
      if (!error.retryable) return this.#listener._report(error);
      return this.#lost({
        reason: error.message,
        // Many clients of one address may have been refused together.
        retryAfterMs: (error.retryAfterMs ?? 0) + reconnectDelay(this.#attempt, this.#parts),
      });
    }
    this.#welcomedAtMs = performance.now();
    this.#heartbeatMs = reply.heartbeatMs;
    this.#keepFresh();
    this.state = 'connected';
    this.#listener._welcomed(/** @type {Welcome} */ (reply));
    // A listener may have closed the client.
    if (this.state === 'connected') this.#setState('connected');
  }

  /** @param {Message} reply to `auth` */
  #renewed(reply) {
    this.#listener._receive(reply);
    const { retryable, retryAfterMs = TOKEN_RETRY_MS } = new FanfareError(reply.error, reply);
    if (retryable && this.state === 'connected') this.#keepFresh(retryAfterMs);
  }

  /** @param {number} [ms] until the renewal; by default, as the token requires */
  #keepFresh(ms) {
    this.#tokens._keepFresh(
      (token) => this.#command({ type: 'auth', id: 0, token }),
      (cause) => this.#tokenFailed(cause),
      ms,
    );
  }

  /** @param {number} timeoutMs */
  #ping(timeoutMs) {
    this.#mayHurry = false;
    this.#command({ type: 'ping' });
    this.#arm(timeoutMs, () => this.#lost());
  }

  /** @param {Ending} [ending] none: timed out */
  #lost({ code = 1006, reason = '', isFinal, retryAfterMs } = {}) {
    retryAfterMs = this.#serverDelayMs ?? retryAfterMs;
    if (this.state === 'connected' && performance.now() - this.#welcomedAtMs >= STABLE_MS)
      this.#attempt = 0;
    // The next token of a function may be accepted, or come in time.
    const isRenewable = /^4(001|50[02])/.test(/** @type {any} */ (code)) && this.#tokens._forget();
    this.#drop();
    // A listener may have closed the client.
    if (this.state === 'closed') return;
    if (isFinal || !(isRenewable || mayReconnect(code))) {
      this.#setState('closed', { code, reason });
      this.#listener._report(
        new FanfareError('REFUSED', { message: `refused: ${code} ${reason}`, closeCode: code }),
      );
      return;
    }
    const delayMs = reconnectDelay(this.#attempt++, this.#parts, code, retryAfterMs);
    this.#mayHurry = retryAfterMs === undefined && code !== 1013;
    this.#arm(delayMs, () => this.#connect());
    this.#setState('waiting', { code, reason, delayMs });
  }

  /** Releases socket and timer. A dead socket takes minutes to close, so nothing waits for it. */
  #drop() {
    const socket = this.#socket;
    this.#socket = this.#serverDelayMs = undefined;
    this.#arm();
    this.#tokens._rest();
    if (socket) {
      // A function, because `ws` throws errors that have no listener.
      socket.onopen = socket.onmessage = socket.onclose = socket.onerror = () => {};
      socket.close(1000);
    }
    this.#listener._lost();
  }

  /** @param {Command} command */
  #command(command) {
    this.send(JSON.stringify(command));
  }

  /** Replaces the timer. @param {number} [ms] @param {() => void} [act] none: only clears it */
  #arm(ms, act) {
    clearTimeout(this.#timer);
    this.#timer = act && setTimeout(act, ms);
    return this.#timer;
  }

  /** @param {State} state @param {StateDetail} [detail] */
  #setState(state, detail = {}) {
    this.state = state;
    this.#listener._entered(state, detail);
  }
}
