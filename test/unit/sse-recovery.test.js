// sse-recovery.test.js: an event stream after an interruption: ids, missed messages, resync
// (doors/native/sse.js, recovery/).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventClient } from '../helpers/event-stream.js';
import { limit, serve } from '../helpers/sse-server.js';

/** @param {EventClient} client */
const payloads = (client) => client.all('message').map(({ payload }) => payload);

test(
  'Last-Event-ID brings the missed messages and then live ones, without a gap or a repeat',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    const first = await open('?room=chat.1&room=news');
    await first.collect('joined', 2);
    publish('chat.1', 1);
    publish('news', 'x');
    await first.collect('message', 2);
    first.close();
    for (const payload of [2, 3]) publish('chat.1', payload);
    const again = await open('?room=chat.1&room=news', {
      'Last-Event-ID': first.reader.lastEventId,
    });
    await again.collect('message', 2);
    publish('chat.1', 4);
    await again.collect('message', 3);
    assert.deepEqual(payloads(again), [2, 3, 4]);
    assert.deepEqual(again.all('resync'), []);
    // The header is newer than the URL that the page has given.
    const third = await open(`?room=chat.1&lastEventId=${first.reader.lastEventId}`, {
      'Last-Event-ID': again.reader.lastEventId,
    });
    await third.collect('joined');
    publish('chat.1', 5);
    await third.collect('message');
    assert.deepEqual(payloads(third), [5]);
    const query = await open(`?room=chat.1&lastEventId=${again.reader.lastEventId}`);
    await query.collect('message');
    assert.deepEqual(payloads(query), [5]);
  },
);

test(
  'the first event of a room with history has an id, so that nothing published later is lost',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    const first = await open('?room=chat.1');
    await first.collect('joined');
    assert.match(first.reader.lastEventId, /^[0-9a-f]{16}:0$/);
    first.close();
    publish('chat.1', 1);
    const again = await open('?room=chat.1', { 'Last-Event-ID': first.reader.lastEventId });
    await again.collect('message');
    assert.deepEqual(payloads(again), [1]);
  },
);

test(
  'last brings the latest messages of each room with history, then live ones',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    for (const payload of [1, 2, 3]) publish('chat.1', payload);
    publish('chat.2', 'b1');
    const client = await open('?room=chat.1&room=news&room=chat.2&last=2');
    await client.collect('message', 3);
    await client.collect('joined', 3);
    assert.deepEqual(
      Object.fromEntries(client.all('joined').map(({ room, replayed }) => [room, replayed])),
      { 'chat.1': 2, news: 0, 'chat.2': 1 },
    );
    assert.deepEqual(payloads(client).sort(), [2, 3, 'b1']);
    publish('chat.1', 4);
    await client.collect('message', 4);
    assert.equal(payloads(client).at(-1), 4);
    assert.match(client.reader.lastEventId, /:4,[0-9a-f]{16}:1$/);
  },
);

test(
  'only the messages behind a reply move the id, so that a break in between loses none',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    for (const payload of [1, 2, 3]) publish('chat.1', payload);
    const client = await open('?room=chat.1&last=2');
    await client.collect('message', 2);
    assert.deepEqual(
      client.events.map(({ type, id }) => [type, id.split(':')[1]]),
      [
        ['joined', undefined],
        ['message', '2'],
        ['message', '3'],
      ],
    );
  },
);

test(
  'a returning stream with last gets what it missed, or resync and the latest',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    for (const payload of [1, 2, 3]) publish('chat.1', payload);
    const first = await open('?room=chat.1&last=1');
    await first.collect('message');
    first.close();
    for (const payload of [4, 5]) publish('chat.1', payload);
    const again = await open('?room=chat.1&last=1', {
      'Last-Event-ID': first.reader.lastEventId,
    });
    await again.collect('message', 2);
    assert.deepEqual(payloads(again), [4, 5]);
    assert.equal(again.all('joined')[0].recovered, true);
    const lost = await open('?room=chat.1&last=1', { 'Last-Event-ID': 'ffffffffffffffff:1' });
    await lost.collect('message');
    assert.deepEqual(
      lost.events.map(({ type }) => type),
      ['joined', 'resync', 'message'],
    );
    assert.deepEqual(payloads(lost), [5]);
    const [{ epoch, offset }] = lost.all('resync');
    assert.equal(offset, 4, 'the position before the messages that follow');
    assert.equal(lost.events[1].id, `${epoch}:4`);
  },
);

test('several rooms with history share one id, and each goes on where it was', limit, async (t) => {
  const { open, publish } = await serve(t);
  const query = '?room=chat.1&room=news&room=chat.2';
  const first = await open(query);
  await first.collect('joined', 3);
  publish('chat.2', 'b1');
  await first.collect('message');
  const [one, two] = first.reader.lastEventId.split(',');
  assert.match(one, /^[0-9a-f]{16}:0$/);
  assert.match(two, /^[0-9a-f]{16}:1$/);
  first.close();
  publish('chat.1', 'a1');
  publish('chat.2', 'b2');
  publish('chat.2', 'b3');
  const again = await open(query, { 'Last-Event-ID': first.reader.lastEventId });
  await again.collect('message', 3);
  assert.deepEqual(payloads(again).sort(), ['a1', 'b2', 'b3']);
  assert.match(again.reader.lastEventId, /:1,[0-9a-f]{16}:3$/);
  publish('chat.1', 'a2');
  await again.collect('message', 4);
  assert.match(again.reader.lastEventId, /:2,[0-9a-f]{16}:3$/);
  const quiet = await open(query, { 'Last-Event-ID': again.reader.lastEventId });
  await quiet.collect('joined', 3);
  publish('news', 'end');
  await quiet.collect('message');
  assert.deepEqual(payloads(quiet), ['end']);
});

