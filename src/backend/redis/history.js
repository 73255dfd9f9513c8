// history.js: rooms with history. lua/publish-history.lua publishes to them, lua/read-history.lua
// reads them.
//   publish -> this tick's message of the room --publisher--> EVALSHA -> position of each
//   read -> a turn --publisher--> EVALSHA -> the newest messages -> a page of publications
//   position alone -> a turn --publisher--> guard, HGET -> a page without publications
//
// - A call is a Message: it leaves in the one write of its tick, in order with all others.
// - A tick's publications to a room are one entry of its stream, because the script costs Redis the
//   same for one and for many. A publication that is too large for pub/sub (announced by reference)
//   or has an idempotency key is an entry of its own.
// - A script's text is sent once for each connection. If Redis has forgotten it (SCRIPT FLUSH),
//   the call had no effect and is sent again. It fails instead if a later call of its room has been
//   written, because that would change their order.
// - Each call shows its script the room's incarnation (fence and epoch) as this connection last saw
//   it. If it is still current, the script needs no further checks. A wrong one does no harm.
// - The worker remembers ended epochs when it reconnects. If the address of Redis leads back to a
//   server that still has one, the script ends it there, because that server lacks later
//   publications.
// - Offsets only rise within an epoch. If a call finds a lower one than the worker has seen, Redis
//   has lost publications (a primary took an older copy), and the worker ends the epoch.
// - Reads take turns, which bounds the bytes under way, so they do not delay publications.
// - The positions of quiet rooms are compared every ten seconds, so those with a known incarnation
//   are read by HGET. One guard precedes all of a tick: a write without effect. Redis refuses it on
//   a replica and on a primary without its replicas, which may lack the latest publications. If it
//   is refused, or the incarnation is unknown, the script reads the position. The script also
//   extends the lifetime of meta, so each room calls it from time to time.

import { randomFillSync } from 'node:crypto';
import { ReplyError } from 'ioredis';
import { EPOCH_BYTES } from '../../protocol/position.js';
import { BatchReader, versionedBytes } from '../batch.js';
import { IDEMPOTENCY_MS, MAX_PAGE_BYTES } from '../broker.js';
import { BrokerError, conflict, notAsExpected } from '../errors.js';
import { Message, NO_BODY, unavailable } from './publisher.js';
import { bulk, LoadedScript, publishScriptOf, scriptOf } from './scripts.js';

const SCRIPTS = {
  publish: publishScriptOf('batch', 'stream', 'publishing', 'publish-history'),
  read: scriptOf('batch', 'stream', 'reading', 'read-history'),
};
/** Meta outlives the stream, so a stream that expired is not taken for a new one. */
const META_TTL_FACTOR = 10;
const MIN_META_TTL_MS = 86_400_000;
/** By how much of its size or time a stream may exceed them before a call trims it. */
const MAINTENANCE_SHARE = 0.125;
/** Greater than 1 + MAINTENANCE_SHARE, because calls may be late. */
const TTL_FACTOR = 1.25;
/** For rooms without publications: read-history.lua keeps their meta for 120 s. */
const EMPTY_RENEWAL_MS = 50_000;
/** The part of meta's lifetime after which the script extends it. */
const RENEWAL_SHARE = 1 / 24;
/** In the cache. A position check of any other room calls the script. */
const MAX_ROOMS = 100_000;
const INCARNATION_BYTES = 32 + EPOCH_BYTES;
/** Ended epochs kept for one room. */
const MAX_ENDED = 4;
const FENCE_BYTES = 32;
/** A fence has two parts: the server's `run_id` and its replication ID. */
const FENCE_PART_BYTES = 16;
/** In one call, so that the script does not block Redis for long. */
const MAX_PUBLICATIONS = 1000;
/** The weight of the reads under way: 512 positions, or 16 pages of MAX_PAGE_BYTES. */
const MAX_READING = 512;
const PAGE_WEIGHT = 32;
const MAX_WAITING = 100_000;
/** Random bytes for epochs, generated many at a time. */
const pool = Buffer.allocUnsafe((EPOCH_BYTES / 2) * 512);
let poolAt = pool.length;

