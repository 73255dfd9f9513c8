// endpoint.js: what waits for one endpoint, and when the next request goes out.
//   add --> queue of its room --due--> ready --next--> in flight --finish--> removed, or due again
//
// A room's states are sent one after the other, and so are its messages. Rooms do not wait for each
// other. An answer that asks for a pause, or an unreachable endpoint, pauses the whole queue. Any
// other failure delays the room. After STEPS_ASIDE failures the event steps aside, so that an event
// that can never be delivered does not stop its room. An event that makes the receiver crash steps
// aside, too, although the endpoint then looks unavailable. After CIRCUIT_FAILURES failures in a
// row, one request goes out every PROBE_MS. If the endpoint's form allows it, a request carries the
// events of several rooms.

import { fieldOf } from './effect.js';

const STEPS_ASIDE = 3;
const CIRCUIT_FAILURES = 20;
const PROBE_MS = 30_000;
/** While the endpoint is unavailable, pauses double from here to PROBE_MS. */
const FIRST_PAUSE_MS = 1000;
/** Even if an answer asks for less. */
const LEAST_PAUSE_MS = 800;
const JITTER = 0.2;
/** Waiting states of one endpoint, about 50 MB. */
const MAX_STATES = 100_000;
/** Expired events dropped in one turn. */
const MAX_EXPIRED = 1000;
/** Events in one request. */
const MAX_BATCH = 100;

/** @import { Form } from './message.js' */
/** @import { Effect, EffectEndpoint } from './effect.js' */
/** @import { Outcome } from './request.js' */

/** @typedef {'overflow'|'expired'|'lost'|'gone'|'malformed'} DropReason */
/** @typedef {'ok'|'retrying'|'paused'|'failing'|'gone'} State `retrying`: the last request failed */

/** Effects that are sent in order. */
class Order {
  /** @param {string} key @param {boolean} areLeavesApart nothing waits for a leave's grace */
  constructor(key, areLeavesApart) {
    this.key = key;
    /** @type {Map<string, Effect>} */
    this.effects = new Map();
    /** Leaves that may still be in their grace period. */
    this.leaves = areLeavesApart ? /** @type {Map<string, Effect>} */ (new Map()) : this.effects;
    /** @type {Set<Effect>} */
    this.inFlight = new Set();
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** @param {Effect} effect */
  queueOf(effect) {
    return effect.isLeave ? this.leaves : this.effects;
  }
}

/** @implements {EffectEndpoint} */
export class EndpointQueue {
  /** @type {Map<string, Order>} */
  #orders = new Map();
  /** Orders whose first effect is due, longest due first. @type {Set<Order>} */
  #ready = new Set();
  /** By field, in the order of arrival: a lane that is taken over brings older events. */
  #states = /** @type {Map<string, Effect>} */ (new Map());
  #messages = /** @type {Map<string, Effect>} */ (new Map());
  /** Sent before all others. */
  #gaps = /** @type {Map<string, Effect>} */ (new Map());
  #inFlight = 0;
  #isPumping = false;
  #isClosed = false;
  /** @type {NodeJS.Timeout|undefined} */
  #resume;
  /** When the events collected for a request go out; null: none are. @type {number|null} */
  #batchMs = null;
  /** @type {NodeJS.Timeout|undefined} */
  #batchTimer;

  /**
   * @param {object} parts @param {import('../config/webhooks.js').Endpoint} parts.settings
   * @param {Form} parts.form
   * @param {(effects: Effect[]) => void} parts.send starts an attempt, which `finish` ends
   * @param {() => number} parts.heldUntilMs until then, clients of a draining worker may return
   * @param {() => number} parts.now ascending, in ms
   * @param {() => number} [parts.random] @param {import('pino').Logger} parts.log
   */
  constructor({ settings, form, send, heldUntilMs, now, random = Math.random, log }) {
    this.settings = settings;
    this.name = settings.name;
    this.form = form;
    this.send = send;
    this.heldUntilMs = heldUntilMs;
    this.now = now;
    this.random = random;
    this.log = log;
    this.pausedUntilMs = Number.NEGATIVE_INFINITY;
    /** In a row. */
    this.failures = 0;
    /** Failures that paused the endpoint, since the last success. */
    this.pauses = 0;
    /** Answered 410: nothing is sent until the configuration changes. */
    this.isGone = false;
    this.lastError = '';
    /** Unix times in ms; 0: never. */
    this.lastErrorAt = 0;
    this.lastDeliveryAt = 0;
    /** @type {Record<Outcome, number>} */
    this.attempts = { delivered: 0, failed: 0, unavailable: 0, refused: 0, gone: 0 };
    /** @type {Record<DropReason, number>} */
    this.dropped = { overflow: 0, expired: 0, lost: 0, gone: 0, malformed: 0 };
    /** Edges that their opposites cancelled. */
    this.cancelled = 0;
  }

