// partition.js: one partition of the recorded events, as the courier that owns it sees it.
//   take: acquire, load      read -> apply -> commit -> read …      lose: forget everything
//
// A request goes out only after a commit has marked its event as uncertain, and only while the
// lease lasts. So after a crash the next owner knows of every event, and repeats at most those that
// were under way.

import { Changes } from './changes.js';
import { Lease } from './lease.js';
import { endpointOf, PendingEvent, readStored } from './pending-event.js';
import { parseEvent } from './recorded-event.js';
import { untilNext } from './together.js';

const READ_LIMIT = 256;
/** Between two reads. Doubles while the partition is quiet; all quiet ones read together. */
const POLL_MS = { shortest: 50, longest: 1000 };
const RETRY_MS = 500;
/** Between two attempts to acquire a partition that another courier owns. */
const ACQUIRE_MS = 2000;
/**
 * Pending events of an endpoint that is not configured here are removed at this age. Until then, a
 * server with a newer configuration may know the endpoint.
 */
const STRANGER_AGE_MS = 86_400_000;
const NONE_LOST = Object.freeze({ count: 0, upTo: 0, isUnknown: false });
const UNKNOWN = 'webhooks: Redis is new, or has lost its data: endpoints get a gap';

/** @import { EventEndpoint, EventPartition } from './pending-event.js' */
/** @import { EndpointQueue } from './endpoint.js' */
/** @import { Sendable } from './message.js' */
/** @import { QueueHealth } from './queue-health.js' */
/** @import { RareLog } from '../observability/rare-log.js' */

/** @implements {EventPartition} */
export class Partition {
  /** Pending events by key. @type {Map<string, PendingEvent>} */
  #pending = new Map();
  /** Might events be lost even though the partition has no entries? */
  #mayLack = false;
  /** The last applied entry. @type {string|null} */
  #readTo = null;
  #pollMs = POLL_MS.shortest;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #isClosed = false;
  #lease;
  #changes;

  /**
   * @param {object} parts @param {number} parts.index
   * @param {import('./queue.js').EventQueue} parts.queue
   * @param {ReadonlyMap<string, EndpointQueue>} parts.endpoints by name
   * @param {(event: Sendable) => readonly EndpointQueue[]} parts.wantedBy
   * @param {Pick<QueueHealth, 'ok'|'queueFailed'>} parts.health
   * @param {() => boolean} parts.isCertain may a transition cancel its opposite?
   *   (shared-periods.js)
   * @param {() => number} parts.now @param {Pick<RareLog, 'warn'>} parts.log
   */
  constructor({ index, queue, endpoints, wantedBy, health, isCertain, now, log }) {
    this.index = index;
    this.queue = queue;
    this.endpoints = endpoints;
    this.wantedBy = wantedBy;
    this.health = health;
    this.isCertain = isCertain;
    this.now = now;
    this.log = log;
    const onRenewed = () => {
      this.#mayLack = true; // a renewal notices another Redis
    };
    const onEnded = () => this.#forgetAll();
    this.#lease = new Lease({ index, queue, health, now, onRenewed, onEnded, log });
    this.#changes = new Changes({ index, queue, lease: this.#lease, health, now });
  }

  get isOwned() {
    return this.#lease.fence !== null;
  }

  /** Takes the partition as soon as it is free, then applies its entries. */
  start() {
    this.#turn();
  }