/** @import { HistoryRule } from '../../config/room-patterns.js' */
/** @import { ExpectedPosition } from '../../protocol/position.js' */
/** @import { HistoryPage, Position, ReadRequest } from '../broker.js' */
/** @import { Keys } from './keys.js' */

/**
 * @typedef {object} PublishParts
 * @property {string} room @property {HistoryRule} rule
 * @property {HistoryPublish|null} previous unanswered call of the room
 * @property {boolean} isLarge a single publication, announced by reference
 * @property {string} key in Redis, for an idempotency key; empty if there is none
 * @property {string} fingerprint
 * @property {ExpectedPosition|undefined} expect
 */

export class RedisHistory {
  /**
   * @param {object} parts
   * @param {import('./publisher.js').RedisPublisher} parts.publisher @param {Keys} parts.keys
   * @param {boolean} parts.isSharded in a cluster, messages stay on the room's node
   * @param {number} parts.maxPubsubBytes of one message
   * @param {'strict'|'trust'} parts.fence with `trust`, a restart or failover ends no epoch
   * @param {() => string} parts.guardKey returns a key that never exists, in a slot of the node
   */
  constructor({ publisher, keys, isSharded, maxPubsubBytes, fence, guardKey }) {
    const { publish, read } = this.scripts;
    this.publishScript = new LoadedScript(publish[isSharded ? 'sharded' : 'plain']);
    this.readScript = new LoadedScript(read);
    this.publisher = publisher;
    this.keys = keys;
    this.maxPubsubBytes = maxPubsubBytes;
    this.guardKey = guardKey;
    /** For the position reads of this tick. @type {Guard|null} */
    this.guard = null;
    this.isTrusting = fence === 'trust';
    /** The server's fence, followed by the former one after `moveOn`; '': unknown. */
    this.fence = '';
    /** @type {Map<string, RoomCache>} */
    this.rooms = new Map();
    /** The latest unanswered call of each room. @type {Map<string, HistoryPublish>} */
    this.latest = new Map();
    this.reading = 0;
    /** @type {Set<HistoryRead>} */
    this.waiting = new Set();
    this.reset();
  }

  get scripts() {
    return SCRIPTS;
  }

  /** As RESP; the first one is that of `metaOf`. @param {string} room */
  keysOf(room) {
    return bulk(this.keys.metaOf(room)) + bulk(this.keys.streamOf(room));
  }

  /** @param {string} room */
  metaOf(room) {
    return this.keys.metaOf(room);
  }

  /** In a call. @param {Buffer} publication */
  bytesOf(publication) {
    return versionedBytes(publication);
  }

  /** Must a publication be a call of its own, announced by reference? @param {number} bytes */
  isLarge(bytes) {
    return bytes > this.maxPubsubBytes;
  }

  /** @param {PublishParts} parts */
  createPublish(parts) {
    return new HistoryPublish(this, parts);
  }

  /** @param {string} room @param {HistoryRule} rule @param {ReadRequest} from */
  createRead(room, rule, from) {
    return new HistoryRead(this, room, rule, from);
  }

  reset() {
    this.fence = this.isTrusting ? 'trust' : '';
    this.publishScript.forget();
    this.readScript.forget();
    for (const cache of this.rooms.values()) cache.forget();
  }

  /**
   * The replication ID of Redis has changed, and no data was lost.
   * @param {string} server its `run_id` @param {string} former `master_replid`
   * @param {string} current
   */
  moveOn(server, former, current) {
    if (this.isTrusting) return;
    const part = (/** @type {string} */ id) => id.slice(0, FENCE_PART_BYTES);
    this.fence = part(server) + part(current) + part(server) + part(former);
    // Their meta has the former fence. The script replaces it when it next runs for the room.
    for (const cache of this.rooms.values()) cache.forget();
  }

