// publisher.js: writes publications to Redis and reports their outcomes.
//   publish -> this tick's message of the room -> one write for all rooms -> answers -> promises
//
// - The publications of a tick to one room share a Redis message (batch.js) and a promise.
// - A message is also the command object of ioredis: 1.9 us of CPU instead of 6.6, and a busy
//   worker publishes to hundreds of rooms a tick.
// - A publication too large for pub/sub is stored under a key that expires, and a reference is
//   published. One script does both: if Redis refuses to store (OOM, READONLY), nothing is
//   published. Without subscribers nothing is stored.
// - If a message was written but not answered, its outcome is OUTCOME_UNKNOWN. After an error, or
//   if it was never written, it is UNAVAILABLE.
// - Messages and bytes under way are bounded. Above the bound, publishes fail with UNAVAILABLE.

import { randomUUID } from 'node:crypto';
import { ReplyError } from 'ioredis';
import { encodeReference, versionedBytes, writeVersioned } from '../batch.js';
import { IDEMPOTENCY_MS } from '../broker.js';
import { deferred } from '../deferred.js';
import { BrokerError, conflict } from '../errors.js';
import { OwnCommand, queueOf } from './fast/own-commands.js';
import { sendPlain } from './plain-commands.js';
import { bulk, readScript } from './scripts.js';
import { UnansweredMessages } from './unanswered.js';

/** @import { Deferred } from '../deferred.js' */
/** @import { WrittenBatch } from './unanswered.js' */

/** Memory of a small publication, in addition to its bytes. */
const OVERHEAD_BYTES = 64;
const BLOB_TTL_MS = 60_000;
export const NO_BODY = Buffer.alloc(0);
/** @type {Buffer[]} */
const NO_PUBLICATIONS = [];

export class RedisPublisher {
  /**
   * @param {object} parts @param {import('./connection.js').RedisConnection} parts.connection
   * @param {import('./stall-aware-clock.js').StallAwareClock} parts.clock
   * @param {import('./keys.js').Keys} parts.keys
   * @param {boolean} parts.isSharded publishes with SPUBLISH, in a cluster
   * @param {number} parts.maxPubsubBytes of one message
   * @param {number} parts.timeoutMs for each answer
   * @param {boolean} [parts.usesOwnCommands] uses the commands of fast/own-commands.js
   * @param {(ms: number) => void} [parts.onPublishLag] from write to answer, once a tick
   * @param {(error: Error) => void} parts.onRefused Redis has answered with an error
   */
  constructor({
    connection,
    clock,
    keys,
    isSharded,
    maxPubsubBytes,
    timeoutMs,
    usesOwnCommands = true,
    onPublishLag,
    onRefused,
  }) {
    this.connection = connection;
    this.keys = keys;
    this.maxPubsubBytes = maxPubsubBytes;
    this.onRefused = onRefused;
    this.unanswered = new UnansweredMessages({
      clock,
      timeoutMs,
      onPublishLag,
      onSilent: (reason) => connection.destroy(reason),
    });
    this.publishHead = isSharded ? '*3\r\n$8\r\nSPUBLISH\r\n' : '*3\r\n$7\r\nPUBLISH\r\n';
    this.storeHead = storeHead(isSharded);
    /** As RESP; in a cluster the keys of a call must have one slot. */
    this.storeKey = isSharded ? '' : bulk(keys.farKey);
    this.onceHead = onceHead(isSharded);
    /** Messages of this tick, in order. @type {Message<any>[]} */
    this.gathered = [];
    /** The latest of each room. @type {Map<string, Message>} */
    this.latest = new Map();
    this.isScheduled = false;
    /** Why publications are refused although Redis is connected; '' if they are not. */
    this.obstacle = '';
    /** Null if ioredis writes each command. */
    this.queue = usesOwnCommands ? queueOf(connection.redis) : null;
    this.flush = this.flush.bind(this);
  }

