// centrifugo.js: the cost of the Centrifugo door beside the native one, JSON and protobuf, and what
// Centrifugo's own server does with the same clients.
//
//   node loadtest/bench/centrifugo.js                     3 rounds, about 25 minutes
//   node loadtest/bench/centrifugo.js --rounds 1 --quick  to see that it works
//
// The members are of one door each. The publishers beside them are native clients. The two columns at
// the right have the door's JSON clients publish as well: to Fanfare, and to Centrifugo if its binary
// is in PATH (its settings: servers.js). Each measurement has a server of its own, and the doors take
// turns.

import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { DoorSwarm } from './door-swarm.js';
import { PROFILES } from './profiles.js';
import { liveBytesOf, preload } from './script.js';
import { isPresent, startServer } from './servers.js';
import { findClient, Swarm } from './swarm.js';
import { WORKLOADS } from './workloads.js';

const FAN_OUT = 'saturated-1000';
const PAYLOAD_BYTES = 100;
const LEAST_SHARE = 0.9;
const LEAST_TIMES = 5;
const MOST_KB = 0.3;
const NATIVE = PROFILES.fanfare;
/** Native clients publish in the room of these members. */
const BY_NATIVES = Object.freeze({ before: NATIVE.before, after: NATIVE.after });
const ENV = Object.freeze({
  FANFARE_CENTRIFUGO: 'on',
  FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*,publish:*',
});

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {'fanfare'|'centrifugo'} server
 * @property {import('./profiles.js').Profile} profile of the members
 * @property {boolean} [publishes] the members publish, instead of native clients
 */

/** @type {Readonly<Record<string, Column>>} */
const COLUMNS = Object.freeze({
  native: { title: 'native', server: 'fanfare', profile: NATIVE },
  json: {
    ...{ title: 'JSON', server: 'fanfare' },
    profile: { ...PROFILES.centrifugo, ...BY_NATIVES },
  },
  protobuf: {
    ...{ title: 'protobuf', server: 'fanfare' },
    profile: { ...PROFILES['centrifugo-protobuf'], ...BY_NATIVES },
  },
  own: {
    ...{ title: 'JSON, publishing', server: 'fanfare', profile: PROFILES.centrifugo },
    publishes: true,
  },
  centrifugo: {
    ...{ title: 'Centrifugo, publishing', server: 'centrifugo', profile: PROFILES.centrifugo },
    publishes: true,
  },
});

/**
 * @typedef {object} Row
 * @property {string} title
 * @property {string} work
 * @property {string} key of the workload's values
 * @property {number} digits
 * @property {{text: string, isGood: (values: Record<string, number>) => boolean}} [wanted]
 */

/** @type {readonly Row[]} */
const ROWS = [
  {
    ...{ title: 'deliveries/s to 1,000 members, saturated', work: FAN_OUT },
    ...{ key: 'deliveriesPerSecond', digits: 0 },
    wanted: {
      text: `JSON, protobuf ≥ ${LEAST_SHARE} × native; ≥ ${LEAST_TIMES} × Centrifugo`,
      isGood: ({ native, json, protobuf, own, centrifugo }) =>
        Math.min(json, protobuf) >= LEAST_SHARE * native &&
        !(own < LEAST_TIMES * (centrifugo ?? 0)),
    },
  },
  {
    ...{ title: 'server CPU-s for a million deliveries', work: FAN_OUT },
    ...{ key: 'cpuPerMillion', digits: 2 },
  },
  { title: 'bytes of a frame', work: FAN_OUT, key: 'bytesPerFrame', digits: 0 },
  {
    ...{ title: 'memory of an idle connection, kB (PSS, with garbage)', work: 'idle' },
    ...{ key: 'kbPerConnection', digits: 2 },
  },
  {
    ...{ title: 'live heap of an idle connection, kB', work: 'idle' },
    ...{ key: 'liveKbPerConnection', digits: 2 },
    wanted: {
      text: `JSON, protobuf ≤ native + ${MOST_KB}`,
      isGood: ({ native, json, protobuf }) => Math.max(json, protobuf) <= native + MOST_KB,
    },
  },
  {
    ...{ title: 'server CPU of a handshake and a join, ms', work: 'idle' },
    ...{ key: 'cpuMsPerHandshake', digits: 3 },
  },
];

/** @param {string} work @param {Column} column */
const isMeasured = (work, { server, publishes }) =>
  (server === 'fanfare' || isPresent(server)) && (work === FAN_OUT || !publishes);

