// webhook-transitions-redis.test.js: events for webhooks on Redis: several servers, outages, and their
// cost.

import assert from 'node:assert/strict';
import { optionsOf } from '../../src/operations/message.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { partitionOf } from '../../src/webhooks/queue.js';
import { startRedis } from '../harness/redis.js';
import { startSentinels, until } from '../helpers/redis-sentinel.js';
import { eventually } from './suite.js';
import {
  assertSequences,
  begin,
  Fleet,
  fleetOf,
  only,
  settingsOf,
  TIMES,
  textOf,
} from './transition-fleet.js';

/** @typedef {import('../../src/backend/redis/broker.js').RedisBroker} RedisBroker */

/** A server is dead after this time, if its relay dies, too. */
const TTL_MS = 3000;

only(
  'redis',
  'two servers record a room once, and one clears up after the other has died as a whole',
  async (t) => {
    const fleet = await fleetOf(t, 'redis');
    fleet.times = { ...TIMES, ttlMs: TTL_MS };
    const [one, two] = [await fleet.server(), await fleet.server()];
    const [a, b] = [await one(), await two()];
    for (const worker of [a, b]) {
      worker.reporter.count('room', 1);
      worker.reporter.connect('ann');
      worker.join('room', 'ann');
    }
    a.join('room', 'bob');
    a.reporter.count('alone', 1);
    await fleet.recorded(5);
    // No other server learns of it: the machine is gone, too.
    a.machine.nameSession('');
    a.kill();
    const texts = await fleet.recorded(7);
    assert.deepEqual(texts.sort(), [
      'member.joined room ann',
      'member.joined room bob',
      'member.left room bob',
      'room.occupied alone',
      'room.occupied room',
      'room.vacated alone',
      'user.connected ann',
    ]);
    assertSequences(await fleet.events());
  },
);

