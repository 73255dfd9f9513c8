// endpoint.js: what waits for one endpoint, and when the next request goes out.
//
// A failure delays the event, and so its room, unless it pauses the endpoint (endpoint-health.js).
// After ORDERED_FAILURES failures the event leaves its order, so that an event that can never be
// delivered does not stop its room. An event that makes the receiver crash leaves it, too, although
// the endpoint then looks unavailable. If the endpoint's form allows it, a request carries the
// events of several rooms.

import { EndpointHealth, longestJittered } from './endpoint-health.js';
import { RoomQueues } from './room-queues.js';
import { WaitingEvents } from './waiting-events.js';

const ORDERED_FAILURES = 3;
/** Expired events dropped in one turn. */
const MAX_EXPIRED = 1000;

/** @import { Form } from './message.js' */
/** @import { EventEndpoint, EventPartition, PendingEvent } from './pending-event.js' */
/** @import { Result } from './request.js' */

/** @typedef {'overflow'|'expired'|'lost'|'gone'|'malformed'} DropReason */

/** @implements {EventEndpoint} */
export class EndpointQueue {
  #rooms;
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
   * @param {(pending: PendingEvent[]) => void} parts.send starts an attempt; `finishAttempt` ends it
   * @param {() => number} parts.leavesPausedUntilMs as in RoomQueues
   * @param {() => number} parts.now ascending, in ms
   * @param {() => number} [parts.random] @param {import('pino').Logger} parts.log
   */
  constructor({ settings, form, send, leavesPausedUntilMs, now, random = Math.random, log }) {
    const { name, maxAgeS, maxPending } = settings;
    this.settings = settings;
    this.name = name;
    this.form = form;
    this.send = send;
    this.now = now;
    this.health = new EndpointHealth({ name, now, random, log });
    this.waiting = new WaitingEvents(maxPending);
    const onReady = () => this.pump();
    this.#rooms = new RoomQueues({ form, maxAgeS, leavesPausedUntilMs, now, onReady });
    /** @type {Record<DropReason, number>} */
    this.dropped = { overflow: 0, expired: 0, lost: 0, gone: 0, malformed: 0 };
    /** Transitions that their opposites cancelled. */
    this.cancelled = 0;
  }

  /** @param {PendingEvent} pending with a key that does not wait yet */
  add(pending) {
    this.waiting.add(pending);
    this.#rooms.add(pending);
    for (const oldest of this.waiting.overflowOf(pending)) {
      if (this.isSending(oldest)) continue;
      this.drop(oldest, 'overflow');
      return;
    }
  }

  /** The endpoint reads the state again, and may see waiting states. */
  becomeUncertain() {
    for (const pending of this.waiting.states.values()) {
      if (!pending.isCertain) continue;
      pending.becomeUncertain();
      pending.partition.store(pending);
    }
  }

  /** Is its answer awaited? @param {PendingEvent} pending */
  isSending(pending) {
    return this.#rooms.isSending(pending);
  }

  /** @param {PendingEvent} pending delivered, cancelled, replaced or dropped */
  remove(pending) {
    this.waiting.delete(pending);
    this.#rooms.remove(pending);
  }

  /** @param {PendingEvent} pending whose opposite came before it was sent */
  cancel(pending) {
    this.cancelled++;
    this.remove(pending);
  }

  /**
   * Drops an event, and announces the gap.
   * @param {PendingEvent} pending @param {DropReason} reason
   */
  drop(pending, reason) {
    this.remove(pending);
    pending.partition.forget(pending);
    this.lost(pending.partition, 1, reason, pending.kind === 'gap');
  }

  /**
   * @param {EventPartition} partition @param {number} count of events
   * @param {DropReason} reason @param {boolean} [isQuiet] without a gap event
   */
  lost(partition, count, reason, isQuiet = false) {
    this.dropped[reason] += count;
    if (!isQuiet && this.form.tellsGaps) partition.announceGap(this, count);
  }

