// joins-under-way.test.js: what comes between a join and its answer: another join of the same room,
// a removal, a join by the backend. The answers that arrive together, and what is decided between
// them, are in hub.test.js.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Identity } from '../../src/auth/claims.js';
import { readRights } from '../../src/auth/rights.js';
import { Session } from '../../src/auth/session.js';
import { deferred } from '../../src/backend/deferred.js';
import { PUSHER_TEXTS } from '../../src/doors/pusher/codec/texts.js';
import { Connection } from '../../src/hub/connection.js';
import { CLOSES } from '../../src/protocol/codes.js';
import { encodeMember } from '../../src/protocol/encode.js';
import { ANNOUNCEMENTS } from '../../src/protocol/publication.js';
import { refusal } from '../../src/protocol/refusal.js';
import { sessionHolding } from '../helpers/audiences.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { build, settle } from '../helpers/recovery.js';
import { away, StreamBroker } from '../helpers/stream-broker.js';

/** @typedef {ReturnType<typeof build>} Built */

/** Rooms named h… have history. */
const ROOMS = ['plain', 'h'];

/** Types, or errors, of the messages about rooms, with their ids or reasons. @param {ReturnType<Built['connect']>} client */
const told = ({ transport }) =>
  transport
    .messages()
    .filter(({ type }) => type !== 'message')
    .map(({ type, id, error, reason }) => `${error ?? type} ${id ?? reason ?? ''}`.trim());

/** The broker confirms all rooms, and answers all reads. @param {Built} built */
async function answerAll({ broker }) {
  do {
    for (const { resolve } of broker.subscribing.splice(0)) resolve();
    while (broker.reads.length > 0) broker.answer();
    await settle();
  } while (broker.subscribing.length + broker.reads.length > 0);
}

/** A session whose token names no room. */
function sessionWithoutRooms() {
  return new Session(
    new Identity({
      ...{ user: 'ann', tokenId: null, issuedAtMs: 0, expiresAtMs: Number.POSITIVE_INFINITY },
      ...{ mayBroadcast: false, autojoin: [], info: null },
      rights: /** @type {import('../../src/auth/rights.js').Rights} */ (readRights({})),
    }),
    null,
    Number.MAX_SAFE_INTEGER,
  );
}

test('a join that repeats one under way waits for its answer, and both are answered', async () => {
  const built = build({ isManual: true });
  built.publish(3);
  const client = built.connect();
  client.say({ type: 'join', room: 'h', id: 1 });
  client.say({ type: 'join', room: 'h', last: 2, id: 2 });
  client.say({ type: 'leave', room: 'h', id: 3 });
  await answerAll(built);
  assert.deepEqual(told(client), ['joined 1', 'joined 2', 'left 3']);
  assert.deepEqual(
    client.of('message').map(({ payload }) => payload),
    [2, 3],
  );
  assert.equal(built.operations.lane.isEmpty, true);
});

test('a join that repeats one that is refused is a join of its own', async () => {
  const built = build({ isManual: true });
  const { broker } = built;
  const client = built.connect();
  client.say({ type: 'join', room: 'h', id: 1 });
  client.say({ type: 'join', room: 'h', last: 2, id: 2 });
  broker.subscribing.splice(0)[0].reject(away());
  await answerAll(built);
  assert.deepEqual(told(client), ['UNAVAILABLE 1', 'joined 2']);
});

test('a connection that closes before its first join is answered does not join again', async () => {
  const built = build({ isManual: true });
  const { connection, say } = built.connect();
  say({ type: 'join', room: 'h', id: 1 });
  say({ type: 'join', room: 'h', last: 2, id: 2 });
  built.operations.identities.leave(connection);
  await answerAll(built);
  assert.deepEqual([built.hub.rooms.has('h'), connection.roomCount], [false, 0]);
  assert.equal(built.operations.lane.isEmpty, true);
});

