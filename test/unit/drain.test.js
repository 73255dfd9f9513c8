// drain.test.js: the order and the times in which a drain closes connections (worker/drain.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drain, hasOtherServers } from '../../src/worker/drain.js';
import { build, publication } from '../helpers/recovery.js';

/** @typedef {ReturnType<ReturnType<typeof build>['connect']>} Member */

/** Times are counted in ticks: a busy machine delays these as it does the steps of a drain. */
const TICK_MS = 100;

/** @param {{told: number, silent: number}} counts of members */
function start({ told, silent }) {
  const built = build();
  const members = Array.from({ length: told + silent }, () => built.connect());
  /** At which tick each was closed. @type {Map<Member, number>} */
  const closedAt = new Map();
  /** At which tick each was told. @type {Map<Member, number>} */
  const toldAt = new Map();
  let ticks = 0;
  for (const [i, member] of members.entries()) {
    const { transport, connection } = member;
    if (i >= told) transport.door = { ...transport.door, encodeShutdown: () => null };
    const announce = connection.announceShutdown.bind(connection);
    connection.announceShutdown = (ms) => {
      toldAt.set(member, ticks);
      return announce(ms);
    };
    transport.close = () => {
      closedAt.set(member, ticks);
      built.hub.removeConnection(connection);
    };
  }
  const begin = async (
    /** @type {number} */ windowMs,
    /** @type {number} */ limitMs,
    othersAccept = false,
  ) => {
    const timer = setInterval(() => ticks++, TICK_MS);
    const { lane } = built.operations;
    const deadlineMs = performance.now() + limitMs;
    const ended = await drain({ ...built, lane, othersAccept, windowMs, deadlineMs });
    clearInterval(timer);
    return { ...ended, ticks };
  };
  return { built, members, closedAt, toldAt, begin };
}

test('clients that know no notice are closed over the window, and the others are told after them', async () => {
  const { built, members, closedAt, begin } = start({ told: 3, silent: 200 });
  const { phase, hub } = built;
  const told = members.slice(0, 3);
  const silent = members.slice(3);
  hub.join(silent[0].connection, 'r', { since: null, onJoined() {}, onRefused() {} });
  const ended = begin(800, 30_000);
  await new Promise((resolve) => setTimeout(resolve, 250));
  assert.equal(phase.isSettling, false, 'publishes are accepted');
  assert.ok(told.every(({ transport }) => transport.writes.length === 0));
  const { told: notices, spread, terminated } = await ended;
  assert.deepEqual([notices, spread, terminated], [3, 200, 0]);
  const times = silent.map((member) => closedAt.get(member) ?? -1).sort((a, b) => a - b);
  assert.ok(times[0] >= 0);
  for (let i = 0; i < times.length; i++) {
    const expected = (i / times.length) * 8;
    assert.ok(times[i] > expected - 3 && times[i] < expected + 2, `${i}: ${times[i]}`);
  }
  assert.ok(silent.every(({ transport }) => transport.writes.length === 0));
  for (const member of told) {
    assert.equal(member.of('SERVER_SHUTDOWN').length, 1);
    assert.ok((closedAt.get(member) ?? 0) > times[times.length - 1]);
  }
});

test('both kinds of clients return within one window, each over its share', async () => {
  const { members, closedAt, begin } = start({ told: 600, silent: 200 });
  await begin(800, 30_000);
  const last = Math.max(...members.slice(600).map((member) => closedAt.get(member) ?? 1e9));
  assert.ok(last < 3, `${last}`);
  const delays = members
    .slice(0, 600)
    .flatMap((member) => member.of('SERVER_SHUTDOWN').map((sent) => Number(sent.reconnectAfterMs)));
  assert.equal(delays.length, 600);
  const longest = Math.max(...delays);
  assert.ok(longest >= 500 && longest < 600, `${longest}`);
});

test('the fewer clients are told, the sooner all have returned; a longer window slows them', async () => {
  for (const [windowMs, returnedMs] of [
    [20_000, 200],
    [60_000, 600],
    [5000, 200],
  ]) {
    const { members, begin } = start({ told: 100, silent: 0 });
    await begin(windowMs, 30_000);
    const delays = members.flatMap((member) =>
      member.of('SERVER_SHUTDOWN').map((sent) => Number(sent.reconnectAfterMs)),
    );
    const longest = Math.max(...delays);
    assert.ok(longest > 0.75 * returnedMs && longest < returnedMs, `${windowMs} ms: ${longest}`);
  }
});