  /**
   * Ends an attempt.
   * @param {PendingEvent[]} all that `send` got
   * @param {PendingEvent[]} sent the part of them that the request carried
   * @param {Result|null} result null: no request was made
   */
  finishAttempt(all, sent, result) {
    this.#inFlight--;
    this.#rooms.finishEvents(all, () => {
      if (result !== null) this.#judge(sent, result);
    });
    this.pump();
  }

  pump() {
    // A send that ends at once calls `pump` again.
    if (this.#isPumping) return;
    this.#isPumping = true;
    const rooms = this.#rooms;
    let expired = 0;
    for (let queue = this.#next(); queue !== undefined; queue = this.#next()) {
      if (!rooms.isStillDue(queue)) continue;
      const first = /** @type {PendingEvent} */ (rooms.firstOf(queue));
      if (rooms.hasExpired(first)) {
        if (expired++ === MAX_EXPIRED) {
          setImmediate(() => this.pump());
          break;
        }
        this.drop(first, 'expired');
        continue;
      }
      this.#inFlight++;
      this.send(rooms.takeDue(queue));
    }
    if (!rooms.hasReady) this.#batchMs = null;
    this.#isPumping = false;
  }

  /** Starts no more attempts. Those under way still end with `finishAttempt`. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#resume);
    clearTimeout(this.#batchTimer);
    this.#rooms.close();
  }

  /** The queue whose first event is sent next. */
  #next() {
    const { health } = this;
    if (this.#isClosed || !health.isOpen) return undefined;
    const { isTrial } = health;
    if (this.#inFlight >= (isTrial ? 1 : this.settings.concurrency)) return undefined;
    for (const gap of this.waiting.gaps.values())
      if (!gap.isUnordered) return this.#rooms.readyOf(gap);
    return this.#isCollecting() ? undefined : this.#rooms.nextReady(isTrial);
  }

  /** Is a request waiting for more events? */
  #isCollecting() {
    const { batchMs } = this.form;
    if (batchMs === 0 || !this.#rooms.hasReady) return false;
    if (this.#batchMs === null) {
      this.#batchMs = this.now() + batchMs;
      this.#batchTimer = setTimeout(() => this.pump(), batchMs);
    }
    return this.now() < this.#batchMs;
  }

  /** @param {PendingEvent[]} sent @param {Result} result */
  #judge(sent, result) {
    const { outcome, isSuspect = false } = result;
    const isOfEvent =
      outcome === 'failed' || (isSuspect && sent.every((pending) => this.#isGuilty(pending)));
    this.health.recordResult(result, isOfEvent);
    if (outcome === 'delivered') for (const pending of sent) pending.partition.delivered(pending);
    // If a reload brings the endpoint back, gap events say what it missed.
    else if (outcome === 'gone')
      for (const pending of this.waiting.listEvents()) this.drop(pending, 'gone');
    else if (isOfEvent) for (const pending of sent) this.#delay(pending);
    else if (isSuspect) for (const pending of sent) this.#suspect(pending);
    const pauseMs = this.health.pausedUntilMs - this.now();
    if (pauseMs <= 0) return;
    clearTimeout(this.#resume);
    this.#resume = setTimeout(() => this.pump(), pauseMs);
  }

  /** Delays an event that failed by itself. @param {PendingEvent} pending */
  #delay(pending) {
    const { partition } = pending;
    if (!partition.has(pending)) return; // a later event replaced it
    const { scheduleMs } = this.form;
    const index = Math.min(pending.attempts, scheduleMs.length - 1);
    pending.fail(this.now() + this.health.jittered(scheduleMs[index]));
    if (pending.attempts >= ORDERED_FAILURES) this.#unorder(pending);
    partition.store(pending);
  }

  /**
   * Is the event at fault, not the endpoint? Other events were delivered between its attempts, or
   * it failed by itself before.
   * @param {PendingEvent} pending
   */
  #isGuilty({ attempts, deliveredBefore }) {
    const { delivered } = this.health.attempts;
    return attempts > 0 || delivered > (deliveredBefore ?? delivered);
  }

  /**
   * Notes an attempt without an answer. Soon others are tried first.
   * @param {PendingEvent} pending
   */
  #suspect(pending) {
    pending.suspect(this.health.attempts.delivered);
    const { partition, suspicions } = pending;
    if (suspicions < ORDERED_FAILURES || !partition.has(pending)) return;
    this.#unorder(pending);
    partition.store(pending);
  }

  /** @param {PendingEvent} pending */
  #unorder(pending) {
    if (!pending.isUnordered) this.#rooms.moveApart(pending);
  }

  /** @param {number} attempts that failed; 0: no pause */
  longestPauseMs(attempts) {
    const { scheduleMs } = this.form;
    return longestJittered(scheduleMs[Math.min(attempts, scheduleMs.length) - 1] ?? 0);
  }
}
