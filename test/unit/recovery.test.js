import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { Identity } from '../../src/auth/claims.js';
import { Rights } from '../../src/auth/rights.js';
import { Session } from '../../src/auth/session.js';
import { Connection } from '../../src/hub/connection.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { SHARES } from '../../src/worker/turn.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { away, StreamBroker } from '../helpers/stream-broker.js';

/** Ten seconds, in ticks of the wheel. */
const TEN_SECONDS = 40;

/** @typedef {ReturnType<typeof build>} Built */

/** A hub in which rooms named h… have history. */
function build({
  env = {},
  size = 100,
  ttlMs = 60_000,
  isManual = false,
  maxBufferBytes = 1e9,
  covers = /** @type {(room: string) => boolean} */ (() => false),
} = {}) {
  const config = configOf(env);
  const broker = new StreamBroker({ size, isManual });
  const clock = { now: 1000 };
  const historyOf = (/** @type {string} */ room) => (room.startsWith('h') ? { size, ttlMs } : null);
  /** @type {[Connection, number][]} */
  const charged = [];
  const parts = buildHub({
    config,
    broker,
    historyOf,
    clock: () => clock.now,
    maxBufferBytes,
    presence: { join() {}, leave() {}, read: async () => ({ count: 0, members: [] }) },
    covers,
    charge: (connection, bytes) => void charged.push([connection, bytes]),
  });
  parts.turn.clock = () => clock.now;
  parts.scheduler.close();
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    parts.hub.add(connection);
    const say = (/** @type {object} */ message) => receive(parts.commands, connection, message);
    return {
      connection,
      transport,
      say,
      of: (/** @type {string} */ type) => ofType(transport, type),
    };
  };
  /** @param {number} count @param {string} [room] */
  const publish = (count, room = 'h') => {
    for (let i = 0; i < count; i++)
      broker.accept(room, publication(broker.stream(room).offset + 1));
  };
  const tick = async (/** @type {number} */ count) => {
    for (let i = 0; i < count; i++) {
      clock.now += 250;
      parts.scheduler.wheel.tick();
      await settle();
    }
  };
  return { ...parts, config, broker, clock, charged, connect, publish, tick };
}

const publication = (
  /** @type {unknown} */ payload,
  /** @type {string} */ except = '',
  acceptedMs = 1_760_000_000_000,
) => {
  const json = Buffer.from(JSON.stringify(payload));
  return encodePublication(KIND.MESSAGE, acceptedMs, 0, 'me', json, 0, json.length, except);
};

/** @param {FakeTransport} transport @param {string} type */
const ofType = (transport, type) => transport.messages().filter((message) => message.type === type);

/** Waits until promises and flushes have run. */
async function settle() {
  await turn();
  await turn();
}

/** @param {number} from @param {number} to */
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const offsets = (/** @type {FakeTransport} */ transport) =>
  ofType(transport, 'message').map(({ offset }) => offset);

/** A member that has received `count` publications. @param {Built} built @param {number} count */
async function memberWith(built, count) {
  const member = built.connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  built.publish(count);
  built.broker.deliver();
  await settle();
  assert.deepEqual(offsets(member.transport), range(1, count));
  return member;
}

/**
 * A member that has joined after `count` publications; the replay buffer has none of them.
 * @param {Built} built @param {number} count
 */
async function memberBehind(built, count) {
  built.publish(count);
  built.broker.announcements = [];
  const member = built.connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  return member;
}

test('members get offset and epoch with each message, and members of a plain room get neither', async () => {
  const built = build();
  const { connect, broker, hub } = built;
  const member = await memberWith(built, 2);
  const { epoch } = broker.stream('h');
  assert.deepEqual(member.of('joined'), [
    { type: 'joined', room: 'h', epoch, offset: 0, recovered: false },
  ]);
  const frame = { type: 'message', room: 'h', from: 'me', timestamp: 1_760_000_000_000, epoch };
  assert.deepEqual(member.of('message'), [
    { ...frame, payload: 1, offset: 1 },
    { ...frame, payload: 2, offset: 2 },
  ]);
  member.say({ type: 'message', room: 'h', payload: 3, id: 7 });
  await settle();
  assert.deepEqual(member.of('ack'), [{ type: 'ack', epoch, offset: 3, id: 7 }]);
  // A publication of another program, past the stream, has no position in it.
  hub.broadcast('h', publication('plain'));
  broker.deliver();
  await settle();
  assert.deepEqual(
    member.of('message').map(({ payload, offset }) => [payload, offset]),
    [
      [1, 1],
      [2, 2],
      ['plain', undefined],
      [3, 3],
    ],
  );
  const plain = connect();
  plain.say({ type: 'join', room: 'p' });
  await settle();
  assert.equal(hub.rooms.get('p')?.sync, null);
  assert.deepEqual(plain.of('joined'), [{ type: 'joined', room: 'p' }]);
});

test('a join with since gets the missed publications, then the new ones, and the replay buffer is read once', async () => {
  const built = build();
  const { connect, broker, publish } = built;
  publish(10);
  broker.announcements = [];
  const { epoch } = broker.stream('h');
  const one = connect();
  one.say({ type: 'join', room: 'h', since: { epoch, offset: 4 }, id: 1 });
  await settle();
  assert.deepEqual(one.of('joined'), [
    { type: 'joined', room: 'h', epoch, offset: 10, recovered: true, id: 1 },
  ]);
  publish(2);
  broker.deliver();
  const two = connect();
  two.say({ type: 'join', room: 'h', since: { epoch, offset: '9' } });
  await settle();
  assert.deepEqual(offsets(one.transport), range(5, 12));
  assert.deepEqual(offsets(two.transport), range(10, 12));
  const maxBytes = 1_048_576 / 2; // the bound of a replay buffer and of a replay
  assert.deepEqual(broker.allReads, [
    { room: 'h', after: 0, limit: 0 },
    { room: 'h', after: 0, limit: 100, maxBytes },
  ]);
});

test('a replay leaves out messages with echo: false of its connection, and of the one that since names', async () => {
  const built = build();
  const { broker, connect, counters } = built;
  const sender = await memberWith(built, 1);
  const { id } = sender.connection;
  sender.say({ type: 'message', room: 'h', payload: 'own', echo: false, id: 1 });
  sender.say({ type: 'message', room: 'h', payload: 'echoed' });
  broker.deliver();
  await settle();
  assert.deepEqual(sender.of('ack')[0].offset, 2);
  assert.deepEqual(offsets(sender.transport), [1, 3]);
  const { epoch } = broker.stream('h');
  const since = { epoch, offset: 1 };
  /** @param {object} position @param {ReturnType<typeof connect>} [client] */
  const replayTo = async (position, client = connect()) => {
    const before = offsets(client.transport).length;
    const { deliveries } = counters;
    client.say({ type: 'join', room: 'h', since: position });
    await settle();
    const joined = client.of('joined').at(-1);
    assert.deepEqual([joined.offset, joined.recovered], [3, true]);
    const replayed = offsets(client.transport).slice(before);
    assert.equal(counters.deliveries - deliveries, replayed.length);
    return replayed;
  };
  assert.deepEqual(await replayTo(since), [2, 3]);
  assert.deepEqual(await replayTo({ ...since, connectionId: id }), [3]);
  assert.deepEqual(await replayTo({ ...since, connectionId: 'AAAAAAAA1' }), [2, 3]);
  assert.deepEqual(await replayTo(since), [2, 3], 'the shared replay is whole');
  sender.say({ type: 'leave', room: 'h' });
  await settle();
  assert.deepEqual(await replayTo(since, sender), [3]);
  sender.say({ type: 'leave', room: 'h' });
  sender.say({ type: 'join', room: 'h', last: 50 });
  await settle();
  const latest = sender.of('joined').at(-1);
  assert.deepEqual([latest.offset, latest.replayed, latest.first], [3, 2, 1]);
  // A history is the room's, whoever asks for it.
  sender.say({ type: 'history', room: 'h' });
  await settle();
  assert.deepEqual(
    sender.of('history')[0].messages.map((/** @type {any} */ { payload }) => payload),
    [1, 'own', 'echoed'],
  );
});

test('a join with last gets the latest publications, then the new ones, and says how many came', async () => {
  const built = build({ size: 8 });
  const { connect, broker, publish, counters } = built;
  publish(10);
  broker.announcements = [];
  const { epoch } = broker.stream('h');
  /** @param {object} join */
  const joinWith = async (join) => {
    const client = connect();
    client.say({ type: 'join', room: 'h', ...join });
    await settle();
    return client;
  };
  const one = await joinWith({ last: 3, id: 1 });
  assert.deepEqual(one.transport.messages()[0], {
    type: 'joined',
    room: 'h',
    epoch,
    offset: 10,
    recovered: false,
    replayed: 3,
    first: 8,
    id: 1,
  });
  const all = await joinWith({ last: 10_000 });
  assert.equal(counters.deliveries, 3 + 8);
  publish(2);
  broker.deliver();
  // These two wait in the outbox, and are not in the replay.
  const late = connect();
  late.say({ type: 'join', room: 'h', last: 2 });
  assert.deepEqual([late.of('joined')[0].offset, late.of('joined')[0].replayed], [10, 2]);
  await settle();
  assert.deepEqual(offsets(one.transport), range(8, 12));
  assert.deepEqual(offsets(all.transport), range(3, 12));
  assert.deepEqual([all.of('joined')[0].replayed, all.of('joined')[0].first], [8, 3]);
  assert.deepEqual(offsets(late.transport), range(9, 12));
  assert.equal(broker.allReads.length, 2, 'one for the position, one for the older publications');
  const { recovered, insufficient } = counters.recoveries;
  assert.deepEqual([recovered, insufficient], [0, 0], 'only since is a recovery');
});

