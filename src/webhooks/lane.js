// lane.js: one lane, as the courier that owns it sees it.
//   take: acquire, load         read -> fold -> commit -> read …         lose: forget everything
//
// Changes are collected and written by one commit at a time, so folded entries leave the lane in
// the same step that stores their effects. A request goes out only after a commit has marked its
// effect as uncertain, and only while the lease lasts. So after a crash the next owner knows of
// every event, and repeats at most those that were under way.

import { Effect, endpointOf } from './effect.js';
import { LEASE_MS } from './queue.js';

const READ_LIMIT = 256;
/** Between two reads of a lane. Doubles while the lane is quiet. */
const POLL_MS = { shortest: 50, longest: 1000 };
const RENEW_MS = LEASE_MS / 4;
const RETRY_MS = 500;
/** Between two attempts to acquire a lane that another courier owns. */
const ACQUIRE_MS = 2000;
/** Effects of an endpoint that is not configured here are removed at this age. */
const STRANGER_AGE_MS = 86_400_000;
const MESSAGE = '{"type":"message.published",';
const PAYLOAD = ',"payload":';
const NONE_LOST = Object.freeze({ count: 0, upTo: 0, isUnknown: false });
const UNKNOWN = 'webhooks: Redis is new, or has lost its data: endpoints get a gap';
const TAKEN = 'another courier has taken it over, or Redis lost its data';

/** @import { EffectEndpoint, EffectLane } from './effect.js' */
/** @import { EndpointQueue } from './endpoint.js' */
/** @import { Sendable } from './message.js' */
/** @import { RareLog } from '../observability/rare-log.js' */

/** @implements {EffectLane} */
export class Lane {
  /** @type {Map<string, Effect>} */
  #pending = new Map();
  /** For the next commit; null: to be removed. @type {Map<string, Effect|null>} */
  #changes = new Map();
  /** For the next commit. @type {string|null} */
  #upTo = null;
  /** For the next commit. @type {number|null} */
  #announced = null;
  /** Might events be lost even though the lane has no entries? */
  #mayLack = false;
  /** The last folded entry. @type {string|null} */
  #readTo = null;
  /** @type {Promise<boolean>|null} */
  #committing = null;
  /** @type {number|null} */
  #fence = null;
  #leaseEndMs = Number.NEGATIVE_INFINITY;
  #pollMs = POLL_MS.shortest;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  /** @type {NodeJS.Timeout|undefined} */
  #renewal;
  #isClosed = false;

  /**
   * @param {object} parts @param {number} parts.index
   * @param {import('./queue.js').EventQueue} parts.queue
   * @param {ReadonlyMap<string, EndpointQueue>} parts.endpoints by name
   * @param {(event: Sendable) => readonly EndpointQueue[]} parts.wantedBy
   * @param {{ok: (lane: number) => void, failed: (lane: number, error: unknown) => void}} parts.reach
   *   called with the result of each queue call
   * @param {() => boolean} parts.isSure may an edge cancel its opposite? (holds.js)
   * @param {() => number} parts.now @param {Pick<RareLog, 'warn'>} parts.log
   */
  constructor({ index, queue, endpoints, wantedBy, reach, isSure, now, log }) {
    this.index = index;
    this.queue = queue;
    this.endpoints = endpoints;
    this.wantedBy = wantedBy;
    this.reach = reach;
    this.isSure = isSure;
    this.now = now;
    this.log = log;
  }

  get isOwned() {
    return this.#fence !== null;
  }

  /** Takes the lane as soon as it is free, then folds its entries. */
  start() {
    this.#turn();
  }

