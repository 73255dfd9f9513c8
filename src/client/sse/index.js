// index.js: `fanfare/client/sse`: a small client that only listens, over server-sent events.
//
// It has a part of the API of `fanfare/client`, for networks that block WebSockets. It reads the
// stream with `fetch`, because an EventSource puts tokens into URLs, hides why it was refused, and
// does not notice dead connections. A request names all rooms, so each join or leave starts a new
// stream.

import { checkClient, checkRoom, sentenceOf } from '../advice.js';
import { reconnectDelay } from '../delay.js';
import { Emitter } from '../emitter.js';
import { FanfareError } from './error.js';
import { Room } from './room.js';

export { FanfareError, Room };

/** Time for the token callback, and then for the answer. */
const ANSWER_MS = 15_000;
/** The stream ends this long after a missed heartbeat. */
const SILENCE_MS = 10_000;
/** A stream that lasted this long ends a series of failed attempts. */
const STABLE_MS = 30_000;
/** Do not reconnect after close codes from here on (docs/protocol.md). */
const FIRST_FINAL_CODE = 4500;

/** @typedef {import('../connection.js').State} State */
/** @typedef {import('../connection.js').StateDetail} StateDetail */
/** @typedef {import('../wire.js').Position} Position */
/** @typedef {import('../error.js').Code} Code */
/** @typedef {import('../room.js').Meta} Meta */
/** @typedef {import('./room.js').JoinOptions} JoinOptions */
/** @template [Payload=any] @typedef {import('../room.js').Change<Payload>} Change */

/**
 * How a stream ends, from the server's `close` or the status of its refusal.
 * @typedef {{code: number, reason?: string, retryAfterMs?: number}} Ending
 */

/**
 * @typedef {object} Options
 * @property {import('../token.js').TokenOption} [token] a token, or a function that gets one. The
 *   function is called again when the server refuses the token
 * @property {number} [heartbeatMs] FANFARE_PING_INTERVAL_MS of the server; default 30,000
 * @property {number} [firstDelayMs] upper limit of the first reconnect delay; default 1,000
 * @property {number} [maxDelayMs] upper limit of later delays; default 30,000
 */

/**
 * The events of ../fanfare.js that a stream has.
 * @typedef {{
 *   state: [state: State, detail: StateDetail],
 *   broadcast: [payload: any],
 *   degraded: [degraded: boolean],
 *   error: [error: FanfareError],
 * }} Events
 */

/** @extends {Emitter<Events>} */
export class Fanfare extends Emitter {
  /** @type {State} */
  state = 'idle';
  #url;
  #options;
  /** @type {Map<string, Room>} */
  #rooms = new Map();
  /** Ends the current stream. @type {AbortController|undefined} */
  #controller;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** @type {string|null|undefined} */
  #token;
  /** How the current stream will end, if the server has announced it. @type {Ending} */
  #ending = { code: 1006 };
  #startedAtMs = 0;
  /** Streams lost in a row. */
  #attempt = 0;

