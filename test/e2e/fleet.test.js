// fleet.test.js: surveys of real servers (src/worker/fleet.js). The asker is a further worker in this
// process, connected to the relay of a server.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Redis } from 'ioredis';
import pino from 'pino';
import { RateLimiter } from '../../src/admission/rate-limit.js';
import { RefusedNames } from '../../src/admission/refused.js';
import { createBackend } from '../../src/backend/index.js';
import { loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { EVERYONE } from '../../src/hub/hub.js';
import { createCounters } from '../../src/observability/counters.js';
import { ANNOUNCEMENTS, encodeNotice, KIND } from '../../src/protocol/publication.js';
import { createCloseAll } from '../../src/worker/close-all.js';
import { Fleet } from '../../src/worker/fleet.js';
import { FleetMember } from '../../src/worker/fleet-member.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, samples, startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { buildHub, describeWorker } from '../helpers/hub.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('../harness/server.js').Owner} Owner */

const ENV = {
  ...NO_LIMITS,
  // No server replaces a worker that a test freezes.
  FANFARE_WORKER_TIMEOUT_MS: '600000',
  FANFARE_HISTORY: 'h.*=50/60s',
  FANFARE_PRESENCE: 'p.*',
};

/** Long enough for a busy machine: a worker that serves always answers within it. */
const DEADLINE_MS = 10_000;

/** @type {Record<string, (t: Owner) => Promise<{env: Record<string, string>, count: number}>>} */
const TOPOLOGIES = {
  'one server': async () => ({ env: { ...ENV, WORKERS: '2' }, count: 1 }),
  'two servers on Redis': async (t) => ({
    env: { ...ENV, WORKERS: '1', REDIS_URL: (await startRedis(t)).url },
    count: 2,
  }),
};

/**
 * @param {Owner} t
 * @param {string} topology
 * @param {Record<string, string>} [more]
 */
async function start(t, topology, more = {}) {
  const { env: base, count } = await TOPOLOGIES[topology](t);
  const folder = temporaryFolder(t);
  const env = { ...base, ...more };
  const servers = [];
  for (let i = 0; i < count; i++)
    servers.push(await startServer(t, { ...env, SERVER_ID: `s${i}`, TMPDIR: folder }));
  const fleet = await asker(t, env, folder, DEADLINE_MS);
  // Two workers, on one server or on two, and the asker.
  await until(async () => (await fleet.broker.countWorkers()) === 3, 15_000, 'all workers');
  await until(async () => !(await fleet.rooms()).isPartial, 15_000, 'answers of all workers');
  return { servers, fleet, env, folder };
}

/**
 * A worker without connections.
 * @param {Owner} t
 * @param {Record<string, string>} env
 * @param {string} folder that has the sockets of the relays
 * @param {number} deadlineMs
 */
async function asker(t, env, folder, deadlineMs) {
  const { config } = loadConfig(env);
  assert.ok(config);
  const [relay] = readdirSync(folder).filter((name) => name.startsWith('fanfare-'));
  const rules = new RoomRules(config.history);
  const historyOf = (/** @type {string} */ room) => rules.ruleFor(room);
  const backend = await createBackend({
    config,
    log: pino({ level: 'silent' }),
    counters: createCounters(),
    relayPath: join(folder, relay, 'relay'),
    workerId: 'asker',
    historyRules: rules,
    announcements: ANNOUNCEMENTS,
    events: { onPublishLag() {}, onRoundTrip() {} },
  });
  const { broker, presence } = backend;
  const { hub, turn, operations, scheduler, counters } = buildHub({
    config,
    broker,
    historyOf,
    presence: presence ?? undefined,
    covers: (room) => room.startsWith('p.'),
  });
  const member = new FleetMember({
    hub,
    joins: operations.joins,
    sessions: null,
    scheduler,
    refused: new RefusedNames(),
    limiter: new RateLimiter(config, counters),
    surveys: turn.line('surveys', (act) => act()),
    closeAll: createCloseAll(turn),
    describe: describeWorker,
  });
  const { tracker } = hub;
  const fleet = new Fleet({
    hub,
    broker,
    occupancy: null,
    historyOf,
    tracker,
    member,
    counters,
    deadlineMs,
  });
  await backend.open({ onLost() {}, onKeep() {} });
  t.after(async () => {
    scheduler.close();
    fleet.close();
    await backend.close();
  });
  await broker.start({ onPublication: hub.broadcast.bind(hub), onState() {} });
  await until(() => broker.state === 'up', 5000, 'the broker');
  await presence?.start();
  await hub.start();
  return fleet;
}

/** Servers without tokens. @type {Record<string, () => ReturnType<typeof start>>} */
const plain = Object.fromEntries(
  Object.keys(TOPOLOGIES).map((topology) => [topology, shared((t) => start(t, topology))]),
);

