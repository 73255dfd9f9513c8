// pusher.js: the cost of the Pusher door beside the native one: deliveries to a room, and memory of
// an idle connection.
//
//   node loadtest/bench/pusher.js                     3 rounds, about 12 minutes
//   node loadtest/bench/pusher.js --rounds 1 --quick  to see that it works
//   node loadtest/bench/pusher.js --other ../before   and the doors of another checkout
//
// Both doors belong to the same kind of server with a shared app. A Pusher client cannot publish at
// this rate, so the publishers are native clients in the same room, for both doors. Each measurement
// has a server of its own, and the doors take turns.

import { existsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { DoorSwarm } from './door-swarm.js';
import { commitOf } from './machine.js';
import { PROFILES } from './profiles.js';
import { liveBytesOf, preload } from './script.js';
import { startServer } from './servers.js';
import { findClient, Swarm } from './swarm.js';
import { WORKLOADS } from './workloads.js';

const KEY = 'bench';
const FAN_OUT = 'saturated-1000';
const LEAST_SHARE = 0.9;
const MOST_KB = 0.3;
const PAYLOAD_BYTES = 100;
/** The native room's messages have the form of events, so that both doors get the same ones. */
const EVENT = Object.freeze({
  before: '{"type":"message","room":"$ROOM","payload":{"event":"e","data":',
  after: '}}',
});
const NATIVE = Object.freeze({ ...PROFILES.fanfare, ...EVENT });

/** @type {Record<string, import('./profiles.js').Profile>} */
const PROFILE_OF = {
  native: NATIVE,
  pusher: {
    path: `/app/${KEY}?protocol=7&client=js&version=8.6.0`,
    join: [
      {
        wait: 'connection_established',
        send: '{"event":"pusher:subscribe","data":{"auth":"","channel":"$ROOM"}}',
      },
    ],
    ready: 'subscription_succeeded',
    ...EVENT,
    echo: null,
  },
};

/**
 * A door of this checkout, or of another one.
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {string} checkout '': this one
 * @property {boolean} hasPusher does its server speak the protocol? Older ones may not
 */

/** @param {string} checkout of the other one; '': none @returns {Column[]} */
function columnsOf(checkout) {
  const here = { checkout: '', hasPusher: true };
  const columns = [
    { key: 'native', title: 'native', ...here },
    { key: 'pusher', title: 'Pusher', ...here },
  ];
  if (checkout === '') return columns;
  const other = { checkout, hasPusher: existsSync(join(checkout, 'src/doors/pusher')) };
  return columns
    .flatMap((column) => {
      const title = `${column.title}, ${commitOf(checkout)}`;
      return [column, { ...column, key: `${column.key}-other`, title, ...other }];
    })
    .filter(({ key, hasPusher }) => hasPusher || key.startsWith('native'));
}

/**
 * @typedef {object} Row
 * @property {string} title
 * @property {string} work
 * @property {string} key of the workload's values
 * @property {number} digits
 * @property {string} wanted '': nothing
 * @property {(native: number, pusher: number) => boolean} isGood
 */

const any = () => true;
/** @type {readonly Row[]} */
const ROWS = [
  {
    title: 'deliveries/s to 1,000 members, saturated',
    ...{ work: FAN_OUT, key: 'deliveriesPerSecond', digits: 0 },
    wanted: `× ${LEAST_SHARE} or more`,
    isGood: (native, pusher) => pusher / native >= LEAST_SHARE,
  },
  {
    title: 'server CPU-s for a million deliveries',
    ...{ work: FAN_OUT, key: 'cpuPerMillion', digits: 2, wanted: '', isGood: any },
  },
  {
    title: 'bytes of a frame',
    ...{ work: FAN_OUT, key: 'bytesPerFrame', digits: 0, wanted: '', isGood: any },
  },
  {
    title: 'memory of an idle connection, kB (PSS, with garbage)',
    ...{ work: 'idle', key: 'kbPerConnection', digits: 2, wanted: '', isGood: any },
  },
  {
    title: 'live heap of an idle connection, kB',
    ...{ work: 'idle', key: 'liveKbPerConnection', digits: 2 },
    wanted: `+ ${MOST_KB} or less`,
    isGood: (native, pusher) => pusher - native <= MOST_KB,
  },
  {
    title: 'server CPU of a handshake and a join, ms',
    ...{ work: 'idle', key: 'cpuMsPerHandshake', digits: 3, wanted: '', isGood: any },
  },
];

/** The load that the search of an earlier round found, by variant. @type {Map<string, number>} */
const loads = new Map();

await experiment({
  question: "Measures the Pusher door's fan-out and memory beside those of the native door.",
  options: `rounds N | whole 1..100 | 3 | rounds
  quick | | | short: to see that it works, not to compare
  workers N | whole 1..64 | 2 | processes with connections
  processes N | whole 1..64 | 2 | client processes
  sources N | whole 0..250 | 4 | source addresses from 127.0.0.2 on; 0: the kernel chooses one
  only LIST | list of ${FAN_OUT} idle | ${FAN_OUT},idle | what is measured
  other FOLDER | | | another checkout to measure in turn`,
  variants: ({ only, other }) =>
    only.flatMap((/** @type {string} */ work) =>
      columnsOf(other).map(({ key }) => `${work} ${key}`),
    ),

  async setup({ owner, variant, values: { workers, processes, other } }) {
    const [work, key] = variant.split(' ');
    const column = columnsOf(other).find((one) => one.key === key);
    const { checkout = '', hasPusher = true } = column ?? {};
    const apps = join(tmpdir(), `fanfare-bench-apps-${process.pid}.json`);
    writeFileSync(
      apps,
      JSON.stringify([{ id: '1', key: KEY, secret: KEY.repeat(8), shared: true }]),
    );
    /** @type {Record<string, string>} */
    const env = hasPusher ? { FANFARE_PUSHER_APPS: apps } : {};
    const probe = work === FAN_OUT ? null : preload(owner, 'collect.cjs');
    Object.assign(env, probe?.env);
    const target = await startServer('fanfare', { workers, env, checkout });
    owner.after(() => target.close());
    const options = { client: findClient('auto'), processes };
    const swarm = work === FAN_OUT ? new DoorSwarm(options, NATIVE) : new Swarm(options);
    swarm.start();
    owner.after(() => swarm.close());
    const liveBytes = probe && (() => liveBytesOf(target, probe));
    return {
      work,
      target: { ...target, profile: PROFILE_OF[key.split('-')[0]] },
      swarm,
      liveBytes,
    };
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

  report(rounds, { only, quick, other }) {
    const cells = rounds.flat();
    const columns = columnsOf(other);
    const rows = ROWS.filter(({ work }) => only.includes(work)).map((row) => {
      const values = columns.map(({ key }) => {
        const of = cells.filter(({ variant }) => variant === `${row.work} ${key}`);
        const measured = of.map(({ values }) => values[row.key] ?? Number.NaN);
        return measured.some(Number.isNaN) ? Number.NaN : median(measured);
      });
      const of = (/** @type {string} */ key) => values[columns.findIndex((one) => one.key === key)];
      return { ...row, values, of, isGood: row.isGood(of('native'), of('pusher')) };
    });
    const before = columns.filter(({ key }) => key.endsWith('-other'));
    return {
      title: 'The Pusher door beside the native one',
      note: `medians of ${rounds.length} interleaved rounds${quick ? ', quick: not to compare' : ''}`,
      lines: markdownTable(
        [
          ...['', ...columns.map(({ title }) => title), 'Pusher ÷ native'],
          ...before.map(({ title }) => `${title.split(',')[0]} ÷ ${title}`),
          'wanted',
        ],
        rows.map(({ title, digits, wanted, values, of, isGood }) => [
          ...[title, ...values.map((value) => show(value, digits))],
          show(of('pusher') / of('native'), 2),
          ...before.map(({ key }) => show(of(key.split('-')[0]) / of(key), 2)),
          wanted && `${wanted}: ${isGood ? 'yes' : 'NO'}`,
        ]),
      ),
      data: { rounds },
      failed: !quick && rows.some(({ isGood }) => !isGood),
    };
  },
});