  /**
   * @param {string} room @param {HistoryRule} rule @param {Buffer} publication
   * @param {string} idempotencyKey may be empty
   * @param {string} fingerprint of the payload; may be empty
   * @param {ExpectedPosition} [expect] @returns {Promise<Position>}
   */
  publish(room, rule, publication, idempotencyKey, fingerprint, expect) {
    const { publisher } = this;
    const bytes = this.bytesOf(publication);
    const refusal = publisher.refusal(bytes);
    if (refusal !== '') return unavailable(refusal);
    const isLarge = this.isLarge(bytes);
    let call = this.latest.get(room);
    const isAlone = isLarge || idempotencyKey !== '' || expect !== undefined;
    if (call === undefined || isAlone || !call.takes(bytes)) {
      const key = idempotencyKey === '' ? '' : this.keys.idempotencyOf(room, idempotencyKey);
      const previous = call ?? null;
      call = this.createPublish({ room, rule, previous, isLarge, key, fingerprint, expect });
      this.latest.set(room, call);
      publisher.gather(call);
    }
    const place = call.add(publication, bytes);
    publisher.holdBytes(call, bytes);
    return call.positionOf(place);
  }

  /** @param {string} room @param {HistoryRule} rule @param {ReadRequest} from */
  read(room, rule, from) {
    const refusal = this.publisher.refusal(0);
    if (refusal !== '') return unavailable(refusal);
    if (from.endedEpoch) this.cache(room).end(from.endedEpoch);
    const read = this.createRead(room, rule, from);
    if (this.waiting.size === 0 && this.#hasTurn(read)) this.#beginRead(read);
    else if (this.waiting.size < MAX_WAITING) this.waiting.add(read);
    else return unavailable('too many reads are waiting for Redis');
    return read.done.promise;
  }

  /** @param {HistoryRead} read */
  #hasTurn(read) {
    return this.reading + read.weight <= MAX_READING;
  }

  /** @param {HistoryRead} read */
  #beginRead(read) {
    this.reading += read.weight;
    if (read.isPosition) read.guard = this.#guard();
    this.publisher.gather(read);
  }

  #guard() {
    if (this.guard === null) {
      this.guard = new Guard(this, this.guardKey());
      this.publisher.gather(this.guard);
    }
    return this.guard;
  }

  /** @param {HistoryRead} read */
  readOnSettled(read) {
    this.reading -= read.weight;
    for (const next of this.waiting) {
      const refusal = this.publisher.refusal(0);
      if (refusal === '' && !this.#hasTurn(next)) break;
      this.waiting.delete(next);
      if (refusal === '') this.#beginRead(next);
      else next.done.reject(new BrokerError('UNAVAILABLE', refusal));
    }
  }

  /**
   * Reads a publication that was announced by reference.
   * @param {string} room @param {number} offset @param {string} epoch
   * @returns {Promise<Buffer|null>} null if it is no longer stored
   */
  async body(room, offset, epoch) {
    const { redis } = this.publisher.connection;
    const entries = /** @type {[Buffer, [Buffer, Buffer]][]} */ (
      await redis.xrangeBuffer(this.keys.streamOf(room), offset, offset)
    );
    const found = new Found(epoch, offset - 1, offset, false);
    found.addAll(entries.map(([, [, message]]) => message));
    return found.first === offset ? found.publications[0] : null;
  }

  /** @param {string} room */
  cache(room) {
    let cache = this.rooms.get(room);
    if (cache === undefined) {
      if (this.rooms.size >= MAX_ROOMS)
        for (const oldest of this.rooms.keys()) if (this.rooms.delete(oldest)) break;
      cache = new RoomCache();
      this.rooms.set(room, cache);
    }
    return cache;
  }

  /** @param {string} room @param {string} incarnation as the script returned it */
  learn(room, incarnation) {
    const cache = this.cache(room);
    const before = cache.incarnation;
    if (before !== incarnation) cache.learn(incarnation, !this.isTrusting);
    if (this.isTrusting) return;
    const fence = incarnation.slice(0, FENCE_BYTES);
    if (this.fence.slice(FENCE_BYTES) === fence) {
      // The call was written before the fence changed. The next one replaces the fence.
      cache.forget();
    } else if (!this.fence.startsWith(fence)) {
      // Another worker has replaced the fence of this epoch, so it has seen that no data was lost:
      // the epochs of this worker's other rooms continue too.
      const isRenamed =
        before !== '' && before.slice(FENCE_BYTES) === incarnation.slice(FENCE_BYTES);
      this.fence = isRenamed ? fence + before.slice(0, FENCE_BYTES) : fence;
    }
  }

  /** A publication arrived. @param {string} room @param {number} offset @param {string} epoch */
  see(room, offset, epoch) {
    const cache = this.rooms.get(room);
    if (cache !== undefined && cache.epoch === epoch && offset > cache.top) cache.top = offset;
  }

  /**
   * Has Redis lost publications? The stream is then shorter than when the call was written, and the
   * worker ends the epoch and resets the connection.
   * @param {string} room @param {string} epoch @param {number} top the offset that the call found
   * @param {Floor} floor
   */
  isCutShort(room, epoch, top, floor) {
    if (this.isTrusting || epoch !== floor.epoch || top >= floor.top) return false;
    this.cache(room).end(epoch);
    this.publisher.connection.destroy('Redis lost publications without an error');
    return true;
  }

  /** Without the body. @param {LoadedScript} script @param {string} room */
  maxCallBytes(script, room) {
    // Four names of up to three bytes a character; everything else fits into the rest.
    return script.callBytes + (this.keys.prefix.length + room.length) * 12 + 768;
  }
}

