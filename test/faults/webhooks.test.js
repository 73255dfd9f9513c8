// webhooks.test.js: processes that record and send webhooks are killed, suspended and replaced, and
// Redis fails over, while the receiver fails a third of its requests. Every transition arrives, and the
// receiver ends with the true state.
//
// Each test ends with the same checks (`settled`): the model of the receiver is what the HTTP API
// says, the events of a room ascend, and no event is repeated that the courier knew to be delivered.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Random } from '../checker/random.js';
import { WEBHOOK_SECRET, WebhookReceiver } from '../checker/webhook-receiver.js';
import { readTruth } from '../checker/webhook-truth.js';
import { freePort, startRedis } from '../harness/redis.js';
import { startCluster } from '../harness/redis-cluster.js';
import { pause } from '../harness/run.js';
import { childrenOf, scrape, startServer, until } from '../harness/server.js';
import { each, openMany, WsClient } from '../harness/ws-client.js';
import { newSecret } from '../helpers/api.js';
import { knowLanes } from '../helpers/known-partitions.js';
import { startSentinels } from '../helpers/redis-sentinel.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const OPTIONS = { timeout: 400_000 };
/**
 * The receiver fails an event at most three times, which delays it by 36 s. If a busy machine then
 * delays an answer, too, the next attempt comes 120 s later.
 */
const SETTLED_MS = 180_000;
const FAILING = 1 / 3;
const PREFIX = 'chat.';
const GRACE_MS = 300;
/** On a busy machine an answer takes its time, and one that comes later is repeated. */
const TIMEOUT_MS = 2000;
/** Time between an answer and the commit that removes its event: a courier killed within repeats it. */
const COMMIT_MS = 5000;

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../harness/server.js').Server} Server */
/** @typedef {'redis'|'cluster'|'embedded'} Backend */

/** @param {TestContext} t @param {Backend} backend @returns {Promise<Record<string, string>>} */
async function startBackend(t, backend) {
  if (backend === 'redis') {
    const redis = await startRedis(t);
    await knowLanes(redis);
    return { REDIS_URL: redis.url };
  }
  if (backend === 'embedded') return { FANFARE_STATE_DIR: temporaryFolder(t) };
  const cluster = await startCluster(t);
  await knowLanes(cluster.primaryOf('lane-0'));
  const { primaries } = cluster;
  return { REDIS_CLUSTER: primaries.map(({ port }) => `127.0.0.1:${port}`).join(',') };
}

/** Servers with webhooks, their receiver, and clients. */
class Scene {
  /** @param {TestContext} t @param {WebhookReceiver} receiver @param {Record<string, string>} env */
  constructor(t, receiver, env) {
    this.t = t;
    this.receiver = receiver;
    this.env = env;
    this.secret = env.API_KEYS.split(' ')[1];
    /** @type {Server[]} */
    this.servers = [];
    /** @type {WsClient[]} */
    this.clients = [];
    /** When faults happened that cost a courier its knowledge. @type {number[]} */
    this.faultsMs = [];
    receiver.readTruth = () => this.truth();
    t.after(() => {
      for (const client of this.clients) client.destroy();
    });
  }

  /** @param {Record<string, string>} [env] */
  async startServer(env = {}) {
    const server = await startServer(this.t, { ...this.env, PORT: `${await freePort()}`, ...env });
    this.servers.push(server);
    return server;
  }

  /** The answer of the last server's API. */
  truth() {
    const { port } = /** @type {Server} */ (this.servers.at(-1));
    const rooms = [...this.receiver.model.lists.rooms.keys()];
    return readTruth({ port, secret: this.secret, prefixes: [PREFIX], rooms });
  }

