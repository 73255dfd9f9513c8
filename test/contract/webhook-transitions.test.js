// webhook-transitions.test.js: each backend records an event for webhooks if and only if it happened, and
// once, whoever dies.

import assert from 'node:assert/strict';
import { DOOR_TYPES, EVENT_TYPES } from '../../src/config/webhooks.js';
import { optionsOf } from '../../src/operations/message.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { eventually, LINGER_MS } from './suite.js';
import { assertSequences, begin, it } from './transition-fleet.js';

/** @typedef {import('./transition-fleet.js').Worker} Worker */

it('the first join and the last leave of a user are recorded once, over two workers', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  a.join('room', 'ann', { colour: 'red' });
  await fleet.reached(1);
  b.join('room', 'ann');
  b.join('room', 'bob "b"');
  await fleet.reached(2);
  a.leave('room', 'ann');
  await fleet.recorded(2);
  b.leave('room', 'ann');
  b.leave('room', 'bob "b"');
  assert.deepEqual(await fleet.recorded(4), [
    'member.joined room ann',
    'member.joined room bob "b"',
    'member.left room ann',
    'member.left room bob "b"',
  ]);
  const events = await fleet.events();
  assertSequences(events);
  assert.deepEqual(
    events.map(({ count }) => count),
    [1, 2, 1, 0],
  );
  assert.deepEqual(events[0].info, { colour: 'red' });
  assert.equal('info' in events[1], false);
  assert.ok(events.every(({ at }) => Math.abs(Date.now() - at) < 60_000));
});

it('a room is occupied once and vacated once, over two workers', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  a.reporter.count('room', 1);
  a.reporter.count('room', 2);
  await fleet.reached(1);
  b.reporter.count('room', 1);
  b.reporter.count('other', 1);
  await fleet.recorded(2);
  a.reporter.count('room', 0);
  await fleet.recorded(2);
  b.reporter.count('room', 0);
  const texts = await fleet.recorded(3);
  assert.deepEqual(texts.sort(), [
    'room.occupied other',
    'room.occupied room',
    'room.vacated room',
  ]);
  assertSequences(await fleet.events());
});

it('a room that empties and fills again on a worker causes no event', async (fleet) => {
  const a = await (await fleet.server())();
  for (let attempt = 1; ; attempt++) {
    const [room, user] = [`room-${attempt}`, `user-${attempt}`];
    a.reporter.count(room, 1);
    a.reporter.connect(user);
    await fleet.reached(2 * attempt);
    let longestMs = 0;
    for (let i = 0; i < 20; i++) {
      const leftMs = performance.now();
      a.reporter.count(room, 0);
      a.reporter.disconnect(user);
      await new Promise((resolve) => setTimeout(resolve, LINGER_MS / 5));
      a.reporter.count(room, 1);
      a.reporter.connect(user);
      longestMs = Math.max(longestMs, performance.now() - leftMs);
    }
    // A busy machine may wake this test too late: then the room was really empty.
    if (longestMs > LINGER_MS / 2) continue;
    const texts = (await fleet.recorded(2 * attempt)).filter((text) =>
      text.endsWith(`-${attempt}`),
    );
    assert.deepEqual(texts.sort(), [`room.occupied ${room}`, `user.connected ${user}`]);
    return;
  }
});

it('the first and the last connection of a user are recorded, whatever the name', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const users = ['ann', 'a}b{c', '"\\é\u0000', '\u{1F600}', 'lane-3'];
  for (const user of users) a.reporter.connect(user);
  await fleet.reached(users.length);
  for (const user of users) b.reporter.connect(user);
  await fleet.recorded(users.length);
  for (const user of users) a.reporter.disconnect(user);
  await fleet.recorded(users.length);
  for (const user of users) b.reporter.disconnect(user);
  await fleet.recorded(2 * users.length);
  const events = await fleet.events();
  assertSequences(events);
  for (const name of users)
    assert.deepEqual(
      events.filter(({ user }) => user === name).map(({ type }) => type),
      ['user.connected', 'user.disconnected'],
    );
});

