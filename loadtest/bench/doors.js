// doors.js: what a door costs beside the native one: deliveries to a room, and memory of an idle
// connection.
//
// The members are of one door each. Most cannot publish at this rate, or it costs them more, so native
// clients publish in the same room (door-swarm.js). Each measurement has a server of its own, and the
// doors take turns.

import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { DoorSwarm } from './door-swarm.js';
import { liveBytesOf, preload } from './script.js';
import { startServer } from './servers.js';
import { Swarm } from './swarm.js';
import { WORKLOADS } from './workloads.js';

const FAN_OUT = 'saturated-1000';
const PAYLOAD_BYTES = 100;
/** Titles, workloads, keys of their values, digits. @type {readonly [string, string, string, number][]} */
const ROWS = [
  ['deliveries/s to 1,000 members, saturated', FAN_OUT, 'deliveriesPerSecond', 0],
  ['server CPU-s for a million deliveries', FAN_OUT, 'cpuPerMillion', 2],
  ['bytes of a frame', FAN_OUT, 'bytesPerFrame', 0],
  ['memory of an idle connection, kB (PSS, with garbage)', 'idle', 'kbPerConnection', 2],
  ['live heap of an idle connection, kB', 'idle', 'liveKbPerConnection', 2],
  ['server CPU of a handshake and a join, ms', 'idle', 'cpuMsPerHandshake', 3],
];

/**
 * A door of a server.
 * @typedef {object} Column
 * @property {string} title
 * @property {import('./profiles.js').Profile} profile of the members
 * @property {string} [server] of servers.js; without, fanfare
 * @property {string} [checkout] of Fanfare; without, this one
 * @property {Record<string, string>} [env] of the server
 * @property {boolean} [publishes] the members publish, instead of native clients; never idle
 */

/** By the column's name. @typedef {Record<string, number>} Values */
/** @typedef {import('../../test/harness/options.js').Values} Options */

/**
 * @param {object} parts
 * @param {string} parts.door its name
 * @param {import('./profiles.js').Profile} parts.native of the native publishers
 * @param {string} parts.options further ones
 * @param {(options: Options) => Record<string, Column>} parts.columnsOf one is `native`
 * @param {Record<string, {text: string, isGood: (values: Values) => boolean}>} parts.wanted by the
 *   key of a row
 */
export async function measureDoors({ door, native, options, columnsOf, wanted }) {
  /** The load that the search of an earlier round found, by variant. @type {Map<string, number>} */
  const loads = new Map();
  await experiment({
    question: `Measures the ${door} door's fan-out and memory beside those of the native door.`,
    options: `rounds N | whole 1..100 | 3 | rounds
  quick | | | short: to see that it works, not to compare
  workers N | whole 1..64 | 2 | processes with connections
  processes N | whole 1..64 | 2 | client processes
  sources N | whole 0..250 | 4 | source addresses from 127.0.0.2 on; 0: the kernel chooses one
  only LIST | list of ${FAN_OUT} idle | ${FAN_OUT},idle | what is measured
  ${options}`,
    variants: (values) =>
      values.only.flatMap((/** @type {string} */ work) =>
        Object.entries(columnsOf(values)).flatMap(([name, { publishes }]) =>
          work === FAN_OUT || !publishes ? `${work} ${name}` : [],
        ),
      ),

    async setup({ owner, variant, values }) {
      const [work, name] = variant.split(' ');
      const { server = 'fanfare', profile, checkout, env, publishes } = columnsOf(values)[name];
      const { workers, processes } = values;
      const probe = work === FAN_OUT ? null : preload(owner, 'collect.cjs');
      const target = await startServer(server, {
        ...{ workers, checkout, env: { ...env, ...probe?.env } },
      });
      owner.after(() => target.close());
      const hasNatives = work === FAN_OUT && !publishes;
      const swarm = hasNatives ? new DoorSwarm({ processes }, native) : new Swarm({ processes });
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

    report(rounds, values) {
      const { only, quick } = values;
      const columns = Object.entries(columnsOf(values));
      const rows = ROWS.filter(([, work]) => only.includes(work)).map(
        ([title, work, key, digits]) => {
          /** @type {Values} */
          const medians = {};
          for (const [name] of columns) {
            const of = rounds.flat().filter(({ variant }) => variant === `${work} ${name}`);
            const measured = of.map(({ values }) => values[key] ?? Number.NaN);
            if (of.length > 0)
              medians[name] = measured.some(Number.isNaN) ? Number.NaN : median(measured);
          }
          const isComplete = !Object.values(medians).some(Number.isNaN);
          return { title, digits, medians, isComplete, ...judged(wanted[key], medians) };
        },
      );
      return {
        title: `The ${door} door beside the native one`,
        note: `medians of ${rounds.length} interleaved rounds, in brackets the ratio to native${quick ? '; quick: not to compare' : ''}`,
        lines: markdownTable(
          ['', ...columns.map(([, { title }]) => title), 'wanted'],
          rows.map(({ title, digits, medians, verdict }) => [
            ...[title, ...columns.map(([name]) => cell(medians, name, digits)), verdict],
          ]),
        ),
        data: { rounds },
        failed: rows.some(({ isComplete, isGood }) => !isComplete || (!isGood && !quick)),
      };
    },
  });
}

/**
 * @param {{text: string, isGood: (values: Values) => boolean}|undefined} wish
 * @param {Values} medians
 */
function judged(wish, medians) {
  const isGood = wish === undefined || wish.isGood(medians);
  return { isGood, verdict: wish === undefined ? '' : `${wish.text}: ${isGood ? 'yes' : 'NO'}` };
}

/** @param {Values} medians @param {string} name @param {number} digits */
function cell(medians, name, digits) {
  if (!(name in medians)) return '–';
  const figure = show(medians[name], digits);
  if (name === 'native' || medians.native === undefined) return figure;
  return `${figure} (${show(medians[name] / medians.native, 2)})`;
}