test('with since and last, the missed publications come, or else the latest', async () => {
  const built = build({ size: 8 });
  const { connect, broker, counters } = built;
  await memberWith(built, 20);
  const { epoch } = broker.stream('h');
  for (const [since, expected, recovered] of /** @type {[object, number[], boolean][]} */ ([
    [{ epoch, offset: 17 }, range(18, 20), true],
    [{ epoch, offset: 20 }, [], true],
    [{ epoch, offset: 5 }, range(16, 20), false],
    [{ epoch: '00000000000000ff', offset: 17 }, range(16, 20), false],
    [{}, range(16, 20), false],
  ])) {
    const client = connect();
    client.say({ type: 'join', room: 'h', since, last: 5 });
    await settle();
    await built.tick(1);
    const [joined] = client.of('joined');
    assert.deepEqual(
      [joined.recovered, joined.replayed, joined.offset],
      [recovered, expected.length, 20],
    );
    assert.deepEqual(offsets(client.transport), expected);
  }
  assert.deepEqual([counters.recoveries.recovered, counters.recoveries.insufficient], [2, 3]);
});

test('a member that joins again gets older publications once more, and misses none', async () => {
  const built = build();
  const member = await memberWith(built, 5);
  const { epoch } = built.broker.stream('h');
  member.say({ type: 'join', room: 'h' });
  assert.equal(member.of('error').at(-1)?.error, 'ALREADY_JOINED', 'it asks for nothing');
  let had = 5;
  for (const [join, isRecovered, replay] of /** @type {[object, boolean, number[]][]} */ ([
    [{ since: { epoch, offset: 3 } }, true, [4, 5]],
    [{ since: { epoch, offset: 3 }, last: 1 }, true, range(4, 6)],
    [{ last: 2 }, false, [6, 7]],
    [{ since: { epoch: 'other', offset: 3 }, last: 1 }, false, [8]],
    [{ since: { epoch: 'other', offset: 3 } }, false, []],
  ])) {
    const { length } = offsets(member.transport);
    member.say({ type: 'join', room: 'h', ...join });
    // It arrives before the join is decided, or waits for the flush.
    built.publish(1);
    built.broker.deliver();
    had++;
    await settle();
    await settle();
    assert.equal(member.of('joined').at(-1)?.recovered, isRecovered);
    assert.deepEqual(offsets(member.transport).slice(length), [...replay, had]);
  }
  assert.deepEqual(member.of('left'), []);
});

/**
 * A session of a token.
 * @param {{join?: string[], history?: string[], autojoin?: string[]}} rights
 */
const sessionWith = ({ join = [], history = [], autojoin = [] }) =>
  new Session(
    new Identity({
      user: 'eve',
      tokenId: null,
      issuedAtMs: 0,
      expiresAtMs: Number.POSITIVE_INFINITY,
      rights: new Rights({ join, publish: [], presence: [], history }),
      mayBroadcast: false,
      autojoin,
      info: null,
    }),
    null,
    0,
  );

const MINUTE_MS = 60_000;
/** Ways in with a position. @type {Readonly<Record<string, (joining: any, since: object) => void>>} */
const WITH_POSITION = {
  'a join': ({ say }, since) => say({ type: 'join', room: 'h', since }),
  'a join of a room that the token has joined': ({ say, commands, connection }, since) => {
    commands.joins.autojoin(connection, 'h', null);
    say({ type: 'join', room: 'h', since });
  },
  'a hello': ({ commands, connection }, since) => commands.joins.autojoin(connection, 'h', since),
  'a stream': ({ commands, connection }, since) =>
    commands.join(connection, 'h', {
      since,
      last: 0,
      isPresent: false,
      onJoined: (/** @type {any} */ joined) =>
        connection.send(JSON.stringify({ type: 'joined', recovered: joined.recovered })),
      onRefused() {},
    }),
};

for (const [way, enter] of Object.entries(WITH_POSITION)) {
  test(`${way}: without the right to read history a position brings recent messages only`, async () => {
    const env = { FANFARE_RECONNECT_WINDOW_MS: '30000' };
    const built = build({ env });
    const { broker, commands } = built;
    // The window is 150 s.
    for (const [i, minutes] of [60, 10, 3, 2, 1, 0].entries())
      broker.accept('h', publication(i + 1, '', Date.now() - minutes * MINUTE_MS));
    broker.announcements = [];
    const { epoch } = broker.stream('h');
    const autojoin = ['h'];
    const reader = sessionWith({ autojoin, history: ['h'] });
    const member = sessionWith({ autojoin, history: ['other'] });
    for (const [
      session,
      offset,
      expected,
    ] of /** @type {[Session|null, number, number[]|null][]} */ ([
      [member, 0, null],
      [member, 2, null],
      [member, 3, [4, 5, 6]],
      [member, 5, [6]],
      [member, 6, []],
      [reader, 0, [1, 2, 3, 4, 5, 6]],
      [way.includes('token') ? reader : null, 0, [1, 2, 3, 4, 5, 6]],
    ])) {
      const client = built.connect();
      if (session !== null) client.connection.beginSession(session);
      enter({ ...client, commands }, { epoch, offset });
      await settle();
      await settle();
      assert.deepEqual(offsets(client.transport), expected ?? [], `${session?.user} ${offset}`);
      assert.equal(client.of('joined').at(-1).recovered, expected !== null);
    }
  });
}

test('a replay is charged, unless it is what the client has just missed', async () => {
  const built = build();
  const { broker, connect, charged } = built;
  for (const [i, minutes] of [10, 3, 1, 0].entries())
    broker.accept('h', publication(i + 1, '', Date.now() - minutes * MINUTE_MS));
  broker.announcements = [];
  const { epoch } = broker.stream('h');
  for (const [join, messages, isCharged] of /** @type {[object, number, boolean][]} */ ([
    [{ since: { epoch, offset: 0 } }, 4, true],
    [{ since: { epoch, offset: 1 } }, 3, true],
    [{ since: { epoch, offset: 2 } }, 2, false],
    [{ since: { epoch, offset: 4 } }, 0, false],
    [{ since: { epoch, offset: 2 }, last: 4 }, 2, false],
    [{ since: {}, last: 2 }, 2, true],
    [{ last: 1 }, 1, true],
    [{ lastSeconds: 30 }, 1, true],
    [{}, 0, false],
  ])) {
    charged.length = 0;
    const client = connect();
    client.say({ type: 'join', room: 'h', ...join });
    await settle();
    await settle();
    assert.equal(offsets(client.transport).length, messages, JSON.stringify(join));
    const bytes = client.transport.writes.at(-1)?.length;
    assert.deepEqual(charged, isCharged ? [[client.connection, bytes]] : [], JSON.stringify(join));
  }
});

test('a member without the right to read history gets what its worker has missed, however old', async () => {
  const built = build();
  const { broker, connect } = built;
  const client = connect();
  client.connection.beginSession(sessionWith({ join: ['h'] }));
  client.say({ type: 'join', room: 'h' });
  await settle();
  for (let i = 1; i <= 3; i++) broker.accept('h', publication(i, '', 1000));
  broker.announcements = []; // lost: the check finds the gap
  await built.tick(TEN_SECONDS + 1);
  assert.deepEqual(offsets(client.transport), [1, 2, 3]);
});

test('the latest publications are as many as the connection may be sent, and are charged', async () => {
  const built = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '65536', FANFARE_MAX_MESSAGE_BYTES: '8192' },
  });
  const { broker, connect, charged } = built;
  const text = 'x'.repeat(5000);
  for (let i = 0; i < 20; i++) broker.accept('h', publication(text));
  broker.announcements = [];
  const client = connect();
  client.say({ type: 'join', room: 'h', last: 20 });
  await settle();
  const [joined] = client.of('joined');
  assert.equal(joined.replayed, 6, 'of 5 KB each, in half of 64 KB');
  assert.deepEqual(offsets(client.transport), range(15, 20));
  const bytes = client.transport.writes.at(-1)?.length;
  assert.deepEqual(charged, [[client.connection, bytes]]);
  const slow = connect();
  slow.transport.pendingBytes = 20_000;
  slow.say({ type: 'join', room: 'h', last: 20 });
  await settle();
  assert.deepEqual(offsets(slow.transport), range(19, 20));
  const full = connect();
  full.transport.pendingBytes = 32_000;
  full.say({ type: 'join', room: 'h', last: 20 });
  await settle();
  assert.deepEqual([full.of('joined')[0].replayed, full.of('joined')[0].first], [0, 21]);
  assert.equal(full.transport.closed, null);
});

