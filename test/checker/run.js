#!/usr/bin/env node
// run.js: runs random faults for some minutes, one after another, and checks the record. `--help`
// lists its options.
//
// The seed draws a profile, too: the topology of the backend, and how fast readers are. The title
// names it. With `--readers slow` messages have 2,000 bytes, and the kernel keeps some 100 KB for a
// connection instead of megabytes, so slow readers lag within seconds. That needs a network
// namespace.
//
// With `--webhooks` the servers send their states to a receiver that fails a third of its requests,
// and couriers are killed and frozen, too. After 60 s of calm the receiver must know who is in which
// room (webhook-watch.js).
//
// The seed chooses the faults, their order and their lengths, and the publishes. The timing of the
// machine is not repeatable. Exits with 0 if no invariant was violated.
//
// As root on Linux it restarts itself in a network namespace, because some faults are firewall
// rules. Elsewhere these faults are left out, and the run reports that.

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { readOptions } from '../harness/options.js';
import { pause, print, run } from '../harness/run.js';
import { becomePrivate, canBePrivate, isPrivate } from '../helpers/private-network.js';
import { NEMESES, possibleNemeses } from './nemesis.js';
import { Random } from './random.js';
import { printReport } from './report.js';
import { clusterStore, regionStore, sentinelStore } from './stores.js';
import { startTrial } from './trial.js';

/** What a run draws, and the server of each topology; listed twice: twice as often. */
const PROFILE = Object.freeze({
  topology: ['redis', 'redis', 'embedded', 'sentinel', 'cluster', 'region'],
  readers: ['quick', 'slow'],
});
const { values: options, given } = readOptions(
  `Random faults for some minutes, one after another, and a check of every delivery.

  node test/run.js random
  node test/run.js random --minutes 2 --topology sentinel --readers slow --clients 20 --rate 100`,
  `minutes M | number 0.1..600 | 10 | duration
  servers N | whole 1..8 | 2 | servers; one with the embedded backend
  workers N | whole 1..8 | 2 | workers of each
  clients N | whole 1..2000 | 200 | clients
  rooms N | whole 1..1000 | 20 | rooms
  rooms-per-client N | whole 1..1000 | 3 | rooms that each client joins
  publishers N | whole 1..1000 | 20 | clients that publish
  rate N | number 1..10000 | 500 | messages a second of all publishers
  history-size N | whole 1..10000 | 150 | messages a room keeps; few, so that some are gone and clients must get a notice
  topology T | one of redis embedded sentinel cluster region | | backend; drawn by the seed
  readers R | one of quick slow | | speed of the readers; drawn by the seed
  pusher | | | adds clients of Pusher's protocol in a shared app
  centrifugo | | | adds centrifuge-js over each of its transports
  webhooks | | | adds a receiver of webhooks, and faults of couriers
  plain | | | rooms without history
  only LIST | list of ${Object.keys(NEMESES).join(' ')} | | faults to choose from
  seed S | whole 0.. | | draws the profile and the faults
  keep FILE | | | keeps the record of the run`,
  { tail: `faults: ${Object.keys(NEMESES).join(', ')}` },
);
/**
 * The pause between two faults. It is sometimes long enough for all to settle, so that all messages
 * accepted before must have arrived.
 */
const QUIET_MS = /** @type {const} */ ([1000, 8000]);
const LONG_QUIET_SHARE = 0.15;
const BEGINNING_MS = 2000;
/**
 * This part of all clients loses its connection with each fault, and returns up to this long after
 * its end.
 */
const LEAVING_SHARE = 0.05;
const LATE_MS = 4000;
const STORES = Object.freeze({
  sentinel: sentinelStore,
  region: regionStore,
  /**
   * Only faults promote replicas. If Redis promoted one while its primary is frozen, the primary would
   * pass on earlier messages of plain rooms when it thaws, after later ones (docs/guarantees.md).
   * @param {import('./trial.js').Lifetime} t
   */
  cluster: (t) => clusterStore(t, { hasReplicas: true, failsOver: false }),
});
/** Publishers with idempotency keys, and producers that expect positions. */
const KEYED = 4;
const APPENDERS = 4;
/** Of padding, if readers are slow. */
const BYTES = 2000;
/** Least, first and most bytes of a socket's buffer. */
const SMALL_BUFFERS = '4096 65536 65536';
/** Start, end and check take so long on top. */
const REST_MS = 180_000;
const WEBHOOKS_REST_MS = 150_000;

const { minutes } = options;
const seed = given.has('seed') ? options.seed : Math.floor(Math.random() * 2 ** 32);
/** @type {string[]} */
const names = given.has('only') ? options.only : Object.keys(NEMESES);
const wanted = new Set(names.map((name) => NEMESES[name]));
const skipped = isPrivate
  ? []
  : [...wanted].filter(({ needsFirewall }) => needsFirewall).map(({ name }) => name);

const profile = drawProfile(new Random(seed + 2));
const { topology, readers } = profile;

if (!isPrivate && canBePrivate())
  await becomePrivate(fileURLToPath(import.meta.url), [
    ...process.argv.slice(2),
    ...['--seed', `${seed}`],
  ]);

const isSlow = readers === 'slow' && isPrivate;
if (isSlow)
  for (const name of ['tcp_wmem', 'tcp_rmem'])
    writeFileSync(`/proc/sys/net/ipv4/${name}`, SMALL_BUFFERS);

const title = `random faults for ${minutes} minutes, seed ${seed}: ${Object.values(profile).join(', ')}`;
const restMs = REST_MS + (options.webhooks ? WEBHOOKS_REST_MS : 0);
await run(title, trial, minutes * 60_000 + restMs);

