// at-rest.js: how often the timers of each kind of process run in a minute in which nothing happens.
//   node test/simulation/at-rest.js redis
// Prints JSON: {runs: {worker: {"worker/worker.js": 60, …}, …}, wakeUps: {worker: 120, …}}. Timers that
// run in the same millisecond share a wake-up. unit/timers-at-rest compares both with a table.

import { World } from './world.js';

const SETTLED_MS = 20_000;
const MINUTE_MS = 60_000;
const ENDPOINT = {
  name: 'back-end',
  url: 'http://127.0.0.1:9100/',
  secret: `whsec_${Buffer.alloc(24, 7).toString('base64')}`,
  types: ['room.occupied', 'member.joined'],
};
/** With most of what has a timer. */
const ENV = {
  FANFARE_FAST_PATHS: 'off',
  FANFARE_WEBHOOKS: '/etc/webhooks.json',
  FANFARE_PRESENCE: 'c.*',
  FANFARE_HISTORY: 'h.*=60/300s',
  FANFARE_CENTRIFUGO: 'on',
  JWT_SECRET: 'at-rest-at-rest-at-rest-at-rest-at-rest',
};

const [topology] = /** @type {('redis'|'embedded')[]} */ (process.argv.slice(2));
const world = new World({
  ...{ seed: 1, topology, servers: 1, workers: 1, pieces: 0, leastReplicas: 0, env: ENV },
  files: { '/etc/webhooks.json': JSON.stringify([ENDPOINT]) },
});
const { fleet } = world;
const { simulator } = fleet;
await fleet.prepare();
/** Runs by kind of process and file. @type {Record<string, Record<string, number>>} */
const runs = {};
/** Milliseconds in which timers ran, by kind of process. @type {Record<string, Set<number>>} */
const times = {};
for (const name of /** @type {const} */ (['setInterval', 'setTimeout'])) countRuns(name);
world.servers[0].start();
await simulator.run(SETTLED_MS);
for (const kind of Object.keys(runs)) runs[kind] = {};
for (const kind of Object.keys(times)) times[kind].clear();
await simulator.run(SETTLED_MS + MINUTE_MS);
fleet.restoreGlobals();
const wakeUps = Object.fromEntries(Object.entries(times).map(([kind, { size }]) => [kind, size]));
process.stdout.write(JSON.stringify({ runs, wakeUps, faults: fleet.faults }));
process.exit(0);

/** @param {'setInterval'|'setTimeout'} name */
function countRuns(name) {
  const set = /** @type {any} */ (globalThis)[name];
  const counted = (
    /** @type {Function} */ act,
    /** @type {number} */ ms,
    /** @type {any[]} */ ...more
  ) => {
    const file = /\/src\/([\w/-]+\.js)/.exec(new Error().stack ?? '')?.[1];
    const { name: owner = '' } = /** @type {any} */ (simulator.current);
    const kind = /\/([a-z]+)-\d+$/.exec(owner)?.[1];
    if (file === undefined || kind === undefined) return set(act, ms, ...more);
    return set(
      (/** @type {any[]} */ ...args) => {
        runs[kind] ??= {};
        runs[kind][file] = (runs[kind][file] ?? 0) + 1;
        times[kind] ??= new Set();
        times[kind].add(Math.floor(performance.now()));
        act(...args);
      },
      ms,
      ...more,
    );
  };
  Object.defineProperty(globalThis, name, { value: counted, configurable: true, writable: true });
}