test('a join with last in a plain room is answered with replayed: 0, and a malformed last is an error', async () => {
  const { connect } = build();
  for (const [request, reply] of [
    [{ last: 5 }, { replayed: 0 }],
    [
      { last: 5, since: {} },
      { recovered: false, replayed: 0 },
    ],
    [{ lastSeconds: 60 }, { replayed: 0 }],
    [{ last: null, lastSeconds: null }, {}],
  ]) {
    const client = connect();
    client.say({ type: 'join', room: 'plain', ...request });
    await settle();
    assert.deepEqual(client.transport.messages(), [{ type: 'joined', room: 'plain', ...reply }]);
  }
  for (const latest of [{ last: 0 }, { last: 10_001 }, { last: 'all' }, { lastSeconds: 0 }]) {
    const client = connect();
    client.say({ type: 'join', room: 'h', ...latest, id: 1 });
    await settle();
    const [{ error, id }] = client.transport.messages();
    assert.deepEqual([error, id], ['INVALID_MESSAGE_FORMAT', 1]);
  }
});

test('a join with last that cannot be read is refused, and a room that kept nothing replays nothing', async () => {
  const built = build({ isManual: true, ttlMs: 1000 });
  const { broker, clock, connect, publish } = built;
  publish(5);
  broker.announcements = [];
  const refused = connect();
  refused.say({ type: 'join', room: 'h', last: 2, id: 1 });
  broker.subscribing[0].resolve();
  await settle();
  broker.answer();
  await settle();
  assert.deepEqual(refused.transport.messages(), []);
  broker.reads.shift()?.reject(away());
  await settle();
  const [{ error, id }] = refused.transport.messages();
  assert.deepEqual([error, id], ['UNAVAILABLE', 1]);
  assert.equal(built.hub.rooms.has('h'), false);
  broker.isManual = false;
  const member = connect();
  member.say({ type: 'join', room: 'h', last: 2 });
  await settle();
  assert.deepEqual(offsets(member.transport), [4, 5]);
  clock.now += 2000;
  const late = connect();
  late.say({ type: 'join', room: 'h', last: 2 });
  await settle();
  assert.deepEqual([late.of('joined')[0].offset, late.of('joined')[0].replayed], [5, 0]);
});

test('publications that wait in the outbox do not count as handed out, and none comes twice', async () => {
  const built = build();
  const { connect, broker, publish } = built;
  await memberWith(built, 3);
  const { epoch } = broker.stream('h');
  publish(2);
  broker.deliver();
  const late = connect();
  const ahead = connect();
  late.say({ type: 'join', room: 'h', since: { epoch, offset: 1 } });
  ahead.say({ type: 'join', room: 'h', since: { epoch, offset: 5 } });
  await settle();
  assert.equal(late.of('joined')[0].offset, 3);
  assert.deepEqual(offsets(late.transport), range(2, 5));
  // It had seen on another worker the publication that was about to be written here.
  assert.deepEqual([ahead.of('joined')[0].offset, ahead.of('joined')[0].recovered], [5, true]);
  publish(1);
  broker.deliver();
  await settle();
  assert.deepEqual(offsets(ahead.transport), [6]);
});

test('forged positions are dropped, and forged stream entries become null', async () => {
  const built = build();
  const { broker, hub, counters, publish } = built;
  const member = await memberWith(built, 1);
  const { epoch } = broker.stream('h');
  hub.broadcast('h', publication('x'), 2, 'a","offset":9,"'); // 16 characters, as in a forged Redis message
  hub.broadcast('h', publication('x'), 2 ** 63, epoch);
  await settle();
  assert.equal(counters.malformed, 1);
  broker.accept('h', Buffer.from('not a publication'));
  const future = publication('future');
  future.writeUIntBE(2 ** 48 - 1, 1, 6);
  broker.accept('h', future);
  publish(1);
  broker.deliver();
  await settle();
  assert.deepEqual(
    member.of('message').map(({ payload, offset }) => [payload, offset]),
    [
      [1, 1],
      [null, 2],
      ['future', 3],
      [4, 4],
    ],
  );
  // Another program may have written into the store itself.
  broker.stream('h').epoch = '"forged"';
  const late = built.connect();
  late.say({ type: 'history', room: 'h', since: { epoch, offset: 0 }, id: 1 });
  const other = built.connect();
  broker.stream('h2').epoch = 'no stream';
  other.say({ type: 'join', room: 'h2', id: 2 });
  await settle();
  assert.deepEqual(
    other.of('error').map(({ error }) => error),
    ['UNAVAILABLE'],
  );
  assert.ok(counters.malformed > 2);
});

test('a join with since in a room without history is answered with recovered: false', async () => {
  const { connect, counters } = build();
  const sinces = [{ epoch: '0123456789abcdef', offset: 3 }, {}, 7];
  for (const since of sinces) {
    const client = connect();
    client.say({ type: 'join', room: 'plain', since, id: 1 });
    await settle();
    assert.deepEqual(client.transport.messages(), [
      { type: 'joined', room: 'plain', recovered: false, id: 1 },
    ]);
  }
  const other = connect();
  other.say({ type: 'join', room: 'plain', since: null });
  await settle();
  assert.deepEqual(other.transport.messages(), [{ type: 'joined', room: 'plain' }]);
  assert.equal(counters.recoveries.insufficient, sinces.length);
});

test('a storm of joins with since costs one position check and one read, and all are recovered', async () => {
  const built = build({ isManual: true });
  const { connect, broker, publish, counters } = built;
  publish(50);
  broker.announcements = [];
  const { epoch } = broker.stream('h');
  const clients = range(1, 2500).map(connect);
  for (const [i, { say }] of clients.entries())
    say({ type: 'join', room: 'h', since: { epoch, offset: i % 50 } });
  broker.subscribing[0].resolve();
  await settle();
  assert.equal(broker.reads.length, 1);
  broker.answer();
  await settle();
  assert.equal(broker.reads.length, 1);
  broker.answer();
  publish(1);
  broker.deliver();
  for (let i = 0; i < 30; i++) await turn();
  for (const [i, { transport }] of clients.entries()) {
    assert.equal(ofType(transport, 'joined')[0].recovered, true);
    assert.deepEqual(offsets(transport), range((i % 50) + 1, 51));
  }
  assert.equal(broker.allReads.length, 2);
  assert.equal(counters.recoveries.recovered, 2500);
});

test('a turn of the event loop spends eight milliseconds on joins, and decides them in order', async () => {
  const built = build();
  const { broker, clock, connect, counters } = built;
  await memberWith(built, 3);
  const { epoch } = broker.stream('h');
  const order = /** @type {number[]} */ ([]);
  const clients = range(0, 19).map(connect);
  for (const [i, { transport, say }] of clients.entries()) {
    const { sendText } = transport;
    transport.sendText = (text) => {
      order.push(i);
      clock.now += 3;
      sendText.call(transport, text);
    };
    say({ type: 'join', room: 'h', since: { epoch, offset: 1 } });
  }
  // Three joins take nine milliseconds.
  for (let decided = 3; decided < 20; decided += 3) {
    assert.deepEqual(order, range(0, decided - 1));
    assert.equal(counters.recoveries.recovered, decided);
    await turn();
  }
  assert.deepEqual(order, range(0, 19));
  for (const { transport } of clients) assert.deepEqual(offsets(transport), [2, 3]);
});

test('a gap is filled by one read, in order, while later publications wait', async () => {
  const built = build();
  const { broker, publish, counters } = built;
  const member = await memberWith(built, 3);
  const { length } = broker.allReads;
  publish(5);
  broker.announcements.splice(0, 2);
  broker.isManual = true;
  broker.deliver();
  await settle();
  assert.deepEqual(offsets(member.transport), range(1, 3));
  assert.equal(broker.reads.length, 1);
  publish(2);
  broker.deliver();
  broker.answer();
  await settle();
  assert.deepEqual(offsets(member.transport), range(1, 10));
  assert.equal(broker.allReads.length, length + 1);
  assert.deepEqual([counters.gaps, counters.resyncs], [1, 0]);
  assert.ok(counters.backfilled >= 5);
});

test('repeats are dropped, and so are publications of a former epoch', async () => {
  const built = build();
  const { broker, publish, hub } = built;
  const member = await memberWith(built, 3);
  const { epoch } = broker.stream('h');
  hub.broadcast('h', publication('again'), 2, epoch);
  broker.forget('h');
  publish(1);
  broker.deliver();
  await settle();
  const { length } = broker.allReads;
  hub.broadcast('h', publication('late'), 4, epoch);
  await settle();
  assert.equal(broker.allReads.length, length);
  assert.deepEqual(offsets(member.transport), [1, 2, 3]);
});

test('if a gap cannot be filled, resync stands between the old and the new, with its own delay for each member', async () => {
  const built = build({ size: 3 });
  const { broker, publish, connect, counters } = built;
  const first = await memberWith(built, 2);
  const others = range(1, 9).map(connect);
  for (const { say } of others) say({ type: 'join', room: 'h' });
  publish(1);
  broker.deliver(); // waits in the outbox
  publish(9);
  broker.announcements.splice(0, 8);
  broker.deliver();
  await settle();
  publish(1);
  broker.deliver();
  await settle();
  for (const { transport } of [first, ...others]) {
    const seen = transport.messages().filter(({ type }) => type === 'message' || type === 'resync');
    assert.deepEqual(
      seen.slice(-3).map(({ type, offset }) => [type, offset]),
      [
        ['message', 3],
        ['resync', 12],
        ['message', 13],
      ],
    );
    assert.equal(seen.at(-2).epoch, broker.stream('h').epoch);
  }
  const places = [first, ...others].map(
    ({ transport }) => ofType(transport, 'resync')[0].reloadAfterMs,
  );
  assert.ok(new Set(places).size > 5 && places.every((ms) => ms >= 0 && ms < 100), places.join());
  assert.equal(counters.resyncs, 1);
});