only(
  'redis',
  'transitions of an outage are recorded when Redis returns, and those it still has are not',
  async (t) => {
    const redis = await startRedis(t, { args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    const fleet = new Fleet(t, redis.settings, 'contract-outage:', settingsOf({}));
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    a.reporter.count('stays', 1);
    b.reporter.count('left', 1);
    a.join('stays', 'ann');
    a.join('stays', 'leaver');
    await fleet.recorded(4);
    await redis.stop();
    await eventually(() => a.broker.state === 'degraded' && b.broker.state === 'degraded');
    a.leave('stays', 'leaver');
    a.reporter.count('new', 1);
    a.join('stays', 'new');
    b.reporter.count('left', 0);
    await redis.restart();
    const texts = await fleet.recorded(8);
    assert.deepEqual(texts.sort(), [
      'member.joined stays ann',
      'member.joined stays leaver',
      'member.joined stays new',
      'member.left stays leaver',
      'room.occupied left',
      'room.occupied new',
      'room.occupied stays',
      'room.vacated left',
    ]);
  },
);

only(
  'redis',
  'a message whose idempotency key Redis does not mark is lost with a gap, and its repetition comes once',
  async (t) => {
    const redis = await startRedis(t);
    const fleet = new Fleet(t, redis.settings, 'contract-mark:', settingsOf({}));
    const { broker, reporter } = await (await fleet.server())();
    const publication = encodePublication(KIND.MESSAGE, 1, 0, 'ann', Buffer.from('1'), 0, 1);
    const once = optionsOf({ owner: 'ann', idempotencyKey: 'one' }, publication);
    await broker.publish('room', publication, once);
    const message = { sender: 'ann', payload: '1', offset: undefined, ...once };
    await redis.cli('ACL', 'SETUSER', 'default', '-set');
    for (let i = 1; i <= 2; i++) {
      reporter.publish('room', message);
      await eventually(async () => (await fleet.queue.lost(partitionOf('room'))).count === i);
    }
    await redis.cli('ACL', 'SETUSER', 'default', '+set');
    for (let i = 0; i < 2; i++) reporter.publish('room', message);
    assert.deepEqual(await fleet.recorded(1), ['message.published room']);
  },
);

only(
  'redis',
  'after Redis has lost everything, a receiver of all events has the truth, in new lives',
  async (t) => {
    const redis = await startRedis(t);
    const fleet = new Fleet(t, redis.settings, 'contract-loss:', settingsOf({}));
    const a = await (await fleet.server())();
    a.reporter.count('room', 1);
    a.reporter.connect('ann');
    a.join('room', 'ann');
    await fleet.reached(3);
    const before = await fleet.events();
    await redis.cli('FLUSHALL');
    await fleet.recorded(3);
    const again = await fleet.events();
    assert.deepEqual(again.map(textOf).sort(), before.map(textOf).sort());
    assertSequences(again);
    const former = new Set(before.map(({ epoch }) => epoch));
    assert.ok(again.every(({ epoch }) => !former.has(epoch)));
    assert.deepEqual(await a.occupancy.list({}), [{ room: 'room', connections: 1 }]);
  },
);

only(
  'redis cluster',
  'a worker that dies between the recording and the partition loses nothing',
  async (t) => {
    const fleet = await fleetOf(t, 'redis cluster');
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    b.reporter.count('other', 1);
    await fleet.reached(1);
    const { recording } =
      /** @type {import('../../src/backend/redis/event-store.js').RedisEventStore} */ (
        a.reporter.store
      );
    recording.move = async () => {
      throw new Error('the process ends here');
    };
    a.reporter.count('room', 1);
    a.reporter.connect('ann');
    for (let i = 0; i < 300; i++) a.join('room', `user-${i}`);
    const outbox = recording.keys.partitionKey('room', 'outbox');
    const { redis } = /** @type {any} */ (recording);
    await eventually(async () => (await redis.llen(outbox)) >= 301);
    assert.equal((await fleet.events()).length, 1);
    a.kill();
    const texts = await fleet.recorded(605);
    assert.equal(new Set(texts).size, 605);
    assertSequences(await fleet.events());
  },
);

only('redis cluster', 'a message that cannot reach its partition now follows later', async (t) => {
  const fleet = await fleetOf(t, 'redis cluster');
  const a = await (await fleet.server())();
  a.reporter.count('room', 1);
  await fleet.reached(1);
  const { recording } =
    /** @type {import('../../src/backend/redis/event-store.js').RedisEventStore} */ (
      a.reporter.store
    );
  t.mock.method(recording, 'move', () => Promise.reject(new Error('no node')), { times: 2 });
  a.reporter.publish('room', { sender: 'ann', payload: '1', offset: undefined });
  assert.deepEqual(await fleet.recorded(2), ['room.occupied room', 'message.published room']);
  assert.equal((await fleet.queue.lost(recording.partitionOf('room'))).count, 0);
});

only(
  'redis cluster',
  'events of a primary whose clock is behind reach their partition, and count as a loss once',
  async (t) => {
    const fleet = await fleetOf(t, 'redis cluster');
    const a = await (await fleet.server())();
    const publish = () =>
      a.reporter.publish('room', { sender: 'ann', payload: '1', offset: undefined });
    publish();
    await fleet.reached(1);
    const { recording } =
      /** @type {import('../../src/backend/redis/event-store.js').RedisEventStore} */ (
        a.reporter.store
      );
    const partition = recording.partitionOf('room');
    const { redis, keys } = /** @type {any} */ (recording);
    // The primary before it numbered events an hour ahead, and the room's sequence is lost.
    await redis.set(keys.movedOf(partition, 'room'), `${Date.now() + 3_600_000}:7`);
    await redis.del(keys.partitionKey('room', 'sequence'));
    for (let count = 2; count <= 3; count++) {
      publish();
      await fleet.reached(count);
    }
    assert.deepEqual((await fleet.queue.lost(partition)).count, 1);
    assert.equal(await redis.llen(keys.partitionKey('room', 'outbox')), 0);
  },
);

for (const topology of /** @type {const} */ (['redis', 'redis cluster']))
  only(
    topology,
    'a message is recorded without its payload while the partition has a backlog',
    async (t) => {
      const fleet = await fleetOf(t, topology);
      const a = await (await fleet.server())();
      const payload = '{"a":",\\"payload\\":","payload":1,"seq":2,"é":0}';
      for (let i = 0; i < 1100; i++)
        a.reporter.publish('room', { sender: ',\\"payload\\":', payload, offset: undefined });
      a.join('room', 'ann');
      await fleet.reached(1101);
      const events = await fleet.events();
      const messages = events.filter(({ type }) => type === 'message.published');
      assert.deepEqual(messages[900].payload, JSON.parse(payload));
      const { payload: none, bytes, from, seq } = messages[1099];
      assert.deepEqual([none, bytes, from], [undefined, Buffer.byteLength(payload), ',"payload":']);
      assert.ok(seq >= 1100);
      assertSequences(events);
    },
  );

only(
  'redis',
  'a join costs the same commands whether or not webhooks cover the members',
  async (t) => {
    /** @param {Parameters<typeof settingsOf>[0]|null} wanted */
    const commandsOf = async (wanted) => {
      const fleet = await fleetOf(t, 'redis', wanted ?? { types: [] });
      if (wanted === null) fleet.recorder = null;
      const a = await (await fleet.server())();
      const { node } = /** @type {RedisBroker} */ (a.broker);
      const { redis } = /** @type {NonNullable<typeof node>} */ (node).commands;
      await a.presence.read('room');
      /** @type {string[]} */
      const sent = [];
      const send = redis.sendCommand.bind(redis);
      redis.sendCommand = (command, ...rest) => {
        if (!['info', 'publish'].includes(command.name)) sent.push(command.name);
        return send(command, ...rest);
      };
      for (const room of ['room', 'other']) {
        a.join(room, 'ann');
        a.reporter.count(room, 1);
        await a.presence.read(room);
      }
      return sent.map((name) => name.replace('evalsha', 'eval'));
    };
    const without = await commandsOf(null);
    // Of each room: its registration, the change, the read.
    assert.deepEqual(without, ['sadd', 'eval', 'eval', 'sadd', 'eval', 'eval']);
    assert.deepEqual(await commandsOf({ types: ['member.joined', 'member.left'] }), without);
  },
);

only(
  'redis by Sentinel',
  'after a failover the state of a receiver is the truth, and a gap is known',
  async (t) => {
    const { primary, settings } = await startSentinels(t);
    const fleet = new Fleet(t, settings, 'contract-failover:', settingsOf({}));
    const worker = await fleet.server();
    const workers = [await worker(), await worker()];
    const here = workers.map(() => new Set());
    let step = 0;
    const change = () => {
      const who = step % 2;
      const [room, user] = [`room-${step % 5}`, `user-${(step * 7) % 23}`];
      const key = `${room} ${user}`;
      if (here[who].delete(key)) workers[who].leave(room, user);
      else {
        here[who].add(key);
        workers[who].join(room, user);
      }
      step++;
    };
    workers[0].reporter.count('room-0', 1);
    for (let i = 0; i < 100; i++) change();
    await fleet.reached(50);
    // A courier has seen the mark of this primary.
    await fleet.queue.release(0, Number(await fleet.queue.acquire(0)));
    for (let i = 0; i < 100; i++) change();
    await primary.kill();
    await eventually(() => workers.every(({ broker }) => broker.state === 'degraded'));
    for (let i = 0; i < 51; i++) change();
    workers[0].reporter.count('room-0', 0);
    workers[1].reporter.count('room-1', 1);
    await until(async () => workers.every(({ broker }) => broker.state === 'up'));
    for (let i = 0; i < 20; i++) change();

    // The state of a receiver that counts the latest event of a user or room.
    const stateOf = async () => {
      /** @type {Map<string, string>} */
      const latest = new Map();
      for (const { type, room, user = '' } of await fleet.events())
        latest.set(`${room} ${user}`.trim(), type);
      return [...latest]
        .flatMap(([key, type]) => (/joined|occupied/.test(type) ? [key] : []))
        .sort();
    };
    const truth = [...new Set([...here[0], ...here[1], 'room-1'])].sort();
    await until(async () => `${await stateOf().catch(() => [])}` === `${truth}`);
    await until(() =>
      fleet.queue.acquire(0).then(
        (fence) => fence !== null,
        () => false,
      ),
    );
    assert.equal((await fleet.queue.lost(0)).count, 1);
  },
);

only(
  'redis cluster',
  'without a loss, a session costs a command for each primary and one more, whatever the rooms',
  async (t) => {
    const fleet = await fleetOf(t, 'redis cluster', { types: [] });
    fleet.recorder = null;
    const start = await fleet.server();
    const a = await start();
    const { redis } = /** @type {any} */ (/** @type {RedisBroker} */ (a.broker).connection);
    const key = `${fleet.config.redisPrefix}presence:{*}:visits`;
    const isVisited = (/** @type {string[]} */ states) =>
      states.filter((state) => state === 'done').length === 3;
    await eventually(async () => isVisited(await redis.hvals(key)));
    const join = async (/** @type {typeof a} */ worker, /** @type {string} */ user) => {
      for (let i = 0; i < 1000; i++) worker.join(`room-${i}`, user);
      await worker.presence.read('room-999');
    };
    await join(a, 'ann');
    const b = await start();
    const { visits } = /** @type {import('../../src/backend/redis/presence.js').RedisPresence} */ (
      b.presence
    );
    // Its session begins with a visit.
    await eventually(() =>
      b.presence.read('room-0').then(
        () => true,
        () => false,
      ),
    );
    await eventually(() => visits?.isIdle === true);
    /** @type {string[]} */
    const sent = [];
    const { connection } = /** @type {RedisBroker} */ (b.broker);
    const watched = [connection.redis, .../** @type {any} */ (connection).redis.nodes('master')];
    for (const one of /** @type {any[]} */ (watched)) {
      const send = one.sendCommand.bind(one);
      one.sendCommand = (/** @type {any} */ command, /** @type {any[]} */ ...rest) => {
        if (['eval', 'scan'].includes(command.name)) sent.push(command.name);
        if (String(command.args).includes(':visits')) sent.push('visits');
        return send(command, ...rest);
      };
    }
    await join(b, 'bob');
    assert.deepEqual(sent, [], 'none for rooms and users');
    visits?.check();
    await eventually(() => sent.length > 0 && visits?.isIdle === true);
    // The cluster client passes the script on to its node.
    assert.deepEqual([...new Set(sent)].sort(), ['eval', 'visits']);
    assert.equal(sent.filter((name) => name === 'eval').length, 3);
  },
);

begin();
