import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Connection } from '../../src/hub/connection.js';
import { FORMAT } from '../../src/protocol/format.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, noHistory, QUIET, receive } from '../helpers/hub.js';

/** A hub with a broker. If `manual`, the test settles the broker's promises. */
function build({
  env = {},
  manual = false,
  budgetBytes = 1e9,
  onWarning = (/** @type {string} */ _text) => {},
  admitBroadcast = /** @type {Parameters<typeof buildHub>[0]['admitBroadcast']} */ (undefined),
} = {}) {
  const config = configOf(env);
  const clock = { now: 0 };
  /** @type {{room: string, resolve: () => void, reject: (error: Error) => void}[]} */
  const subscribing = [];
  /**
   * @type
   *   {{room: string, publication: Buffer, options?: import('../../src/backend/broker.js').PublishOptions, resolve: () => void, reject: (error: Error) => void}[]}
   */
  const published = [];
  /** @type {string[]} */
  const unsubscribed = [];
  const broker = {
    subscribe: (/** @type {string} */ room) =>
      manual
        ? new Promise((/** @type {(value: void) => void} */ resolve, reject) =>
            subscribing.push({ room, resolve, reject }),
          )
        : Promise.resolve(),
    unsubscribe: (/** @type {string} */ room) => void unsubscribed.push(room),
    /** @type {import('../../src/backend/broker.js').Broker['publish']} */
    publish: (room, publication, options) =>
      new Promise((/** @type {(value: void) => void} */ resolve, reject) =>
        published.push({ room, publication, options, resolve, reject }),
      ),
    reportConnections() {},
    countConnections: async () => 42,
    history: noHistory,
  };
  const { counters, slowConsumers, outbox, hub, commands, phase } = buildHub({
    config,
    broker,
    budgetBytes,
    clock: () => clock.now,
    admitBroadcast,
    log: { debug() {}, warn: (_fields, text) => onWarning(text), error() {} },
  });
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    hub.add(connection);
    const say = (/** @type {object|string} */ message) => receive(commands, connection, message);
    return { connection, transport, say };
  };
  return {
    config,
    counters,
    clock,
    /** @type {Partial<import('../../src/backend/broker.js').Broker>} */
    broker,
    hub,
    outbox,
    commands,
    phase,
    slowConsumers,
    connect,
    subscribing,
    published,
    unsubscribed,
  };
}

const publication = (/** @type {unknown} */ payload, /** @type {string} */ except = '') => {
  const json = Buffer.from(JSON.stringify(payload));
  return encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', json, 0, json.length, except);
};
const payloads = (/** @type {FakeTransport} */ transport) => {
  return transport
    .messages()
    .filter((m) => m.type === 'message')
    .map((m) => m.payload);
};

test('the frames of a tick are written once to each member, in order', async () => {
  const { hub, connect, counters } = build();
  const members = [connect(), connect(), connect()];
  const outsider = connect();
  for (const { connection } of members) hub.join(connection, 'r', QUIET);
  for (let i = 0; i < 5; i++) hub.broadcast('r', publication(i));
  await turn();
  for (const { transport } of members) {
    assert.equal(transport.writes.length, 1);
    assert.deepEqual(payloads(transport), [0, 1, 2, 3, 4]);
    assert.equal(transport.writes[0], members[0].transport.writes[0], 'all share one buffer');
  }
  assert.equal(outsider.transport.writes.length, 0);
  assert.equal(counters.deliveries, 15);
  assert.equal(counters.queueDepth, 0);
});

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

test('a flush leaves out publications for their senders alone, and the others share one buffer', async () => {
  const { hub, connect, counters } = build();
  const [one, two, three, four, five] = Array.from({ length: 5 }, connect);
  for (const { transport } of [four, five]) transport.format = FORMAT.DEFLATED;
  for (const { connection } of [one, two, three, four, five]) hub.join(connection, 'r', QUIET);
  const absent = connect();
  const long = 'long '.repeat(500);
  hub.broadcast('r', publication(long, four.connection.id));
  hub.broadcast('r', publication(1, one.connection.id));
  hub.broadcast('r', publication(2, 'AAAAAAAA1')); // of another process
  hub.broadcast('r', publication(3, absent.connection.id));
  hub.broadcast('r', publication(4, one.connection.id));
  await turn();
  assert.deepEqual(payloads(one.transport), [long, 2, 3]);
  assert.deepEqual(payloads(two.transport), [long, 1, 2, 3, 4]);
  assert.equal(two.transport.writes[0], three.transport.writes[0], 'they share one buffer');
  assert.deepEqual(payloads(four.transport), [1, 2, 3, 4]);
  assert.ok(five.transport.writes[0].length < 1000, 'compressed');
  assert.equal(counters.deliveries, 3 + 5 + 5 + 4 + 5);
  const { bytesOut } = counters;
  hub.broadcast('r', publication('alone', two.connection.id));
  await turn();
  assert.equal(
    two.transport.writes.length,
    1,
    'a flush without a publication for it writes nothing',
  );
  assert.equal(counters.deliveries, 22 + 4);
  assert.equal(counters.bytesOut - bytesOut, 4 * one.transport.writes[1].length);
});

