// figures.js: the figures of a run: accepted messages, the length of interruptions, and the time of
// recoveries.

import { Latency } from '../harness/latency.js';
import { count } from '../harness/run.js';

/** @typedef {import('./indexed-run.js').Member} Member */
/** @typedef {import('./indexed-run.js').Sight} Sight */
/** @typedef {import('./indexed-run.js').IndexedRun} Run */

/** Between two of thousands of events nothing is amiss in a pause as short as this. */
const GAP_US = 250_000;

/** Times at which something worked, and how long it did not. */
class Service {
  constructor() {
    this.lastAt = Number.NaN;
    this.longestUs = 0;
    this.totalUs = 0;
  }

  /** @param {number} t */
  worked(t) {
    const pause = t - this.lastAt;
    this.lastAt = t;
    if (!(pause > GAP_US)) return;
    this.totalUs += pause;
    this.longestUs = Math.max(this.longestUs, pause);
  }

  toString() {
    return `${ms(this.longestUs)} at the longest, ${ms(this.totalUs)} in all`;
  }
}

export class Figures {
  constructor() {
    this.firstAt = Number.NaN;
    this.lastAt = Number.NaN;
    /** @type {Record<string, number>} events by type */
    this.counts = {};
    /** @type {Map<string, number>} refusals by reason */
    this.reasons = new Map();
    /** @type {Map<number, number>} */
    this.closes = new Map();
    this.recovered = 0;
    this.notRecovered = 0;
    this.publishing = new Service();
    this.delivering = new Service();
    /** Of each publisher. @type {Map<string, Service>} */
    this.publishers = new Map();
    /**
     * From a close until the client has every missed message, or a notice that they are lost; per
     * client and room.
     */
    this.returns = new Latency();
    /** From the end of a fault until a client gets a message sent after it; per client. */
    this.afterFaults = new Latency();
    /** From a publisher's sending to a client's receiving. */
    this.latency = new Latency();
    /** @type {Map<Member, number>} when each absent or recovering member left */
    this.away = new Map();
    this.lastStopAt = Number.NaN;
    /** @type {Map<number, number>} by client: the end of a fault it has seen the world after */
    this.seenStop = new Map();
    this.plainExpected = 0;
    this.plainReached = 0;
  }

  /** @param {import('./record.js').Event} event */
  event(event) {
    const { t, type } = event;
    if (Number.isNaN(this.firstAt)) this.firstAt = t;
    this.lastAt = t;
    this.counts[type] = (this.counts[type] ?? 0) + 1;
    if (type === 'stop') this.lastStopAt = t;
    else if (type === 'close') this.closes.set(event.code, (this.closes.get(event.code) ?? 0) + 1);
    else if (type === 'fail' || type === 'info') {
      const reason = `${type} ${event.reason}`;
      this.reasons.set(reason, (this.reasons.get(reason) ?? 0) + 1);
    }
  }

  /** @param {string} publisher @param {number} t */
  accepted(publisher, t) {
    this.publishing.worked(t);
    let service = this.publishers.get(publisher);
    if (service === undefined) this.publishers.set(publisher, (service = new Service()));
    service.worked(t);
  }

  /** @param {Sight} sight the run has taken it in */
  delivered({ t, publication, member }) {
    this.delivering.worked(t);
    if (publication === undefined) return;
    this.latency.add((t - publication.invokedAt) / 1000);
    const { client } = member;
    if (publication.invokedAt > this.lastStopAt && this.seenStop.get(client) !== this.lastStopAt) {
      this.seenStop.set(client, this.lastStopAt);
      this.afterFaults.add((t - this.lastStopAt) / 1000);
    }
    if (this.away.size > 0) this.#caughtUp(member, t);
  }

  /** @param {Member} member @param {number} t */
  closed(member, t) {
    // If it is closed again during its recovery, its absence began with the first close.
    if (!this.away.has(member)) this.away.set(member, t);
  }

  /**
   * @param {Member} member the run has taken the reply in
   * @param {boolean} isRecovered
   * @param {number} t
   */
  replied(member, isRecovered, t) {
    if (member.since !== undefined) {
      if (isRecovered) this.recovered++;
      else this.notRecovered++;
    }
    this.#caughtUp(member, t);
  }

  /** The losses of plain rooms; called once, at the end. @param {Run} run */
  finish(run) {
    for (const { outcome, members, reached } of run.publications.values()) {
      if (outcome !== 'ok' || members === 0) continue;
      this.plainExpected += members;
      this.plainReached += Math.min(members, reached);
    }
  }

  /** Names and figures as text. @returns {[string, string][]} */
  rows() {
    const of = (/** @type {string} */ type) => this.counts[type] ?? 0;
    const lost = this.plainExpected - this.plainReached;
    const worst =
      [...this.publishers.values()].sort((a, b) => b.longestUs - a.longestUs)[0] ?? new Service();
    return [
      ['seconds', ((this.lastAt - this.firstAt) / 1e6 || 0).toFixed(1)],
      [
        'published',
        `${count(of('invoke'))}: ok ${count(of('ok'))}, fail ${count(of('fail'))}, info ${count(of('info'))}`,
      ],
      ['not accepted', list(this.reasons)],
      ['deliveries', `${count(of('deliver'))}, and ${count(of('repeat'))} repeated on the wire`],
      ['closes', list(this.closes)],
      [
        'recovered',
        `${count(this.recovered)} true, ${count(this.notRecovered)} false; ${count(of('resync'))} resync`,
      ],
      ['no publish accepted', `${this.publishing}; of one publisher ${ms(worst.longestUs)}`],
      ['no delivery', `${this.delivering}`],
      ['close to caught up', percentiles(this.returns)],
      ['fault over to delivery', percentiles(this.afterFaults)],
      ['sent to received', percentiles(this.latency)],
      [
        'plain rooms lost',
        `${count(lost)} of ${count(this.plainExpected)}${share(lost, this.plainExpected)}`,
      ],
    ];
  }

  /** @param {Member} member @param {number} t */
  #caughtUp(member, t) {
    const since = this.away.get(member);
    if (since === undefined || !member.isOpen || member.isReplaying) return;
    this.away.delete(member);
    this.returns.add((t - since) / 1000);
  }
}

/** @param {Latency} latency */
function percentiles(latency) {
  if (latency.count === 0) return 'none';
  const [p50, p99] = [50, 99].map(
    (percent) => `p${percent} ${(latency.percentile(percent) ?? 0).toFixed(1)} ms`,
  );
  return `${p50}, ${p99}, max ${latency.maxMs.toFixed(1)} ms (${count(latency.count)})`;
}

/** @param {Map<string|number, number>} counts */
function list(counts) {
  return [...counts].map(([name, n]) => `${name} ${count(n)}`).join(', ') || 'none';
}

/** @param {number} us */
function ms(us) {
  return `${count(us / 1000)} ms`;
}

/** @param {number} part @param {number} whole */
function share(part, whole) {
  return whole === 0 ? '' : ` (${((100 * part) / whole).toFixed(3)} %)`;
}