/** An offset that Redis has given out. @typedef {{epoch: string, top: number}} Floor */

/** @type {Floor} */
const NO_FLOOR = Object.freeze({ epoch: '', top: 0 });

/** The state of a room as this worker last saw it. */
export class RoomCache {
  constructor() {
    /** Fence and epoch on this connection; empty if not known yet. */
    this.incarnation = '';
    /** The latest epoch, on any connection. */
    this.epoch = '';
    /** The highest offset that this worker has seen in that epoch. */
    this.top = 0;
    /** Ended epochs as one string, the latest first. */
    this.ended = '';
    /** Publications since the last maintenance of the stream. */
    this.unmaintained = 0;
    this.maintainedMs = Number.NEGATIVE_INFINITY;
    /** When the script must read next, to extend the lifetime of meta. */
    this.renewalMs = Number.NEGATIVE_INFINITY;
  }

  forget() {
    this.incarnation = '';
    this.maintainedMs = Number.NEGATIVE_INFINITY;
  }

  /** @param {string} incarnation @param {boolean} isFenced does its epoch end the former one? */
  learn(incarnation, isFenced) {
    const epoch = incarnation.slice(-EPOCH_BYTES);
    if (this.epoch !== epoch && this.epoch !== '' && isFenced) this.end(this.epoch);
    this.incarnation = incarnation;
    if (this.epoch !== epoch) this.top = 0;
    this.epoch = epoch;
    this.maintainedMs = Number.NEGATIVE_INFINITY;
  }

  /** @param {string} epoch */
  end(epoch) {
    if (this.incarnation.endsWith(epoch)) this.incarnation = '';
    if (!this.ended.includes(epoch))
      this.ended = (epoch + this.ended).slice(0, MAX_ENDED * EPOCH_BYTES);
  }

  /** @returns {Floor} */
  floor() {
    return { epoch: this.epoch, top: this.top };
  }

  /** May HGET read the position? @param {number} nowMs */
  isReadable(nowMs) {
    return this.incarnation.length === INCARNATION_BYTES && nowMs < this.renewalMs;
  }

  /** The script has extended the lifetime of meta. @param {number} top @param {HistoryRule} rule */
  renewed(top, rule) {
    const afterMs = top === 0 ? EMPTY_RENEWAL_MS : metaTtlMs(rule) * RENEWAL_SHARE;
    this.renewalMs = performance.now() + afterMs;
  }

  /** Must the next call trim and renew? @param {number} publications @param {HistoryRule} rule */
  isMaintenanceDue(publications, rule) {
    this.unmaintained += publications;
    const nowMs = performance.now();
    if (
      this.unmaintained < rule.size * MAINTENANCE_SHARE &&
      nowMs - this.maintainedMs < rule.ttlMs * MAINTENANCE_SHARE
    )
      return false;
    this.unmaintained = 0;
    this.maintainedMs = nowMs;
    return true;
  }
}

