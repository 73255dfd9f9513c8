// options.js: the command line of the swarm.

import { isIP } from 'node:net';
import { helpText, parse, SERVER_HERE, targetUrl, UsageError } from '../../test/harness/options.js';
import { profileOf } from './profiles.js';

/**
 * In this order. The second and third need the connections of the first; the last opens its own.
 */
const PHASES = Object.freeze(['connect', 'burst', 'endurance', 'broadcast']);
/** A larger range is a typing error, and the swarm tries every address before the start. */
const MAX_SOURCES = 1000;
const MAX_TARGETS = 1000;

/**
 * The options of a run. Times are milliseconds.
 * @typedef {object} Options
 * @property {URL[]} targets
 * @property {number} connections
 * @property {string[]} sources empty: the kernel chooses
 * @property {number} processes 0: as many as the connections need
 * @property {import('./profiles.js').Profile} profile
 * @property {string[]} phases
 * @property {number} batchSize
 * @property {number} connectTimeoutMs
 * @property {number} connectRate connections a second at most; 0: no limit
 * @property {number} burstMessages
 * @property {number} burstBatch
 * @property {number} enduranceMs
 * @property {number} rate messages a second in endurance
 * @property {number} stepSize
 * @property {number} limitRttMs
 * @property {number} limitPercentile
 * @property {number} concurrent
 * @property {number} sampleSize
 * @property {number} payloadBytes
 * @property {number} replyTimeoutMs
 * @property {number} maxErrors
 * @property {string} metrics URL; empty: none
 * @property {string} report path without its ending; empty: the caller chooses
 * @property {boolean} force
 */

const TABLE = `
Targets, connections, source addresses
target URL… | | ${SERVER_HERE} | server; repeat it for several; a URL alone does, too
connections N | whole 1..10000000 | 1000 | connections in all
source LIST… | | | source addresses: 127.0.0.2-127.0.0.9, or 10.0.0.5,10.0.0.6; without, the kernel chooses one
processes N | whole 0..1000 | 0 | client processes; 0: as many as the connections need
profile NAME | | fanfare | protocol: fanfare (any server of the echo/broadcast benchmark protocol), echo (a server that sends back each message), chat (a server that sends each message to all), pusher and centrifugo (connections only), or a JSON file
payload-bytes N | whole 64..65536 | 100 | size of a payload
Phases
phases LIST | | ${PHASES.join()} | phases to run
batch-size N | whole 1..10000 | 100 | connect: connections that a process opens at once; it opens the next when all of them are answered
connect-timeout S | number 0.01..600 | 3 | connect: seconds a handshake may take
connect-rate N | number 0..1000000 | 0 | connect: connections a second at most; 0: no limit
burst-messages N | whole 1..10000 | 15 | burst: messages of each connection
burst-batch N | whole 1..100000 | 1000 | burst: messages that a process sends at once; it sends the next when all replies have arrived
endurance S | number 0.1..86400 | 60 | endurance: seconds
rate N | number 0..10000000 | 0 | endurance: messages a second in all; 0: a tenth of the connections, so that each sends one every 10 s
step-size N | whole 1..1000000 | 1000 | broadcast: connections added in each step
limit-rtt MS | number 0.1..600000 | 250 | broadcast: round trip, in milliseconds, above which the phase ends
limit-percentile P | number 1..100 | 95 | broadcast: percentile of the round trips that is compared with the limit
concurrent N | whole 1..1000 | 4 | broadcast: broadcasts in flight at a time
sample-size N | whole 1..100000 | 40 | broadcast: round trips in each step
End and report
reply-timeout S | number 0.01..600 | 10 | seconds a reply may take
max-errors N | whole 1..10000000 | 5000 | errors after which the run ends
metrics URL | | | Prometheus metrics of the server, for the report: http://127.0.0.1:9090/metrics
report PATH | | | writes PATH.html and PATH.json; without, loadtest/results/swarm-TIME
force | | | go on if this machine cannot open as many connections, to see what fails`;