test('a removal before, between or after two joins under way leaves none without an answer', async () => {
  const removals = [
    { at: 1, expected: ['joined 1', 'left removed', 'joined 2'] },
    { at: 2, expected: ['joined 1', 'joined 2', 'left removed'] },
  ];
  for (const { at, expected } of removals) {
    const built = build({ isManual: true });
    const client = built.connect();
    for (let id = 1; id <= 2; id++) {
      client.say({ type: 'join', room: 'h', last: 2, id });
      if (id === at) assert.equal(built.operations.joins.remove(client.connection, 'h'), true);
    }
    await answerAll(built);
    assert.deepEqual(told(client), expected, `removed after join ${at}`);
    const isIn = expected.at(-1) === 'joined 2';
    assert.equal(built.hub.rooms.get('h')?.has(client.connection) ?? false, isIn);
  }
});

test('a removal holds for a join that follows a refused one', async () => {
  const built = build({ isManual: true });
  const client = built.connect();
  client.say({ type: 'join', room: 'h', id: 1 });
  client.say({ type: 'join', room: 'h', last: 2, id: 2 });
  assert.equal(built.operations.joins.remove(client.connection, 'h'), true);
  built.broker.subscribing.splice(0)[0].reject(away());
  await answerAll(built);
  assert.deepEqual(told(client), ['UNAVAILABLE 1', 'joined 2', 'left removed']);
  assert.equal(client.connection.roomCount, 0);
});

test('a removal that waited for a join also waits for one that the client has sent behind it', async () => {
  const built = build({ isManual: true });
  const other = built.connect();
  other.say({ type: 'join', room: 'h' });
  const client = built.connect();
  client.say({ type: 'join', room: 'h', id: 1 });
  client.say({ type: 'leave', room: 'h', id: 2 });
  client.say({ type: 'join', room: 'h', last: 5, id: 3 }); // needs a read
  assert.equal(built.operations.joins.remove(client.connection, 'h'), true);
  built.publish(10);
  await answerAll(built);
  assert.deepEqual(told(client), ['joined 1', 'left 2', 'joined 3', 'left removed']);
  assert.equal(client.connection.roomCount, 0);
});

for (const room of ROOMS) {
  test(`the last word of a backend about a join under way holds (${room})`, async () => {
    const built = build({ isManual: true });
    const { joins } = built.operations;
    const client = built.connect();
    client.connection.beginSession(sessionHolding([]));
    client.say({ type: 'join', room, id: 1 });
    assert.ok(joins.joinAs(client.connection, room, 'ann', ['staff']));
    assert.ok(joins.remove(client.connection, room));
    assert.ok(joins.remove(client.connection, room));
    assert.ok(joins.joinAs(client.connection, room, 'ann'));
    await answerAll(built);
    assert.deepEqual(told(client), ['joined 1']);
    assert.equal(built.hub.rooms.get(room)?.has(client.connection), true);
    assert.equal(client.connection.audiencesIn(room).text, '', 'the removal has taken them');
    const late = built.connect();
    late.say({ type: 'join', room: `${room}2`, id: 1 });
    assert.ok(joins.remove(late.connection, `${room}2`));
    assert.ok(joins.joinAs(late.connection, `${room}2`, ''));
    assert.ok(joins.remove(late.connection, `${room}2`));
    await answerAll(built);
    assert.deepEqual(told(late), ['joined 1', 'left removed']);
    assert.equal(late.connection.roomCount, 0);
  });
}

test('a join that repeats one by the backend, which fails, needs a right of its own', async () => {
  const built = build({ isManual: true });
  const client = built.connect();
  client.connection.beginSession(sessionWithoutRooms());
  assert.ok(built.operations.joins.joinAs(client.connection, 'h', 'ann'));
  client.say({ type: 'join', room: 'h', since: { epoch: '', offset: 0 }, id: 1 });
  built.broker.subscribing.splice(0)[0].reject(away());
  await answerAll(built);
  assert.deepEqual(told(client), ['UNAVAILABLE', 'PERMISSION_DENIED 1']);
  assert.equal(client.connection.roomCount, 0);
});

