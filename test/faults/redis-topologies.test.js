// redis-topologies.test.js: failovers of Sentinel, and a cluster that loses and moves slots, seen
// from the broker.
//
// Each prints its figures. The rows are those of the fault matrix: 12 and 13 Sentinel, 18 and 19
// cluster.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { slotOf } from '../../src/backend/redis/slots.js';
import { startCluster } from '../harness/redis-cluster.js';
import { startSentinels } from '../helpers/redis-sentinel.js';
import { delivers, eventually, outcome, Stream, start } from '../helpers/redis-worker.js';

const TIMEOUT_MS = 60_000;
const HEAL_MS = 20_000;

/**
 * Always required: a publication arrives once at most, in order, and never if it was
 * refused.
 * @param {import('../helpers/redis-worker.js').Worker} to @param {Stream} stream
 */
function check({ texts }, stream) {
  const arrived = texts.filter((text) => text.startsWith(`${stream.room} #`));
  assert.equal(new Set(arrived).size, arrived.length, 'a publication arrived twice');
  const refused = new Set(stream.sent('UNAVAILABLE'));
  assert.deepEqual(
    arrived.filter((text) => refused.has(text)),
    [],
    'a refused publication arrived',
  );
  const codes = new Set(stream.results.map(({ code }) => code));
  for (const code of codes)
    assert.ok(['OK', 'UNAVAILABLE', 'OUTCOME_UNKNOWN'].includes(code), code);
  return arrived;
}

