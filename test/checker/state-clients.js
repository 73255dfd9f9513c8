// state-clients.js: members of rooms with state: as a WebSocket client without a library, and as
// `fanfare/client` and `fanfare/client/sse`. Each records the changes that its application sees.

import { Fanfare } from '../../src/client/node.js';
import { Fanfare as StreamFanfare } from '../../src/client/sse/index.js';
import { HANDLERS, Place, RecoveringClient } from './client.js';
import { valueIn } from './payloads.js';

const DELAYS = Object.freeze({ firstDelayMs: 100, maxDelayMs: 1500 });

/** @typedef {import('./record.js').Recorder} Recorder */
/** @typedef {import('./record.js').StateWhat} StateWhat */

/** The part of a Recorder that clients and publishers use. @typedef {Pick<Recorder, 'write'>} Writer */

/**
 * Records what a client or a publisher of rooms with state does as events of rooms with state.
 * @param {Recorder} recorder @returns {Writer}
 */
export function stateRecorder(recorder) {
  return {
    write(event) {
      const { type, ...about } = /** @type {any} */ (event);
      if (type === 'invoke') {
        const { value, room, key, removes, audience } = about;
        recorder.write({ type: 'state', what: 'put', value, room, key, removes, audience });
      } else if (type === 'close') {
        recorder.write({ type: 'state', what: 'close', client: about.client });
      } else if (type === 'ok' || type === 'fail' || type === 'info')
        recorder.write({ type: 'state', what: type, ...about });
    },
  };
}

/** One room with state of a client without a library. */
class StatePlace extends Place {
  /** Values by key. @type {Map<string, any>} */
  map = new Map();
}

/** A member by WebSocket, which follows docs/protocol.md. */
export class StateClient extends RecoveringClient {
  /**
   * @param {Omit<ConstructorParameters<typeof RecoveringClient>[0], 'recorder'> & {recorder: Recorder, newPages?: number}} parts
   *   `newPages`: share of its joins that have no position, as those of a page that was loaded again
   */
  constructor({ newPages = 0, ...parts }) {
    super({ ...parts, recorder: /** @type {Recorder} */ (stateRecorder(parts.recorder)) });
    this.newPages = newPages;
    this.states = parts.recorder;
    this.places = new Map(parts.rooms.map((room) => [room, new StatePlace(room)]));
    this.handlers = STATE_HANDLERS;
  }

  /** @param {StateWhat} what */
  note(what) {
    this.states.write({ type: 'state', ...what });
  }

  /** @override @param {Place} place */
  join(place) {
    if (this.newPages > 0 && this.random.next() < this.newPages) place.position = null;
    super.join(place);
  }

  /** Does it record each message? */
  get hearsAll() {
    return true;
  }

  /** @param {string} room @returns {[string, string][]|null} the map that it shows */
  shown(room) {
    const place = /** @type {StatePlace|undefined} */ (this.places.get(room));
    return place?.isJoined ? [...place.map].map(([key, one]) => [key, valueIn(one)]) : null;
  }
}

/** @type {import('./client.js').Handlers} */
export const STATE_HANDLERS = {
  SERVER_SHUTDOWN: HANDLERS.SERVER_SHUTDOWN,
  error: HANDLERS.error,
  degraded() {},

  joined(client, { room, epoch, offset, recovered, state }) {
    const place = placeOf(client, room);
    if (place === undefined || place.isJoined || !state)
      return client.oddities.push(`joined ${room}`);
    place.isJoined = true;
    const since = place.position?.offset;
    note(client, { what: 'joined', client: client.id, room, epoch, offset, recovered, since });
    if (!recovered) forget(place, epoch);
    if (client.isJoined) client.attempts = 0;
  },

  message(client, { room, key, payload, epoch, offset }) {
    const place = placeOf(client, room);
    if (place === undefined) return client.oddities.push(`a message in ${room}`);
    const value = payload === null ? null : valueIn(payload);
    note(client, { what: 'change', client: client.id, room, key, value, epoch, offset });
    place.position = { epoch, offset };
    if (payload === null) place.map.delete(key);
    else place.map.set(key, payload);
  },

  reset(client, { room, epoch, offset }) {
    const place = placeOf(client, room);
    note(client, { what: 'reset', client: client.id, room, epoch, offset });
    if (place !== undefined) forget(place, epoch);
  },

  synced(client, { room, epoch, offset }) {
    const place = placeOf(client, room);
    note(client, { what: 'synced', client: client.id, room, epoch, offset });
    if (place !== undefined) place.position = { epoch, offset };
  },
};