it('events of a room have one sequence, whatever their kind', async (fleet) => {
  const a = await (await fleet.server())();
  a.reporter.count('room', 1);
  await fleet.reached(1);
  a.join('room', 'ann');
  await fleet.reached(2);
  a.reporter.publish('room', { sender: 'ann', payload: '{"text":"hé"}', offset: undefined });
  await fleet.reached(3);
  a.leave('room', 'ann');
  await fleet.reached(4);
  a.reporter.count('room', 0);
  assert.deepEqual(await fleet.recorded(5), [
    'room.occupied room',
    'member.joined room ann',
    'message.published room',
    'member.left room ann',
    'room.vacated room',
  ]);
  const events = await fleet.events();
  assertSequences(events);
  const { from, payload, offset } = events[2];
  assert.deepEqual(
    { from, payload, offset },
    { from: 'ann', payload: { text: 'hé' }, offset: undefined },
  );
});

it('a repeated publish is recorded once, or later if the first answer was lost', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  /** @param {Worker} one @param {string} room @param {string} key @param {boolean} [isHeard] */
  const publish = async ({ broker, reporter }, room, key, isHeard = true) => {
    const text = Buffer.from('1');
    const publication = encodePublication(KIND.MESSAGE, 1, 0, 'ann', text, 0, 1);
    const options = optionsOf({ owner: 'ann', idempotencyKey: key }, publication);
    const position = await broker.publish(room, publication, options);
    const idempotencyKey = options?.idempotencyKey;
    const offset = position?.offset;
    if (isHeard) reporter.publish(room, { sender: 'ann', payload: '1', offset, idempotencyKey });
  };
  for (const room of ['room', 'h.room']) {
    await publish(a, room, 'one');
    await publish(a, room, 'one');
    await publish(b, room, 'one');
    await publish(a, room, 'two', false);
    await publish(b, room, 'two');
    await publish(a, room, 'two');
  }
  const message = 'message.published';
  assert.deepEqual((await fleet.recorded(4)).sort(), [
    `${message} h.room`,
    `${message} h.room`,
    `${message} room`,
    `${message} room`,
  ]);
  assertSequences(await fleet.events());
});

it('a worker with 500 members is killed: 500 leave, once, and the room is vacated once', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  a.reporter.count('room', 500);
  for (let i = 0; i < 500; i++) {
    a.join('room', `user-${i}`);
    a.reporter.connect(`user-${i}`);
  }
  // This one stays.
  b.join('room', 'user-0');
  b.reporter.connect('user-0');
  await fleet.recorded(1001);
  a.kill();
  const texts = (await fleet.recorded(2000)).sort();
  const count = (/** @type {string} */ type) =>
    texts.filter((text) => text.startsWith(type)).length;
  assert.deepEqual(
    ['member.joined', 'member.left', 'room.occupied', 'room.vacated', 'user.c', 'user.d'].map(
      count,
    ),
    [500, 499, 1, 1, 500, 499],
  );
  assert.equal(new Set(texts).size, texts.length);
  assertSequences(await fleet.events());
});

it('a worker that drains leaves everything, once', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  for (const one of [a, b]) one.reporter.count('room', 1);
  a.reporter.count('other', 1);
  a.join('room', 'ann');
  a.reporter.connect('ann');
  await fleet.recorded(4);
  await a.close();
  assert.deepEqual((await fleet.recorded(7)).slice().sort(), [
    'member.joined room ann',
    'member.left room ann',
    'room.occupied other',
    'room.occupied room',
    'room.vacated other',
    'user.connected ann',
    'user.disconnected ann',
  ]);
});

it('the offset of a message is recorded, and of a large payload only the size', async (fleet) => {
  const a = await (await fleet.server())();
  const large = JSON.stringify('é'.repeat(10_000));
  a.reporter.publish('h.room', { sender: 'ann', payload: '1', offset: 7 });
  a.reporter.publish('h.room', { sender: 'ann', payload: large, offset: 8 });
  await fleet.reached(2);
  const [small, big] = await fleet.events();
  assert.deepEqual([small.payload, small.offset, small.bytes], [1, 7, undefined]);
  assert.deepEqual([big.payload, big.offset, big.bytes], [undefined, 8, 20_002]);
});

