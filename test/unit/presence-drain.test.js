// presence-drain.test.js: the users of a room while one of its workers drains, as clients of several
// doors on the other worker see them.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { DOORS } from '../helpers/door-clients.js';
import { startOwnWorker, until } from '../helpers/every-door.js';
import { APP, PusherClient } from '../helpers/pusher.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../helpers/whole-worker.js').TestedWorker} TestedWorker */

const ROOM = 'presence-a';
const NATIVE = DOORS.find(({ name }) => name === 'native') ?? assert.fail('no native door');

/** Two workers of one server. @param {TestContext} t */
async function startTwo(t) {
  const env = { SERVER_ID: randomUUID(), FANFARE_RECONNECT_WINDOW_MS: '0' };
  return Promise.all([startOwnWorker(t, env), startOwnWorker(t, env)]);
}

/** A Pusher client in the channel as `user`. @param {TestContext} t @param {TestedWorker} at @param {string} user */
async function enter(t, { port }, user) {
  const client = new PusherClient(`ws://127.0.0.1:${port}/app/${APP.key}?protocol=7`, APP);
  t.after(() => client.socket.terminate());
  await client.established();
  client.sendSubscribe(ROOM, { user_id: user });
  await client.event('pusher_internal:subscription_succeeded', ROOM);
  return client;
}

/** The users that a client knows, after each of its frames. @param {PusherClient} client */
function listOf(client) {
  /** @type {Set<string>} */
  const users = new Set();
  /** @type {string[]} */
  const changes = [];
  for (const { event, data } of client.of(ROOM)) {
    const parsed = typeof data === 'string' ? JSON.parse(data) : data;
    if (event === 'pusher_internal:subscription_succeeded')
      for (const id of parsed.presence.ids) users.add(id);
    else if (event === 'pusher_internal:member_added') {
      assert.ok(!users.has(parsed.user_id), `${parsed.user_id} is added twice`);
      users.add(parsed.user_id);
      changes.push(`+${parsed.user_id}`);
    } else if (event === 'pusher_internal:member_removed') {
      assert.ok(users.delete(parsed.user_id), `${parsed.user_id} is removed twice`);
      changes.push(`-${parsed.user_id}`);
    }
  }
  return { users: [...users].sort(), changes };
}

/** What the store lists. @param {TestedWorker} at */
async function listed({ delivery }) {
  const { members } = await delivery.tracker.read(ROOM);
  return (members ?? []).map((member) => JSON.parse(member.toString()).user).sort();
}

test('users of a worker that drains leave the lists once, and come back once', async (t) => {
  const [a, b] = await startTwo(t);
  const watcher = await enter(t, b, 'watcher');
  const native = await NATIVE.open(t, b.port, { user: 'ann' });
  assert.deepEqual(await native.join([ROOM]), ['ok']);
  await enter(t, a, 'twice');
  await enter(t, a, 'twice');
  await enter(t, a, 'both');
  await enter(t, b, 'both');
  await until(() => listOf(watcher).users.length === 4, 'all users');
  const before = listOf(watcher).changes.length;
  await a.worker.drain(10_000);
  await until(() => !listOf(watcher).users.includes('twice'), 'the user who has left');
  await enter(t, b, 'twice');
  await until(() => listOf(watcher).users.includes('twice'), 'the user who is back');
  const { users, changes } = listOf(watcher);
  assert.deepEqual(changes.slice(before), ['-twice', '+twice']);
  assert.deepEqual(users, ['ann', 'both', 'twice', 'watcher']);
  assert.deepEqual(await listed(b), users);
});

test('a user who is back before its worker drains never leaves a list', async (t) => {
  const [a, b] = await startTwo(t);
  const watchers = [await enter(t, b, 'watcher'), await enter(t, a, 'leaving')];
  await enter(t, a, 'early');
  await enter(t, b, 'early');
  for (const one of watchers) await until(() => listOf(one).users.length === 3, 'all users');
  await a.worker.drain(10_000);
  await until(() => listOf(watchers[0]).users.length === 2, 'the end of the others');
  assert.deepEqual(listOf(watchers[0]).changes, ['+leaving', '+early', '-leaving']);
  assert.ok(!listOf(watchers[1]).changes.includes('-early'), 'nor for a client that drains');
  assert.deepEqual(await listed(b), ['early', 'watcher']);
});
