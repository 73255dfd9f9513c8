// options.js: the swarm's command line: one table of options, from which come the parser, --help
// and the checks.

import { isIP } from 'node:net';
import { Options as CommandLine, helpText, UsageError } from '../lib/options.js';
import { profileOf } from './profiles.js';

/**
 * In this order; the second and third need the connections of the first, the last brings its own.
 */
export const PHASES = Object.freeze(['connect', 'burst', 'endurance', 'broadcast']);
/** 127.0.0.2-127.255.255.254 is a slip of the hand, and every address is tried before the start. */
const MAX_SOURCES = 1000;

/**
 * What the swarm is to do. Times are milliseconds.
 * @typedef {object} Options
 * @property {URL[]} targets
 * @property {number} connections
 * @property {string[]} sources empty: the kernel chooses
 * @property {number} processes 0: as many as are needed
 * @property {import('./profiles.js').Profile} profile
 * @property {string[]} phases
 * @property {number} batchSize
 * @property {number} connectTimeoutMs
 * @property {number} connectRate connections a second at most; 0: as fast as they are answered
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
 * @property {string} report path without an ending; empty: the caller chooses
 * @property {boolean} force
 */

/** @type {readonly import('../lib/options.js').Row[]} */
const TABLE = Object.freeze([
  {
    group: 'Whom, how many, from where',
    name: 'target',
    value: 'URL',
    default: 'ws://127.0.0.1:3000/ws',
    multiple: true,
    help: 'server; several times for several',
  },
  {
    name: 'connections',
    value: 'N',
    default: '1000',
    min: 1,
    max: 10_000_000,
    help: 'connections in all',
  },
  {
    name: 'source',
    value: 'LIST',
    multiple: true,
    help: 'source addresses: 127.0.0.2-127.0.0.9, or 10.0.0.5,10.0.0.6; without, the kernel chooses one',
  },
  {
    name: 'processes',
    value: 'N',
    default: '0',
    min: 0,
    max: 1000,
    help: 'client processes; 0: as many as are needed',
  },
  {
    name: 'profile',
    value: 'NAME',
    default: 'fanfare',
    help: 'how to speak: fanfare (any server of the echo/broadcast benchmark protocol), echo (sends back what it gets), chat (sends it to everyone), or a JSON file',
  },
  {
    name: 'payload-bytes',
    value: 'N',
    default: '100',
    min: 64,
    max: 65_536,
    help: 'size of a payload',
  },
  {
    group: 'What',
    name: 'phases',
    value: 'LIST',
    default: PHASES.join(),
    help: 'of connect, burst, endurance, broadcast',
  },
  {
    name: 'batch-size',
    value: 'N',
    default: '100',
    min: 1,
    max: 10_000,
    help: 'connect: a process opens so many at once, and the next when all of them are answered',
  },
  {
    name: 'connect-timeout',
    value: 'S',
    default: '3',
    min: 0.01,
    max: 600,
    fraction: true,
    help: 'connect: seconds a handshake may take',
  },
  {
    name: 'connect-rate',
    value: 'N',
    default: '0',
    min: 0,
    max: 1_000_000,
    fraction: true,
    help: 'connect: connections a second at most; 0: as fast as they are answered',
  },
  {
    name: 'burst-messages',
    value: 'N',
    default: '15',
    min: 1,
    max: 10_000,
    help: 'burst: messages of each connection',
  },
  {
    name: 'burst-batch',
    value: 'N',
    default: '1000',
    min: 1,
    max: 100_000,
    help: 'burst: a process sends so many at once, and the next when all replies are there',
  },
  {
    name: 'endurance',
    value: 'S',
    default: '60',
    min: 0.1,
    max: 86_400,
    fraction: true,
    help: 'endurance: seconds',
  },
  {
    name: 'rate',
    value: 'N',
    default: '0',
    min: 0,
    max: 10_000_000,
    fraction: true,
    help: 'endurance: messages a second in all; 0: a tenth of the connections, so that each speaks every 10 s',
  },
  {
    name: 'step-size',
    value: 'N',
    default: '1000',
    min: 1,
    max: 1_000_000,
    help: 'broadcast: connections added in each step',
  },
  {
    name: 'limit-rtt',
    value: 'MS',
    default: '250',
    min: 0.1,
    max: 600_000,
    fraction: true,
    help: 'broadcast: round trip, in milliseconds, above which it ends',
  },
  {
    name: 'limit-percentile',
    value: 'P',
    default: '95',
    min: 1,
    max: 100,
    fraction: true,
    help: 'broadcast: percentile of the round trips held against that',
  },
  {
    name: 'concurrent',
    value: 'N',
    default: '4',
    min: 1,
    max: 1000,
    help: 'broadcast: on their way at a time',
  },
  {
    name: 'sample-size',
    value: 'N',
    default: '40',
    min: 1,
    max: 100_000,
    help: 'broadcast: round trips in each step',
  },
  {
    group: 'When to stop, what to keep',
    name: 'reply-timeout',
    value: 'S',
    default: '10',
    min: 0.01,
    max: 600,
    fraction: true,
    help: 'seconds a reply may take',
  },
  {
    name: 'max-errors',
    value: 'N',
    default: '5000',
    min: 1,
    max: 10_000_000,
    help: 'errors after which the run is over',
  },
  {
    name: 'metrics',
    value: 'URL',
    help: "the server's Prometheus metrics, http://127.0.0.1:9090/metrics for one, for the report",
  },
  {
    name: 'report',
    value: 'PATH',
    help: 'PATH.html and PATH.json; without, loadtest/results/swarm-TIME',
  },
  {
    name: 'force',
    help: 'go on where this machine can not open as many connections, to see what fails',
  },
]);