/** The publications of a tick to one room. @extends {Message<Position>} */
export class HistoryPublish extends Message {
  /** @param {RedisHistory} history @param {PublishParts} parts */
  constructor(history, { room, rule, previous, isLarge, key, fingerprint, expect }) {
    super(history.publisher, history.keys.channelOf(room), null, key, NO_BODY);
    this.history = history;
    this.room = room;
    this.rule = rule;
    this.previous = previous;
    this.isLarge = isLarge;
    this.fingerprint = fingerprint;
    this.expected = expect === undefined ? '' : `${expect.epoch}:${expect.offset}`;
    /** No further publication may join this call. */
    this.isClosed = isLarge || key !== '' || expect !== undefined;
    this.isFollowed = false;
    /** Is the script to trim and renew, too? */
    this.hasMaintenance = false;
    /** As shown to the script. */
    this.incarnation = '';
    this.floor = NO_FLOOR;
    /** @type {Buffer[]} */
    this.publications = [];
  }

  /** @param {number} bytes */
  takes(bytes) {
    return (
      !this.isClosed &&
      this.publications.length < MAX_PUBLICATIONS &&
      this.bodyBytes + bytes <= this.history.maxPubsubBytes
    );
  }

  /** @param {Buffer} publication @param {number} size with its head */
  add(publication, size) {
    this.bodyBytes += size;
    return this.publications.push(publication) - 1;
  }

  /** @param {number} place of a publication @returns {Promise<Position>} */
  positionOf(place) {
    const { promise } = this.done;
    if (place === 0) return promise;
    return promise.then(({ epoch, offset }) => ({ epoch, offset: offset + place }));
  }

  /** The call is about to be written. */
  begin() {
    const { history, room, previous } = this;
    this.isClosed = true;
    if (previous !== null) previous.isFollowed = true;
    this.previous = null;
    const cache = history.cache(room);
    this.incarnation = cache.incarnation;
    this.floor = cache.floor();
    return cache;
  }

  /** @override */
  get maxWireBytes() {
    return this.history.maxCallBytes(this.history.publishScript, this.room) + this.bodyBytes;
  }

  /** @override @param {Buffer} buffer @param {number} start */
  write(buffer, start) {
    const { history, room, rule, key, expected } = this;
    const cache = this.begin();
    const hasKey = key !== '';
    this.hasMaintenance = cache.isMaintenanceDue(this.publications.length, rule);
    const args = this.hasMaintenance ? 10 : expected !== '' ? 7 : hasKey ? 6 : 5;
    const head =
      history.publishScript.head(hasKey ? 3 : 2, args) +
      history.keysOf(room) +
      (hasKey ? bulk(key) : '') +
      bulk(cache.incarnation || history.fence) +
      bulk(newEpoch() + cache.ended) +
      bulk(this.channel) +
      bulk(this.isLarge ? '0' : String(this.publications.length));
    let tail = '\r\n';
    if (args > 5) tail += bulk(`${IDEMPOTENCY_MS} ${this.fingerprint}`);
    if (args > 6) tail += bulk(expected);
    if (this.hasMaintenance)
      tail +=
        bulk(String(rule.size)) +
        bulk(String(Math.ceil(rule.ttlMs * TTL_FACTOR))) +
        bulk(String(metaTtlMs(rule)));
    let at = start + buffer.write(`${head}$${this.bodyBytes}\r\n`, start);
    at = this.writeBody(buffer, at);
    at += buffer.write(tail, at, 'latin1');
    return at;
  }

  /** @override If Redis has forgotten the script, the bytes are sent again. */
  forgetBytes() {}