test('a client with a right of its own needs no grant while onJoin is asked', async () => {
  const verdict = deferred();
  const hooks = { has: () => true, callFor: () => /** @type {any} */ (verdict.promise) };
  const { operations, connect } = build({ hooks });
  const { connection } = connect();
  connection.beginSession(sessionWithoutRooms());
  const { joins } = operations;
  assert.ok(joins.joinAs(connection, 'a', 'ann'));
  joins.unsubscribe(connection, 'a');
  /** @type {string[]} */
  const answers = [];
  joins.subscribe(connection, 'a', {
    ...{ since: null, who: null },
    mayJoin: () => true, // by a subscription token of Centrifugo
    onJoined: () => void answers.push('joined'),
    onRefused: ({ code }) => void answers.push(code),
  });
  joins.remove(connection, 'a');
  verdict.resolve({ refusal: null, answer: { payload: null, audience: '', audiences: [] } });
  await settle();
  assert.deepEqual(answers, ['joined']);
});

test('a client loses what a backend had granted also while onJoin is asked', async () => {
  const verdict = deferred();
  const broker = new StreamBroker();
  const hooks = {
    has: (/** @type {string} */ hook) => hook === 'onJoin',
    callFor: () => /** @type {any} */ (verdict.promise),
  };
  const parts = buildHub({ config: configOf({}), broker, hooks });
  const transport = new FakeTransport();
  const connection = new Connection(transport, '');
  parts.hub.addConnection(connection);
  connection.beginSession(sessionWithoutRooms());
  const { joins } = parts.operations;
  assert.ok(joins.joinAs(connection, 'a', 'ann'));
  await settle();
  const say = (/** @type {object} */ message) => receive(parts.commands, connection, message);
  say({ type: 'leave', room: 'a', id: 1 });
  say({ type: 'join', room: 'a', id: 2 });
  assert.equal(joins.remove(connection, 'a'), false, 'it is in no room');
  verdict.resolve({ refusal: null, answer: { payload: null, audience: '', audiences: [] } });
  await settle();
  const [, , last] = transport.messages();
  assert.deepEqual([last.error, last.id], ['PERMISSION_DENIED', 2]);
  assert.equal(connection.roomCount, 0);
});

/**
 * A client whose join waits for the list of the room's users.
 * @param {Built} built @param {string} room @param {string} [user]
 */
function joinWithList({ connect, operations }, room, user = 'ann') {
  const { connection, transport } = connect();
  transport.door = PUSHER_TEXTS;
  /** @type {string[]} */
  const answers = [];
  operations.joins.subscribe(connection, room, {
    ...{ since: null, who: null },
    listed: { user, info: null, member: encodeMember(user, null), max: 10 },
    onJoined: () => void answers.push('joined'),
    onRefused: ({ code }) => void answers.push(code),
  });
  return { connection, answers };
}

test('a user whose connection is closed before its join is answered does not appear in presence', async () => {
  for (const room of ROOMS) {
    const built = build({ isManual: true, covers: () => true });
    const { connection, say } = built.connect();
    say({ type: 'join', room });
    connection.close(CLOSES.KICKED); // its token is revoked
    await answerAll(built);
    assert.deepEqual([...(built.hub.rooms.get(room)?.users?.connections ?? [])], []);
    built.hub.removeConnection(connection);
    assert.equal(built.hub.rooms.has(room), false);
  }
  const built = build({ isManual: true, covers: () => true });
  const { connection } = joinWithList(built, 'a');
  connection.close(CLOSES.KICKED);
  await answerAll(built);
  assert.deepEqual([...(built.hub.rooms.get('a')?.users?.connections ?? [])], []);
  built.hub.removeConnection(connection);
  await settle();
  assert.deepEqual([built.hub.rooms.has('a'), built.operations.lane.isEmpty], [false, true]);
});

test('a user is entered once, also at the moment when the list of users has been read', async () => {
  for (let microtasks = 0; microtasks < 10; microtasks++) {
    const built = build({ isManual: true, covers: () => true });
    const { hub, broker } = built;
    /** @type {ReturnType<typeof deferred<import('../../src/backend/presence.js').PresenceSnapshot>>} */
    const list = deferred();
    hub.tracker.read = () => list.promise;
    joinWithList(built, 'a');
    broker.subscribing[0].resolve();
    await settle();
    list.resolve({ count: 0, members: [] });
    for (let i = 0; i < microtasks; i++) await null;
    const { connection } = joinWithList(built, 'a', 'ben');
    await settle();
    const users = hub.rooms.get('a')?.users;
    assert.deepEqual([...(users?.connections ?? [])].sort(), [
      ['"ann"', 1],
      ['"ben"', 1],
    ]);
    hub.removeConnection(connection);
    assert.equal(users?.isHere('ben'), false, `after ${microtasks} microtasks`);
  }
});

