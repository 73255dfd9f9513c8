// subscription-link.js: the link of one worker to the subscription proxy of its server.
//
// The worker's ioredis takes the link for a Redis, and sends these commands:
//
//   HELLO 3                   answered with a map that names the protocol
//   CLIENT SETNAME            OK
//   INFO                      `INFO server` of Redis: the worker compares its run_id (identity.js)
//   PING                      goes to Redis, because the worker asks whether Redis answers
//   SUBSCRIBE, UNSUBSCRIBE    confirmed for each channel
//   FANFARE.LOST              the worker's probes do not come back
//
// Commands take effect when they arrive. The link writes the replies in the order of the commands,
// so a reply may wait for an earlier one. Above MAX_REPLIES the link does not read. Bytes that are
// no command end the link.

import { encodeError, MalformedCommand, RespReader } from './resp-reader.js';

/** Replies that wait. */
const MAX_REPLIES = 1000;
/** Commands that wait for Redis: a worker sends HELLO and CLIENT before it reads a reply. */
const MAX_EARLY = 10;
const HELLO =
  '%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n';
const OK = '+OK\r\n';

/**
 * What a link needs of the proxy.
 * @typedef {object} Subscriptions
 * @property {import('pino').Logger} log
 * @property {boolean} isReady whether Redis is there
 * @property {string|Error|null} info `INFO server` of Redis, or its refusal
 * @property {number} maxPendingBytes of a link
 * @property {(link: SubscriptionLink, name: string) => Promise<void>|null} subscribe null if Redis
 *   has confirmed the channel already
 * @property {(link: SubscriptionLink, name: string) => void} unsubscribe
 * @property {() => Promise<unknown>} ping
 * @property {() => void} lost the worker's probes do not come back
 * @property {(link: SubscriptionLink) => void} schedule the link has bytes to write
 * @property {(link: SubscriptionLink) => void} cut the worker does not read
 * @property {(link: SubscriptionLink) => void} remove the link has ended
 */

export class SubscriptionLink {
  /**
   * @param {Subscriptions} proxy
   * @param {import('node:net').Socket} socket
   */
  constructor(proxy, socket) {
    this.proxy = proxy;
    this.socket = socket;
    /** Subscribed, or about to be. @type {Set<string>} */
    this.channels = new Set();
    /** Bytes to be written at the end of this read. @type {Buffer[]} */
    this.waiting = [];
    this.waitingBytes = 0;
    /** Whether a reply is among them. */
    this.hasReply = false;
    /** Replies that wait for their turn. @type {Promise<string>[]} */
    this.replies = [];
    /** Commands that wait for Redis. @type {string[][]} */
    this.early = [];
    this.reader = new RespReader((args) => this.#receive(args));
    socket.on('data', (bytes) => this.#socketOnData(bytes));
    socket.on('error', () => {}); // `close` follows
    socket.on('close', () => proxy.remove(this));
  }

  /** Redis is there: executes the commands that wait for it. */
  begin() {
    for (const args of this.early.splice(0)) this.#receive(args);
  }

  get pendingBytes() {
    return this.waitingBytes + this.socket.writableLength;
  }

  /** Redis has refused a channel. @param {string} name */
  refuse(name) {
    this.channels.delete(name);
  }

  /** @param {Buffer} bytes that this link and others write */
  pass(bytes) {
    if (this.socket.destroyed) return;
    if (this.pendingBytes > this.proxy.maxPendingBytes) {
      this.proxy.cut(this);
      return;
    }
    if (this.waiting.length === 0) this.proxy.schedule(this);
    this.waiting.push(bytes);
    this.waitingBytes += bytes.length;
  }

  /** @param {Buffer} bytes all that waits */
  write(bytes) {
    this.waiting = [];
    this.waitingBytes = 0;
    this.hasReply = false;
    if (!this.socket.destroyed) this.socket.write(bytes);
  }

  /** @param {Buffer} bytes */
  #socketOnData(bytes) {
    try {
      this.reader.read(bytes);
    } catch (error) {
      if (!(error instanceof MalformedCommand)) throw error;
      this.proxy.log.warn({ err: error }, 'subscriptions: malformed command, closing the link');
      this.socket.destroy();
      return;
    }
    if (this.replies.length > MAX_REPLIES) this.socket.pause();
  }

  /** @param {string[]} args */
  #receive(args) {
    if (this.socket.destroyed) return;
    if (!this.proxy.isReady) {
      if (this.early.push(args) > MAX_EARLY) this.socket.destroy();
      return;
    }
    const reply = this.#execute(args);
    if (this.replies.length === 0 && typeof reply === 'string') {
      this.#reply(reply);
      return;
    }
    this.replies.push(Promise.resolve(reply));
    if (this.replies.length === 1) this.#answer();
  }

  /** @param {string} text */
  #reply(text) {
    this.pass(Buffer.from(text, 'latin1'));
    this.hasReply = true;
  }

  /** Writes the waiting replies in order. */
  async #answer() {
    while (this.replies.length > 0) {
      const text = await this.replies[0].catch(encodeError);
      this.replies.shift();
      this.#reply(text);
      if (this.replies.length <= MAX_REPLIES && this.socket.isPaused()) this.socket.resume();
    }
  }

  /**
   * @param {string[]} args
   * @returns {string|Promise<string>}
   */
  #execute([command, ...args]) {
    const { proxy } = this;
    switch (command.toUpperCase()) {
      case 'HELLO':
        return HELLO;
      case 'CLIENT':
        return OK;
      case 'INFO':
        return typeof proxy.info === 'string' ? encodeText(proxy.info) : encodeError(proxy.info);
      case 'PING':
        return proxy.ping().then(() => '+PONG\r\n');
      case 'SUBSCRIBE':
        return this.#subscribe(args);
      case 'UNSUBSCRIBE':
        return this.#unsubscribe(args);
      case 'FANFARE.LOST':
        proxy.lost();
        return OK;
      default:
        return encodeError(new Error('ERR unknown command'));
    }
  }

  /** @param {string[]} names */
  #subscribe(names) {
    /** @type {Promise<void>[]} */
    const confirming = [];
    let text = '';
    for (const name of names) {
      this.channels.add(name);
      const wait = this.proxy.subscribe(this, name);
      if (wait !== null) confirming.push(wait);
      text += encodePush('subscribe', name, this.channels.size);
    }
    return confirming.length === 0 ? text : Promise.all(confirming).then(() => text);
  }

  /** @param {string[]} names */
  #unsubscribe(names) {
    let text = '';
    for (const name of names) {
      this.channels.delete(name);
      this.proxy.unsubscribe(this, name);
      text += encodePush('unsubscribe', name, this.channels.size);
    }
    return text;
  }
}

/**
 * @param {'subscribe'|'unsubscribe'} kind
 * @param {string} name
 * @param {number} count channels of the link
 */
function encodePush(kind, name, count) {
  return `>3\r\n$${kind.length}\r\n${kind}\r\n$${name.length}\r\n${name}\r\n:${count}\r\n`;
}

/** @param {string} text */
function encodeText(text) {
  return `$${Buffer.byteLength(text)}\r\n${Buffer.from(text).toString('latin1')}\r\n`;
}