test('a publication without its sender counts as before for a slow consumer and for the queue', async () => {
  const { hub, connect, counters } = build();
  const [one, two] = [connect(), connect()];
  for (const { connection } of [one, two]) hub.join(connection, 'r', QUIET);
  one.transport.pendingBytes = 1e9;
  hub.broadcast('r', publication(1, one.connection.id));
  hub.broadcast('r', publication(2));
  await turn();
  assert.equal(one.transport.closed?.code, 4003);
  assert.deepEqual([counters.deliveries, counters.queueDepth], [2, 0]);
});

test('a flush over many members yields, and every member keeps the order', async () => {
  const { hub, connect } = build();
  const members = Array.from({ length: 500 }, connect);
  for (const { connection, transport } of members) {
    hub.join(connection, 'big', QUIET);
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      const end = performance.now() + 0.05; // a slow system call
      while (performance.now() < end);
      write(frames);
    };
  }
  hub.broadcast('big', publication('first'));
  await turn();
  const reached = members.filter(({ transport }) => transport.writes.length > 0).length;
  assert.ok(reached > 0 && reached < members.length, `yielded after ${reached}`);
  hub.broadcast('big', publication('second'));
  while (members.some(({ transport }) => payloads(transport).length < 2)) await turn();
  for (const { transport } of members) assert.deepEqual(payloads(transport), ['first', 'second']);
});

test('a connection that leaves or closes while a flush has yielded gets nothing more, and all others get each frame once', async () => {
  const { hub, connect } = build();
  const members = Array.from({ length: 300 }, connect);
  for (const { connection, transport } of members) {
    hub.join(connection, 'big', QUIET);
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      const end = performance.now() + 0.05;
      while (performance.now() < end);
      write(frames);
    };
  }
  const room = /** @type {import('../../src/hub/room.js').Room} */ (hub.rooms.get('big'));
  hub.broadcast('big', publication('x'));
  await turn();
  assert.ok(room.flight, 'it has yielded');
  const late = members.filter(({ transport }) => transport.writes.length === 0);
  hub.leave(late[0].connection, room);
  hub.remove(late[late.length - 1].connection);
  hub.leave(members[0].connection, room);
  while (room.flight) await turn();
  assert.deepEqual(payloads(late[0].transport), []);
  assert.deepEqual(payloads(late[late.length - 1].transport), []);
  for (const { transport } of members) {
    if (transport !== late[0].transport && transport !== late[late.length - 1].transport)
      assert.deepEqual(payloads(transport), ['x']);
  }
});

test('a small room goes before a big room whose flush has not begun either', async () => {
  const { hub, connect } = build();
  let bigWrites = 0;
  let before = -1;
  for (let i = 0; i < 400; i++) {
    const { connection, transport } = connect();
    hub.join(connection, 'big', QUIET);
    transport.write = () => {
      bigWrites++;
    };
  }
  const small = connect();
  hub.join(small.connection, 'small', QUIET);
  small.transport.write = () => {
    before = bigWrites;
  };
  hub.broadcast('big', publication('x'));
  hub.broadcast('small', publication('y'));
  while (bigWrites < 400) await turn();
  assert.equal(before, 0);
});