  /** @param {string} room @param {Buffer} publication @returns {Promise<void>} */
  publish(room, publication) {
    const size = versionedBytes(publication);
    const refusal = this.refusal(size);
    if (refusal !== '') return unavailable(refusal);
    let message = this.latest.get(room);
    if (size > this.maxPubsubBytes) {
      const id = randomUUID();
      const { keys } = this;
      message = new Message(
        this,
        keys.channelOf(room),
        encodeReference(id, publication),
        keys.blobOf(room, id),
        publication,
      );
      this.gather(message);
      this.latest.set(room, message);
    } else if (
      message === undefined ||
      message.key !== '' ||
      message.bodyBytes + size > this.maxPubsubBytes
    ) {
      message = new Message(this, this.keys.channelOf(room), null, '', NO_BODY);
      this.gather(message);
      this.latest.set(room, message);
      message.publications.push(publication);
      message.bodyBytes = size;
    } else {
      message.publications.push(publication);
      message.bodyBytes += size;
    }
    this.holdBytes(message, size);
    return message.done.promise;
  }

  /**
   * Publishes to a room unless the key has been used there.
   * @param {string} room @param {Buffer} publication @param {string} idempotencyKey
   * @param {string} fingerprint of the payload; may be empty @returns {Promise<void>}
   */
  publishOnce(room, publication, idempotencyKey, fingerprint) {
    const size = versionedBytes(publication);
    const refusal = this.refusal(size);
    if (refusal !== '') return unavailable(refusal);
    const message = new OnceMessage(this, room, publication, idempotencyKey, fingerprint);
    this.gather(message);
    this.latest.set(room, message);
    this.holdBytes(message, size);
    return message.done.promise;
  }

  /**
   * Publishes the broker's own bytes.
   * @param {string} channel that is not a room's @param {Buffer} body @returns {Promise<void>}
   */
  send(channel, body) {
    if (!this.connection.isWritable) return unavailable('Redis is unavailable');
    const message = new Message(this, channel, body, '', NO_BODY);
    this.gather(message);
    return message.done.promise;
  }

  /** Why a message is refused; '' if it is not. @param {number} bytes of the message */
  refusal(bytes) {
    if (!this.connection.isWritable) return 'Redis is unavailable';
    if (this.unanswered.isFullFor(bytes)) return 'too many unanswered writes to Redis';
    return this.obstacle;
  }

  /** @param {string} reason why publications are refused from now on; '' if they are not */
  obstruct(reason) {
    this.obstacle = reason;
  }

  /** @param {Message<any>} message to be written at the end of this tick */
  gather(message) {
    this.unanswered.count();
    this.gathered.push(message);
    this.#schedule();
  }

  /** Sends a refused message again, before new ones. @param {Message<any>} message */
  gatherAgain(message) {
    this.unanswered.answered(/** @type {WrittenBatch} */ (message.batch));
    this.gathered.unshift(message);
    this.#schedule();
  }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.flush);
  }

  /** Counts bytes until the answer arrives. @param {Message<any>} message @param {number} bytes */
  holdBytes(message, bytes) {
    message.heldBytes += bytes + OVERHEAD_BYTES;
    this.unanswered.holdBytes(bytes + OVERHEAD_BYTES);
  }

  flush() {
    const { gathered, connection } = this;
    this.isScheduled = false;
    if (gathered.length === 0) return;
    this.gathered = [];
    this.latest.clear();
    if (!connection.isWritable) {
      // Nothing was written, so nothing was accepted.
      for (const message of gathered) message.refuse('Redis is unavailable');
      return;
    }
    const { redis } = connection;
    const batch = this.unanswered.write(gathered);
    let bytes = 0;
    for (const message of gathered) bytes += message.maxWireBytes;
    const buffer = Buffer.allocUnsafe(bytes);
    let at = 0;
    for (const message of gathered) {
      message.batch = batch;
      const start = at;
      at = message.write(buffer, start);
      message.forgetBytes();
      if (this.queue !== null) this.queue(message);
      else sendPlain(redis, message, buffer.subarray(start, at));
    }
    if (this.queue !== null) redis.stream.write(at === bytes ? buffer : buffer.subarray(0, at));
  }

  /** @returns {Promise<void>} Resolves when nothing is under way; time-outs bound the wait. */
  drained() {
    this.flush();
    return this.unanswered.drained();
  }
}