test('a new epoch is a resync, and a client with a position in the old epoch is not recovered', async () => {
  const built = build();
  const { broker, publish, connect } = built;
  const member = await memberWith(built, 5);
  const { epoch: old } = broker.stream('h');
  broker.forget('h');
  publish(5);
  broker.deliver();
  await settle();
  const { epoch } = broker.stream('h');
  assert.deepEqual(
    member.of('resync').map(({ reloadAfterMs, ...rest }) => rest),
    [{ type: 'resync', room: 'h', epoch, offset: 5 }],
  );
  const late = connect();
  late.say({ type: 'join', room: 'h', since: { epoch: old, offset: 3 } });
  const current = connect();
  current.say({ type: 'join', room: 'h', since: { epoch, offset: 3 } });
  await settle();
  assert.deepEqual(late.of('joined'), [
    { type: 'joined', room: 'h', epoch, offset: 5, recovered: false },
  ]);
  assert.deepEqual(offsets(late.transport), []);
  assert.deepEqual(offsets(current.transport), [4, 5]);
});

test('a loss without a visible gap is found within ten seconds, and busy rooms cost no position check', async () => {
  const built = build();
  const { broker, publish, tick } = built;
  const member = await memberWith(built, 1);
  publish(1);
  broker.announcements = [];
  await tick(TEN_SECONDS);
  assert.deepEqual(offsets(member.transport), [1, 2]);
  const { length } = broker.allReads;
  for (let i = 0; i < 10; i++) {
    await tick(TEN_SECONDS / 4);
    publish(1);
    broker.deliver();
  }
  assert.equal(broker.allReads.length, length);
});

test('the position checks of a thousand quiet rooms are spread over time, each within ten seconds', async () => {
  const { broker, connect, tick } = build({ env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '1000' } });
  const member = connect();
  for (let i = 0; i < 1000; i++) member.say({ type: 'join', room: `h${i}` });
  await settle();
  for (let round = 0; round < 3; round++) {
    const seen = new Set();
    let most = 0;
    for (let i = 0; i < TEN_SECONDS; i++) {
      const { length } = broker.allReads;
      await tick(1);
      for (const { room } of broker.allReads.slice(length)) seen.add(room);
      most = Math.max(most, broker.allReads.length - length);
    }
    // A room's first place on the wheel is random, so rooms of the first round may come again at the
    // end of the last one.
    assert.equal(seen.size, 1000, `round ${round}`);
    assert.ok(most < 300, `${most} at once`);
  }
});

test('the wheel keeps nothing of closed rooms: at once after the last one, or within a turn', async () => {
  const { connect, scheduler, tick } = build();
  const { wheel } = scheduler;
  const staying = connect();
  staying.say({ type: 'join', room: 'h' });
  const join = async () => {
    const leaving = connect();
    for (let i = 0; i < 20; i++) leaving.say({ type: 'join', room: `h${i}` });
    await settle();
    for (let i = 0; i < 20; i++) leaving.say({ type: 'leave', room: `h${i}` });
  };
  await join();
  await tick(TEN_SECONDS);
  assert.equal(wheel.places.flat().length, 1);
  staying.say({ type: 'leave', room: 'h' });
  await join();
  assert.equal(wheel.size, 0);
  assert.deepEqual(wheel.places.flat(), []);
});

test('a read that fails is repeated with growing pauses until it succeeds', async () => {
  const built = build();
  const { broker, publish, tick } = built;
  const member = await memberWith(built, 1);
  const { length } = broker.allReads;
  broker.isAway = true;
  publish(2);
  broker.announcements.shift();
  broker.deliver();
  await tick(TEN_SECONDS);
  const tries = broker.allReads.length - length;
  assert.ok(tries >= 5 && tries <= 9, `${tries} tries in ten seconds`);
  broker.isAway = false;
  await tick(8);
  assert.deepEqual(offsets(member.transport), [1, 2, 3]);
});

test('a client that has seen more than this worker causes a position check, at most once a tick', async () => {
  const built = build();
  const { broker, publish, connect, tick } = built;
  const member = await memberWith(built, 3);
  const { epoch } = broker.stream('h');
  publish(2);
  broker.announcements = [];
  const { length } = broker.allReads;
  const ahead = connect();
  ahead.say({ type: 'join', room: 'h', since: { epoch, offset: 5 } });
  await settle();
  assert.equal(ahead.of('joined')[0].recovered, true);
  assert.deepEqual(offsets(member.transport), range(1, 5));
  const liars = range(1, 50).map(connect);
  for (const [i, { say }] of liars.entries()) {
    say({ type: 'join', room: 'h', since: { epoch, offset: 1000 + i } });
    await settle();
  }
  assert.equal(broker.allReads.length, length + 2, 'a check and a read');
  await tick(1);
  assert.equal(broker.allReads.length, length + 3);
  for (const { of } of liars) assert.equal(of('joined')[0].recovered, false);
});

test('an invalid since is no error', async () => {
  const built = build();
  await memberWith(built, 3);
  const { epoch } = built.broker.stream('h');
  const { length } = built.broker.allReads;
  const none = [
    5,
    'x',
    [],
    {},
    { epoch },
    { epoch, offset: -1 },
    { epoch, offset: 1.5 },
    { epoch: 'zz', offset: 1 },
  ];
  for (const since of [
    ...none,
    { epoch, offset: '1e1' },
    { epoch: 7, offset: 1 },
    { epoch, offset: 2 ** 53 },
  ]) {
    const client = built.connect();
    client.say({ type: 'join', room: 'h', since });
    await settle();
    assert.deepEqual(client.of('joined'), [
      { type: 'joined', room: 'h', epoch, offset: 3, recovered: false },
    ]);
  }
  assert.equal(built.broker.allReads.length, length);
  const client = built.connect();
  client.say({ type: 'join', room: 'h', since: null });
  assert.equal(client.of('joined')[0].recovered, false);
  assert.equal(built.counters.recoveries.insufficient, none.length + 3);
});

test('while a join waits the room counts as joined, and later commands are answered behind it', async () => {
  const { broker, connect, hub, scheduler } = build({
    isManual: true,
    env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '1' },
  });
  const client = connect();
  client.say({ type: 'join', room: 'h', id: 1 });
  client.say({ type: 'join', room: 'h', id: 2 });
  client.say({ type: 'join', room: 'h2', id: 3 });
  client.say({ type: 'message', payload: 'mine', id: 4 });
  client.say({ type: 'leave', room: 'h', id: 5 });
  const gone = connect();
  gone.say({ type: 'join', room: 'h' });
  hub.remove(gone.connection);
  await settle();
  assert.deepEqual(
    client.transport.messages().map(({ error, id }) => [error, id]),
    [
      ['ALREADY_JOINED', 2],
      ['ROOM_LIMIT', 3],
    ],
  );
  assert.equal(scheduler.waitingJoins, 1);
  broker.subscribing[0].resolve();
  await settle();
  broker.answer();
  await settle();
  assert.deepEqual(
    client.transport
      .messages()
      .slice(2)
      .map(({ type, id }) => [type, id]),
    [
      ['joined', 1],
      ['left', 5],
      ['ack', 4],
    ],
  );
  assert.equal(gone.transport.writes.length, 0);
  assert.deepEqual([hub.rooms.size, scheduler.waitingJoins, scheduler.syncs.size], [1, 0, 0]);
});

test('while the broker is away, only rooms that are already followed can be joined', async () => {
  const built = build();
  const { broker, connect, hub, counters, tick } = built;
  const member = await memberWith(built, 3);
  const { epoch } = broker.stream('h');
  broker.isAway = true;
  const client = connect();
  client.say({ type: 'join', room: 'h-other', id: 1, since: { epoch, offset: 1 } });
  client.say({ type: 'join', room: 'h', id: 2, since: { epoch, offset: 2 } });
  await settle();
  assert.equal(client.of('error')[0].error, 'UNAVAILABLE');
  assert.equal(hub.rooms.has('h-other'), false);
  assert.deepEqual([client.of('joined')[0].id, client.of('joined')[0].recovered], [2, true]);
  const ahead = connect();
  ahead.say({ type: 'join', room: 'h', since: { epoch, offset: 9 } });
  await settle();
  assert.equal(ahead.of('error')[0].error, 'UNAVAILABLE');
  assert.equal(hub.rooms.get('h')?.has(ahead.connection), false);
  assert.equal(counters.recoveries.unavailable, 2);
  // If the read fails and not the subscription, the result is the same.
  broker.subscribe = async () => {};
  const other = connect();
  other.say({ type: 'join', room: 'h-third' });
  await settle();
  assert.equal(other.of('error')[0].error, 'UNAVAILABLE');
  assert.equal(hub.rooms.has('h-third'), false);
  broker.isAway = false;
  await tick(8);
  assert.deepEqual(offsets(member.transport), [1, 2, 3]);
});

