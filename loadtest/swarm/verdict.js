// verdict.js: the result of a run in words: a line for each phase, the first limit that was hit, and
// the setting to change.

import { count } from '../../test/harness/run.js';
import { showMs } from '../lib/figures.js';

/** A client process with so much of a core measures itself. */
const BUSY_SHARE = 0.85;
/** Starting up is busy too. */
const BUSY_SECONDS = 2;
/**
 * How many ports there are to a range that people have: a ceiling there has nothing to do with the
 * server.
 */
const FAMOUS = Object.freeze([
  { ports: 16_384, range: '49152 to 65535, the range of Windows and macOS' },
  { ports: 28_232, range: '32768 to 60999, the range Linux has by default' },
  { ports: 64_512, range: '1024 to 65535, the widest there is' },
]);
const NEAR = 0.01;

/** @typedef {import('./failures.js').Failure} Failure */
/**
 * @typedef {{held: boolean, headline: string, phases: string[], limits: string[], notes: string[]}}
 *   Verdict
 */

/**
 * @param {object} run
 * @param {import('./phases.js').Results} run.results
 * @param {Failure[]} run.failures in the order in which they began
 * @param {string} run.stopped why it ended early; '' if it did not
 * @param {number} run.asked connections
 * @param {number} run.peak connections open at once
 * @param {import('./timeline.js').Span[]} run.spans
 * @param {number} run.addresses of the client: sources or, without, targets
 * @returns {Verdict}
 */
export function verdict({ results, failures, stopped, asked, peak, spans, addresses }) {
  const { endurance } = results;
  const [first] = failures;
  const held = first === undefined && stopped === '' && (endurance?.held ?? true);
  const phases = Object.entries(results).map(
    ([name, result]) => `${name.padEnd(10)} ${PHASE_LINE[name](result)}`,
  );
  return {
    held,
    headline: headline({ held, first, stopped, asked, peak, endurance }),
    phases,
    limits: failures.map((failure, i) => limitText(failure, i === 0)),
    notes: notes({ failures, peak, asked, spans, addresses }),
  };
}

/**
 * @param
 *   {{held: boolean, first: Failure|undefined, stopped: string, asked: number, peak: number, endurance: import('./phases.js').EnduranceResult|undefined}}
 *   run
 */
function headline({ held, first, stopped, asked, peak, endurance }) {
  if (held) return `held: ${count(peak)} connections, every phase, no failure`;
  if (peak === 0 && first?.key === 'ECONNREFUSED')
    return 'nothing listens at the target: start the server (FANFARE_LIMITS=off npm start), or name another with --target';
  const where = `${count(peak)} of ${count(asked)} connections were open at most`;
  const end = stopped === '' ? '' : `; ${stopped}`;
  if (first === undefined) {
    if (stopped !== '') return `not finished: ${stopped}`;
    return `not held: ${count(endurance?.perSecond ?? 0)} of ${count(endurance?.asked ?? 0)} messages/s`;
  }
  if (first.side === 'client')
    return `this client was the limit, not the server: ${first.limit}; ${where}${end}`;
  if (first.side === 'server') return `the server was the limit: ${first.limit}; ${where}${end}`;
  return `failed between client and server: ${first.limit}; ${where}${end}`;
}

/** @type {Record<string, (result: any) => string>} */
const PHASE_LINE = {
  /** @param {import('./phases.js').ConnectResult} result */
  connect: ({ asked, opened, seconds, perSecond, handshake }) =>
    `${count(opened)} of ${count(asked)} opened in ${seconds.toFixed(1)} s: ${count(perSecond)}/s; handshake ${latencies(handshake)}`,
  /** @param {import('./phases.js').BurstResult} result */
  burst: ({ asked, replies, seconds, perSecond, roundTrip }) =>
    `${count(replies)} of ${count(asked)} replies in ${seconds.toFixed(1)} s: ${count(perSecond)}/s; ${latencies(roundTrip)}`,
  /** @param {import('./phases.js').EnduranceResult} result */
  endurance: ({ seconds, asked, perSecond, sent, replies, lost, roundTrip }) =>
    `${count(perSecond)} replies/s of ${count(asked)} for ${seconds.toFixed(1)} s (${count(replies)} of ${count(sent)}); ${latencies(roundTrip)}; ${count(lost)} connections lost`,
  /** @param {import('./phases.js').BroadcastResult} result */
  broadcast: ({ percentile, limitMs, steps, held, ended }) => {
    const last = steps.at(-1);
    const rtt = last && Number.isFinite(last.pLimit) ? `${last.pLimit.toFixed(0)} ms` : 'not back';
    const then = {
      connections: 'no more were asked for',
      limit: `with ${count(last?.connections ?? 0)}: ${rtt}`,
      refused: `with ${count(last?.connections ?? 0)} connections ${count(last?.refused ?? 0)} broadcasts were refused`,
      missing: `with ${count(last?.connections ?? 0)} connections ${count((last?.expected ?? 0) - (last?.deliveries ?? 0))} deliveries were missing`,
      stopped: 'then stopped',
    };
    return `round trips p${percentile} ≤ ${limitMs} ms up to ${count(held)} connections; ${then[ended]}`;
  },
};

/** @param {import('./phases.js').Percentiles} percentiles */
function latencies({ p50, p95, p99 }) {
  return p50 === null
    ? 'nothing timed'
    : `p50 ${showMs(p50)}, p95 ${showMs(p95 ?? 0)}, p99 ${showMs(p99 ?? 0)}`;
}

/** @param {Failure} failure @param {boolean} isFirst */
function limitText(
  { key, count: times, firstSeconds, openThen, side, limit, means, fix },
  isFirst,
) {
  return [
    `${isFirst ? 'first limit hit' : 'then'}: ${limit} (${SIDE[side]}): ${count(times)} × ${key}, from ${firstSeconds.toFixed(1)} s on, with ${count(openThen)} connections open`,
    `  ${means}.`,
    fix === '' ? '' : `  to change: ${fix}`,
  ]
    .filter(Boolean)
    .join('\n');
}

export const SIDE = Object.freeze({
  client: 'this client',
  server: 'the server',
  between: 'between them',
});

/**
 * @param
 *   {{failures: Failure[], peak: number, asked: number, spans: import('./timeline.js').Span[], addresses: number}}
 *   run
 */
function notes({ failures, peak, asked, spans, addresses }) {
  const notes = spans
    .filter(({ clientCpu, from, to }) => clientCpu > BUSY_SHARE && to - from >= BUSY_SECONDS)
    .map(
      ({ name, clientCpu }) =>
        `${name}: a client process used ${Math.round(clientCpu * 100)} % of a core, so its rate and latencies are partly the client's: more --processes on a machine with more cores, or more client machines`,
    );
  const famous = FAMOUS.find(
    ({ ports }) => Math.abs(peak - ports * addresses) <= ports * addresses * NEAR,
  );
  if (peak < asked && famous && failures[0]?.side !== 'client')
    notes.push(
      `${count(peak)} connections are ${addresses > 1 ? `${count(addresses)} × ` : ''}the ${count(famous.ports)} ports from ${famous.range}: look for a machine between that has run out of them (NAT, or a proxy towards its server)`,
    );
  return notes;
}

/**
 * Without the phases: each was printed as it ended.
 * @param {Verdict} verdict
 * @returns {string} many lines
 */
export function verdictText({ headline, limits, notes }) {
  return [`verdict: ${headline}`, ...limits, ...notes.map((note) => `note: ${note}`)].join('\n');
}