  /** @override @param {number|[incarnation: Buffer, offset: number, isConflict?: 1]} reply */
  resolve(reply) {
    this.leave();
    this.answered();
    let [incarnation, offset] =
      typeof reply === 'number'
        ? [this.incarnation, reply]
        : [reply[0].toString('latin1'), reply[1]];
    // For a repeated idempotency key Redis answers with the epoch alone.
    const isRepeated = incarnation.length === EPOCH_BYTES;
    const isConflict = typeof reply !== 'number' && reply[2] === 1;
    // The script has published nothing, so it has not maintained the stream either.
    if (this.hasMaintenance && (isConflict || isRepeated || incarnation === ''))
      this.history.cache(this.room).maintainedMs = Number.NEGATIVE_INFINITY;
    if (isConflict) {
      this.conflictAt(incarnation, offset);
      return;
    }
    if (incarnation === '') {
      this.done.reject(offset === 0 ? conflict() : unreadableKey());
      return;
    }
    const epoch = incarnation.slice(-EPOCH_BYTES);
    if (!isRepeated) {
      if (incarnation !== this.incarnation) this.history.learn(this.room, incarnation);
      const last = offset;
      offset -= this.publications.length - 1;
      if (this.history.isCutShort(this.room, epoch, offset - 1, this.floor)) {
        this.cutShort();
        return;
      }
      this.history.see(this.room, last, epoch);
    }
    this.done.resolve({ epoch, offset });
  }

  /** The room is not where the publisher expects it. @param {string} incarnation @param {number} offset */
  conflictAt(incarnation, offset) {
    const { history, room, floor, done } = this;
    if (incarnation !== this.incarnation) history.learn(room, incarnation);
    const epoch = incarnation.slice(-EPOCH_BYTES);
    if (history.isCutShort(room, epoch, offset, floor)) {
      done.reject(new BrokerError('UNAVAILABLE', 'Redis lost publications'));
      return;
    }
    history.see(room, offset, epoch);
    done.reject(notAsExpected({ epoch, offset }));
  }

  /** @override @param {Error} error */
  reject(error) {
    if (error instanceof ReplyError && error.message.startsWith('NOSCRIPT')) {
      this.history.publishScript.forget();
      this.history.cache(this.room).maintainedMs = Number.NEGATIVE_INFINITY;
      if (!this.isFollowed && !this.isExpired) {
        this.publisher.gatherAgain(this);
        return;
      }
    }
    this.leave();
    this.history.cache(this.room).maintainedMs = Number.NEGATIVE_INFINITY;
    super.reject(error);
  }

  /** @override @param {string} reason */
  refuse(reason) {
    this.leave();
    super.refuse(reason);
  }

  cutShort() {
    this.done.reject(new BrokerError('OUTCOME_UNKNOWN', 'Redis lost publications'));
  }

  leave() {
    const { latest } = this.history;
    if (latest.get(this.room) === this) latest.delete(this.room);
  }
}

/** A read changes nothing, so each failure is UNAVAILABLE. @extends {Message<HistoryPage>} */
export class HistoryRead extends Message {
  /**
   * @param {RedisHistory} history @param {string} room @param {HistoryRule} rule
   * @param {ReadRequest} from
   */
  constructor(history, room, rule, from) {
    const { after, limit, maxBytes = MAX_PAGE_BYTES, before } = from;
    const { isForward = false, isGlance = false } = from;
    super(history.publisher, '', null, '', NO_BODY);
    this.history = history;
    this.room = room;
    this.rule = rule;
    this.after = after;
    this.limit = Math.min(limit, rule.size);
    this.maxBytes = Math.min(maxBytes, MAX_PAGE_BYTES);
    this.before = before;
    this.isForward = isForward;
    this.isGlance = isGlance;
    this.isPosition = limit === 0;
    /** Null if the script reads the position. @type {Guard|null} */
    this.guard = null;
    /** Not empty if HGET reads the position. */
    this.incarnation = '';
    this.floor = NO_FLOOR;
    this.weight = limit > 0 ? Math.ceil((PAGE_WEIGHT * this.maxBytes) / MAX_PAGE_BYTES) : 1;
  }

  /** @override */
  get maxWireBytes() {
    return this.history.maxCallBytes(this.history.readScript, this.room);
  }

  /** @override @param {Buffer} buffer @param {number} start */
  write(buffer, start) {
    const { history, room } = this;
    const cache = history.rooms.get(room);
    if (cache !== undefined) this.floor = cache.floor();
    if (this.guard !== null && cache?.isReadable(performance.now())) {
      this.incarnation = cache.incarnation;
      const command = `*3\r\n$4\r\nHGET\r\n${bulk(history.metaOf(room))}`;
      return start + buffer.write(command + bulk(this.incarnation), start);
    }
    return start + buffer.write(this.callOf(cache), start);
  }

