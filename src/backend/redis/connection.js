// connection.js: one connection to Redis, which reconnects by itself.
//
// ioredis handles the protocol, TLS, authentication, Sentinels and reconnecting. This file decides
// how the connection behaves when Redis fails: no command waits in a queue while Redis is away, no
// command is sent twice, every step of a handshake has a deadline, and delays grow until the
// connection has proved itself.
//
// With Sentinels, every attempt asks for the current primary. The connection leaves a replaced
// primary when a Sentinel reports it (`+switch-master`), and a demoted one when it answers
// READONLY.

import { TLSSocket } from 'node:tls';
import { Redis } from 'ioredis';
import { redisOptions, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { resetTls } from './fast/tls-reset.js';

const RETRY_STEP_MS = 50;
const MAX_RETRY_MS = 2000;
/** Share of a delay that is left to chance: a fleet does not return in step. */
const RETRY_JITTER = 0.3;
const CONNECT_TIMEOUT_MS = 2000;
/**
 * Between the end of our side and the destruction of a socket whose other side does not end: a
 * frozen Redis.
 */
const DISCONNECT_TIMEOUT_MS = 200;
const KEEP_ALIVE_MS = 10_000;
/** Between looks at a Redis that is loading its data. */
const LOADING_RETRY_MS = 500;

export class RedisConnection {
  /**
   * @param {object} parts
   * @param {import('../../config/redis.js').RedisSettings} parts.settings
   * @param {import('../../config/redis.js').Address} [parts.address] of a cluster
   * @param {string} parts.name for `CLIENT LIST`
   * @param {number} parts.timeoutMs for each answer
   * @param {(stream: import('node:net').Socket) => boolean} [parts.checkReset] whether a connected
   *   TLS socket can be reset
   * @param {() => void} parts.onReady it can be written to
   * @param {(reason: string) => void} parts.onAway it can't any more, or could not be made
   * @throws {Error} if a certificate's file can't be read
   */
  constructor({ settings, address, name, timeoutMs, checkReset = () => false, onReady, onAway }) {
    this.canResetTls = false;
    this.onAway = onAway;
    this.isReady = false;
    this.isClosed = false;
    this.attempts = 0;
    this.secrets = redisSecrets(settings);
    /** Of the latest failure; empty while the connection is ready. */
    this.reason = '';
    /** @type {NodeJS.Timeout|null} */
    this.revival = null;
    /** @type {Redis} */
    this.redis = new Redis({
      ...redisOptions(settings, address),
      lazyConnect: true,
      connectionName: name.replace(/[^\x21-\x7e]/g, '_'),
      disableClientInfo: true,
      connectTimeout: CONNECT_TIMEOUT_MS,
      disconnectTimeout: DISCONNECT_TIMEOUT_MS,
      keepAlive: KEEP_ALIVE_MS,
      // Covers the handshake too: a frozen Redis accepts connections, by its kernel, and never says
      // a word.
      commandTimeout: timeoutMs,
      sentinelCommandTimeout: timeoutMs,
      maxLoadingRetryTime: LOADING_RETRY_MS,
      // A publish that waits in ioredis' queue is delivered when nobody expects it any more, and is
      // then called a success: it answers with the receivers of that moment.
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      // The broker does it itself, in chunks, and is `up` only afterwards.
      autoResubscribe: false,
      // RESP3 keeps pushes apart from replies; a Redis that can't (before 6) is spoken to in RESP2.
      protocol: 3,
      retryStrategy: () => this.#retryDelayMs(),
      // Scripts wrap the word. It may come many times in one read, and the first has ended the
      // connection: each more would have it ended again, with a timer and a listener of its own.
      reconnectOnError: ({ message }) => message.includes('READONLY') && this.redis.stream.writable,
      failoverDetector: true,
      // Asked round by round by #redisOnEnd, which says that they are away; in ioredis' own rounds
      // nobody is told.
      sentinelRetryStrategy: () => null,
      // Of those that listen for `+switch-master`.
      sentinelReconnectStrategy: (attempts) => delayMs(attempts),
    });
    this.redis.on('connect', () => {
      this.canResetTls = checkReset(this.redis.stream);
    });
    this.redis.on('ready', () => {
      if (this.isClosed || this.redis.status !== 'ready') return;
      this.isReady = true;
      this.reason = '';
      onReady();
    });
    this.redis.on('error', (error) => {
      this.reason = this.describe(error);
    });
    this.redis.on('close', () => this.#lose(this.reason || 'connection closed'));
    this.redis.on('end', () => this.#redisOnEnd());
  }

  /** Attempts without end; onReady or onAway tell how they go. */
  open() {
    // Failures come as `error` and `close`.
    this.redis.connect().catch(() => {});
  }

  /** May this be written to right now? Between a socket's end and its `close` event it may not. */
  get isWritable() {
    return this.isReady && this.redis.status === 'ready' && this.redis.stream.writable;
  }

  /** The connection answers: delays start anew. To be called only when that is proved. */
  prove() {
    this.attempts = 0;
  }

  /**
   * Resets the connection. Commands under way are rejected, and a new connection is made.
   * @param {string} reason
   */
  destroy(reason) {
    this.reason = reason;
    reset(this.redis.stream, this.canResetTls);
    this.#lose(reason);
  }

  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.isReady = false;
    if (this.revival !== null) clearTimeout(this.revival);
    reset(this.redis.stream, this.canResetTls);
    this.redis.disconnect();
  }

  /**
   * An error for the log: never its command, because the arguments may be a password.
   * @param {unknown} error
   */
  describe(error) {
    return withoutSecrets(error, this.secrets);
  }

  /** @param {string} reason */
  #lose(reason) {
    this.isReady = false;
    if (!this.isClosed) this.onAway(reason);
  }

  #retryDelayMs() {
    return delayMs(++this.attempts);
  }

  #redisOnEnd() {
    // ioredis gives up for good where a socket can't even be created, and where no Sentinel
    // answers.
    if (this.isClosed) return;
    this.#lose(this.reason || 'connection failed');
    if (this.revival !== null) clearTimeout(this.revival);
    this.revival = setTimeout(() => this.open(), this.#retryDelayMs()).unref();
  }
}

/**
 * Closes a socket, and discards the bytes that have not reached Redis. After a plain destroy() the
 * kernel goes on sending them for some two minutes: a publish of unknown outcome could take effect
 * behind later ones of the same client.
 * @param {import('node:net').Socket|undefined} stream
 * @param {boolean} canResetTls
 */
function reset(stream, canResetTls) {
  if (stream === undefined) return;
  // A connecting socket has sent nothing. Node can't reset a socket whose end is under way.
  if (stream.connecting || stream.writableEnded || stream.destroyed) {
    stream.destroy();
  } else if (stream instanceof TLSSocket) {
    if (canResetTls) resetTls(stream);
    else stream.destroy();
  } else {
    stream.resetAndDestroy();
  }
}

/** @param {number} attempts that failed */
function delayMs(attempts) {
  return Math.min(RETRY_STEP_MS * attempts, MAX_RETRY_MS) * (1 - Math.random() * RETRY_JITTER);
}
