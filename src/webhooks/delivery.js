// delivery.js: the partitions and endpoints of one courier.

import { EndpointQueue } from './endpoint.js';
import { formOf } from './form.js';
import { MAX_BODY_BYTES } from './message.js';
import { Partition } from './partition.js';
import { PARTITIONS } from './queue.js';
import { QueueHealth } from './queue-health.js';
import { SharedPeriods } from './shared-periods.js';

const SIZE_MS = 15_000;
/** Between two attempts to reach the queue at the start. */
const BEGIN_MS = 100;
const CLOSE_MS = 2000;
const CLOSE_POLL_MS = 20;
/** Until the next attempt, if a partition's lease has expired. */
const UNAPPROVED_MS = 500;

/** @import { PendingEvent } from './pending-event.js' */
/** @import { Sendable } from './message.js' */

export class WebhookDelivery {
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
          send: (all) => this.#send(one, all),
          leavesPausedUntilMs: () => this.periods.leavesPausedUntilMs,
          now,
          random,
          log,
        });
        return [settings.name, one];
      }),
    );
    this.periods = new SharedPeriods({
      queue,
      now,
      onUncertain: () => {
        for (const endpoint of this.endpoints.values()) endpoint.becomeUncertain();
      },
    });
    const isCertain = () => this.periods.isCertain;
    const wantedBy = this.#wantedBy.bind(this);
    const health = new QueueHealth(now, log);
    this.health = health;
    // When Redis fails, all partitions are lost, and `health.rareLog` logs one line for them.
    const common = { queue, endpoints: this.endpoints, wantedBy, health, isCertain, now };
    this.partitions = Array.from(
      { length: PARTITIONS },
      (_, index) => new Partition({ index, ...common, log: health.rareLog }),
    );
    /** The last reading. @type {import('./queue.js').QueueSize} */
    this.measured = { entries: 0, pending: 0, bytes: 0 };
    this.underWay = 0;
  }

  start() {
    this.#beginDelivery();
    this.#timer = setInterval(() => this.#measure(), SIZE_MS);
    this.#timer.unref();
    this.#measure();
    this.periods.start();
  }

  /** Learns of drains first, or it would report clients who are about to return. */
  async #beginDelivery() {
    while (!this.#isClosed)
      try {
        await this.periods.ask();
        this.health.ok(null);
        for (const partition of this.partitions) partition.start();
        return;
      } catch (error) {
        this.health.queueFailed(null, error);
        await new Promise((resolve) => setTimeout(resolve, BEGIN_MS));
      }
  }

  /** Waits up to CLOSE_MS for answers. The next owner repeats requests without an answer. */
  async close() {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.periods.close();
    for (const endpoint of this.endpoints.values()) endpoint.close();
    const endMs = this.now() + CLOSE_MS;
    while (this.underWay > 0 && this.now() < endMs)
      await new Promise((resolve) => setTimeout(resolve, CLOSE_POLL_MS));
    await Promise.all(this.partitions.map((partition) => partition.close()));
  }

  get size() {
    return { ...this.measured, failures: this.health.failures };
  }

  /** @param {Sendable} event @returns {readonly EndpointQueue[]} */
  #wantedBy(event) {
    return [...this.endpoints.values()].filter(({ form }) => form.wants(event));
  }

  /** @param {EndpointQueue} endpoint @param {PendingEvent[]} all */
  async #send(endpoint, all) {
    this.underWay++;
    let sent = await this.#approved(all);
    for (const pending of all)
      if (!sent.includes(pending)) pending.postpone(this.now() + UNAPPROVED_MS);
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
    endpoint.finishAttempt(all, sent, result);
  }

  /** Returns those that may be sent now. @param {PendingEvent[]} all */
  async #approved(all) {
    const hasGap = all.some(({ kind }) => kind === 'gap');
    if (hasGap)
      try {
        await this.periods.makeUncertain();
        this.health.ok(null);
      } catch (error) {
        this.health.queueFailed(null, error);
        return [];
      }
    const areApproved = await Promise.all(all.map((one) => one.partition.approve(one)));
    return all.filter((_, i) => areApproved[i]);
  }

  /**
   * @param {EndpointQueue} endpoint @param {readonly PendingEvent[]} all
   * @returns {import('./message.js').Message|null} null: no events, or too many for a body
   */
  #messageOf({ form }, all) {
    if (all.length === 0) return null;
    const message = form.messageOf(all.map(({ event }) => event));
    return Buffer.byteLength(message.body) > MAX_BODY_BYTES ? null : message;
  }

  #measure() {
    this.queue.size().then(
      (size) => {
        this.measured = size;
        this.health.ok(null);
      },
      () => {}, // the partitions log that the queue is unreachable
    );
  }
}
