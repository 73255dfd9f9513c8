// phases.js: the phases of the swarm, one after another, and their results.
//
// connect     batches of connections: each process opens one batch, and the next when all of it is answered
// burst       each connection sends its messages, a batch of a process at a time, each batch when the one before has its replies
// endurance   messages at a steady rate, due at their times whether or not the ones before are answered
// broadcast   from one step's connections on, more in each: round trips of messages that reach everyone, a few on their way
//             at a time, until their percentile is over the limit
//
// Each phase ends early if the run is stopped: too many errors, or Ctrl-C.

import { Latency } from '../../test/harness/latency.js';
import { pause } from '../../test/harness/run.js';

/**
 * Endurance: a rate is held if this share of it was sent, all of that was answered, and no later
 * than this after the end. A server that loses 15,000 other connections at once, as when another
 * network of netns.sh ends, is 0.7 s late.
 */
const HELD_SHARE = 0.97;
const HELD_LATE_MS = 1000;
/**
 * Broadcast: nothing more for so long, or for the time a reply may take, and what is missing will
 * not come.
 */
const SILENCE_MS = 2000;
const MAX_DRAIN_MS = 20_000;
const POLL_MS = 20;

/**
 * @typedef {{p50: number|null, p95: number|null, p99: number|null, maxMs: number}} Percentiles
 *   milliseconds
 */

/**
 * @typedef {object} ConnectResult
 * @property {number} asked
 * @property {number} opened
 * @property {number} failed
 * @property {number} seconds
 * @property {number} perSecond
 * @property {Percentiles} handshake
 */
/**
 * @typedef {object} BurstResult
 * @property {number} asked messages
 * @property {number} sent
 * @property {number} replies
 * @property {number} seconds
 * @property {number} perSecond replies
 * @property {Percentiles} roundTrip
 */
/**
 * @typedef {object} EnduranceResult
 * @property {number} seconds
 * @property {number} asked messages a second
 * @property {number} perSecond replies a second
 * @property {number} sent
 * @property {number} replies
 * @property {boolean} held
 * @property {number} lost connections
 * @property {number} behindMs how late the client itself sent, at worst
 * @property {Percentiles} roundTrip from the time a message was due
 */
/**
 * @typedef {object} Step
 * @property {number} connections
 * @property {number} p50 of the round trips, as their sender saw them, milliseconds; Infinity if
 *   they did not come back
 * @property {number} pLimit their percentile that is held against the limit
 * @property {number} maxMs
 * @property {number} broadcasts
 * @property {number} refused broadcasts answered with an error, or whose sender lost its
 *   connection; in none of the other figures
 * @property {number} deliveries
 * @property {number} expected
 * @property {Percentiles} delivery from sending to any receiver
 * @property {boolean} within the limit, and nothing missing
 */
/**
 * @typedef
 *   {{percentile: number, limitMs: number, steps: Step[], held: number, ended: 'limit'|'connections'|'refused'|'missing'|'stopped'}}
 *   BroadcastResult `held`: connections of the last step within the limit
 */
/**
 * @typedef
 *   {{connect?: ConnectResult, burst?: BurstResult, endurance?: EnduranceResult, broadcast?: BroadcastResult}}
 *   Results
 */

/**
 * The means of a phase.
 * @typedef {object} Context
 * @property {import('./options.js').Options} options
 * @property {import('./fleet.js').Fleet} fleet
 * @property {import('./timeline.js').Timeline} timeline
 * @property {(key: string, count: number) => void} fail
 * @property {() => boolean} isStopped
 * @property {(done: number, total: number, text: string) => void} progress
 * @property {{next: number}} indices of the next connection
 */

/** @type {Record<string, (context: Context) => Promise<any>>} */
export const PHASE = Object.freeze({ connect, burst, endurance, broadcast });

/** @param {Context} context @returns {Promise<ConnectResult>} */
async function connect(context) {
  const { options, timeline } = context;
  const watch = timeline.watch((totals) =>
    context.progress(
      totals.opened,
      options.connections,
      `${rate(totals.opened / totals.seconds)} connections/s`,
    ),
  );
  await open(context, options.connections, options.connectRate);
  const { opened, seconds, latency } = watch.end();
  return {
    asked: options.connections,
    opened,
    failed: options.connections - opened,
    seconds,
    perSecond: opened / seconds,
    handshake: percentiles(latency),
  };
}

