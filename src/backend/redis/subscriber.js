// subscriber.js: the channels that this worker wants from one Redis, over their own connection.
//   wanted --SUBSCRIBE--> confirmed --last member gone--> delayed --UNSUBSCRIBE--> gone
//
// Subscriptions and unsubscriptions of a tick leave together. When the connection is lost, no
// channel is confirmed any more. The next connection subscribes the wanted channels in chunks
// (restore-pace.js); only then is the subscriber live.
//
// SSUBSCRIBE takes only channels of one slot, so in a cluster a command has those of one slot. When
// a slot moves, Redis ends its subscriptions, and cluster.js moves the channels. ioredis does not
// say which subscription has ended. If more have ended than channels were moved, a slot has left
// and is back, and all channels that are still here are subscribed again.

import { ReplyError } from 'ioredis';
import { deferred } from '../deferred.js';
import { DelayedUnsubscribe } from '../delayed-unsubscribe.js';
import { BrokerError } from '../errors.js';
import { backoffMs } from './backoff.js';
import { RestorePace } from './restore-pace.js';
import { slotOf } from './slots.js';

const CHUNK_CHANNELS = 1000;
const MOVED = /^MOVED /;

export class Subscription {
  /**
   * @param {string} channel @param {number} slot 0 outside of a cluster
   * @param {boolean} [isMoving]
   */
  constructor(channel, slot, isMoving = false) {
    this.channel = channel;
    this.slot = slot;
    this.isConfirmed = false;
    /** When Redis confirmed it last. */
    this.confirmedMs = 0;
    /** Unsubscribed, or its slot has moved. */
    this.isLeft = false;
    /** May have missed publications: it was confirmed elsewhere or before, or waited for a node. */
    this.isMoving = isMoving;
    /** The confirmation under way. @type {import('../deferred.js').Deferred<void>|null} */
    this.confirming = null;
  }
}

export class Subscriber {
  /**
   * @param {object} parts @param {import('./connection.js').RedisConnection} parts.connection
   * @param {boolean} parts.isSharded @param {number} parts.roomLingerMs
   * @param {number} parts.timeoutMs for each answer
   * @param {() => void} parts.onLive
   * @param {(reason: string) => void} parts.onRefused Redis refused a subscription; it is retried
   * @param {(channels: string[]) => void} parts.onMoved as in NodeEvents
   */
  constructor({ connection, isSharded, roomLingerMs, timeoutMs, onLive, onRefused, onMoved }) {
    this.connection = connection;
    this.isSharded = isSharded;
    this.timeoutMs = timeoutMs;
    this.onLive = onLive;
    this.onRefused = onRefused;
    this.onMoved = onMoved;
    /** Every wanted channel is confirmed or about to be. */
    this.isLive = false;
    /** @type {Map<string, Subscription>} */
    this.channels = new Map();
    this.delayedUnsubscribe = new DelayedUnsubscribe(roomLingerMs, (channels) =>
      this.#leave(channels),
    );
    /** For the end of this tick. @type {Map<string, Subscription>} */
    this.joining = new Map();
    /** For the end of this tick. @type {Map<string, Subscription>} */
    this.leaving = new Map();
    this.isScheduled = false;
    /** Subscriptions that Redis has ended, less those whose slot is known to have moved. */
    this.ended = 0;
    /** Ends that `ended` counts already, and that may still come. By slot. @type {Map<number, number>} */
    this.endsDue = new Map();
    /** Tells answers of this connection from those of former ones. */
    this.generation = 0;
    this.refusals = 0;
    /** @type {NodeJS.Timeout|null} */
    this.retrying = null;
    this.flush = this.flush.bind(this);
  }