  /** Commits what was delivered, then releases the lane. */
  async close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#renewal);
    const fence = this.#fence;
    if (fence === null) return;
    await this.settle();
    this.#lose('');
    await this.queue.release(this.index, fence).catch(() => {});
  }

  /** @param {Effect} effect */
  has(effect) {
    return this.#pending.get(effect.field) === effect;
  }

  /** Stores its changed state. @param {Effect} effect */
  store(effect) {
    if (this.has(effect)) this.#changes.set(effect.field, effect);
  }

  /** @param {Effect} effect */
  forget(effect) {
    if (!this.has(effect)) return;
    this.#pending.delete(effect.field);
    this.#changes.set(effect.field, null);
  }

  /** @param {Effect} effect which the endpoint accepted @returns {void} */
  delivered(effect) {
    if (this.has(effect)) {
      effect.endpoint.remove(effect);
      this.forget(effect);
      return;
    }
    // It was replaced while it was under way. What the endpoint knows is now certain again.
    const later = this.#pending.get(effect.field);
    if (later === undefined) return;
    if (later.isSame(effect)) return this.delivered(later); // the lane was lost and taken again
    if (!this.isSure()) return;
    later.knows(effect.event);
    this.store(later);
  }

  /** @type {EffectLane['approve']} */
  async approve(effect) {
    if (effect.certain) {
      effect.doubt();
      this.store(effect);
    }
    const isOurs = await this.settle();
    return isOurs && this.now() < this.#leaseEndMs && this.has(effect);
  }

  /** @param {EffectEndpoint} endpoint @param {number} count */
  announceGap(endpoint, count) {
    const at = Date.now();
    const field = JSON.stringify([endpoint.name, 'gap']);
    const before = this.#pending.get(field);
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
    this.#replace(before, new Effect({ lane: this, endpoint, event, dueMs: this.now() }));
  }

  /** Writes all changes. @returns {Promise<boolean>} false if the lane has another owner */
  async settle() {
    // The commit under way may lack the caller's change.
    while (this.#committing !== null) await this.#committing;
    if (this.#fence === null) return false;
    if (this.#changes.size === 0 && this.#upTo === null && this.#announced === null) return true;
    this.#committing = this.#commit(this.#fence).finally(() => {
      this.#committing = null;
    });
    return this.#committing;
  }

  /** @param {number} fence */
  async #commit(fence) {
    const changes = this.#changes;
    const upTo = this.#upTo;
    const announced = this.#announced;
    this.#changes = new Map();
    this.#upTo = null;
    this.#announced = null;
    const set = new Map();
    const remove = [];
    for (const [field, effect] of changes)
      if (effect === null) remove.push(field);
      else set.set(field, effect.toText(effect.dueMs - this.now()));
    while (this.#fence === fence) {
      try {
        const change = { set, remove, upTo, announced };
        const isOurs = await this.queue.commit(this.index, fence, change);
        this.reach.ok(this.index);
        if (!isOurs) this.#lose(TAKEN);
        return isOurs;
      } catch (error) {
        // Redis may have done it. Repeating a commit is harmless.
        this.reach.failed(this.index, error);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    return false;
  }

  #turn() {
    if (this.#isClosed) return;
    (this.#fence === null ? this.#take() : this.#read()).then(
      (waitMs) => {
        this.reach.ok(this.index);
        this.#wait(waitMs);
      },
      (error) => {
        this.reach.failed(this.index, error);
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
    const beganMs = this.now();
    const fence = await this.queue.acquire(this.index);
    if (fence === null) return ACQUIRE_MS;
    const stored = await this.queue.load(this.index);
    if (this.#isClosed) {
      await this.queue.release(this.index, fence);
      return ACQUIRE_MS;
    }
    this.#fence = fence;
    this.#leaseEndMs = beganMs + LEASE_MS;
    this.#readTo = null;
    this.#mayLack = true;
    this.#pollMs = POLL_MS.shortest;
    this.#renewal = setInterval(() => this.#renew(fence), RENEW_MS);
    this.#restore(stored);
    return 0;
  }

  /** @param {number} fence */
  async #renew(fence) {
    const beganMs = this.now();
    try {
      const isOurs = await this.queue.renew(this.index, fence);
      if (this.#fence !== fence) return;
      if (isOurs) {
        this.#leaseEndMs = beganMs + LEASE_MS;
        this.#mayLack = true; // a renewal notices another Redis
      } else this.#lose(TAKEN);
    } catch (error) {
      this.reach.failed(this.index, error);
    }
  }

  /** @param {string} why '' if the lane is released */
  #lose(why) {
    if (this.#fence === null) return;
    if (why !== '') this.log.warn({ lane: this.index, why }, 'webhooks: lost a lane');
    this.#fence = null;
    this.#leaseEndMs = Number.NEGATIVE_INFINITY;
    clearInterval(this.#renewal);
    const effects = [...this.#pending.values()];
    this.#pending.clear();
    this.#changes.clear();
    this.#upTo = null;
    this.#announced = null;
    for (const effect of effects) effect.endpoint.remove(effect);
  }

  /** @param {ReadonlyMap<string, string>} stored pending effects of earlier owners */
  #restore(stored) {
    const effects = [];
    for (const [field, text] of stored) {
      const endpoint = this.endpoints.get(endpointOf(field));
      const effect = parseEffect(text, (event, waitMs, attempts) => {
        if (endpoint === undefined) return null;
        const pauseMs = Math.min(waitMs, endpoint.longestPauseMs(attempts));
        return new Effect({ lane: this, endpoint, event, dueMs: this.now() + pauseMs });
      });
      if (effect === undefined) this.#changes.set(field, null);
      else if (effect !== null) {
        // Its opposite may be among the unread entries.
        const { graceMs } = /** @type {EndpointQueue} */ (endpoint).settings;
        if (effect.isNew) effect.postpone(this.now() + graceMs);
        if (effect.certain && !this.isSure()) {
          effect.doubt();
          this.#changes.set(field, effect);
        }
        effects.push(effect);
      }
    }
    effects.sort((a, b) => a.event.at - b.event.at || a.event.seq - b.event.seq);
    for (const effect of effects) {
      this.#pending.set(effect.field, effect);
      effect.endpoint.add(effect);
    }
    for (const effect of effects) {
      const endpoint = /** @type {EndpointQueue} */ (this.endpoints.get(effect.endpoint.name));
      if (endpoint.isGone && effect.kind !== 'gap') endpoint.drop(effect, 'gone');
    }
    for (const endpoint of new Set(effects.map((effect) => effect.endpoint))) endpoint.pump();
  }

  /** Folds the next entries. @returns {Promise<number>} ms until the next turn */
  async #read() {
    const fence = this.#fence;
    const entries = await this.queue.read(this.index, this.#readTo, READ_LIMIT);
    const isAsking = entries.length > 0 || this.#mayLack;
    this.#mayLack = false;
    const lost = isAsking ? await this.queue.lost(this.index) : NONE_LOST;
    if (this.#fence !== fence) return ACQUIRE_MS; // lost meanwhile
    if (lost.count > 0 || lost.isUnknown) this.#announce(lost);
    for (const { body } of entries) this.#fold(body);
    const last = entries.at(-1);
    if (last !== undefined) {
      this.#readTo = last.id;
      this.#upTo = last.id;
    }
    await this.settle();
    for (const endpoint of this.endpoints.values()) endpoint.pump();
    if (entries.length === READ_LIMIT) return 0;
    this.#pollMs =
      entries.length > 0 ? POLL_MS.shortest : Math.min(2 * this.#pollMs, POLL_MS.longest);
    return this.#pollMs;
  }

  /** The commit that stores the gaps marks them as announced. @param {import('./queue.js').Lost} lost */
  #announce({ count, upTo, isUnknown = false }) {
    if (isUnknown) this.log.warn({}, UNKNOWN);
    for (const endpoint of this.endpoints.values()) endpoint.lost(this, count, 'lost');
    this.#announced = upTo;
  }

  /** @param {string} body */
  #fold(body) {
    const event = parseEvent(body);
    if (event === null) {
      for (const endpoint of this.endpoints.values()) endpoint.lost(this, 1, 'malformed');
      return;
    }
    for (const endpoint of this.wantedBy(event)) {
      if (endpoint.isGone) {
        endpoint.lost(this, 1, 'gone');
        continue;
      }
      const effect = new Effect({ lane: this, endpoint, event, dueMs: this.now() });
      if (waitsForOpposite(effect, endpoint))
        effect.postpone(effect.dueMs + endpoint.settings.graceMs);
      const before = this.#pending.get(effect.field);
      if (before?.isNewerThan(event)) continue;
      if (!this.isSure()) for (const one of [before, effect]) one?.doubt();
      if (before?.certain && before.isOpposite(event)) {
        endpoint.cancel(before);
        this.forget(before);
      } else this.#replace(before, effect);
    }
  }

  /** @param {Effect|undefined} before @param {Effect} effect */
  #replace(before, effect) {
    if (before !== undefined) {
      effect.succeed(before);
      // It waits for the answer to its predecessor, not for its room.
      if (before.isAside && before.endpoint.isSending(before)) effect.stepAside();
      before.endpoint.remove(before);
    }
    this.#pending.set(effect.field, effect);
    this.#changes.set(effect.field, effect);
    effect.endpoint.add(effect);
  }
}

/** @param {Effect} effect @param {EndpointQueue} endpoint */
function waitsForOpposite({ kind, isLeave }, { form }) {
  return kind !== 'message' && (isLeave || !form.entersAtOnce);
}

/** @param {string} body @returns {import('./queue.js').WebhookEvent|null} */
function parseEvent(body) {
  try {
    const event = JSON.parse(withText(body));
    return isEvent(event) ? event : null;
  } catch {
    return null;
  }
}

/**
 * In a JSON text, a quote within a string is escaped, so the first `,"payload":` and the last
 * `,"seq":` are the event's own, as in record.lua.
 * @param {string} body @returns {string} with `text` instead of a message's payload
 */
function withText(body) {
  const at = body.startsWith(MESSAGE) ? body.indexOf(PAYLOAD) : -1;
  if (at === -1) return body;
  const end = body.lastIndexOf(',"seq":');
  const text = JSON.stringify(body.slice(at + PAYLOAD.length, end));
  return `${body.slice(0, at)},"text":${text}${body.slice(end)}`;
}

/** @param {any} event */
function isEvent(event) {
  return (
    typeof event?.type === 'string' &&
    Number.isFinite(event.seq) &&
    Number.isFinite(event.at) &&
    typeof event.epoch === 'string'
  );
}

/**
 * @param {string} text
 * @param {(event: Sendable, waitMs: number, attempts: number) => Effect|null} create null: this
 *   server does not know the endpoint. Clocks differ between servers, so `waitMs` needs a bound
 * @returns {Effect|null|undefined} null: keep it for a day, because a server with a newer
 *   configuration may know the endpoint. Undefined: remove it
 */
function parseEffect(text, create) {
  let stored;
  try {
    stored = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { event, certain, attempts = 0, isAside = false, retryAt = 0 } = stored ?? {};
  if (!isEvent(event)) return undefined;
  const effect = create(event, Math.max(retryAt - Date.now(), 0), attempts);
  if (effect === null) return Date.now() - event.at > STRANGER_AGE_MS ? undefined : null;
  return effect.restore({ certain: certain === true, attempts, isAside });
}
