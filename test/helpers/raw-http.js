// raw-http.js: HTTP by raw bytes, for requests that no client library would send.

import { once } from 'node:events';
import { connect } from 'node:net';

/**
 * @typedef {{status: number, headers: Record<string, string>, body: string, text: string}}
 *   RawResponse
 */

export const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
const TIMEOUT_MS = 10_000;

/**
 * A well-formed handshake, or one with a fault of choice.
 * @param
 *   {{method?: string, target?: string, version?: string, headers?: Record<string, string|string[]|undefined>, body?: string}}
 *   [change] headers replace the usual ones by name; undefined leaves one out, a list sends it
 *   several times
 */
export function handshake({
  method = 'GET',
  target = '/ws',
  version = 'HTTP/1.1',
  headers = {},
  body = '',
} = {}) {
  const all = {
    Host: 'fanfare.test',
    Connection: 'Upgrade',
    Upgrade: 'websocket',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': KEY,
    ...headers,
  };
  const lines = Object.entries(all).flatMap(([name, value]) => {
    if (value === undefined) return [];
    return (Array.isArray(value) ? value : [value]).map((one) => `${name}: ${one}`);
  });
  return `${method} ${target} ${version}\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** One raw connection, and the bytes it has received. */
export class RawClient {
  /**
   * @param {import('node:test').TestContext} t destroys the socket at its end
   * @param {{port: number, host?: string, localAddress?: string}} where
   * @returns {Promise<RawClient>} connected
   */
  static async connect(t, { port, host = '127.0.0.1', localAddress }) {
    const client = new RawClient(connect({ port, host, localAddress, allowHalfOpen: false }));
    t.after(() => client.socket.destroy());
    await once(client.socket, 'connect');
    return client;
  }

  /** @param {import('node:net').Socket} socket */
  constructor(socket) {
    this.socket = socket;
    this.bytes = Buffer.alloc(0);
    this.isClosed = false;
    socket.on('data', (data) => {
      this.bytes = Buffer.concat([this.bytes, data]);
    });
    socket.on('error', () => {}); // a reset is one of the answers: isClosed tells
    socket.on('close', () => {
      this.isClosed = true;
    });
  }

  /** @param {string|Buffer} data */
  write(data) {
    this.socket.write(data);
    return this;
  }

  /**
   * The next response, taken from the received bytes.
   * @param {number} [withinMs] @returns {Promise<RawResponse>}
   */
  async response(withinMs = TIMEOUT_MS) {
    /** @type {RawResponse|null} */
    let response = null;
    await this.#until(() => {
      response = this.#take();
      return response !== null;
    }, withinMs);
    return /** @type {RawResponse} */ (/** @type {unknown} */ (response));
  }

  /** Resolves when the server has closed, too. @param {number} [withinMs] */
  async closed(withinMs = TIMEOUT_MS) {
    await this.#until(() => this.isClosed, withinMs);
  }

  /** @param {() => boolean} condition @param {number} withinMs */
  #until(condition, withinMs) {
    return new Promise((resolve, reject) => {
      const check = () => {
        if (!condition()) {
          if (!this.isClosed) return;
          finish(
            new Error(
              `the server closed; it had said: ${JSON.stringify(this.bytes.toString('latin1'))}`,
            ),
          );
        } else finish();
      };
      const timer = setTimeout(
        () =>
          finish(
            new Error(
              `not within ${withinMs} ms; so far: ${JSON.stringify(this.bytes.toString('latin1'))}`,
            ),
          ),
        withinMs,
      );
      const finish = (/** @type {Error} */ error = /** @type {any} */ (undefined)) => {
        clearTimeout(timer);
        this.socket.off('data', check);
        this.socket.off('close', check);
        if (error) reject(error);
        else resolve(undefined);
      };
      this.socket.on('data', check);
      this.socket.on('close', check);
      check();
    });
  }

  /** @returns {RawResponse|null} */
  #take() {
    const text = this.bytes.toString('latin1');
    const end = text.indexOf('\r\n\r\n');
    if (end === -1) return null;
    const [statusLine, ...lines] = text.slice(0, end).split('\r\n');
    /** @type {Record<string, string>} */
    const headers = {};
    for (const line of lines) {
      const colon = line.indexOf(':');
      headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
    }
    const length = Number(headers['content-length'] ?? 0);
    const from = end + 4;
    if (text.length < from + length) return null;
    this.bytes = this.bytes.subarray(from + length);
    return {
      status: Number(statusLine.split(' ')[1]),
      headers,
      body: text.slice(from, from + length),
      text: text.slice(0, from + length),
    };
  }
}
