// broker.test.js: the contract of publications for every broker (src/backend/broker.js). Rooms with
// history: history.test.js.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { slotOfTag } from '../../src/backend/redis/slots.js';
import { EVERY_BACKEND, eventually, LINGER_MS, LONG_ROOMS, suite } from './suite.js';

suite(EVERY_BACKEND, (it) => {
  it('the broker is up after the start, and down after the end', async (_t, attach) => {
    const a = await attach();
    assert.equal(a.broker.state, 'up');
    await a.broker.close();
    assert.equal(a.broker.state, 'down');
    assert.deepEqual(a.states, ['up', 'down']);
  });

  it('a publication reaches every subscribed worker, the publisher included, and no other', async (_t, attach) => {
    const [a, b, c] = [await attach(), await attach(), await attach()];
    await Promise.all([
      a.broker.subscribe('room'),
      b.broker.subscribe('room'),
      c.broker.subscribe('other'),
    ]);
    await a.broker.publish('room', Buffer.from('hello'));
    await Promise.all([a.received(1), b.received(1)]);
    await a.broker.publish('other', Buffer.from('end'));
    await c.received(1);
    assert.deepEqual(a.texts, ['room hello']);
    assert.deepEqual(b.texts, ['room hello']);
    assert.deepEqual(c.texts, ['other end']);
  });

  it('a resolved subscription misses no publication', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    for (let i = 0; i < 50; i++) {
      await b.broker.subscribe(`room-${i}`);
      await a.broker.publish(`room-${i}`, Buffer.from('x'));
    }
    await b.received(50);
    assert.equal(new Set(b.texts).size, 50);
  });

  it('publications of one publisher keep their order, in a burst and singly', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([a.broker.subscribe('room'), b.broker.subscribe('room')]);
    const expected = [];
    const published = [];
    for (let i = 0; i < 1000; i++) {
      expected.push(`room ${i}`);
      published.push(a.broker.publish('room', Buffer.from(`${i}`)));
      if (i % 100 === 0) await published[i];
    }
    await Promise.all(published);
    await Promise.all([a.received(1000), b.received(1000)]);
    assert.deepEqual(a.texts, expected);
    assert.deepEqual(b.texts, expected);
  });

  it('all workers see concurrent publishes in the same order', async (_t, attach) => {
    const [a, b, c] = [await attach(), await attach(), await attach()];
    await Promise.all([a, b, c].map(({ broker }) => broker.subscribe('room')));
    const published = [];
    for (let i = 0; i < 300; i++) {
      published.push(
        a.broker.publish('room', Buffer.from(`a${i}`)),
        b.broker.publish('room', Buffer.from(`b${i}`)),
      );
      if (i % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(published);
    await Promise.all([a.received(600), b.received(600), c.received(600)]);
    assert.deepEqual(a.texts, c.texts);
    assert.deepEqual(b.texts, c.texts);
  });

  it('publications of many rooms at once reach the subscribers of their own room', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const rooms = Array.from({ length: 2500 }, (_, i) => `room-${i}`);
    await Promise.all(rooms.map((room, i) => (i % 2 ? a : b).broker.subscribe(room)));
    await Promise.all(rooms.map((room) => a.broker.publish(room, Buffer.from(room))));
    await Promise.all([a.received(1250), b.received(1250)]);
    assert.deepEqual(
      a.texts.sort(),
      rooms
        .filter((_, i) => i % 2)
        .map((room) => `${room} ${room}`)
        .sort(),
    );
    assert.deepEqual(
      b.texts.sort(),
      rooms
        .filter((_, i) => i % 2 === 0)
        .map((room) => `${room} ${room}`)
        .sort(),
    );
  });

  it('names of rooms have up to 512 characters', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all(LONG_ROOMS.map((room) => b.broker.subscribe(room)));
    for (const room of LONG_ROOMS) {
      // Two of one tick share a message.
      const one = a.broker.publish(room, Buffer.from('1'));
      await Promise.all([one, a.broker.publish(room, Buffer.from('2'))]);
      await a.broker.publish(room, Buffer.from('3'), { idempotencyKey: 'key' });
      await a.broker.publish(room, Buffer.from('x'), { idempotencyKey: 'key' });
      await a.broker.publish(room, Buffer.alloc(100_000, '4'));
    }
    await b.received(4 * LONG_ROOMS.length);
    for (const room of LONG_ROOMS) {
      const got = b.texts.filter((_, i) => b.positions[i].room === room);
      assert.deepEqual(
        got.map((text) => text.slice(0, room.length + 2)),
        ['1', '2', '3', '4'].map((text) => `${room} ${text}`),
      );
    }
    for (const room of LONG_ROOMS) b.broker.unsubscribe(room);
  });

  it('a repeated idempotency key publishes nothing in a room without history', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([a.broker.subscribe('room'), a.broker.subscribe('other')]);
    const once = { idempotencyKey: 'key', fingerprint: 'one' };
    assert.equal(await a.broker.publish('room', Buffer.from('1'), once), undefined);
    for (const { broker } of [a, b]) {
      assert.equal(await broker.publish('room', Buffer.from('again'), once), undefined);
      await broker.publish('room', Buffer.from('again'), { idempotencyKey: 'key' });
      const other = { idempotencyKey: 'key', fingerprint: 'other' };
      await assert.rejects(broker.publish('room', Buffer.from('2'), other), {
        code: 'IDEMPOTENCY_CONFLICT',
      });
    }
    // The same key in another room is another key. A key may be long, and of any characters.
    await b.broker.publish('other', Buffer.from('2'), once);
    const long = { idempotencyKey: 'ключ \n'.repeat(1000) };
    await b.broker.publish('room', Buffer.from('3'), long);
    await a.broker.publish('room', Buffer.from('again'), long);
    await a.broker.publish('room', Buffer.from('4'));
    await a.received(4);
    assert.deepEqual(a.texts.sort(), ['other 2', 'room 1', 'room 3', 'room 4']);
  });

  it('publications with and without a key keep the order of their publisher', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('room');
    const numbers = Array.from({ length: 300 }, (_, i) => i);
    const published = numbers.map((i) =>
      a.broker.publish(
        'room',
        Buffer.from(`${i}`),
        i % 3 === 0 ? { idempotencyKey: `${i}` } : undefined,
      ),
    );
    await Promise.all(published);
    await b.received(300);
    assert.deepEqual(
      b.texts,
      numbers.map((i) => `room ${i}`),
    );
  });

  it('one key that several workers publish at once is accepted once', async (_t, attach) => {
    const [a, b, c] = [await attach(), await attach(), await attach()];
    await c.broker.subscribe('room');
    const keys = Array.from({ length: 100 }, (_, i) => `key-${i % 10}`);
    await Promise.all(
      keys.map((idempotencyKey, i) =>
        (i % 3 ? a : b).broker.publish('room', Buffer.from(idempotencyKey), { idempotencyKey }),
      ),
    );
    await a.broker.publish('room', Buffer.from('end'));
    await c.received(11);
    assert.equal(new Set(c.texts).size, 11);
  });

  it('a large publication with an idempotency key is delivered once', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('room');
    const large = randomBytes(1024 * 1024);
    for (const { broker } of [a, b, a])
      await broker.publish('room', Buffer.from(large), { idempotencyKey: 'key' });
    await a.broker.publish('room', Buffer.from('end'));
    await b.received(2);
    assert.ok(b.publications[0].equals(large));
  });

  it('a room that is subscribed twice is delivered once', async (_t, attach) => {
    const a = await attach();
    await a.broker.subscribe('room');
    await a.broker.subscribe('room');
    await Promise.all([a.broker.subscribe('new'), a.broker.subscribe('new')]);
    await a.broker.publish('new', Buffer.from('1'));
    await a.broker.publish('room', Buffer.from('2'));
    await a.received(2);
    assert.deepEqual(a.texts.sort(), ['new 1', 'room 2']);
  });

  it('an unsubscribed room is not delivered after its linger time', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([
      a.broker.subscribe('room'),
      a.broker.subscribe('end'),
      b.broker.subscribe('room'),
    ]);
    a.broker.unsubscribe('room');
    await eventually(async () => {
      const before = a.texts.length;
      await b.broker.publish('room', Buffer.from('x'));
      await b.broker.publish('end', Buffer.from('y'));
      await eventually(() => a.texts.at(-1) === 'end y' && a.texts.length > before);
      return a.texts.length === before + 1;
    });
  });

  it('a room that is subscribed again while it lingers stays subscribed', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await a.broker.subscribe('room');
    a.broker.unsubscribe('room');
    await a.broker.subscribe('room');
    await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
    await b.broker.publish('room', Buffer.from('x'));
    await a.received(1);
  });

  it('a room that is subscribed and unsubscribed in one tick ends in the last requested state', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    for (let i = 0; i < 20; i++) {
      const subscribed = a.broker.subscribe('room');
      a.broker.unsubscribe('room');
      await Promise.all([subscribed, a.broker.subscribe('room')]);
      if (i % 5 === 0) await new Promise((resolve) => setTimeout(resolve, LINGER_MS / 4));
    }
    await b.broker.publish('room', Buffer.from('x'));
    await a.received(1);
  });

  it('every byte value is delivered, and the given buffer is not modified', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('room');
    const publication = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256));
    const copy = Buffer.from(publication);
    await a.broker.publish('room', publication);
    await a.broker.publish('room', Buffer.alloc(1));
    await b.received(2);
    assert.deepEqual(b.publications[0], copy);
    assert.deepEqual(b.publications[1], Buffer.alloc(1));
    assert.deepEqual(publication, copy);
  });

  it('large publications keep their place among small ones', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([a.broker.subscribe('room'), b.broker.subscribe('room')]);
    const sizes = [
      5,
      64 * 1024,
      7,
      100 * 1024,
      9,
      10,
      65_532,
      65_533,
      1,
      1024 * 1024,
      3,
      100 * 1024,
      100 * 1024,
      2,
    ];
    const publications = sizes.map((size, i) => Buffer.alloc(size, i));
    await Promise.all(publications.map((publication) => a.broker.publish('room', publication)));
    await Promise.all([a.received(sizes.length), b.received(sizes.length)]);
    for (const { publications: received } of [a, b]) {
      assert.deepEqual(
        received.map(({ length }) => length),
        sizes,
      );
      assert.ok(received.every((publication, i) => publication.equals(publications[i])));
    }
  });

  it('a received publication may be kept', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('room');
    const publications = Array.from({ length: 2000 }, (_, i) => Buffer.from(`${i} `.repeat(20)));
    for (let i = 0; i < publications.length; i += 100) {
      await Promise.all(
        publications.slice(i, i + 100).map((publication) => a.broker.publish('room', publication)),
      );
    }
    await b.received(publications.length);
    assert.ok(b.publications.every((publication, i) => publication.equals(publications[i])));
  });

  it('connections are counted over all workers, also when the counts change and when a worker leaves', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    a.broker.reportConnections(3);
    b.broker.reportConnections(5);
    await eventually(
      async () =>
        (await a.broker.countConnections()) === 8 && (await b.broker.countConnections()) === 8,
    );
    a.broker.reportConnections(1);
    b.broker.reportConnections(4);
    b.broker.reportConnections(0);
    b.broker.reportConnections(6);
    assert.ok((await a.broker.countConnections()) >= 1);
    await eventually(
      async () =>
        (await a.broker.countConnections()) === 7 && (await b.broker.countConnections()) === 7,
    );
    const c = await attach();
    await eventually(async () => (await c.broker.countConnections()) === 7);
    await b.broker.close();
    await eventually(
      async () =>
        (await a.broker.countConnections()) === 1 && (await c.broker.countConnections()) === 1,
    );
  });

  it('close waits for publications in flight, and may be called twice', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('room');
    const published = a.broker.publish('room', Buffer.from('last'));
    await Promise.all([a.broker.close(), a.broker.close()]);
    await a.broker.close();
    await published;
    await b.received(1);
  });

  it('after close no publication is accepted', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('room');
    await a.broker.close();
    await assert.rejects(a.broker.publish('room', Buffer.from('x')), {
      name: 'BrokerError',
      code: 'UNAVAILABLE',
    });
    await assert.rejects(a.broker.subscribe('room'), { name: 'BrokerError', code: 'UNAVAILABLE' });
    a.broker.unsubscribe('room');
    a.broker.reportConnections(7);
    assert.deepEqual(b.texts, []);
  });
});

