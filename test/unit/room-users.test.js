// room-users.test.js: from a join with `presence` to the calls of the presence store, and from
// presence events to frames.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { BrokerError } from '../../src/backend/errors.js';
import { loadConfig } from '../../src/config/config.js';
import { Connection } from '../../src/hub/connection.js';
import { decode, readPresence } from '../../src/protocol/decode.js';
import { encodeMember } from '../../src/protocol/encode.js';
import { publicationFrames, roomPrefix } from '../../src/protocol/frame.js';
import {
  ANNOUNCEMENTS,
  encodePublication,
  isPublication,
  KIND,
} from '../../src/protocol/publication.js';
import { FakeTransport, messagesOf } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';

/**
 * A hub whose presence store lists the calls it gets. Rooms whose name begins with `p` have
 * presence.
 */
function build() {
  const { config } = loadConfig({});
  assert.ok(config);
  /** @type {string[]} */
  const said = [];
  /** @type {(room: string) => Promise<{count: number, members: Buffer[]|null}>} */
  let read = async () => ({ count: 0, members: [] });
  /** @type {(() => void)[]} */
  const confirm = [];
  const broker = {
    subscribe: () =>
      new Promise((/** @type {(value: void) => void} */ resolve) => void confirm.push(resolve)),
    unsubscribe() {},
    publish: async () => {},
    reportConnections() {},
    countConnections: async () => 0,
  };
  /** Bytes of replies that the rate was charged. @type {number[]} */
  const charged = [];
  const { counters, hub, commands } = buildHub({
    config,
    broker,
    presence: {
      join: (room, user, member) => void said.push(`${room} +${user} ${member}`),
      leave: (room, user) => void said.push(`${room} -${user}`),
      async recorded() {},
      read: (room) => read(room),
    },
    covers: (room) => room.startsWith('p'),
    charge: (_connection, bytes) => void charged.push(bytes),
  });
  const connect = (address = '127.0.0.1') => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, address);
    hub.addConnection(connection);
    /** @param {object|string} message */
    const say = async (message) => {
      receive(commands, connection, message);
      for (const resolve of confirm.splice(0)) resolve();
      await turn();
      await turn(); // an answer about users has waited for its slot
      return transport.messages().at(-1);
    };
    return { connection, transport, say };
  };
  return {
    counters,
    charged,
    said,
    hub,
    commands,
    connect,
    confirm,
    setRead: (/** @type {typeof read} */ next) => {
      read = next;
    },
  };
}

/** @param {string} presence JSON */
const read = (presence) => {
  const command = decode(Buffer.from(`{"type":"join","room":"p","presence":${presence}}`));
  assert.ok(command, presence);
  const who = readPresence(command);
  return who && { user: who.user, info: who.info && String(who.info) };
};

test('the presence of a join is read, and its info stays as it was written', () => {
  const nobody = { user: undefined, info: null };
  assert.deepEqual(read('null'), nobody);
  assert.deepEqual(read('{}'), nobody);
  assert.equal(read('false'), null);
  assert.deepEqual(read('{"user":"ann"}'), { user: 'ann', info: null });
  assert.deepEqual(read(' { "info" : [1e400, {"a":"}"}] , "user" : "\\u00e9n" } '), {
    user: 'én',
    info: '[1e400, {"a":"}"}]',
  });
  assert.deepEqual(read('{"\\u0075ser":"x","other":{"user":"y"},"info":null}'), {
    user: 'x',
    info: 'null',
  });
  assert.deepEqual(read(`{"user":"${'x'.repeat(128)}"}`), { user: 'x'.repeat(128), info: null });
  const plain = decode(Buffer.from('{"type":"join","room":"p"}'));
  assert.deepEqual(readPresence(/** @type {any} */ (plain)), nobody);
});

test('presence of another shape is malformed', () => {
  for (const presence of [
    'true',
    '1',
    '"ann"',
    '[]',
    '{"user":1}',
    '{"user":null}',
    '{"user":""}',
    '{"user":{"user":"a"}}',
  ]) {
    assert.equal(read(presence), undefined, presence);
  }
  assert.equal(read(`{"user":"${'x'.repeat(129)}"}`), undefined);
});

