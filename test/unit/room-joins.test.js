// room-joins.test.js: joins of rooms with history: `since`, `last`, replays and their bounds
// (recovery/room-joins.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Identity } from '../../src/auth/claims.js';
import { Rights } from '../../src/auth/rights.js';
import { Session } from '../../src/auth/session.js';
import {
  build,
  memberWith,
  offsets,
  ofType,
  publication,
  range,
  settle,
  TEN_SECONDS,
} from '../helpers/recovery.js';
import { away } from '../helpers/stream-broker.js';

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
      rights: new Rights({ join, publish: [], presence: [], history, audience: [] }),
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
  'a stream': ({ operations, connection }, since) =>
    operations.joins.subscribe(connection, 'h', {
      since,
      mayReadAll: connection.session.hasRight('history', 'h'),
      who: null,
      isAsked: true,
      onJoined: (/** @type {any} */ joined) =>
        connection.send(JSON.stringify({ type: 'joined', recovered: joined.recovered })),
      onRefused() {},
    }),
};

for (const [way, enter] of Object.entries(WITH_POSITION)) {
  test(`${way}: without the right to read history a position brings recent messages only`, async () => {
    const env = { FANFARE_RECONNECT_WINDOW_MS: '30000' };
    const built = build({ env });
    const { broker, commands, operations } = built;
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
      enter({ ...client, commands, operations }, { epoch, offset });
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
  hub.removeConnection(gone.connection);
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

test('a join that is answered after the close of its connection writes nothing', async () => {
  const { connect, broker, publish } = build({ isManual: true });
  publish(3);
  const { epoch } = broker.stream('h');
  const one = connect();
  one.say({ type: 'join', room: 'h', since: { epoch, offset: 1 } });
  broker.subscribing.shift()?.resolve();
  await settle();
  broker.answer(); // the position
  await settle();
  one.connection.close({ code: 4001, reason: 'the token has expired' });
  const written = one.transport.writes.length;
  broker.answer(); // what it has missed
  await settle();
  assert.equal(one.transport.writes.length, written);
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
  hub.removeConnection(client.connection);
  hub.removeConnection(other.connection);
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
