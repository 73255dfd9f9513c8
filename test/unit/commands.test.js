// commands.test.js: the answers, the order and the bounds of commands (doors/native/).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { QUIET, receive } from '../helpers/hub.js';
import { build, payloads } from '../helpers/hub-members.js';

test('a message with echo: false goes to all members but its sender, and other values of echo are answered', async () => {
  const { hub, connect, published, counters } = build();
  const [sender, other] = [connect(), connect()];
  for (const { connection } of [sender, other]) hub.join(connection, 'r', QUIET);
  await turn();
  const echoes = [false, true, undefined, null];
  for (const [i, echo] of echoes.entries()) sender.say({ type: 'message', payload: i, echo });
  sender.say({ type: 'message', text: 'text', echo: false, id: 1 });
  for (const { room, publication } of published) hub.broadcast(room, publication);
  await turn();
  assert.deepEqual(payloads(sender.transport), [1, 2, 3]);
  assert.deepEqual(payloads(other.transport), [0, 1, 2, 3, 'text']);
  assert.equal(counters.deliveries, 8);
  for (const echo of [0, 'false', {}]) sender.say({ type: 'message', payload: 1, echo, id: 'x' });
  const errors = sender.transport.messages().filter(({ type }) => type === 'error');
  assert.deepEqual(
    errors.map(({ error, id }) => [error, id]),
    Array(3).fill(['INVALID_MESSAGE_FORMAT', 'x']),
  );
});

test('a message with an idempotency key is published with its fingerprint, and a conflict is answered', async () => {
  const { connect, published } = build();
  const [one, two] = [connect(), connect()];
  const message = { type: 'message', room: 'r', payload: { a: 1 }, id: 1, idempotencyKey: 'k "1"' };
  one.say(message);
  two.say({ ...message, echo: false });
  one.say({ ...message, payload: { a: 2 } });
  two.say({ ...message, idempotencyKey: undefined });
  const [first, again, other, without] = published.map(({ options }) => options);
  assert.equal(first?.idempotencyKey, 'anonymous k "1"');
  assert.deepEqual(again, first);
  assert.equal(other?.idempotencyKey, first.idempotencyKey);
  assert.notEqual(other?.fingerprint, first.fingerprint);
  assert.equal(without, undefined);
  const conflict = Object.assign(new Error('conflict'), { code: 'IDEMPOTENCY_CONFLICT' });
  published[2].reject(conflict);
  await turn();
  assert.equal(one.transport.messages()[0].error, 'IDEMPOTENCY_CONFLICT');
  for (const idempotencyKey of ['', 7, [], 'x'.repeat(129)])
    connect().say({ ...message, idempotencyKey });
  assert.equal(published.length, 4);
});

test('a message names the position that it expects, and a conflict is answered with the true one', async () => {
  const historyOf = () => ({ size: 10, ttlMs: 60_000 });
  const { connect, published } = build({ historyOf });
  const one = connect();
  const position = { epoch: 'e'.repeat(16), offset: 7 };
  const message = { type: 'message', room: 'r', payload: 1, id: 1 };
  for (const expect of [position, { offset: 0 }, { epoch: position.epoch, offset: 0 }, undefined])
    one.say({ ...message, expect });
  one.say({ ...message, expect: position, idempotencyKey: 'k' });
  assert.deepEqual(
    published.map(({ options }) => options?.expect),
    [position, { epoch: '', offset: 0 }, { ...position, offset: 0 }, undefined, position],
  );
  const at = { epoch: position.epoch, offset: 9 };
  published[0].reject(Object.assign(new Error('conflict'), { code: 'CONFLICT', position: at }));
  await turn();
  const [{ error, position: named, retryAfter }] = one.transport.messages();
  assert.deepEqual([error, named, retryAfter], ['CONFLICT', at, undefined]);
});

