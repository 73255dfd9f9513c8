// room-sync.test.js: a room's stream: gaps, resync, epochs and position checks (recovery/room-sync.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import {
  build,
  memberBehind,
  memberWith,
  offsets,
  ofType,
  publication,
  range,
  settle,
  TEN_SECONDS,
} from '../helpers/recovery.js';

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
  while (members.some(({ of }) => of('message').length < 2)) {
    clock.now += 1; // the room rests between two flushes
    await turn();
  }
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
  scheduler.syncs.get('h')?.comparePosition();
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
  scheduler.syncs.get('h')?.comparePosition();
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
