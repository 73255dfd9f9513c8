// connection.js: one connection to Redis, which reconnects by itself.
//
// ioredis handles the protocol, TLS, authentication, Sentinels and reconnecting. No command is
// queued or sent twice, and every step of a handshake has a deadline. Delays grow until a
// connection is proven: Redis answers and does not close it at once, as it does when a subscriber
// exceeds its output buffer. Otherwise a worker would subscribe all its rooms again and again.
//
// Every attempt reads the files of passwords. A password can be rotated while the server runs, and
// tokens of cloud providers, which end after minutes, can stand in such a file.
//
// With Sentinels, every attempt asks for the current primary. The connection leaves a replaced
// primary at `+switch-master`, and a demoted one when it answers READONLY.

import { TLSSocket } from 'node:tls';
import { Redis } from 'ioredis';
import {
  redisCredentials,
  redisOptions,
  redisSecrets,
  withoutSecrets,
} from '../../config/redis.js';
import { backoffMs } from './backoff.js';
import { resetTls } from './fast/tls-reset.js';

/** @import { Socket } from 'node:net' */

const CONNECT_TIMEOUT_MS = 2000;
/** A frozen Redis does not close its end. After this time the socket is destroyed. */
const DISCONNECT_TIMEOUT_MS = 200;
const KEEP_ALIVE_MS = 10_000;
/** A connection that ends sooner is not proven. */
const PROOF_MS = 500;
/** The most secrets to keep out of logs: those of several rotations, plain and URL-encoded. */
const MAX_SECRETS = 16;
/** How often to look whether Redis has loaded its data. */
const LOADING_RETRY_MS = 500;

/** @type {import('ioredis').RedisOptions} */
const CLIENT_OPTIONS = {
  lazyConnect: true,
  disableClientInfo: true,
  connectTimeout: CONNECT_TIMEOUT_MS,
  disconnectTimeout: DISCONNECT_TIMEOUT_MS,
  keepAlive: KEEP_ALIVE_MS,
  maxLoadingRetryTime: LOADING_RETRY_MS,
  // Otherwise ioredis would send a publish from its queue long after the caller has given it up.
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  // The broker resubscribes in chunks, and is `up` only afterwards.
  autoResubscribe: false,
  // RESP3 keeps pushes apart from replies. With a Redis before 6, ioredis falls back to RESP2.
  protocol: 3,
  failoverDetector: true,
  // #redisOnEnd asks the Sentinels again, and reports the outage. ioredis would not report it.
  sentinelRetryStrategy: () => null,
  // The pause of the connections that listen for `+switch-master`.
  sentinelReconnectStrategy: backoffMs,
};

