// client.js: one client process of the swarm, with its part of the connections. The parent asks it
// for one step after another.
//
//   parent --{id, step, ...}--> this          --{id, answer, tick}--> parent
//                                             --{tick}--------------> parent   unasked, every TICK_MS
//
// A tick has the counts since the tick before. Every answer has one, too, so that the figures of a
// phase are complete with its last answer. Message payloads carry a mark, by
// which a reply is recognised and timed: swarm:e12:345:1234567.890:17:xxx is an echo of step 12, of
// connection 345, due at that time, the process's 17th message. All processes of a machine share
// the clock, so that a broadcast is timed wherever it arrives.

import { Latency } from '../../test/harness/latency.js';
import { pause } from '../../test/harness/run.js';
import { closeAll, WsClient } from '../../test/harness/ws-client.js';
import { failureKey } from './failures.js';
import { Ways } from './ports.js';

const TICK_MS = 500;
const MARK = 'swarm:';
/** Longest sleep of an endurance sender: messages that come due meanwhile are late by that. */
const NAP_MS = 2;
/** How often it looks, with everything sent, whether the phase has been cut short. */
const LOOK_MS = 50;
/** Errors of a source port that some other socket has. */
const PORT_TAKEN = new Set(['EADDRINUSE', 'EADDRNOTAVAIL']);
const CLOSE_BATCH = 1000;
const CLOSE_MS = 3000;

/**
 * @typedef {object} Tick since the last one, but for `open`
 * @property {number} open connections now
 * @property {number} opened
 * @property {number} sent messages
 * @property {number} replies
 * @property {number} deliveries of broadcasts
 * @property {[string, number][]} failures
 * @property {import('../../test/harness/latency.js').Drained} latency of handshakes while connecting, else of
 *   round trips
 * @property {number} cpuSeconds
 * @property {number} residentBytes now
 */

/**
 * @typedef {object} Setup
 * @property {{url: string, address: string}[]} targets
 * @property {string[]} sources empty: the kernel chooses
 * @property {number[]} ports to use with them, of this process alone; empty: the kernel chooses
 * @property {import('./profiles.js').Profile} profile
 * @property {number} payloadBytes
 * @property {number} replyTimeoutMs
 */

class Member extends WsClient {
  /** Over all processes. */
  index = -1;
  /** Its place in ClientProcess.members; -1: not there. */
  at = -1;
  /** @type {import('./ports.js').Way|null} */
  way = null;
  /** Messages whose reply is still to come. */
  waiting = 0;
}

class ClientProcess {
  /** @param {Setup} setup */
  constructor({ targets, sources, ports, profile, payloadBytes, replyTimeoutMs }) {
    const places = targets.map(({ url, address }) => ({ url: new URL(url), address }));
    this.ways = new Ways(places, sources, ports);
    this.profile = profile;
    this.payloadBytes = payloadBytes;
    this.replyTimeoutMs = replyTimeoutMs;
    /** Those open. @type {Member[]} */
    this.members = [];
    this.stopped = false;
    /** Whose turn it is to send. */
    this.cursor = 0;
    this.step = 0;
    this.sequence = 0;
    /** Messages of this step whose reply is still to come. */
    this.pending = 0;
    this.lastReplyMs = 0;
    /** Called when nothing is pending any more. @type {(() => void)|null} */
    this.settled = null;
    /**
     * Broadcasts of this process that wait for their end, oldest first.
     * @type {Map<number, {member: Member, settle: (ms: number|null) => void}>}
     */
    this.trips = new Map();
    /** Deliveries of this step. */
    this.stepDeliveries = 0;
    this.latency = new Latency();
    this.deliveryLatency = new Latency();
    this.tally = { opened: 0, sent: 0, replies: 0, deliveries: 0 };
    /** @type {Map<string, number>} */
    this.failures = new Map();
    this.cpu = process.cpuUsage();
    this.residentBytes = 0;
  }

  /** @returns {Tick} */
  tick() {
    const { user, system } = process.cpuUsage(this.cpu);
    this.cpu = process.cpuUsage();
    const tick = {
      open: this.members.length,
      ...this.tally,
      failures: [...this.failures],
      latency: this.latency.drain(),
      cpuSeconds: (user + system) / 1e6,
      residentBytes: this.#residentBytes(),
    };
    this.tally = { opened: 0, sent: 0, replies: 0, deliveries: 0 };
    this.failures.clear();
    return tick;
  }

