// plain-client.js: a client of a script: sends the frames that the script says, and keeps what it is
// told. It does not reconnect.

import { WebSocket } from 'ws';
import { token } from '../helpers/tokens.js';

const RIGHTS = Object.freeze({
  rooms: { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] },
});
const TOKEN_S = 3600;
const AGAIN_MS = 50;

/**
 * @param {Record<string, any>} claims beside all rights and times; null: without this one
 * @returns {string} a token
 */
export function tokenFor(claims) {
  const iat = Math.floor(Date.now() / 1000);
  const all = { iat, exp: iat + TOKEN_S, ...RIGHTS, ...claims };
  return token(
    Object.fromEntries(Object.entries(all).map(([name, one]) => [name, one ?? undefined])),
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
   * @param {string} [parts.path] of a door
   */
  constructor({ id, url, note, claims, path = 'ws' }) {
    this.id = id;
    this.url = url;
    this.note = note;
    this.token = claims && tokenFor(claims);
    this.path = path;
    this.user = claims?.sub;
  }

  /** @returns {Promise<void>} when it is connected; a server that is not there yet is asked again */
  start() {
    const { id, url, path, token: query, note } = this;
    const address = `${url}${path}${query ? `?token=${query}` : ''}`;
    return new Promise((resolve) => {
      const socket = new WebSocket(address, { perMessageDeflate: false });
      this.socket = socket;
      let isOpen = false;
      socket.on('open', () => {
        isOpen = true;
        resolve();
      });
      socket.on('message', (data) => {
        const frame = JSON.parse(String(data));
        this.told.push(frame);
        note(`client ${id} is told ${JSON.stringify(frame)}`);
      });
      socket.on('error', () => {});
      socket.on('close', (code) => {
        if (!isOpen) return void setTimeout(() => resolve(this.start()), AGAIN_MS);
        this.code = code;
        note(`client ${id} closes: ${code}`);
      });
    });
  }

  /** @param {unknown} frame */
  send(frame) {
    this.note(`client ${this.id} sends ${JSON.stringify(frame)}`);
    this.socket?.send(JSON.stringify(frame));
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