/**
 * One Redis message, and the command that publishes it.
 * @template [T=void] the value of the answer
 */
export class Message extends OwnCommand {
  /**
   * @param {RedisPublisher} publisher @param {string} channel
   * @param {Buffer|null} body null if the message is made of publications
   * @param {string} key under which a large publication is stored; else empty
   * @param {Buffer} stored
   */
  constructor(publisher, channel, body, key, stored) {
    super();
    this.publisher = publisher;
    this.channel = channel;
    this.body = body;
    this.bodyBytes = body === null ? 0 : body.length;
    this.key = key;
    this.stored = stored;
    /** @type {Buffer[]} */
    this.publications = [];
    this.heldBytes = 0;
    this.isExpired = false;
    /** @type {WrittenBatch|null} */
    this.batch = null;
    /** @type {Deferred<T>} */
    this.done = deferred();
  }

  get maxWireBytes() {
    const { storeHead, storeKey } = this.publisher;
    // A channel may take three bytes a character; the heads and lengths fit in the rest.
    const head =
      this.key === ''
        ? 64
        : 128 + storeHead.length + storeKey.length * 3 + this.key.length * 3 + this.stored.length;
    return head + this.channel.length * 3 + this.bodyBytes;
  }

  /** @param {Buffer} buffer @param {number} start @returns {number} the end of the command */
  write(buffer, start) {
    const { channel, key } = this;
    const channelHead = `$${Buffer.byteLength(channel)}\r\n${channel}\r\n$${this.bodyBytes}\r\n`;
    let at = start;
    if (key === '') {
      at += buffer.write(this.publisher.publishHead + channelHead, at);
      at = this.writeBody(buffer, at);
      at += buffer.write('\r\n', at, 'latin1');
      return at;
    }
    const ttl = String(BLOB_TTL_MS);
    at += buffer.write(
      this.publisher.storeHead + bulk(key) + this.publisher.storeKey + channelHead,
      at,
    );
    at = this.writeBody(buffer, at);
    at += buffer.write(`\r\n$${this.stored.length}\r\n`, at, 'latin1');
    at += this.stored.copy(buffer, at);
    at += buffer.write(`\r\n$${ttl.length}\r\n${ttl}\r\n`, at, 'latin1');
    return at;
  }

  /** @param {Buffer} buffer @param {number} start */
  writeBody(buffer, start) {
    if (this.body !== null) return start + this.body.copy(buffer, start);
    let at = start;
    for (const publication of this.publications) at = writeVersioned(buffer, at, publication);
    return at;
  }

  /** The command has been written. */
  forgetBytes() {
    this.publications = NO_PUBLICATIONS;
    this.body = null;
    this.stored = NO_BODY;
  }

  /** @param {unknown} _reply */
  resolve(_reply) {
    this.answered();
    /** @type {Deferred<any>} */ (this.done).resolve(undefined);
  }

  /** @param {Error} error */
  reject(error) {
    if (error instanceof ReplyError) {
      this.answered();
      this.publisher.onRefused(error);
      this.done.reject(
        new BrokerError('UNAVAILABLE', 'Redis refused the publication', { cause: error }),
      );
      return;
    }
    this.lost();
    this.done.reject(new BrokerError('OUTCOME_UNKNOWN', 'Redis did not answer', { cause: error }));
  }

  /** No answer will come. */
  lost() {
    this.publisher.unanswered.releaseBytes(this.heldBytes);
    /** @type {WrittenBatch} */ (this.batch).settle();
  }

  answered() {
    const { unanswered } = this.publisher;
    unanswered.releaseBytes(this.heldBytes);
    unanswered.answered(/** @type {WrittenBatch} */ (this.batch));
  }

  /** The command was never written. @param {string} reason */
  refuse(reason) {
    this.publisher.unanswered.releaseBytes(this.heldBytes);
    this.done.reject(new BrokerError('UNAVAILABLE', reason));
  }

  /** The answer is late. When it comes, it releases the message's share of the bounds. */
  expire() {
    if (this.isExpired) return;
    this.isExpired = true;
    this.done.reject(new BrokerError('OUTCOME_UNKNOWN', 'Redis did not answer in time'));
  }
}