test('a flush that begins goes before one under way, which gets a turn of each slice', async () => {
  const { hub, connect } = build();
  /** @type {string[]} */
  const written = [];
  const add = (/** @type {string} */ room, ms = 0) => {
    const { connection, transport } = connect();
    hub.join(connection, room, QUIET);
    transport.write = () => {
      written.push(room);
      for (const end = performance.now() + ms; performance.now() < end; );
    };
  };
  for (let i = 0; i < 400; i++) add('big', 0.05);
  const rooms = Array.from({ length: 100 }, (_, i) => `small-${i}`);
  for (const room of rooms) add(room, 0.2);
  hub.broadcast('big', publication('x'));
  while (!hub.rooms.get('big')?.flight) await turn();
  const before = written.length;
  for (const room of rooms) hub.broadcast(room, publication('y'));
  while (!written.includes('small-99')) await turn();
  assert.equal(written[before], 'small-0');
  const between = written.slice(before, written.indexOf('small-99'));
  assert.ok(between.includes('big'), 'the big room is written to between slices of small ones');
});

test('the publications of a turn leave before its flushes', async () => {
  const { hub, broker, connect } = build();
  /** @type {string[]} */
  const steps = [];
  broker.flush = () => void steps.push('sent');
  const { connection, transport } = connect();
  hub.join(connection, 'r', QUIET);
  transport.write = () => steps.push('written');
  hub.broadcast('r', publication('x'));
  while (!steps.includes('written')) await turn();
  assert.deepEqual(steps, ['sent', 'written']);
});

test('members and their positions stay correct in any order of joining and leaving', async () => {
  const { hub, connect } = build();
  const all = Array.from({ length: 20 }, connect);
  const inside = new Set();
  let seed = 1;
  for (let i = 0; i < 2000; i++) {
    seed = (seed * 48_271) % 2_147_483_647;
    const one = all[seed % all.length];
    const room = hub.rooms.get('r');
    if (room?.has(one.connection)) {
      hub.leave(one.connection, room);
      inside.delete(one.connection);
    } else {
      hub.join(one.connection, 'r', QUIET);
      inside.add(one.connection);
    }
  }
  assert.deepEqual(new Set(hub.rooms.get('r')?.members), inside);
  for (const { connection } of all) hub.remove(connection);
  assert.equal(hub.rooms.size, 1);
  assert.equal(hub.connections.length, 0);
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
  const { connect, subscribing, published, counters, commands } = build({ manual: true });
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
  assert.deepEqual([commands.lane.bytes, commands.lane.isEmpty], [0, true]);
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
  assert.equal((await answer({ type: 'presence', room: 'r' }))[0].error, 'NOT_IN_ROOM');
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

test('a connection that falls behind its limit is closed as a slow consumer, and the others get everything', async () => {
  const { hub, connect, counters } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '200000', FANFARE_MAX_MESSAGE_BYTES: '100000' },
  });
  const slow = connect();
  const quick = connect();
  slow.transport.isStuck = true;
  for (const { connection } of [slow, quick]) hub.join(connection, 'r', QUIET);
  for (let i = 0; i < 10; i++) {
    hub.broadcast('r', publication('x'.repeat(50_000)));
    await turn();
  }
  assert.equal(slow.transport.closed?.code, 4003);
  assert.ok(slow.transport.pendingBytes <= 200_000);
  assert.equal(counters.slow.closed, 1);
  assert.equal(payloads(quick.transport).length, 10);
});

test('a connection that closes with unsent bytes leaves nothing among the slow consumers', async () => {
  const { hub, connect, slowConsumers } = build();
  const slow = connect();
  hub.join(slow.connection, 'r', QUIET);
  slow.transport.isStuck = true;
  hub.broadcast('r', publication('waits'));
  await turn();
  assert.equal(slowConsumers.lagging.size, 1);
  hub.remove(slow.connection);
  assert.equal(slowConsumers.lagging.size, 0);
});

test('with the policy drop, publications are left out until the connection has caught up', async () => {
  const { hub, connect, counters } = build({
    env: {
      FANFARE_MAX_UNSENT_BYTES: '200000',
      FANFARE_MAX_MESSAGE_BYTES: '100000',
      FANFARE_SLOW_CONSUMER: 'drop',
    },
  });
  const slow = connect();
  slow.transport.isStuck = true;
  hub.join(slow.connection, 'r', QUIET);
  for (let i = 0; i < 10; i++) {
    hub.broadcast('r', publication(String(i).repeat(50_000)));
    await turn();
  }
  assert.equal(slow.transport.closed, null);
  assert.ok(counters.slow.dropped > 0);
  slow.transport.pendingBytes = 0;
  slow.transport.isStuck = false;
  hub.broadcast('r', publication('after'));
  await turn();
  assert.equal(payloads(slow.transport).at(-1), 'after');
});

