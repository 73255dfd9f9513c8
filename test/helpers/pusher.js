// pusher.js: for tests of the Pusher door: a server with an app, a client of raw frames, and requests
// with signatures. The signatures are made here, not by the code under test.

import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import Pusher from 'pusher';
import { scrape, startServer, until } from '../harness/server.js';
import { Client } from './clients.js';
import { shared } from './shared.js';
import { temporaryFolder } from './temporary-folder.js';

/** @typedef {import('../harness/server.js').Owner} Owner */

/** The app of most tests. */
export const APP = Object.freeze({ id: '1234', key: 'app-key', secret: 'app-secret' });
/** An app whose subscribers are told how many they are. */
export const COUNTED = Object.freeze({ id: '77', key: 'counted-key', secret: 'counted-secret' });
/** For encrypted channels; the server never sees it. */
const MASTER_KEY = Buffer.alloc(32, 'A').toString('base64');

/** @typedef {{id: string, key: string, secret: string}} Credentials of an app */

/** @param {string} secret @param {string} text @returns {string} in hexadecimal digits */
export const hmac = (secret, text) => createHmac('sha256', secret).update(text).digest('hex');

/** @param {string|Buffer} body */
const md5 = (body) => createHash('md5').update(body).digest('hex');

/**
 * The file of apps.
 * @param {Owner} t @param {readonly Record<string, unknown>[]} apps @returns {string} its path
 */
export function writeApps(t, apps) {
  const path = join(temporaryFolder(t), 'apps.json');
  writeFileSync(path, JSON.stringify(apps));
  return path;
}

/**
 * An entry of that file with the credentials of `APP`.
 * @param {Record<string, unknown>} [settings]
 */
export function entryOf(settings = {}) {
  const { id, key, secret } = APP;
  return { id, key, secrets: [secret], clientEvents: true, ...settings };
}

/** An entry with the credentials of `COUNTED`. */
export function countedEntry() {
  const { id, key, secret } = COUNTED;
  return { id, key, secrets: [secret], subscriptionCount: true };
}

/**
 * Starts a server with one app.
 * @param {Owner} t
 * @param {Record<string, unknown>} [settings] of the app
 * @param {Record<string, string>} [env]
 */
export async function startPusher(t, settings, env) {
  const server = await startServer(t, {
    FANFARE_PUSHER_APPS: writeApps(t, [entryOf(settings)]),
    ...env,
  });
  return pusherOf(t, server);
}

/**
 * A server for the tests of a file that come one after another. Each begins with an app without
 * connections.
 * @param {Record<string, Record<string, unknown>>} [others] settings of apps beside `APP`, by key
 * @param {Record<string, string>} [env]
 */
export function sharedPusher(others = {}, env) {
  /** @type {Credentials[]} */
  const apps = [APP];
  const entries = [entryOf()];
  for (const [key, settings] of Object.entries(others)) {
    const app = { id: `app-${apps.length}`, key, secret: APP.secret };
    apps.push(app);
    entries.push(entryOf({ id: app.id, key, ...settings }));
  }
  const start = shared((owner) =>
    startServer(owner, { FANFARE_PUSHER_APPS: writeApps(owner, entries), ...env }),
  );
  return async (/** @type {Owner} */ t, /** @type {string} */ key = APP.key) => {
    const server = await start();
    const app = /** @type {Credentials} */ (apps.find((one) => one.key === key));
    const connections = `fanfare_app_connections{app="${app.id}"}`;
    const isEmpty = async () => (await scrape(server.metricsPort)).values.get(connections) === 0;
    await until(isEmpty, 10_000, 'the end of the connections of the test before');
    return pusherOf(t, server, app);
  };
}

/**
 * What a test needs of a server that has been started.
 * @template {{port: number}} S
 * @param {Owner} t @param {S} server @param {Credentials} [app]
 */
export function pusherOf(t, server, app = APP) {
  return {
    server,
    port: server.port,
    connect: () => connectPusher(t, server.port, app),
    api: apiOf(server.port, app),
  };
}

/**
 * Opens a connection and waits for its socket id. It ends with the test.
 * @param {Owner} t @param {number} port @param {Credentials} [app]
 * @returns {Promise<PusherClient>}
 */
export async function connectPusher(t, port, app = APP) {
  const client = openPusher(t, port, app);
  await client.established();
  return client;
}

/**
 * Opens a connection without waiting for it.
 * @param {Owner} t @param {number} port @param {Credentials} [app]
 * @param {string} [query]
 */
export function openPusher(t, port, app = APP, query = 'protocol=7&client=js&version=8.6.0') {
  const client = new PusherClient(`ws://127.0.0.1:${port}/app/${app.key}?${query}`, app);
  t.after(() => client.socket.terminate());
  return client;
}

/** A client that shows each frame as it came. */
export class PusherClient extends Client {
  /** @param {string} url @param {Credentials} app @param {import('ws').ClientOptions} [options] */
  constructor(url, app, options) {
    super(url, options);
    this.opened.catch(() => {});
    this.app = app;
    this.socketId = '';
    /** The text of each frame. @type {string[]} */
    this.texts = [];
    this.socket.on('message', (data) => this.texts.push(String(data)));
  }

  /** Waits for the first frame. */
  async established() {
    const { data } = await this.event('pusher:connection_established');
    this.socketId = JSON.parse(data).socket_id;
  }

