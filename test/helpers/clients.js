// clients.js: a WebSocket client for tests, on `ws`. It keeps every message, parsed, and a test can
// await a message by its content.

import { once } from 'node:events';
import { WebSocket } from 'ws';

const TIMEOUT_MS = 10_000;

/** @typedef {Record<string, any>} Message */
/** @typedef {(message: Message) => boolean} Predicate */

/**
 * Connects; the connection ends with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {number|string} where a port of this machine, or a URL
 * @param {import('ws').ClientOptions} [options]
 * @returns {Promise<Client>}
 */
export async function connect(t, where, options) {
  const client = new Client(
    typeof where === 'number' ? `ws://127.0.0.1:${where}/` : where,
    options,
  );
  t.after(() => client.socket.terminate());
  await client.opened;
  return client;
}

/**
 * Several, one after the other, so that with round-robin scheduling each worker gets its share, also
 * on a busy machine.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {number|string} where
 * @param {number} count
 */
export async function connectInTurn(t, where, count) {
  /** @type {Client[]} */
  const clients = [];
  while (clients.length < count) clients.push(await connect(t, where));
  return clients;
}

/**
 * The status with which a handshake was refused.
 * @param {number|string} where
 * @param {import('ws').ClientOptions} [options]
 * @returns {Promise<number>} 101 if it was accepted
 */
export async function handshakeStatus(where, options) {
  const socket = new WebSocket(
    typeof where === 'number' ? `ws://127.0.0.1:${where}/` : where,
    options,
  );
  return new Promise((resolve, reject) => {
    socket.once('open', () => {
      socket.terminate();
      resolve(101);
    });
    socket.once('unexpected-response', (request, response) => {
      request.destroy();
      resolve(response.statusCode ?? 0);
    });
    socket.once('error', reject);
  });
}

export class Client {
  /** @param {string} url @param {import('ws').ClientOptions} [options] @param {string[]} [protocols] */
  constructor(url, options, protocols = []) {
    this.socket = new WebSocket(url, protocols, options);
    /** Everything received. @type {Message[]} */
    this.messages = [];
    /** How many of them `next` has passed. */
    this.taken = 0;
    /** @type {Error|null} */
    this.error = null;
    /** @type {{code: number, reason: string}|null} */
    this.close = null;
    /** @type {Set<() => void>} */
    this.waiting = new Set();
    this.opened = once(this.socket, 'open');
    this.socket.on('message', (data) => {
      this.messages.push(this.read(data));
      this.#changed();
    });
    this.socket.on('error', (error) => {
      this.error = error;
      this.#changed();
    });
    this.socket.on('close', (code, reason) => {
      this.close = { code, reason: String(reason) };
      this.#changed();
    });
  }

  /** @param {import('ws').RawData} data a message @returns {Message} */
  read(data) {
    return JSON.parse(String(data));
  }

  /** @param {Message|string} message */
  send(message) {
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  /**
   * The next message that fits, after those that earlier calls have returned; others in between are
   * passed.
   * @param {string|Predicate} what a type, or a predicate
   * @param {number} [timeoutMs]
   * @returns {Promise<Message>}
   */
  async next(what, timeoutMs = TIMEOUT_MS) {
    const fits =
      typeof what === 'string' ? (/** @type {Message} */ { type }) => type === what : what;
    /** @type {Message|undefined} */
    let found;
    await this.until(
      () => {
        while (!found && this.taken < this.messages.length) {
          const message = this.messages[this.taken++];
          if (fits(message)) found = message;
        }
        return found !== undefined;
      },
      timeoutMs,
      `a message ${what}`,
    );
    return /** @type {Message} */ (found);
  }

  /** `next` goes on there. @param {number} taken an earlier value */
  goBack(taken) {
    this.taken = taken;
  }

  /**
   * Sends a command and waits for the answer of that type, or the error.
   * @param {Message} command @param {string} reply
   */
  async ask(command, reply) {
    this.send(command);
    return this.next(({ type }) => type === reply || type === 'error');
  }

  /** @param {string} room */
  async join(room) {
    const answer = await this.ask({ type: 'join', room }, 'joined');
    if (answer.type === 'error') throw new Error(`join ${room}: ${answer.error}`);
    return answer;
  }

  /** Everything so far that fits. @param {string|Predicate} what */
  all(what) {
    return this.messages.filter(typeof what === 'string' ? ({ type }) => type === what : what);
  }

  /**
   * Waits until that many messages fit, and returns them.
   * @param {string|Predicate} what @param {number} count @param {number} [timeoutMs]
   */
  async collect(what, count, timeoutMs = TIMEOUT_MS) {
    await this.until(() => this.all(what).length >= count, timeoutMs, `${count} messages ${what}`);
    return this.all(what);
  }

  /** @param {number} [timeoutMs] @returns {Promise<{code: number, reason: string}>} */
  async closed(timeoutMs = TIMEOUT_MS) {
    await this.until(() => this.close !== null, timeoutMs, 'the close');
    return /** @type {{code: number, reason: string}} */ (this.close);
  }

  /**
   * Resolves as soon as a message, an error or the close makes the condition true.
   * @param {() => boolean} condition
   * @param {number} timeoutMs
   * @param {string} what for the message
   */
  until(condition, timeoutMs, what) {
    return new Promise((resolve, reject) => {
      /** @param {Error} [error] */
      const finish = (error) => {
        clearTimeout(timer);
        this.waiting.delete(check);
        if (error) reject(error);
        else resolve(undefined);
      };
      const check = () => {
        if (condition()) finish();
        else if (this.close) finish(this.#failure(`${what} did not come before the close`));
      };
      const timer = setTimeout(
        () => finish(this.#failure(`${what} did not come within ${timeoutMs} ms`)),
        timeoutMs,
      );
      this.waiting.add(check);
      check();
    });
  }

  #changed() {
    for (const check of [...this.waiting]) check();
  }

  /** @param {string} text */
  #failure(text) {
    const last = this.messages.slice(-5).map((message) => JSON.stringify(message));
    const ending = this.close ? `; closed with ${this.close.code} ${this.close.reason}` : '';
    return new Error(`${text}${ending}; the last messages: ${last.join(' ')}`, {
      cause: this.error ?? undefined,
    });
  }
}
