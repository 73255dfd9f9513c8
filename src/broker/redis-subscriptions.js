// redis-subscriptions.js: the rooms this worker wants from Redis, over one connection of their own.
//
//   wanted --SUBSCRIBE--> confirmed --last member gone--> lingering --UNSUBSCRIBE--> gone
//
// (Un)subscriptions of a tick leave together. When the connection is lost all confirmations are void and those that
// wait are told so; the rooms stay wanted, and are subscribed in chunks when it returns. Only then is it live.

import { ReplyError } from 'ioredis';
import { BrokerError } from './broker.js';
import { deferred } from './deferred.js';
import { Linger } from './linger.js';

const CHUNK_ROOMS = 1000;
const RETRY_STEP_MS = 50;
const MAX_RETRY_MS = 2000;

/** A room that is wanted. */
class Wanted {
  /** @param {string} room */
  constructor(room) {
    this.room = room;
    this.isConfirmed = false;
    /** UNSUBSCRIBE has been sent. */
    this.isLeft = false;
    /** While its confirmation is under way. @type {import('./deferred.js').Deferred<void>|null} */
    this.confirming = null;
  }
}

export class RedisSubscriptions {
  /**
   * @param {object} parts
   * @param {import('./redis-connection.js').RedisConnection} parts.connection
   * @param {(room: string) => string} parts.channelOf
   * @param {string[]} parts.ownChannels subscribed beside the rooms
   * @param {number} parts.roomLingerMs
   * @param {() => void} parts.onLive
   * @param {(reason: string) => void} parts.onRefused Redis does not let us subscribe what is wanted
   */
  constructor({ connection, channelOf, ownChannels, roomLingerMs, onLive, onRefused }) {
    this.connection = connection;
    this.channelOf = channelOf;
    this.ownChannels = ownChannels;
    this.onLive = onLive;
    this.onRefused = onRefused;
    /** Everything wanted is confirmed. */
    this.isLive = false;
    /** @type {Map<string, Wanted>} */
    this.rooms = new Map();
    this.linger = new Linger(roomLingerMs, (rooms) => this.#leave(rooms));
    /** To be subscribed at the end of this tick. @type {Map<string, Wanted>} */
    this.joining = new Map();
    /** To be unsubscribed then. @type {Map<string, Wanted>} */
    this.leaving = new Map();
    this.isScheduled = false;
    /** Tells a connection's answers from those of the one before. */
    this.generation = 0;
    this.refusals = 0;
    this.flush = this.flush.bind(this);
  }

  /** @param {string} room @returns {Promise<void>} */
  subscribe(room) {
    this.linger.delete(room);
    let wanted = this.rooms.get(room) ?? this.leaving.get(room);
    if (wanted === undefined) wanted = new Wanted(room);
    this.leaving.delete(room);
    this.rooms.set(room, wanted);
    if (!this.isLive) return Promise.reject(new BrokerError('UNAVAILABLE', 'Redis is away'));
    if (wanted.isConfirmed) return Promise.resolve();
    if (wanted.confirming === null) {
      wanted.confirming = deferred();
      this.joining.set(room, wanted);
      this.#schedule();
    }
    return wanted.confirming.promise;
  }

  /** @param {string} room */
  unsubscribe(room) {
    const wanted = this.rooms.get(room);
    if (wanted === undefined) return;
    if (wanted.isConfirmed || wanted.confirming !== null) this.linger.add(room);
    else this.rooms.delete(room);
  }

  /** @param {string[]} rooms that have lingered long enough */
  #leave(rooms) {
    for (const room of rooms) {
      const wanted = this.rooms.get(room);
      if (wanted === undefined) continue;
      this.rooms.delete(room);
      if (this.joining.delete(room))
        wanted.confirming?.reject(new BrokerError('UNAVAILABLE', 'unsubscribed meanwhile'));
      else this.leaving.set(room, wanted);
    }
    this.#schedule();
  }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.flush);
  }

  /** Sends what this tick gathered. */
  flush() {
    this.isScheduled = false;
    const joining = [...this.joining.values()];
    const leaving = [...this.leaving.values()];
    this.joining.clear();
    if (!this.isLive || !this.connection.isWritable) {
      // Rooms that wait to be left wait on: for the end of restore(), or for lose(), which makes an end of them.
      for (const wanted of joining) this.#fail(wanted, 'Redis is away');
      return;
    }
    this.leaving.clear();
    const { generation } = this;
    for (let i = 0; i < joining.length; i += CHUNK_ROOMS) {
      const chunk = joining.slice(i, i + CHUNK_ROOMS);
      this.#confirm(chunk).catch((error) => {
        if (generation !== this.generation) return;
        for (const wanted of chunk) this.#fail(wanted, 'Redis refused the subscription', error);
        if (!(error instanceof ReplyError)) this.connection.destroy('a subscription was not confirmed');
      });
    }
    for (const wanted of leaving) wanted.isLeft = true;
    for (let i = 0; i < leaving.length; i += CHUNK_ROOMS) {
      this.connection.redis.unsubscribe(...this.#channels(leaving.slice(i, i + CHUNK_ROOMS))).catch((error) => {
        // A refusal leaves publications coming that nobody wants: they are ignored.
        if (generation === this.generation && !(error instanceof ReplyError)) {
          this.connection.destroy('the end of a subscription was not confirmed');
        }
      });
    }
  }

  /** @param {Wanted} wanted @param {string} message @param {unknown} [cause] */
  #fail(wanted, message, cause) {
    const { confirming } = wanted;
    wanted.confirming = null;
    confirming?.reject(new BrokerError('UNAVAILABLE', message, { cause }));
  }

  /** @param {Wanted[]} chunk */
  #channels(chunk) {
    return chunk.map((wanted) => this.channelOf(wanted.room));
  }

  /** @param {Wanted[]} chunk */
  async #confirm(chunk) {
    const { generation } = this;
    await this.connection.redis.subscribe(...this.#channels(chunk));
    if (generation !== this.generation) return;
    for (const wanted of chunk) {
      wanted.isConfirmed = true;
      wanted.confirming?.resolve();
      wanted.confirming = null;
      // Unsubscribed while this was under way, and not told to Redis.
      if (!wanted.isLeft && !this.rooms.has(wanted.room)) this.leaving.set(wanted.room, wanted);
    }
    if (this.leaving.size > 0) this.#schedule();
  }

  /** The connection is there: subscribes all that is wanted. */
  async restore() {
    const generation = ++this.generation;
    try {
      await this.connection.redis.subscribe(...this.ownChannels);
      while (generation === this.generation) {
        // Rooms may come while the others are confirmed.
        const missing = [...this.rooms.values()].filter((wanted) => !wanted.isConfirmed);
        if (missing.length === 0) break;
        for (let i = 0; i < missing.length && generation === this.generation; i += CHUNK_ROOMS) {
          await this.#confirm(missing.slice(i, i + CHUNK_ROOMS));
        }
      }
    } catch (error) {
      if (generation !== this.generation) return;
      if (!(error instanceof ReplyError)) {
        this.connection.destroy('the subscriptions were not confirmed');
        return;
      }
      this.onRefused(this.connection.describe(error));
      const delay = Math.min(RETRY_STEP_MS * ++this.refusals, MAX_RETRY_MS);
      setTimeout(() => {
        if (generation === this.generation) this.restore();
      }, delay).unref();
      return;
    }
    if (generation !== this.generation) return;
    this.refusals = 0;
    this.isLive = true;
    if (this.leaving.size > 0) this.#schedule();
    this.onLive();
  }

  /** The connection is gone, and with it every subscription. */
  lose() {
    this.generation++;
    this.isLive = false;
    this.joining.clear();
    this.leaving.clear();
    for (const room of this.linger.clear()) {
      const wanted = this.rooms.get(room);
      this.rooms.delete(room);
      if (wanted !== undefined) this.#fail(wanted, 'Redis is away');
    }
    for (const wanted of this.rooms.values()) {
      wanted.isConfirmed = false;
      this.#fail(wanted, 'Redis is away');
    }
  }
}