export class RedisConnection {
  /**
   * @param {object} parts @param {import('../../config/redis.js').RedisSettings} parts.settings
   * @param {import('../../config/redis.js').Address} [parts.address] of a node, in a cluster
   * @param {string} parts.name for `CLIENT LIST` @param {number} parts.timeoutMs for each answer
   * @param {(stream: Socket) => boolean} [parts.checkReset] can this TLS socket be reset?
   * @param {() => void} parts.onReady the connection can be written to
   * @param {(reason: string) => void} parts.onAway the connection is lost, or could not be made
   * @throws {Error} if a certificate's file can't be read
   */
  constructor({ settings, address, name, timeoutMs, checkReset = () => false, onReady, onAway }) {
    this.canResetTls = false;
    this.onAway = onAway;
    this.isReady = false;
    this.isClosed = false;
    this.attempts = 0;
    /** The address in use, in the settings' list. */
    this.place = 0;
    this.isProven = false;
    this.readyMs = 0;
    this.settings = settings;
    this.secrets = redisSecrets(settings);
    /** The reason of the latest failure; empty while the connection is ready. */
    this.reason = '';
    /** @type {NodeJS.Timeout|null} */
    this.revival = null;
    /** @type {Redis} */
    this.redis = new Redis({
      ...redisOptions(settings, address),
      ...CLIENT_OPTIONS,
      connectionName: name.replace(/[^\x21-\x7e]/g, '_'),
      // Covers the handshake, too: for a frozen Redis the kernel still accepts connections.
      commandTimeout: timeoutMs,
      sentinelCommandTimeout: timeoutMs,
      retryStrategy: () => {
        this.#readCredentials();
        this.#nextAddress();
        return this.#pauseMs();
      },
      // An error of a script has READONLY somewhere in its text. One read may bring many such
      // errors, and the first one has already ended the connection.
      reconnectOnError: ({ message }) => message.includes('READONLY') && this.redis.stream.writable,
    });
    this.redis.on('connect', () => {
      this.canResetTls = checkReset(this.redis.stream);
    });
    this.redis.on('ready', () => {
      if (this.isClosed || this.redis.status !== 'ready') return;
      this.isReady = true;
      this.readyMs = performance.now();
      this.reason = '';
      onReady();
    });
    this.redis.on('error', (error) => {
      // If there is an earlier reason, keep it: it says more.
      const isEndOfList = error.message === 'All sentinels are unreachable and retry is disabled.';
      if (this.reason === '' || !isEndOfList) this.reason = this.describe(error);
    });
    this.redis.on('close', () => this.#lose(this.reason || 'connection closed'));
    this.redis.on('end', () => this.#redisOnEnd());
  }

  /** Resolves when the first attempt has ended. ioredis reports its failure as `close`, too. */
  open() {
    this.#readCredentials();
    return this.redis.connect().catch(() => {});
  }

  /** False also between a socket's end and its `close` event. */
  get isWritable() {
    return this.isReady && this.redis.status === 'ready' && this.redis.stream.writable;
  }

  prove() {
    this.isProven = true;
  }

  /** ioredis takes them from its options when it connects, to a Sentinel, too. */
  #readCredentials() {
    const { options, fault } = redisCredentials(this.settings);
    Object.assign(this.redis.options, options);
    if (fault !== '' && this.reason !== '' && !this.reason.includes(fault))
      this.reason = `${this.reason}; ${fault}`;
    // The former ones may be in an error that is still on its way.
    this.secrets = [...new Set([...redisSecrets(options), ...this.secrets])].slice(0, MAX_SECRETS);
  }

  /** One of several replicas: ioredis takes the address from its options when it connects. */
  #nextAddress() {
    const { kind, addresses } = this.settings;
    if (kind !== 'server' || addresses.length < 2) return;
    this.place = (this.place + 1) % addresses.length;
    const { host, port } = addresses[this.place];
    Object.assign(this.redis.options, { host, port });
  }

  #pauseMs() {
    if (this.isProven && performance.now() - this.readyMs >= PROOF_MS) this.attempts = 0;
    this.isProven = false;
    return backoffMs(++this.attempts);
  }

  /** Rejects the commands under way and reconnects. @param {string} reason */
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

  /** Describes an error for the log, without secrets. @param {unknown} error */
  describe(error) {
    return withoutSecrets(error, this.secrets);
  }

  /** @param {string} reason */
  #lose(reason) {
    this.isReady = false;
    if (!this.isClosed) this.onAway(reason);
  }

  #redisOnEnd() {
    // ioredis gives up if a socket cannot be created, or if no Sentinel answers.
    if (this.isClosed) return;
    this.#lose(this.reason || 'connection failed');
    if (this.revival !== null) clearTimeout(this.revival);
    this.revival = setTimeout(() => this.open(), this.#pauseMs()).unref();
  }
}

/**
 * Discards the bytes that have not reached Redis. After a plain destroy() the kernel sends them for
 * some two minutes, so a publish of unknown outcome could take effect after later ones.
 * @param {Socket|undefined} stream @param {boolean} canResetTls
 */
function reset(stream, canResetTls) {
  if (stream === undefined) return;
  // A connecting socket has sent nothing, and Node cannot reset a socket that is ending.
  if (stream.connecting || stream.writableEnded || stream.destroyed) {
    stream.destroy();
  } else if (stream instanceof TLSSocket) {
    if (canResetTls) resetTls(stream);
    else stream.destroy();
  } else {
    stream.resetAndDestroy();
  }
}