/** @param {number} slot @param {number} count @returns {string[]} rooms in that slot */
function roomsIn(slot, count) {
  const rooms = [];
  for (let i = 0; rooms.length < count; i++)
    if (slotOfTag(`room-${i}`) === slot) rooms.push(`room-${i}`);
  return rooms;
}

suite(['redis cluster'], (it) => {
  it('when the subscribing connection is lost, rooms of one slot are restored by one command', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const slots = [1, 9000];
    const rooms = slots.flatMap((slot) => roomsIn(slot, 12));
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    const { connection } = /** @type {import('../../src/backend/redis/broker.js').RedisBroker} */ (
      a.broker
    );
    await eventually(() => connection.isWritable);
    const primaries = /** @type {import('ioredis').Cluster} */ (connection.redis).nodes('master');
    const commands = async () => {
      const texts = await Promise.all(primaries.map((redis) => redis.info('commandstats')));
      let calls = 0;
      for (const text of texts)
        calls += Number(/cmdstat_ssubscribe:calls=(\d+)/.exec(text)?.[1] ?? 0);
      return calls;
    };
    const before = await commands();
    const isDegraded = eventually(() => b.broker.state === 'degraded');
    for (const redis of primaries) await redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await isDegraded;
    await eventually(() => a.broker.state === 'up' && b.broker.state === 'up');
    // Each of the two workers also restores some channels of its own.
    const restored = (await commands()) - before;
    assert.ok(restored < rooms.length, `${restored} commands for ${rooms.length} rooms`);
    for (const room of rooms) await a.broker.publish(room, Buffer.from('again'));
    await b.received(rooms.length);
  });
});