for (const [name, idOf, lost] of /** @type {[string, (at: string[]) => string, string[]][]} */ ([
  ['of more rooms than the stream has', ([a, b, c]) => `${a},${b},${c}`, ['chat.1', 'chat.2']],
  ['of these rooms in another order', ([a, b]) => `${b},${a}`, ['chat.1', 'chat.2']],
  ['of rooms of which the first has gone', ([, b]) => b, ['chat.1', 'chat.2']],
  ['of the first room', ([a]) => a, ['chat.2']],
  ['of these rooms and plain ones', ([a, b]) => `${a},${b},-,-`, []],
])) {
  test(`an id ${name} is believed for a room only if it has its position`, limit, async (t) => {
    const { open, publish, broker } = await serve(t);
    for (const i of [1, 2, 3]) publish(`chat.${i}`, i);
    const positions = [1, 2, 3].map((i) => `${broker.stream(`chat.${i}`).epoch}:0`);
    const id = idOf(positions);
    const client = await open('?room=chat.1&room=chat.2', { 'Last-Event-ID': id });
    const resyncs = await client.collect('resync', lost.length);
    await client.collect('message', 2 - lost.length);
    await client.collect('joined', 2);
    assert.deepEqual(resyncs.map(({ room }) => room).sort(), lost);
    assert.equal(payloads(client).length, 2 - lost.length);
  });
}

for (const [name, id] of /** @type {const} */ ([
  ['of another stream', 'ffffffffffffffff:1'],
  ['of the future', '0000000000000001:99'],
  ['that is malformed', 'nonsense'],
  ['that is too long', 'x'.repeat(2000)],
])) {
  test(`an id ${name} gets resync, and from then on the new position`, limit, async (t) => {
    const { open, publish, broker } = await serve(t);
    publish('chat.1', 1);
    const client = await open('?room=chat.1', { 'Last-Event-ID': id });
    const [resync] = await client.collect('resync');
    assert.deepEqual(resync, {
      type: 'resync',
      room: 'chat.1',
      epoch: broker.stream('chat.1').epoch,
      offset: 1,
      reloadAfterMs: 0,
    });
    assert.equal(client.reader.lastEventId, `${resync.epoch}:1`);
    assert.deepEqual(payloads(client), []);
  });
}

test(
  'a stream that restarts under its members sends resync to each with the new position',
  limit,
  async (t) => {
    const { open, publish, broker } = await serve(t);
    const one = await open('?room=chat.1');
    const several = await open('?room=chat.2&room=chat.1');
    await Promise.all([one.collect('joined'), several.collect('joined', 2)]);
    publish('chat.1', 1);
    broker.forget('chat.1');
    publish('chat.1', 2);
    await Promise.all([one.collect('resync'), several.collect('resync')]);
    const { epoch } = broker.stream('chat.1');
    assert.equal(one.reader.lastEventId.slice(0, 16), epoch);
    assert.equal(several.reader.lastEventId.split(',')[1].slice(0, 16), epoch);
  },
);

test(
  'a room that somebody else has joined for the client does not change the id',
  limit,
  async (t) => {
    const { open, publish, hub } = await serve(t);
    const client = await open('?room=chat.1');
    await client.collect('joined');
    const [connection] = hub.connections;
    hub.join(connection, 'chat.2', {
      since: null,
      onJoined: () => connection.send('{"type":"joined","room":"chat.2"}'),
      onRefused() {},
    });
    await client.collect('joined', 2);
    publish('chat.2', 'b1');
    publish('chat.1', 'a1');
    await client.collect('message', 2);
    publish('chat.2', 'b2');
    await client.collect('message', 3);
    assert.match(client.reader.lastEventId, /^[0-9a-f]{16}:1$/);
    client.close();
    publish('chat.1', 'a2');
    const again = await open('?room=chat.1', { 'Last-Event-ID': client.reader.lastEventId });
    await again.collect('message');
    assert.deepEqual(payloads(again), ['a2']);
  },
);

test(
  'if the broker is away, a stream ends with an error and a time to return',
  limit,
  async (t) => {
    const { open, broker } = await serve(t);
    broker.isAway = true;
    for (const room of ['news', 'chat.1']) {
      const client = await open(`?room=${room}`);
      await client.ended();
      assert.equal(client.all('error')[0].error, 'UNAVAILABLE');
      assert.equal(client.all('close')[0].code, 1013);
      assert.ok(client.reader.retryMs >= 10_000 && client.reader.retryMs <= 20_000);
    }
  },
);
