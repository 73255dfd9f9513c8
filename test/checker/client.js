// client.js: a subscriber that reconnects, and records the events that its application would see.
//
// It does the duties of a client library in the shortest way. It remembers its position in each
// room with history, and rejoins with `since`. It trusts the `recovered` of the reply, and drops
// messages that it has passed. It records the events of the wire in the order of reading: see
// record.js.

import { WebSocket } from 'ws';
import { valueIn } from './payloads.js';

/** Back-off: any part of FIRST·2ⁿ, at most MAX. Shorter than a real client's, since runs are. */
/** The prefix of rooms with history, for FANFARE_HISTORY. */
export const HISTORY_PREFIX = 'h.';
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 2000;
/** Of a handshake; and of a join, whose worker may be frozen. */
const OPEN_TIMEOUT_MS = 5000;
const JOIN_TIMEOUT_MS = 10_000;
/** About as long as an answer takes. */
const BROKEN_MS = 4;

/** @typedef {import('./record.js').Position} Position */
/** @typedef {Record<string, any>} Message */

/** One room of a client. */
export class Place {
  /** @param {string} room */
  constructor(room) {
    this.room = room;
    this.isJoined = false;
    /**
     * How far it has got; null in a plain room, and before the first reply.
     * @type {Position|null}
     */
    this.position = null;
  }
}

/**
 * @typedef {{[type: string]: ((client: RecoveringClient, message: Message) => void)|undefined}}
 *   Handlers
 */

export class RecoveringClient {
  /**
   * @param {object} parts
   * @param {number} parts.id
   * @param {readonly string[]} parts.urls it begins with the one of its number and goes on to the
   *   next when that fails
   * @param {readonly string[]} parts.rooms
   * @param {import('./record.js').Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   * @param {string} [parts.user] of the token
   * @param {string} [parts.token]
   */
  constructor({ id, urls, rooms, recorder, random, user, token }) {
    this.id = id;
    this.urls = urls;
    this.recorder = recorder;
    this.random = random;
    this.user = user;
    this.token = token;
    /** @type {Handlers} */
    this.handlers = HANDLERS;
    this.places = new Map(rooms.map((room) => [room, new Place(room)]));
    /** @type {WebSocket|null} */
    this.socket = null;
    this.isWanted = false;
    this.attempts = 0;
    /** @type {Set<NodeJS.Timeout>} */
    this.timers = new Set();
    /** The delay that the server requested before it closed; NaN if it requested none. */
    this.reconnectAfterMs = Number.NaN;
    /** Unexpected answers and messages; a test requires an empty list. @type {string[]} */
    this.oddities = [];
    /** Share of its joins that are followed by the end of the connection. */
    this.brokenJoins = 0;
    /** A load balancer may send each of its connections to another server. */
    this.isRoaming = false;
    this.moves = 0;
    /** Markers it has got. @type {Set<string>} */
    this.markers = new Set();
    /** `degraded` pushes, as they came. @type {boolean[]} */
    this.degraded = [];
    /** Rooms of the `resync` messages it got, one entry each. @type {string[]} */
    this.resyncs = [];
    /** Codes its connections were closed with while it wanted them. @type {number[]} */
    this.closes = [];
  }

  start() {
    this.isWanted = true;
    this.#connect();
  }

  /** Closes it, without a return. @returns {Promise<void>} when it is closed */
  async stop() {
    this.isWanted = false;
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
    const { socket } = this;
    if (socket === null) return;
    await new Promise((resolve) => {
      socket.once('close', resolve);
      socket.resume();
      socket.close(1000);
      // A server that is stopped or frozen does not answer.
      setTimeout(() => socket.terminate(), 1000).unref();
    });
  }

  /** Is it a member of all its rooms? */
  get isJoined() {
    for (const place of this.places.values()) if (!place.isJoined) return false;
    return true;
  }

  /** Reads no more, until `resume`: a slow reader. */
  pause() {
    this.recorder.write({ type: 'reads', client: this.id, reads: false });
    // A socket whose handshake has just failed has nothing to pause.
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.pause();
  }

  resume() {
    this.recorder.write({ type: 'reads', client: this.id, reads: true });
    if (this.socket?.isPaused) this.socket.resume();
  }

  /** Loses its connection now, and returns after this time. @param {number} ms */
  leave(ms) {
    if (this.socket === null) return;
    this.reconnectAfterMs = ms;
    this.socket.terminate();
  }