it(
  'only the rooms and kinds that an endpoint asks for are recorded',
  async (fleet) => {
    const a = await (await fleet.server())();
    assert.equal(a.reporter.hasMessages, false);
    a.reporter.count('chat.1', 1);
    a.reporter.count('other', 1);
    a.join('chat.1', 'ann');
    a.reporter.connect('ann');
    assert.deepEqual(await fleet.recorded(1), ['room.occupied chat.1']);
  },
  { types: ['room.occupied', 'room.vacated'], rooms: ['chat.*'] },
);

it('random joins and leaves of three workers, one of which dies, end in the truth', async (fleet) => {
  const worker = await fleet.server();
  const workers = [await worker(), await worker(), await worker()];
  /** Users by worker and room. @type {Set<string>[]} */
  const here = workers.map(() => new Set());
  for (let step = 0; step < 600; step++) {
    const who = step > 400 ? 1 + (step % 2) : step % 3;
    const [room, user] = [`room-${step % 7}`, `user-${(step * 7) % 11}`];
    const key = `${room} ${user}`;
    if (here[who].delete(key)) workers[who].leave(room, user);
    else {
      here[who].add(key);
      workers[who].join(room, user);
    }
    if (step % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    if (step === 400) workers[0].kill();
  }
  const truth = [...new Set([...here[1], ...here[2]])].sort();
  /** The state that a receiver of all events has. */
  const state = async () => {
    /** @type {Set<string>} */
    const present = new Set();
    for (const { type, room, user } of await fleet.events()) {
      const key = `${room} ${user}`;
      // Each user comes and goes in turn.
      assert.equal(present.has(key), type === 'member.left', `${type} ${key}`);
      if (!present.delete(key)) present.add(key);
    }
    return [...present].sort();
  };
  await eventually(async () => `${await state().catch(() => [])}` === `${truth}`);
  await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
  assert.deepEqual(await state(), truth);
  assertSequences(await fleet.events());
});

const COUNTED_ROOM = '~7:a';
const REPORTED = [...EVENT_TYPES.slice(0, 2), ...DOOR_TYPES];

it(
  'what a door reports is recorded in the order of its room',
  async (fleet) => {
    const a = await (await fleet.server())();
    const data = '{"text":"hé"}';
    a.reporter.report(
      '~7:private-a',
      'client.event',
      { event: 'client-"x"', socket_id: '1.2', user_id: undefined },
      { data },
    );
    a.reporter.report(
      '~7:private-a',
      'client.event',
      { event: 'long' },
      { data: 'é'.repeat(9000) },
    );
    a.reporter.report('other', 'client.event', { event: 'client-y' }, { data });
    await fleet.recorded(2);
    const [small, large] = await fleet.events();
    const { seq, epoch, at, ...rest } = small;
    assert.deepEqual(rest, {
      type: 'client.event',
      room: '~7:private-a',
      event: 'client-"x"',
      socket_id: '1.2',
      data,
    });
    assert.deepEqual(
      [large.data, large.bytes, large.seq, large.epoch],
      [undefined, 18_002, 2, epoch],
    );
    assert.ok(seq === 1 && at > 0);
  },
  { types: REPORTED, rooms: ['~7:*'] },
);

it(
  'an event with a mark is recorded once over two workers, until the mark changes or the room is vacated',
  async (fleet) => {
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    const room = '~7:cache-a';
    for (const one of [a, b]) {
      one.reporter.count(room, 1);
      await fleet.recorded(1);
    }
    const missed = (/** @type {Worker} */ one, /** @type {string} */ mark) =>
      one.reporter.report(room, 'cache.missed', {}, { mark });
    for (const one of [a, b, a]) missed(one, 'epoch:0');
    assert.deepEqual(await fleet.recorded(2), [`room.occupied ${room}`, `cache.missed ${room}`]);
    missed(b, 'epoch:1');
    await fleet.recorded(3);
    for (const one of [a, b]) one.reporter.count(room, 0);
    await fleet.recorded(4);
    a.reporter.count(room, 1);
    await fleet.recorded(5);
    missed(a, 'epoch:1');
    assert.deepEqual((await fleet.recorded(6)).slice(2), [
      `cache.missed ${room}`,
      `room.vacated ${room}`,
      `room.occupied ${room}`,
      `cache.missed ${room}`,
    ]);
    assertSequences(await fleet.events());
  },
  { types: REPORTED, rooms: ['~7:*'] },
);

it(
  'a room that is followed for its misses alone causes no other event',
  async (fleet) => {
    const a = await (await fleet.server())();
    for (const mark of ['e:0', 'e:0']) {
      a.reporter.count('~7:cache-a', 1);
      await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
      a.reporter.report('~7:cache-a', 'cache.missed', {}, { mark });
      a.reporter.count('~7:cache-a', 0);
      await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
    }
    const texts = await fleet.recorded(2);
    assert.deepEqual(texts, ['cache.missed ~7:cache-a', 'cache.missed ~7:cache-a']);
  },
  { types: ['cache.missed'], rooms: ['~7:*'] },
);

it(
  'a counted room is told how many connections all workers have, also after a death',
  async (fleet) => {
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    await a.broker.subscribe(COUNTED_ROOM);
    for (let n = 1; n <= 30; n++) a.reporter.count(COUNTED_ROOM, n);
    a.reporter.count('~7:presence-a', 2);
    a.reporter.count('~8:a', 2);
    await eventually(() => a.told.length === 1);
    b.reporter.count(COUNTED_ROOM, 3);
    await eventually(() => a.told.length === 2);
    b.reporter.count(COUNTED_ROOM, 0); // it is left after the linger
    await eventually(() => a.told.length === 3);
    b.reporter.count(COUNTED_ROOM, 4);
    await eventually(() => a.told.length === 4);
    b.kill();
    await eventually(() => a.told.length === 5);
    a.reporter.count(COUNTED_ROOM, 31);
    a.reporter.count(COUNTED_ROOM, 30); // within the time in which changes are one
    await fleet.recorded(6);
    assert.deepEqual(a.told, [30, 33, 30, 34, 30]);
    const events = await fleet.events();
    assert.deepEqual(
      events.map(({ type, room, count }) => `${type} ${room} ${count ?? ''}`.trim()),
      [
        `room.occupied ${COUNTED_ROOM}`,
        ...a.told.map((count) => `room.counted ${COUNTED_ROOM} ${count}`),
      ],
    );
    assertSequences(events);
  },
  { types: ['room.occupied', 'room.counted'], rooms: [`${COUNTED_ROOM}*`], countedApps: ['7'] },
);

it(
  'a large room is told its count at most every five seconds, and the last one in the end',
  async (fleet) => {
    const a = await (await fleet.server())();
    await a.broker.subscribe(COUNTED_ROOM);
    a.reporter.count(COUNTED_ROOM, 101);
    await eventually(() => a.told.length === 1);
    const toldMs = performance.now();
    a.reporter.count(COUNTED_ROOM, 102);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    a.reporter.count(COUNTED_ROOM, 103);
    await eventually(() => a.told.length === 2);
    assert.ok(performance.now() - toldMs > 4500, `${performance.now() - toldMs} ms`);
    assert.deepEqual(a.told, [101, 103]);
    // No endpoint asks for events.
    assert.deepEqual(await fleet.events(), []);
  },
  { types: [], countedApps: ['7'] },
);

it('users of a door are recorded for nobody', async (fleet) => {
  const a = await (await fleet.server())();
  for (const user of ['~7:ann', '~ann']) a.reporter.connect(user);
  assert.deepEqual(await fleet.recorded(1), ['user.connected ~ann']);
});

begin();
