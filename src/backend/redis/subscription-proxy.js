// subscription-proxy.js: one subscription at Redis for all workers of a server. It runs in the
// primary, if REDIS_SUBSCRIPTIONS is `server`.
//
//   Redis ==one connection==> proxy ==a link each==> subscriber.js of every worker
//
// Redis delivers a message once for each subscribed connection. If each of W workers subscribes, a
// message to a room on all of them costs Redis W deliveries. With the proxy it costs one for each
// server, and the primary copies the message to its workers.
//
// A link is a Unix socket that speaks the part of RESP3 which a worker's subscriber uses
// (subscription-link.js). So the code of the worker differs only in the address.
//
// - A channel is subscribed at Redis while a link has it. If Redis has confirmed it already, the
//   next link gets its confirmation at once. The commands of a channel leave in the order in which
//   the links wanted them, and Redis answers in this order. An UNSUBSCRIBE that has not left yet is
//   dropped if a link wants the channel again.
// - A message is copied once, and all links write the same bytes, at most once for each read.
// - If the connection to Redis is lost, the proxy closes all links. Each worker then recovers as if
//   its own connection were lost. The proxy serves new links when Redis is back.
// - The workers prove their links with probes through Redis (loopback-probe.js). A worker whose
//   probes do not come back sends `FANFARE.LOST`. The proxy then makes a new connection, unless the
//   current one is young: the worker's own commands may be at fault.
// - A link with more than MAX_PENDING_BYTES is closed and counted, as Redis itself does with
//   `client-output-buffer-limit`.

import { rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { ReplyError } from 'ioredis';
import { useFastPath } from '../../config/fast-paths.js';
import { deferred } from '../deferred.js';
import { RedisConnection } from './connection.js';
import { RedisPushes } from './fast/push-reader.js';
import { SubscriptionLink } from './subscription-link.js';

const CHUNK_CHANNELS = 1000;
/** Above a burst of 32 MiB, which one worker may send. */
const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** A younger connection to Redis is not replaced because of a worker's report. */
const MIN_AGE_MS = 5000;
const MESSAGE_HEAD = '>3\r\n$7\r\nmessage\r\n$';

/** @param {string} relayPath of the same server @returns {string} the path of the proxy's socket */
export function proxyPathOf(relayPath) {
  return join(dirname(relayPath), 'redis');
}

/** @typedef {import('./subscription-link.js').Subscriptions} Subscriptions */

/** A channel that a link wants. */
class Channel {
  /** @param {string} name its bytes as latin1 */
  constructor(name) {
    this.name = name;
    /** @type {Set<SubscriptionLink>} */
    this.links = new Set();
    /**
     * Until Redis confirms it, or refuses it.
     * @type {import('../deferred.js').Deferred<void>|null}
     */
    this.confirming = deferred();
    // A link that is gone waits no longer.
    this.confirming.promise.catch(() => {});
  }
}

/** @implements {Subscriptions} */
export class SubscriptionProxy {
  /**
   * @param {object} parts
   * @param
   *   {Pick<import('../../config/settings.js').Config, 'redis'|'redisPrefix'|'redisTimeoutMs'|'fastPaths'>}
   *   parts.config
   * @param {import('pino').Logger} parts.log
   * @param {number} [parts.maxPendingBytes] of a link
   * @param {number} [parts.minAgeMs] of a connection that a report may end
   */
  constructor({ config, log, maxPendingBytes = MAX_PENDING_BYTES, minAgeMs = MIN_AGE_MS }) {
    this.log = log;
    this.maxPendingBytes = maxPendingBytes;
    this.minAgeMs = minAgeMs;
    /** The path of the socket; empty before start(). */
    this.path = '';
    /** @type {Set<SubscriptionLink>} */
    this.links = new Set();
    /** @type {Map<string, Channel>} */
    this.channels = new Map();
    /** To be subscribed at the end of this tick. @type {Map<string, Channel>} */
    this.joining = new Map();
    /** To be unsubscribed then. @type {Map<string, Channel>} */
    this.leaving = new Map();
    this.isScheduled = false;
    /** Links with bytes to write at the end of this read. @type {SubscriptionLink[]} */
    this.writing = [];
    /** The messages of this read. @type {Buffer[]} */
    this.messages = [];
    /** `INFO server` of the connected Redis, or its refusal; null while there is none. */
    this.info = /** @type {string|Error|null} */ (null);
    this.readyMs = 0;
    /** Whether this connection to Redis has delivered a message. */
    this.isProven = false;
    this.isAway = false;
    this.isClosed = false;
    this.cutLinks = 0;
    /** Messages from Redis. */
    this.received = 0;
    this.upstream = new RedisConnection({
      settings: /** @type {import('../../config/redis.js').RedisSettings} */ (config.redis),
      name: `${config.redisPrefix}subscriber`,
      timeoutMs: config.redisTimeoutMs,
      onReady: () => this.#upstreamOnReady(),
      onAway: (reason) => this.#upstreamOnAway(reason),
    });
    const { redis } = this.upstream;
    this.receive = this.receive.bind(this);
    this.flush = this.flush.bind(this);
    this.write = this.write.bind(this);
    const pushes = new RedisPushes({ kind: 'message', onMessage: this.receive });
    redis.on('connect', () => {
      useFastPath('redis_pushes', config, { fastPaths: {} }, () => pushes.attach(redis.stream));
    });
    // Needed with a Redis that does not push, and without the fast path.
    redis.on('messageBuffer', this.receive);
    this.server = createServer((socket) => this.#serverOnConnection(socket));
  }

  /**
   * Listens for the workers and connects to Redis, without waiting for Redis.
   * @param {string} path of the socket, in a folder that only this user can enter
   */
  async start(path) {
    this.path = path;
    const { server } = this;
    await new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, () => resolve(undefined));
    });
    server.on('error', (error) => this.log.error({ err: error }, 'subscriptions: server error'));
    this.upstream.open();
  }

  /** May be called twice. */
  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.upstream.close();
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.#closeLinks();
    await closed;
    rmSync(this.path, { force: true });
  }

  /** Channels that the workers have subscribed, and those of them at Redis. */
  subscriptions() {
    let workers = 0;
    for (const link of this.links) workers += link.channels.size;
    return { workers, redis: this.channels.size };
  }

  /** Whether links are served. */
  get isReady() {
    return this.info !== null;
  }

  /** @param {import('node:net').Socket} socket */
  #serverOnConnection(socket) {
    this.links.add(new SubscriptionLink(this, socket));
  }

  /** @param {SubscriptionLink} link that has ended */
  remove(link) {
    if (!this.links.delete(link)) return;
    for (const name of link.channels) this.unsubscribe(link, name);
  }

  /**
   * @param {SubscriptionLink} link
   * @param {string} name
   * @returns {Promise<void>|null} null if Redis has confirmed the channel already
   */
  subscribe(link, name) {
    let channel = this.channels.get(name);
    if (channel === undefined) {
      channel = this.leaving.get(name);
      if (channel === undefined) {
        channel = new Channel(name);
        this.joining.set(name, channel);
        this.#schedule();
      }
      this.leaving.delete(name);
      this.channels.set(name, channel);
    }
    channel.links.add(link);
    return channel.confirming?.promise ?? null;
  }

  /**
   * @param {SubscriptionLink} link
   * @param {string} name
   */
  unsubscribe(link, name) {
    const channel = this.channels.get(name);
    if (channel === undefined || !channel.links.delete(link) || channel.links.size > 0) return;
    this.channels.delete(name);
    if (this.joining.delete(name)) this.#settle(channel);
    else {
      this.leaving.set(name, channel);
      this.#schedule();
    }
  }

  /** @returns {Promise<unknown>} the answer of Redis */
  ping() {
    return this.upstream.redis.ping();
  }

  /** A worker's probes do not come back. */
  lost() {
    if (!this.isReady || performance.now() - this.readyMs < this.minAgeMs) return;
    this.upstream.destroy('a worker gets no publications');
  }

  /**
   * Passes a message to the links that have its channel.
   * @param {Buffer} name
   * @param {Buffer} body
   */
  receive(name, body) {
    if (!this.isProven) {
      this.isProven = true;
      this.upstream.prove();
    }
    const text = name.toString('latin1');
    const channel = this.channels.get(text);
    this.received++;
    if (channel === undefined) return;
    const head = `${MESSAGE_HEAD}${text.length}\r\n${text}\r\n$${body.length}\r\n`;
    const message = Buffer.allocUnsafe(head.length + body.length + 2);
    message.write(head, 0, 'latin1');
    body.copy(message, head.length);
    message.write('\r\n', message.length - 2, 'latin1');
    this.messages.push(message);
    for (const link of channel.links) link.pass(message);
  }

  /** @param {SubscriptionLink} link with bytes to write */
  schedule(link) {
    // All messages of a read arrive before the next tick.
    if (this.writing.length === 0) process.nextTick(this.write);
    this.writing.push(link);
  }

  /** Writes the messages of this read. Links that get all of them share the bytes. */
  write() {
    const { writing, messages } = this;
    this.writing = [];
    this.messages = [];
    /** @type {Buffer|null} */
    let all = null;
    for (const link of writing) {
      const { waiting, hasReply } = link;
      if (waiting.length === 1) link.write(waiting[0]);
      else if (waiting.length === messages.length && !hasReply)
        link.write((all ??= Buffer.concat(messages)));
      else link.write(Buffer.concat(waiting));
    }
  }

  /** @param {SubscriptionLink} link whose worker does not read */
  cut(link) {
    this.cutLinks++;
    this.log.warn(
      { pendingBytes: link.pendingBytes, links: this.cutLinks },
      'subscriptions: worker reads too slowly, closing its link',
    );
    link.socket.destroy();
  }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.flush);
  }

  /** Sends the subscriptions of this tick. */
  flush() {
    this.isScheduled = false;
    const joining = [...this.joining.values()];
    const leaving = [...this.leaving.values()];
    this.joining.clear();
    this.leaving.clear();
    if (!this.upstream.isWritable) return;
    for (let i = 0; i < leaving.length; i += CHUNK_CHANNELS)
      this.#send('unsubscribe', leaving.slice(i, i + CHUNK_CHANNELS));
    for (let i = 0; i < joining.length; i += CHUNK_CHANNELS)
      this.#send('subscribe', joining.slice(i, i + CHUNK_CHANNELS));
  }

  /**
   * @param {'subscribe'|'unsubscribe'} command
   * @param {Channel[]} chunk
   */
  async #send(command, chunk) {
    const { redis } = this.upstream;
    const { stream } = redis;
    try {
      await redis[command](...chunk.map(({ name }) => Buffer.from(name, 'latin1')));
    } catch (error) {
      if (stream !== redis.stream || !this.isReady) return;
      if (!(error instanceof ReplyError)) this.upstream.destroy(`${command} was not confirmed`);
      // After a refused UNSUBSCRIBE unwanted messages still arrive, and receive() ignores them.
      else if (command === 'subscribe')
        for (const channel of chunk) this.#refuse(channel, /** @type {Error} */ (error));
      return;
    }
    if (command === 'subscribe') for (const channel of chunk) this.#settle(channel);
  }

  /** @param {Channel} channel that Redis has confirmed, or that nobody wants any more */
  #settle(channel) {
    const { confirming } = channel;
    channel.confirming = null;
    confirming?.resolve();
  }

  /**
   * @param {Channel} channel
   * @param {Error} error
   */
  #refuse(channel, error) {
    for (const link of channel.links) link.refuse(channel.name);
    if (this.channels.get(channel.name) === channel) this.channels.delete(channel.name);
    if (this.leaving.get(channel.name) === channel) this.leaving.delete(channel.name);
    channel.confirming?.reject(error);
  }

  async #upstreamOnReady() {
    const { redis } = this.upstream;
    const { stream } = redis;
    // Now, because a Redis without RESP3 answers nothing else after the first subscription.
    const info = await redis.info('server').catch((/** @type {Error} */ error) => error);
    if (this.isClosed || stream !== redis.stream || !this.upstream.isWritable) return;
    if (info instanceof Error && !(info instanceof ReplyError)) {
      this.upstream.destroy('INFO was not answered');
      return;
    }
    this.info = info;
    this.readyMs = performance.now();
    if (this.isAway) this.log.info('subscriptions: Redis is back');
    this.isAway = false;
    for (const link of this.links) link.begin();
  }

  /** @param {string} reason */
  #upstreamOnAway(reason) {
    this.info = null;
    this.isProven = false;
    if (!this.isAway && !this.isClosed)
      this.log.warn({ reason }, 'subscriptions: Redis is away, closing the links of the workers');
    this.isAway = true;
    this.#closeLinks();
  }

  #closeLinks() {
    this.joining.clear();
    this.leaving.clear();
    this.channels.clear();
    for (const link of this.links) link.socket.destroy();
    this.links.clear();
  }
}