test('if others accept clients, each is served until its turn, and told shortly before', async () => {
  const { built, members, closedAt, toldAt, begin } = start({ told: 400, silent: 0 });
  const { phase } = built;
  const ended = begin(20_000, 30_000, true);
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(phase.isSettling, false, 'publishes are accepted');
  assert.deepEqual(await ended.then(({ told, spread }) => [told, spread]), [400, 400]);
  const times = members.map((member) => closedAt.get(member) ?? -1).sort((a, b) => a - b);
  assert.ok(times[0] >= 2, `${times[0]}`);
  for (let i = 0; i < times.length; i++) {
    const expected = 3 + (i / times.length) * 8;
    assert.ok(times[i] > expected - 3 && times[i] < expected + 3, `${i}: ${times[i]}`);
  }
  for (const member of members) {
    const [notice, ...more] = member.of('SERVER_SHUTDOWN');
    assert.equal(more.length, 0);
    assert.ok(Number(notice.reconnectAfterMs) < TICK_MS);
    // Closed when it is told, a client could not get the answers under way.
    const waited = (closedAt.get(member) ?? 0) - (toldAt.get(member) ?? 1e9);
    assert.ok(waited >= 2 && waited <= 6, `${waited}`);
  }
});

test('other servers are known by their workers', async () => {
  const counting = (/** @type {Promise<number>} */ count) => ({ countWorkers: () => count });
  assert.equal(await hasOtherServers(counting(Promise.resolve(4)), 4), false);
  assert.equal(await hasOtherServers(counting(Promise.resolve(5)), 4), true);
  assert.equal(await hasOtherServers(counting(Promise.reject(new Error('down'))), 4), false);
  const keepAlive = setTimeout(() => {}, 10_000);
  assert.equal(await hasOtherServers(counting(new Promise(() => {})), 4), false);
  clearTimeout(keepAlive);
});

test('the closes are spread within half of a short time limit', async () => {
  const { members, closedAt, begin } = start({ told: 1, silent: 100 });
  const { spread, terminated } = await begin(60_000, 1200);
  assert.deepEqual([spread, terminated], [100, 0]);
  const last = Math.max(...members.slice(1).map((member) => closedAt.get(member) ?? -1));
  assert.ok(last > 2 && last < 8, `${last}`);
});

test('a worker that is too busy for its steps closes the rest together, in time', async () => {
  const { built, members, closedAt, begin } = start({ told: 100, silent: 0 });
  const { outbox } = built;
  const flush = outbox.flush.bind(outbox);
  let flushes = 0;
  outbox.flush = () => {
    const endMs = performance.now() + 400;
    if (flushes++ < 3) while (performance.now() < endMs);
    flush();
  };
  const { told, spread, terminated } = await begin(20_000, 1200, true);
  assert.deepEqual([told, terminated, closedAt.size], [100, 0, 100]);
  assert.equal(spread, 0, 'no turn came in time');
  assert.ok(members.every((member) => member.of('SERVER_SHUTDOWN').length === 1));
});

test('what waits for a client is written before its close', async () => {
  const { built, members, begin } = start({ told: 0, silent: 1 });
  const [{ connection, transport }] = members;
  await new Promise((resolve, reject) => {
    const onJoined = () => resolve(undefined);
    built.hub.join(connection, 'r', { since: null, onJoined, onRefused: reject });
  });
  built.hub.broadcast('r', publication('last'));
  await begin(1, 10_000);
  assert.deepEqual(
    transport.messages().map(({ payload }) => payload),
    ['last'],
  );
});

test('without such clients a drain takes no longer', async () => {
  const { begin } = start({ told: 2, silent: 0 });
  const { told, spread, terminated, ticks } = await begin(20_000, 30_000);
  assert.deepEqual([told, spread, terminated], [2, 0, 0]);
  assert.ok(ticks < 15, `${ticks}`);
});