  /** @param {string} channel @returns {Promise<void>} */
  subscribe(channel) {
    this.delayedUnsubscribe.delete(channel);
    let subscription = this.channels.get(channel) ?? this.leaving.get(channel);
    if (subscription === undefined)
      subscription = new Subscription(channel, this.isSharded ? slotOf(channel) : 0);
    this.leaving.delete(channel);
    this.channels.set(channel, subscription);
    if (!this.isLive) return Promise.reject(new BrokerError('UNAVAILABLE', 'Redis is unavailable'));
    if (subscription.isConfirmed) return Promise.resolve();
    if (subscription.confirming === null) {
      subscription.confirming = deferred();
      this.joining.set(channel, subscription);
      this.#schedule();
    }
    return subscription.confirming.promise;
  }

  /** @param {string} channel */
  unsubscribe(channel) {
    const subscription = this.channels.get(channel);
    if (subscription === undefined) return;
    if (subscription.isConfirmed || subscription.confirming !== null)
      this.delayedUnsubscribe.add(channel);
    else this.channels.delete(channel);
  }

  /**
   * Removes the channels that another node serves now. Redis has ended their subscriptions here.
   * @param {(slot: number) => boolean} isOurs
   * @param {number} [askedMs] when the slots were asked for. A slot whose channel was confirmed
   *   later has been away and is back, and Redis has not ended the subscription
   * @returns for `adopt` of the other node's subscriber
   */
  takeMoved(isOurs, askedMs = performance.now()) {
    const taken = [];
    for (const subscription of this.channels.values()) {
      if (isOurs(subscription.slot)) continue;
      const { channel, slot } = subscription;
      if (subscription.isConfirmed && subscription.confirmedMs < askedMs) {
        this.ended--;
        this.endsDue.set(slot, (this.endsDue.get(slot) ?? 0) + 1);
      }
      this.channels.delete(channel);
      this.joining.delete(channel);
      // A confirmation under way no longer counts.
      subscription.isLeft = true;
      if (this.delayedUnsubscribe.delete(channel)) {
        this.#fail(subscription, 'unsubscribed before the confirmation');
        continue;
      }
      const moving = new Subscription(channel, slot);
      moving.isMoving = subscription.isConfirmed || subscription.isMoving;
      moving.confirming = subscription.confirming;
      subscription.confirming = null;
      taken.push(moving);
    }
    for (const subscription of this.leaving.values())
      if (!isOurs(subscription.slot)) this.leaving.delete(subscription.channel);
    return taken;
  }

  /** Redis has ended a subscription, or refused one, because its slot has moved. */
  countEnded() {
    this.ended++;
  }

  /** The slots that have moved are known, and their channels taken. */
  confirmAgain() {
    if (this.ended <= 0 || !this.isLive) return;
    this.ended = 0;
    for (const [channel, subscription] of this.channels) {
      if (!subscription.isConfirmed) continue;
      subscription.isConfirmed = false;
      subscription.isMoving = true;
      this.joining.set(channel, subscription);
    }
    if (this.joining.size > 0) this.#schedule();
  }

  /** @param {Subscription[]} taken from another node's subscriber */
  adopt(taken) {
    for (const subscription of taken) {
      this.channels.set(subscription.channel, subscription);
      if (this.isLive) this.joining.set(subscription.channel, subscription);
      else this.#fail(subscription, 'Redis is unavailable');
    }
    if (this.joining.size > 0) this.#schedule();
  }

  /** Wants them when its connection is ready. @param {Iterable<string>} channels */
  want(channels) {
    for (const channel of channels) this.channels.set(channel, new Subscription(channel, 0));
  }

  /** Another subscriber hears the channels from now on, and its confirmations count. */
  retire() {
    for (const subscription of this.channels.values()) {
      subscription.confirming?.resolve();
      subscription.confirming = null;
    }
    this.lose();
  }

