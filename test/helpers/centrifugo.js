// centrifugo.js: for tests of the Centrifugo door: a server, a client of raw JSON commands, tokens.

import { startServer } from '../harness/server.js';
import { Client } from './clients.js';
import { shared } from './shared.js';
import { rawToken, SECRET } from './tokens.js';

/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {import('./clients.js').Message} Message */

/** Without tokens everybody may do everything. */
const OPEN = Object.freeze({ FANFARE_CENTRIFUGO: 'on', WORKERS: '1' });
/** With tokens, strict ones unless the test says otherwise. */
export const WITH_TOKENS = Object.freeze({ ...OPEN, JWT_SECRET: SECRET });

/**
 * @param {Owner} t @param {Record<string, string>} [env]
 */
export async function startCentrifugo(t, env = {}) {
  return centrifugoOf(t, await startServer(t, { ...OPEN, ...env }));
}

/**
 * A server for the tests of a file that leave nothing behind.
 * @param {Record<string, string>|((owner: Owner) => Promise<Record<string, string>>)} [env]
 */
export function sharedCentrifugo(env = {}) {
  const start = shared(async (owner) =>
    startServer(owner, { ...OPEN, ...(typeof env === 'function' ? await env(owner) : env) }),
  );
  return async (/** @type {Owner} */ t) => centrifugoOf(t, await start());
}

/**
 * @param {Owner} t closes the connections @param {import('../harness/server.js').Server} server
 */
function centrifugoOf(t, server) {
  return {
    server,
    port: server.port,
    open: () => openRaw(t, server.port),
    /** @param {Record<string, unknown>} [request] of the command connect */
    connect: (request) => connectRaw(t, server.port, request),
  };
}

/**
 * Opens a WebSocket, which ends with the test.
 * @param {Owner} t @param {number} port @param {string} [path]
 * @param {import('ws').ClientOptions} [options]
 */
export async function openRaw(t, port, path = '/connection/websocket', options = {}) {
  const client = new CentrifugoClient(`ws://127.0.0.1:${port}${path}`, options);
  t.after(() => client.socket.terminate());
  await client.opened;
  return client;
}

/** @param {Owner} t @param {number} port @param {Record<string, unknown>} [request] */
export async function connectRaw(t, port, request = {}) {
  const client = await openRaw(t, port);
  const reply = await client.call('connect', request);
  if (reply.connect === undefined) throw new Error(`connect: ${JSON.stringify(reply)}`);
  client.welcome = reply.connect;
  return client;
}

/** A client that numbers its commands, answers pings and parses each line of a message. */
export class CentrifugoClient extends Client {
  lastId = 0;
  answersPings = true;
  /** @type {Message} the result of its connect */
  welcome = {};

  /** @param {string} url @param {import('ws').ClientOptions} [options] @param {string[]} [protocols] */
  constructor(url, options, protocols) {
    super(url, options, protocols);
    this.socket.on('message', (data) => {
      if (this.answersPings && String(data) === '{}') this.socket.send('{}');
    });
  }

  /**
   * Sends a command and waits for its reply.
   * @param {string} method @param {Record<string, unknown>} [request]
   */
  async call(method, request = {}) {
    const id = this.command(method, request);
    const from = this.taken;
    const reply = await this.next((message) => message.id === id);
    this.goBack(from); // pushes before the reply stay
    return reply;
  }

  /** @param {string} method @param {Record<string, unknown>} [request] @returns {number} its id */
  command(method, request = {}) {
    const id = ++this.lastId;
    this.send({ id, [method]: request });
    return id;
  }

  /** The code with which the server has closed it. */
  async closeCode() {
    await this.until(() => this.close !== null, 10_000, 'a close');
    return this.close?.code;
  }

  /** @param {string} method @param {Record<string, unknown>} [request] @returns {Promise<number|undefined>} */
  async errorOf(method, request) {
    return (await this.call(method, request)).error?.code;
  }

  /** @param {string} kind of push @param {number} [timeoutMs] @returns {Promise<Message>} */
  async push(kind, timeoutMs) {
    const { push } = await this.next((message) => message.push?.[kind] !== undefined, timeoutMs);
    return push;
  }

  /** Pushed publications of a channel so far. @param {string} channel @returns {any[]} */
  publications(channel) {
    return this.all(({ push }) => push?.pub !== undefined && push.channel === channel).map(
      ({ push }) => push.pub,
    );
  }
}

/**
 * A connection token; undefined removes a claim.
 * @param {Record<string, unknown>} [claims]
 */
export function connectionToken(claims = {}) {
  const all = { sub: 'alice', exp: Math.floor(Date.now() / 1000) + 3600, ...claims };
  return rawToken('{"alg":"HS256","typ":"JWT"}', JSON.stringify(all), SECRET);
}

/** @param {string} channel @param {Record<string, unknown>} [claims] */
export function subscriptionToken(channel, claims = {}) {
  return connectionToken({ channel, ...claims });
}
