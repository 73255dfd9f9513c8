// centrifugo-client.js: centrifuge-js as a subscriber of rooms with history, over one of its
// transports. It records the calls of the library to the application.
//
// The library recovers by itself, and drops nothing: each publication that it hands on is a delivery,
// and one that comes twice is a fault. When the server ends a subscription with 2500 or above, the
// library subscribes again. If that is recovered, messages go on as if nothing had happened;
// otherwise it is recorded as a `resync`. Subscriptions may have tokens that the library renews, or
// come with the token of the connection.

import { Centrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import { WebSocket } from 'ws';
import { Place } from './client.js';
import { valueIn } from './payloads.js';

export const TRANSPORTS = /** @type {const} */ (['websocket', 'protobuf', 'http_stream', 'sse']);
const OPEN_TIMEOUT_MS = 5000;
const DELAYS = Object.freeze({ minReconnectDelay: 100, maxReconnectDelay: 2000 });
const SUBSCRIBE_DELAYS = Object.freeze({ minResubscribeDelay: 100, maxResubscribeDelay: 1000 });
/** From here on the library subscribes again when the server ends a subscription. */
const AGAIN = 2500;
/** The token of a subscription was not renewed in time. */
const EXPIRED = 2501;
/** No server: this protocol has no notice of outages, so none is expected. */
const NO_SERVER = -1;

/** @typedef {import('./record.js').Position} Position */

export class CentrifugoClient {
  /**
   * @param {object} parts
   * @param {number} parts.id
   * @param {readonly string[]} parts.urls of servers, or of the ways to them
   * @param {readonly string[]} parts.rooms with history
   * @param {typeof TRANSPORTS[number]} parts.transport `protobuf`: over a WebSocket
   * @param {import('./record.js').Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   * @param {() => string} [parts.token] the next one, when it connects after `leave`
   * @param {string} [parts.user] whom its tokens subscribe to all rooms
   * @param {(room: string) => string} [parts.tokenOf] the next one of a subscription
   */
  constructor({ id, urls, rooms, transport, recorder, random, token, user, tokenOf }) {
    this.id = id;
    this.token = token;
    this.user = user;
    this.tokenOf = tokenOf;
    this.urls = urls;
    this.transport = transport;
    this.recorder = recorder;
    this.random = random;
    this.places = new Map(rooms.map((room) => [room, new Place(room)]));
    /** Their subscriptions were ended, and the library subscribes again. @type {Set<string>} */
    this.ended = new Set();
    /** @type {WebSocket|null} */
    this.socket = null;
    this.attempts = 0;
    this.isOpen = false;
    this.isWanted = false;
    /** @type {Set<NodeJS.Timeout>} */
    this.timers = new Set();
    /** @type {string[]} */
    this.oddities = [];
    /** @type {Set<string>} */
    this.markers = new Set();
    this.library = this.#make();
    if (user === undefined) for (const place of this.places.values()) this.#subscribe(place);
    else this.#followServer();
  }

  start() {
    this.isWanted = true;
    this.library.connect();
  }

  async stop() {
    this.isWanted = false;
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
    this.library.disconnect();
  }

  get isJoined() {
    for (const place of this.places.values()) if (!place.isJoined) return false;
    return true;
  }

  pause() {
    this.recorder.write({ type: 'reads', client: this.id, reads: false });
    this.socket?.pause();
  }

  resume() {
    this.recorder.write({ type: 'reads', client: this.id, reads: true });
    this.socket?.resume();
  }

  /** Loses its connection, and comes back after so many milliseconds. @param {number} ms */
  leave(ms) {
    if (!this.isOpen) return;
    this.socket?.terminate();
    this.library.disconnect();
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      if (this.token) this.library.setToken(this.token());
      this.library.connect();
    }, ms);
    this.timers.add(timer);
  }

  #make() {
    const { transport } = this;
    const isWebSocket = transport === 'websocket' || transport === 'protobuf';
    const Library = transport === 'protobuf' ? ProtobufCentrifuge : Centrifuge;
    // The addresses are replaced for each attempt, by one of the servers.
    const endpoint = `http://127.0.0.1/connection/${transport}`;
    const library = new Library(
      [{ transport: isWebSocket ? 'websocket' : transport, endpoint }],
      /** @type {any} */ ({
        ...DELAYS,
        ...(this.token && { token: this.token() }),
        websocket: this.#webSocket(),
        fetch: (/** @type {string} */ url, /** @type {RequestInit} */ options) =>
          this.#fetch(new URL(url).pathname, options),
        eventsource: this.#eventSource(),
        readableStream: ReadableStream,
        emulationEndpoint: 'http://127.0.0.1/emulation',
      }),
    );
    library.on('connected', () => {
      this.isOpen = true;
      this.recorder.write({ type: 'connect', client: this.id, server: NO_SERVER });
    });
    library.on('connecting', ({ code }) => this.#closed(code));
    library.on('disconnected', ({ code, reason }) => {
      this.#closed(code);
      if (this.isWanted && code >= 3000) this.oddities.push(`closed for ever: ${code} ${reason}`);
    });
    return library;
  }

  /** @param {Place} place */
  #subscribe(place) {
    const { room } = place;
    const { tokenOf } = this;
    /** May the server not have heard of the next token? */
    let hasFailed = false;
    const subscription = this.library.newSubscription(room, {
      ...SUBSCRIBE_DELAYS,
      ...(tokenOf && { getToken: async () => tokenOf(room) }),
    });
    subscription.on('error', () => {
      hasFailed = true;
    });
    subscription.on('subscribing', ({ code }) => {
      if (code === EXPIRED && !hasFailed) this.oddities.push(`${room} has expired`);
      hasFailed = false;
      if (code >= AGAIN && place.isJoined) this.ended.add(room);
      place.isJoined = false;
    });
    subscription.on('unsubscribed', ({ code, reason }) => {
      place.isJoined = false;
      this.oddities.push(`${room} is over: ${code} ${reason}`);
    });
    subscription.on('subscribed', ({ streamPosition, recovered }) =>
      this.#subscribed(place, streamPosition, recovered),
    );
    subscription.on('publication', ({ data, offset }) => this.#deliver(place, data, offset));
    subscription.subscribe();
  }

  /** Its subscriptions come and go with the connection. */
  #followServer() {
    const placeOf = (/** @type {{channel: string}} */ { channel }) =>
      /** @type {Place} */ (this.places.get(channel));
    this.library.on('subscribed', (context) =>
      this.#subscribed(placeOf(context), context.streamPosition, context.recovered),
    );
    this.library.on('unsubscribed', (context) => {
      placeOf(context).isJoined = false;
      this.oddities.push(`${context.channel} is over`);
    });
    this.library.on('publication', (context) =>
      this.#deliver(placeOf(context), context.data, context.offset),
    );
  }

  /** @param {Place} place @param {Position|undefined} position @param {boolean} recovered */
  #subscribed(place, position, recovered) {
    const { id: client, recorder, ended } = this;
    const { room } = place;
    if (position === undefined) return void this.oddities.push(`${room} has no position`);
    const { epoch, offset } = position;
    const since = place.position ?? undefined;
    // What it missed follows, from where it was. An application may keep this position.
    if (recovered && since !== undefined && offset !== since.offset)
      this.oddities.push(`${room} is recovered from ${offset}, not from ${since.offset}`);
    place.isJoined = true;
    if (ended.delete(room)) {
      if (!recovered) recorder.write({ type: 'resync', client, room, epoch, offset });
    } else {
      recorder.write({ type: 'subscribe', client, room, ...(since && { since }) });
      recorder.write({ type: 'reply', client, room, epoch, offset, recovered });
    }
    if (!recovered) place.position = { epoch, offset };
  }

  /** @param {Place} place @param {any} data @param {number|undefined} offset */
  #deliver(place, data, offset) {
    const { room } = place;
    const payload = data instanceof Uint8Array ? JSON.parse(Buffer.from(data).toString()) : data;
    const value = valueIn(payload);
    const epoch = place.position?.epoch;
    if (epoch === undefined || offset === undefined)
      return void this.oddities.push(`${value} in ${room} has no position`);
    place.position = { epoch, offset };
    this.recorder.write({ type: 'deliver', client: this.id, room, value, epoch, offset });
    if (value.startsWith('m')) this.markers.add(value);
  }

  /** @param {number} code of the library */
  #closed(code) {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.ended.clear();
    for (const place of this.places.values()) place.isJoined = false;
    this.recorder.write({ type: 'close', client: this.id, code });
  }

  /** The next server. */
  #next() {
    return this.urls[(this.id + this.attempts++) % this.urls.length];
  }

  /** The library's WebSocket. */
  #webSocket() {
    const next = () => this.#next();
    const opened = (/** @type {WebSocket} */ socket) => {
      this.socket = socket;
    };
    return class extends WebSocket {
      /** @param {string} _ @param {string} [protocol] */
      constructor(_, protocol) {
        super(`${next()}connection/websocket`, protocol === undefined ? [] : [protocol], {
          handshakeTimeout: OPEN_TIMEOUT_MS,
          perMessageDeflate: false,
        });
        opened(this);
      }
    };
  }

  #eventSource() {
    const next = () => this.#next().replace(/^ws/, 'http');
    return class extends EventSource {
      /** @param {string} url */
      constructor(url) {
        const { pathname, search } = new URL(url);
        super(`${next()}${pathname.slice(1)}${search}`);
      }
    };
  }

  /**
   * A stream is opened at the next server, and its commands go to any.
   * @param {string} path @param {RequestInit} options
   */
  async #fetch(path, options) {
    const isStream = path !== '/emulation';
    const server = (isStream ? this.#next() : this.random.pick(this.urls)).replace(/^ws/, 'http');
    const response = fetch(`${server}${path.slice(1)}`, options);
    // The library does not look at the answer of a command, or at its failure.
    return isStream ? response : response.catch(() => {});
  }
}