/**
 * @param {Context} context
 * @param {number} connections more
 * @param {number} perSecond 0: as fast as they are answered
 */
async function open({ options, fleet, isStopped, indices }, connections, perSecond) {
  const { batchSize, connectTimeoutMs } = options;
  const startedMs = performance.now();
  let begun = 0;
  await eachProcess(fleet, async (process) => {
    for (let left = fleet.part(connections, process); left > 0 && !isStopped(); ) {
      const count = Math.min(batchSize, left);
      const dueMs = perSecond > 0 ? startedMs + (begun * 1000) / perSecond : 0;
      left -= count;
      begun += count;
      const first = indices.next;
      indices.next += count;
      while (dueMs > performance.now() && !isStopped())
        await pause(Math.min(200, dueMs - performance.now()));
      await fleet.ask(
        process,
        'open',
        { first, count, timeoutMs: connectTimeoutMs },
        connectTimeoutMs,
      );
    }
  });
}

/** @param {Context} context @returns {Promise<BurstResult>} */
async function burst(context) {
  const { options, fleet, timeline, isStopped } = context;
  const open = timeline.openOf();
  const asked = timeline.open * options.burstMessages;
  const watch = timeline.watch((totals) =>
    context.progress(totals.replies, asked, `${rate(totals.replies / totals.seconds)} replies/s`),
  );
  await eachProcess(fleet, async (process) => {
    for (let left = open[process] * options.burstMessages; left > 0 && !isStopped(); ) {
      const messages = Math.min(options.burstBatch, left);
      left -= messages;
      await fleet.ask(process, 'burst', { messages }, options.replyTimeoutMs);
    }
  });
  const { sent, replies, seconds, latency } = watch.end();
  return {
    asked,
    sent,
    replies,
    seconds,
    perSecond: replies / seconds,
    roundTrip: percentiles(latency),
  };
}

/** @param {Context} context @returns {Promise<EnduranceResult>} */
async function endurance(context) {
  const { options, fleet, timeline } = context;
  const { enduranceMs, rate: asked, replyTimeoutMs } = options;
  const openBefore = timeline.open;
  const watch = timeline.watch((totals) =>
    context.progress(
      Math.min(totals.seconds, enduranceMs / 1000),
      enduranceMs / 1000,
      `${rate(totals.replies / totals.seconds)} replies/s of ${rate(asked)}`,
    ),
  );
  const open = timeline.openOf();
  const answers = await fleet.all(
    'endure',
    // Each process by its connections, so that all of them speak equally often.
    (process) => ({
      rate: (asked * open[process]) / Math.max(1, openBefore),
      durationMs: enduranceMs,
    }),
    enduranceMs + replyTimeoutMs,
  );
  const { sent, replies, latency } = watch.end();
  const seconds = Math.max(0.001, ...answers.map((answer) => answer.seconds));
  const perSecond = replies / seconds;
  return {
    seconds,
    asked,
    perSecond,
    sent,
    replies,
    held:
      sent >= ((asked * enduranceMs) / 1000) * HELD_SHARE &&
      replies === sent &&
      seconds * 1000 - enduranceMs <= Math.max(HELD_LATE_MS, enduranceMs * (1 - HELD_SHARE)),
    lost: openBefore - timeline.open,
    behindMs: Math.max(...answers.map((answer) => answer.behindMs)),
    roundTrip: percentiles(latency),
  };
}

/** @param {Context} context @returns {Promise<BroadcastResult>} */
async function broadcast(context) {
  const { options, fleet, timeline, isStopped } = context;
  const { connections, stepSize, limitRttMs, limitPercentile } = options;
  /** @type {BroadcastResult} */
  const result = {
    percentile: limitPercentile,
    limitMs: limitRttMs,
    steps: [],
    held: 0,
    ended: 'connections',
  };
  const least = Math.min(stepSize, connections);
  // Some 1,000 a second at worst, if the server does not close connections when asked to.
  await fleet.all('close', (process) => ({ keep: fleet.part(least, process) }), connections * 3);
  for (let size = least; ; size = Math.min(size + stepSize, connections)) {
    if (isStopped()) break;
    await open(context, size - timeline.open, 0);
    const step = await broadcastStep(context, result.steps.length + 1);
    if (isStopped()) break;
    result.steps.push(step);
    context.progress(
      size,
      connections,
      `p${limitPercentile} ${step.pLimit.toFixed(0)} ms of ${limitRttMs}`,
    );
    if (step.within) result.held = step.connections;
    else if (step.refused > 0) result.ended = 'refused';
    else
      result.ended =
        step.deliveries < step.expected || step.maxMs === Number.POSITIVE_INFINITY
          ? 'missing'
          : 'limit';
    if (!step.within || size === connections) break;
  }
  if (isStopped()) result.ended = 'stopped';
  return result;
}

