// stream-client.js: a subscriber by server-sent events, as an EventSource with its page: it
// reconnects with the last event id, and the page drops messages whose offset it has seen.

import { request } from 'node:http';
import { EventReader } from '../helpers/event-stream.js';
import { HISTORY_PREFIX, Place } from './client.js';
import { valueIn } from './payloads.js';

/** An EventSource that got no `retry` yet waits some seconds; runs are shorter. */
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 3000;
/** After a refusal (204) a page would get a new token. */
const REFUSED_MS = 1000;
const ANSWER_MS = 10_000;

/** @typedef {import('./record.js').Position} Position */
/** @typedef {Record<string, any>} Message */

/**
 * @typedef {object} Visit
 * @property {string[]} rooms
 * @property {string} [token] may join further rooms: `autojoin`
 * @property {string[]} [joined] those rooms
 */

export class StreamClient {
  /**
   * @param {object} parts
   * @param {number} parts.id
   * @param {readonly string[]} parts.urls of servers
   * @param {readonly Visit[]} parts.visits its requests in turn: one, or those of a page
   *   whose tokens change
   * @param {number} [parts.last] with its first request
   * @param {string} [parts.user] of the tokens
   * @param {import('./record.js').Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   */
  constructor({ id, urls, visits, last = 0, user, recorder, random }) {
    this.id = id;
    this.urls = urls;
    this.visits = visits;
    this.last = last;
    this.user = user;
    this.recorder = recorder;
    this.random = random;
    const rooms = visits.flatMap((visit) => [...visit.rooms, ...(visit.joined ?? [])]);
    this.places = new Map(rooms.map((room) => [room, new Place(room)]));
    this.lastEventId = '';
    /** Rooms with history. @type {Set<string>} */
    this.kept = new Set();
    this.retryMs = FIRST_RETRY_MS;
    this.attempts = 0;
    this.isWanted = false;
    this.mayBeRefused = false;
    /** @type {import('node:http').ClientRequest|null} */
    this.request = null;
    /** @type {import('node:http').IncomingMessage|null} */
    this.response = null;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** @type {string[]} */
    this.oddities = [];
    /** @type {Set<string>} */
    this.markers = new Set();
  }

  start() {
    this.isWanted = true;
    this.#connect();
  }

  /** @returns {Promise<void>} */
  async stop() {
    this.isWanted = false;
    clearTimeout(this.timer);
    const { request: current } = this;
    if (current === null) return;
    await new Promise((resolve) => {
      current.once('close', resolve);
      current.destroy();
    });
  }

  /** Is it in all rooms of its present request? */
  get isJoined() {
    return this.#rooms.every((room) => this.places.get(room)?.isJoined);
  }

  pause() {
    this.recorder.write({ type: 'reads', client: this.id, reads: false });
    this.response?.pause();
  }

  resume() {
    this.recorder.write({ type: 'reads', client: this.id, reads: true });
    this.response?.resume();
  }

  /** @param {number} ms */
  leave(ms) {
    if (this.request === null) return;
    this.retryMs = ms;
    for (const place of this.places.values()) place.isJoined = false;
    this.request.destroy();
  }