test('what is no position is never taken for an absent one, nor in a room without history', async () => {
  const { connect, published } = build();
  const { transport, say } = connect();
  const epoch = 'e'.repeat(16);
  const wrong = [null, 7, 'x', [], {}, { offset: 1 }, { epoch }, { epoch: 'x', offset: 1 }];
  const more = [-1, 1.5, '1', 2 ** 53].map((offset) => ({ epoch, offset }));
  for (const expect of [...wrong, ...more])
    say({ type: 'message', room: 'r', payload: 1, id: 1, expect });
  const isMalformed = (/** @type {any} */ { error, message }) =>
    error === 'INVALID_MESSAGE_FORMAT' && message.startsWith('expect is a position');
  const answers = transport.messages();
  assert.equal(answers.length, wrong.length + more.length);
  assert.ok(answers.every(isMalformed));
  say({ type: 'message', room: 'r', payload: 1, id: 1, expect: { epoch, offset: 1 } });
  const { error, message } = transport.messages().at(-1);
  assert.equal(error, 'INVALID_MESSAGE_FORMAT');
  assert.match(message, /history or state/);
  assert.equal(published.length, 0);
});

test('a join is answered when the broker has confirmed, and a message behind it waits for the answer', async () => {
  const { connect, subscribing, published } = build({ manual: true });
  const { transport, say } = connect();
  say({ type: 'join', room: 'r', id: 1 });
  say({ type: 'message', payload: 'hi' });
  await turn();
  assert.equal(transport.writes.length, 0);
  assert.equal(published.length, 0);
  subscribing[0].resolve();
  await turn();
  assert.deepEqual(transport.messages(), [{ type: 'joined', room: 'r', id: 1 }]);
  assert.equal(published[0].room, 'r');
});

test('commands that wait for a join are bounded in bytes, and commands beyond the bound are refused at once', async () => {
  const { connect, subscribing, published, counters, operations } = build({ manual: true });
  const { transport, say } = connect();
  say({ type: 'join', room: 'r' });
  for (let id = 0; id < 300; id++)
    say({ type: 'message', room: 'r', payload: 'x'.repeat(9_000), id });
  const refused = transport.messages();
  assert.equal(refused.length, 300 - Math.floor((256 * 1024) / (9_000 + 512 + 50)));
  for (const { error } of refused) assert.equal(error, 'UNAVAILABLE');
  assert.equal(counters.readsRefused, refused.length);
  subscribing[0].resolve();
  await turn();
  assert.equal(published.length, 300 - refused.length);
  assert.deepEqual([operations.lane.queuedBytes, operations.lane.isEmpty], [0, true]);
  say({ type: 'message', room: 'r', payload: 1 });
  assert.equal(published.length, 301 - refused.length);
});

test('a join that the broker refuses is answered UNAVAILABLE, and the connection is not in the room', async () => {
  const { connect, subscribing, hub } = build({ manual: true });
  const one = connect();
  const two = connect();
  one.say({ type: 'join', room: 'r', id: 1 });
  two.say({ type: 'join', room: 'r', id: 2 });
  assert.equal(subscribing.length, 1, 'one subscription for both');
  subscribing[0].reject(Object.assign(new Error('away'), { code: 'UNAVAILABLE' }));
  await turn();
  for (const { transport } of [one, two])
    assert.equal(transport.messages()[0].error, 'UNAVAILABLE');
  assert.equal(hub.rooms.has('r'), false);
  one.say({ type: 'join', room: 'r' });
  assert.equal(subscribing.length, 2);
});

test('each command has the answer that the protocol defines', async () => {
  const { connect, published } = build();
  const { transport, say, connection } = connect();
  const answer = async (/** @type {object|string} */ message) => {
    transport.writes.length = 0;
    say(message);
    await turn();
    return transport.messages();
  };
  assert.deepEqual(await answer({ type: 'ping', id: 7 }), [{ type: 'pong', id: 7 }]);
  assert.deepEqual(await answer({ type: 'echo', payload: { a: 1 } }), [
    { type: 'echo', payload: { a: 1 } },
  ]);
  assert.equal((await answer({ type: 'nope', id: 'x' }))[0].error, 'UNKNOWN_TYPE');
  assert.equal((await answer({ type: 'join', room: 'no way' }))[0].error, 'INVALID_ROOM');
  assert.equal((await answer({ type: 'message', payload: 1 }))[0].error, 'ROOM_REQUIRED');
  assert.equal((await answer({ type: 'leave', room: 'r' }))[0].error, 'NOT_IN_ROOM');
  assert.deepEqual(await answer({ type: 'join', room: 'r' }), [{ type: 'joined', room: 'r' }]);
  assert.equal((await answer({ type: 'join', room: 'r' }))[0].error, 'ALREADY_JOINED');
  const welcome = (await answer({ type: 'hello' }))[0];
  assert.equal(welcome.connectionId, connection.id);
  assert.equal(welcome.heartbeatMs, 30_000);
  assert.deepEqual(await answer({ type: 'message', text: 'hi', id: 3 }), []);
  published[0].resolve();
  await turn();
  assert.deepEqual(transport.messages(), [{ type: 'ack', id: 3 }]);
  assert.deepEqual(await answer({ type: 'leave', room: 'r' }), [{ type: 'left', room: 'r' }]);
});