  /** As RESP. @param {RoomCache|undefined} cache */
  callOf(cache) {
    const { history, room, isGlance } = this;
    return (
      history.readScript.head(2, 11) +
      history.keysOf(room) +
      bulk(cache?.incarnation || history.fence) +
      bulk(newEpoch() + (cache?.ended ?? '')) +
      bulk(String(this.after)) +
      bulk(String(this.limit)) +
      bulk(String(this.maxBytes)) +
      bulk(String(metaTtlMs(this.rule))) +
      bulk(this.isForward ? '1' : '') +
      bulk(isGlance ? '1' : '') +
      bulk(this.limit > 0 && !history.isTrusting ? '1' : '') +
      bulk(this.before === undefined ? '' : `${this.before.epoch}${this.before.offset}`) +
      bulk(String(this.rule.size))
    );
  }

  /**
   * @override
   * @param {[incarnation: Buffer, offset: number, messages: Buffer[], hasOlder?: number]|Buffer|null}
   *   reply
   */
  resolve(reply) {
    if (!Array.isArray(reply)) return this.#resolvePosition(reply);
    const [incarnation, offset, messages, hasOlder] = reply;
    const epoch = this.scriptAnswered(incarnation, offset);
    this.finish(this.#page(epoch, offset, messages, hasOlder === 1));
  }

  /** @param {Buffer} bytes incarnation @param {number} offset @returns {string} epoch */
  scriptAnswered(bytes, offset) {
    this.answered();
    const { history, room, isGlance } = this;
    const incarnation = bytes.toString('latin1');
    // After a glance Redis does not remember the epoch of a room without publications.
    if (!isGlance || offset > 0) {
      history.learn(room, incarnation);
      history.cache(room).renewed(offset, this.rule);
    }
    return incarnation.slice(-EPOCH_BYTES);
  }

  /** @param {Buffer|null} reply the offset plus 1; null if the incarnation is unknown */
  #resolvePosition(reply) {
    const offset = reply === null ? -1 : Number(reply.toString('latin1')) - 1;
    const isProven = offset >= 0 && !this.guard?.isRefused;
    if (!isProven && !this.isExpired) return this.#callScript();
    this.answered();
    if (!isProven) this.history.readOnSettled(this);
    else this.finish(this.#page(this.incarnation.slice(-EPOCH_BYTES), offset, [], false));
  }

  /** Lets the script read the position. It knows more cases and the reason of a refusal. */
  #callScript() {
    this.guard = null;
    this.incarnation = '';
    this.publisher.gatherAgain(this);
  }

  /** @param {HistoryPage} page */
  finish(page) {
    const { history, room } = this;
    const { epoch, offset } = page;
    if (history.isCutShort(room, epoch, offset, this.floor)) {
      this.#fail('Redis lost publications');
    } else {
      history.see(room, offset, epoch);
      this.done.resolve(page);
    }
    history.readOnSettled(this);
  }

