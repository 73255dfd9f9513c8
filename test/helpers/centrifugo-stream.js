// centrifugo-stream.js: a client of the Centrifugo door without a WebSocket: it reads a response that
// does not end, and sends commands in requests of their own.

import { request } from 'node:http';
import { EventReader } from './event-stream.js';

/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {Record<string, any>} Reply */

/**
 * @param {number} port @param {string} path @param {import('node:http').RequestOptions} options
 * @param {string|Buffer} body
 * @returns {Promise<import('node:http').IncomingMessage>} its body is not read yet
 */
export function ask(port, path, options, body = '') {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path, agent: false, ...options });
    asked.on('response', resolve);
    asked.on('error', reject);
    asked.end(body);
  });
}

/**
 * Asks in a connection of its own.
 * @param {number} port @param {string} path @param {import('node:http').RequestOptions} options
 * @param {string|Buffer} [body]
 */
export async function answerOf(port, path, options, body) {
  const response = await ask(port, path, options, body);
  let text = '';
  for await (const part of response) text += part;
  return { status: response.statusCode, headers: response.headers, text };
}

export class StreamClient {
  lastId = 0;
  answersPings = true;
  /** @type {Reply[]} */
  replies = [];
  /** Of the reply to connect. @type {Reply} */
  welcome = {};
  isEnded = false;
  bytes = Buffer.alloc(0);
  /** Called at each change. @type {Set<() => void>} */
  waiting = new Set();

  /**
   * @param {Owner} t @param {number} port
   * @param {'http_stream'|'sse'} [transport]
   * @param {Reply} [connect] the request
   */
  static async open(t, port, transport = 'http_stream', connect = {}) {
    const command = JSON.stringify({ id: 1, connect });
    const isSse = transport === 'sse';
    const query = isSse ? `?cf_connect=${encodeURIComponent(command)}` : '';
    const response = await ask(
      port,
      `/connection/${transport}${query}`,
      isSse
        ? { method: 'GET', headers: { Accept: 'text/event-stream' } }
        : { method: 'POST', headers: { 'Content-Type': 'application/json' } },
      isSse ? '' : command,
    );
    const client = new StreamClient(port, response);
    t.after(() => response.destroy());
    client.lastId = 1;
    await client.until(() => client.isEnded || client.replies.length > 0);
    client.welcome = client.replies[0]?.connect ?? {};
    return client;
  }

  /** @param {number} port @param {import('node:http').IncomingMessage} response */
  constructor(port, response) {
    this.port = port;
    this.response = response;
    this.events = new EventReader();
    this.isSse = response.headers['content-type'] === 'text/event-stream';
    response.on('data', (/** @type {Buffer} */ part) => this.#read(part));
    response.on('error', () => {});
    response.on('close', () => {
      this.isEnded = true;
      this.#changed();
    });
  }

  /** @param {Buffer} part */
  #read(part) {
    this.bytes = Buffer.concat([this.bytes, part]);
    const texts = this.isSse ? this.events.read(part).map(({ data }) => data) : this.#lines();
    for (const text of texts) {
      const reply = JSON.parse(text);
      // The server may be gone already.
      if (Object.keys(reply).length === 0 && this.answersPings) this.send('{}').catch(() => {});
      this.replies.push(reply);
    }
    this.#changed();
  }

  #changed() {
    for (const check of [...this.waiting]) check();
  }

  #lines() {
    const end = this.bytes.lastIndexOf('\n') + 1;
    const text = this.bytes.toString('utf8', 0, end);
    this.bytes = this.bytes.subarray(end);
    return text.split('\n').filter((line) => line !== '');
  }

  /** @param {() => unknown} condition @returns {Promise<void>} */
  until(condition) {
    return new Promise((resolve, reject) => {
      const fail = () => {
        clearTimeout(timer);
        this.waiting.delete(check);
        reject(new Error(`${condition}: ${JSON.stringify(this.replies.slice(-5))}`));
      };
      const check = () => {
        if (!condition()) return this.isEnded ? fail() : undefined;
        clearTimeout(timer);
        this.waiting.delete(check);
        resolve();
      };
      const timer = setTimeout(fail, 30_000);
      this.waiting.add(check);
      check();
    });
  }

  /**
   * Sends commands in a request on a connection of its own, to any worker.
   * @param {string} data @param {{session?: string, node?: string, port?: number}} [to]
   */
  async send(data, { session, node, port = this.port } = {}) {
    const { welcome } = this;
    const body = { session: session ?? welcome.session, node: node ?? welcome.node, data };
    const headers = { 'Content-Type': 'application/json' };
    return answerOf(port, '/emulation', { method: 'POST', headers }, JSON.stringify(body));
  }

  /** @param {string} method @param {Reply} request @param {number} [port] */
  async call(method, request, port = this.port) {
    const id = ++this.lastId;
    const { status } = await this.send(JSON.stringify({ id, [method]: request }), { port });
    if (status !== 204) throw new Error(`emulation: ${status}`);
    await this.until(() => this.replies.some((reply) => reply.id === id));
    return /** @type {Reply} */ (this.replies.find((reply) => reply.id === id));
  }

  /** Publications so far. @param {string} channel @returns {any[]} */
  publications(channel) {
    return this.replies
      .filter(({ push }) => push?.channel === channel && push.pub)
      .map(({ push }) => push.pub);
  }

  /** @returns {Promise<Reply>} the push `disconnect`, with which the stream has ended */
  async disconnected() {
    await this.until(() => this.isEnded);
    return this.replies.at(-1)?.push?.disconnect;
  }
}