  /**
   * The next frame with that event, for that channel if one is given.
   * @param {string} event @param {string} [channel] @param {number} [timeoutMs]
   */
  event(event, channel, timeoutMs) {
    return this.next(
      (frame) => frame.event === event && (channel === undefined || frame.channel === channel),
      timeoutMs,
    );
  }

  /** All frames of a channel so far, or those with one event. @param {string} channel @param {string} [event] */
  of(channel, event) {
    return this.all(
      (frame) => frame.channel === channel && (event === undefined || frame.event === event),
    );
  }

  /**
   * Sends a subscription, signed if the channel needs it.
   * @param {string} channel @param {unknown} [member] the member of a presence channel
   */
  sendSubscribe(channel, member) {
    const text = member === undefined ? undefined : JSON.stringify(member);
    this.send({
      event: 'pusher:subscribe',
      data: { channel, auth: this.authOf(channel, text), channel_data: text },
    });
  }

  /**
   * Subscribes, and waits for the answer.
   * @param {string} channel @param {unknown} [member]
   * @returns {Promise<any>} the parsed `data` of the success
   */
  async subscribe(channel, member) {
    this.sendSubscribe(channel, member);
    const answer = await this.next(
      ({ event, channel: of }) =>
        of === channel &&
        (event === 'pusher_internal:subscription_succeeded' ||
          event === 'pusher:subscription_error'),
    );
    if (answer.event === 'pusher:subscription_error')
      throw new Error(`subscribe ${channel}: ${JSON.stringify(answer.data)}`);
    return JSON.parse(answer.data);
  }

  /** @param {string} channel */
  unsubscribe(channel) {
    this.send({ event: 'pusher:unsubscribe', data: { channel } });
  }

  /** @param {Record<string, unknown>} user */
  async signin(user) {
    const text = JSON.stringify(user);
    const signed = hmac(this.app.secret, `${this.socketId}::user::${text}`);
    const auth = `${this.app.key}:${signed}`;
    this.send({ event: 'pusher:signin', data: { auth, user_data: text } });
    return this.event('pusher:signin_success');
  }

  /**
   * A round trip: after it, all earlier messages of the server have arrived.
   */
  async pong() {
    this.send({ event: 'pusher:ping', data: {} });
    await this.event('pusher:pong');
  }

  /** @param {string} channel @param {string} [channelData] */
  authOf(channel, channelData) {
    if (!/^(private|presence)-/.test(channel)) return '';
    const text = [this.socketId, channel, ...(channelData ? [channelData] : [])].join(':');
    return `${this.app.key}:${hmac(this.app.secret, text)}`;
  }
}

/**
 * The query of a signed request.
 * @param {Credentials} app @param {string} method @param {string} path
 * @param {string} body @param {Record<string, string>} [query]
 */
export function signedQuery(app, method, path, body, query = {}) {
  /** @type {Record<string, string>} */
  const values = {
    auth_key: app.key,
    auth_timestamp: String(Math.floor(Date.now() / 1000)),
    auth_version: '1.0',
    ...(body === '' ? {} : { body_md5: md5(body) }),
    ...query,
  };
  const signed = Object.keys(values)
    .sort()
    .map((name) => `${name.toLowerCase()}=${values[name]}`)
    .join('&');
  const signature = hmac(app.secret, `${method}\n${path}\n${signed}`);
  return new URLSearchParams({ ...values, auth_signature: signature }).toString();
}

/**
 * A function that sends signed requests.
 * @param {number} port @param {Credentials} [app]
 */
export function apiOf(port, app = APP) {
  /**
   * @param {string} path below /apps/ID
   * @param {unknown} [body] POST; none: GET
   * @param {Record<string, string>} [query] @param {Record<string, string>} [more] headers
   * @returns {Promise<{status: number, body: any, headers: Headers}>}
   */
  return async (path, body, query, more) => {
    const method = body === undefined ? 'GET' : 'POST';
    const whole = `/apps/${app.id}${path}`;
    const text = body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(
      `http://127.0.0.1:${port}${whole}?${signedQuery(app, method, whole, text, query)}`,
      {
        method,
        body: body === undefined ? undefined : text,
        headers: { 'Content-Type': 'application/json', ...more },
      },
    );
    const answer = await response.text();
    let parsed;
    try {
      parsed = JSON.parse(answer);
    } catch {
      parsed = answer;
    }
    return { status: response.status, body: parsed, headers: response.headers };
  };
}

/**
 * The server SDK of Pusher for Node, with the credentials of `APP`.
 * @param {number} port @param {Partial<Pusher.Options>} [options]
 */
export function sdkOf(port, options) {
  return new Pusher({
    ...{ appId: APP.id, key: APP.key, secret: APP.secret },
    ...{ host: '127.0.0.1', port: String(port), useTLS: false },
    encryptionMasterKeyBase64: MASTER_KEY,
    ...options,
  });
}

/**
 * A receiver of webhooks.
 * @param {Owner} t
 */
export async function startReceiver(t) {
  /** @type {{headers: Record<string, string>, body: string}[]} */
  const received = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request.setEncoding('utf8')) body += part;
    received.push({ headers: /** @type {Record<string, string>} */ (request.headers), body });
    response.writeHead(200).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { received, url: `http://127.0.0.1:${port}/hook` };
}