  /**
   * @param {string} epoch @param {number} offset
   * @param {Buffer[]} messages newest first; oldest first if forward
   * @param {boolean} hasOlder @returns {HistoryPage}
   */
  #page(epoch, offset, messages, hasOlder) {
    const { after, limit, isForward, before } = this;
    if (isForward) {
      const { first, publications } = new Found(epoch, after, offset, true).addAll(messages);
      return { epoch, offset, first, publications: publications.slice(0, limit), hasOlder: false };
    }
    const last = before === undefined ? offset : Math.min(offset, before.offset - 1);
    // The oldest message may begin with publications that are no longer kept.
    const above = Math.max(after, offset - this.rule.size, last - limit);
    const found = new Found(epoch, above, last, false).addAll(messages.reverse());
    const { first, next, publications } = found;
    if (next !== last + 1) return { epoch, offset, first, publications: [], hasOlder: false };
    return { epoch, offset, first, publications, hasOlder };
  }

  /** @override @param {Error} error */
  reject(error) {
    if (error instanceof ReplyError && this.incarnation !== '' && !this.isExpired)
      return this.#callScript();
    if (error instanceof ReplyError && error.message.startsWith('NOSCRIPT')) {
      this.history.readScript.forget();
      if (!this.isExpired) {
        this.publisher.gatherAgain(this);
        return;
      }
    }
    if (error instanceof ReplyError) {
      this.answered();
      this.publisher.onRefused(error);
      this.#fail('Redis refused the read', error);
    } else {
      this.lost();
      this.#fail('Redis did not answer', error);
    }
    this.history.readOnSettled(this);
  }

  /** @override @param {string} reason */
  refuse(reason) {
    super.refuse(reason);
    this.history.readOnSettled(this);
  }

  /** @override */
  expire() {
    this.isExpired = true;
    this.#fail('Redis did not answer in time');
  }

  /** @param {string} message @param {unknown} [cause] */
  #fail(message, cause) {
    this.done.reject(new BrokerError('UNAVAILABLE', message, { cause }));
  }
}

/**
 * A write without effect, before the position reads of a tick. The key does not exist, so nothing
 * reaches the append-only file.
 * @extends {Message<void>}
 */
class Guard extends Message {
  /** @param {RedisHistory} history @param {string} key */
  constructor(history, key) {
    super(history.publisher, '', null, key, NO_BODY);
    this.history = history;
    this.isRefused = false;
    this.done.promise.catch(() => {}); // its reads look at isRefused
  }

  /** @override */
  get maxWireBytes() {
    return 64 + this.key.length * 3;
  }

  /** @override @param {Buffer} buffer @param {number} start */
  write(buffer, start) {
    this.history.guard = null;
    return start + buffer.write(`*3\r\n$7\r\nPEXPIRE\r\n${bulk(this.key)}$1\r\n1\r\n`, start);
  }

  /** @override @param {Error} error */
  reject(error) {
    this.isRefused = true;
    if (error instanceof ReplyError) this.answered();
    else this.lost();
  }

  /** @override @param {string} reason */
  refuse(reason) {
    this.history.guard = null;
    super.refuse(reason);
  }
}

/** The key has been used, but its position cannot be read. */
export function unreadableKey() {
  return new BrokerError(
    'OUTCOME_UNKNOWN',
    'another version of Fanfare wrote the value of this idempotency key',
  );
}

/**
 * Finds publications in a stream's messages, which have no references. A message that this server
 * cannot read is a gap.
 */
class Found {
  /**
   * @param {string} epoch @param {number} above finds higher offsets, up to `last`
   * @param {number} last
   * @param {boolean} isForward finds those before the first gap; else those after the last gap
   */
  constructor(epoch, above, last, isForward) {
    this.epoch = epoch;
    this.above = above;
    this.last = last;
    this.isForward = isForward;
    this.first = 0;
    this.next = 0;
    /** @type {Buffer[]} */
    this.publications = [];
  }

  /** @param {readonly Buffer[]} messages oldest first */
  addAll(messages) {
    for (const message of messages) this.add(message);
    return this;
  }

  /** @param {Buffer} message */
  add(message) {
    const batch = new BatchReader(message);
    while (batch.next()) {
      const { publication, offset } = batch;
      if (publication === null || batch.epoch !== this.epoch) continue;
      if (offset <= this.above || offset > this.last) continue;
      if (offset !== this.next) {
        if (this.isForward && this.publications.length > 0) return;
        this.first = offset;
        this.publications = [];
      }
      this.publications.push(publication);
      this.next = offset + 1;
    }
  }
}

/** @param {HistoryRule} rule */
function metaTtlMs(rule) {
  return Math.max(META_TTL_FACTOR * rule.ttlMs, MIN_META_TTL_MS);
}

/** Unique, because two calls under way may each begin an epoch. */
export function newEpoch() {
  if (poolAt === pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  poolAt += EPOCH_BYTES / 2;
  return pool.toString('hex', poolAt - EPOCH_BYTES / 2, poolAt);
}