  /**
   * @param {Server} server
   * @param {number} count
   * @param {(i: number) => {room: string, user: string}} where
   */
  async enter({ port }, count, where) {
    const clients = await openMany(count, () => new WsClient(`ws://127.0.0.1:${port}/`), 20);
    this.clients.push(...clients);
    await each(count, 50, async (i) => {
      const { room, user } = where(i);
      const answer = await clients[i].request({ type: 'join', room, presence: { user } });
      assert.equal(answer.type, 'joined');
    });
    return clients;
  }

  /** @param {string} type @returns {string[]} users, or rooms, of the events that were accepted */
  heard(type) {
    return this.receiver.accepted
      .filter((one) => one.type === type)
      .map(({ data }) => (data.user === undefined ? data.room : `${data.room} ${data.user}`))
      .sort();
  }

  /** Users that joined or left, by accepted events. @param {string} type */
  count(type) {
    return this.receiver.accepted.filter((one) => one.type === type).length;
  }

  /** A courier ends now, or the Redis that knows its deliveries. */
  fault() {
    this.faultsMs.push(performance.now());
  }

  /** Events that wait, over the servers that live. */
  async #pending() {
    let pending = 0;
    for (const { metricsPort } of this.servers) {
      const page = await scrape(metricsPort).catch(() => null);
      pending += page?.values.get('fanfare_webhooks_pending{endpoint="back-end"}') ?? 0;
    }
    return pending;
  }

  /** Waits until nothing waits and the receiver knows the truth, then checks the order and the repeated events. */
  async settled() {
    const { receiver, t } = this;
    let differences = ['unknown'];
    const started = performance.now();
    await until(
      async () => {
        // A server that is not back yet does not answer.
        const truth = await this.truth().catch(() => null);
        if (truth === null || (await this.#pending()) > 0) return false;
        differences = receiver.model.differences(truth);
        return differences.length === 0;
      },
      SETTLED_MS,
      'a model that equals the truth',
    ).catch((error) => assert.fail(`${error.message}: ${differences.slice(0, 10)}`));
    const { attempts, accepted, repeated, aside, gaps } = receiver;
    t.diagnostic(
      `${attempts.length} requests, ${accepted.length} events accepted, ${repeated.length} repeated, ` +
        `${aside} had stepped aside, ${gaps} gaps; settled in ${Math.round(performance.now() - started)} ms`,
    );
    assert.equal(receiver.unverified, 0);
    assert.deepEqual(receiver.disordered, []);
    const excused = (/** @type {number} */ ms) =>
      this.faultsMs.some((faultMs) => Math.abs(ms - faultMs) < COMMIT_MS);
    assert.deepEqual(
      repeated.filter(({ acceptedMs }) => !excused(acceptedMs)),
      [],
    );
  }
}

/**
 * @param {TestContext} t
 * @param {Record<string, string>} env of the backend
 * @param {object} [endpoint]
 */
async function setScene(t, env, endpoint = {}) {
  const receiver = await new WebhookReceiver({ random: new Random(26) }).start(t);
  const file = join(temporaryFolder(t), 'webhooks.json');
  const settings = {
    name: 'back-end',
    url: receiver.url,
    secret: WEBHOOK_SECRET,
    rooms: [`${PREFIX}*`],
    graceMs: GRACE_MS,
    timeoutMs: TIMEOUT_MS,
    concurrency: 16,
    ...endpoint,
  };
  writeFileSync(file, JSON.stringify([settings]));
  return new Scene(t, receiver, {
    ...env,
    WORKERS: '2',
    FANFARE_LIMITS: 'off',
    FANFARE_SCHEDULING: 'round-robin',
    FANFARE_PRESENCE: `${PREFIX}*`,
    FANFARE_ROOM_LINGER_MS: '100',
    API_KEYS: `checker ${newSecret()} all`,
    FANFARE_WEBHOOKS: file,
  });
}

/** Users in rooms of twenty. @param {string} name @param {number} perRoom */
const inRooms = (name, perRoom) => (/** @type {number} */ i) => ({
  room: `${PREFIX}${Math.floor(i / perRoom)}`,
  user: `${name}${i}`,
});

/** Of both workers: shared out by turns, so each has some 600. */
const MEMBERS = 1200;
const whereOf = inRooms('u', 20);
/** The user of a client of `whereOf`, as `heard` has it. @param {number} i */
const nameOf = (i) => `${whereOf(i).room} ${whereOf(i).user}`;

for (const backend of /** @type {const} */ (['redis', 'cluster', 'embedded'])) {
  test(
    `${backend}: a worker with 500 members is killed: exactly these leave, each once`,
    OPTIONS,
    async (t) => {
      const scene = await setScene(t, await startBackend(t, backend));
      const server = await scene.startServer();
      const clients = await scene.enter(server, MEMBERS, whereOf);
      await until(() => scene.count('member.joined') === MEMBERS, 60_000, 'all joins');
      scene.receiver.failing = FAILING;
      process.kill(server.workerPids()[0], 'SIGKILL');
      await until(() => clients.filter(({ isOpen }) => !isOpen).length >= 500);
      await pause(1000); // the last ones
      const gone = clients.flatMap(({ isOpen }, i) => (isOpen ? [] : [nameOf(i)]));
      assert.ok(gone.length < MEMBERS);
      await until(() => scene.count('member.left') >= gone.length, SETTLED_MS, 'all leaves');
      await scene.settled();
      assert.deepEqual(scene.heard('member.left'), gone.sort());
      assert.equal(scene.count('member.joined'), MEMBERS);
      assert.equal(scene.receiver.gaps, 0);
    },
  );
}

/** Kills a server with all its processes. @param {Server} server */
function killWhole({ pid }) {
  for (const one of [pid, ...childrenOf(pid)]) process.kill(one, 'SIGKILL');
}

for (const backend of /** @type {const} */ (['redis', 'cluster']))
  test(
    `${backend}: a server is killed with its courier while events wait: its users leave, no other`,
    OPTIONS,
    async (t) => {
      const scene = await setScene(t, await startBackend(t, backend));
      // The first courier owns the partitions.
      const a = await scene.startServer();
      const b = await scene.startServer();
      await scene.enter(b, 60, inRooms('b', 6));
      await scene.enter(a, 60, inRooms('early', 6));
      await until(() => scene.count('member.joined') === 120, 60_000, 'all joins');
      scene.receiver.failing = FAILING;
      await scene.enter(a, 100, inRooms('late', 5));
      await until(() => scene.count('member.joined') > 140, 60_000, 'some joins');
      killWhole(a);
      scene.fault();
      const early = Array.from({ length: 60 }, (_, i) => inRooms('early', 6)(i).user);
      const left = () => scene.heard('member.left').filter((name) => name.includes('early'));
      // The other server takes it for dead after 30 s of silence.
      await until(() => left().length === early.length, 150_000, 'all leaves');
      await scene.settled();
      assert.deepEqual(
        scene.heard('member.left').filter((name) => / b/.test(name)),
        [],
      );
    },
  );

test(
  'embedded: after the server was killed a gap comes first, and the state is right',
  OPTIONS,
  async (t) => {
    const scene = await setScene(t, await startBackend(t, 'embedded'));
    const first = await scene.startServer();
    await scene.enter(first, 100, inRooms('a', 5));
    await until(() => scene.count('member.joined') > 20, 60_000, 'some joins');
    scene.receiver.failing = FAILING;
    killWhole(first);
    scene.fault();
    await pause(300); // what was under way
    const before = scene.receiver.attempts.length;
    const second = await scene.startServer();
    await scene.enter(second, 40, inRooms('b', 5));
    await scene.settled();
    assert.ok(scene.receiver.gaps > 0);
    assert.equal(scene.receiver.attempts[before].type, 'webhook.gap');
  },
);

for (const backend of /** @type {const} */ (['redis', 'cluster', 'embedded']))
  test(`${backend}: the primary is killed: who was there has left`, OPTIONS, async (t) => {
    const scene = await setScene(t, await startBackend(t, backend));
    const first = await scene.startServer();
    await scene.enter(first, 60, inRooms('a', 5));
    await until(() => scene.count('member.joined') === 60, 60_000, 'all joins');
    scene.receiver.failing = FAILING;
    const children = childrenOf(first.pid);
    first.kill('SIGKILL');
    scene.fault();
    await until(
      () => children.every((pid) => childrenOf(pid).length === 0 && !isAlive(pid)),
      20_000,
    );
    await scene.enter(await scene.startServer(), 20, inRooms('b', 5));
    await scene.settled();
    if (backend !== 'embedded') assert.equal(scene.count('member.left'), 60);
  });

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

for (const backend of /** @type {const} */ (['redis', 'cluster', 'embedded']))
  test(
    `${backend}: couriers are killed again and again: every transition arrives`,
    OPTIONS,
    async (t) => {
      const scene = await setScene(t, await startBackend(t, backend));
      const server = await scene.startServer();
      scene.receiver.failing = FAILING;
      const joining = scene.enter(server, 200, inRooms('a', 5));
      for (let n = 1; n <= 3; n++) {
        await until(() => scene.count('member.joined') >= 20 * n, 60_000, 'some joins');
        process.kill(await until(() => server.courierPid()), 'SIGKILL');
        scene.fault();
      }
      await joining;
      await scene.settled();
      assert.equal(scene.count('member.joined'), 200);
      assert.equal(scene.count('room.occupied'), 40);
      assert.equal(scene.receiver.gaps, 0);
    },
  );

test('Redis fails over between the transitions and their sending', OPTIONS, async (t) => {
  const { primary, replica, sentinels } = await startSentinels(t);
  const env = {
    REDIS_SENTINELS: sentinels.map(({ port }) => `127.0.0.1:${port}`).join(','),
    REDIS_SENTINEL_NAME: 'main',
  };
  const scene = await setScene(t, env, { graceMs: 3000 });
  const server = await scene.startServer();
  await scene.enter(server, 30, inRooms('early', 5));
  await until(() => scene.count('member.joined') === 30, 60_000, 'the early joins');
  scene.receiver.failing = FAILING;
  const clients = await scene.enter(server, 60, inRooms('late', 5));
  await until(async () => (await lagOf(primary)) === 0, 10_000, 'a replica that has all');
  assert.equal(scene.count('member.joined'), 30, 'the late joins wait for the grace');
  await primary.kill();
  scene.fault();
  for (const client of clients.slice(0, 20)) client.close();
  await until(async () => (await replica.role()) === 'master', 30_000, 'a failover');
  await until(() => scene.count('member.joined') >= 70, SETTLED_MS, 'the late joins');
  await scene.settled();
  assert.ok(scene.receiver.gaps > 0);
});

/** Bytes that the replica has not confirmed. @param {import('../harness/redis.js').RedisServer} primary */
async function lagOf(primary) {
  const info = await primary.cli('INFO', 'replication');
  const [, sent] = /master_repl_offset:(\d+)/.exec(info) ?? [];
  const [, has] = /slave0:.*offset=(\d+)/.exec(info) ?? [];
  return Number(sent) - Number(has);
}

test(
  'the owner of the partitions is suspended: another takes them, and its late commits change nothing',
  OPTIONS,
  async (t) => {
    const redis = await startRedis(t);
    await knowLanes(redis);
    const scene = await setScene(t, { REDIS_URL: redis.url });
    const a = await scene.startServer();
    const b = await scene.startServer();
    const owner = await until(() => a.courierPid());
    await scene.enter(b, 30, inRooms('b', 5));
    await until(() => scene.count('member.joined') === 30, 60_000, 'the first joins');
    let isStopped = false;
    let isRefused = true;
    // Its answer lies in the socket of a process that stands still. The next owner gets a refusal.
    scene.receiver.answerOf = ({ data }) => {
      if (data.user !== 'x') return null;
      if (isStopped) return isRefused ? '500' : '204';
      process.kill(owner, 'SIGSTOP');
      scene.fault();
      isStopped = true;
      return '204';
    };
    await scene.enter(b, 1, () => ({ room: 'chat.x', user: 'x' }));
    await until(() => isStopped);
    scene.receiver.failing = FAILING;
    await scene.enter(b, 40, inRooms('later', 5));
    const ofX = () => scene.receiver.attempts.filter(({ data }) => data.user === 'x');
    await until(() => ofX().length === 2, 30_000, 'another owner');
    process.kill(owner, 'SIGCONT');
    await a.line(({ msg }) => /lost a partition/.test(msg));
    await pause(1000); // its late commits
    const waiting = await pendingIn(redis);
    assert.ok(
      waiting.some((field) => field.includes('"x"')),
      'the effect of the next owner waits',
    );
    isRefused = false;
    await scene.settled();
    assert.equal(new Set(ofX().map(({ id }) => id)).size, 1);
    assert.equal(scene.count('member.joined'), 71);
    assert.equal(scene.receiver.gaps, 0);
  },
);

/** Fields of pending events. @param {import('../harness/redis.js').RedisServer} redis */
async function pendingIn(redis) {
  const keys = (await redis.cli('--raw', 'KEYS', '*:pending')).split('\n').filter(Boolean);
  return (await Promise.all(keys.map((key) => redis.cli('--raw', 'HKEYS', key)))).flatMap((text) =>
    text.split('\n'),
  );
}

for (const backend of /** @type {const} */ (['redis', 'cluster']))
  test(
    `${backend}: reconnects, a reload and a drain within the grace send nothing`,
    OPTIONS,
    async (t) => {
      const scene = await setScene(t, await startBackend(t, backend), { graceMs: 3000 });
      const env = { FANFARE_RECONNECT_WINDOW_MS: '6000' };
      const a = await scene.startServer(env);
      const b = await scene.startServer(env);
      const comeBack = returning(scene, b, 20);
      const clients = await scene.enter(a, 20, inRooms('a', 5));
      await until(() => scene.count('member.joined') === 20, 60_000, 'all joins');
      const before = scene.receiver.accepted.length;
      scene.receiver.failing = FAILING;
      // A drain: all move to the other server.
      a.kill('SIGTERM');
      const onB = await comeBack(clients);
      await a.exited;
      // A reload of that one, which has all partitions now.
      b.kill('SIGHUP');
      const after = await comeBack(onB);
      await b.line(({ msg }) => msg === 'reload complete', 60_000);
      // Lost connections.
      for (const client of after) client.close();
      await comeBack(after);
      await pause(8000); // longer than the window and the grace
      await scene.enter(b, 1, () => ({ room: 'chat.0', user: 'bob' }));
      await until(() => scene.heard('member.joined').includes('chat.0 bob'), 60_000, 'bob');
      assert.deepEqual(
        scene.receiver.accepted.slice(before).map(({ type, data }) => `${type} ${data.user}`),
        ['member.joined bob'],
      );
      await scene.settled();
    },
  );

/**
 * Clients that return a second after their connection is closed.
 * @param {Scene} scene @param {Server} server @param {number} count
 */
function returning(scene, server, count) {
  return async (/** @type {readonly WsClient[]} */ clients) => {
    /** @type {WsClient[]} */
    const back = [];
    await each(count, count, async (i) => {
      await until(() => !clients[i].isOpen, 30_000, 'a close');
      await pause(1000);
      // A worker that drains may take it for a moment.
      for (let tries = 0; back[i] === undefined && tries < 20; tries++)
        await scene
          .enter(server, 1, () => inRooms('a', 5)(i))
          .then(([client]) => {
            back[i] = client;
          })
          .catch(() => pause(200));
    });
    return back;
  };
}