/** @returns {string} what --help prints */
export function help() {
  return helpText(
    `Opens many connections to a server, speaks on them, and says which limit was hit.

  npm run swarm -- --target ws://127.0.0.1:3000/ws --connections 50000 --source 127.0.0.2-127.0.0.9

The server needs WORKERS >= connections / 19,000 and FANFARE_LIMITS=off.`,
    TABLE,
    'Exit code: 0 all held · 1 something failed · 2 nothing was opened: wrong usage, or this machine can not open as many',
  );
}

/**
 * @param {string[]} args
 * @returns {Options|null} null: --help was asked for
 * @throws {UsageError}
 */
export function parseOptions(args) {
  const given = new CommandLine(TABLE, args);
  if (given.flag('help')) return null;
  const text = given.text.bind(given);
  const number = given.number.bind(given);
  const connections = number('connections');
  const profile = usable(() => profileOf(text('profile')));
  const phases = phasesOf(text('phases'), profile);
  const targets = given.list('target').map(targetOf);
  return {
    targets,
    connections,
    sources: [...new Set(given.list('source').flatMap(sourcesOf))],
    processes: number('processes'),
    profile,
    phases,
    batchSize: number('batch-size'),
    connectTimeoutMs: number('connect-timeout') * 1000,
    connectRate: number('connect-rate'),
    burstMessages: number('burst-messages'),
    burstBatch: number('burst-batch'),
    enduranceMs: number('endurance') * 1000,
    rate: number('rate') || Math.max(1, connections / 10),
    stepSize: number('step-size'),
    limitRttMs: number('limit-rtt'),
    limitPercentile: number('limit-percentile'),
    concurrent: number('concurrent'),
    sampleSize: number('sample-size'),
    payloadBytes: number('payload-bytes'),
    replyTimeoutMs: number('reply-timeout') * 1000,
    maxErrors: number('max-errors'),
    metrics: text('metrics') === '' ? '' : urlOf(text('metrics'), ['http:', 'https:']).href,
    report: text('report').replace(/\.(html|json)$/, ''),
    force: given.flag('force'),
  };
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
  // What a server can not do is left out of the default, and refused where it was asked for by
  // name.
  return phases.filter((name) => {
    const able =
      name === 'connect' || (name === 'broadcast' ? profile.broadcast : profile.echo) !== null;
    if (!able && list !== PHASES.join())
      throw new UsageError(
        `--phases: the profile ${profile.name} has no ${name === 'broadcast' ? 'broadcast' : 'echo'}`,
      );
    return able;
  });
}

/** @param {string} text */
function targetOf(text) {
  if (text.startsWith('wss:'))
    throw new UsageError(
      `${text}: TLS is not spoken here; aim at the ws:// port behind what ends TLS`,
    );
  return urlOf(text, ['ws:']);
}

/**
 * @param {string} text
 * @param {string[]} protocols
 */
function urlOf(text, protocols) {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !protocols.includes(url.protocol))
    throw new UsageError(
      `${text} is no URL that begins with ${protocols.map((one) => `${one}//`).join(' or ')}`,
    );
  return url;
}

/**
 * @param {string} list addresses and ranges of IPv4 addresses, separated by commas
 * @returns {string[]}
 * @throws {UsageError}
 */
export function sourcesOf(list) {
  return list.split(',').flatMap((part) => {
    const [first, last, ...more] = part.trim().split('-');
    if (last === undefined && isIP(first) !== 0) return [first];
    if (last === undefined || more.length > 0 || isIP(first) !== 4 || isIP(last) !== 4)
      throw new UsageError(
        `--source: ${part.trim() || 'nothing'} is neither an address nor a range like 127.0.0.2-127.0.0.9`,
      );
    const [from, to] = [numberOf(first), numberOf(last)];
    if (to < from) throw new UsageError(`--source: ${part.trim()} ends before it begins`);
    if (to - from >= MAX_SOURCES)
      throw new UsageError(`--source: at most ${MAX_SOURCES} addresses`);
    return Array.from({ length: to - from + 1 }, (_, i) => addressOf(from + i));
  });
}

/** @param {string} address IPv4 */
function numberOf(address) {
  return address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
}

/** @param {number} number */
function addressOf(number) {
  return [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.');
}