  /** The figure of the last call, if no descriptor is left to read it with. */
  #residentBytes() {
    try {
      this.residentBytes = process.memoryUsage.rss();
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EMFILE') throw error;
    }
    return this.residentBytes;
  }

  /**
   * Opens a batch at once.
   * @param {{first: number, count: number, timeoutMs: number}} ask `first`: index of the first of
   *   them over all processes
   */
  async open({ first, count, timeoutMs }) {
    await Promise.all(Array.from({ length: count }, (_, i) => this.#openOne(first + i, timeoutMs)));
    return {};
  }

  /** @param {number} index @param {number} timeoutMs */
  async #openOne(index, timeoutMs) {
    for (;;) {
      const { way, port } = this.ways.take();
      const { target, source } = way;
      const member = new Member(target.url, {
        address: target.address,
        localAddress: source,
        localPort: port,
        onText: this.memberOnText,
        onClose: this.memberOnClose,
      });
      member.index = index;
      member.way = way;
      const startedMs = clockMs();
      try {
        await member.open(timeoutMs);
      } catch (error) {
        const key = failureKey(error);
        // Another program has this port; it is not tried again, and the next one is.
        if (PORT_TAKEN.has(key) && this.ways.hasMore) continue;
        if (!PORT_TAKEN.has(key)) this.ways.release(way, port);
        this.#fail(key, 1);
        return;
      }
      this.latency.add(clockMs() - startedMs);
      this.tally.opened++;
      member.at = this.members.push(member) - 1;
      if (this.profile.opening) member.send(this.profile.opening.send);
      return;
    }
  }

  /**
   * Sends a batch at once, to one connection after another, and waits for the replies.
   * @param {{messages: number}} ask
   */
  async burst({ messages }) {
    this.#begin();
    for (let n = 0; n < messages && this.members.length > 0; n++)
      this.#sendEcho(this.#next(), clockMs());
    return { missing: await this.#replies() };
  }

  /**
   * An open loop: a message is due at its time, however long the ones before took, and timed from
   * then.
   * @param {{rate: number, durationMs: number}} ask messages a second
   */
  async endure({ rate, durationMs }) {
    this.#begin();
    const messages = this.members.length === 0 ? 0 : Math.round((rate * durationMs) / 1000);
    const mostPending = Math.max(1, (rate * this.replyTimeoutMs) / 1000);
    const startedMs = clockMs();
    const endMs = startedMs + durationMs;
    // Without a connection the process can send nothing. The lost connections are the failures, not
    // the messages that were due.
    const isOver = () => this.stopped || this.members.length === 0;
    let behindMs = 0;
    for (let n = 0; n < messages && !isOver(); ) {
      const nowMs = clockMs();
      const dueMs = startedMs + (n * 1000) / rate;
      if (dueMs > nowMs) {
        await pause(Math.min(NAP_MS, dueMs - nowMs));
        continue;
      }
      n++;
      behindMs = Math.max(behindMs, nowMs - dueMs);
      if (this.pending >= mostPending) this.#fail('not sent', 1);
      else this.#sendEcho(this.#next(), dueMs);
    }
    while (!isOver() && clockMs() < endMs) await pause(Math.min(LOOK_MS, endMs - clockMs()));
    const missing = await this.#replies();
    // Cut short, it lasted until now.
    return {
      missing,
      behindMs,
      seconds: (Math.max(this.lastReplyMs, Math.min(endMs, clockMs())) - startedMs) / 1000,
    };
  }

  /** Before a step of broadcasts, of all processes. @param {{step: number}} ask */
  async arm({ step }) {
    this.step = step;
    this.stepDeliveries = 0;
    this.deliveryLatency.drain();
    return {};
  }

  /**
   * Lanes of broadcasts, each by a random connection, the next as soon as the one before is back at
   * its sender.
   * @param {{lanes: number[], timeoutMs: number}} ask broadcasts of each lane
   * @returns {Promise<{trips: number[], refused: number}>} milliseconds, Infinity if it did not
   *   come back; `refused`: those answered with an error, or whose sender lost its connection: that
   *   failure is counted
   */
  async broadcast({ lanes, timeoutMs }) {
    /** @type {number[]} */
    const trips = [];
    let refused = 0;
    await Promise.all(
      lanes.map(async (samples) => {
        for (let n = 0; n < samples && !this.stopped && this.members.length > 0; n++) {
          const ms = await this.#roundTrip(timeoutMs);
          if (ms === null) refused++;
          else trips.push(ms);
        }
      }),
    );
    return { trips, refused };
  }

  /** The deliveries of this step's broadcasts. */
  async delivered() {
    const { buckets, maxMs } = this.deliveryLatency;
    return { deliveries: this.stepDeliveries, buckets: [...buckets], maxMs };
  }

  /** Hangs up all but some. @param {{keep: number}} ask */
  async close({ keep }) {
    while (this.members.length > keep) {
      const leaving = this.members.splice(Math.max(keep, this.members.length - CLOSE_BATCH));
      for (const member of leaving) member.at = -1;
      await closeAll(leaving, CLOSE_MS);
    }
    return {};
  }

  #begin() {
    this.step++;
    this.lastReplyMs = 0;
  }

  #next() {
    return this.members[this.cursor++ % this.members.length];
  }

  /** @param {Member} member @param {number} dueMs */
  #sendEcho(member, dueMs) {
    const { before, after } = /** @type {NonNullable<typeof this.profile.echo>} */ (
      this.profile.echo
    );
    member.waiting++;
    this.pending++;
    this.tally.sent++;
    member.send(before + this.#payload('e', member, dueMs) + after);
  }

  /**
   * @param {number} timeoutMs
   * @returns {Promise<number|null>} milliseconds; null: refused, or the sender is gone
   */
  #roundTrip(timeoutMs) {
    const { before, after } = /** @type {NonNullable<typeof this.profile.broadcast>} */ (
      this.profile.broadcast
    );
    const member = this.members[Math.floor(Math.random() * this.members.length)];
    const sentMs = clockMs();
    return new Promise((resolve) => {
      const payload = this.#payload('b', member, sentMs);
      const key = this.sequence;
      /** @param {number|null} ms */
      const settle = (ms) => {
        clearTimeout(timer);
        this.trips.delete(key);
        resolve(ms);
      };
      const timer = setTimeout(() => {
        this.#fail('no reply', 1);
        settle(Number.POSITIVE_INFINITY);
      }, timeoutMs);
      this.trips.set(key, { member, settle });
      this.tally.sent++;
      member.send(before + payload + after);
    });
  }

  /** A JSON string. @param {'e'|'b'} kind @param {Member} member @param {number} ms */
  #payload(kind, member, ms) {
    const mark = `"${MARK}${kind}${this.step}:${member.index}:${ms.toFixed(3)}:${++this.sequence}:`;
    return `${mark.padEnd(this.payloadBytes - 1, 'x')}"`;
  }

  /** @returns {Promise<number>} replies that did not come */
  async #replies() {
    if (this.pending > 0 && !this.stopped) {
      /** @type {NodeJS.Timeout|undefined} */
      let timer;
      await new Promise((resolve) => {
        timer = setTimeout(resolve, this.replyTimeoutMs);
        this.settled = () => resolve(null);
      });
      clearTimeout(timer);
      this.settled = null;
    }
    const missing = this.stopped ? 0 : this.pending;
    if (missing > 0) this.#fail('no reply', missing);
    // Later replies belong to no step.
    this.pending = 0;
    if (missing > 0) for (const member of this.members) member.waiting = 0;
    this.step++;
    return missing;
  }

  stop() {
    this.stopped = true;
    this.settled?.();
    for (const { settle } of [...this.trips.values()]) settle(Number.POSITIVE_INFINITY);
  }

  /** @param {string} key @param {number} count */
  #fail(key, count) {
    this.failures.set(key, (this.failures.get(key) ?? 0) + count);
  }

  /** @param {string} text @param {WsClient} client */
  memberOnText = (text, client) => {
    const member = /** @type {Member} */ (client);
    const at = text.indexOf(MARK);
    if (at < 0) {
      const { opening } = this.profile;
      if (opening) {
        if (text === opening.ping) member.send(opening.pong);
        return;
      }
      const error = /"type":"error".*"error":"(\w+)"/.exec(text)?.[1];
      // The close that follows it is counted.
      if (text.includes('"SERVER_SHUTDOWN"')) return;
      this.#fail(error ? `error ${error}` : 'not understood', 1);
      if (error) this.#refused(member);
      return;
    }
    const [step, index, sentMs, sequence] = text
      .slice(at + MARK.length, at + MARK.length + 64)
      .split(':', 4);
    if (text.charCodeAt(at + MARK.length) === BROADCAST) {
      this.#broadcastArrived(
        text,
        Number(step.slice(1)),
        Number(index) === member.index,
        Number(sentMs),
        Number(sequence),
      );
    } else if (Number(step.slice(1)) === this.step) {
      this.#echoArrived(member, Number(index) === member.index, Number(sentMs));
    }
    // else its time was over, and it is counted as missing.
  };

  /**
   * The error was the reply of one message, which is not missing as well.
   * @param {Member} member
   */
  #refused(member) {
    if (member.waiting > 0) {
      member.waiting--;
      if (--this.pending === 0) this.settled?.();
      return;
    }
    for (const trip of this.trips.values()) if (trip.member === member) return trip.settle(null);
  }

  /** @param {Member} member @param {boolean} isOwn @param {number} dueMs */
  #echoArrived(member, isOwn, dueMs) {
    if (!isOwn || member.waiting === 0) {
      this.#fail('not understood', 1);
      return;
    }
    member.waiting--;
    this.tally.replies++;
    this.lastReplyMs = clockMs();
    this.latency.add(this.lastReplyMs - dueMs);
    if (--this.pending === 0) this.settled?.();
  }

  /**
   * @param {string} text
   * @param {number} step
   * @param {boolean} isOwn
   * @param {number} sentMs
   * @param {number} sequence
   */
  #broadcastArrived(text, step, isOwn, sentMs, sequence) {
    const result = this.profile.broadcast?.result ?? null;
    const ms = clockMs() - sentMs;
    const isResult = result !== null && text.includes(result);
    if (!isResult) {
      this.tally.deliveries++;
      if (step === this.step) {
        this.stepDeliveries++;
        this.deliveryLatency.add(ms);
      }
    }
    if (!isOwn || (result !== null && !isResult)) return;
    const trip = this.trips.get(sequence);
    if (trip === undefined) return; // its time was over
    this.tally.replies++;
    this.latency.add(ms);
    trip.settle(ms);
  }

  /** @param {WsClient} client */
  memberOnClose = (client) => {
    const member = /** @type {Member} */ (client);
    if (member.way !== null) this.ways.release(member.way, member.localPort);
    if (member.at < 0) return; // we hung up
    this.#fail(`closed ${member.closeCode}`, 1);
    const last = /** @type {Member} */ (this.members.pop());
    if (last !== member) {
      last.at = member.at;
      this.members[last.at] = last;
    }
    member.at = -1;
    // Its replies will not come; the connection is the one failure.
    this.pending -= member.waiting;
    member.waiting = 0;
    if (this.pending === 0) this.settled?.();
    for (const trip of [...this.trips.values()]) if (trip.member === member) trip.settle(null);
  };
}