describe('Redis in production', { concurrency: 2 }, () => {
  test('row 12: if the primary is killed, Sentinel promotes the replica, and delivery continues there', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startSentinels(t, { downAfterMs: 1500 });
    const [a, b] = [await start(t, redis), await start(t, redis)];
    const rooms = Array.from({ length: 1500 }, (_, i) => `room-${i}`);
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    const stream = new Stream(a, 'room-7', 10);
    t.after(() => stream.end());
    await eventually(() => stream.results.length > 50);
    const killedAt = performance.now();
    await redis.primary.kill();
    const promotion = eventually(
      async () => /role:master/.test(await redis.replica.cli('INFO', 'replication')),
      HEAL_MS,
    );
    await eventually(() => a.state === 'degraded' && b.state === 'degraded', 1000);
    await eventually(() => a.state === 'up' && b.state === 'up', HEAL_MS);
    const upMs = performance.now() - killedAt;
    await eventually(() => b.texts.includes(stream.results.at(-1)?.text ?? ''), 3000);
    stream.end();
    t.diagnostic(
      `down-after 1.5 s: promoted after ${Math.round(await promotion)} ms, ${Math.round(stream.outageMs)} ms without service, up after ${Math.round(upMs)} ms`,
    );
    const arrived = check(b, stream);
    const accepted = stream.sent('OK');
    t.diagnostic(
      `${accepted.length} accepted, ${arrived.length} arrived, ` +
        `${stream.sent('UNAVAILABLE').length} refused, ${stream.sent('OUTCOME_UNKNOWN').length} unknown`,
    );
    // Every room, not only the one that was looked at.
    await Promise.all(rooms.map((room) => a.broker.publish(room, Buffer.from(`after ${room}`))));
    await eventually(() => rooms.every((room) => b.texts.includes(`after ${room}`)), 3000);
    assert.doesNotMatch(JSON.stringify(a.lines), /sentinels are unreachable/);
    assert.equal(
      a.lines.filter(({ level }) => Number(level) >= 40).length <= 8,
      true,
      JSON.stringify(a.lines),
    );
  });

  test('row 13: if the primary hangs for 9 s and returns, all workers move to the new one and stay there', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const args = ['--min-replicas-to-write', '1', '--min-replicas-max-lag', '10'];
    const redis = await startSentinels(t, { downAfterMs: 1500, args });
    const [a, b] = [await start(t, redis), await start(t, redis)];
    await b.broker.subscribe('room');
    const stream = new Stream(a, 'room', 10);
    t.after(() => stream.end());
    await eventually(() => stream.results.length > 50);
    const frozenAt = performance.now();
    redis.primary.freeze();
    t.after(() => redis.primary.thaw());
    await eventually(() => a.state === 'degraded' && b.state === 'degraded', 6000);
    await eventually(() => a.state === 'up' && b.state === 'up', HEAL_MS);
    const upMs = performance.now() - frozenAt;
    assert.ok(upMs < 9000, `${upMs} ms`);
    await new Promise((resolve) =>
      setTimeout(resolve, Math.max(0, 9000 - (performance.now() - frozenAt))),
    );
    const thawedAt = performance.now();
    redis.primary.thaw();
    await eventually(
      async () => /role:slave/.test(await redis.primary.cli('INFO', 'replication')),
      HEAL_MS,
    );
    const demotedMs = performance.now() - thawedAt;
    await new Promise((resolve) => setTimeout(resolve, 500));
    stream.end();
    await new Promise((resolve) => setTimeout(resolve, 500));
    t.diagnostic(
      `${Math.round(stream.outageMs)} ms without service, up after ${Math.round(upMs)} ms, ` +
        `the old primary a replica ${Math.round(demotedMs)} ms after its return`,
    );
    const arrived = new Set(check(b, stream));
    const accepted = stream.sent('OK', thawedAt - 500);
    assert.ok(accepted.length > 50);
    const missing = accepted.filter((text) => !arrived.has(text));
    assert.deepEqual(missing, [], 'accepted by one primary, awaited at another');
    assert.doesNotMatch(await redis.primary.cli('CLIENT', 'LIST'), /name=faults:/);
    assert.match(await redis.replica.cli('CLIENT', 'LIST'), /name=faults:commands/);
  });

  test('row 18: if slots move under traffic, lost publications are reported, and no room stays silent', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const cluster = await startCluster(t);
    const [a, b] = [await start(t, cluster), await start(t, cluster)];
    const rooms = cluster.primaries.map((primary) => cluster.roomIn(primary, 'moving'));
    const still = cluster.primaries.map((primary) => cluster.roomIn(primary, 'still'));
    await Promise.all([...rooms, ...still].map((room) => b.broker.subscribe(room)));
    const streams = [...rooms, ...still].map((room) => new Stream(a, room, 5));
    t.after(() => streams.forEach((stream) => void stream.end()));
    await eventually(() => streams.every(({ results }) => results.length > 50));
    const channel = (/** @type {string} */ room) => slotOf(b.broker.keys.channelOf(room));
    const { primaries } = cluster;
    for (let turn = 0; turn < 3; turn++) {
      for (const [i, room] of rooms.entries()) {
        // A stored one goes with its slot.
        const large = a.broker.publish(room, Buffer.alloc(100_000, 'x'));
        await cluster.moveSlot(
          channel(room),
          primaries[(i + turn) % 3],
          primaries[(i + turn + 1) % 3],
        );
        await outcome(large);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
    const movedAt = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 500));
    for (const stream of streams) stream.end();
    await new Promise((resolve) => setTimeout(resolve, 300));
    let lost = 0;
    let refused = 0;
    let accepted = 0;
    for (const stream of streams) {
      const arrived = new Set(check(b, stream));
      const missing = stream.sent('OK').filter((text) => !arrived.has(text));
      if (still.includes(stream.room)) assert.deepEqual(missing, []);
      // Every publisher works again afterwards.
      assert.deepEqual(
        stream.sent('OK', movedAt).filter((text) => !arrived.has(text)),
        [],
      );
      assert.ok(stream.sent('OK', movedAt).length > 20, stream.room);
      lost += missing.length;
      refused += stream.sent('UNAVAILABLE').length;
      accepted += stream.sent('OK').length;
    }
    t.diagnostic(
      `9 moves under ${accepted} publications: ${lost} lost, ${refused} refused, told for ${b.lost.length} rooms`,
    );
    for (const room of rooms)
      assert.ok(b.lost.filter((one) => one === room).length >= 3, `${room}: ${b.lost}`);
    assert.ok(b.lost.every((room) => rooms.includes(room)));
    assert.deepEqual(
      b.states.map(({ state }) => state),
      ['up'],
    );
  });

  test('row 19: if the owner of a third of the slots is killed, the others continue, and few lines are logged', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const cluster = await startCluster(t);
    const [a, b] = [await start(t, cluster), await start(t, cluster)];
    const rooms = cluster.primaries.map((primary) => cluster.roomIn(primary, 'room'));
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    const streams = rooms.map((room) => new Stream(a, room, 10));
    t.after(() => streams.forEach((stream) => void stream.end()));
    await eventually(() => streams.every(({ results }) => results.length > 50));
    const lines = a.lines.length;
    const killedAt = performance.now();
    await cluster.primaries[0].kill();
    await eventually(() => a.state === 'degraded' && b.state === 'degraded', 1000);
    // Past the cluster's own notice of it.
    await new Promise((resolve) => setTimeout(resolve, 6000));
    const logged = a.lines.length - lines;
    const dead = streams[0].results.filter(({ atMs }) => atMs > killedAt + 100);
    assert.ok(dead.length > 100);
    assert.deepEqual(new Set(dead.map(({ code }) => code)), new Set(['UNAVAILABLE']));
    await assert.rejects(b.broker.subscribe(cluster.roomIn(cluster.primaries[0], 'new')), {
      code: 'UNAVAILABLE',
    });
    await b.broker.subscribe(cluster.roomIn(cluster.primaries[1], 'new'));
    for (const { room, results } of streams.slice(1)) {
      assert.deepEqual(new Set(results.map(({ code }) => code)), new Set(['OK']), room);
    }
    await cluster.primaries[0].restart();
    const restartedAt = performance.now();
    await eventually(() => a.state === 'up' && b.state === 'up', HEAL_MS);
    const upMs = performance.now() - restartedAt;
    for (const stream of streams) stream.end();
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (const stream of streams.slice(1)) assert.deepEqual(check(b, stream), stream.sent('OK'));
    check(b, streams[0]);
    await a.broker.publish(
      cluster.roomIn(cluster.primaries[0], 'new'),
      Buffer.from('wanted all the while'),
    );
    await eventually(() => b.texts.includes('wanted all the while'), 1000);
    t.diagnostic(
      `${logged} lines logged in 6 s of outage, up ${Math.round(upMs)} ms after the restart`,
    );
    assert.ok(logged <= 10, JSON.stringify(a.lines));
  });

  test('row 19: if the killed node has a replica, the replica serves its slots', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const cluster = await startCluster(t, { hasReplicas: true });
    const [a, b] = [await start(t, cluster), await start(t, cluster)];
    const room = cluster.roomIn(cluster.primaries[0], 'room');
    await b.broker.subscribe(room);
    const stream = new Stream(a, room, 10);
    t.after(() => stream.end());
    await eventually(() => stream.results.length > 50);
    const killedAt = performance.now();
    await cluster.primaries[0].kill();
    const promotion = eventually(
      async () => /role:master/.test(await cluster.nodes[3].cli('INFO', 'replication')),
      HEAL_MS,
    );
    await eventually(() => a.state === 'degraded' && b.state === 'degraded', 1000);
    await eventually(() => a.state === 'up' && b.state === 'up', HEAL_MS);
    const upMs = performance.now() - killedAt;
    await eventually(() => b.texts.includes(stream.results.at(-1)?.text ?? ''), 3000);
    stream.end();
    t.diagnostic(
      `node time-out 1.5 s: promoted after ${Math.round(await promotion)} ms, ${Math.round(stream.outageMs)} ms without service, up after ${Math.round(upMs)} ms`,
    );
    assert.ok(upMs - (await promotion) < 2500, `${upMs} ms`);
    check(b, stream);
    // It returns as a replica of the new primary. No server returns to it.
    await cluster.primaries[0].restart();
    await new Promise((resolve) => setTimeout(resolve, 2000));
    assert.equal(a.state, 'up');
    assert.ok((await delivers(a, b, 1000, room)) < 1000);
  });
});
