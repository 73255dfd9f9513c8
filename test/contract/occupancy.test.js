// occupancy.test.js: which rooms are occupied and which users are online, over all workers, as each
// backend reads it from its transitions.

import assert from 'node:assert/strict';
import { eventually } from './suite.js';
import { begin, it, textOf } from './transition-fleet.js';

/** @typedef {import('../../src/backend/occupancy.js').FleetOccupancy} Occupancy */

it('rooms are listed by name with the connections of all workers, in pages', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  // A client of a cluster connects to the node of these keys in its own time.
  await eventually(async () => (await b.occupancy.list({}).catch(() => null))?.length === 0);
  a.reporter.connect('chat');
  for (const [room, count] of /** @type {const} */ ([
    ['chat', 1],
    ['chat-2', 2],
    ['chat.1', 3],
    ['chat.10', 4],
    ['chat.2', 5],
    ['other', 6],
  ])) {
    a.reporter.count(room, count);
    if (count % 2 === 0) b.reporter.count(room, 10);
  }
  const page = async (/** @type {Parameters<Occupancy['list']>[0]} */ wanted) =>
    (await b.occupancy.list(wanted)).map(({ room, connections }) => `${room} ${connections}`);
  await eventually(async () => (await page({})).join() === (await page({ limit: 6 })).join());
  await eventually(async () => (await page({ prefix: 'other' })).join() === 'other 16');
  assert.deepEqual(await page({ prefix: 'chat', limit: 4 }), [
    'chat 1',
    'chat-2 12',
    'chat.1 3',
    'chat.10 14',
  ]);
  assert.deepEqual(await page({ prefix: 'chat', after: 'chat.10' }), ['chat.2 5']);
  assert.deepEqual(await page({ prefix: 'chat.', after: 'a' }), [
    'chat.1 3',
    'chat.10 14',
    'chat.2 5',
  ]);
  assert.deepEqual(await page({ prefix: 'chat', after: 'other' }), []);
  assert.deepEqual(await page({ after: 'chat.2', limit: 1 }), ['other 16']);
  assert.equal(await a.occupancy.count('chat-2'), 12);
  assert.equal(await a.occupancy.count('cha'), 0);
});

it('the state that is read is that of the transitions: who left a moment ago is there', async (fleet) => {
  fleet.lingerMs = 1500; // a busy machine reads slowly
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const read = async () => ({
    rooms: (await b.occupancy.list({})).map(({ room, connections }) => `${room} ${connections}`),
    users: await b.occupancy.online(['ann', 'bob', 'a"b']),
  });
  a.reporter.count('room', 1);
  a.reporter.connect('a"b');
  a.reporter.connect('ann');
  await fleet.reached(3);
  assert.deepEqual(await read(), { rooms: ['room 1'], users: ['ann', 'a"b'] });
  // If they came back now, no event would say so.
  a.reporter.count('room', 0);
  a.reporter.disconnect('ann');
  await eventually(async () => (await read()).rooms.join() === 'room 0');
  assert.deepEqual((await read()).users, ['ann', 'a"b']);
  assert.equal((await fleet.events()).length, 3);
  a.reporter.count('room', 1);
  a.reporter.connect('ann');
  await eventually(async () => (await read()).rooms.join() === 'room 1');
  a.reporter.count('room', 0);
  a.reporter.disconnect('ann');
  for (;;) {
    const { rooms, users } = await read();
    const events = (await fleet.events()).map(textOf);
    if (rooms.length === 0) assert.ok(events.includes('room.vacated room'));
    if (!users.includes('ann')) assert.ok(events.includes('user.disconnected ann'));
    if (rooms.length === 0 && users.join() === 'a"b') break;
  }
});

it('a count follows the joins and leaves within a worker, and goes with a killed one', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const is = (/** @type {number} */ count) =>
    eventually(async () => (await b.occupancy.count('room').catch(() => null)) === count);
  a.reporter.count('room', 1);
  await is(1);
  a.reporter.count('room', 200);
  b.reporter.count('room', 3);
  await is(203);
  b.reporter.count('room', 0);
  await is(200);
  a.reporter.count('room', 0);
  await is(0);
  await eventually(async () => (await b.occupancy.list({})).length === 0);
  a.reporter.count('room', 7);
  b.reporter.count('room', 2);
  await is(9);
  for (let i = 0; i < 200; i++) a.reporter.count(`room-${i}`, 1);
  await eventually(async () => (await b.occupancy.list({ limit: 1000 })).length === 201);
  a.kill();
  // Of a cluster each node forgets the killed one in its own time.
  await is(2);
  await eventually(async () => (await b.occupancy.list({ limit: 1000 })).length === 1);
  assert.deepEqual(await b.occupancy.list({}), [{ room: 'room', connections: 2 }]);
});

it('after random moves of three workers, one of which dies, pages of rooms are the truth', async (fleet) => {
  const worker = await fleet.server();
  const workers = [await worker(), await worker(), await worker()];
  /** @type {Map<string, number>[]} */
  const here = workers.map(() => new Map());
  let seed = 7;
  const random = (/** @type {number} */ below) => {
    seed = (seed * 48_271) % 0x7fffffff;
    return seed % below;
  };
  for (let step = 0; step < 4000; step++) {
    const who = step > 3000 ? 1 + random(2) : random(3);
    const room = `room-${random(300)}`;
    const count = random(4);
    here[who].set(room, count);
    workers[who].reporter.count(room, count);
    if (step % 200 === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    if (step === 3000) workers[0].kill();
  }
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const counts of here.slice(1))
    for (const [room, count] of counts) sums.set(room, (sums.get(room) ?? 0) + count);
  const truth = [...sums]
    .filter(([, count]) => count > 0)
    .map(([room, count]) => `${room} ${count}`)
    .sort();
  const listed = async () => {
    const all = [];
    for (let after = ''; ; ) {
      const rooms = await workers[1].occupancy.list({ after, limit: 90 });
      for (const { room, connections } of rooms) all.push(`${room} ${connections}`);
      if (rooms.length < 90) return all.sort();
      after = rooms[89].room;
    }
  };
  await eventually(async () => (await listed()).join() === truth.join());
});

begin();
