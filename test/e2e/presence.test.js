// presence.test.js: presence on real servers: embedded and over Redis, with clients that come, go,
// and lose their worker.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { samples, startServer, until } from '../harness/server.js';
import { connect, connectInTurn } from '../helpers/clients.js';

const TIMEOUT_MS = 40_000;
/** A worker's death must be noticed within this time while its primary lives. */
const AT_ONCE_MS = 2000;
const CLIENTS = 10;
const ENV = { FANFARE_PRESENCE: 'team.*', FANFARE_SCHEDULING: 'round-robin', WORKERS: '2' };

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../helpers/clients.js').Client} Client */

/** @param {Client} client @param {string} user @param {unknown} [info] */
async function join(client, user, info) {
  const answer = await client.ask(
    { type: 'join', room: 'team.a', presence: { user, info } },
    'joined',
  );
  assert.equal(answer.type, 'joined', JSON.stringify(answer));
}

/**
 * @param {Client} client
 * @returns {Promise<string[]>} the users, sorted
 */
async function users(client) {
  client.send({ type: 'presence', room: 'team.a', id: 'who' });
  const { members, count, error } = await client.next(({ id }) => id === 'who');
  assert.equal(error, undefined);
  assert.equal(members.length, count);
  return members.map((/** @type {{user: string}} */ { user }) => user).sort();
}

/** Events as `+user` and `-user`. @param {Client} client @returns {string[]} */
function events(client) {
  return client
    .all(({ type, event }) => type === 'presence' && event !== undefined)
    .map(({ event, member }) => `${event === 'join' ? '+' : '-'}${member.user}`);
}

/** @param {number} metricsPort */
async function metrics(metricsPort) {
  const page = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  return samples(page);
}

test('embedded: users come and go over two workers, and those of a killed worker leave at once', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const server = await startServer(t, ENV);
  const watcher = await connect(t, server.port);
  await watcher.ask({ type: 'join', room: 'team.a', presence: false }, 'joined');
  /** @type {Client[]} */
  const clients = [];
  for (let i = 0; i < 8; i++) {
    const client = await connect(t, server.port);
    clients.push(client);
    await join(client, `user-${i}`, { i });
  }
  assert.deepEqual(
    await users(watcher),
    clients.map((_, i) => `user-${i}`),
  );
  const tab = await connect(t, server.port);
  await join(tab, 'user-0');
  clients[1].send({ type: 'leave', room: 'team.a' });
  clients[2].socket.close();
  await until(() => events(watcher).length === 10);
  assert.deepEqual(events(watcher).slice(8).sort(), ['-user-1', '-user-2']);
  const first = watcher.all(({ event }) => event === 'join')[0];
  assert.deepEqual(first, {
    type: 'presence',
    room: 'team.a',
    event: 'join',
    member: { user: 'user-0', info: { i: 0 } },
  });
  const page = await metrics(server.metricsPort);
  assert.equal(page.get('fanfare_presence_events_total{event="join"}'), 8);
  assert.equal(page.get('fanfare_presence_events_total{event="leave"}'), 2);

  // Round-robin: neighbours are on different workers, so one of two survives the death of either.
  const before = events(watcher).length;
  const present = await users(watcher);
  const [victim] = server.workerPids();
  const killedMs = performance.now();
  process.kill(victim, 'SIGKILL');
  await until(() => clients.some(({ close }) => close?.code === 1006) || watcher.close !== null);
  // The worker that answers may not know yet that the other one was killed.
  const survivor = () =>
    /** @type {Client} */ ([watcher, ...clients].find(({ close }) => close === null));
  const stayed = () => {
    const names = clients.flatMap(({ close }, i) =>
      close === null && i !== 1 ? [`user-${i}`] : [],
    );
    return [...new Set([...names, ...(tab.close === null ? ['user-0'] : [])])].sort();
  };
  await until(async () => {
    const seen = await users(survivor()).catch(() => []);
    return seen.join() === stayed().join();
  }, AT_ONCE_MS);
  t.diagnostic(
    `the users of a killed worker had left after ${Math.round(performance.now() - killedMs)} ms (embedded)`,
  );
  // The list changes first, and the events follow.
  const left = () => present.filter((user) => !stayed().includes(user)).map((user) => `-${user}`);
  await until(
    () => watcher.close !== null || events(watcher).slice(before).sort().join() === left().join(),
    AT_ONCE_MS,
    'a leave of each user of the killed worker',
  );
});

test('over Redis: a user counts once over two servers; the machine of a killed worker reports it at once', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const env = { ...ENV, REDIS_URL: redis.url };
  const [a, b] = await Promise.all([
    startServer(t, { ...env, SERVER_ID: 'a' }),
    startServer(t, { ...env, SERVER_ID: 'b' }),
  ]);
  const watcher = await connect(t, b.port);
  await join(watcher, 'watcher');
  const clients = await connectInTurn(t, a.port, CLIENTS);
  for (const [i, client] of clients.entries()) await join(client, `user-${i}`);
  const tab = await connect(t, b.port);
  await join(tab, 'user-0', 'tab');
  await until(async () => (await users(watcher)).length === CLIENTS + 1);
  // A join is announced after its answer: those of two workers in any order.
  const joined = () => events(watcher).sort();
  await until(() => joined().length >= CLIENTS + 1);
  assert.deepEqual(joined(), [...clients.map((_, i) => `+user-${i}`), '+watcher'].sort());

  const [victim] = a.workerPids();
  const killedMs = performance.now();
  process.kill(victim, 'SIGKILL');
  await until(() => clients.filter(({ close }) => close !== null).length > 0);
  const expected = () =>
    [
      ...new Set([
        'user-0',
        'watcher',
        ...clients.flatMap(({ close }, i) => (close ? [] : [`user-${i}`])),
      ]),
    ].sort();
  await until(async () => (await users(watcher)).join() === expected().join(), AT_ONCE_MS);
  t.diagnostic(
    `the users of a killed worker had left after ${Math.round(performance.now() - killedMs)} ms (Redis)`,
  );
  const left = clients.flatMap(({ close }, i) => (close && i !== 0 ? [`-user-${i}`] : []));
  assert.ok(left.length >= 3, `${left}`);
  await until(() => events(watcher).length === CLIENTS + 1 + left.length);
  assert.deepEqual(
    events(watcher)
      .slice(CLIENTS + 1)
      .sort(),
    left.sort(),
  );
  await until(async () => {
    const [one, two] = await Promise.all([metrics(a.metricsPort), metrics(b.metricsPort)]);
    const reaped = (/** @type {Map<string, number>} */ page) =>
      page.get('fanfare_presence_reaped_workers_total') ?? 0;
    return reaped(one) + reaped(two) === 1;
  });

  // An orderly end leaves nothing behind either.
  a.kill('SIGTERM');
  assert.equal((await a.exited).code, 0);
  await until(async () => (await users(watcher)).join() === 'user-0,watcher', AT_ONCE_MS);
  b.kill('SIGTERM');
  assert.equal((await b.exited).code, 0);
  const keys = (await redis.cli('--raw', 'KEYS', '*')).split('\n').filter((key) => key !== '');
  assert.deepEqual(keys.map((key) => key.replace('fanfare:presence:{*}:', '')).sort(), [
    'cleared',
    'mark',
  ]);
});