  get pending() {
    return this.#states.size + this.#messages.size + this.#gaps.size;
  }

  /** @returns {State} */
  get state() {
    if (this.isGone) return 'gone';
    if (this.failures >= CIRCUIT_FAILURES) return 'failing';
    if (this.pausedUntilMs > this.now()) return 'paused';
    return this.failures > 0 ? 'retrying' : 'ok';
  }

  /** @param {number} unixMs @returns {number} age of the oldest waiting event, in seconds */
  oldestSeconds(unixMs) {
    let at = unixMs;
    for (const map of [this.#states, this.#messages])
      for (const { event } of map.values()) at = Math.min(at, event.at);
    return (unixMs - at) / 1000;
  }

  /** @param {Effect} effect of a field that does not wait yet */
  add(effect) {
    const all = this.#allOf(effect);
    all.set(effect.field, effect);
    this.#enqueue(effect);
    const bound = effect.kind === 'message' ? this.settings.maxPending : MAX_STATES;
    if (all.size <= bound) return;
    for (const oldest of all.values()) {
      if (this.isSending(oldest)) continue;
      this.drop(oldest, 'overflow');
      return;
    }
  }

  /** Marks waiting states as uncertain: the endpoint reads the state again, and may see them. */
  doubt() {
    for (const effect of this.#states.values()) {
      if (!effect.certain) continue;
      effect.doubt();
      effect.lane.store(effect);
    }
  }

  /** Is its answer awaited? @param {Effect} effect */
  isSending(effect) {
    return this.#orders.get(effect.order)?.inFlight.has(effect) ?? false;
  }

  /** @param {Effect} effect delivered, cancelled, replaced or dropped */
  remove(effect) {
    const all = this.#allOf(effect);
    if (all.get(effect.field) === effect) all.delete(effect.field);
    const order = this.#orders.get(effect.order);
    const queue = order?.queueOf(effect);
    if (order === undefined || queue?.get(effect.field) !== effect) return;
    queue.delete(effect.field);
    this.#schedule(order);
  }

  /** @param {Effect} effect whose opposite came before it was sent */
  cancel(effect) {
    this.cancelled++;
    this.remove(effect);
  }

  /** Gives an event up, and announces the gap. @param {Effect} effect @param {DropReason} reason */
  drop(effect, reason) {
    this.remove(effect);
    effect.lane.forget(effect);
    this.lost(effect.lane, 1, reason, effect.kind === 'gap');
  }

  /**
   * @param {import('./effect.js').EffectLane} lane @param {number} count of events
   * @param {DropReason} reason @param {boolean} [isQuiet] without a gap event
   */
  lost(lane, count, reason, isQuiet = false) {
    this.dropped[reason] += count;
    if (!isQuiet && this.form.tellsGaps) lane.announceGap(this, count);
  }

  /**
   * Ends an attempt.
   * @param {Effect[]} effects that `send` got
   * @param {Effect[]} sent the part of them that the request carried
   * @param {import('./request.js').Result|null} result null: no request was made
   */
  finish(effects, sent, result) {
    const orders = effects.map((effect) => this.#orders.get(effect.order));
    this.#inFlight--;
    effects.forEach((effect, i) => {
      orders[i]?.inFlight.delete(effect);
    });
    if (result !== null) this.#judge(sent, result);
    for (const order of new Set(orders)) if (order !== undefined) this.#schedule(order);
    this.pump();
  }

  pump() {
    // A send that ends at once calls `pump` again.
    if (this.#isPumping) return;
    this.#isPumping = true;
    let expired = 0;
    for (let order = this.#next(); order !== undefined; order = this.#next()) {
      const effect = /** @type {Effect} */ (this.#firstOf(order));
      if (this.#dueMs(effect) > this.now()) {
        this.#schedule(order); // a hold began since it was due
        continue;
      }
      if (this.#hasExpired(effect)) {
        if (expired++ === MAX_EXPIRED) {
          setImmediate(() => this.pump());
          break;
        }
        this.drop(effect, 'expired');
        continue;
      }
      this.#inFlight++;
      this.send(this.#take(order));
    }
    if (this.#ready.size === 0) this.#batchMs = null;
    this.#isPumping = false;
  }

  /**
   * Takes the effects of the next request: one, or all that are due. An effect that stepped aside
   * goes alone, because it may be why its batch failed.
   * @param {Order} first
   */
  #take(first) {
    const isAside = (/** @type {Order} */ order) => this.#firstOf(order)?.isAside ?? false;
    const isAlone = this.form.batchMs === 0 || isAside(first);
    const taken = [];
    for (const order of isAlone ? [first] : this.#ready) {
      if (!isAlone && isAside(order)) continue;
      this.#ready.delete(order);
      for (const effect of isAlone ? [this.#firstOf(order)] : this.#dueOf(order)) {
        if (effect === undefined) break;
        order.inFlight.add(effect);
        if (taken.push(effect) === MAX_BATCH) return taken;
      }
    }
    return taken;
  }

  /** @param {Order} order @returns {Effect|undefined} */
  #firstOf({ effects, leaves }) {
    const effect = effects.values().next().value;
    if (leaves === effects) return effect;
    const leave = leaves.values().next().value;
    if (effect === undefined || leave === undefined) return effect ?? leave;
    return this.#dueMs(leave) < this.#dueMs(effect) ? leave : effect;
  }

  /** @param {Order} order @returns {Iterable<Effect>} what one request may carry */
  *#dueOf({ effects, leaves }) {
    for (const queue of new Set([effects, leaves]))
      for (const effect of queue.values()) {
        if (!this.#isDue(effect)) break;
        yield effect;
      }
  }

  /** @param {Effect} effect */
  #isDue(effect) {
    return this.#dueMs(effect) <= this.now() && !this.#hasExpired(effect);
  }

  /** Starts no more attempts. Those under way still end with `finish`. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#resume);
    clearTimeout(this.#batchTimer);
    for (const { timer } of this.#orders.values()) clearTimeout(timer);
    this.#orders.clear();
    this.#ready.clear();
  }

  /** @param {Effect} effect */
  #allOf({ kind }) {
    return kind === 'message' ? this.#messages : kind === 'gap' ? this.#gaps : this.#states;
  }

  #next() {
    if (this.isGone || this.#isClosed || this.now() < this.pausedUntilMs) return undefined;
    const isTrial = this.pauses > 0 || this.failures >= CIRCUIT_FAILURES;
    if (this.#inFlight >= (isTrial ? 1 : this.settings.concurrency)) return undefined;
    for (const gap of this.#gaps.values()) {
      if (gap.isAside) continue;
      const order = this.#orders.get(gap.order);
      return order !== undefined && this.#ready.has(order) ? order : undefined;
    }
    if (this.#isCollecting()) return undefined;
    if (isTrial) for (const order of this.#ready) if (!this.#firstOf(order)?.isAside) return order;
    return this.#ready.values().next().value;
  }

  /** Is a request waiting for more events? */
  #isCollecting() {
    const { batchMs } = this.form;
    if (batchMs === 0 || this.#ready.size === 0) return false;
    if (this.#batchMs === null) {
      this.#batchMs = this.now() + batchMs;
      this.#batchTimer = setTimeout(() => this.pump(), batchMs);
    }
    return this.now() < this.#batchMs;
  }

  /** @param {Effect} effect */
  #hasExpired({ event, kind }) {
    return kind !== 'gap' && Date.now() - event.at > this.settings.maxAgeS * 1000;
  }

  /** @param {Effect[]} effects @param {import('./request.js').Result} result */
  #judge(effects, { outcome, error, retryAfterMs, isSuspect = false }) {
    this.attempts[outcome]++;
    if (outcome === 'delivered') {
      this.failures = 0;
      this.pauses = 0;
      this.lastDeliveryAt = Date.now();
      for (const effect of effects) effect.lane.delivered(effect);
      return;
    }
    this.lastError = error;
    this.lastErrorAt = Date.now();
    if (outcome === 'gone') return this.#end();
    this.failures++;
    const isOfEvent = isSuspect && effects.every((effect) => this.#isGuilty(effect));
    if (outcome === 'failed' || isOfEvent) for (const effect of effects) this.#delay(effect);
    else {
      this.pauses++;
      const ownMs = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(this.pauses - 1, 10), PROBE_MS);
      this.#pause(Math.max(retryAfterMs ?? this.#jittered(ownMs), LEAST_PAUSE_MS));
      if (isSuspect) for (const effect of effects) this.#suspect(effect);
    }
    if (this.failures === CIRCUIT_FAILURES)
      this.log.error(
        { endpoint: this.name, why: error },
        `webhooks: ${CIRCUIT_FAILURES} failures in a row, trying once in ${PROBE_MS / 1000} s`,
      );
    if (this.failures >= CIRCUIT_FAILURES) this.#pause(this.#jittered(PROBE_MS));
  }

  /** Delays an event that failed by itself. @param {Effect} effect */
  #delay(effect) {
    const { lane } = effect;
    if (!lane.has(effect)) return; // a later event replaced it
    const { scheduleMs } = this.form;
    const index = Math.min(effect.attempts, scheduleMs.length - 1);
    effect.fail(this.now() + this.#jittered(scheduleMs[index]));
    if (effect.attempts >= STEPS_ASIDE) this.#setAside(effect);
    lane.store(effect);
  }

  /**
   * Is the event at fault, not the endpoint? Other events were delivered between its attempts, or
   * it failed by itself before.
   * @param {Effect} effect
   */
  #isGuilty({ attempts, deliveredBefore }) {
    const { delivered } = this.attempts;
    return attempts > 0 || delivered > (deliveredBefore ?? delivered);
  }

  /** Notes an attempt without an answer. Soon others are tried first. @param {Effect} effect */
  #suspect(effect) {
    effect.suspect(this.attempts.delivered);
    const { lane, suspicions } = effect;
    if (suspicions < STEPS_ASIDE || !lane.has(effect)) return;
    this.#setAside(effect);
    lane.store(effect);
  }

  /** Lets the events of its room pass. @param {Effect} effect */
  #setAside(effect) {
    if (effect.isAside) return;
    const order = this.#orders.get(effect.order);
    order?.queueOf(effect).delete(effect.field);
    effect.stepAside();
    this.#enqueue(effect);
  }

  /** Drops all events. If a reload brings the endpoint back, gap events say what it missed. */
  #end() {
    if (this.isGone) return; // several requests may get the answer
    this.isGone = true;
    this.log.error(
      { endpoint: this.name },
      'webhooks: the endpoint answered 410 Gone: nothing is sent to it until the configuration is reloaded',
    );
    for (const map of [this.#states, this.#messages])
      for (const effect of [...map.values()]) this.drop(effect, 'gone');
  }

  /** @param {number} ms */
  #pause(ms) {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.now() + ms);
    clearTimeout(this.#resume);
    this.#resume = setTimeout(() => this.pump(), this.pausedUntilMs - this.now());
  }

  /** @param {Effect} effect */
  #enqueue(effect) {
    const key = effect.order;
    let order = this.#orders.get(key);
    if (order === undefined)
      this.#orders.set(key, (order = new Order(key, this.form.entersAtOnce)));
    const queue = order.queueOf(effect);
    queue.set(effect.field, effect);
    if (this.form.entersAtOnce) putInOrder(queue, effect);
    if (queue.size === 1) this.#schedule(order);
  }

  /** Waits until the first effect is due. @param {Order} order */
  #schedule(order) {
    clearTimeout(order.timer);
    if (order.inFlight.size > 0) return;
    const first = this.#firstOf(order);
    if (first === undefined) {
      this.#ready.delete(order);
      this.#orders.delete(order.key);
      return;
    }
    const waitMs = this.#dueMs(first) - this.now();
    if (waitMs <= 0) this.#ready.add(order);
    else {
      this.#ready.delete(order);
      order.timer = setTimeout(() => {
        this.#ready.add(order);
        this.pump();
      }, waitMs);
    }
  }

  /** @param {Effect} effect */
  #dueMs({ dueMs, mayReturn, event }) {
    if (!mayReturn) return dueMs;
    // Drains in a row must not hold an event until it expires.
    const latestMs = this.now() + event.at + this.settings.maxAgeS * 500 - Date.now();
    return Math.max(dueMs, Math.min(this.heldUntilMs(), latestMs));
  }

  /** @param {number} attempts that failed; 0: no pause */
  longestPauseMs(attempts) {
    const { scheduleMs } = this.form;
    return (1 + JITTER) * (scheduleMs[Math.min(attempts, scheduleMs.length) - 1] ?? 0);
  }

  /** @param {number} ms */
  #jittered(ms) {
    return ms * (1 - JITTER + 2 * JITTER * this.random());
  }
}

/**
 * A room is occupied before its members join, and vacated after they leave. Different calls record
 * presence and occupancy, so after a worker died either may come first.
 * @param {Map<string, Effect>} queue @param {Effect} effect the last in the queue
 */
function putInOrder(queue, { kind, isLeave, event, endpoint }) {
  if (queue.size === 1 || kind !== (isLeave ? 'member' : 'room')) return;
  const ofRoom = fieldOf(endpoint.name, { ...event, type: 'room.occupied', user: undefined });
  const room = queue.get(ofRoom);
  if (room === undefined) return;
  const later = isLeave ? [] : [...queue].filter(([field]) => field !== ofRoom);
  queue.delete(ofRoom);
  for (const [field] of later) queue.delete(field);
  queue.set(ofRoom, room);
  for (const [field, one] of later) queue.set(field, one);
}
