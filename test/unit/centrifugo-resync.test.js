// centrifugo-resync.test.js: in formats of the Centrifugo door a resync ends the membership: nothing
// follows it, because a client would take a later publication for its position (hub/outbox.js,
// recovery/lagging-members.js, doors/centrifugo/codec/frames.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DISCONNECTS } from '../../src/doors/centrifugo/codec/codes.js';
import { registerFormats } from '../../src/doors/centrifugo/codec/frames.js';
import { NATIVE_TEXTS } from '../../src/protocol/door-texts.js';
import { FORMAT } from '../../src/protocol/format.js';
import { build, publication, settle } from '../helpers/recovery.js';

/** @typedef {import('../../src/recovery/room-joins.js').Joined} Joined */

registerFormats();

const { INSUFFICIENT_STATE } = DISCONNECTS;

/** With three of them in a row, the third makes a member lag that does not read. */
const LARGE = 'x'.repeat(30_000);

/** @param {Parameters<typeof build>[0]} [options] */
function buildDoor(options) {
  const built = build(options);
  const { hub } = built;
  /** @type {string[]} */
  const expelled = [];
  /** @param {import('../../src/recovery/room-joins.js').JoinRequest['since']} [since] */
  const join = async (since = null) => {
    const member = built.connect();
    member.transport.format = FORMAT.CENTRIFUGO_JSON;
    member.transport.door = { ...NATIVE_TEXTS, expelled: (_, room) => void expelled.push(room) };
    /** @type {Joined|null} */
    let joined = null;
    hub.join(member.connection, 'h', {
      since,
      onJoined(result) {
        joined = result;
      },
      onRefused: () => assert.fail('refused'),
    });
    await settle();
    return { ...member, joined: /** @type {Joined|null} */ (/** @type {unknown} */ (joined)) };
  };
  const publish = async (/** @type {number} */ count, /** @type {unknown} */ payload = 'x') => {
    for (let i = 0; i < count; i++) {
      built.broker.accept('h', publication(payload));
      built.broker.deliver();
      await settle();
    }
  };
  return { ...built, join, publish, expelled };
}

/** Offsets, and codes of unsubscribes. @param {import('../helpers/fake-transport.js').FakeTransport} transport */
const seen = (transport) =>
  transport.messages().map(({ push }) => push.pub?.offset ?? push.unsubscribe.code);

test('members leave with the resync, native ones go on', async () => {
  const { hub, broker, join, publish, connect, expelled, tick } = buildDoor();
  const members = [await join(), await join(), await join()];
  const native = connect();
  native.say({ type: 'join', room: 'h' });
  await settle();
  await publish(2);
  broker.forget('h');
  // The mark and what follows it are written in one go.
  broker.accept('h', publication('new'));
  broker.deliver();
  broker.accept('h', publication('newer'));
  broker.deliver();
  await settle();
  await tick(2);
  for (const { connection, transport } of members) {
    assert.deepEqual(seen(transport), [1, 2, 2500]);
    assert.equal(hub.rooms.get('h')?.has(connection), false);
    assert.equal(transport.closed, null);
  }
  assert.deepEqual(expelled, ['h', 'h', 'h']);
  assert.equal(native.of('resync').length, 1);
  assert.equal(native.of('message').length, 3, 'one of them after the resync');
  assert.equal(hub.rooms.get('h')?.connectionCount, 1);
});

test('a room whose last members leave with a resync is closed', async () => {
  const { hub, broker, join, publish, counters, tick } = buildDoor();
  const members = [await join(), await join()];
  await publish(1);
  broker.forget('h');
  await publish(1);
  await tick(2);
  for (const { transport } of members) assert.deepEqual(seen(transport), [1, 2500]);
  assert.equal(hub.rooms.has('h'), false);
  assert.equal(counters.queueDepth, 0);
});

test('a lagging member whose next publication is gone leaves, too', async () => {
  const { hub, join, publish, counters, expelled } = buildDoor({ size: 5 });
  const quick = await join();
  const slow = await join();
  slow.transport.isStuck = true;
  await publish(3, LARGE);
  assert.equal(counters.laggingMembers, 1);
  await publish(20);
  slow.transport.drain();
  await settle();
  assert.deepEqual(seen(slow.transport), [1, 2, 2500]);
  assert.deepEqual(expelled, ['h']);
  assert.deepEqual([counters.laggingMembers, slow.connection.lags], [0, 0]);
  assert.deepEqual(counters.lagsEnded, { caught_up: 0, resync: 1, left: 0 });
  await publish(1);
  assert.equal(seen(slow.transport).length, 3);
  assert.equal(seen(quick.transport).at(-1), 24);
  assert.equal(hub.rooms.get('h')?.connectionCount, 1);
});

test('a subscription by the server ends with its connection, and with no message before', async () => {
  const { join, publish, broker } = buildDoor({ size: 5 });
  const slow = await join();
  const quick = await join();
  for (const { connection, transport } of [slow, quick])
    transport.door = { ...transport.door, expelled: () => connection.close(INSUFFICIENT_STATE) };
  slow.transport.isStuck = true;
  await publish(3, LARGE);
  await publish(20);
  slow.transport.drain();
  await settle();
  assert.deepEqual(seen(slow.transport), [1, 2]);
  assert.equal(slow.transport.closed?.code, INSUFFICIENT_STATE.code);
  broker.forget('h');
  await publish(1);
  assert.equal(seen(quick.transport).at(-1), 23);
  assert.equal(quick.transport.closed?.code, INSUFFICIENT_STATE.code);
});

test('a replay stands in the reply, and is built once for all who return to a position', async () => {
  const { join, publish, broker, counters } = buildDoor();
  const first = await join();
  await publish(3);
  const { epoch } = broker.stream('h');
  const since = { epoch, offset: 1, connectionId: '' };
  const { deliveries } = counters;
  const again = await join(since);
  const other = await join({ ...since, epoch: '', isAnyEpoch: true });
  assert.deepEqual(again.transport.writes, [], 'no frames behind the reply');
  const list = JSON.parse(`[${again.joined?.replay}]`);
  assert.deepEqual(
    list.map((/** @type {any} */ { offset }) => offset),
    [2, 3],
  );
  assert.equal(again.joined?.replay, other.joined?.replay, 'the same bytes');
  assert.equal(counters.deliveries, deliveries + 4);
  assert.equal(first.joined?.replay?.length, 0);
  const lost = await join({ epoch: 'f'.repeat(16), offset: 1, connectionId: '' });
  assert.deepEqual([lost.joined?.recovered, lost.joined?.replay?.length], [false, 0]);
});
