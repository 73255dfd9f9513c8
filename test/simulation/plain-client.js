// plain-client.js: a client of a script: sends the frames that the script says, and keeps what it is
// told. It does not reconnect.
//
// A script has no secrets: a `token` that is an object is signed, and so are the subscriptions and
// sign-ins of Pusher's protocol.

import { WebSocket } from 'ws';
import { APP, hmac } from '../helpers/pusher.js';
import { token } from '../helpers/tokens.js';

const RIGHTS = Object.freeze({
  rooms: { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] },
});
const TOKEN_S = 3600;
const AGAIN_MS = 50;
/** Where a client of each door connects. @type {Readonly<Record<string, string>>} */
const PATHS = Object.freeze({
  native: 'ws',
  pusher: `app/${APP.key}?protocol=7`,
  centrifugo: 'connection/websocket',
});

/**
 * @param {Record<string, any>} claims beside all rights and times; null: without this one. `lifeS`: how
 *   long it is valid @returns {string} a token
 */
export function tokenFor({ lifeS = TOKEN_S, ...claims }) {
  const iat = Math.floor(Date.now() / 1000);
  const all = { iat, exp: iat + lifeS, ...RIGHTS, ...claims };
  return token(
    Object.fromEntries(Object.entries(all).map(([name, one]) => [name, one ?? undefined])),
  );
}

/** @param {unknown} value @returns {any} with its tokens signed */
function withTokens(value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => {
      const isUnsigned = name === 'token' && typeof one === 'object';
      return [name, isUnsigned ? tokenFor(one) : withTokens(one)];
    }),
  );
}

export class PlainClient {
  /** Frames that it was sent. @type {any[]} */
  told = [];
  /** How its connection ended. @type {number|null} */
  code = null;
  isJoined = true;
  /** @type {string[]} */
  oddities = [];
  places = new Map();
  markers = new Set();
  /** @type {WebSocket|null} */
  socket = null;

  /**
   * @param {object} parts
   * @param {number} parts.id @param {string} parts.url @param {(line: string) => void} parts.note writes a line of the trace
   * @param {Record<string, any>} [parts.claims] of its token; without them it has none
   * @param {string} [parts.door] one of PATHS
   */
  constructor({ id, url, note, claims, door = 'native' }) {
    this.id = id;
    this.url = `${url}${PATHS[door]}`;
    this.door = door;
    this.note = note;
    this.token = claims && tokenFor(claims);
    this.user = claims?.sub;
  }

  /** @returns {Promise<void>} when it is connected; a server that is not there yet is asked again */
  start() {
    const { id, token: query, note } = this;
    const url = `${this.url}${query ? `?token=${query}` : ''}`;
    return new Promise((resolve) => {
      const socket = new WebSocket(url, { perMessageDeflate: false });
      this.socket = socket;
      let isOpen = false;
      socket.on('open', () => {
        isOpen = true;
        resolve();
      });
      socket.on('message', (data) => {
        for (const text of String(data).split('\n')) if (text !== '') this.#told(text);
      });
      socket.on('error', () => {});
      socket.on('close', (code) => {
        if (!isOpen) return void setTimeout(() => resolve(this.start()), AGAIN_MS);
        this.code = code;
        note(`client ${id} closes: ${code}`);
      });
    });
  }

  /** @param {string} text */
  #told(text) {
    const frame = JSON.parse(text);
    // Centrifugo's ping.
    if (text === '{}') return this.socket?.send(text);
    if (this.door === 'pusher' && typeof frame.data === 'string')
      frame.data = JSON.parse(frame.data);
    this.told.push(frame);
    this.note(`client ${this.id} is told ${JSON.stringify(frame)}`);
  }

  /** @param {any} frame */
  send(frame) {
    this.note(`client ${this.id} sends ${JSON.stringify(frame)}`);
    const signed = this.door === 'pusher' ? this.#signed(frame) : withTokens(frame);
    this.socket?.send(JSON.stringify(signed));
  }

  /** @param {any} frame of Pusher's protocol; `user` of a channel with presence, `user_data` as JSON */
  #signed({ event, data }) {
    const socketId = this.told[0].data.socket_id;
    const auth = (/** @type {string} */ text) =>
      `${APP.key}:${hmac(APP.secret, `${socketId}:${text}`)}`;
    if (event === 'pusher:signin') {
      const text = JSON.stringify(data);
      return { event, data: { user_data: text, auth: auth(`:user::${text}`) } };
    }
    const { channel, user, ...rest } = data;
    if (event !== 'pusher:subscribe' || !/^(?:private|presence)-/.test(channel))
      return { event, data };
    if (user === undefined) return { event, data: { channel, auth: auth(channel), ...rest } };
    const text = JSON.stringify({ user_id: user });
    return { event, data: { channel, auth: auth(`${channel}:${text}`), channel_data: text } };
  }

  pause() {
    this.socket?.pause();
  }

  resume() {
    this.socket?.resume();
  }

  /** Its connection breaks. */
  leave() {
    this.socket?.terminate();
  }

  async stop() {
    const { socket } = this;
    if (socket === null || socket.readyState === WebSocket.CLOSED) return;
    await new Promise((resolve) => {
      socket.once('close', resolve);
      socket.close(1000);
      setTimeout(() => socket.terminate(), 1000).unref();
    });
  }
}