test('a removal waits for a join that waits for the list of users', async () => {
  const built = build({ isManual: true, covers: () => true });
  const { hub, operations } = built;
  const room = 'presence-a'; // of an app that shares its rooms with native clients
  const { connection, answers } = joinWithList(built, room);
  await answerAll(built);
  assert.equal(operations.joins.remove(connection, room), true);
  await settle();
  assert.equal(hub.rooms.get(room)?.has(connection), true, 'its join is not answered');
  // The event of its user arrives.
  hub.broadcast(room, Buffer.concat([ANNOUNCEMENTS.join, encodeMember('ann', null)]));
  await settle();
  await settle();
  assert.deepEqual([answers, connection.roomCount], [['joined'], 0]);
  assert.equal(operations.lane.isEmpty, true);
});

test('a room that the broker refuses takes nobody in while some of its joins have no answer', async () => {
  const built = build({ isManual: true, covers: () => true });
  const { hub, broker } = built;
  const client = built.connect();
  client.say({ type: 'join', room: 'a', id: 1 });
  client.say({ type: 'leave', room: 'a', id: 2 });
  client.say({ type: 'join', room: 'a', id: 3 });
  const listed = joinWithList(built, 'a');
  broker.subscribing[0].reject(away());
  await settle();
  assert.deepEqual(told(client), ['UNAVAILABLE 1', 'NOT_IN_ROOM 2', 'UNAVAILABLE 3']);
  assert.deepEqual([listed.answers, listed.connection.roomCount], [['UNAVAILABLE'], 0]);
  assert.deepEqual([hub.rooms.has('a'), broker.subscribing.length], [false, 1]);
});

/** A hub whose onJoin gives this answer, and the rooms about which it was asked. */
function buildWithHook(
  /** @type {import('../../src/protocol/refusal.js').Refusal|null} */ verdict,
) {
  /** @type {string[]} */
  const asked = [];
  const hooks = {
    has: (/** @type {string} */ hook) => hook === 'onJoin',
    callFor: (
      /** @type {string} */ _hook,
      /** @type {Connection} */ _by,
      /** @type {any} */ [room],
    ) => {
      asked.push(room);
      return { refusal: verdict, answer: { payload: null, audience: '', audiences: [] } };
    },
  };
  const built = build({ isManual: true, hooks });
  return { built, asked, client: built.connect() };
}

for (const how of ['fails', 'is removed']) {
  test(`a join that repeats one by the backend, which ${how}, asks onJoin`, async () => {
    const { built, asked, client } = buildWithHook(refusal('DENIED'));
    const { joins } = built.operations;
    assert.ok(joins.joinAs(client.connection, 'h', 'ann'));
    if (how === 'is removed') assert.ok(joins.remove(client.connection, 'h'));
    client.say({ type: 'join', room: 'h', since: { epoch: '', offset: 0 }, id: 1 });
    assert.deepEqual(asked, [], 'it is in the room');
    if (how === 'fails') built.broker.subscribing.splice(0)[0].reject(away());
    await answerAll(built);
    assert.deepEqual(asked, ['h']);
    assert.equal(told(client).at(-1), 'PERMISSION_DENIED 1');
    assert.equal(client.connection.roomCount, 0);
    assert.equal(built.operations.lane.isEmpty, true);
  });
}

test('joins that repeat one under way fill the lane, like other commands that wait', async () => {
  const built = build({ isManual: true });
  const client = built.connect();
  for (let id = 1; id <= 2000; id++) client.say({ type: 'join', room: 'h', last: 2, id });
  const { lane } = built.operations;
  assert.ok(lane.queuedBytes > 0);
  assert.ok(told(client).length > 1000, 'the others are refused');
  assert.ok(told(client).every((one) => one.startsWith('UNAVAILABLE')));
  await answerAll(built);
  assert.equal(told(client).length, 2000);
  assert.deepEqual([lane.isEmpty, lane.queuedBytes], [true, 0]);
});