  /** @param {string[]} channels that have lingered long enough */
  #leave(channels) {
    for (const channel of channels) {
      const subscription = this.channels.get(channel);
      if (subscription === undefined) continue;
      this.channels.delete(channel);
      if (this.joining.delete(channel))
        this.#fail(subscription, 'unsubscribed before the confirmation');
      else this.leaving.set(channel, subscription);
    }
    this.#schedule();
  }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.flush);
  }

  flush() {
    this.isScheduled = false;
    const joining = [...this.joining.values()];
    const leaving = [...this.leaving.values()];
    this.joining.clear();
    if (!this.isLive || !this.connection.isWritable) {
      // Channels to be unsubscribed keep waiting: for the end of restore(), or for lose().
      for (const subscription of joining) this.#fail(subscription, 'Redis is unavailable');
      return;
    }
    this.leaving.clear();
    const { generation } = this;
    for (let i = 0; i < joining.length; i += CHUNK_CHANNELS) {
      const chunk = joining.slice(i, i + CHUNK_CHANNELS);
      this.#confirm(chunk).catch((error) => {
        if (generation !== this.generation) return;
        if (!(error instanceof ReplyError))
          this.connection.destroy('a subscription was not confirmed');
        else if (this.isSharded) {
          // The slot has moved. The channels follow it or are retried here, so callers need no
          // error.
          this.onRefused(this.connection.describe(error));
          this.#retry(backoffMs(1));
        } else
          for (const subscription of chunk)
            this.#fail(subscription, 'Redis refused the subscription', error);
      });
    }
    for (const subscription of leaving) subscription.isLeft = true;
    for (let i = 0; i < leaving.length; i += CHUNK_CHANNELS) {
      this.#unsubscribe(leaving.slice(i, i + CHUNK_CHANNELS)).catch((error) => {
        // After a refusal, unwanted publications still arrive. The hub ignores them.
        if (generation === this.generation && !(error instanceof ReplyError)) {
          this.connection.destroy('an unsubscribe was not confirmed');
        }
      });
    }
  }

  /** @param {Subscription} subscription @param {string} message @param {unknown} [cause] */
  #fail(subscription, message, cause) {
    const { confirming } = subscription;
    subscription.confirming = null;
    confirming?.reject(new BrokerError('UNAVAILABLE', message, { cause }));
  }

  /** @param {Subscription[]} chunk */
  #unsubscribe(chunk) {
    const { redis } = this.connection;
    if (!this.isSharded) return redis.unsubscribe(...channelsOf(chunk));
    return Promise.all(bySlot(chunk).map((those) => redis.sunsubscribe(...channelsOf(those))));
  }

  /** @param {Subscription[]} chunk @throws an error of Redis, after all answers */
  async #confirm(chunk) {
    const { generation } = this;
    const { redis } = this.connection;
    /** @type {string[]} */
    const moved = [];
    // Each answer counts when it comes: the slot may leave again before the others have answered.
    const answers = await Promise.allSettled(
      this.isSharded
        ? bySlot(chunk).map((those) =>
            this.#confirmBy(redis.ssubscribe(...channelsOf(those)), those, moved),
          )
        : [this.#confirmBy(redis.subscribe(...channelsOf(chunk)), chunk, moved)],
    );
    if (generation !== this.generation) return;
    if (moved.length > 0) this.onMoved(moved);
    for (const answer of answers) if (answer.status === 'rejected') throw answer.reason;
  }

  /**
   * @param {Promise<unknown>} answer @param {Subscription[]} those of one command
   * @param {string[]} moved gets the channels that may have missed publications
   */
  async #confirmBy(answer, those, moved) {
    const { generation } = this;
    try {
      await answer;
    } catch (error) {
      const isMoved = MOVED.test(/** @type {Error} */ (error).message);
      if (isMoved && generation === this.generation) this.ended--;
      throw error;
    }
    const confirmedMs = performance.now();
    if (generation !== this.generation) return;
    for (const subscription of those) {
      subscription.isConfirmed = true;
      subscription.confirmedMs = confirmedMs;
      if (subscription.isMoving && !subscription.isLeft) moved.push(subscription.channel);
      subscription.isMoving = false;
      subscription.confirming?.resolve();
      subscription.confirming = null;
      if (!subscription.isLeft) this.#expectNoEnd(subscription.slot);
      // It was unsubscribed meanwhile, but Redis does not know it yet.
      if (!subscription.isLeft && !this.channels.has(subscription.channel))
        this.leaving.set(subscription.channel, subscription);
    }
    if (this.leaving.size > 0) this.#schedule();
  }

  /**
   * The slot is here. If it had left, Redis has ended its subscriptions by now. Otherwise the map
   * was out of date, and their ends, which never come, must not make up for others.
   * @param {number} slot
   */
  #expectNoEnd(slot) {
    if (!this.endsDue.delete(slot)) return;
    let due = 0;
    for (const count of this.endsDue.values()) due += count;
    this.ended = Math.max(this.ended, -due);
  }

  /** Subscribes all wanted channels on a new connection. */
  restore() {
    this.#restore(++this.generation);
  }

  /** @param {number} generation */
  async #restore(generation) {
    try {
      const pace = new RestorePace(this.timeoutMs);
      while (generation === this.generation) {
        // More channels may be added while the others are confirmed.
        const missing = [...this.channels.values()]
          .filter((subscription) => !subscription.isConfirmed)
          .sort((a, b) => a.slot - b.slot);
        if (missing.length === 0) break;
        for (let at = 0; at < missing.length && generation === this.generation; ) {
          const chunk = missing.slice(at, at + pace.channels);
          const sentMs = performance.now();
          await this.#confirm(chunk);
          pace.answered(performance.now() - sentMs);
          at += chunk.length;
        }
      }
    } catch (error) {
      if (generation !== this.generation) return;
      if (!(error instanceof ReplyError)) {
        this.connection.destroy('the subscriptions were not confirmed');
        return;
      }
      this.isLive = false;
      for (const subscription of this.channels.values())
        this.#fail(subscription, 'Redis refused the subscription', error);
      this.onRefused(this.connection.describe(error));
      this.#retry(backoffMs(++this.refusals));
      return;
    }
    if (generation !== this.generation) return;
    this.refusals = 0;
    if (this.leaving.size > 0) this.#schedule();
    if (this.isLive) return;
    this.isLive = true;
    this.onLive();
    // The look at the slots may have been earlier.
    this.confirmAgain();
  }

  /** @param {number} delayMs */
  #retry(delayMs) {
    const { generation } = this;
    this.retrying ??= setTimeout(() => {
      this.retrying = null;
      if (generation === this.generation) this.#restore(generation);
    }, delayMs).unref();
  }

  lose() {
    this.generation++;
    this.isLive = false;
    this.ended = 0;
    this.endsDue.clear();
    if (this.retrying !== null) clearTimeout(this.retrying);
    this.retrying = null;
    this.joining.clear();
    this.leaving.clear();
    for (const channel of this.delayedUnsubscribe.forgetRooms()) {
      const subscription = this.channels.get(channel);
      this.channels.delete(channel);
      if (subscription !== undefined) this.#fail(subscription, 'Redis is unavailable');
    }
    for (const subscription of this.channels.values()) {
      subscription.isConfirmed = false;
      this.#fail(subscription, 'Redis is unavailable');
    }
  }
}

/** @param {Subscription[]} subscriptions */
function channelsOf(subscriptions) {
  return subscriptions.map(({ channel }) => channel);
}

/** @param {Subscription[]} chunk @returns {Subscription[][]} those of each slot */
function bySlot(chunk) {
  /** @type {Map<number, Subscription[]>} */
  const slots = new Map();
  for (const subscription of chunk) {
    const those = slots.get(subscription.slot);
    if (those === undefined) slots.set(subscription.slot, [subscription]);
    else those.push(subscription);
  }
  return [...slots.values()];
}