  get #visit() {
    return this.visits[this.attempts % this.visits.length];
  }

  /** Those that the request names come first. */
  get #rooms() {
    const { rooms, joined = [] } = this.#visit;
    return [...new Set([...rooms, ...joined])];
  }

  #connect() {
    this.attempts++;
    const { rooms, token } = this.#visit;
    const server = (this.id + this.attempts) % this.urls.length;
    const query = new URLSearchParams(
      rooms.map((room) => /** @type {[string, string]} */ (['room', room])),
    );
    if (this.last > 0) query.set('last', `${this.last}`);
    const url = `${this.urls[server].replace(/^ws/, 'http')}sse?${query}`;
    const current = request(url, {
      agent: false,
      headers: {
        accept: 'text/event-stream',
        ...(this.lastEventId !== '' && { 'last-event-id': this.lastEventId }),
        ...(token && { authorization: `Bearer ${token}` }),
      },
    });
    this.request = current;
    const reader = new EventReader();
    reader.lastEventId = reader.idField = this.lastEventId;
    let isOpen = false;
    // Not with the first byte: a stream that waits for its turn has none yet.
    const slow = setTimeout(() => current.destroy(), ANSWER_MS);
    current.on('response', (response) => {
      clearTimeout(slow);
      this.response = response;
      if (response.statusCode !== 200) {
        this.retryMs = REFUSED_MS;
        if (!this.mayBeRefused)
          this.oddities.push(`${response.statusCode} ${response.headers['fanfare-error']}`);
        response.resume();
        return;
      }
      response.on('data', (bytes) => {
        for (const { type, data, id } of reader.read(bytes)) {
          const message = JSON.parse(data);
          if (!isOpen && type === 'joined') {
            isOpen = true;
            this.#opened(server);
          }
          this.#receive(type, message);
          this.lastEventId = id;
        }
        if (reader.retryMs >= 0) this.retryMs = Math.min(reader.retryMs, MAX_RETRY_MS);
      });
      response.on('error', () => {});
    });
    // `close` follows.
    current.on('error', () => {});
    current.on('close', () => {
      clearTimeout(slow);
      if (isOpen) this.recorder.write({ type: 'close', client: this.id, code: 1006 });
      for (const place of this.places.values()) place.isJoined = false;
      this.request = this.response = null;
      if (!this.isWanted) return;
      this.timer = setTimeout(() => this.#connect(), this.retryMs * this.random.between(0.8, 1.2));
    });
    current.end();
  }

  /** The server has taken it in. @param {number} server */
  #opened(server) {
    const { id: client, user, lastEventId } = this;
    this.recorder.write({ type: 'connect', client, server, ...(user && { user }) });
    const parts = lastEventId.split(',').map(positionOf);
    const tracked = this.#rooms.filter(
      (room) => room.startsWith(HISTORY_PREFIX) || this.kept.has(room),
    );
    // To a server that gets no id, or one with more positions than rooms, it is a new client, and to
    // its page all messages are new; so it is in a room for which the id has no position. Who changes
    // the order of its rooms may give that of another room, or a former one.
    const isNew = lastEventId === '' || parts.length > this.#rooms.length;
    for (const room of this.#rooms) {
      const place = /** @type {Place} */ (this.places.get(room));
      const id = parts[tracked.indexOf(room)];
      const { position } = place;
      const isSame = id?.epoch === position?.epoch && id?.offset === position?.offset;
      const since = isNew || !id || (this.visits.length > 1 && !isSame) ? null : position;
      this.recorder.write({
        type: 'subscribe',
        client,
        room,
        ...(since && { since }),
        ...(this.last > 0 && { last: this.last }),
        ...(since && id && { id }),
      });
    }
  }

  /** @param {string} type @param {Message} message */
  #receive(type, message) {
    const { id: client, recorder } = this;
    const { room, epoch, offset, recovered, replayed } = message;
    const place = this.places.get(room);
    if (type === 'message') {
      const value = valueIn(message.payload);
      const position = place?.position;
      const isPassed = position != null && position.epoch === epoch && offset <= position.offset;
      recorder.write({ type: isPassed ? 'repeat' : 'deliver', client, room, value, epoch, offset });
      if (place !== undefined && epoch !== undefined && !isPassed)
        place.position = { epoch, offset };
      if (value.startsWith('m')) this.markers.add(value);
    } else if (type === 'joined') {
      if (place === undefined || place.isJoined) return this.oddities.push(`joined ${room}`);
      place.isJoined = true;
      recorder.write({ type: 'reply', client, room, epoch, offset, recovered, replayed });
      if (epoch === undefined) return;
      this.kept.add(room);
      if (!(recovered && epoch === place.position?.epoch))
        place.position = { epoch, offset: offset - (replayed ?? 0) };
    } else if (type === 'resync') {
      recorder.write({ type: 'resync', client, room, epoch, offset });
      if (place !== undefined) place.position = { epoch, offset };
    } else if (type === 'degraded') {
      recorder.write({ type, client, degraded: message.degraded });
    } else if (type === 'error') {
      const isExpected = RETRIED.test(message.error) || this.mayBeRefused;
      if (!isExpected) this.oddities.push(JSON.stringify(message));
    } else if (!EXPECTED.has(type)) this.oddities.push(JSON.stringify(message));
  }
}

const EXPECTED = new Set(['presence', 'SERVER_SHUTDOWN', 'close', 'left']);
/** Errors after which an EventSource comes again: of the broker, and of a worker that is too busy. */
const RETRIED = /^(UNAVAILABLE|[a-z_]+)$/;

/** @param {string} text @returns {Position|null} */
function positionOf(text) {
  const [epoch, offset] = text.split(':');
  return offset === undefined ? null : { epoch, offset: Number(offset) };
}
