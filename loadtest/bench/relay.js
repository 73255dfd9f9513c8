// relay.js: the cost of a publication for the embedded backend's relay: CPU of its process, as in
// the primary, and of two workers' ends together, which share this process.
//
//   node loadtest/bench/relay.js                     this version, 9 rounds of each load
//   node loadtest/bench/relay.js --other /tmp/before    and another checkout, round by round in turn
//
// The workload of a whole server hides the relay: its own few microseconds beside the workers' and
// the clients' hundred. So here the workers' ends only publish and count what arrives. Each turn
// they publish together and wait for the answers.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { until } from '../../test/harness/server.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { cpuSecondsOf } from './machine.js';

const WORKERS = 2;
const PAYLOAD_BYTES = 120;
const ARRIVE_MS = 30_000;
/** Rooms, publications of each worker in a turn, and of all workers in a round. */
const LOADS = Object.freeze({
  'one busy room': { name: 'busy', rooms: 1, perTurn: 50, publications: 30_000 },
  '1,000 small rooms': { name: 'small', rooms: 1000, perTurn: 50, publications: 30_000 },
  'ten rooms with history': { name: 'kept', rooms: 10, perTurn: 50, publications: 30_000 },
  'one publication in a turn': { name: 'single', rooms: 1000, perTurn: 1, publications: 4000 },
});
const RULE = { size: 100, ttlMs: 60_000 };
/** Names are made once, as a worker has them. @type {Record<string, string[]>} */
const ROOMS = Object.fromEntries(
  Object.entries(LOADS).map(([title, { name, rooms }]) => [
    title,
    Array.from({ length: rooms }, (_, i) => `${name}-${i}`),
  ]),
);
const historyOf = (/** @type {string} */ room) => (room.startsWith('kept') ? RULE : null);
const log = /** @type {any} */ ({ debug() {}, info() {}, warn() {}, error() {} });

/** @param {string} folder of a checkout @param {string} file of its embedded backend */
const load = (folder, file) =>
  import(pathToFileURL(resolve(folder, 'src/backend/embedded', file)).href);

/** The process of the relay. @param {string} folder */
async function serve(folder) {
  const { RelayServer } = await load(folder, 'relay-server.js');
  const relay = new RelayServer({ log, historyOf });
  await relay.start();
  process.send?.(relay.path);
  process.once('disconnect', () => relay.close());
}

/** @typedef {{relay: number, workers: number}} Cost */

/** A relay and its workers' ends, of one checkout. */
class Bench {
  /** @param {string} folder */
  constructor(folder) {
    this.folder = folder;
    /** @type {import('../../src/backend/embedded/broker.js').EmbeddedBroker[]} */
    this.brokers = [];
    this.arrived = 0;
  }

  async start() {
    const { RelayLink } = await load(this.folder, 'relay-link.js');
    const { EmbeddedBroker } = await load(this.folder, 'broker.js');
    this.child = fork(fileURLToPath(import.meta.url), ['serve', this.folder]);
    const [path] = await once(this.child, 'message');
    for (let i = 0; i < WORKERS; i++) {
      const link = new RelayLink({ path, log });
      await link.open();
      const broker = new EmbeddedBroker({ link, roomLingerMs: 0, historyOf });
      await broker.start({ onPublication: () => this.arrived++, onState() {} });
      this.brokers.push(broker);
      for (const room of Object.values(ROOMS).flat()) await broker.subscribe(room);
    }
  }

  /** CPU per publication. @param {string} title of a load @returns {Promise<Cost>} in µs */
  async round(title) {
    const { perTurn, publications } = LOADS[/** @type {keyof typeof LOADS} */ (title)];
    const rooms = ROOMS[title];
    const pids = [/** @type {number} */ (this.child?.pid), process.pid];
    const before = pids.map((pid) => cpuSecondsOf([pid]));
    this.arrived = 0;
    let sent = 0;
    while (sent < publications) {
      const turn = this.brokers.flatMap((broker) =>
        Array.from({ length: perTurn }, () =>
          broker.publish(rooms[sent++ % rooms.length], Buffer.allocUnsafe(PAYLOAD_BYTES)),
        ),
      );
      await Promise.all(turn);
    }
    await until(() => this.arrived >= sent * WORKERS, ARRIVE_MS, 'the arrival of everything');
    const [relay, workers] = pids.map((pid, i) => (1e6 * (cpuSecondsOf([pid]) - before[i])) / sent);
    return { relay, workers };
  }

  close() {
    this.child?.disconnect();
  }
}

const HERE = fileURLToPath(new URL('../../', import.meta.url));

if (process.argv[2] === 'serve') await serve(process.argv[3]);
else
  await experiment({
    question: "Measures the relay's CPU per publication.",
    options: `rounds N | whole 1..1000 | 9 | of each load
    other FOLDER | | | another checkout to measure in turn`,
    variants: ({ other }) => [HERE, ...(other ? [other] : [])],
    async setup({ owner, variant }) {
      const bench = new Bench(variant);
      owner.after(() => bench.close());
      await bench.start();
      return bench;
    },
    async measure(bench) {
      /** @type {Record<string, Cost>} */
      const costs = {};
      // The first two runs measure mostly the compiler: the third one counts.
      for (let run = 0; run < 3; run++)
        for (const title of Object.keys(LOADS)) costs[title] = await bench.round(title);
      return { folder: bench.folder, costs };
    },
    report: (rounds) => ({
      title: 'CPU per publication on the embedded backend',
      note: `medians of ${rounds.length} rounds`,
      lines: markdownTable(
        ['load', 'version', 'relay, µs', 'lowest', 'two workers, µs'],
        Object.keys(LOADS).flatMap((title) =>
          rounds[0].map(({ folder }, i) => {
            const relay = rounds.map((round) => round[i].costs[title].relay);
            const workers = rounds.map((round) => round[i].costs[title].workers);
            const figures = [median(relay), Math.min(...relay), median(workers)];
            return [title, folder, ...figures.map((us) => show(us, 2))];
          }),
        ),
      ),
      data: { rounds },
    }),
  });