test('a presence event is a publication that becomes a push', () => {
  const ann = encodeMember('ann "\ud800', Buffer.from('{"n":1e400}'));
  const json = Buffer.from('"text"');
  const publications = [
    Buffer.concat([ANNOUNCEMENTS.join, ann]),
    encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', json, 0, json.length),
    Buffer.concat([ANNOUNCEMENTS.leave, encodeMember('bob', null)]),
  ];
  assert.ok(publications.every(isPublication));
  assert.equal(isPublication(ANNOUNCEMENTS.join), false);
  const frames = publicationFrames(roomPrefix('p:1'), publications);
  assert.match(String(frames), /"info":\{"n":1e400\}/);
  const [join, message, leave, ...rest] = messagesOf(frames);
  assert.deepEqual(join, {
    type: 'presence',
    room: 'p:1',
    event: 'join',
    member: { user: 'ann "\ud800', info: { n: Number.POSITIVE_INFINITY } },
  });
  assert.equal(message.payload, 'text');
  assert.deepEqual(leave, {
    type: 'presence',
    room: 'p:1',
    event: 'leave',
    member: { user: 'bob' },
  });
  assert.deepEqual(rest, []);
});

test('presence gets each join of a user with several connections, and only the last leave', async () => {
  const { connect, said, hub, counters } = build();
  const [a, b, c] = [connect(), connect(), connect()];
  const join = { type: 'join', room: 'p', presence: { user: 'ann', info: 1 } };
  assert.equal((await a.say(join)).type, 'joined');
  await b.say({ ...join, presence: { user: 'ann', info: 2 } });
  await c.say({ type: 'join', room: 'p' });
  const id = c.connection.id;
  assert.deepEqual(said.splice(0), [
    'p +"ann" {"user":"ann","info":1}',
    'p +"ann" {"user":"ann","info":2}',
    `p +"${id}" {"user":"${id}"}`,
  ]);
  assert.equal(counters.presenceMembers, 2);
  await a.say({ type: 'leave', room: 'p' });
  hub.removeConnection(c.connection);
  assert.deepEqual(said.splice(0), [`p -"${id}"`]);
  hub.removeConnection(b.connection);
  assert.deepEqual(said.splice(0), ['p -"ann"']);
  assert.equal(counters.presenceMembers, 0);
});

test('a door may append fields of its own to a member', async () => {
  const { hub, connect, said } = build();
  const { say, connection } = connect();
  await say({ type: 'join', room: 'p', presence: false });
  const users = hub.rooms.get('p')?.users;
  users?.join(connection, '2', null, Buffer.from('{"user":"2","user_id":2}'));
  assert.deepEqual(said, ['p +"2" {"user":"2","user_id":2}']);
  hub.removeConnection(connection);
  assert.equal(said[1], 'p -"2"');
});

test('a connection that only watches, or is in a room without presence, is no user', async () => {
  const { connect, said, hub } = build();
  const a = connect();
  assert.equal((await a.say({ type: 'join', room: 'p', presence: false })).type, 'joined');
  assert.equal((await a.say({ type: 'join', room: 'x', presence: 'ignored' })).type, 'joined');
  assert.equal(hub.rooms.get('x')?.users, null);
  hub.removeConnection(a.connection);
  assert.deepEqual(said, []);
});

test('a join whose presence is malformed or too large is refused and joins nothing', async () => {
  const { connect, hub } = build();
  const a = connect();
  assert.equal(
    (await a.say({ type: 'join', room: 'p', presence: 1 })).error,
    'INVALID_MESSAGE_FORMAT',
  );
  const large = { type: 'join', room: 'p', presence: { info: 'x'.repeat(1023) } };
  assert.equal((await a.say(large)).error, 'MESSAGE_TOO_LARGE');
  assert.equal(hub.rooms.has('p'), false);
  assert.equal(
    (await a.say({ type: 'join', room: 'p', presence: { info: 'x'.repeat(1022) } })).type,
    'joined',
  );
});

test('a connection that closes while the broker confirms its join is never announced', async () => {
  const { connect, said, hub, commands, confirm } = build();
  const [a, b] = [connect(), connect()];
  receive(commands, a.connection, '{"type":"join","room":"p"}');
  receive(commands, b.connection, '{"type":"join","room":"p"}');
  hub.removeConnection(a.connection);
  confirm[0]();
  await turn();
  assert.deepEqual(said, [`p +"${b.connection.id}" {"user":"${b.connection.id}"}`]);
});