/** A publication with an idempotency key, in a room without history. */
class OnceMessage extends Message {
  /**
   * @param {RedisPublisher} publisher @param {string} room @param {Buffer} publication
   * @param {string} idempotencyKey @param {string} fingerprint
   */
  constructor(publisher, room, publication, idempotencyKey, fingerprint) {
    const { keys, maxPubsubBytes } = publisher;
    const onceKey = keys.onceOf(room, idempotencyKey);
    super(publisher, keys.channelOf(room), null, onceKey, NO_BODY);
    this.fingerprint = fingerprint;
    this.blobKey = '';
    if (versionedBytes(publication) <= maxPubsubBytes) {
      this.publications.push(publication);
      this.bodyBytes = versionedBytes(publication);
      return;
    }
    const id = randomUUID();
    this.blobKey = keys.blobOf(room, id);
    this.body = encodeReference(id, publication);
    this.bodyBytes = this.body.length;
    this.stored = publication;
  }

  /** @override */
  get maxWireBytes() {
    const { publisher, channel, key, blobKey, fingerprint, bodyBytes, stored } = this;
    const texts = (channel.length + key.length + blobKey.length + fingerprint.length) * 3;
    return publisher.onceHead.length + texts + bodyBytes + stored.length + 256;
  }

  /** @override @param {Buffer} buffer @param {number} start */
  write(buffer, start) {
    const { channel, key, blobKey, fingerprint, stored } = this;
    const isLarge = blobKey !== '';
    const keys = isLarge ? bulk('2') + bulk(key) + bulk(blobKey) : bulk('1') + bulk(key);
    const head = `*${isLarge ? 11 : 8}\r\n${this.publisher.onceHead}${keys}${bulk(channel)}`;
    let at = start + buffer.write(`${head}$${this.bodyBytes}\r\n`, start);
    at = this.writeBody(buffer, at);
    at += buffer.write(`\r\n${bulk(fingerprint)}${bulk(String(IDEMPOTENCY_MS))}`, at);
    if (!isLarge) return at;
    at += buffer.write(`$${stored.length}\r\n`, at, 'latin1');
    at += stored.copy(buffer, at);
    return at + buffer.write(`\r\n${bulk(String(BLOB_TTL_MS))}`, at, 'latin1');
  }

  /** @override @param {unknown} reply */
  resolve(reply) {
    if (reply !== 0) return super.resolve(reply);
    this.answered();
    this.done.reject(conflict());
  }
}

/** RESP of a call of once.lua, up to its number of keys. @param {boolean} isSharded */
function onceHead(isSharded) {
  const script = readScript('once').replace("'PUBLISH'", isSharded ? "'SPUBLISH'" : "'PUBLISH'");
  return bulk('EVAL') + bulk(script);
}

/** RESP of a script call, up to its key. @param {boolean} isSharded */
function storeHead(isSharded) {
  const [publish, count] = isSharded ? ['SPUBLISH', 'SHARDNUMSUB'] : ['PUBLISH', 'NUMSUB'];
  // Without subscribers nothing is stored, because anybody may publish to empty rooms. Subscribers
  // at a replica are not counted here: while there are such workers, the second key exists. SET
  // comes first: if Redis refuses it, nothing is published.
  const isFar = isSharded ? '' : `and redis.call('EXISTS',KEYS[2])==0 `;
  const script =
    `if redis.pcall('PUBSUB','${count}',ARGV[1])[2]==0 ${isFar}then return 0 end ` +
    `redis.call('SET',KEYS[1],ARGV[3],'PX',ARGV[4]) return redis.call('${publish}',ARGV[1],ARGV[2])`;
  const keys = isSharded ? 1 : 2;
  return `*${7 + keys}\r\n${bulk('EVAL')}${bulk(script)}${bulk(String(keys))}`;
}

/** @param {string} reason @returns {Promise<never>} */
export function unavailable(reason) {
  return Promise.reject(new BrokerError('UNAVAILABLE', reason));
}
