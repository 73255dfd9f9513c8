// presence.test.js: 1,000 users on two servers, one of which is killed with all its processes: the
// other clients learn it within a minute, no ghost stays, and no user joins twice. The intervals are
// those of a real server, so the test takes nearly a minute.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { childrenOf, startServer, until } from '../harness/server.js';
import { WsClient } from '../harness/ws-client.js';

const USERS = 1000;
/** Of them, with a connection on each server. */
const ON_BOTH = 50;
const ROOM = 'hall';
const TOLD_MS = 60_000;

/** One client, and the users that it believes to be present. */
class Member {
  /** @param {number} port @param {string} user */
  constructor(port, user) {
    this.user = user;
    /** @type {Set<string>} */
    this.here = new Set();
    this.joins = 0;
    this.leaves = 0;
    /** Joins of present users, and leaves of absent users. */
    this.faults = 0;
    /** Of the latest leave. */
    this.toldMs = 0;
    this.client = new WsClient(`ws://127.0.0.1:${port}/`, {
      onText: (text) => this.#receive(text),
    });
  }

  /** @param {string} text */
  #receive(text) {
    const [, event, user] =
      /^\{"type":"presence".*?"event":"(join|leave)","member":\{"user":"([^"]*)"/.exec(text) ?? [];
    if (event === 'join') {
      this.joins++;
      if (this.here.has(user)) this.faults++;
      this.here.add(user);
    } else if (event === 'leave') {
      this.leaves++;
      this.toldMs = performance.now();
      if (!this.here.delete(user)) this.faults++;
    }
  }

  async join() {
    await this.client.open();
    const answer = await this.client.request({
      type: 'join',
      room: ROOM,
      presence: { user: this.user },
    });
    assert.equal(answer.type, 'joined');
  }

  async ask() {
    const { members, count } = await this.client.request({ type: 'presence', room: ROOM });
    assert.equal(members.length, count);
    return members.map((/** @type {{user: string}} */ { user }) => user).sort();
  }
}

test('if a server with half of 1,000 users is killed, all leave within a minute, without ghosts or double joins', {
  timeout: 110_000,
}, async (t) => {
  const redis = await startRedis(t);
  const env = { WORKERS: '2', REDIS_URL: redis.url, FANFARE_PRESENCE: ROOM, FANFARE_LIMITS: 'off' };
  const [a, b] = await Promise.all([
    startServer(t, { ...env, SERVER_ID: 'a' }),
    startServer(t, { ...env, SERVER_ID: 'b' }),
  ]);
  const half = USERS / 2;
  const name = (/** @type {number} */ i) => `user-${i}`;
  // The first of them are on both.
  const onA = Array.from({ length: half }, (_, i) => new Member(a.port, name(i)));
  const onB = Array.from(
    { length: half + ON_BOTH },
    (_, i) => new Member(b.port, name(i < ON_BOTH ? i : i + half - ON_BOTH)),
  );
  t.after(() => {
    for (const { client } of [...onA, ...onB]) client.destroy();
  });
  const joiningMs = performance.now();
  const all = onA.flatMap((member, i) => [member, onB[i]]).concat(onB.slice(half));
  for (let i = 0; i < all.length; i += 50)
    await Promise.all(all.slice(i, i + 50).map((member) => member.join()));
  const everybody = Array.from({ length: USERS }, (_, i) => name(i)).sort();
  await until(async () => (await onB[0].ask()).length === USERS, 20_000, 'all joined');
  t.diagnostic(
    `${USERS} users, ${all.length} connections joined in ${Math.round(performance.now() - joiningMs)} ms`,
  );
  assert.deepEqual(await onA[0].ask(), everybody);

  // From here on each client compares events with its own list.
  const list = await onB[0].ask();
  await until(() => onB.every(({ joins }) => joins > 0), 10_000);
  for (const member of onB) {
    member.here = new Set(list);
    member.joins = member.leaves = member.faults = 0;
  }

  const killedMs = performance.now();
  for (const pid of [a.pid, ...childrenOf(a.pid)]) process.kill(pid, 'SIGKILL');
  const expected = half - ON_BOTH;
  await until(() => onB.every(({ leaves }) => leaves >= expected), TOLD_MS, 'all told');
  const told = onB.map(({ toldMs }) => toldMs - killedMs).sort((x, y) => x - y);
  t.diagnostic(
    `${onB.length} survivors were told of ${expected} leaves each, the last ${(told[told.length - 1] / 1000).toFixed(1)} s after the kill`,
  );
  assert.ok(told[told.length - 1] < TOLD_MS);
  const alive = [...new Set(onB.map(({ user }) => user))].sort();
  for (const member of onB) {
    assert.equal(member.leaves, expected);
    assert.equal(member.joins, 0);
    assert.equal(member.faults, 0);
    assert.deepEqual([...member.here].sort(), alive);
  }
  assert.deepEqual(await onB[0].ask(), alive);
  const keys = (await redis.cli('--raw', 'KEYS', '*presence*')).split('\n');
  assert.equal(keys.filter((key) => key.includes(':users:')).length, 2, `${keys}`);

  // The server returns with some of its users. Each return is announced once.
  const again = await startServer(t, { ...env, SERVER_ID: 'a' });
  const back = Array.from({ length: 20 }, (_, i) => new Member(again.port, name(ON_BOTH + i)));
  await Promise.all(back.map((member) => member.join()));
  await until(() => onB.every(({ joins }) => joins >= back.length), 10_000);
  assert.ok(
    onB.every(
      ({ joins, leaves, faults }) => joins === back.length && leaves === expected && faults === 0,
    ),
  );
  t.diagnostic(
    `ghosts: 0; joins of somebody who was there: 0; ${back.length} returned users told once each`,
  );
  for (const { client } of back) client.destroy();
});