test('after a full outbox has drained, the missing publications are read from the broker', async () => {
  const built = build({ size: 1000 });
  const { broker, outbox, publish, counters } = built;
  const member = await memberWith(built, 1);
  outbox.isFull = (room) => room.waiting.length >= 5;
  publish(20);
  broker.deliver();
  for (let i = 0; i < 20; i++) await settle();
  assert.deepEqual(offsets(member.transport), range(1, 21));
  assert.equal(counters.resyncs, 0);
  assert.equal(counters.overflowed, 0);
});

test('a connection that leaves and comes back while a flush has yielded gets nothing twice', async () => {
  const built = build();
  const { broker, connect, publish, hub, clock } = built;
  const members = range(1, 300).map(connect);
  for (const { transport, say } of members) {
    say({ type: 'join', room: 'h' });
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      clock.now += 0.05; // a slow system call
      write(frames);
    };
  }
  await settle();
  for (let i = 0; i < 30; i++) await turn();
  publish(1);
  broker.deliver();
  await turn();
  const late = members.filter(({ of }) => of('message').length === 0);
  assert.ok(late.length > 0 && hub.rooms.get('h')?.flight, 'it has yielded');
  const [one] = late.slice(-1);
  const { epoch } = broker.stream('h');
  one.say({ type: 'leave', room: 'h' });
  one.say({ type: 'join', room: 'h', since: { epoch, offset: 0 } });
  publish(1);
  broker.deliver();
  while (members.some(({ of }) => of('message').length < 2)) await turn();
  for (const { transport } of members) assert.deepEqual(offsets(transport), [1, 2]);
});

test('a connection that joins gets the publications that waited for members who left, then the new ones', async () => {
  const built = build();
  const { broker, connect, publish } = built;
  const member = await memberWith(built, 1);
  const { epoch } = broker.stream('h');
  publish(3);
  broker.isManual = true;
  const ahead = connect();
  ahead.say({ type: 'join', room: 'h', since: { epoch, offset: 4 } });
  broker.deliver(1);
  member.say({ type: 'leave', room: 'h' });
  broker.deliver();
  const late = connect();
  late.say({ type: 'join', room: 'h' });
  broker.answer();
  await settle();
  assert.equal(late.of('joined')[0].offset, 1);
  assert.deepEqual(offsets(late.transport), [2, 3, 4]);
  assert.deepEqual([ahead.of('joined')[0].offset, ahead.of('joined')[0].recovered], [4, true]);
});

test('publications beyond the bound of held ones are read again', async () => {
  const built = build({ size: 20_000 });
  const { broker, publish } = built;
  const member = await memberWith(built, 1);
  broker.isManual = true;
  publish(2);
  broker.announcements.shift();
  broker.deliver();
  const [read] = broker.reads.splice(0);
  const page = broker.look('h', read);
  publish(10_050);
  broker.deliver();
  broker.isManual = false;
  read.resolve(page);
  for (let i = 0; i < 20; i++) await settle();
  assert.deepEqual(offsets(member.transport), range(1, 10_053));
});

test('a replay buffer that was emptied while it was being filled is filled again', async () => {
  const built = build();
  const { broker, connect, publish, scheduler } = built;
  const member = await memberBehind(built, 5);
  broker.isManual = true;
  const late = connect();
  late.say({ type: 'join', room: 'h', since: { epoch: broker.stream('h').epoch, offset: 1 } });
  const [read] = broker.reads.splice(0);
  const page = broker.look('h', read);
  publish(3);
  broker.deliver();
  await settle();
  scheduler.syncs.get('h')?.replayBuffer.evict();
  read.resolve(page);
  await settle();
  broker.answer();
  await settle();
  assert.equal(late.of('joined')[0].recovered, true);
  assert.deepEqual(offsets(late.transport), range(2, 8));
  assert.deepEqual(offsets(member.transport), range(6, 8));
});

test('a read for a join that finds another epoch is not repeated until the room is in that epoch', async () => {
  const built = build();
  const { broker, connect, publish, outbox, hub } = built;
  const member = await memberBehind(built, 5);
  broker.isManual = true;
  let isFull = false;
  outbox.isFull = () => isFull;
  // The outbox is full at the last publication. Until it has drained, the room reads nothing by
  // itself.
  publish(2);
  broker.deliver(1);
  isFull = true;
  broker.deliver(1);
  const late = connect();
  late.say({ type: 'join', room: 'h', since: { epoch: broker.stream('h').epoch, offset: 1 } });
  assert.equal(broker.reads.length, 1);
  broker.forget('h');
  broker.answer();
  for (let i = 0; i < 20; i++) await Promise.resolve();
  assert.ok(
    (hub.rooms.get('h')?.waiting.length ?? 0) > 0,
    'the outbox has drained before the answer came',
  );
  assert.equal(broker.reads.length, 0);
  isFull = false;
  broker.isManual = false;
  for (let i = 0; i < 4; i++) {
    await settle();
    while (broker.reads.length > 0) broker.answer();
  }
  assert.equal(late.of('joined')[0].recovered, false);
  assert.deepEqual(offsets(member.transport), [6]);
  assert.deepEqual(
    [member.of('resync').length, member.of('resync')[0].epoch],
    [1, broker.stream('h').epoch],
  );
});

test('a position check that began before the outage proves nothing after it', async () => {
  const built = build();
  const { broker, outageNotice, publish, scheduler } = built;
  const member = await memberWith(built, 1);
  broker.isManual = true;
  scheduler.syncs.get('h')?.check();
  const [read] = broker.reads.splice(0);
  const page = broker.look('h', read);
  publish(1);
  broker.announcements = [];
  outageNotice.startAway();
  outageNotice.onState('up');
  read.resolve(page);
  await settle();
  assert.equal(outageNotice.isOn, true);
  while (broker.reads.length > 0) {
    broker.answer();
    await settle();
  }
  assert.equal(outageNotice.isOn, false);
  assert.deepEqual(offsets(member.transport), [1, 2]);
});

test('a replay larger than a connection may be sent at once is refused', async () => {
  const { broker, connect } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '20000', FANFARE_MAX_MESSAGE_BYTES: '10000' },
  });
  for (let i = 0; i < 20; i++) broker.accept('h', publication('x'.repeat(900)));
  broker.announcements = [];
  const { epoch } = broker.stream('h');
  const few = connect();
  const many = connect();
  const lagging = connect();
  lagging.transport.pendingBytes = 9000;
  many.say({ type: 'join', room: 'h', since: { epoch, offset: 2 } });
  few.say({ type: 'join', room: 'h', since: { epoch, offset: 15 } });
  lagging.say({ type: 'join', room: 'h', since: { epoch, offset: 15 } });
  await settle();
  assert.equal(many.of('joined')[0].recovered, false);
  assert.equal(lagging.of('joined')[0].recovered, false);
  assert.equal(few.of('joined')[0].recovered, true);
  assert.deepEqual(offsets(few.transport), range(16, 20));
});

test('replay buffers share a budget, the least recently used are emptied first, and are read again when needed', async () => {
  const { broker, connect, publish, counters, scheduler } = build({ maxBufferBytes: 3000 });
  const member = connect();
  for (const room of ['h1', 'h2']) {
    member.say({ type: 'join', room });
    await settle();
    publish(7, room);
    broker.deliver();
    await settle();
  }
  assert.equal(counters.replayBuffersEvicted, 1);
  assert.ok(
    counters.replayBufferBytes > 0 && counters.replayBufferBytes <= 3000,
    `${counters.replayBufferBytes}`,
  );
  const { epoch } = broker.stream('h1');
  const { length } = broker.allReads;
  const client = connect();
  client.say({ type: 'join', room: 'h1', since: { epoch, offset: 2 } });
  await settle();
  assert.equal(broker.allReads.length, length + 1);
  assert.deepEqual(offsets(client.transport), range(3, 7));
  for (const one of [member, client]) one.say({ type: 'leave', room: 'h1' });
  member.say({ type: 'leave', room: 'h2' });
  assert.deepEqual(
    [counters.replayBufferBytes, scheduler.replayBudget.used.size, scheduler.wheel.timer],
    [0, 0, undefined],
  );
});

test('a replay buffer expires when the store expires', async () => {
  const built = build({ ttlMs: 60_000 });
  const { broker, connect, clock } = built;
  await memberWith(built, 5);
  const { epoch } = broker.stream('h');
  clock.now += 60_001;
  broker.stream('h').publications = [];
  const late = connect();
  const current = connect();
  late.say({ type: 'join', room: 'h', since: { epoch, offset: 3 } });
  current.say({ type: 'join', room: 'h', since: { epoch, offset: 5 } });
  await settle();
  assert.equal(late.of('joined')[0].recovered, false);
  assert.equal(current.of('joined')[0].recovered, true);
  assert.equal(built.counters.replayBufferBytes, 0);
});