/** @param {Context} context @param {number} number @returns {Promise<Step>} */
async function broadcastStep({ options, fleet, timeline, fail, isStopped }, number) {
  const { sampleSize, concurrent, limitPercentile, limitRttMs, replyTimeoutMs } = options;
  const connections = timeline.open;
  await fleet.all('arm', () => ({ step: number }));
  const perLane = Array.from({ length: concurrent }, (_, lane) =>
    share(sampleSize, concurrent, lane),
  );
  const answers = await fleet.all(
    'broadcast',
    (process) => ({
      lanes: perLane.filter((_, lane) => lane % fleet.size === process),
      timeoutMs: replyTimeoutMs,
    }),
    Math.ceil(sampleSize / concurrent) * replyTimeoutMs,
  );
  const trips = /** @type {number[]} */ (answers.flatMap((answer) => answer.trips)).sort(
    (a, b) => a - b,
  );
  const refused = answers.reduce((sum, answer) => sum + answer.refused, 0);
  const expected = trips.length * connections;
  const { deliveries, latency } = await delivered(
    fleet,
    expected,
    Math.min(SILENCE_MS, replyTimeoutMs),
    isStopped,
  );
  // The lost connection is the failure, not the deliveries that it did not get.
  const missing = expected - deliveries - (connections - timeline.open) * trips.length;
  if (missing > 0 && !isStopped()) fail('not delivered', missing);
  const pLimit = ranked(trips, limitPercentile);
  return {
    connections,
    p50: ranked(trips, 50),
    pLimit,
    maxMs: ranked(trips, 100),
    broadcasts: trips.length,
    refused,
    deliveries,
    expected,
    delivery: percentiles(latency),
    within: pLimit <= limitRttMs && deliveries >= expected && refused === 0,
  };
}

/**
 * Waits for the deliveries expected, or until no more come.
 * @param {import('./fleet.js').Fleet} fleet
 * @param {number} expected
 * @param {number} silenceMs
 * @param {() => boolean} isStopped
 */
async function delivered(fleet, expected, silenceMs, isStopped) {
  const endMs = performance.now() + MAX_DRAIN_MS;
  let before = -1;
  let sinceMs = performance.now();
  for (;;) {
    const answers = await fleet.all('delivered', () => ({}));
    const deliveries = answers.reduce((sum, answer) => sum + answer.deliveries, 0);
    const nowMs = performance.now();
    if (deliveries !== before) sinceMs = nowMs;
    before = deliveries;
    if (deliveries >= expected || nowMs - sinceMs > silenceMs || nowMs > endMs || isStopped()) {
      const latency = new Latency();
      for (const answer of answers) latency.merge(answer);
      return { deliveries, latency };
    }
    await pause(POLL_MS);
  }
}

/** @param {import('./fleet.js').Fleet} fleet @param {(process: number) => Promise<void>} act */
async function eachProcess(fleet, act) {
  await Promise.all(Array.from({ length: fleet.size }, (_, process) => act(process)));
}

/** @param {number} whole @param {number} parts @param {number} part */
function share(whole, parts, part) {
  return Math.floor(whole / parts) + (part < whole % parts ? 1 : 0);
}

/**
 * The nearest rank.
 * @param {readonly number[]} sorted
 * @param {number} percent
 * @returns {number} Infinity if there is none
 */
export function ranked(sorted, percent) {
  return (
    sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? Number.POSITIVE_INFINITY
  );
}

/** @param {Latency} latency @returns {Percentiles} */
function percentiles(latency) {
  return {
    p50: latency.percentile(50),
    p95: latency.percentile(95),
    p99: latency.percentile(99),
    maxMs: latency.maxMs,
  };
}

/** @param {number} perSecond */
function rate(perSecond) {
  return Number.isFinite(perSecond) ? Math.round(perSecond).toLocaleString('en-US') : '0';
}