for (const topology of Object.keys(TOPOLOGIES)) {
  /** Each test has users and rooms of its own. */
  const withTokens = shared((t) => start(t, topology, { JWT_SECRET: SECRET }));

  test(`${topology}: rooms, users, disconnect, join and leave on all workers`, {
    timeout: 60_000,
  }, async (t) => {
    const { servers, fleet } = await plain[topology]();
    /** @type {Awaited<ReturnType<typeof connect>>[]} */
    const clients = [];
    for (let i = 0; i < 8; i++) {
      const client = await connect(t, servers[i % servers.length].port);
      client.send({ type: 'join', room: 'p.1', presence: { user: `user-${i % 4}` } });
      await client.next(({ type }) => type === 'joined');
      clients.push(client);
    }
    assert.deepEqual(await fleet.rooms(), {
      rooms: [{ room: 'p.1', connections: 8 }],
      isPartial: false,
    });
    assert.deepEqual((await fleet.online(['user-1', 'nobody', 'user-3'])).users, [
      'user-1',
      'user-3',
    ]);
    await until(async () => (await fleet.room('p.1')).users === 4, 5000, 'four users');

    assert.equal(await fleet.join('user-1', ['h.1', 'x']), 2);
    for (const client of [clients[1], clients[5]]) {
      // A room without history is joined at once.
      await client.next(({ type, room }) => type === 'joined' && room === 'x');
      await client.next(({ type, room }) => type === 'joined' && room === 'h.1');
    }
    clients[1].send({ type: 'message', room: 'h.1', payload: 'here' });
    await clients[5].next(({ payload }) => payload === 'here');
    const room = await fleet.room('h.1');
    assert.deepEqual([room.connections, room.position?.offset], [2, 1]);
    assert.equal(await fleet.leave('user-1', ['x']), 2);
    await clients[5].next(({ type, reason }) => type === 'left' && reason === 'removed');

    await fleet.deleteHistory('h.1');
    const deleted = await fleet.room('h.1');
    assert.notEqual(deleted.position?.epoch, room.position?.epoch);
    await clients[1].next(({ type }) => type === 'resync');

    const sinceMs = performance.now();
    assert.equal(await fleet.disconnect({ user: 'user-1' }), 2);
    await until(() => clients[1].close !== null && clients[5].close !== null, 5000, 'the closes');
    t.diagnostic(`closed after ${Math.round(performance.now() - sinceMs)} ms`);
    assert.equal(clients[1].close?.code, 4503);
    await until(
      async () => (await fleet.online(['user-0', 'user-1'])).users.join() === 'user-0',
      5000,
      'the leave',
    );
    clients[0].send({ type: 'hello', id: 1 });
    const { connectionId } = await clients[0].next(({ type }) => type === 'welcome');
    assert.equal(await fleet.disconnect({ connectionId }, 4005), 1);
    await until(() => clients[0].close !== null, 5000, 'the close');
    assert.equal(clients[0].close?.code, 4005);
    await until(async () => (await fleet.room('p.1')).connections === 5, 5000, 'five');
  });

  test(`${topology}: users are those of the tokens, and a renewed token keeps a granted room`, {
    timeout: 60_000,
  }, async (t) => {
    const { servers, fleet } = await withTokens();
    const rights = { rooms: { join: ['own.*'] } };
    const clients = await Promise.all(
      ['alice', 'alice', 'bob'].map((sub, i) =>
        connect(t, servers[i % servers.length].port, {
          headers: { Authorization: `Bearer ${token({ sub, ...rights })}` },
        }),
      ),
    );
    await until(async () => (await fleet.online(['alice', 'bob'])).users.length === 2, 5000);
    const [alice] = clients;
    assert.equal(await fleet.join('alice', ['granted']), 2);
    await alice.next(({ type, room }) => type === 'joined' && room === 'granted');
    alice.send({ type: 'auth', token: token({ sub: 'alice', ...rights }), id: 1 });
    await alice.next(({ id }) => id === 1);
    assert.equal((await fleet.room('granted')).connections, 2);
    assert.equal(await fleet.leave('alice', ['granted']), 2);
    await alice.next(({ type, room }) => type === 'left' && room === 'granted');
    alice.send({ type: 'join', room: 'granted', id: 2 });
    assert.equal((await alice.next(({ id }) => id === 2)).error, 'PERMISSION_DENIED');
    assert.equal(await fleet.disconnect({ user: 'alice' }), 2);
    assert.deepEqual((await fleet.online(['alice', 'bob'])).users, ['bob']);
  });

  test(`${topology}: some connections of a user, a reason, and another time of expiry`, {
    timeout: 60_000,
  }, async (t) => {
    const { servers, fleet } = await withTokens();
    const clients = await Promise.all(
      ['carol', 'carol', 'carol', 'dan'].map((sub, i) =>
        connect(t, servers[i % servers.length].port, {
          headers: { Authorization: `Bearer ${token({ sub })}` },
        }),
      ),
    );
    const ids = [];
    for (const client of clients)
      ids.push((await client.ask({ type: 'hello' }, 'welcome')).connectionId);
    const [only] = ids;
    assert.equal(await fleet.join({ user: 'dan', only }, ['r']), 0);
    assert.equal(await fleet.join({ user: '', only }, ['r']), 0);
    assert.equal(await fleet.join({ user: 'carol', only }, ['r']), 1);
    await clients[0].next(({ type, room }) => type === 'joined' && room === 'r');
    assert.equal((await fleet.room('r')).connections, 1);
    assert.equal(await fleet.leave({ user: 'carol', except: [only] }, ['r']), 0);
    assert.equal(await fleet.leave({ user: 'carol', only }, ['r']), 1);
    assert.equal(await fleet.disconnect({ user: 'carol', except: [only] }, 3512, 'why'), 2);
    await until(() => clients[1].close !== null && clients[2].close !== null, 5000, 'the closes');
    assert.deepEqual(clients[1].close, { code: 3512, reason: 'why' });
    assert.equal(await fleet.renew({ user: 'nobody' }, Date.now()), 0);
    assert.equal(await fleet.renew({ user: 'carol' }, 0), 1);
    assert.equal(await fleet.renew({ user: 'carol', only }, Date.now() + 1000), 1);
    await until(() => clients[0].close !== null, 8000, 'the expiry');
    assert.equal(clients[0].close?.code, 4001);
    assert.equal(clients[3].close, null);
    for (const act of [
      () => fleet.disconnect({ user: 'carol' }, 2999),
      () => fleet.disconnect({ user: 'carol' }, 4000, 'é'.repeat(62)),
      () => fleet.disconnect({ user: '', except: [only] }),
      () => fleet.join({ user: 'carol', only: '{}' }, ['r']),
    ])
      await assert.rejects(act(), RangeError);
  });

  test(`${topology}: a frozen worker makes the answers partial, until it is back`, {
    timeout: 60_000,
  }, async (t) => {
    const { servers, env, folder } = await plain[topology]();
    const fleet = await asker(t, env, folder, 1000);
    await until(async () => !(await fleet.rooms()).isPartial, 15_000, 'answers of all workers');
    const [frozen] = servers[0].workerPids();
    process.kill(frozen, 'SIGSTOP');
    assert.equal((await fleet.rooms()).isPartial, true);
    await assert.rejects(fleet.disconnect({ user: 'nobody' }), { code: 'OUTCOME_UNKNOWN' });
    process.kill(frozen, 'SIGCONT');
    await until(async () => !(await fleet.rooms()).isPartial, 10_000, 'answers of all workers');
  });
}

