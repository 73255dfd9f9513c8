// door-format.test.js: a format that a door registers. It leaves publications out, it has no
// resync, and its members share rooms with native ones.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodePublications, FORMAT, registerFormat } from '../../src/protocol/format.js';
import { roomOfPrefix, roomPrefix, textFrame } from '../../src/protocol/frame.js';
import {
  ANNOUNCEMENTS,
  asTransient,
  encodePublication,
  isPublication,
  isTransient,
  KIND,
  kindOf,
  payloadText,
} from '../../src/protocol/publication.js';
import { build, publication, settle } from '../helpers/recovery.js';

/** Messages are `[room, payload]`; payloads of `"quiet"`, and all other kinds, are left out. */
registerFormat(FORMAT.PUSHER, {
  encode(prefix, publications) {
    const room = roomOfPrefix(prefix);
    const frames = publications
      .filter((one) => kindOf(one) === KIND.MESSAGE || kindOf(one) === KIND.POSITIONED)
      .map(payloadText)
      .filter((text) => text !== '"quiet"')
      .map((text) => textFrame(`["${room}",${text}]`));
    return Buffer.concat(frames);
  },
  endOf: null,
  encodeResync: () => Buffer.alloc(0),
});

/** @param {ReturnType<typeof build>} built @param {string} room @param {number} [last] */
async function join(built, room, last = 0) {
  const member = built.connect();
  member.transport.format = FORMAT.PUSHER;
  built.hub.join(member.connection, room, {
    since: null,
    last,
    onJoined() {},
    onRefused: () => assert.fail('refused'),
  });
  await settle();
  return member;
}

/** @param {import('../helpers/fake-transport.js').FakeTransport} transport */
const payloads = (transport) => transport.messages().map(([, payload]) => payload);

test('the name of a room can be read from its prefix', () => {
  for (const room of ['r', '~123:private-a/e', 'a'.repeat(512)])
    assert.equal(roomOfPrefix(roomPrefix(room)), room);
});

test('members of a door get its format, and nothing of what it leaves out', async () => {
  const built = build();
  const { hub } = built;
  const other = await join(built, 'r');
  const native = built.connect();
  native.say({ type: 'join', room: 'r' });
  for (const payload of ['a', 'quiet', 'b']) hub.broadcast('r', publication(payload));
  await settle();
  assert.deepEqual(other.transport.messages(), [
    ['r', 'a'],
    ['r', 'b'],
  ]);
  assert.equal(native.of('message').length, 3);
  const writes = other.transport.writes.length;
  hub.broadcast('r', publication('quiet'));
  hub.broadcast('*', encodePublication(KIND.BROADCAST, 1, 0, 'me', Buffer.from('1'), 0, 1));
  hub.broadcast('r', Buffer.concat([ANNOUNCEMENTS.join, Buffer.from('{"user":"u"}')]));
  await settle();
  assert.equal(other.transport.writes.length, writes, 'no empty write');
  assert.equal(native.of('broadcast').length, 1);
  assert.equal(native.of('presence').length, 1);
});

test('a member does not get its own messages, whatever the format leaves out', async () => {
  const built = build();
  const one = await join(built, 'r');
  const two = await join(built, 'r');
  const { id } = one.connection;
  for (const payload of ['quiet', 1, 2, 'quiet', 3])
    built.hub.broadcast('r', publication(payload, payload === 2 ? id : ''));
  await settle();
  assert.deepEqual(payloads(one.transport), [1, 3]);
  assert.deepEqual(payloads(two.transport), [1, 2, 3]);
  built.hub.broadcast('r', publication('quiet'));
  built.hub.broadcast('r', publication(4, id));
  await settle();
  assert.deepEqual(payloads(one.transport), [1, 3]);
  assert.deepEqual(payloads(two.transport), [1, 2, 3, 4]);
});

test('the latest messages of a room with history come in the format of the door', async () => {
  const built = build();
  const first = await join(built, 'h');
  const { id } = first.connection;
  for (const payload of [1, 'quiet', 2, 3])
    built.broker.accept('h', publication(payload, payload === 2 ? id : ''));
  built.broker.deliver();
  await settle();
  assert.deepEqual(payloads(first.transport), [1, 3]);
  const late = await join(built, 'h', 4);
  assert.deepEqual(payloads(late.transport), [1, 2, 3]);
  const native = built.connect();
  native.say({ type: 'join', room: 'h', last: 4 });
  await settle();
  assert.equal(native.of('message').length, 4);
});

test('a transient message in a room with history is delivered, and is no sign of a missing rule', async () => {
  const built = build();
  const member = built.connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  built.publish(1);
  built.broker.deliver();
  const except = publication('not mine', member.connection.id);
  for (const message of [publication('now'), except]) {
    assert.ok(isPublication(asTransient(message)) && isTransient(message));
    assert.equal(kindOf(message), KIND.MESSAGE);
    built.hub.broadcast('h', message);
  }
  await settle();
  const [kept, transient, ...others] = member.of('message');
  assert.deepEqual([kept.offset, transient.payload, transient.offset], [1, 'now', undefined]);
  assert.deepEqual(others, []);
  assert.equal(built.counters.unnumbered, 0);
  built.hub.broadcast('h', publication('without the flag'));
  assert.equal(built.counters.unnumbered, 1);
  built.publish(1);
  built.broker.deliver();
  await settle();
  assert.equal(member.of('message').at(-1).offset, 2);
  assert.equal(member.of('resync').length, 0);
});