const BROADCAST = 'b'.charCodeAt(0);
/**
 * From performance.now(), which begins with each process, to the machine's monotonic clock, in
 * milliseconds.
 */
const CLOCK_OFFSET_MS = Number(process.hrtime.bigint() / 1000n) / 1000 - performance.now();

function clockMs() {
  return performance.now() + CLOCK_OFFSET_MS;
}

if (process.send) {
  const send = process.send.bind(process);
  /** @type {ClientProcess} */
  let client;
  process.on(
    'message',
    async (/** @type {{id: number, step: string, ask: any}} */ { id, step, ask }) => {
      switch (step) {
        case 'setup':
          client = new ClientProcess(ask);
          setInterval(() => send({ tick: client.tick() }), TICK_MS).unref();
          send({ id, answer: {}, tick: client.tick() });
          break;
        case 'stop':
          client.stop();
          break;
        default: {
          /** @type {Record<string, (ask: any) => Promise<object>>} */
          const steps = /** @type {any} */ (client);
          const answer = await steps[step](ask);
          send({ id, answer, tick: client.tick() });
        }
      }
    },
  );
  // Ctrl-C reaches the whole group; the parent decides. Without it this process is nothing.
  process.on('SIGINT', () => {});
  process.on('disconnect', () => process.exit(0));
}
