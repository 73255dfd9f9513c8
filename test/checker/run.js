#!/usr/bin/env node
// run.js: runs random faults for some minutes, one after another, and checks the record.
//
//   node test/checker/run.js --minutes 10 --servers 2 --workers 2 --clients 200 --rooms 20 --rate 500 [--seed S]
//   node test/checker/run.js --minutes 1 --only workerKilled,redisFrozen --keep record.jsonl
//   node test/checker/run.js --minutes 2 --only slowReaders,publishesLost --bytes 2000 --small-buffers
//
// With --subscriptions server the primary of each server subscribes for its workers.
//
// With --small-buffers the kernel keeps some 100 KB for a connection instead of megabytes, so slow
// readers lag within seconds. It needs a network namespace.
//
// The seed chooses the faults, their order and their lengths, and the publishes. The timing of the
// machine is not repeatable. Exits with 0 if no invariant was violated.
//
// As root on Linux it restarts itself in a network namespace, because some faults are firewall
// rules. Elsewhere these faults are left out, and the run reports that.

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { pause, print, run } from '../../loadtest/lib/run.js';
import { becomePrivate, canBePrivate, isPrivate } from '../helpers/private-network.js';
import { NEMESES, possibleNemeses } from './nemesis.js';
import { printReport } from './report.js';
import { startTrial } from './trial.js';

const { values: options } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    servers: { type: 'string', default: '2' },
    workers: { type: 'string', default: '2' },
    clients: { type: 'string', default: '200' },
    rooms: { type: 'string', default: '20' },
    'rooms-per-client': { type: 'string', default: '3' },
    publishers: { type: 'string', default: '20' },
    rate: { type: 'string', default: '500' },
    // So few that some missed messages are gone, and clients must get a notice.
    'history-size': { type: 'string', default: '150' },
    embedded: { type: 'boolean', default: false },
    subscriptions: { type: 'string', default: 'worker' },
    plain: { type: 'boolean', default: false },
    bytes: { type: 'string', default: '0' },
    'small-buffers': { type: 'boolean', default: false },
    only: { type: 'string' },
    seed: { type: 'string' },
    keep: { type: 'string' },
  },
});
/**
 * The pause between two faults. It is sometimes long enough for all to settle, so that all messages
 * accepted before must have arrived.
 */
const QUIET_MS = /** @type {const} */ ([1000, 8000]);
const LONG_QUIET_MS = 17_000;
const LONG_QUIET_SHARE = 0.15;
const BEGINNING_MS = 2000;
/**
 * Of all clients so many lose their connection with each fault, and come back up to so long after
 * its end.
 */
const LEAVING_SHARE = 0.05;
const LATE_MS = 4000;
/** Least, first and most bytes of a socket's buffer. */
const SMALL_BUFFERS = '4096 65536 65536';
/** Start, end and check take so long on top. */
const REST_MS = 180_000;

const minutes = Number(options.minutes);
const seed =
  options.seed === undefined ? Math.floor(Math.random() * 2 ** 32) : Number(options.seed);
const names = options.only?.split(',') ?? Object.keys(NEMESES);
for (const name of names)
  if (!(name in NEMESES)) throw new Error(`there are ${Object.keys(NEMESES).join(', ')}`);
const wanted = new Set(names.map((name) => NEMESES[name]));
const skipped = isPrivate
  ? []
  : [...wanted].filter(({ needsFirewall }) => needsFirewall).map(({ name }) => name);

const needsNetwork = skipped.length > 0 || options['small-buffers'];
if (needsNetwork && !isPrivate && canBePrivate())
  await becomePrivate(fileURLToPath(import.meta.url), process.argv.slice(2));

const hasSmallBuffers = isPrivate && options['small-buffers'];
if (hasSmallBuffers)
  for (const name of ['tcp_wmem', 'tcp_rmem'])
    writeFileSync(`/proc/sys/net/ipv4/${name}`, SMALL_BUFFERS);

await run(`random faults for ${minutes} minutes, seed ${seed}`, trial, minutes * 60_000 + REST_MS);

/** @param {import('../../loadtest/lib/run.js').Run} test */
async function trial(test) {
  const trial = await startTrial(test, {
    servers: Number(options.servers),
    workers: Number(options.workers),
    seed,
    historySize: Number(options['history-size']),
    embedded: options.embedded,
    viaProxy: !options.embedded,
    env: options.embedded ? {} : { REDIS_SUBSCRIPTIONS: options.subscriptions },
    path: options.keep,
    load: {
      clients: Number(options.clients),
      rooms: Number(options.rooms),
      hasHistory: !options.plain,
      roomsPerClient: Number(options['rooms-per-client']),
      publishers: Number(options.publishers),
      rate: Number(options.rate),
      bytes: Number(options.bytes),
    },
  });
  const { random, workload } = trial;
  const leaving = Math.ceil(LEAVING_SHARE * workload.clients.length);
  await trial.begin();
  const started = performance.now();
  await pause(BEGINNING_MS);
  while (performance.now() - started < minutes * 60_000) {
    const nemesis = random.pick(possibleNemeses(trial).filter((one) => wanted.has(one)));
    const second = ((performance.now() - started) / 1000).toFixed(1);
    const holdMs = random.between(...nemesis.holdMs);
    print(
      `     ${second} s: ${nemesis.name}${holdMs > 0 ? ` for ${(holdMs / 1000).toFixed(1)} s` : ''}`,
    );
    for (const client of random.shuffled(workload.clients).slice(0, leaving))
      client.leave(holdMs + random.between(0, LATE_MS));
    // Others do not read meanwhile, so that they lag during the fault.
    const slow = hasSmallBuffers ? random.shuffled(workload.clients).slice(0, leaving) : [];
    for (const client of slow) client.pause();
    await trial.suffer(nemesis, holdMs);
    for (const client of slow) client.resume();
    await pause(random.next() < LONG_QUIET_SHARE ? LONG_QUIET_MS : random.between(...QUIET_MS));
  }
  const lags = await endedLags(trial.servers);
  const report = await trial.finish();
  print('');
  printReport(report);
  print('');
  for (const { id, anomaly, violations } of report.findings)
    test.check(`${id}, ${anomaly}`, 0, violations);
  const oddities = trial.oddities();
  test.check('what nobody expects to be said or logged', 0, oddities.length);
  for (const oddity of oddities.slice(0, 10)) print(`     ${oddity.slice(0, 500)}`);
  test.check('the record is complete', 'yes', report.isComplete ? 'yes' : 'no');
  test.note('messages no publisher was free for', workload.heldBack);
  test.note('members that lagged', lags);
  test.note(
    'faults skipped',
    `${skipped.length}${skipped.map((name) => `; ${name}: needs root, unshare, ip and iptables`).join('')}`,
  );
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