test('the flag of transient messages belongs to messages only', () => {
  const payload = Buffer.from('1');
  const broadcast = encodePublication(KIND.BROADCAST, 1, 0, 'me', payload, 0, payload.length);
  assert.ok(isPublication(broadcast));
  assert.equal(isPublication(asTransient(broadcast)), false);
});

test('a resync is not sent in a format that has none', async () => {
  const built = build();
  const other = await join(built, 'h');
  const native = built.connect();
  native.say({ type: 'join', room: 'h' });
  await settle();
  built.publish(5);
  built.broker.deliver();
  await settle();
  built.broker.forget('h');
  built.publish(5);
  built.broker.deliver();
  await settle();
  assert.equal(native.of('resync').length, 1);
  assert.deepEqual(
    other.transport.messages().filter((message) => !Array.isArray(message)),
    [],
  );
  assert.ok(other.transport.writes.every((bytes) => bytes.length > 0));
});

test('a member that reads too slowly gets the rest in the format of the door', async () => {
  const built = build();
  const slow = await join(built, 'h');
  slow.transport.isStuck = true;
  for (let i = 1; i <= 40; i++) {
    built.broker.accept('h', publication(i % 4 === 0 ? 'quiet' : `${i} ${'x'.repeat(30_000)}`));
    built.broker.deliver();
    await settle();
  }
  assert.equal(slow.connection.lags, 1);
  for (let i = 0; i < 40; i++) {
    slow.transport.drain();
    await settle();
  }
  assert.equal(slow.connection.lags, 0);
  assert.deepEqual(
    payloads(slow.transport).map((payload) => Number.parseInt(payload, 10)),
    Array.from({ length: 40 }, (_, i) => i + 1).filter((i) => i % 4 !== 0),
  );
});

test('encoders of native formats are as before', () => {
  const frames = encodePublications(FORMAT.FRAMES, roomPrefix('r'), [publication('a')]);
  assert.equal(
    frames.toString('latin1', 2),
    '{"type":"message","room":"r","payload":"a","from":"me","timestamp":1760000000000}',
  );
});

/** Commands that six native clients send, at random but the same in each run. */
const scripts = fc.array(
  fc.record({
    client: fc.nat(5),
    type: fc.constantFrom('join', 'leave', 'message', 'history', 'broadcast', 'presence', 'close'),
    room: fc.constantFrom('a', 'h', 'p'),
    number: fc.integer({ min: 1, max: 5 }),
    isPart: fc.boolean(),
    isPause: fc.boolean(),
  }),
  { minLength: 20, maxLength: 80 },
);

/**
 * Runs a script.
 * @param {typeof scripts extends fc.Arbitrary<infer T> ? T : never} script
 * @param {number} format of two more members of each room
 * @returns {Promise<string[]>} what each native client has received, with ids by its own numbers
 */
async function bytesOf(script, format) {
  const built = build({ covers: (room) => room.startsWith('p') });
  const { hub, broker } = built;
  Object.assign(broker, {
    publish: async (/** @type {string} */ room, /** @type {Buffer} */ message) => {
      if (!room.startsWith('h')) return hub.broadcast(room, message);
      const position = broker.accept(room, message);
      broker.deliver();
      return position;
    },
  });
  const clients = Array.from({ length: 6 }, built.connect);
  for (const room of ['a', 'h', 'p', 'a', 'h', 'p'])
    (await join(built, room)).transport.format = format;
  clients[4].transport.format = FORMAT.EVENTS;
  for (const [id, { client, type, room, number, isPart, isPause }] of script.entries()) {
    const { connection, say } = clients[client];
    if (type === 'close') {
      if (number < 3) connection.close({ code: 4000 + number, reason: 'asked' });
      else connection.announceShutdown(number);
    } else {
      say({
        ...{ type, id, room, payload: type === 'message' ? { number, id } : undefined },
        ...(type === 'broadcast' && { payload: number }),
        ...(isPart && type === 'message' && { echo: false }),
        ...(isPart && type === 'join' && { last: number, presence: false }),
        ...(isPart && type === 'history' && { limit: number }),
      });
    }
    if (isPause) await settle();
  }
  for (let i = 0; i < 5; i++) await settle();
  const ids = clients.map(({ connection }) => connection.id);
  return clients.map(({ transport: { writes, closed } }) => {
    let text = Buffer.concat(writes).toString('latin1') + JSON.stringify(closed);
    for (const [i, id] of ids.entries()) text = text.replaceAll(id, `<client ${i}>`);
    // Frames with a longer id have another length in front.
    return text.replace(/"timestamp":\d+/g, '"timestamp":0').replace(/[^ -~\n]+./g, '|');
  });
}

test('native clients get the same bytes, whether the others in their rooms are of another door or not', async () => {
  let received = 0;
  await fc.assert(
    fc.asyncProperty(scripts, async (script) => {
      const alone = await bytesOf(script, FORMAT.FRAMES);
      received += alone.join('').length;
      assert.deepEqual(await bytesOf(script, FORMAT.PUSHER), alone);
    }),
    { numRuns: 60 },
  );
  assert.ok(received > 100_000, `${received} bytes compared`);
});