test('a message has exactly one of payload and text', async () => {
  for (const message of [{ payload: 1, text: 'a' }, {}, { text: 5 }]) {
    const { connect } = build();
    const { transport, say } = connect();
    say({ type: 'message', room: 'r', ...message });
    assert.equal(transport.messages()[0].error, 'INVALID_MESSAGE_FORMAT');
  }
});

test('a publish that the broker refuses is answered with the broker’s error code', async () => {
  for (const code of ['UNAVAILABLE', 'OUTCOME_UNKNOWN']) {
    const { connect, published, counters } = build();
    const { transport, say } = connect();
    say({ type: 'message', room: 'r', payload: 1, id: 'm' });
    published[0].reject(Object.assign(new Error('x'), { code }));
    await turn();
    assert.deepEqual([transport.messages()[0].error, transport.messages()[0].id], [code, 'm']);
    assert.equal(/** @type {Record<string, number>} */ (counters.errors)[code], 1);
  }
});

test('a broadcast reaches every connection, and its result follows its own delivery', async () => {
  const { connect, published, hub } = build();
  const sender = connect();
  const other = connect();
  sender.say({ type: 'broadcast', payload: { n: 1 }, id: 9 });
  published[0].resolve();
  await turn();
  assert.equal(sender.transport.writes.length, 0, 'nothing before the delivery');
  hub.broadcast('*', published[0].publication);
  await turn();
  await turn();
  assert.deepEqual(sender.transport.messages(), [
    { type: 'broadcast', payload: { n: 1 } },
    { type: 'broadcastResult', payload: { n: 1 }, listenerCount: 42, id: 9 },
  ]);
  assert.deepEqual(other.transport.messages(), [{ type: 'broadcast', payload: { n: 1 } }]);
});

test('a broadcast has one answer: no result before the broker’s answer, and no error after a result', async (t) => {
  const { connect, published, hub, commands } = build();
  const { transport, say } = connect();
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  const answers = () => transport.messages().filter(({ type }) => type !== 'broadcast');
  const sweepAfter = async (/** @type {number} */ ms) => {
    nowMs += ms;
    commands.broadcasts.sweep();
    await turn();
    return answers().map(({ type, id, error = type }) => [error, id]);
  };
  for (const id of [1, 2, 3]) say({ type: 'broadcast', payload: id, id });
  published[1].resolve();
  hub.broadcast('*', published[2].publication);
  await turn();
  await turn();
  const lost = Object.assign(new Error('lost'), { code: 'OUTCOME_UNKNOWN' });
  published[2].reject(lost); // its answer, not the broadcast
  assert.deepEqual(await sweepAfter(3000), [
    ['broadcastResult', 3],
    ['broadcastResult', 2],
  ]);
  published[0].reject(lost);
  await turn();
  assert.deepEqual(await sweepAfter(3000), [
    ['broadcastResult', 3],
    ['broadcastResult', 2],
    ['OUTCOME_UNKNOWN', 1],
  ]);
  assert.equal(commands.broadcasts.pending.size, 0);
});

test('clients may not broadcast if FANFARE_CLIENT_BROADCAST is off', () => {
  const { connect } = build({ env: { FANFARE_CLIENT_BROADCAST: 'off' } });
  const { transport, say } = connect();
  say({ type: 'broadcast', payload: 1 });
  assert.equal(transport.messages()[0].error, 'PERMISSION_DENIED');
});

test('a broadcast over its rate is answered with the time to wait and is not published; repeated, it closes with 4005', () => {
  /** @type {number[]} */
  const asked = [];
  const waits = [7, -1];
  const { commands, connect, published } = build({
    manual: true,
    admitBroadcast: (_connection, _nowMs, bytes) => {
      asked.push(bytes);
      return waits[asked.length - 1];
    },
  });
  const { connection, transport } = connect();
  receive(commands, connection, { type: 'broadcast', id: 'b', payload: 'hi' });
  const [{ error, retryAfter, id }] = transport.messages();
  assert.deepEqual([error, retryAfter, id], ['RATE_LIMIT_EXCEEDED', 7, 'b']);
  receive(commands, connection, { type: 'broadcast', payload: 'hi' });
  assert.equal(transport.closed?.code, 4005);
  assert.deepEqual(asked, [4, 4]);
  assert.equal(published.length, 0);
});

