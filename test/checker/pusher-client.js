// pusher-client.js: a subscriber of Pusher's protocol, as pusher-js behaves: it subscribes all of its
// channels after each reconnect, and the close code decides when it comes back.
//
// Its app is shared, so its channels are native rooms. It has no positions: it is in plain rooms, and
// in channels with presence, whose members it follows by the snapshot and the events after it. In
// private channels it may send events of its own.

import { WebSocket } from 'ws';
import { hmac } from '../helpers/pusher.js';
import { Place } from './client.js';
import { valueIn } from './payloads.js';

const OPEN_TIMEOUT_MS = 5000;
const SUBSCRIBE_TIMEOUT_MS = 10_000;
/** pusher-js: 4200 to 4299 come back at once, and others but 4000 to 4099 after a second. */
const BACK_MS = 1000;

/** Of an event that a client sends to the others. */
const WHISPER = 'client-note';

/** Pusher's protocol has no notice of an outage, so no server owes one. */
const NO_SERVER = -1;

/** @typedef {Record<string, any>} Frame */

export class PusherClient {
  /**
   * @param {object} parts
   * @param {number} parts.id
   * @param {readonly string[]} parts.urls of servers
   * @param {readonly string[]} parts.rooms
   * @param {string} [parts.user] of channels with presence
   * @param {import('../helpers/pusher.js').Credentials} parts.app
   * @param {import('./record.js').Recorder} parts.recorder
   */
  constructor({ id, urls, rooms, user, app, recorder }) {
    this.id = id;
    this.urls = urls;
    this.user = user;
    this.app = app;
    this.recorder = recorder;
    this.places = new Map(rooms.map((room) => [room, new Place(room)]));
    /** The users of each channel with presence. @type {Map<string, Set<string>>} */
    this.rosters = new Map();
    /** The last number of subscribers of each channel of an app that tells it. @type {Map<string, number>} */
    this.counts = new Map();
    this.socketId = '';
    /** Of the present connection: a subscription was refused. */
    this.isRefused = false;
    /** Its events, with the connection that sent each. @type {Map<string, string>} */
    this.whispers = new Map();
    this.isWanted = false;
    this.attempts = 0;
    /** Of `leave`; NaN: the close code decides. */
    this.backMs = Number.NaN;
    /** @type {WebSocket|null} */
    this.socket = null;
    /** @type {Set<NodeJS.Timeout>} */
    this.timers = new Set();
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
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
    const { socket } = this;
    if (socket === null) return;
    await new Promise((resolve) => {
      socket.once('close', resolve);
      socket.resume();
      socket.close(1000);
      setTimeout(() => socket.terminate(), 1000).unref();
    });
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
    if (this.socket === null) return;
    this.backMs = ms;
    this.socket.terminate();
  }

