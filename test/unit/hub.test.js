// hub.test.js: rooms, members, and the frames of a flush (hub/hub.js, hub/outbox.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Connection } from '../../src/hub/connection.js';
import { FORMAT } from '../../src/protocol/format.js';
import { QUIET } from '../helpers/hub.js';
import { build, payloads, publication } from '../helpers/hub-members.js';

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

test('a connection that leaves before the broker has confirmed the room gets no answer', async () => {
  const { hub, connect, subscribing } = build({ manual: true });
  const [{ connection: left }, { connection: stays }] = [connect(), connect()];
  /** @type {string[]} */
  const joined = [];
  hub.join(left, 'r', { ...QUIET, onJoined: () => joined.push('left') });
  hub.join(stays, 'r', { ...QUIET, onJoined: () => joined.push('stays') });
  hub.removeConnection(left);
  subscribing[0].resolve();
  await turn();
  assert.deepEqual(joined, ['stays']);
});

test('a connection is joining until its join is answered', async () => {
  const { hub, connect, subscribing } = build({ manual: true });
  const { connection } = connect();
  let isAnswered = false;
  hub.join(connection, 'r', { ...QUIET, onJoined: () => (isAnswered = true) });
  const room = hub.rooms.get('r');
  assert.ok(room);
  subscribing[0].resolve();
  for (let i = 0; i < 8; i++) {
    assert.equal(room.joining(connection) === null, isAnswered, `after ${i} microtasks`);
    await null;
  }
  assert.equal(isAnswered, true);
});

test('a member gets nothing before its join is answered, and everything after', async () => {
  const { hub, connect, subscribing } = build({ manual: true });
  const { connection, transport } = connect();
  let isJoined = false;
  hub.join(connection, 'r', { ...QUIET, onJoined: () => (isJoined = true) });
  hub.broadcast('r', publication('early'));
  await turn();
  assert.equal(isJoined, false);
  assert.deepEqual(payloads(transport), []);
  subscribing[0].resolve();
  await turn();
  assert.equal(isJoined, true);
  hub.broadcast('r', publication('live'));
  await turn();
  assert.deepEqual(payloads(transport), ['live']);
});

test('who only watches a room is never counted there, whether or not the room is confirmed', async () => {
  const historyOf = (/** @type {string} */ room) =>
    room === 'h' ? { size: 10, ttlMs: 60_000 } : null;
  const { hub, connect, subscribing } = build({ manual: true, historyOf });
  for (const [index, name] of ['r', 'h'].entries()) {
    const room = hub.openRoom(name);
    const [watcher, late] = [connect().connection, connect().connection];
    hub.watch(watcher, room, QUIET);
    assert.deepEqual([room.connectionCount, room.clientCount], [0, 0], name);
    hub.join(connect().connection, name, QUIET);
    assert.equal(room.clientCount, 1, name);
    hub.watch(late, room, QUIET);
    hub.unwatch(watcher, room);
    assert.equal(room.clientCount, 1, name);
    subscribing[index].reject(Object.assign(new Error('away'), { code: 'UNAVAILABLE' }));
    await turn();
    assert.deepEqual([room.connectionCount, room.clientCount], [0, 0], `${name} is refused`);
    hub.unwatch(late, room);
    assert.deepEqual([room.connectionCount, room.clientCount], [0, 0], `${name} is refused`);
  }
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

test('after a flush a large room rests as long as that took, and a small one does not', async () => {
  const { hub, connect, turn: scheduler, outbox } = build();
  let now = 1000;
  scheduler.clock = () => now;
  const small = connect();
  hub.join(small.connection, 'small', QUIET);
  const members = Array.from({ length: 100 }, connect);
  for (const { connection, transport } of members) {
    hub.join(connection, 'big', QUIET);
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      now += 0.04;
      write(frames);
    };
  }
  const room = /** @type {import('../../src/hub/room.js').HubRoom} */ (hub.rooms.get('big'));
  const last = members[99].transport;
  hub.broadcast('big', publication(0));
  while (room.isQueued) await turn();
  assert.deepEqual(payloads(last), [0], 'an idle room writes at once');
  assert.ok(room.restsUntilMs - now > 3 && room.restsUntilMs - now <= 4.1, 'rests for the 4 ms');
  hub.broadcast('big', publication(1));
  for (let i = 0; i < 5; i++) hub.broadcast('small', publication(i));
  await turn();
  assert.equal(payloads(small.transport).length, 5);
  hub.broadcast('big', publication(2));
  now = room.restsUntilMs - 0.1;
  outbox.slot.wake();
  await turn();
  assert.deepEqual(payloads(last), [0]);
  now = room.restsUntilMs;
  while (room.isQueued) await turn();
  assert.deepEqual(payloads(last), [0, 1, 2]);
  assert.equal(last.writes.length, 2, 'both publications share a write');

  // A drain does not wait for the end of a rest.
  hub.broadcast('big', publication(3));
  assert.equal(outbox.resting.length, 1);
  outbox.flush();
  assert.deepEqual(payloads(last), [0, 1, 2, 3]);
});

test('a rest has a bound, and ends when enough waits for a write', async () => {
  const { hub, connect, turn: scheduler, outbox } = build();
  let now = 1000;
  scheduler.clock = () => now;
  const members = Array.from({ length: 100 }, connect);
  for (const { connection, transport } of members) {
    hub.join(connection, 'big', QUIET);
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      now += 5;
      write(frames);
    };
  }
  const room = /** @type {import('../../src/hub/room.js').HubRoom} */ (hub.rooms.get('big'));
  hub.broadcast('big', publication(0));
  while (room.isQueued) await turn();
  assert.ok(room.restsUntilMs - now <= 10, 'the flush took 500 ms');
  for (let i = 0; i < 9; i++) hub.broadcast('big', publication('x'.repeat(2000)));
  assert.equal(outbox.resting.length, 1);
  outbox.slot.wake();
  await turn();
  assert.ok(room.flight);
  outbox.flush();
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
  const room = /** @type {import('../../src/hub/room.js').HubRoom} */ (hub.rooms.get('big'));
  hub.broadcast('big', publication('x'));
  await turn();
  assert.ok(room.flight, 'it has yielded');
  const late = members.filter(({ transport }) => transport.writes.length === 0);
  hub.leave(late[0].connection, room);
  hub.removeConnection(late[late.length - 1].connection);
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
  for (const { connection } of all) hub.removeConnection(connection);
  assert.equal(hub.rooms.size, 1);
  assert.equal(hub.connections.length, 0);
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