test('history is answered from the replay buffer, or by one read if the room is not followed', async () => {
  const built = build();
  const { broker, connect } = built;
  const member = await memberWith(built, 5);
  const { epoch } = broker.stream('h');
  const { length } = broker.allReads;
  const outsider = connect();
  const ask = async (/** @type {object} */ command, client = outsider) => {
    client.transport.writes.length = 0;
    client.say({ type: 'history', room: 'h', ...command });
    await settle();
    return client.transport.messages()[0];
  };
  const entry = (/** @type {number} */ n) => ({
    payload: n,
    from: 'me',
    timestamp: 1_760_000_000_000,
    offset: n,
  });
  assert.deepEqual(await ask({ limit: 2, id: 1 }), {
    type: 'history',
    room: 'h',
    messages: [entry(4), entry(5)],
    epoch,
    offset: 5,
    more: true,
    id: 1,
  });
  const seen = async (/** @type {object} */ command) =>
    (await ask(command)).messages.map((/** @type {{offset: number}} */ { offset }) => offset);
  assert.deepEqual(await seen({}), range(1, 5));
  assert.deepEqual(await seen({ since: { epoch, offset: 1 }, limit: 2 }), [2, 3]);
  assert.deepEqual(await seen({ since: { epoch, offset: 9 } }), []);
  assert.deepEqual(await seen({ since: { epoch: 'ffffffffffffffff', offset: 1 }, limit: 1 }), [5]);
  assert.equal(broker.allReads.length, length);
  member.say({ type: 'leave', room: 'h' });
  assert.deepEqual(await seen({ limit: 2 }), [4, 5]);
  assert.deepEqual(await seen({ since: { epoch, offset: 1 }, limit: 2 }), [2, 3]);
  // Only `since` needs the stream's position.
  assert.equal(broker.allReads.length, length + 3);
  assert.deepEqual(await ask({ room: 'plain' }), {
    type: 'history',
    room: 'plain',
    messages: [],
    more: false,
  });
  assert.equal((await ask({ limit: 0 })).error, 'INVALID_MESSAGE_FORMAT');
  assert.equal((await ask({ room: 'no way' })).error, 'INVALID_ROOM');
  broker.isAway = true;
  assert.equal((await ask({})).error, 'UNAVAILABLE');
});

test('a history reply is bounded in bytes, and keeps the end that was asked for', async () => {
  const { broker, connect } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '20000', FANFARE_MAX_MESSAGE_BYTES: '10000' },
  });
  for (let i = 0; i < 20; i++) broker.accept('h', publication('x'.repeat(900)));
  const { epoch } = broker.stream('h');
  const client = connect();
  client.say({ type: 'history', room: 'h' });
  client.say({ type: 'history', room: 'h', since: { epoch, offset: 3 } });
  await settle();
  const [newest, oldest] = client
    .of('history')
    .map(({ messages }) => messages.map((/** @type {any} */ m) => m.offset));
  assert.ok(newest.length >= 8 && newest.length < 12);
  assert.equal(newest.at(-1), 20);
  assert.equal(oldest[0], 4);
  assert.ok(oldest.length >= 8 && oldest.length < 12);
});

test('a history command reads no more than it answers, for every position', async () => {
  const { broker, connect } = build({ size: 1000 });
  for (let i = 1; i <= 1000; i++) broker.accept('h', publication(String(i).padEnd(1000)));
  const { epoch } = broker.stream('h');
  const client = connect();
  const ask = async (/** @type {object} */ command) => {
    client.transport.writes.length = broker.readBytes = 0;
    client.say({ type: 'history', room: 'h', ...command });
    await settle();
    const [{ messages }] = client.transport.messages();
    return {
      seen: messages.map((/** @type {{offset: number}} */ { offset }) => offset),
      read: Math.round(broker.readBytes / 1000),
    };
  };
  for (const since of [
    {},
    { epoch: 'x', offset: 0 },
    { epoch: 'ffffffffffffffff', offset: 0 },
    undefined,
  ]) {
    assert.deepEqual(
      await ask({ limit: 1, since }),
      { seen: [1000], read: 1 },
      JSON.stringify(since),
    );
  }
  assert.deepEqual(await ask({ limit: 3, since: { epoch, offset: 0 } }), {
    seen: [1, 2, 3],
    read: 3,
  });
  assert.deepEqual(await ask({ limit: 3, since: { epoch, offset: 998 } }), {
    seen: [999, 1000],
    read: 2,
  });
  assert.deepEqual(await ask({ limit: 1000, since: { epoch, offset: 1000 } }), {
    seen: [],
    read: 0,
  });
  assert.deepEqual(await ask({ limit: 1000, since: { epoch, offset: 10_000 } }), {
    seen: [],
    read: 0,
  });
  const { seen, read } = await ask({ limit: 1000 });
  assert.ok(seen.length > 450 && seen.at(-1) === 1000);
  assert.ok(Math.abs(read - seen.length) < 20, `${read} KB read for ${seen.length}`);
  // If the replay buffer is smaller than the store, the worker reads the older publications.
  const member = connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  assert.deepEqual((await ask({ limit: 2, since: { epoch, offset: 5 } })).seen, [6, 7]);
  assert.deepEqual(await ask({ limit: 2, since: { epoch, offset: 5 } }), { seen: [6, 7], read: 2 });
  assert.deepEqual(await ask({ limit: 2, since: { epoch, offset: 900 } }), {
    seen: [901, 902],
    read: 0,
  });
});

test('reads of rooms that have closed meanwhile are left out, and other reads take their turn', async () => {
  const built = build({ isManual: true });
  const { connect, broker, scheduler } = built;
  const client = connect();
  for (let i = 0; i < 64; i++) client.say({ type: 'join', room: `h-busy-${i}` });
  for (const { resolve } of broker.subscribing.splice(0)) resolve();
  await settle();
  assert.equal(broker.allReads.length, 64);
  for (let round = 0; round < 30; round++) {
    const churning = connect();
    for (let i = 0; i < 100; i++) churning.say({ type: 'join', room: `h-${round}-${i}` });
    for (const { resolve } of broker.subscribing.splice(0)) resolve();
    await settle();
    assert.equal(scheduler.reads.waiting.size, 100);
    built.hub.remove(churning.connection);
    assert.equal(scheduler.reads.waiting.size, 0);
  }
  const last = connect();
  last.say({ type: 'join', room: 'h-last' });
  for (const { resolve } of broker.subscribing.splice(0)) resolve();
  await settle();
  broker.answer();
  await settle();
  assert.equal(broker.allReads.length, 65, 'none of the closed rooms was read');
  assert.equal(broker.allReads[64].room, 'h-last');
  assert.equal(scheduler.reads.active, 64);
});

test('beyond a bound of rooms that wait for a read, joins that would open another room get UNAVAILABLE and are counted', async () => {
  const { connect, broker, scheduler, hub, counters } = build({
    isManual: true,
    env: { FANFARE_LIMITS: 'off' },
  });
  const client = connect();
  for (let i = 0; i < 64 + 20_000; i++) client.say({ type: 'join', room: `h-${i}` });
  for (const { resolve } of broker.subscribing.splice(0)) resolve();
  await settle();
  assert.equal(scheduler.reads.waiting.size, 20_000);
  const other = connect();
  other.say({ type: 'join', room: 'h-one-more', id: 1 });
  assert.deepEqual(
    other.of('error').map(({ error, id }) => [error, id]),
    [['UNAVAILABLE', 1]],
  );
  assert.deepEqual([counters.readsRefused, hub.rooms.has('h-one-more')], [1, false]);
  // An open room costs no read, and a plain room costs none either.
  other.say({ type: 'join', room: 'h-1' });
  other.say({ type: 'join', room: 'plain' });
  assert.equal(other.of('error').length, 1);
  broker.answer();
  await settle();
  other.say({ type: 'join', room: 'h-one-more' });
  assert.equal(other.of('error').length, 1);
  hub.remove(client.connection);
  hub.remove(other.connection);
});

test('a join reads publications only if it has missed some of this stream', async () => {
  const { broker, connect } = build();
  for (let i = 1; i <= 50; i++) broker.accept('h', publication(i));
  broker.announcements = [];
  const { epoch } = broker.stream('h');
  for (const since of [
    undefined,
    {},
    { epoch: 'ffffffffffffffff', offset: 3 },
    { epoch, offset: 50 },
  ]) {
    const client = connect();
    client.say({ type: 'join', room: 'h', since });
    await settle();
    await settle();
    assert.equal(client.of('joined')[0]?.recovered, since?.offset === 50, JSON.stringify(since));
    assert.equal(broker.readBytes, 0, JSON.stringify(since));
    client.say({ type: 'leave', room: 'h' });
  }
  const behind = connect();
  behind.say({ type: 'join', room: 'h', since: { epoch, offset: 40 } });
  await settle();
  assert.deepEqual(offsets(behind.transport), range(41, 50));
});

test('a message without an offset in a room with history ends the epoch: members get resync, and no recovery is false', async () => {
  const built = build();
  const { broker, hub, connect, publish, tick, counters } = built;
  const member = await memberWith(built, 2);
  const { epoch } = broker.stream('h');
  for (let i = 0; i < 3; i++) hub.broadcast('h', publication('unnumbered'));
  const early = connect();
  early.say({ type: 'join', room: 'h', since: { epoch, offset: 2 } });
  await settle();
  assert.equal(early.of('joined')[0].recovered, false);
  await tick(1);
  await settle();
  const next = broker.stream('h').epoch;
  assert.notEqual(next, epoch);
  for (const { of } of [member, early]) {
    assert.deepEqual(
      of('resync').map(({ epoch, offset }) => [epoch, offset]),
      [[next, 0]],
    );
  }
  assert.equal(member.of('message').filter(({ payload }) => payload === 'unnumbered').length, 3);
  assert.deepEqual([counters.unnumbered, counters.resyncs], [3, 1]);
  const late = connect();
  late.say({ type: 'join', room: 'h', since: { epoch, offset: 2 } });
  await settle();
  assert.equal(late.of('joined')[0].recovered, false);
  publish(1);
  broker.deliver();
  await settle();
  assert.deepEqual(
    [member.of('message').at(-1).offset, member.of('message').at(-1).epoch],
    [1, next],
  );
  await tick(5);
  assert.equal(counters.resyncs, 1);
});