  /**
   * Connects when a room is joined.
   * @param {string} url `https://chat.example/sse`; in a page it may be relative
   * @param {Options} [options]
   */
  constructor(url, options = {}) {
    super();
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF))
      checkClient(url, options, ['http', 'https']);
    this.#url = new URL(url, /** @type {any} */ (globalThis).location?.href);
    this.#options = options;
  }

  /**
   * @template {string} Name @overload @param {Name} name
   * @param {import('./room.js').JoinOptions} [options]
   * @returns {Room<import('../rooms.js').RoomPayload<Name>>}
   */
  /**
   * @template Payload @overload @param {string} name
   * @param {import('./room.js').JoinOptions} [options] @returns {Room<Payload>}
   */
  /** @param {string} name @param {import('./room.js').JoinOptions} [options] */
  join(name, options = {}) {
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF)) checkRoom('join', name);
    const rooms = this.#rooms;
    let room = rooms.get(name);
    if (!room) {
      room = new Room(name, options, (error) => {
        if (error) return this.#reportError(error, room);
        // Otherwise the client is being closed.
        if (rooms.delete(name) && rooms === this.#rooms) this.#restart();
      });
      rooms.set(name, room);
      this.#restart();
    }
    return room;
  }

  /** Other rooms than before. A closed client waits for `connect`. */
  #restart() {
    if (this.state !== 'closed') this.connect();
  }

  /** Begins the stream again, also after `close` and after a refusal. */
  async connect() {
    const { signal } = this.#setState(this.#rooms.size ? 'connecting' : 'idle');
    // Rooms that are joined together share a request.
    await null;
    if (signal.aborted || !this.#rooms.size) return;
    this.#startedAtMs = Date.now();
    this.#ending = { code: 1006 };
    await this.#readStream(signal).catch(() => {});
    if (!signal.aborted) this.#lost();
  }

  /** Leaves all rooms and ends the stream. */
  async close() {
    const rooms = this.#rooms;
    // A listener may join again.
    this.#rooms = new Map();
    for (const [, room] of rooms) room.leave();
    // The user may change before the next stream.
    this.#token = '';
    this.#setState('closed');
  }

  /** @param {AbortSignal} signal */
  async #readStream(signal) {
    const { token } = this.#options;
    const isNew = !this.#token;
    if (isNew) {
      try {
        const late = new Promise((_, reject) => this.#arm(ANSWER_MS, reject));
        const found = token instanceof Function ? await Promise.race([token(), late]) : token;
        // The client was closed, and the user may have changed.
        if (signal.aborted) return;
        this.#token = found;
      } catch (cause) {
        if (signal.aborted) return;
        return this.#reportError(
          new FanfareError('TOKEN_UNAVAILABLE', {
            message: /** @type {any} */ (globalThis).FANFARE_BRIEF
              ? 'the token function failed'
              : sentenceOf('TOKEN_UNAVAILABLE', cause),
            cause,
          }),
        );
      }
    }
    const headers = this.#token ? { authorization: `Bearer ${this.#token}` } : undefined;
    this.#arm(ANSWER_MS);
    const response = await fetch(this.#address(), { signal, headers });
    const { status } = response;
    if (status !== 200) {
      const seconds = Number(response.headers.get('retry-after') ?? undefined);
      // Fanfare names its error, and says when waiting helps. A proxy may answer 404 during a
      // deploy.
      const isFinal = response.headers.has('fanfare-error') && !(seconds >= 0);
      const isRenewable = status === 401 && this.#token && token instanceof Function;
      const code = isRenewable ? 4001 : isFinal ? FIRST_FINAL_CODE : 1006;
      this.#ending = {
        code,
        reason: `HTTP ${status}`,
        retryAfterMs: (seconds + Math.random()) * 1000,
      };
      const { error, message } = /** @type {any} */ (await response.json());
      if (message) this.#ending.reason += `: ${message}`;
      // The end of a kept token is no news.
      if (error && isRenewable && isNew) this.#reportError(new FanfareError(error, { message }));
      return;
    }
    const stream = /** @type {ReadableStream} */ (response.body);
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    this.state = 'connected';
    this.emit('state', 'connected', {});
    let text = '';
    let id = '';
    for (;;) {
      const { value } = await reader.read();
      if (!value) return;
      this.#arm();
      const lines = (text + value).split('\n');
      text = /** @type {string} */ (lines.pop());
      // The other lines repeat data, or serve an EventSource.
      for (const line of lines)
        if (line.startsWith('data: ')) this.#receiveMessage(JSON.parse(line.slice(6)));
        else if (line.startsWith('id: ')) id = line.slice(4);
        // An id counts after its event, and may stand alone: the messages there are for others.
        else if (!line && id) {
          this.#moveTo(id);
          id = '';
        }
    }
  }

  /** No two rooms have the same epoch. @param {string} id a position for each room with history */
  #moveTo(id) {
    for (const position of id.split(',')) {
      const [epoch, offset] = position.split(':');
      for (const room of this.#rooms.values())
        if (room.since?.epoch === epoch)
          room.receive({ type: 'position', epoch, offset: Number(offset) });
    }
  }

  /** Names rooms with a position first: `lastEventId` lists positions in the order of the rooms. */
  #address() {
    const rooms = [...this.#rooms.values()].sort((a, b) => Number(!a.since) - Number(!b.since));
    const names = /** @type {[string, string][]} */ (rooms.map(({ name }) => ['room', name]));
    const query = new URLSearchParams(names);
    const ids = rooms.map(({ since }) => (since ? `${since.epoch}:${since.offset}` : '-'));
    const url = new URL(this.#url);
    url.search += `${url.search && '&'}${query}&lastEventId=${ids}`;
    return url.href;
  }

  /** @param {import('../wire.js').Message} message */
  #receiveMessage(message) {
    const { type } = message;
    const room = this.#rooms.get(message.room);
    if (type === 'close') Object.assign(this.#ending, message);
    else if (type === 'SERVER_SHUTDOWN') this.#ending.retryAfterMs = message.reconnectAfterMs;
    else if (type === 'error')
      this.#reportError(
        new FanfareError(message.error, /** @type {{message: string}} */ (message)),
      );
    // A new request for this room would be refused.
    else if (type === 'left') room?.leave();
    else if (room) {
      if (room.receive(message)) this.connect();
    } else this.emit(/** @type {'broadcast'} */ (type), message[type] ?? message.payload);
  }

  #lost() {
    if (this.state === 'connected' && Date.now() - this.#startedAtMs > STABLE_MS) this.#attempt = 0;
    const { code, reason, retryAfterMs } = this.#ending;
    if (code === 4001) this.#token = '';
    if (code >= FIRST_FINAL_CODE) {
      this.#setState('closed', { code, reason });
      return this.#reportError(new FanfareError('REFUSED', { message: `refused: ${reason}` }));
    }
    const delayMs = reconnectDelay(this.#attempt++, this.#options, code, retryAfterMs);
    this.#setState('waiting', { code, reason, delayMs });
    // A listener may have closed the client.
    if (this.state === 'waiting') this.#timer = setTimeout(() => this.connect(), delayMs);
  }

  /** @param {number} [timeoutMs] without data @param {() => void} [act] by default, ends the stream */
  #arm(timeoutMs = (this.#options.heartbeatMs ?? 30_000) + SILENCE_MS, act = () => this.#lost()) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(act, timeoutMs);
  }

  /** Ends the current stream. @param {State} state @param {StateDetail} [detail] */
  #setState(state, detail = {}) {
    clearTimeout(this.#timer);
    this.#controller?.abort();
    this.#controller = new AbortController();
    this.state = state;
    this.emit('state', state, detail);
    return this.#controller;
  }

  /** @param {FanfareError} error @param {Room} [room] */
  #reportError(error, room) {
    if (!room?.emit('error', error) && !this.emit('error', error)) console.error(error);
  }
}
