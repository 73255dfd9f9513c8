// event-stream.js: reads server-sent events by the rules of the standard (WHATWG HTML 9.2.6), for
// tests.

import { request } from 'node:http';

/** @typedef {{type: string, data: string, id: string}} ServerEvent `id`: the last event ID then */

/** Interprets a stream of text. Bytes may be cut anywhere. */
export class EventReader {
  constructor() {
    this.rest = '';
    this.isFirst = true;
    this.type = '';
    /** @type {string[]} */
    this.data = [];
    this.idField = '';
    /** The ID that an EventSource would send as Last-Event-ID. */
    this.lastEventId = '';
    /** The latest reconnection time in ms; -1: none yet. */
    this.retryMs = -1;
    this.comments = 0;
    this.decoder = new TextDecoder('utf-8');
  }

  /**
   * @param {Buffer|string} bytes
   * @returns {ServerEvent[]} those that these bytes complete
   */
  read(bytes) {
    this.rest += typeof bytes === 'string' ? bytes : this.decoder.decode(bytes, { stream: true });
    /** @type {ServerEvent[]} */
    const events = [];
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(this.rest);
      if (end === null) return events;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      const event = this.#line(line);
      if (event !== null) events.push(event);
    }
  }

  /** @param {string} line @returns {ServerEvent|null} */
  #line(line) {
    if (line === '') return this.#dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) {
      this.comments++;
      return null;
    }
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') this.type = value;
    else if (name === 'data') this.data.push(value);
    else if (name === 'id' && !value.includes('\0')) this.idField = value;
    else if (name === 'retry' && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  /** @returns {ServerEvent|null} */
  #dispatch() {
    this.lastEventId = this.idField;
    const { data, type, lastEventId: id } = this;
    this.data = [];
    this.type = '';
    return data.length === 0 ? null : { type: type || 'message', data: data.join('\n'), id };
  }
}

const TIMEOUT_MS = 10_000;

/** @typedef {{after: (fn: () => unknown) => void}} Owner */

/** One request for a stream. It keeps every event, and does not reconnect. */
export class EventClient {
  /**
   * Opens a stream; it ends with the test.
   * @param {Owner} t
   * @param {number|string} where a port of this machine, or an origin
   * @param {string} query
   * @param {Record<string, string>} [headers]
   * @returns {Promise<EventClient>} answered
   */
  static async open(t, where, query, headers = {}) {
    const client = new EventClient(where, query, headers);
    t.after(() => client.close());
    await client.until(() => client.status !== 0 || client.isClosed, 'an answer');
    return client;
  }

  /** @param {number|string} where @param {string} query @param {Record<string, string>} headers */
  constructor(where, query, headers) {
    const origin = typeof where === 'number' ? `http://127.0.0.1:${where}` : where;
    this.reader = new EventReader();
    /** @type {ServerEvent[]} */
    this.events = [];
    this.text = '';
    this.status = 0;
    /** @type {import('node:http').IncomingHttpHeaders} */
    this.headers = {};
    this.isClosed = false;
    /** @type {Set<() => void>} */
    this.waiting = new Set();
    this.request = request(`${origin}/sse${query}`, { headers, agent: false });
    this.request.on('response', (response) => {
      this.status = response.statusCode ?? 0;
      this.headers = response.headers;
      response.on('data', (/** @type {Buffer} */ bytes) => {
        this.text += bytes.toString();
        this.events.push(...this.reader.read(bytes));
        this.#changed();
      });
      response.on('error', () => this.#closed());
      response.on('close', () => this.#closed());
      this.#changed();
    });
    this.request.on('error', () => this.#closed());
    this.request.end();
  }

  /** The parsed data of the events of a type. @param {string} type @returns {any[]} */
  all(type) {
    return this.events.filter((event) => event.type === type).map(({ data }) => JSON.parse(data));
  }

  /** @param {string} type @param {number} [count] @returns {Promise<any[]>} */
  async collect(type, count = 1) {
    await this.until(() => this.all(type).length >= count, `${count} events ${type}`);
    return this.all(type);
  }

  /** Resolves when the server has ended the stream. */
  ended() {
    return this.until(() => this.isClosed, 'the end');
  }

  close() {
    this.request.destroy();
  }

  /** @param {() => boolean} condition @param {string} what @returns {Promise<void>} */
  until(condition, what) {
    return new Promise((resolve, reject) => {
      const finish = (/** @type {Error|null} */ error) => {
        clearTimeout(timer);
        this.waiting.delete(check);
        if (error) reject(error);
        else resolve();
      };
      const fail = (/** @type {string} */ reason) =>
        finish(new Error(`${what} ${reason}; status ${this.status}, ${this.text.slice(-500)}`));
      const check = () => {
        if (condition()) finish(null);
        else if (this.isClosed) fail('did not come before the end');
      };
      const timer = setTimeout(() => fail(`did not come within ${TIMEOUT_MS} ms`), TIMEOUT_MS);
      this.waiting.add(check);
      check();
    });
  }

  #closed() {
    this.isClosed = true;
    this.#changed();
  }

  #changed() {
    for (const check of [...this.waiting]) check();
  }
}