test('forged surveys and answers end no worker, and change no more than a true survey could', {
  timeout: 60_000,
}, async (t) => {
  const { servers, fleet, env } = await plain['two servers on Redis']();
  // Those of the tests before have left.
  await until(async () => (await fleet.rooms()).rooms.length === 0);
  const client = await connect(t, servers[0].port);
  await client.join('r');
  const stranger = new Redis(env.REDIS_URL);
  t.after(() => stranger.disconnect());
  const survey = 'abcdefghijklmnop';
  const texts = [
    '[',
    'null',
    '[[[[]]]]',
    JSON.stringify([survey, '*', 'rooms', {}]),
    JSON.stringify([survey, `*${survey}`, '__proto__', {}]),
    JSON.stringify([survey, `*${survey}`, 'disconnect', { user: null, connectionId: null }]),
    JSON.stringify([survey, `*${survey}`, 'leave', { user: 'a', rooms: [{}] }]),
    JSON.stringify([survey, `*${survey}`, 'rooms', { prefix: '', after: '', limit: 1e300 }]),
    JSON.stringify([survey, survey, [['r', 1e9]]]),
    `"${'x'.repeat(3_000_000)}"`,
  ];
  const rooms = [EVERYONE, fleet.replyRoom, 'r'];
  for (const text of texts) {
    for (const kind of [KIND.SURVEY, KIND.ANSWER]) {
      const notice = encodeNotice(kind, text);
      const length = Buffer.alloc(4);
      length.writeUInt32BE(notice.length);
      for (const room of rooms)
        await stranger.publish(`fanfare:room:{${room}}`, Buffer.concat([length, notice]));
    }
  }
  // True surveys of a stranger cost the workers their answers, and nothing else.
  const request = JSON.stringify([
    survey,
    `*${survey}`,
    'rooms',
    { prefix: '', after: '', limit: 1 },
  ]);
  const notice = encodeNotice(KIND.SURVEY, request);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(notice.length);
  const many = Buffer.concat(Array(200).fill(Buffer.concat([length, notice])));
  for (let i = 0; i < 50; i++) await stranger.publish(`fanfare:room:{${EVERYONE}}`, many);
  assert.deepEqual(await fleet.rooms(), {
    rooms: [{ room: 'r', connections: 1 }],
    isPartial: false,
  });
  client.send({ type: 'ping', id: 1 });
  await client.next(({ type }) => type === 'pong');
  for (const { metricsPort } of servers) {
    const page = samples(await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text());
    assert.equal(page.get('fanfare_worker_restarts_total'), 0);
    assert.ok((page.get('fanfare_malformed_publications_total') ?? 0) >= 10, 'counted');
  }
});