test('a list of members comes in pages: each member once, even if others join or leave between two pages', async () => {
  const { connect, setRead } = build();
  const a = connect();
  await a.say({ type: 'join', room: 'p' });
  // Some users are prefixes of others, and some need an escape.
  const users = [
    'a',
    'a ',
    'a"',
    'aa',
    'ab',
    'b\\',
    'b\ud800',
    'é',
    '😀',
    ...Array.from({ length: 20 }, (_, i) => `u${i}`),
  ];
  let present = users.map((user) => encodeMember(user, Buffer.from('1')));
  // Redis too answers in another order each time.
  setRead(async () => ({ count: present.length, members: present.toReversed() }));
  /** @param {(page: number) => void} between */
  const pages = async (between) => {
    const seen = [];
    let after;
    for (let page = 1; ; page++) {
      const reply = await a.say({ type: 'presence', room: 'p', limit: 4, after });
      assert.ok(reply.members.length <= 4);
      assert.equal(reply.count, present.length);
      seen.push(...reply.members.map((/** @type {{user: string}} */ { user }) => user));
      if (reply.more === undefined) return seen;
      assert.equal(reply.more, true);
      assert.equal(reply.members.length, 4);
      after = seen.at(-1);
      between(page);
    }
  };
  const seen = await pages(() => {});
  assert.deepEqual([...seen].sort(), [...users].sort());
  assert.equal(seen.length, users.length);
  // The last user of a page leaves. The next page begins behind that user all the same.
  const others = await pages((page) => {
    if (page === 2)
      present = present.filter((member) => JSON.parse(String(member)).user !== seen[7]);
  });
  assert.deepEqual(others, seen);
  // If one page holds all users, the reply has no next page.
  const whole = await a.say({ type: 'presence', room: 'p', limit: 100 });
  assert.equal(whole.members.length, users.length - 1);
  assert.equal(whole.more, undefined);
});

test('a page of members is bounded in bytes, and its bytes count against the rate', async () => {
  const { connect, setRead, charged } = build();
  const a = connect();
  await a.say({ type: 'join', room: 'p' });
  const info = Buffer.from(JSON.stringify('x'.repeat(1000)));
  const members = Array.from({ length: 1000 }, (_, i) => encodeMember(`user-${i}`, info));
  // An entry of another program in Redis is no member.
  setRead(async () => ({
    count: 1000,
    members: [...members, Buffer.from('forged"'), Buffer.alloc(0)],
  }));
  const seen = new Set();
  let after;
  for (let more = true; more; ) {
    a.transport.writes.length = 0;
    const reply = await a.say({ type: 'presence', room: 'p', after });
    for (const { user } of reply.members) seen.add(user);
    const { length } = a.transport.writes[0];
    assert.ok(length <= 256 * 1024 + 200, `${length} bytes`);
    assert.ok(Math.abs(/** @type {number} */ (charged.pop()) - length) < 200, 'charged');
    more = reply.more === true;
    after = reply.members.at(-1).user;
  }
  assert.equal(seen.size, 1000);
});

test('an invalid limit or position in the list is malformed', async () => {
  for (const change of [
    { limit: 0 },
    { limit: 1.5 },
    { limit: '3' },
    { after: 7 },
    { after: '' },
    { after: {} },
  ]) {
    const { connect } = build();
    const a = connect();
    await a.say({ type: 'join', room: 'p' });
    const reply = await a.say({ type: 'presence', room: 'p', ...change });
    assert.equal(reply.error, 'INVALID_MESSAGE_FORMAT', JSON.stringify(change));
  }
});

test('beyond a bound of commands that wait for a read, more are refused and counted', async () => {
  const { connect, setRead, commands, counters } = build();
  const a = connect();
  await a.say({ type: 'join', room: 'p' });
  /** @type {((attended: {count: number, members: Buffer[]}) => void)[]} */
  const waiting = [];
  setRead(() => new Promise((resolve) => void waiting.push(resolve)));
  for (let i = 0; i < 10_003; i++)
    receive(commands, a.connection, '{"type":"presence","room":"p"}');
  assert.deepEqual(
    [waiting.length, counters.readsRefused, counters.errors.UNAVAILABLE],
    [10_000, 3, 3],
  );
  for (const resolve of waiting) resolve({ count: 0, members: [] });
  const before = a.transport.writes.length;
  while (a.transport.writes.length < before + 10_000) await turn();
  receive(commands, a.connection, '{"type":"presence","room":"p"}');
  assert.equal(counters.readsRefused, 3);
});