  #connect() {
    const server = (this.id + this.attempts + this.moves) % this.urls.length;
    const query = this.token === undefined ? '' : `ws?token=${this.token}`;
    const socket = new WebSocket(`${this.urls[server]}${query}`, {
      handshakeTimeout: OPEN_TIMEOUT_MS,
      perMessageDeflate: false,
    });
    this.socket = socket;
    let isOpen = false;
    socket.on('open', () => {
      isOpen = true;
      const { id, user } = this;
      this.recorder.write({ type: 'connect', client: id, server, ...(user && { user }) });
      for (const place of this.places.values()) this.join(place);
      this.later(JOIN_TIMEOUT_MS, () => {
        if (this.socket === socket && !this.isJoined) socket.terminate();
      });
    });
    socket.on('message', (data) => this.#receive(JSON.parse(String(data))));
    // `close` follows, with the code.
    socket.on('error', () => {});
    socket.on('close', (code) => {
      if (isOpen) {
        this.recorder.write({ type: 'close', client: this.id, code });
        if (this.isWanted) this.closes.push(code);
      }
      for (const place of this.places.values()) place.isJoined = false;
      this.socket = null;
      if (!this.isWanted) return;
      if (this.isRoaming) this.moves += this.random.below(2);
      const longest = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(this.attempts++, 10));
      const delayMs = Number.isNaN(this.reconnectAfterMs)
        ? this.random.next() * longest
        : this.reconnectAfterMs;
      this.reconnectAfterMs = Number.NaN;
      this.later(delayMs, () => this.#connect());
    });
  }

  /** @param {Place} place */
  join({ room, position }) {
    const from = this.beginning(position);
    this.recorder.write({ type: 'subscribe', client: this.id, room, ...from });
    // The id is the room, because an error names no room.
    const { socket } = this;
    socket?.send(JSON.stringify({ type: 'join', id: room.slice(0, 64), room, ...from }));
    if (this.brokenJoins > 0 && this.random.next() < this.brokenJoins)
      this.later(this.random.between(0, BROKEN_MS), () => socket?.terminate());
  }

  /**
   * Where the messages of a room are to begin.
   * @param {Position|null} position @returns {{since?: Position, last?: number}}
   */
  beginning(position) {
    return position === null ? {} : { since: position };
  }

  /** @param {Message} message */
  #receive(message) {
    const handle = this.handlers[message.type];
    if (handle === undefined) this.oddities.push(JSON.stringify(message));
    else handle(this, message);
  }

  /**
   * Joins again, after a pause, if the room was refused.
   * @param {string} room @param {number} [afterSeconds]
   */
  retry(room, afterSeconds = 0) {
    const { socket } = this;
    const place = this.places.get(room);
    const delayMs = Math.max(1000 * afterSeconds, this.random.between(100, 500));
    this.later(delayMs, () => {
      if (place !== undefined && !place.isJoined && this.socket === socket) this.join(place);
    });
  }

  /** @param {number} ms @param {() => void} act */
  later(ms, act) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms);
    this.timers.add(timer);
  }
}

/** The messages of a server, by type. @type {Handlers} */
export const HANDLERS = {
  joined(client, { room, epoch, offset, recovered, replayed }) {
    const place = client.places.get(room);
    if (place === undefined || place.isJoined) return client.oddities.push(`joined ${room}`);
    place.isJoined = true;
    const position = { epoch, offset };
    const { id } = client;
    client.recorder.write({ type: 'reply', client: id, room, ...position, recovered, replayed });
    // The position is recorded above; the checker decides whether it can be
    // true.
    if (epoch !== undefined && !(recovered && epoch === place.position?.epoch))
      place.position = { epoch, offset: offset - (replayed ?? 0) };
    if (client.isJoined) client.attempts = 0;
  },

  message(client, { room, payload, epoch, offset }) {
    const value = valueIn(payload);
    const place = client.places.get(room);
    const position = place?.position;
    const isPassed = position != null && position.epoch === epoch && offset <= position.offset;
    const type = isPassed ? 'repeat' : 'deliver';
    client.recorder.write({ type, client: client.id, room, value, epoch, offset });
    if (place !== undefined && epoch !== undefined && !isPassed) place.position = { epoch, offset };
    if (value.startsWith('m')) client.markers.add(value);
  },

  resync(client, { room, epoch, offset }) {
    const place = client.places.get(room);
    client.recorder.write({ type: 'resync', client: client.id, room, epoch, offset });
    client.resyncs.push(room);
    if (place !== undefined) place.position = { epoch, offset };
  },

  SERVER_SHUTDOWN(client, { reconnectAfterMs }) {
    client.reconnectAfterMs = reconnectAfterMs;
  },

  degraded(client, { degraded }) {
    client.recorder.write({ type: 'degraded', client: client.id, degraded });
    client.degraded.push(degraded);
  },

  error(client, { error, id, retryAfter }) {
    if (error === 'UNAVAILABLE' && typeof id === 'string') client.retry(id, retryAfter);
    else client.oddities.push(`${error} ${id}`);
  },
};
