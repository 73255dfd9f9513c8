// fake-socket.js: a WebSocket without a network, for unit tests of the client library. The test
// plays the server.

/** @typedef {Record<string, any>} Message */

/** @returns {{Socket: any, sockets: FakeSocket[]}} a class, and its instances in order */
export function fakeSockets() {
  /** @type {FakeSocket[]} */
  const sockets = [];
  class Socket extends FakeSocket {
    /** @param {string} url */
    constructor(url) {
      super(url);
      sockets.push(this);
    }
  }
  return { Socket, sockets };
}

export class FakeSocket {
  /** @type {((event?: any) => void)|null} */
  onopen = null;
  /** @type {((event: any) => void)|null} */
  onmessage = null;
  /** @type {((event: any) => void)|null} */
  onerror = null;
  /** @type {((event: any) => void)|null} */
  onclose = null;
  /** Commands of the client, parsed. @type {Message[]} */
  sent = [];
  /** The code with which the client has closed it. @type {number|null} */
  closedWith = null;

  /** @param {string} url */
  constructor(url) {
    this.url = url;
  }

  /** @param {string} text */
  send(text) {
    this.sent.push(JSON.parse(text));
  }

  /** @param {number} code */
  close(code) {
    this.closedWith = code;
    // The server's close frame.
    setImmediate(() => this.onclose?.({ code, reason: '' }));
  }

  /** The server accepts the handshake and answers `hello`. @param {Message} [welcome] */
  greet(welcome = {}) {
    this.onopen?.();
    this.push({ type: 'welcome', id: 0, heartbeatMs: 30_000, ...welcome });
  }

  /** @param {Message} message of the server */
  push(message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  /** The server ends the connection. @param {number} code @param {string} [reason] */
  end(code, reason = '') {
    this.onclose?.({ code, reason });
  }

  /** @param {string} type @returns {Message[]} */
  all(type) {
    return this.sent.filter((command) => command.type === type);
  }

  /** @param {string} type @returns {Message} the last command of that type */
  last(type) {
    const command = this.all(type).at(-1);
    if (command === undefined) throw new Error(`no ${type} in ${JSON.stringify(this.sent)}`);
    return command;
  }

  /** Answers the last command of a type. @param {string} type @param {Message} reply */
  answer(type, reply) {
    this.push({ id: this.last(type).id, ...reply });
  }
}
