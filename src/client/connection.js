// connection.js: one lasting connection over many sockets: connects, notices dead sockets, waits,
// reconnects.
//
//   idle ──> connecting ──> connected ──> waiting ──> connecting …
//                 │             │            ├─ the page hides: sleeping, until it is shown
//                 └─────────────┴────────────┴─ close(), or a close code that means stop: closed
//
// Only one timer runs at a time, because each state waits for one thing: connecting for `welcome`,
// connected for the next message or `pong`, waiting for the end of the delay.

import { mayReconnect, reconnectDelay } from './delay.js';
import { errorOf, FanfareError } from './error.js';
import { TokenSource } from './token.js';

/** @import { Welcome } from './wire.js' */

/** From the start of an attempt to `welcome`; with the token callback. */
const CONNECT_TIMEOUT_MS = 15_000;
/** From an application ping to any message. */
const PONG_TIMEOUT_MS = 10_000;
/** The same after the page woke up: its user is waiting. */
const WAKE_PONG_TIMEOUT_MS = 4000;
/** A connection that lasted this long ends a series of failed attempts. */
const STABLE_MS = 30_000;
/** After `close` the server's close frame has this long. */
const CLOSE_TIMEOUT_MS = 1000;
/** Until `welcome` names the interval. */
const HEARTBEAT_MS = 30_000;

/** @typedef {import('./wire.js').Message} Message */
/** @typedef {import('./wire.js').Command} Command */

/**
 * The part of a WebSocket that the client uses: browsers, Node 22 and `ws` have it.
 * @typedef {object} Socket
 * @property {(data: string) => void} send
 * @property {(code?: number, reason?: string) => void} close
 * @property {() => void} [terminate] ends the connection without a close frame; `ws` has it
 * @property {Refusal|null} [refusal] only node.js knows it
 * @property {((event: any) => void)|null} onopen
 * @property {((event: any) => void)|null} onmessage
 * @property {((event: any) => void)|null} onerror
 * @property {((event: any) => void)|null} onclose
 */

/**
 * The HTTP answer that refused a handshake.
 * @typedef {object} Refusal
 * @property {string} reason
 * @property {boolean} isFinal would a new handshake end in the same way?
 * @property {number|undefined} retryAfterMs
 */

/** @typedef {new (url: string, protocols?: string|string[]) => Socket} SocketClass */

/** @typedef {'idle'|'connecting'|'connected'|'waiting'|'sleeping'|'closed'} State */

/**
 * @typedef {object} StateDetail
 * @property {number} [code] close code of the last connection
 * @property {string} [reason]
 * @property {number} [delayMs] in the state `waiting`: until the next attempt
 */

/**
 * @typedef {object} ConnectionListener
 * @property {(state: State, detail: StateDetail) => void} onState
 * @property {(welcome: Welcome) => void} onWelcome the connection is usable; called before
 *   `onState`
 * @property {(message: Message) => void} onMessage
 * @property {() => void} onLost the connection has ended; called before `onState`
 * @property {(error: FanfareError) => void} onError
 */

/**
 * @typedef {object} ConnectionParts
 * @property {string} url
 * @property {SocketClass} Socket
 * @property {import('./token.js').TokenOption} [token]
 * @property {number} [firstDelayMs]
 * @property {number} [maxDelayMs]
 * @property {ConnectionListener} listener
 */

/**
 * The part of a connection that the client uses. A tab that shares a connection has one of its own
 * kind (shared/tab.js).
 * @typedef {Pick<Connection, 'state'|'open'|'send'|'sleep'|'wake'|'close'>} Link
 */

/** @typedef {new (parts: ConnectionParts) => Link} LinkClass */

/** @implements {Link} */
export class Connection {
  /** @type {State} */
  state = 'idle';
  #url;
  #Socket;
  #tokens;
  #delays;
  #listener;
  /** @type {Socket|null} */
  #socket = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** Connections lost in a row. */
  #attempt = 0;
  /** Numbers the attempts, so that a late token is noticed. */
  #run = 0;
  #welcomedAtMs = 0;
  #heardAtMs = 0;
  #heartbeatMs = HEARTBEAT_MS;
  #isPinging = false;
  /** Was the present delay chosen by the client alone, so that it may end early? */
  #isOwnDelay = false;
  /** @type {number|undefined} */
  #serverDelayMs;

  /** @param {ConnectionParts} parts */
  constructor({ url, Socket, token, firstDelayMs, maxDelayMs, listener }) {
    this.#url = url;
    this.#Socket = Socket;
    this.#tokens = new TokenSource(token);
    this.#delays = { firstDelayMs, maxDelayMs };
    this.#listener = listener;
  }

  /** Connects, unless it is connected or trying to be. */
  open() {
    if (this.state !== 'idle' && this.state !== 'closed') return;
    this.#attempt = 0;
    this.#connect();
  }

  /** Sends a command. For a broken connection it is dropped. @param {string} text JSON */
  send(text) {
    this.#socket?.send(text);
  }

  /** The page hides. */
  sleep() {
    if (this.state === 'idle' || this.state === 'closed') return;
    this.#drop(1000);
    this.#enter('sleeping');
  }