test('commands that one read answers have a share of each turn, and their addresses take turns', async () => {
  const { connect, setRead, commands } = build();
  const [flood, other] = [connect(), connect('127.0.0.2')];
  for (const { say } of [flood, other]) await say({ type: 'join', room: 'p' });
  /** @type {(attended: {count: number, members: Buffer[]}) => void} */
  let answer = () => {};
  const shared = new Promise((resolve) => {
    answer = resolve;
  });
  setRead(() => shared);
  for (const { transport } of [flood, other]) transport.writes.length = 0;
  // Each page differs, so none is taken from the one before.
  for (let limit = 1; limit <= 500; limit++)
    receive(commands, flood.connection, { type: 'presence', room: 'p', limit });
  receive(commands, other.connection, { type: 'presence', room: 'p' });
  answer({
    count: 1000,
    members: Array.from({ length: 1000 }, (_, i) => encodeMember(`${i}`, null)),
  });
  while (other.transport.writes.length === 0) await turn();
  const { length } = flood.transport.writes;
  assert.ok(length < 250, `${length} of 500 answers came first`);
});

test('a connection that closes while its answer waits costs nothing more', async () => {
  const { connect, setRead, commands, charged } = build();
  const [gone, other] = [connect(), connect()];
  for (const { say } of [gone, other]) await say({ type: 'join', room: 'p' });
  setRead(async () => ({ count: 1, members: [encodeMember('ann', null)] }));
  for (const { connection } of [gone, other])
    receive(commands, connection, { type: 'presence', room: 'p' });
  gone.connection.markClosed();
  const before = other.transport.writes.length;
  while (other.transport.writes.length === before) await turn();
  assert.equal(charged.length, 1);
});

test('clients get the list of a room, or its count alone, whether they are in it or not', async () => {
  const { connect, setRead } = build();
  const a = connect();
  const ask = { type: 'presence', room: 'p', id: 7 };
  assert.equal((await a.say({ ...ask, room: '*' })).error, 'INVALID_ROOM');
  const members = [encodeMember('ann', Buffer.from('{"a":1}')), encodeMember('bob', null)];
  setRead(async () => ({ count: 2, members }));
  assert.deepEqual(await a.say(ask), {
    type: 'presence',
    room: 'p',
    members: [{ user: 'ann', info: { a: 1 } }, { user: 'bob' }],
    count: 2,
    id: 7,
  });
  setRead(async () => ({ count: 2000, members: null }));
  assert.deepEqual(await a.say(ask), { type: 'presence', room: 'p', count: 2000, id: 7 });
  setRead(() => Promise.reject(new BrokerError('UNAVAILABLE', 'away')));
  assert.equal((await a.say(ask)).error, 'UNAVAILABLE');
  await a.say({ type: 'join', room: 'x' });
  assert.deepEqual(await a.say({ type: 'presence', room: 'x' }), {
    type: 'presence',
    room: 'x',
    members: [],
    count: 0,
  });
});