/** Draws the values that no option sets. @param {Random} random */
function drawProfile(random) {
  const pick = (/** @type {'topology'|'readers'} */ name) => {
    const drawn = random.pick(PROFILE[name]);
    return given.has(name) ? options[name] : drawn;
  };
  return { topology: pick('topology'), readers: pick('readers') };
}

/** @param {import('../harness/run.js').Run} test */
async function trial(test) {
  const embedded = topology === 'embedded';
  const trial = await startTrial(test, {
    servers: embedded ? 1 : options.servers,
    workers: options.workers,
    seed,
    historySize: options.historySize,
    embedded,
    viaProxy: topology === 'redis' || topology === 'region',
    store: STORES[/** @type {keyof typeof STORES} */ (topology)],
    path: options.keep || undefined,
    hasWebhooks: options.webhooks,
    load: {
      clients: options.clients,
      rooms: options.rooms,
      hasHistory: !options.plain,
      roomsPerClient: options.roomsPerClient,
      publishers: options.publishers,
      rate: options.rate,
      ...(!options.plain && { keyed: KEYED, appenders: APPENDERS }),
      bytes: isSlow ? BYTES : 0,
      isMixed: true,
      hasAudiences: !options.plain,
      hasPusher: options.pusher,
      hasCentrifugo: options.centrifugo,
    },
  });
  const { random, workload } = trial;
  const { population } = workload;
  const leaving = Math.ceil(LEAVING_SHARE * workload.clients.length);
  const slowOnes = Math.ceil(2 * LEAVING_SHARE * workload.readers.length);
  await trial.begin();
  const started = performance.now();
  await pause(BEGINNING_MS);
  while (performance.now() - started < minutes * 60_000) {
    const possible = possibleNemeses(trial).filter((one) => wanted.has(one));
    if (possible.length === 0) throw new Error(`none of ${names} is possible now`);
    const nemesis = random.pick(possible);
    const second = ((performance.now() - started) / 1000).toFixed(1);
    const holdMs = random.between(...nemesis.holdMs);
    print(
      `     ${second} s: ${nemesis.name}${holdMs > 0 ? ` for ${(holdMs / 1000).toFixed(1)} s` : ''}`,
    );
    const delayMs = () => holdMs + random.between(0, LATE_MS);
    for (const client of random.shuffled(workload.clients).slice(0, leaving))
      client.leave(delayMs());
    population?.lose(LEAVING_SHARE, delayMs);
    // Others do not read meanwhile, so that they lag during the fault.
    const slow = isSlow ? random.shuffled(workload.readers).slice(0, slowOnes) : [];
    for (const client of slow) client.pause();
    await trial.suffer(nemesis, holdMs);
    for (const client of slow) client.resume();
    if (random.next() < LONG_QUIET_SHARE) await population?.census();
    else await pause(random.between(...QUIET_MS));
  }
  const lags = await endedLags(trial.servers);
  const report = await trial.finish();
  print('');
  printReport(report);
  print('');
  for (const { id, anomaly, violations } of report.findings)
    test.check(`${id}, ${anomaly}`, 0, violations);
  if (trial.webhooks !== null) checkWebhooks(test, trial.webhooks, trial.differences);
  const oddities = trial.oddities();
  test.check('what nobody expects to be said or logged', 0, oddities.length);
  for (const oddity of oddities.slice(0, 10)) print(`     ${oddity.slice(0, 500)}`);
  test.check('the record is complete', 'yes', report.isComplete ? 'yes' : 'no');
  test.note('messages no publisher was free for', workload.heldBack);
  test.note('members that lagged', lags);
  test.note('users revoked', population?.revoked);
  const { compared = 0, skipped: unread = 0 } = population?.states ?? {};
  test.check('comparisons of states in calm', '> 0', compared, compared > 0);
  test.note('comparisons left out', unread);
  test.note(
    'faults skipped',
    `${skipped.length}${skipped.map((name) => `; ${name}: needs root, unshare, ip and iptables`).join('')}`,
  );
}

/**
 * @param {import('../harness/run.js').Run} test
 * @param {import('./webhook-watch.js').WebhookWatch} watch
 * @param {readonly string[]} differences
 */
function checkWebhooks(test, { receiver, repeated, known }, differences) {
  const { attempts, accepted, disordered, unverified, gaps, aside } = receiver;
  test.check('what the receiver of webhooks has wrong', 0, differences.length);
  for (const one of differences.slice(0, 10)) print(`     ${one}`);
  test.check('events of a room in another order', 0, disordered.length);
  for (const one of disordered.slice(0, 10)) print(`     ${one}`);
  test.check('events repeated without a fault', 0, repeated.length);
  for (const one of repeated.slice(0, 10)) print(`     ${JSON.stringify(one)}`);
  test.check('requests with a wrong signature', 0, unverified);
  test.check('events accepted', '> 0', accepted.length, accepted.length > 0);
  const repeats = `${receiver.repeated.length} repeated in faults`;
  test.note('it knew', known);
  test.note('requests', `${attempts.length}; ${repeats}, ${aside} events overtaken, ${gaps} gaps`);
}

/**
 * How the lags of members have ended, on the servers as they run now.
 * @param {readonly import('./trial.js').Fanfare[]} servers
 */
async function endedLags(servers) {
  /** @type {Map<string, number>} */
  const ended = new Map();
  for (const server of servers) {
    const metrics = await server.metrics().catch(() => new Map());
    for (const outcome of ['caught_up', 'resync', 'left']) {
      const value = metrics.get(`fanfare_lagging_members_ended_total{outcome="${outcome}"}`) ?? 0;
      ended.set(outcome, (ended.get(outcome) ?? 0) + value);
    }
  }
  return [...ended].map(([outcome, count]) => `${count} ${outcome}`).join(', ');
}