/** @returns {string} the text of --help */
export function help() {
  return helpText(
    `Opens many connections to a server, sends messages on them, and reports which limit was hit.

  npm run swarm -- --target ws://127.0.0.1:3000/ws --connections 50000 --source 127.0.0.2-127.0.0.9

The server needs WORKERS >= connections / 19,000 and FANFARE_LIMITS=off.`,
    TABLE,
    'Exit code: 0 all held · 1 something failed · 2 nothing was opened: wrong usage, or this machine cannot open as many',
  );
}

/**
 * @param {string[]} args
 * @returns {Options|null} null: --help was given
 * @throws {UsageError}
 */
export function parseOptions(args) {
  const parsed = parse(TABLE, args, MAX_TARGETS);
  if (parsed === null) return null;
  const { target, source, phases, endurance, rate, metrics, report, ...same } = {
    ...parsed.values,
  };
  const { given, positionals } = parsed;
  const named = given.has('target') || positionals.length === 0 ? target : [];
  const profile = usable(() => profileOf(same.profile));
  return /** @type {any} */ ({
    ...same,
    targets: [...named, ...positionals].map(targetOf),
    sources: [...new Set(source.flatMap(sourcesOf))],
    profile,
    phases: phasesOf(phases, profile),
    connectTimeoutMs: same.connectTimeout * 1000,
    limitRttMs: same.limitRtt,
    enduranceMs: endurance * 1000,
    replyTimeoutMs: same.replyTimeout * 1000,
    rate: rate || Math.max(1, same.connections / 10),
    metrics: metrics === '' ? '' : targetUrl(metrics, ['http:', 'https:']).href,
    report: report.replace(/\.(html|json)$/, ''),
  });
}

/**
 * @template T
 * @param {() => T} make
 * @returns {T}
 * @throws {UsageError} instead of another error
 */
function usable(make) {
  try {
    return make();
  } catch (error) {
    throw new UsageError(/** @type {Error} */ (error).message);
  }
}

/**
 * @param {string} list
 * @param {import('./profiles.js').Profile} profile
 * @returns {string[]} in the order of PHASES
 */
function phasesOf(list, profile) {
  const wanted = list.split(',').map((name) => name.trim());
  for (const name of wanted) {
    if (!PHASES.includes(name))
      throw new UsageError(`--phases: ${name || 'nothing'} is none of ${PHASES.join(', ')}`);
  }
  const phases = PHASES.filter((name) => wanted.includes(name));
  if (!phases.includes('connect') && (phases.includes('burst') || phases.includes('endurance')))
    throw new UsageError('--phases: burst and endurance need connect before them');
  // The default leaves out the phases that the profile lacks; a phase given by name is refused.
  return phases.filter((name) => {
    const part = name === 'broadcast' ? 'broadcast' : 'echo';
    const able = name === 'connect' || profile[part] !== null;
    if (!able && list !== PHASES.join())
      throw new UsageError(`--phases: the profile ${profile.name} has no ${part}`);
    return able;
  });
}

/** @param {string} text */
function targetOf(text) {
  if (text.startsWith('wss:'))
    throw new UsageError(
      `${text}: the swarm does not support TLS; use the ws:// port behind the proxy that ends TLS`,
    );
  return targetUrl(text, ['ws:']);
}

/**
 * @param {string} list addresses and ranges of IPv4 addresses, separated by commas
 * @returns {string[]}
 * @throws {UsageError}
 */
export function sourcesOf(list) {
  return list.split(',').flatMap((entry) => {
    const part = entry.trim();
    const [first, last, ...more] = part.split('-');
    if (last === undefined && isIP(first) !== 0) return [first];
    if (last === undefined || more.length > 0 || isIP(first) !== 4 || isIP(last) !== 4)
      throw new UsageError(
        `--source: ${part || 'nothing'} is neither an address nor a range like 127.0.0.2-127.0.0.9`,
      );
    const [from, to] = [first, last].map((address) =>
      address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0),
    );
    if (to < from) throw new UsageError(`--source: ${part} ends before it begins`);
    if (to - from >= MAX_SOURCES)
      throw new UsageError(`--source: at most ${MAX_SOURCES} addresses`);
    return Array.from({ length: to - from + 1 }, (_, i) =>
      [24, 16, 8, 0].map((shift) => ((from + i) >>> shift) & 255).join('.'),
    );
  });
}