/** The load that the search of an earlier round found, by variant. @type {Map<string, number>} */
const loads = new Map();

await experiment({
  question: "Measures the Centrifugo door's fan-out and memory beside those of the native door.",
  options: `rounds N | whole 1..100 | 3 | rounds
  quick | | | short: to see that it works, not to compare
  workers N | whole 1..64 | 2 | processes with connections
  processes N | whole 1..64 | 2 | client processes
  sources N | whole 0..250 | 4 | source addresses from 127.0.0.2 on; 0: the kernel chooses one
  doors LIST | list of ${Object.keys(COLUMNS).join(' ')} | ${Object.keys(COLUMNS).join(',')} | which columns
  only LIST | list of ${FAN_OUT} idle | ${FAN_OUT},idle | what is measured`,
  variants: ({ only, doors }) =>
    only.flatMap((/** @type {string} */ work) =>
      doors
        .filter((/** @type {string} */ door) => isMeasured(work, COLUMNS[door]))
        .map((/** @type {string} */ door) => `${work} ${door}`),
    ),

  async setup({ owner, variant, values: { workers, processes } }) {
    const [work, door] = variant.split(' ');
    const { server, profile, publishes } = COLUMNS[door];
    const isOwn = server === 'fanfare';
    // Centrifugo's server is not a Node program, so it has no heap to collect.
    const probe = isOwn && work !== FAN_OUT ? preload(owner, 'collect.cjs') : null;
    const env = isOwn ? { ...ENV, ...probe?.env } : {};
    const target = await startServer(server, { workers, env });
    owner.after(() => target.close());
    const options = { client: findClient(profile.isBinary ? 'c' : 'auto'), processes };
    const hasNatives = work === FAN_OUT && !publishes;
    const swarm = hasNatives ? new DoorSwarm(options, NATIVE) : new Swarm(options);
    swarm.start();
    owner.after(() => swarm.close());
    const liveBytes = probe && (() => liveBytesOf(target, probe));
    return { work, target: { ...target, profile }, swarm, liveBytes };
  },

  async measure({ work, target, swarm, liveBytes }, { variant, values: { quick, sources } }) {
    const log = (/** @type {string} */ line) => process.stderr.write(`${variant}: ${line}\n`);
    const figures = await WORKLOADS[work].run({
      ...{ target, swarm, quick, sources, log, liveBytes, known: loads.get(variant) },
      payloadBytes: PAYLOAD_BYTES,
    });
    if (figures.load !== undefined) loads.set(variant, figures.load);
    for (const flag of figures.flags) log(`! ${flag}`);
    return { variant, ...figures };
  },

  report(rounds, { only, doors, quick }) {
    const cells = rounds.flat();
    const rows = ROWS.filter(({ work }) => only.includes(work)).map((row) => {
      /** @type {Record<string, number>} */
      const values = {};
      for (const door of doors) {
        const of = cells.filter(({ variant }) => variant === `${row.work} ${door}`);
        const measured = of.map(({ values }) => values[row.key] ?? Number.NaN);
        if (of.length > 0)
          values[door] = measured.some(Number.isNaN) ? Number.NaN : median(measured);
      }
      return { ...row, values, isGood: row.wanted === undefined || row.wanted.isGood(values) };
    });
    const cell = (
      /** @type {typeof rows[number]} */ { values, digits },
      /** @type {string} */ door,
    ) => (door in values ? `${show(values[door], digits)}${ratio(values, door)}` : '–');
    return {
      title: 'The Centrifugo door beside the native one',
      note: `medians of ${rounds.length} interleaved rounds, in brackets the ratio to native${quick ? '; quick: not to compare' : ''}`,
      lines: markdownTable(
        ['', ...doors.map((/** @type {string} */ door) => COLUMNS[door].title), 'wanted'],
        rows.map((row) => [
          row.title,
          ...doors.map((/** @type {string} */ door) => cell(row, door)),
          row.wanted === undefined ? '' : `${row.wanted.text}: ${row.isGood ? 'yes' : 'NO'}`,
        ]),
      ),
      data: { rounds },
      failed: !quick && rows.some(({ isGood }) => !isGood),
    };
  },
});

/** @param {Record<string, number>} values @param {string} door */
function ratio(values, door) {
  if (door === 'native' || values.native === undefined) return '';
  return ` (${show(values[door] / values.native, 2)})`;
}