  /** The page is shown again, or the network is back. */
  wake() {
    if (this.state === 'sleeping') this.#connect();
    else if (this.state === 'connected' && !this.#isPinging) this.#ping(WAKE_PONG_TIMEOUT_MS);
    else if (this.state === 'waiting' && this.#isOwnDelay) {
      // Many clients of one network get it back at the same time.
      const delayMs = reconnectDelay({ ...this.#delays, code: 1006, attempt: 0 });
      this.#isOwnDelay = false;
      this.#arm(delayMs, () => this.#connect());
    }
  }

  /** @returns {Promise<void>} when the socket has closed */
  async close() {
    const socket = this.#socket;
    const isOpen = this.state === 'connected';
    this.#drop(1000, isOpen);
    this.#enter('closed');
    if (socket === null || !isOpen) return;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, CLOSE_TIMEOUT_MS);
      socket.onclose = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
    socket.terminate?.();
  }

  async #connect() {
    const run = ++this.#run;
    this.#enter('connecting');
    this.#arm(CONNECT_TIMEOUT_MS, () => this.#lost(1006));
    let token;
    try {
      token = await this.#tokens.get();
    } catch (cause) {
      if (run === this.#run) this.#tokenFailed(cause, true);
      return;
    }
    if (run !== this.#run) return;
    const socket = new this.#Socket(this.#url, 'fanfare');
    this.#socket = socket;
    socket.onopen = () => this.#command({ type: 'hello', id: 0, token: token || undefined });
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    // `close` follows.
    socket.onerror = () => {};
    socket.onclose = ({ code, reason }) => {
      const { refusal } = socket;
      this.#serverDelayMs ??= refusal?.retryAfterMs;
      this.#lost(code, refusal?.reason ?? reason, refusal?.isFinal);
    };
  }

  /** @param {unknown} cause @param {boolean} isLost does the connection need the token now? */
  #tokenFailed(cause, isLost) {
    this.#listener.onError(new FanfareError('TOKEN_UNAVAILABLE', { cause }));
    if (isLost) this.#lost(1006);
  }

  /** @param {Message} message */
  #receive(message) {
    this.#heardAtMs = performance.now();
    if (message.type === 'SERVER_SHUTDOWN') this.#serverDelayMs = message.reconnectAfterMs;
    else if (message.id === 0) this.#greeted(message);
    else if (message.type !== 'pong') this.#listener.onMessage(message);
  }

  /** @param {Message} reply to `hello` */
  #greeted(reply) {
    // The server closes a connection whose token it refuses.
    if (reply.type !== 'welcome') return this.#listener.onError(errorOf(reply));
    this.#welcomedAtMs = this.#heardAtMs;
    this.#heartbeatMs = reply.heartbeatMs || HEARTBEAT_MS;
    this.#watch();
    this.#tokens.keepFresh(
      (token) => this.#command({ type: 'auth', token }),
      (cause) => this.#tokenFailed(cause, false),
    );
    this.state = 'connected';
    this.#listener.onWelcome(/** @type {Welcome} */ (reply));
    this.#enter('connected');
  }

  /** Waits until nothing has come for a heartbeat. */
  #watch() {
    this.#isPinging = false;
    const restMs = this.#heardAtMs + this.#heartbeatMs - performance.now();
    if (restMs > 0) this.#arm(restMs, () => this.#watch());
    else this.#ping(PONG_TIMEOUT_MS);
  }

  /** @param {number} timeoutMs */
  #ping(timeoutMs) {
    const sentAtMs = performance.now();
    this.#isPinging = true;
    this.#command({ type: 'ping' });
    this.#arm(timeoutMs, () => (this.#heardAtMs >= sentAtMs ? this.#watch() : this.#lost(1006)));
  }

  /**
   * The connection has ended.
   * @param {number} code @param {string} [reason] @param {boolean} [isFinal]
   */
  #lost(code, reason = '', isFinal = false) {
    const serverDelayMs = this.#serverDelayMs;
    if (this.state === 'connected' && performance.now() - this.#welcomedAtMs >= STABLE_MS)
      this.#attempt = 0;
    if (code === 4001) this.#tokens.forget();
    this.#drop(1000);
    if (isFinal || !mayReconnect(code)) {
      this.#enter('closed', { code, reason });
      const message = `the server refused the connection: ${code} ${reason}`;
      this.#listener.onError(new FanfareError('REFUSED', { message, closeCode: code }));
      return;
    }
    const attempt = this.#attempt++;
    const delayMs = reconnectDelay({ ...this.#delays, code, attempt, serverDelayMs });
    this.#isOwnDelay = serverDelayMs === undefined && code !== 1013;
    this.#arm(delayMs, () => this.#connect());
    this.#enter('waiting', { code, reason, delayMs });
  }

  /**
   * Lets go of the socket and of the timer. A dead socket takes minutes to close, so nothing waits
   * for it.
   * @param {number} code
   * @param {boolean} [isGraceful] wait for the server's close frame?
   */
  #drop(code, isGraceful = false) {
    const socket = this.#socket;
    this.#run++;
    this.#socket = null;
    this.#serverDelayMs = undefined;
    clearTimeout(this.#timer);
    this.#tokens.rest();
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      if (socket.terminate && !isGraceful) socket.terminate();
      else socket.close(code);
    }
    this.#listener.onLost();
  }

  /** @param {Command} command */
  #command(command) {
    this.send(JSON.stringify(command));
  }

  /** @param {number} ms @param {() => void} act */
  #arm(ms, act) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(act, ms);
  }

  /** @param {State} state @param {StateDetail} [detail] */
  #enter(state, detail = {}) {
    this.state = state;
    this.#listener.onState(state, detail);
  }
}