test('a message without an offset ends the epoch of a busy room, also if a position check is under way at the tick', async () => {
  const built = build();
  const { broker, hub, publish, tick, counters, scheduler } = built;
  const member = await memberWith(built, 2);
  const { epoch } = broker.stream('h');
  broker.isManual = true;
  scheduler.syncs.get('h')?.check();
  hub.broadcast('h', publication('unnumbered'));
  await tick(1);
  assert.equal(broker.reads.length, 1);
  broker.answer();
  await settle();
  broker.isManual = false;
  for (let i = 0; i < 3; i++) {
    publish(1);
    broker.deliver();
    await tick(1);
  }
  assert.notEqual(broker.stream('h').epoch, epoch);
  assert.equal(member.of('resync').length, 1);
  assert.deepEqual([counters.unnumbered, counters.resyncs], [1, 1]);
});

test('an entry that another program wrote into a stream keeps its offset, and is null', async () => {
  const built = build();
  const { broker, connect } = built;
  broker.accept('h', Buffer.from('nonsense'));
  broker.announcements = [];
  const client = connect();
  client.say({ type: 'join', room: 'h', since: { epoch: broker.stream('h').epoch, offset: 0 } });
  await settle();
  assert.deepEqual(
    client.of('message').map(({ payload, offset }) => [payload, offset]),
    [[null, 1]],
  );
});

test('greeted clients get degraded when the broker is away, and again when it is back and every room has been compared', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const built = build();
  const { broker, connect, outageNotice, publish } = built;
  const member = await memberWith(built, 1);
  const greeted = connect();
  greeted.say({ type: 'hello' });
  assert.equal(greeted.of('welcome')[0].degraded, false);
  const silent = connect();
  outageNotice.onState('degraded');
  t.mock.timers.tick(900);
  outageNotice.onState('up');
  outageNotice.onState('degraded');
  t.mock.timers.tick(900);
  await settle();
  assert.deepEqual(member.of('degraded'), [], 'a short outage is not announced');
  t.mock.timers.tick(200);
  await settle();
  const late = connect();
  late.say({ type: 'hello' });
  assert.equal(late.of('welcome')[0].degraded, true);
  publish(1);
  broker.announcements = [];
  broker.isManual = true;
  outageNotice.onState('up');
  await settle();
  assert.deepEqual(member.of('degraded'), [{ type: 'degraded', degraded: true }]);
  while (broker.reads.length > 0) {
    assert.equal(outageNotice.isOn, true);
    broker.answer();
    await settle();
  }
  for (const one of [member, greeted]) {
    assert.deepEqual(
      one.of('degraded').map((message) => message.degraded),
      [true, false],
    );
  }
  assert.deepEqual(late.of('degraded'), [{ type: 'degraded', degraded: false }]);
  assert.deepEqual(offsets(member.transport), [1, 2]);
  const seen = member.transport
    .messages()
    .filter(({ type }) => type === 'message' || type === 'degraded');
  assert.equal(seen.at(-1).type, 'degraded', 'missed publications come before the notice');
  assert.equal(silent.transport.writes.length, 0);
});

test('a notice to many clients takes its share of each turn, and a later one ends it', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { connect, outageNotice, clock } = build();
  const { ms } = SHARES.notices;
  const clients = range(1, 4 * ms).map(connect);
  for (const { transport, say } of clients) {
    say({ type: 'hello' });
    const { sendText } = transport;
    transport.sendText = (text) => {
      clock.now += 1;
      sendText.call(transport, text);
    };
  }
  const noticed = (/** @type {boolean} */ isOn) =>
    clients.filter(({ of }) => of('degraded').some(({ degraded }) => degraded === isOn)).length;
  outageNotice.onState('degraded');
  t.mock.timers.tick(1000);
  for (const turns of [1, 2]) {
    await turn();
    assert.equal(noticed(true), turns * ms);
  }
  outageNotice.onState('up');
  for (let i = 0; i < 10; i++) await turn();
  assert.deepEqual([noticed(true), noticed(false)], [2 * ms, 4 * ms]);
});

test('after a loss of the subscription, however short, members of rooms with presence are told to ask for the list', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { broker, connect, outageNotice } = build({ covers: (room) => room.endsWith('p') });
  const [history, plain, other] = [connect(), connect(), connect()];
  history.say({ type: 'join', room: 'h.p' });
  plain.say({ type: 'join', room: 'p' });
  other.say({ type: 'hello' });
  other.say({ type: 'join', room: 'other' });
  await settle();
  broker.isManual = true;
  for (let outage = 1; outage <= 2; outage++) {
    outageNotice.onState('degraded');
    t.mock.timers.tick(900);
    outageNotice.onState('up');
    await settle();
    assert.equal(plain.of('degraded').length, outage - 1, 'rooms are compared first');
    while (broker.reads.length > 0) {
      broker.answer();
      await settle();
    }
    for (const client of [history, plain])
      assert.deepEqual(client.of('degraded')[outage - 1], { type: 'degraded', degraded: false });
  }
  outageNotice.onState('degraded');
  t.mock.timers.tick(1000);
  await settle();
  outageNotice.onState('up');
  while (broker.reads.length > 0) {
    broker.answer();
    await settle();
  }
  const told = (/** @type {typeof plain} */ { of }) => of('degraded').map((one) => one.degraded);
  assert.deepEqual(told(plain), [false, false, true, false]);
  assert.deepEqual(told(other), [true, false]);
});

test('members of a room that may have lost presence events are told once, and others are not', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { connect, outageNotice } = build({ covers: (room) => room.endsWith('p') });
  const [lost, kept, plain] = ['1p', '2p', '3'].map((room) => {
    const client = connect();
    client.say({ type: 'join', room });
    return client;
  });
  await settle();
  // A slot of a cluster has moved; each of its channels may be reported by itself.
  for (let i = 0; i < 3; i++) outageNotice.onLost(['1p', '3', 'gone.p']);
  t.mock.timers.tick(1000);
  await settle();
  t.mock.timers.tick(10_000);
  await settle();
  assert.deepEqual(lost.of('degraded'), [{ type: 'degraded', degraded: false }]);
  for (const client of [kept, plain]) assert.deepEqual(client.of('degraded'), []);
});

test('reads are bounded, and all of them are done', async () => {
  const { broker, connect } = build({
    isManual: true,
    env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '500' },
  });
  const client = connect();
  for (let i = 0; i < 500; i++) client.say({ type: 'join', room: `h${i}` });
  for (const { resolve } of broker.subscribing) resolve();
  await settle();
  let most = 0;
  for (let i = 0; i < 500; i++) {
    most = Math.max(most, broker.reads.length);
    broker.answer();
    await turn();
  }
  assert.equal(client.of('joined').length, 500);
  assert.ok(most <= 64 && most > 10, `${most}`);
});

// The model: one room, a broker and clients, with random events. The broker loses, delays and swaps
// announcements, answers reads early, late or never, goes away and comes back, and begins new epochs.
// Clients join, leave and come back with their last position. Each client is checked as its
// application would see it.

/** @typedef {{kind: string, a: number, b: number}} Step */
/** @typedef {{epoch: string, offset: number}} Position */
const KINDS = [
  ...[
    'publish',
    'publish',
    'publish',
    'publish',
    'deliver',
    'deliver',
    'deliver',
    'deliver',
    'deliver',
    'deliver',
  ],
  ...['lose', 'swap', 'newEpoch', 'join', 'join', 'rejoin', 'rejoin', 'rejoin', 'leave', 'close'],
  ...[
    'subscribed',
    'subscribed',
    'subscribed',
    'refuse',
    'answer',
    'answer',
    'answer',
    'answer',
    'executeFirst',
  ],
  ...['failRead', 'away', 'back', 'turn', 'turn', 'turn', 'tick', 'evict', 'full', 'repeat'],
];

/** Counts of a random run. */
const NO_COUNTS = Object.freeze({
  recovered: 0,
  insufficient: 0,
  resyncs: 0,
  messages: 0,
  omitted: 0,
  latest: 0,
});

class Model {
  constructor() {
    this.built = build({ isManual: true, size: 8 });
    this.built.outbox.isFull = (room) => room.waiting.length >= this.maxWaiting;
    this.maxWaiting = 1000;
    this.next = 0;
    /** By epoch and offset. @type {Map<string, {payload: unknown, except: string}>} */
    this.truth = new Map();
    /**
     * @type
     *   {({client: ReturnType<Built['connect']>, at: Position|null, since: any, last: number, seen: number, isIn: boolean, replayed: number, latest: {left: number, offset: number, isFirst: boolean}|null}|null)[]}
     */
    this.clients = [null, null, null, null];
    this.counts = { ...NO_COUNTS };
  }

