// outage-notice.test.js: how clients are notified of an outage (recovery/outage-notice.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { NATIVE_TEXTS } from '../../src/protocol/door-texts.js';
import { SHARES } from '../../src/worker/turn.js';
import { build, memberWith, offsets, range, settle } from '../helpers/recovery.js';

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

test('a client that joins without hello between two outages hears of the second', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const built = build();
  const { broker, connect, outageNotice } = built;
  await memberWith(built, 1);
  const greeted = connect();
  greeted.say({ type: 'hello' });
  outageNotice.onState('degraded');
  t.mock.timers.tick(1000);
  broker.isManual = true;
  // The broker is up, and a room is still being compared.
  outageNotice.onState('up');
  await settle();
  broker.isManual = false;
  const silent = connect();
  silent.say({ type: 'join', room: 'other' });
  await settle();
  assert.deepEqual([outageNotice.isOn, silent.of('joined').length], [true, 1]);
  outageNotice.onState('degraded');
  t.mock.timers.tick(1000);
  await settle();
  for (const client of [greeted, silent])
    assert.deepEqual(client.of('degraded'), [{ type: 'degraded', degraded: true }]);
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

test('a client of a door without this notice gets none', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { connect, outageNotice } = build();
  const [native, other] = [connect(), connect()];
  for (const client of [native, other]) client.say({ type: 'hello' });
  other.transport.door = { ...NATIVE_TEXTS, encodeDegraded: () => null };
  outageNotice.onState('degraded');
  t.mock.timers.tick(1000);
  await settle();
  assert.equal(native.of('degraded').length, 1);
  assert.equal(other.of('degraded').length, 0);
});
