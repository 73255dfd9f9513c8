// relay.js: what a publication costs the relay of the embedded backend: CPU of its process, as in
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
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { markdownTable, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import { exactCpuSecondsOf } from './machine.js';
import { saveReport } from './script.js';

const WORKERS = 2;
const PAYLOAD_BYTES = 120;
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

/** A relay and its workers' ends, of one checkout. */
class Bench {
  /** @param {string} folder */
  constructor(folder) {
    this.folder = folder;
    /** @type {import('../../src/backend/embedded/broker.js').EmbeddedBroker[]} */
    this.brokers = [];
    this.arrived = 0;
    /** CPU per publication by load, µs. @type {Record<string, {relay: number[], workers: number[]}>} */
    this.costs = {};
  }

  async start() {
    const { RelayClient } = await load(this.folder, 'relay-client.js');
    const { EmbeddedBroker } = await load(this.folder, 'broker.js');
    this.child = fork(fileURLToPath(import.meta.url), ['serve', this.folder]);
    const [path] = await once(this.child, 'message');
    for (let i = 0; i < WORKERS; i++) {
      const link = new RelayClient({ path, log });
      await link.open();
      const broker = new EmbeddedBroker({ link, roomLingerMs: 0, historyOf });
      await broker.start({ onPublication: () => this.arrived++, onState() {} });
      this.brokers.push(broker);
      for (const room of Object.values(ROOMS).flat()) await broker.subscribe(room);
    }
  }

  /** @param {string} title of a load @param {boolean} isCounted */
  async round(title, isCounted) {
    const { perTurn, publications } = LOADS[/** @type {keyof LOADS} */ (title)];
    const rooms = ROOMS[title];
    const pids = [/** @type {number} */ (this.child?.pid), process.pid];
    const before = pids.map(exactCpuSecondsOf);
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
    while (this.arrived < sent * WORKERS) await sleep(1);
    const [relay, workers] = pids.map(
      (pid, i) => (1e6 * (exactCpuSecondsOf(pid) - before[i])) / sent,
    );
    if (!isCounted) return;
    this.costs[title] ??= { relay: [], workers: [] };
    this.costs[title].relay.push(relay);
    this.costs[title].workers.push(workers);
  }

  close() {
    this.child?.disconnect();
  }
}

async function measure() {
  const { values } = readOptions(
    "Measures the relay's CPU per publication.",
    `rounds N | whole 1..1000 | 9 | of each load
    other FOLDER | | | another checkout to measure in turn
    save PATH | | | path of the report without its ending; without, a file of bench/results/`,
  );
  const { rounds, other, save } = values;
  const here = fileURLToPath(new URL('../../', import.meta.url));
  const benches = [here, ...(other ? [other] : [])].map((folder) => new Bench(folder));
  for (const bench of benches) await bench.start();
  // The first two rounds are a warm-up.
  for (let round = -2; round < rounds; round++)
    for (const title of Object.keys(LOADS))
      for (const bench of benches) await bench.round(title, round >= 0);
  for (const bench of benches) bench.close();
  const median = (/** @type {number[]} */ list) =>
    show(list.toSorted((a, b) => a - b)[list.length >> 1], 2);
  const rows = Object.keys(LOADS).flatMap((title) =>
    benches.map(({ folder, costs }) => {
      const { relay, workers } = costs[title];
      return [title, folder, median(relay), show(Math.min(...relay), 2), median(workers)];
    }),
  );
  saveReport({
    script: 'relay',
    title: 'CPU per publication on the embedded backend',
    note: `medians of ${rounds} rounds`,
    lines: markdownTable(['load', 'version', 'relay, µs', 'lowest', 'two workers, µs'], rows),
    data: { costs: benches.map(({ folder, costs }) => ({ folder, costs })) },
    save,
  });
  process.exit(0);
}

if (process.argv[2] === 'serve') await serve(process.argv[3]);
else await measure();