  /** @param {Step} step */
  async run({ kind, a, b }) {
    const { broker, hub, outageNotice, scheduler } = this.built;
    const i = a % this.clients.length;
    const one = this.clients[i];
    switch (kind) {
      case 'publish': {
        for (let left = a % 10 === 0 ? 10 : 1; left > 0; left--) {
          const payload = ++this.next;
          // Now and then a client leaves itself out.
          const except = b % 3 === 0 ? (one?.client.connection.id ?? '') : '';
          const { epoch, offset } = broker.accept('h', publication(payload, except));
          this.truth.set(`${epoch}:${offset}`, { payload, except });
        }
        break;
      }
      case 'repeat':
        broker.announcements.unshift(...this.delivered.slice(-1 - (a % 4)));
        break;
      case 'deliver':
        this.delivered = broker.announcements.slice(0, 1 + (a % 3));
        return broker.deliver(1 + (a % 3));
      case 'lose':
        return void broker.announcements.splice(0, 1 + (a % 12));
      case 'swap':
        if (broker.announcements.length > 1)
          broker.announcements.push(/** @type {any} */ (broker.announcements.shift()));
        break;
      case 'newEpoch':
        return broker.forget('h');
      case 'join':
      case 'rejoin':
        if (one === null) this.join(i, kind === 'rejoin' ? a : b);
        break;
      case 'leave':
        one?.client.say({ type: 'leave', room: 'h' });
        break;
      case 'close':
        if (one === null) break;
        this.check(i);
        hub.remove(one.client.connection);
        this.keep(i, one);
        this.clients[i] = null;
        break;
      case 'subscribed':
        return broker.subscribing.shift()?.resolve();
      case 'refuse':
        if (a % 4 === 0) broker.subscribing.shift()?.reject(away());
        break;
      case 'answer':
        return broker.answer();
      case 'executeFirst': {
        // The store has answered, and the answer is under way.
        const read = broker.reads[0];
        if (read === undefined) break;
        const page = broker.look(read.room, read);
        broker.look = (
          (look) => (room, from) =>
            from === read ? page : look.call(broker, room, from)
        )(broker.look);
        break;
      }
      case 'failRead':
        return broker.reads.shift()?.reject(away());
      case 'away':
        return outageNotice.onState('degraded');
      case 'back':
        return outageNotice.onState('up');
      case 'turn':
        return settle();
      case 'tick':
        return this.built.tick(1 + (a % 4));
      case 'evict':
        for (const buffer of [...scheduler.replayBudget.used]) buffer.evict();
        break;
      case 'full':
        this.maxWaiting = a % 3 === 0 ? 2 : 1000;
        break;
    }
  }

  /** What came last. @type {import('../helpers/stream-broker.js').Announcement[]} */
  delivered = [];

  /** @type {Record<number, (Position & {connectionId?: string})|null>} */
  past = {};

  /**
   * A client stores its position; every other client stores its connection too.
   * @param {number} i @param {{client: ReturnType<Built['connect']>, at: Position|null}} one
   */
  keep(i, { client, at }) {
    const named = i % 2 === 0 ? {} : { connectionId: client.connection.id };
    this.past = { ...this.past, [i]: at === null ? null : { ...at, ...named } };
  }

  /**
   * Skips the messages behind a client's position that it must not get.
   * @param {{client: ReturnType<Built['connect']>, at: Position|null, since: any}} one
   * @param {number} [replayed] up to this offset a replay also leaves out those of the connection
   *   that `since` names
   */
  skip({ client, at, since }, replayed = 0) {
    for (;;) {
      if (at === null) return;
      const except = this.truth.get(`${at.epoch}:${at.offset + 1}`)?.except ?? '';
      const isFormer = at.offset < replayed && except === since?.connectionId;
      if (except === '' || !(except === client.connection.id || isFormer)) return;
      at.offset++;
      this.counts.omitted++;
    }
  }

  /** @param {number} i @param {number} how */
  join(i, how) {
    const { broker } = this.built;
    const client = this.built.connect();
    const { epoch, offset } = broker.stream('h');
    const kept = this.past[i] ?? null;
    // The client's last position; or nothing; or a position from another worker, as far as the
    // store; or a lie.
    const since = [
      kept,
      kept,
      kept,
      null,
      { epoch, offset },
      { epoch, offset: Math.max(0, offset - (how % 11)) },
    ][how % 6];
    const told = how % 17 === 0 ? { epoch, offset: offset + 5 } : since;
    const last = how % 5 === 0 ? 1 + (how % 13) : 0;
    this.clients[i] = {
      client,
      at: null,
      since: told,
      last,
      seen: 0,
      isIn: false,
      replayed: 0,
      latest: null,
    };
    const sent = { ...(told === null ? {} : { since: told }), ...(last === 0 ? {} : { last }) };
    client.say({ type: 'join', room: 'h', ...sent });
  }

  /** What the client's application sees, as far as it has not been looked at. @param {number} i */
  check(i) {
    const one = this.clients[i];
    if (one === null) return;
    const messages = one.client.transport.messages();
    for (const message of messages.slice(one.seen)) {
      const { type, epoch, offset } = message;
      if (type === 'joined') {
        assert.equal(one.isIn, false);
        one.isIn = true;
        if (message.recovered) {
          this.counts.recovered++;
          assert.equal(epoch, one.since.epoch, 'recovered in another epoch');
          assert.ok(one.since.offset <= offset, 'recovered from the future');
          one.at = { epoch, offset: one.since.offset };
          one.replayed = offset;
        } else {
          this.counts.insufficient++;
          one.at = { epoch, offset };
          one.replayed = 0;
          const { replayed = 0 } = message;
          assert.ok(replayed <= one.last, 'more than it asked for');
          // The latest messages begin somewhere, and end at the position.
          if (replayed > 0) one.latest = { left: replayed, offset, isFirst: true };
        }
      } else if (type === 'message') {
        assert.ok(one.isIn && one.at, 'a message outside the room');
        this.counts.messages++;
        const { latest } = one;
        if (latest?.isFirst) {
          assert.ok(offset > latest.offset - one.last, 'older than the latest');
          one.at.offset = offset - 1;
          latest.isFirst = false;
        }
        this.skip(one, one.replayed);
        assert.deepEqual([epoch, offset], [one.at.epoch, one.at.offset + 1]);
        assert.equal(message.payload, this.truth.get(`${epoch}:${offset}`)?.payload);
        one.at.offset = offset;
        if (latest !== null && --latest.left === 0) {
          this.counts.latest++;
          assert.ok(offset <= latest.offset, 'a live message among the latest');
          this.skip(one);
          assert.ok(one.at.offset >= latest.offset, 'not up to the position');
          one.latest = null;
        }
      } else if (type === 'resync') {
        assert.ok(one.isIn && one.latest === null, 'resync outside the room, or in a replay');
        this.counts.resyncs++;
        one.at = { epoch, offset };
      } else if (type === 'left') {
        one.isIn = false;
        this.keep(i, one);
      }
    }
    one.seen = messages.length;
  }

  /** All faults end. After some time all clients are at the position of the store. */
  async heal() {
    const { broker, outageNotice, scheduler, tick, hub } = this.built;
    this.maxWaiting = 1000;
    outageNotice.onState('up');
    broker.isManual = false;
    for (let round = 0; round < 3; round++) {
      for (const { resolve } of broker.subscribing.splice(0)) resolve();
      while (broker.reads.length > 0) broker.answer();
      broker.deliver();
      await tick(TEN_SECONDS + 8);
    }
    assert.ok(broker.allReads.length < 1000, `${broker.allReads.length} reads`);
    assert.equal(scheduler.waitingJoins, 0, 'a join was never answered');
    assert.equal(outageNotice.isOn, false);
    const { epoch, offset } = broker.stream('h');
    for (const [i, one] of this.clients.entries()) {
      this.check(i);
      if (one !== null) this.skip(one, one.replayed);
      if (one?.isIn) assert.deepEqual(one.at, { epoch, offset }, `client ${i} is left behind`);
    }
    for (const one of this.clients) if (one !== null) hub.remove(one.client.connection);
    assert.deepEqual(
      [hub.rooms.size, this.built.counters.replayBufferBytes, this.built.counters.queueDepth],
      [1, 0, 0],
    );
  }
}

test('under any faults no client has a gap, a repeat or a false recovery, and all end at the position of the store', async () => {
  const totals = { ...NO_COUNTS };
  const step = fc.record({ kind: fc.constantFrom(...KINDS), a: fc.nat(1000), b: fc.nat(1000) });
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 60, maxLength: 250, size: 'max' }),
      async (steps) => {
        const model = new Model();
        for (const one of steps) {
          await model.run(one);
          for (let i = 0; i < model.clients.length; i++) model.check(i);
        }
        await model.heal();
        for (const key of /** @type {(keyof typeof totals)[]} */ (Object.keys(totals)))
          totals[key] += model.counts[key];
      },
    ),
    {
      numRuns: Number(process.env.RUNS ?? 400),
      // fast-check shrinks a failure. It stops before the file's time-out, because the time-out would
      // hide the failure.
      plugins: [fc.interruptAfterTimeLimit(60_000, { failOnInterrupt: true })],
    },
  );
  // The runs must have reached the interesting states.
  assert.ok(
    totals.messages > 500 && Object.values(totals).every((total) => total > 50),
    JSON.stringify(totals),
  );
});
