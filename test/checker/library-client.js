// library-client.js: `fanfare/client` and `fanfare/client/sse` as subscribers. It records what they
// hand to the application.
//
// Their duties are those of the other clients: each message once and in order, or a `reset` that says
// where messages continue. A `reset` is recorded as a `resync`.

import { Fanfare } from '../../src/client/node.js';
import { Fanfare as StreamFanfare } from '../../src/client/sse/index.js';
import { Place } from './client.js';
import { valueIn } from './payloads.js';

const DELAYS = Object.freeze({ firstDelayMs: 100, maxDelayMs: 1500 });

/** @typedef {import('./record.js').Position} Position */

export class LibraryClient {
  /**
   * @param {object} parts
   * @param {number} parts.id
   * @param {string} parts.url of a server, or of the way to it
   * @param {number} parts.server its number
   * @param {boolean} parts.isStream by server-sent events
   * @param {readonly string[]} parts.rooms
   * @param {readonly string[]} [parts.presence] rooms with presence
   * @param {number} [parts.last] of the first join of each room
   * @param {string} parts.user
   * @param {() => string} parts.token
   * @param {import('./record.js').Recorder} parts.recorder
   */
  constructor({ id, url, server, isStream, rooms, presence = [], last, user, token, recorder }) {
    this.id = id;
    this.url = isStream ? `${url.replace(/^ws/, 'http')}sse` : `${url}ws`;
    this.server = server;
    this.isStream = isStream;
    this.presence = presence;
    this.last = last;
    this.user = user;
    this.token = token;
    this.recorder = recorder;
    this.places = new Map([...rooms, ...presence].map((room) => [room, new Place(room)]));
    /** @type {Map<string, any>} */
    this.rooms = new Map();
    /** @type {Map<string, Set<string>>} */
    this.lists = new Map();
    /** Rooms with a `resync` whose `reset` has not come. @type {Set<string>} */
    this.behind = new Set();
    /** @type {Set<string>} */
    this.markers = new Set();
    /** @type {string[]} */
    this.oddities = [];
    this.isOpen = false;
    this.sequence = 0;
    /** @type {any} the entries have one API */
    this.fanfare = null;
  }

  start() {
    const { url, token, isStream } = this;
    const options = { ...DELAYS, token };
    this.fanfare = isStream ? new StreamFanfare(url, options) : new Fanfare(url, options);
    this.fanfare.on('error', (/** @type {Error & {code: string}} */ error) => {
      if (error.code === 'REFUSED') this.oddities.push(`${error.message}`);
    });
    this.fanfare.on('degraded', (/** @type {boolean} */ degraded) =>
      this.recorder.write({ type: 'degraded', client: this.id, degraded }),
    );
    this.fanfare.on('state', (/** @type {string} */ state, /** @type {any} */ { code = 1006 }) =>
      state === 'connected' ? this.#opened() : this.#closed(code),
    );
    for (const room of this.places.keys()) this.#enter(room);
  }

  async stop() {
    await this.fanfare?.close();
    this.#closed(1000);
  }

  get isJoined() {
    for (const place of this.places.values()) if (!place.isJoined) return false;
    return true;
  }

  /** Leaves a room as an application does, and joins it as a new one. @param {string} room */
  again(room) {
    const place = /** @type {Place} */ (this.places.get(room));
    if (place.isJoined) this.#rejoin(room, place);
  }

  /** @param {string} room @param {Place} place */
  #rejoin(room, place) {
    place.isJoined = false;
    place.position = null;
    this.behind.delete(room);
    this.recorder.write({ type: 'leave', client: this.id, room });
    this.rooms.get(room).leave();
    this.#enter(room);
  }

  /** Publishes without an echo. @param {string} room */
  async publish(room) {
    if (this.fanfare.state !== 'connected' || !this.places.get(room)?.isJoined) return;
    const { id: client, recorder } = this;
    const value = `l${client}:${++this.sequence}:${room}`;
    recorder.write({ type: 'invoke', value, client });
    try {
      const { epoch, offset } = await this.rooms.get(room).publish(value, { echo: false });
      recorder.write({ type: 'ok', value, epoch, offset });
    } catch (error) {
      const { code, retryable } = /** @type {{code: string, retryable: boolean}} */ (error);
      recorder.write({ type: retryable ? 'fail' : 'info', value, reason: code });
    }
  }

  /** Records the users that it shows. */
  list() {
    for (const room of this.presence) {
      if (!this.places.get(room)?.isJoined) continue;
      const users = this.lists.get(room);
      this.recorder.write({
        type: 'list',
        client: this.id,
        room,
        users: users ? [...users] : null,
      });
    }
  }

  /** @param {string} name */
  #enter(name) {
    const { id: client, recorder, last } = this;
    const place = /** @type {Place} */ (this.places.get(name));
    const hasPresence = this.presence.includes(name);
    const room = this.fanfare.join(name, {
      recoverFailed: (/** @type {Position} */ position) => position,
      ...(!this.isStream && !hasPresence && last !== undefined && { last }),
    });
    this.rooms.set(name, room);
    const isNew = { last: !this.isStream && !hasPresence ? last : undefined };
    room.on('error', (/** @type {Error} */ error) => this.oddities.push(`${name}: ${error}`));
    room.on('joined', (/** @type {any} */ { recovered, position }) => {
      place.isJoined = true;
      const since = place.position ?? undefined;
      // What follows waits for `recoverFailed`.
      if (!recovered && since) this.behind.add(name);
      recorder.write({
        type: 'subscribe',
        client,
        room: name,
        ...(since ? { since } : isNew),
      });
      recorder.write({ type: 'reply', client, room: name, ...position, recovered });
      isNew.last = undefined;
      if (position !== undefined && !(recovered && position.epoch === since?.epoch))
        place.position = position;
    });
    room.on('resync', () => this.behind.add(name));
    room.on('reset', (/** @type {unknown} */ _, /** @type {Position|undefined} */ position) => {
      this.behind.delete(name);
      if (position === undefined) return;
      place.position = position;
      recorder.write({ type: 'resync', client, room: name, ...position });
    });
    room.on('message', (/** @type {any} */ payload, /** @type {any} */ { epoch, offset }) => {
      const value = valueIn(payload);
      if (epoch !== undefined) place.position = { epoch, offset };
      recorder.write({ type: 'deliver', client, room: name, value, epoch, offset });
      if (value.startsWith('m')) this.markers.add(value);
    });
    if (hasPresence && !this.isStream)
      room.presence.on('change', (/** @type {{user: string}[]} */ members) =>
        this.lists.set(name, new Set(members.map(({ user }) => user))),
      );
  }

  #opened() {
    const { id: client, user } = this;
    this.isOpen = true;
    this.recorder.write({ type: 'connect', client, server: this.server, user });
  }

  /** @param {number} code */
  #closed(code) {
    if (!this.isOpen) return;
    this.isOpen = false;
    for (const [room, place] of this.places) {
      // What waits for `recoverFailed` would follow the close: the record has no place for that.
      if (this.behind.has(room) && this.fanfare.state !== 'closed') this.#rejoin(room, place);
      place.isJoined = false;
    }
    this.recorder.write({ type: 'close', client: this.id, code });
  }
}