test('a list has the events that came after its read, in any order of answer and event', async () => {
  const { hub, connect, setRead, commands } = build();
  const [watcher, other] = [connect(), connect()];
  for (const { say } of [watcher, other]) await say({ type: 'join', room: 'p', presence: false });
  const announce = (/** @type {'join'|'leave'} */ event, /** @type {Buffer} */ member) =>
    hub.broadcast('p', Buffer.concat([ANNOUNCEMENTS[event], member]));
  const [ann, bob, eve] = ['ann', 'bob', 'e"v\\e'].map((user) => encodeMember(user, null));
  const newBob = encodeMember('bob', Buffer.from('{"n":2}'));
  /** @type {((attended: {count: number, members: Buffer[]|null}) => void)[]} */
  const reads = [];
  const ask = () => {
    const reading = new Promise((/** @type {(read: any) => void} */ resolve) => {
      reads.push(resolve);
    });
    setRead(() => reading);
    for (const { connection } of [watcher, other])
      receive(commands, connection, { type: 'presence', room: 'p', id: reads.length });
  };
  const answerTo = (/** @type {typeof watcher} */ { transport }) =>
    transport.messages().find(({ id }) => id === reads.length);
  const listed = async () => {
    while (!answerTo(watcher) || !answerTo(other)) await turn();
    const { members, count } = answerTo(watcher);
    assert.deepEqual(answerTo(other).members, members);
    return [members, count];
  };
  ask();
  announce('join', eve);
  announce('leave', ann);
  announce('join', newBob);
  await turn(); // the events have reached the members, and the list has not
  reads[0]({ count: 2, members: [ann, bob] });
  assert.deepEqual(await listed(), [[{ user: 'bob', info: { n: 2 } }, { user: 'e"v\\e' }], 2]);
  // While the answers of one list wait for their turn, another list is read.
  announce('leave', newBob);
  ask();
  reads[1]({ count: 1, members: [eve] });
  ask();
  announce('join', ann);
  reads[2]({ count: 1, members: [eve] });
  await turn();
  assert.deepEqual(await listed(), [[{ user: 'e"v\\e' }, { user: 'ann' }], 2]);
  const lists = hub.rooms.get('p')?.users?.lists;
  assert.deepEqual(lists?.since(0), [], 'no event is kept when all answers are written');
  // Nothing is changed in a room too large for a list.
  ask();
  announce('join', bob);
  reads[3]({ count: 1001, members: null });
  assert.deepEqual(await listed(), [undefined, 1001]);
});

test('a list is refused if an event may have been lost since it was asked for', async () => {
  const { hub, connect, setRead, commands } = build();
  const a = connect();
  await a.say({ type: 'join', room: 'p', presence: false });
  const ann = encodeMember('ann', null);
  /** @type {(read: {count: number, members: Buffer[]}) => void} */
  let answer = () => {};
  const reading = new Promise((/** @type {(read: any) => void} */ resolve) => {
    answer = resolve;
  });
  setRead(() => reading);
  const ask = (/** @type {number} */ id) =>
    receive(commands, a.connection, { type: 'presence', room: 'p', id });
  ask(1);
  hub.broadcast('p', Buffer.concat([ANNOUNCEMENTS.leave, ann]));
  // Ann's return is the event that was lost.
  hub.rooms.get('p')?.users?.doubt();
  ask(2);
  answer({ count: 1, members: [ann] });
  const replyTo = (/** @type {number} */ to) => a.transport.messages().find(({ id }) => id === to);
  while (!replyTo(1) || !replyTo(2)) await turn();
  assert.equal(replyTo(1).error, 'UNAVAILABLE');
  assert.deepEqual(replyTo(2).members, [{ user: 'ann' }]);
  assert.deepEqual(hub.rooms.get('p')?.users?.lists?.since(0), []);
});

test('events that a list would have to keep are bounded: its answer is refused and counted', async () => {
  const { hub, connect, setRead, commands, counters } = build();
  const a = connect();
  await a.say({ type: 'join', room: 'p', presence: false });
  /** @type {(read: {count: number, members: Buffer[]}) => void} */
  let answer = () => {};
  const reading = new Promise((/** @type {(read: any) => void} */ resolve) => {
    answer = resolve;
  });
  setRead(() => reading);
  receive(commands, a.connection, { type: 'presence', room: 'p' });
  const info = Buffer.from(`"${'x'.repeat(60_000)}"`);
  for (let i = 0; i < 80; i++)
    hub.broadcast('p', Buffer.concat([ANNOUNCEMENTS.join, encodeMember(`${i}`, info)]));
  answer({ count: 0, members: [] });
  const errors = () => a.transport.messages().filter(({ error }) => error !== undefined);
  while (errors().length === 0) await turn();
  assert.equal(errors()[0].error, 'UNAVAILABLE');
  assert.equal(counters.readsRefused, 1);
  setRead(async () => ({ count: 1, members: [encodeMember('ann', null)] }));
  receive(commands, a.connection, { type: 'presence', room: 'p', id: 2 });
  const listed = () => a.transport.messages().find(({ id }) => id === 2);
  while (!listed()) await turn();
  assert.equal(listed().count, 1);
});
