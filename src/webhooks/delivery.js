// delivery.js: the lanes and endpoints of one courier.

import { RareLog } from '../observability/rare-log.js';
import { EndpointQueue } from './endpoint.js';
import { formOf } from './form.js';
import { Holds } from './holds.js';
import { Lane } from './lane.js';
import { MAX_BODY_BYTES } from './message.js';
import { LANES } from './queue.js';

const SIZE_MS = 15_000;
/** Between two attempts to reach the queue at the start. */
const BEGIN_MS = 100;
const CLOSE_MS = 2000;
const CLOSE_POLL_MS = 20;
/** Until the next attempt, if a lane's lease has expired. */
const UNAPPROVED_MS = 500;
/** Shorter failures of the queue are not logged: it takes a moment to connect. */
const QUIET_MS = 2000;

/** @import { Effect } from './effect.js' */
/** @import { Sendable } from './message.js' */

export class Delivery {
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #isClosed = false;

  /**
   * @param {object} parts @param {import('./queue.js').EventQueue} parts.queue
   * @param {readonly import('../config/webhooks.js').Endpoint[]} parts.endpoints
   * @param {Pick<import('./request.js').Requester, 'post'>} parts.requester
   * @param {(endpoint: string, seconds: number) => void} [parts.observe] the time of each attempt
   * @param {() => number} [parts.now] @param {() => number} [parts.random]
   * @param {import('pino').Logger} parts.log
   */
  constructor(parts) {
    const { queue, endpoints, requester, observe = () => {}, random, log } = parts;
    const { now = () => performance.now() } = parts;
    this.queue = queue;
    this.requester = requester;
    this.observe = observe;
    this.now = now;
    this.log = log;
    /** @type {ReadonlyMap<string, EndpointQueue>} */
    this.endpoints = new Map(
      endpoints.map((settings) => {
        const one = new EndpointQueue({
          settings,
          form: formOf(settings),
          send: (effects) => this.#send(one, effects),
          heldUntilMs: () => this.holds.leavesUntilMs,
          now,
          random,
          log,
        });
        return [settings.name, one];
      }),
    );
    this.holds = new Holds({
      queue,
      now,
      onDoubt: () => {
        for (const endpoint of this.endpoints.values()) endpoint.doubt();
      },
    });
    const isSure = () => this.holds.isSure;
    const wantedBy = this.#wantedBy.bind(this);
    const reach = new Reach(now, log);
    this.reach = reach;
    // When Redis fails, all lanes are lost, and `reach.rareLog` logs one line for them.
    const common = { queue, endpoints: this.endpoints, wantedBy, reach, isSure, now };
    this.lanes = Array.from(
      { length: LANES },
      (_, index) => new Lane({ index, ...common, log: reach.rareLog }),
    );
    /** The last reading. @type {import('./queue.js').QueueSize} */
    this.measured = { entries: 0, pending: 0, bytes: 0 };
    this.underWay = 0;
  }

  start() {
    this.#begin();
    this.#timer = setInterval(() => this.#measure(), SIZE_MS);
    this.#timer.unref();
    this.#measure();
    this.holds.start();
  }

  /** Learns of drains before it takes lanes, or it would report clients who are about to return. */
  async #begin() {
    while (!this.#isClosed)
      try {
        await this.holds.ask();
        this.reach.ok(null);
        for (const lane of this.lanes) lane.start();
        return;
      } catch (error) {
        this.reach.failed(null, error);
        await new Promise((resolve) => setTimeout(resolve, BEGIN_MS));
      }
  }

  /** Waits up to CLOSE_MS for answers. The lanes' next owner repeats requests without an answer. */
  async close() {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.holds.close();
    for (const endpoint of this.endpoints.values()) endpoint.close();
    const endMs = this.now() + CLOSE_MS;
    while (this.underWay > 0 && this.now() < endMs)
      await new Promise((resolve) => setTimeout(resolve, CLOSE_POLL_MS));
    await Promise.all(this.lanes.map((lane) => lane.close()));
  }

  /** Called when a worker begins to drain. @param {number} ms until its clients are back */
  hold(ms) {
    this.holds.holdLeaves(ms);
  }

  get size() {
    return { ...this.measured, failures: this.reach.failures };
  }

  /** @param {Sendable} event @returns {readonly EndpointQueue[]} */
  #wantedBy(event) {
    return [...this.endpoints.values()].filter(({ form }) => form.wants(event));
  }

  /** @param {EndpointQueue} endpoint @param {Effect[]} effects */
  async #send(endpoint, effects) {
    this.underWay++;
    let sent = await this.#approved(effects);
    for (const effect of effects)
      if (!sent.includes(effect)) effect.postpone(this.now() + UNAPPROVED_MS);
    let message = this.#messageOf(endpoint, sent);
    // What does not fit goes into the next request.
    while (message === null && sent.length > 1) {
      sent = sent.slice(0, Math.ceil(sent.length / 2));
      message = this.#messageOf(endpoint, sent);
    }
    /** @type {import('./request.js').Result|null} */
    let result = null;
    if (message !== null) {
      const beganMs = this.now();
      result = await this.requester.post(endpoint.settings, message);
      this.observe(endpoint.name, (this.now() - beganMs) / 1000);
    } else if (sent.length === 1) endpoint.drop(sent[0], 'malformed');
    this.underWay--;
    endpoint.finish(effects, sent, result);
  }

  /** Returns the effects that may be sent now. @param {Effect[]} effects */
  async #approved(effects) {
    const hasGap = effects.some(({ kind }) => kind === 'gap');
    if (hasGap)
      try {
        await this.holds.doubt();
        this.reach.ok(null);
      } catch (error) {
        this.reach.failed(null, error);
        return [];
      }
    const areApproved = await Promise.all(effects.map((effect) => effect.lane.approve(effect)));
    return effects.filter((_, i) => areApproved[i]);
  }

  /**
   * @param {EndpointQueue} endpoint @param {readonly Effect[]} effects
   * @returns {import('./message.js').Message|null} null: no effects, or too many for a body
   */
  #messageOf({ form }, effects) {
    if (effects.length === 0) return null;
    const message = form.messageOf(effects.map(({ event }) => event));
    return Buffer.byteLength(message.body) > MAX_BODY_BYTES ? null : message;
  }

  #measure() {
    this.queue.size().then(
      (size) => {
        this.measured = size;
        this.reach.ok(null);
      },
      () => {}, // the lanes log that the queue is unreachable
    );
  }
}

/** Counts failed calls of the queue. If they go on failing, logs it once a minute. */
class Reach {
  /** When each lane began to fail; null: calls for all lanes. @type {Map<number|null, number>} */
  #failing = new Map();
  #isLogged = false;

  /** @param {() => number} now @param {import('pino').Logger} log */
  constructor(now, log) {
    this.now = now;
    this.log = log;
    this.rareLog = new RareLog(log, now);
    this.failures = 0;
  }

  /** @param {number|null} lane */
  ok(lane) {
    this.#failing.delete(lane);
    if (this.#failing.size > 0 || !this.#isLogged) return;
    this.log.info('webhooks: the queue is available again');
    this.#isLogged = false;
  }

  /** @param {number|null} lane @param {unknown} error */
  failed(lane, error) {
    this.failures++;
    const sinceMs = this.#failing.get(lane) ?? this.now();
    this.#failing.set(lane, sinceMs);
    if (this.now() - sinceMs < QUIET_MS) return;
    this.#isLogged = true;
    const why = error instanceof Error ? error.message : String(error);
    this.rareLog.warn({ lane, why }, 'webhooks: the queue is unavailable, events wait');
  }
}