  /** Commits what was delivered, then releases the partition. */
  async close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const { fence } = this.#lease;
    if (fence === null) return;
    await this.#changes.writeChanges();
    this.#lease.end();
    await this.queue.release(this.index, fence).catch(() => {});
  }

  /** @param {PendingEvent} pending */
  has(pending) {
    return this.#pending.get(pending.key) === pending;
  }

  /** Stores its changed state. @param {PendingEvent} pending */
  store(pending) {
    if (this.has(pending)) this.#changes.store(pending);
  }

  /** @param {PendingEvent} pending */
  forget(pending) {
    if (!this.has(pending)) return;
    this.#pending.delete(pending.key);
    this.#changes.remove(pending.key);
  }

  /** @param {PendingEvent} pending which the endpoint accepted @returns {void} */
  delivered(pending) {
    if (this.has(pending)) {
      pending.endpoint.remove(pending);
      this.forget(pending);
      return;
    }
    // A later event replaced it while it was under way. What the endpoint knows is certain again.
    const later = this.#pending.get(pending.key);
    if (later === undefined) return;
    // The partition was lost and taken again.
    if (later.isSame(pending)) return this.delivered(later);
    if (!this.isCertain()) return;
    later.knows(pending.event);
    this.store(later);
  }

  /** @type {EventPartition['approve']} */
  async approve(pending) {
    if (pending.isCertain) {
      pending.becomeUncertain();
      this.store(pending);
    }
    const isOurs = await this.#changes.writeChanges();
    return isOurs && this.#lease.isValid && this.has(pending);
  }

  /** @param {EventEndpoint} endpoint @param {number} count */
  announceGap(endpoint, count) {
    const at = Date.now();
    const before = this.#pending.get(JSON.stringify([endpoint.name, 'gap']));
    const said = /** @type {{dropped?: number, since?: number}} */ (before?.event ?? {});
    const dropped = (said.dropped ?? 0) + count;
    const since = said.since ?? at;
    /** @type {Sendable} */
    const event = {
      type: 'webhook.gap',
      endpoint: endpoint.name,
      dropped,
      since,
      seq: dropped,
      epoch: `${this.index}-${since}`,
      at,
    };
    const dueMs = this.now();
    this.#replace(before, new PendingEvent({ partition: this, endpoint, event, dueMs }));
  }

  #turn() {
    if (this.#isClosed) return;
    (this.isOwned ? this.#readEntries() : this.#take()).then(
      (waitMs) => {
        this.health.ok(this.index);
        this.#wait(waitMs);
      },
      (error) => {
        this.health.queueFailed(this.index, error);
        this.#wait(RETRY_MS);
      },
    );
  }

  /** @param {number} ms */
  #wait(ms) {
    if (!this.#isClosed) this.#timer = setTimeout(() => this.#turn(), ms);
  }

  /** @returns {Promise<number>} ms until the next turn */
  async #take() {
    const askedMs = this.now();
    const fence = await this.queue.acquire(this.index);
    if (fence === null) return ACQUIRE_MS;
    const [stored, lost] = await Promise.all([
      this.queue.load(this.index),
      this.queue.lost(this.index),
    ]);
    if (this.#isClosed) {
      await this.queue.release(this.index, fence);
      return ACQUIRE_MS;
    }
    this.#lease.begin(fence, askedMs);
    this.#readTo = null;
    this.#mayLack = false;
    this.#pollMs = POLL_MS.shortest;
    this.#restore(stored);
    // A Redis that lost data may have lost what replaced a stored event, so the gap comes first.
    this.#announce(lost);
    await this.#changes.writeChanges();
    for (const endpoint of this.endpoints.values()) endpoint.pump();
    return 0;
  }

  /** The lease has ended. */
  #forgetAll() {
    const all = [...this.#pending.values()];
    this.#pending.clear();
    this.#changes.dropChanges();
    for (const pending of all) pending.endpoint.remove(pending);
  }

  /** @param {ReadonlyMap<string, string>} stored pending events of earlier owners, by key */
  #restore(stored) {
    /** @type {[PendingEvent, EndpointQueue][]} */
    const restored = [];
    for (const [key, text] of stored) {
      const known = readStored(text);
      const endpoint = this.endpoints.get(endpointOf(key));
      const isTooOld = known !== null && Date.now() - known.event.at > STRANGER_AGE_MS;
      if (known === null || (endpoint === undefined && isTooOld)) this.#changes.remove(key);
      else if (endpoint !== undefined) restored.push([this.#restoreOne(known, endpoint), endpoint]);
    }
    for (const [pending, endpoint] of inOrder(restored)) {
      this.#pending.set(pending.key, pending);
      endpoint.add(pending);
    }
    for (const [pending, endpoint] of restored)
      if (endpoint.health.isGone && pending.kind !== 'gap') endpoint.drop(pending, 'gone');
  }

  /** @param {import('./pending-event.js').Stored} stored @param {EndpointQueue} endpoint */
  #restoreOne(stored, endpoint) {
    const { event, attempts, retryAt } = stored;
    // Clocks differ between servers, so the wait has a bound.
    const waitMs = Math.min(Math.max(retryAt - Date.now(), 0), endpoint.longestPauseMs(attempts));
    const dueMs = this.now() + waitMs;
    const pending = new PendingEvent({ partition: this, endpoint, event, dueMs });
    pending.restore(stored);
    // The opposite may be among the unread entries.
    if (pending.isNew) pending.postpone(this.now() + endpoint.settings.graceMs);
    if (pending.isCertain && !this.isCertain()) {
      pending.becomeUncertain();
      this.#changes.store(pending);
    }
    return pending;
  }

  /** Applies the next entries. @returns {Promise<number>} ms until the next turn */
  async #readEntries() {
    const { fence } = this.#lease;
    const entries = await this.queue.read(this.index, this.#readTo, READ_LIMIT);
    const isAsking = entries.length > 0 || this.#mayLack;
    this.#mayLack = false;
    const lost = isAsking ? await this.queue.lost(this.index) : NONE_LOST;
    if (this.#lease.fence !== fence) return ACQUIRE_MS; // lost meanwhile
    this.#announce(lost);
    for (const { body } of entries) this.#apply(body);
    const last = entries.at(-1);
    if (last !== undefined) {
      this.#readTo = last.id;
      this.#changes.applied(last.id);
    }
    await this.#changes.writeChanges();
    for (const endpoint of this.endpoints.values()) endpoint.pump();
    if (entries.length === READ_LIMIT) return 0;
    this.#pollMs =
      entries.length > 0 ? POLL_MS.shortest : Math.min(2 * this.#pollMs, POLL_MS.longest);
    const { longest } = POLL_MS;
    return this.#pollMs < longest ? this.#pollMs : untilNext(longest, this.now());
  }

  /**
   * The commit that stores the gaps marks them as announced.
   * @param {import('./queue.js').Lost} lost
   */
  #announce({ count, upTo, isUnknown = false }) {
    if (count === 0 && !isUnknown) return;
    if (isUnknown) this.log.warn({}, UNKNOWN);
    for (const endpoint of this.endpoints.values()) endpoint.lost(this, count, 'lost');
    this.#changes.announced(upTo);
  }

  /** @param {string} body */
  #apply(body) {
    const event = parseEvent(body);
    if (event === null) {
      for (const endpoint of this.endpoints.values()) endpoint.lost(this, 1, 'malformed');
      return;
    }
    for (const endpoint of this.wantedBy(event)) {
      if (endpoint.health.isGone) {
        endpoint.lost(this, 1, 'gone');
        continue;
      }
      const dueMs = this.now();
      const pending = new PendingEvent({ partition: this, endpoint, event, dueMs });
      if (waitsForOpposite(pending, endpoint)) pending.postpone(dueMs + endpoint.settings.graceMs);
      const before = this.#pending.get(pending.key);
      if (before?.isNewerThan(event)) continue;
      if (!this.isCertain()) for (const one of [before, pending]) one?.becomeUncertain();
      if (before?.isCertain && before.isOpposite(event)) {
        endpoint.cancel(before);
        this.forget(before);
      } else this.#replace(before, pending);
    }
  }

  /** @param {PendingEvent|undefined} before @param {PendingEvent} pending */
  #replace(before, pending) {
    if (before !== undefined) {
      pending.succeed(before);
      // The new event waits for the answer to its predecessor, not for its room.
      if (before.isUnordered && before.endpoint.isSending(before)) pending.leaveOrder();
      before.endpoint.remove(before);
    }
    this.#pending.set(pending.key, pending);
    this.#changes.store(pending);
    pending.endpoint.add(pending);
  }
}

/**
 * The oldest first, and the events of each sequence by their numbers: the clock may have been set
 * back between them.
 * @param {[PendingEvent, EndpointQueue][]} restored
 */
function inOrder(restored) {
  /** The last first. @type {Map<string, [PendingEvent, EndpointQueue][]>} */
  const sequences = new Map();
  for (const one of restored.toSorted(([a], [b]) => b.event.seq - a.event.seq)) {
    const list = sequences.get(sequenceOf(one));
    if (list === undefined) sequences.set(sequenceOf(one), [one]);
    else list.push(one);
  }
  const byTime = restored.toSorted(([a], [b]) => a.event.at - b.event.at);
  return byTime.map((one) => sequences.get(sequenceOf(one))?.pop() ?? one);
}

/** @param {[PendingEvent, EndpointQueue]} restored @returns {string} */
function sequenceOf([{ queueKey, event }, { name }]) {
  return `${name} ${event.epoch} ${queueKey}`;
}

/** @param {PendingEvent} pending @param {EndpointQueue} endpoint */
function waitsForOpposite({ kind, isLeave }, { form }) {
  return kind !== 'message' && (isLeave || !form.entersAtOnce);
}