  /** Unsubscribes a channel, and subscribes it again. @param {string} room @param {number} ms */
  stepOut(room, ms) {
    const place = this.places.get(room);
    if (!place?.isJoined) return;
    this.#send({ event: 'pusher:unsubscribe', data: { channel: room } });
    place.isJoined = false;
    this.counts.delete(room);
    this.recorder.write({ type: 'leave', client: this.id, room });
    const { socket } = this;
    this.#later(ms, () => {
      if (!place.isJoined && this.socket === socket) this.#subscribe(place);
    });
  }

  /** Sends an event to the other members of a private channel. @param {string} room @param {string} value */
  whisper(room, value) {
    if (!this.places.get(room)?.isJoined) return;
    this.whispers.set(value, this.socketId);
    this.recorder.write({ type: 'invoke', value, client: this.id });
    this.#send({ event: WHISPER, channel: room, data: value });
  }

  /** Records the users, and the numbers of subscribers, that it knows of. */
  list() {
    for (const [room, count] of this.counts)
      if (this.places.get(room)?.isJoined)
        this.recorder.write({ type: 'count', client: this.id, room, count, isSurvey: true });
    for (const [room, users] of this.rosters)
      if (this.places.get(room)?.isJoined)
        this.recorder.write({ type: 'list', client: this.id, room, users: [...users] });
  }

  #connect() {
    const server = (this.id + this.attempts++) % this.urls.length;
    const socket = new WebSocket(`${this.urls[server]}app/${this.app.key}?protocol=7`, {
      handshakeTimeout: OPEN_TIMEOUT_MS,
      perMessageDeflate: false,
    });
    this.socket = socket;
    let isOpen = false;
    socket.on('message', (data) => {
      const frame = JSON.parse(String(data));
      if (frame.event === 'pusher:connection_established') {
        isOpen = true;
        this.isRefused = false;
        this.socketId = JSON.parse(frame.data).socket_id;
        this.#opened(socket);
      } else this.#receive(frame);
    });
    // `close` follows, with the code.
    socket.on('error', () => {});
    socket.on('close', (code) => {
      if (isOpen) this.recorder.write({ type: 'close', client: this.id, code });
      for (const place of this.places.values()) place.isJoined = false;
      this.rosters.clear();
      this.counts.clear();
      this.socket = null;
      if (!this.isWanted) return;
      if (code >= 4000 && code < 4100)
        return void this.oddities.push(`closed for ever with ${code}`);
      const isAtOnce = code >= 4200 && code < 4300;
      const delayMs = Number.isNaN(this.backMs) ? (isAtOnce ? 0 : BACK_MS) : this.backMs;
      this.backMs = Number.NaN;
      this.#later(delayMs, () => this.#connect());
    });
  }

  /** @param {WebSocket} socket */
  #opened(socket) {
    const { id, user } = this;
    const link = { server: NO_SERVER, ...(user && { user }) };
    this.recorder.write({ type: 'connect', client: id, ...link });
    for (const place of this.places.values()) this.#subscribe(place);
    this.#later(SUBSCRIBE_TIMEOUT_MS, () => {
      if (this.socket === socket && !this.isJoined && !this.isRefused) socket.terminate();
    });
  }

  /** @param {Place} place */
  #subscribe({ room }) {
    this.recorder.write({ type: 'subscribe', client: this.id, room });
    const isPresence = room.startsWith('presence-');
    const text = isPresence ? JSON.stringify({ user_id: this.user }) : '';
    const signed = hmac(this.app.secret, `${this.socketId}:${room}${text && `:${text}`}`);
    const isPrivate = isPresence || room.startsWith('private-');
    const auth = {
      ...(isPrivate && { auth: `${this.app.key}:${signed}` }),
      ...(isPresence && { channel_data: text }),
    };
    this.#send({ event: 'pusher:subscribe', data: { channel: room, ...auth } });
  }

  /** @param {Frame} frame */
  #receive(frame) {
    const { event, channel, data } = frame;
    const { id: client, recorder } = this;
    const place = this.places.get(channel);
    if (event === 'message') {
      const value = valueIn(JSON.parse(data));
      recorder.write({ type: 'deliver', client, room: channel, value });
      if (value.startsWith('m')) this.markers.add(value);
    } else if (event === 'pusher_internal:subscription_succeeded') {
      if (place === undefined || place.isJoined) return this.oddities.push(`joined ${channel}`);
      place.isJoined = true;
      recorder.write({ type: 'reply', client, room: channel });
      const { presence } = JSON.parse(data);
      if (presence !== undefined) this.rosters.set(channel, new Set(presence.ids));
    } else if (
      event === 'pusher_internal:member_added' ||
      event === 'pusher_internal:member_removed'
    )
      this.#change(event, channel, String(JSON.parse(data).user_id));
    else if (event === 'pusher_internal:subscription_count') this.#count(channel, JSON.parse(data));
    else if (event === 'pusher:subscription_error' && data.type !== 'AuthError')
      // pusher-js never repeats it: the server closes the connection when it can subscribe.
      this.isRefused = true;
    else if (event === WHISPER ? !this.#isOfBefore(data) : !this.#isRefusal(frame))
      this.oddities.push(JSON.stringify(frame));
  }

  /** Only another connection than the present one gets its own event. @param {string} value */
  #isOfBefore(value) {
    const sentOn = this.whispers.get(value);
    return sentOn !== undefined && sentOn !== this.socketId;
  }

  /** Hooks or an outage may refuse its events. @param {Frame} frame */
  #isRefusal({ event, data }) {
    return (
      event === 'pusher:error' &&
      (this.whispers.size > 0 || (data.code >= 4100 && data.code < 4300))
    );
  }

  /** @param {string} room @param {{subscription_count: number}} data */
  #count(room, { subscription_count: count }) {
    if (!this.places.get(room)?.isJoined) return; // it has just unsubscribed
    this.recorder.write({ type: 'count', client: this.id, room, count });
    this.counts.set(room, count);
  }

  /** Each of them changes what the client knows. @param {string} event @param {string} channel @param {string} user */
  #change(event, channel, user) {
    const users = this.rosters.get(channel);
    if (!this.places.get(channel)?.isJoined) return;
    const isAdded = event.endsWith('added');
    if (user === this.user && !isAdded) this.oddities.push(`${event} of itself in ${channel}`);
    if (users === undefined || users.has(user) === isAdded)
      this.oddities.push(`${event} of ${user} in ${channel} changes nothing`);
    else if (isAdded) users.add(user);
    else users.delete(user);
  }

  /** @param {Frame} frame */
  #send(frame) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame));
  }

  /** @param {number} ms @param {() => void} act */
  #later(ms, act) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms);
    this.timers.add(timer);
  }
}
