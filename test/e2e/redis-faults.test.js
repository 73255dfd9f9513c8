// redis-faults.test.js: the broker on a real Redis that is killed, frozen, full, locked, or that
// drops its subscribers.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { describe, test } from 'node:test';
import { parseHistoryRules } from '../../src/config/room-patterns.js';
import { redisSettings, startRedis } from '../harness/redis.js';
import { atOnce } from '../helpers/at-once.js';
import { isOff } from '../helpers/hidden/fields.js';
import { NO_TLS, startTlsRedis } from '../helpers/redis-tls.js';
import { delivers, eventually, outcome, start } from '../helpers/redis-worker.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

const TIMEOUT_MS = 30_000;
const { rules: history } = parseHistoryRules(['kept=100/300s']);

test('a stall of this process does not count as a fault of Redis', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const a = await start(t, redis);
  const published = outcome(a.broker.publish('room', Buffer.from('x')));
  await new Promise((resolve) => setImmediate(resolve));
  for (let i = 0; i < 2; i++) {
    const end = performance.now() + 3500;
    while (performance.now() < end) {
      // Nothing else runs.
    }
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  assert.equal(await published, 'OK');
  assert.equal(a.counters.probeMisses, 0);
  assert.equal(a.state, 'up');
});

// Most of their time is waiting. Each has a Redis of its own.
describe('the Redis broker', { concurrency: 4 }, () => {
  test('a killed Redis: refused at once, and delivery within 3 s of its return after 5 s', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    await b.broker.subscribe('room');
    await redis.kill();
    const killedAt = performance.now();
    await eventually(() => a.state === 'degraded' && b.state === 'degraded', 1000);
    while (performance.now() - killedAt < 5000) {
      const lost = outcome(a.broker.publish('room', Buffer.from('lost')));
      assert.equal(await atOnce(lost), 'UNAVAILABLE');
      await assert.rejects(b.broker.subscribe('other'), { code: 'UNAVAILABLE' });
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await redis.restart();
    const tookMs = await delivers(a, b, 3000);
    t.diagnostic(`delivery ${Math.round(tookMs)} ms after the return`);
    await eventually(() => a.state === 'up' && b.state === 'up', 3000);
    assert.ok(!b.texts.includes('lost'));
    assert.ok(b.counters.brokerReconnects >= 1);
    // Wanted since it was refused, and subscribed with the rest.
    await a.broker.publish('other', Buffer.from('wanted'));
    await eventually(() => b.texts.includes('wanted'), 1000);
    // Not a line for every attempt.
    assert.ok(a.lines.length < 10, JSON.stringify(a.lines));
  });

  test('a frozen Redis: OUTCOME_UNKNOWN, then refused at once, noticed within 5 s, healed within 3 s', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    await b.broker.subscribe('room');
    redis.freeze();
    const frozenAt = performance.now();
    const outcomes = await Promise.all([
      outcome(a.broker.publish('room', Buffer.from('frozen'))),
      outcome(a.broker.publish('other', Buffer.from('frozen'))),
    ]);
    assert.deepEqual(outcomes, ['OUTCOME_UNKNOWN', 'OUTCOME_UNKNOWN']);
    assert.ok(performance.now() - frozenAt < 2500);
    // The connection is known to be stuck: no more waiting for time-outs.
    const refused = outcome(a.broker.publish('room', Buffer.from('refused')));
    assert.equal(await atOnce(refused), 'UNAVAILABLE');
    await eventually(
      () => a.state === 'degraded' && b.state === 'degraded' && b.counters.probeMisses >= 2,
      5000,
    );
    const noticedMs = performance.now() - frozenAt;
    await eventually(() => !b.node.subscriptions.isLive, 5000 - noticedMs);
    t.diagnostic(`dead subscriber noticed after ${Math.round(performance.now() - frozenAt)} ms`);
    await new Promise((resolve) => setTimeout(resolve, 8000 - (performance.now() - frozenAt)));
    redis.thaw();
    const tookMs = await delivers(a, b, 3000);
    t.diagnostic(`delivery ${Math.round(tookMs)} ms after the thaw`);
    await eventually(() => a.state === 'up' && b.state === 'up', 3000);
    assert.ok(!b.texts.includes('refused'));
  });

  test('a subscriber that Redis drops comes back with all its rooms', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    const rooms = Array.from({ length: 2500 }, (_, i) => `room-${i}`);
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    await redis.cli('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await eventually(() => b.state === 'degraded', 1000);
    const tookMs = await eventually(() => a.state === 'up' && b.state === 'up', 3000);
    t.diagnostic(`up again after ${Math.round(tookMs)} ms`);
    await Promise.all(rooms.map((room) => a.broker.publish(room, Buffer.from(room))));
    await eventually(() => b.texts.length === rooms.length, 3000);
    assert.equal(b.counters.brokerReconnects, 1);
    assert.deepEqual(
      b.states.map(({ state }) => state),
      ['up', 'degraded', 'up'],
    );
  });

  test('a publish in flight when Redis is killed has an unknown outcome, never UNAVAILABLE', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis);
    // Frozen first, so that nothing is answered in between.
    redis.freeze();
    const published = [];
    for (let i = 0; i < 500; i++)
      published.push(outcome(a.broker.publish(`room-${i % 50}`, Buffer.from('x'))));
    published.push(outcome(a.broker.publish('room', Buffer.alloc(100_000))));
    // The publisher writes in a setImmediate of its own, which runs before this one.
    await new Promise((resolve) => setImmediate(resolve));
    await redis.kill();
    assert.deepEqual(new Set(await Promise.all(published)), new Set(['OUTCOME_UNKNOWN']));
    assert.equal(a.node.publisher.unanswered.messages, 0);
    assert.equal(a.node.publisher.unanswered.bytes, 0);
  });

  test('a full Redis refuses a large publication, and no part of it is delivered', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    await b.broker.subscribe('room');
    await redis.cli('CONFIG', 'SET', 'maxmemory', '1');
    const outcomes = await Promise.all([
      outcome(a.broker.publish('room', Buffer.from('before'))),
      outcome(a.broker.publish('room', Buffer.alloc(100_000, 'x'))),
      outcome(a.broker.publish('room', Buffer.from('after'))),
    ]);
    // Redis passes messages on when it is full; it stores nothing.
    assert.deepEqual(outcomes, ['OK', 'UNAVAILABLE', 'OK']);
    await eventually(() => b.texts.includes('after'), 1000);
    assert.deepEqual(b.texts, ['before', 'after']);
    await redis.cli('CONFIG', 'SET', 'maxmemory', '0');
    assert.equal(await outcome(a.broker.publish('room', Buffer.alloc(100_000, 'x'))), 'OK');
    await eventually(() => b.texts.length === 3, 1000);
  });

  test('a large publication whose body is gone is skipped, and its room goes on', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    await b.broker.subscribe('room');
    const fetch = b.broker.inbox.fetch;
    // The body is deleted between its arrival and its being fetched.
    b.broker.inbox.fetch = async (...reference) => {
      await redis.cli('DEL', b.broker.keys.blobOf(reference[0], reference[1]));
      return fetch(...reference);
    };
    await Promise.all([
      a.broker.publish('room', Buffer.from('before')),
      a.broker.publish('room', Buffer.alloc(100_000, 'x')),
      a.broker.publish('room', Buffer.from('after')),
    ]);
    await eventually(() => b.texts.includes('after'), 3000);
    assert.deepEqual(b.texts, ['before', 'after']);
    assert.equal(b.counters.skipped, 1);
    assert.equal(b.broker.inbox.heldBytes, 0);
  });

  test('a large publication to a room without subscribers leaves nothing in Redis', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    const large = Buffer.alloc(100_000, 'x');
    await a.broker.publish('nobody', large);
    assert.equal(await redis.cli('DBSIZE'), '0');
    await b.broker.subscribe('room');
    await a.broker.publish('room', large);
    await eventually(() => b.texts.length === 1, 1000);
    assert.equal(await redis.cli('DBSIZE'), '1');
    // Without the right to look for subscribers, it is stored in any case.
    await redis.cli('ACL', 'SETUSER', 'default', '-pubsub');
    await a.broker.publish('nobody', large);
    assert.equal(await redis.cli('DBSIZE'), '2');
  });

  test('if Redis refuses publishing, the answer is UNAVAILABLE and the broker degraded, until it is permitted again', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis);
    await redis.cli('ACL', 'SETUSER', 'default', '-publish');
    assert.equal(await outcome(a.broker.publish('room', Buffer.from('x'))), 'UNAVAILABLE');
    await eventually(() => a.state === 'degraded', 3000);
    await redis.cli('ACL', 'SETUSER', 'default', '+publish');
    await eventually(() => a.state === 'up', 3000);
    assert.equal(a.counters.probeMisses, 0);
  });

  test('if Redis does not permit subscribing, the worker retries slowly', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    await redis.cli('ACL', 'SETUSER', 'default', 'resetchannels');
    const a = await start(t, redis);
    assert.equal(a.state, 'degraded');
    await assert.rejects(a.broker.subscribe('room'), { code: 'UNAVAILABLE' });
    await new Promise((resolve) => setTimeout(resolve, 1000));
    assert.ok(a.node.subscriptions.refusals < 10);
    assert.ok(a.lines.some(({ reason }) => /NOPERM/.test(`${reason}`)));
    await redis.cli('ACL', 'SETUSER', 'default', 'allchannels');
    await eventually(() => a.state === 'up', 3000);
    await a.broker.publish('room', Buffer.from('x'));
    await eventually(() => a.texts.includes('x'), 1000);
  });

  test('a wrong password logs a clear line without the password, and the worker retries slowly until it is right', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t, { args: ['--requirepass', 'right-secret'] });
    const a = await start(t, redis, {
      redis: redisSettings({ REDIS_URL: `redis://:wrong-s%65cret@127.0.0.1:${redis.port}` }),
    });
    assert.equal(a.state, 'degraded');
    assert.equal(await outcome(a.broker.publish('room', Buffer.from('x'))), 'UNAVAILABLE');
    await new Promise((resolve) => setTimeout(resolve, 1500));
    const { attempts } = a.node.commands;
    assert.ok(attempts > 1 && attempts < 12, `${attempts} attempts`);
    const lines = JSON.stringify(a.lines);
    assert.match(lines, /WRONGPASS/);
    assert.doesNotMatch(lines, /wrong-s/);
    assert.ok(a.lines.length <= 3, lines);
    await redis.cli(
      '-a',
      'right-secret',
      '--no-auth-warning',
      'CONFIG',
      'SET',
      'requirepass',
      'wrong-secret',
    );
    await eventually(() => a.state === 'up', 3000);
  });

  test('if Redis is away at the start, the broker is degraded until it arrives', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    await redis.kill();
    const a = await start(t, redis);
    assert.equal(a.state, 'degraded');
    // Everyone's room: refused, and wanted all the same.
    await assert.rejects(a.broker.subscribe('*'), { code: 'UNAVAILABLE' });
    await redis.restart();
    await eventually(() => a.state === 'up', 3000);
    await a.broker.publish('*', Buffer.from('everyone'));
    await eventually(() => a.texts.includes('everyone'), 1000);
  });

  test('a worker that dies is counted no more after a while', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis), await start(t, redis)];
    a.broker.reportConnections(1);
    b.broker.reportConnections(2);
    await eventually(async () => (await a.broker.countConnections()) === 3, 1000);
    // It says no goodbye: as in a crash.
    b.broker.fleet.membership.pause();
    const tookMs = await eventually(async () => (await a.broker.countConnections()) === 1, 10_000);
    assert.ok(tookMs > 3000);
  });

  test('too many publishes in flight are refused, not queued', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis);
    redis.freeze();
    const outcomes = new Map();
    const published = [];
    for (let i = 0; i < 500; i++) {
      published.push(
        outcome(a.broker.publish('room', Buffer.alloc(100_000))).then((code) =>
          outcomes.set(code, (outcomes.get(code) ?? 0) + 1),
        ),
      );
    }
    assert.ok(a.node.publisher.unanswered.bytes <= 32 * 1024 * 1024);
    await Promise.all(published);
    assert.deepEqual([...outcomes.keys()].sort(), ['OUTCOME_UNKNOWN', 'UNAVAILABLE']);
    assert.ok(outcomes.get('UNAVAILABLE') > 100);
    redis.thaw();
  });

  test('a Redis that answers and holds back writes is away until a probe has come back', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis);
    await redis.cli('CLIENT', 'PAUSE', '60000', 'WRITE');
    assert.equal(await outcome(a.broker.publish('room', Buffer.from('x'))), 'OUTCOME_UNKNOWN');
    // Its connections are made again and again, and each is ready at once.
    await eventually(() => a.counters.brokerReconnects >= 3);
    const states = a.states.map(({ state }) => state);
    await redis.cli('CLIENT', 'UNPAUSE');
    assert.deepEqual(states, ['up', 'degraded']);
    await eventually(() => a.state === 'up');
  });

  test('connections that lead to two servers are refused and degraded, then both follow the address', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const [old, current] = [await startRedis(t), await startRedis(t)];
    const address = await startTcpProxy(t, old.port);
    const a = await start(t, { settings: redisSettings({ REDIS_URL: address.url }) }, { history });
    const b = await start(t, current);
    await b.broker.subscribe('room');
    // As after a failover that cuts no clients: only new connections lead to the new primary.
    address.target = current.port;
    await old.cli('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await eventually(() => a.node.subscriptions.isLive && a.node.publisher.obstacle !== '');
    assert.equal(await outcome(a.broker.publish('room', Buffer.from('astray'))), 'UNAVAILABLE');
    assert.equal(await outcome(a.broker.history('kept', { after: 0, limit: 1 })), 'UNAVAILABLE');
    assert.equal(a.state, 'degraded');
    assert.match(await old.cli('CLIENT', 'LIST'), /name=faults:commands/);
    // It has lasted.
    a.node.provenMs -= 20_000;
    await delivers(a, b, 8000);
    await eventually(() => a.state === 'up');
    assert.doesNotMatch(await old.cli('CLIENT', 'LIST'), /name=faults/);
    assert.ok(!b.texts.includes('astray'));
  });

  test('connections that lead to two servers are left as they are, if publications come back', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const primary = await startRedis(t, { args: ['--repl-diskless-sync-delay', '0'] });
    const replica = await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${primary.port}`] });
    await eventually(async () =>
      (await replica.cli('INFO', 'replication')).includes('master_link_status:up'),
    );
    const address = await startTcpProxy(t, primary.port);
    const a = await start(t, { settings: redisSettings({ REDIS_URL: address.url }) });
    // A replica passes messages on.
    address.target = replica.port;
    a.node.subscriber.destroy('a test');
    await eventually(() => a.node.identity.isSplit && a.state === 'up');
    assert.equal(await outcome(a.broker.publish('room', Buffer.from('x'))), 'OK');
  });

  for (const kind of ['TCP', 'TLS']) {
    test(`a connection over ${kind} that is given up or closed is reset, so that the kernel sends nothing later`, {
      timeout: TIMEOUT_MS,
      skip: kind === 'TLS' && ((isOff('redis_reset') && 'a fast path resets it') || NO_TLS),
    }, async (t) => {
      const tls = kind === 'TLS' ? await startTlsRedis(t) : null;
      const port = tls === null ? (await startRedis(t)).port : tls.tlsPort;
      /** How each connection has ended. @type {string[]} */
      const ends = [];
      const wire = createServer((client) => {
        const redis = connect(port, '127.0.0.1');
        client.on('end', () => ends.push('end'));
        client.on('error', (error) =>
          ends.push(/** @type {NodeJS.ErrnoException} */ (error).code ?? ''),
        );
        client.on('close', () => redis.destroy());
        redis.on('error', () => client.destroy());
        client.pipe(redis).pipe(client);
      });
      wire.listen(0, '127.0.0.1');
      await once(wire, 'listening');
      t.after(() => wire.close());
      const { port: wirePort } = /** @type {import('node:net').AddressInfo} */ (wire.address());
      const url = `${tls === null ? 'redis' : 'rediss'}://127.0.0.1:${wirePort}`;
      const settings =
        tls === null ? redisSettings({ REDIS_URL: url }) : tls.settings({ REDIS_URL: url });
      const a = await start(t, { settings });
      assert.equal(a.state, 'up');
      // Nothing is under way: Node calls data and a reset that arrive together an end.
      assert.equal(await outcome(a.broker.publish('room', Buffer.from('x'))), 'OK');
      a.node.commands.destroy('a test');
      await eventually(() => ends.length === 1);
      await eventually(() => a.state === 'up');
      await a.broker.close();
      await eventually(() => ends.length === 3);
      assert.deepEqual(ends, Array(3).fill('ECONNRESET'));
    });
  }

  test('a worker closes in time though Redis is frozen', { timeout: TIMEOUT_MS }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis);
    redis.freeze();
    const published = outcome(a.broker.publish('room', Buffer.from('x')));
    const started = performance.now();
    await a.broker.close();
    assert.ok(performance.now() - started < 2500);
    assert.equal(await published, 'OUTCOME_UNKNOWN');
    assert.equal(a.state, 'down');
  });
});