test('the age of the oldest unsent byte counts, even if nothing more is sent', async () => {
  const { hub, connect, clock, slowConsumers } = build();
  const slow = connect();
  const moving = connect();
  for (const { connection, transport } of [slow, moving]) {
    transport.isStuck = true;
    hub.join(connection, 'r', QUIET);
  }
  hub.broadcast('r', publication('first'));
  await turn();
  hub.broadcast('r', publication('second'));
  await turn();
  for (let second = 1; second <= 12; second++) {
    clock.now = second * 1000;
    moving.transport.pendingBytes = Math.max(1, moving.transport.pendingBytes - 50);
    if (second === 6) {
      hub.broadcast('r', publication('third'));
      await turn();
    }
    slowConsumers.sweep();
  }
  assert.equal(slow.transport.closed?.code, 4003);
  assert.equal(moving.transport.closed, null);
});

test('a connection that sends commands and does not read is closed as a slow consumer, for every command', () => {
  for (const policy of ['close', 'drop']) {
    for (const type of ['echo', 'ping', 'hello', 'nonsense', 'join', 'presence']) {
      const { connect, counters } = build({
        env: {
          FANFARE_MAX_UNSENT_BYTES: '20000',
          FANFARE_MAX_MESSAGE_BYTES: '10000',
          FANFARE_SLOW_CONSUMER: policy,
        },
      });
      const { transport, say } = connect();
      transport.isStuck = true;
      for (let i = 0; i < 2000 && transport.closed === null; i++)
        say({ type, payload: 'x'.repeat(9000), room: 'r' });
      assert.equal(transport.closed?.code, 4003, type);
      assert.ok(transport.pendingBytes <= 20_000, type);
      assert.deepEqual(counters.slow, { closed: 1, dropped: 0, shed: 0 }, type);
    }
  }
});

test('one unread reply counts by its age, and in the budget of the worker', () => {
  const { connect, clock, slowConsumers, counters } = build({ budgetBytes: 10_000 });
  const [old, large] = [connect(), connect()];
  for (const { transport } of [old, large]) transport.isStuck = true;
  old.say({ type: 'ping' });
  large.say({ type: 'echo', payload: 'x'.repeat(11_000) });
  slowConsumers.sweep();
  assert.equal(large.transport.closed?.code, 4003);
  assert.equal(counters.slow.shed, 1);
  clock.now = 10_001;
  slowConsumers.sweep();
  assert.equal(old.transport.closed?.code, 4003);
  assert.equal(counters.slow.closed, 1);
});

test('with the policy drop, a connection that takes no byte is closed after the time of a missed ping', () => {
  const { connect, clock, slowConsumers, counters, config } = build({
    env: { FANFARE_SLOW_CONSUMER: 'drop' },
  });
  const [mute, moving] = [connect(), connect()];
  for (const { transport, say } of [mute, moving]) {
    transport.isStuck = true;
    say({ type: 'echo', payload: 'x'.repeat(5000) });
  }
  const end = config.pingIntervalMs + config.pongTimeoutMs;
  for (clock.now = 0; clock.now <= end; clock.now += 1000) {
    moving.transport.pendingBytes--;
    slowConsumers.sweep();
    assert.equal(mute.transport.closed, null, `after ${clock.now} ms`);
  }
  for (let i = 0; i < 12; i++) {
    clock.now += 1000;
    moving.transport.pendingBytes--;
    slowConsumers.sweep();
  }
  assert.equal(mute.transport.closed?.code, 4003);
  assert.equal(moving.transport.closed, null);
  assert.equal(counters.slow.closed, 1);
});

test('a worker over its budget of unsent bytes sheds the largest first', async () => {
  const { hub, connect, slowConsumers, counters } = build({ budgetBytes: 100_000 });
  const large = connect();
  const small = connect();
  for (const { connection, transport } of [large, small]) {
    transport.isStuck = true;
    hub.join(connection, 'r', QUIET);
    transport.write(Buffer.alloc(1));
  }
  hub.broadcast('r', publication('x'.repeat(40_000)));
  await turn();
  large.transport.pendingBytes += 60_000;
  slowConsumers.sweep();
  assert.equal(large.transport.closed?.code, 4003);
  assert.equal(small.transport.closed, null);
  assert.equal(counters.slow.shed, 1);
});