test('commands that a limit or a field refuses never close the connection', () => {
  const { connect } = build();
  const { transport, say } = connect();
  const deep = `${'['.repeat(40)}${']'.repeat(40)}`;
  const refused = [
    `{"type":"message","room":"a","payload":${deep}}`,
    `{"type":"join","room":"a","since":{${Array.from({ length: 300 }, (_, i) => `"k${i}":1`)}}}`,
    '{"type":"join","room":"a","since":{"__proto__":1}}',
    `{"type":"ping","id":"${'i'.repeat(65)}"}`,
    '{"type":"message","room":"a","text":1}',
    { type: 'message', room: 'a' },
    { type: 'message', room: 'a', payload: 1, echo: 'no' },
    { type: 'message', room: 'a', payload: 1, idempotencyKey: 'k'.repeat(129) },
    { type: 'message', room: 'a', payload: 1, expect: null },
    { type: 'join', room: 'a', last: 10_001 },
    { type: 'join', room: 'a', lastSeconds: -1 },
    { type: 'presence', room: 'a', limit: 1_000_000 },
    { type: 'history', room: 'a', limit: 1_000_000 },
    { type: 'broadcast' },
    { type: 'echo' },
  ];
  for (const command of refused) say(command);
  assert.equal(transport.closed, null);
  const errors = transport.messages().filter((m) => m.error === 'INVALID_MESSAGE_FORMAT').length;
  assert.ok(errors >= refused.length - 3, `${errors}: the others have errors of their own`);
  say({ type: 'ping', id: 'alive' });
  assert.equal(transport.messages().at(-1).type, 'pong');
});

test('the third malformed message within ten seconds closes with 4501', () => {
  const { connect } = build();
  const { transport, say } = connect();
  say('nonsense');
  say('[]');
  say({ type: 'ping' });
  const closedEarly = transport.closed !== null;
  assert.ok(!closedEarly);
  say('{"type":7}');
  assert.equal(transport.closed?.code, 4501);
  assert.equal(transport.messages().filter((m) => m.error === 'INVALID_MESSAGE_FORMAT').length, 3);
});

test('a connection may be in maxRoomsPerConnection rooms and no more', () => {
  const { connect } = build({ env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '2' } });
  const { transport, say } = connect();
  for (const room of ['a', 'b', 'c']) say({ type: 'join', room });
  assert.equal(transport.messages().at(-1).error, 'ROOM_LIMIT');
  const observed = build({
    env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '2', FANFARE_LIMITS: 'observe' },
  });
  const free = observed.connect();
  for (const room of ['a', 'b', 'c']) free.say({ type: 'join', room });
  assert.equal(observed.counters.observed.rooms, 1);
});

test('a handler that throws closes its own connection and no other', () => {
  const { connect, hub } = build();
  const bad = connect();
  const good = connect();
  hub.join = () => {
    throw new Error('our fault');
  };
  bad.say({ type: 'join', room: 'r' });
  assert.equal(bad.transport.messages()[0].error, 'INTERNAL_ERROR');
  assert.equal(bad.transport.closed?.code, 1011);
  good.say({ type: 'ping' });
  assert.deepEqual(good.transport.messages(), [{ type: 'pong' }]);
});

test('a draining worker refuses publishes and still answers other commands', async () => {
  const { connect, commands, phase, published } = build();
  const { transport, say } = connect();
  phase.advance('settling');
  say({ type: 'message', room: 'r', payload: 1, id: 1 });
  say({ type: 'broadcast', payload: 1, id: 2 });
  say({ type: 'ping' });
  assert.deepEqual(
    transport.messages().map(({ type, error, id }) => [type, error, id]),
    [
      ['error', 'UNAVAILABLE', 1],
      ['error', 'UNAVAILABLE', 2],
      ['pong', undefined, undefined],
    ],
  );
  assert.equal(published.length, 0);
  assert.equal(commands.broadcasts.pending.size, 0);
});