/** @param {RecoveringClient} client @param {string} room */
const placeOf = (client, room) => /** @type {StatePlace|undefined} */ (client.places.get(room));

/** @param {RecoveringClient} client @param {StateWhat} what */
const note = (client, what) => /** @type {StateClient} */ (client).note(what);

/** The whole state follows. @param {StatePlace} place @param {string} epoch */
function forget(place, epoch) {
  place.map = new Map();
  place.position = { epoch, offset: 0 };
}

/** A member by the client library. */
export class StateLibrary {
  /**
   * @param {object} parts
   * @param {number} parts.id
   * @param {string} parts.url of a server, or of the way to it
   * @param {boolean} parts.isStream by server-sent events
   * @param {readonly string[]} parts.rooms
   * @param {Recorder} parts.recorder
   * @param {() => string} [parts.token]
   */
  constructor({ id, url, isStream, rooms, recorder, token }) {
    this.id = id;
    this.token = token;
    this.url = isStream ? `${url.replace(/^ws/, 'http')}sse` : `${url}ws`;
    this.isStream = isStream;
    this.recorder = recorder;
    /** @type {string|undefined} */
    this.user = undefined;
    this.places = new Map(rooms.map((room) => [room, new Place(room)]));
    /** @type {Map<string, any>} */
    this.rooms = new Map();
    /** @type {Set<string>} */
    this.markers = new Set();
    /** @type {string[]} */
    this.oddities = [];
    /** @type {any} the entries have one API */
    this.fanfare = null;
  }

  start() {
    const options = { ...DELAYS, ...(this.token && { token: this.token }) };
    this.fanfare = this.isStream
      ? new StreamFanfare(this.url, options)
      : new Fanfare(this.url, options);
    this.fanfare.on('error', (/** @type {Error & {code: string}} */ error) => {
      if (error.code === 'REFUSED') this.oddities.push(`${error.message}`);
    });
    this.fanfare.on('state', (/** @type {string} */ state) => {
      if (state === 'connected') return;
      for (const place of this.places.values()) place.isJoined = false;
      this.recorder.write({ type: 'state', what: 'close', client: this.id });
    });
    for (const room of this.places.keys()) this.#enter(room);
  }

  async stop() {
    await this.fanfare?.close();
  }

  get isJoined() {
    for (const place of this.places.values()) if (!place.isJoined) return false;
    return true;
  }

  /** Leaves a room, and joins it as an application that begins. @param {string} room */
  again(room) {
    const place = this.places.get(room);
    if (!place?.isJoined || this.isStream) return;
    place.isJoined = false;
    this.rooms.get(room).leave();
    // In the same turn the new handle would share the map of the old one.
    setImmediate(() => this.#enter(room));
  }

  /** An application is not told of the removal of a key that its map does not have. */
  get hearsAll() {
    return false;
  }

  /** @param {string} room @returns {[string, string][]|null} the map that it shows */
  shown(room) {
    if (!this.places.get(room)?.isJoined) return null;
    const state = /** @type {Map<string, any>} */ (this.rooms.get(room).state ?? new Map());
    return [...state].map(([key, payload]) => [key, valueIn(payload)]);
  }

  /** @param {string} name */
  #enter(name) {
    const { id: client, recorder } = this;
    const place = /** @type {Place} */ (this.places.get(name));
    const recoverFailed = () => void this.oddities.push(`${name}: recoverFailed`);
    const room = this.fanfare.join(name, { recoverFailed });
    this.rooms.set(name, room);
    const note = (/** @type {any} */ what) =>
      recorder.write({ type: 'state', client, room: name, ...what });
    room.on('error', (/** @type {Error} */ error) => this.oddities.push(`${name}: ${error}`));
    room.on('joined', (/** @type {any} */ { recovered, position }) => {
      place.isJoined = true;
      note({ what: 'joined', ...position, recovered });
    });
    room.on('reset', (/** @type {unknown} */ _, /** @type {any} */ position) =>
      note({ what: 'reset', ...position }),
    );
    room.on('change', (/** @type {any} */ { key, payload, epoch, offset }) => {
      const value = payload === null ? null : valueIn(payload);
      note({ what: 'change', key, value, epoch, offset });
    });
    room.on('synced', (/** @type {any} */ position) => note({ what: 'synced', ...position }));
  }
}