test('malformed publications are dropped, counted and logged once, and the room continues', async () => {
  /** @type {string[]} */
  const lines = [];
  const { hub, connect, counters } = build({ onWarning: (text) => void lines.push(text) });
  const member = connect();
  hub.join(member.connection, 'r', QUIET);
  const good = publication('good');
  const changed = (/** @type {(bytes: Buffer) => void} */ change) => {
    const bytes = Buffer.from(good);
    change(bytes);
    return bytes;
  };
  const forged = [
    Buffer.alloc(0),
    Buffer.from('hello'),
    good.subarray(0, 12),
    changed((bytes) => bytes.writeUInt8(0x41)), // a kind that only workers make
    changed((bytes) => bytes.writeUInt8(0x42)),
    changed((bytes) => bytes.writeUInt8(255, 11)), // a sender longer than there is
    changed((bytes) => bytes.write('"', 12)), // a sender that would end its string
    changed((bytes) => bytes.writeUInt8(0xff, bytes.length - 2)), // not UTF-8
    changed((bytes) => bytes.write('N', 14)), // not JSON
  ];
  for (const bytes of forged) for (let i = 0; i < 10; i++) hub.broadcast('r', bytes);
  hub.broadcast('r', good);
  await turn();
  assert.deepEqual(payloads(member.transport), ['good']);
  assert.equal(counters.malformed, 10 * forged.length);
  assert.equal(lines.length, 1);
});

test('two hundred publications of a far future make one flush of whole frames', async () => {
  const { hub, connect } = build();
  const member = connect();
  hub.join(member.connection, 'r', QUIET);
  const late = publication('late');
  late.writeUIntBE(2 ** 48 - 1, 1, 6);
  for (let i = 0; i < 200; i++) hub.broadcast('r', late);
  await turn();
  assert.equal(member.transport.messages().length, 200);
});

test('a room that this worker cannot flush in time leaves out the newest publications, and counts them', () => {
  const { hub, connect, counters } = build();
  hub.join(connect().connection, 'r', QUIET);
  const large = publication('x'.repeat(100_000));
  for (let i = 0; i < 100; i++) hub.broadcast('r', large);
  assert.ok(counters.overflowed > 0 && counters.overflowed < 30);
});

test('many rooms, each within its own bound, are bounded together, and small rooms continue', async () => {
  const { hub, connect, counters, outbox } = build();
  const large = publication('x'.repeat(100_000));
  const { connection, transport } = connect();
  for (let room = 0; room < 40; room++) hub.join(connection, `r${room}`, QUIET);
  for (let room = 0; room < 39; room++)
    for (let i = 0; i < 60; i++) hub.broadcast(`r${room}`, large);
  assert.ok(outbox.bytes < 140 * 1024 * 1024, `${outbox.bytes}`);
  assert.ok(counters.overflowed > 0);
  const overflowed = counters.overflowed;
  hub.broadcast('r39', publication('small'));
  assert.equal(counters.overflowed, overflowed);
  while (outbox.bytes > 0) {
    await turn();
    transport.writes.length = 0;
  }
  hub.broadcast('r0', large);
  assert.equal(counters.overflowed, overflowed);
});

test('a draining worker refuses publishes and still answers other commands', async () => {
  const { connect, commands, phase, published } = build();
  const { transport, say } = connect();
  phase.enter('settling');
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

test('a connection knows its rooms and its position in each, whatever the order of changes', () => {
  const connection = new Connection(/** @type {any} */ ({}), '127.0.0.1');
  const rooms = ['a', 'b', 'c', 'd'].map((name) => ({
    name,
    sync: name === 'd' ? {} : null,
    users: null,
  }));
  const expected = new Map();
  let state = 7;
  for (let step = 0; step < 2000; step++) {
    state = (state * 48_271) % 2_147_483_647;
    const room = rooms[state % 4];
    if ((state >> 4) % 2 === 0) {
      connection.setPosition(room, step);
      expected.set(room, step);
    } else {
      connection.removeRoom(room);
      expected.delete(room);
    }
    for (const each of rooms) {
      assert.equal(connection.isIn(each), expected.has(each));
      if (expected.has(each)) assert.equal(connection.positionIn(each), expected.get(each));
    }
    assert.equal(connection.roomCount, expected.size);
    assert.equal(connection.hasHistory, expected.has(rooms[3]));
    const names = connection.listRooms().map(({ name }) => name);
    assert.deepEqual(names.sort(), [...expected.keys()].map(({ name }) => name).sort());
  }
});
