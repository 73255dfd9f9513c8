// lagging-members.test.js: members of rooms with history that read more slowly than messages come.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { Connection } from '../../src/hub/connection.js';
import { endWithId, eventId } from '../../src/protocol/event-stream.js';
import { FORMAT } from '../../src/protocol/format.js';
import { ANNOUNCEMENTS, encodePublication, KIND } from '../../src/protocol/publication.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { StreamBroker } from '../helpers/stream-broker.js';

/** With three of them in a row, the third makes a member lag that does not read. */
const LARGE = 'x'.repeat(30_000);
const RUNS = 40;

const publication = (/** @type {unknown} */ payload, /** @type {string} */ except = '') => {
  const json = Buffer.from(JSON.stringify(payload));
  return encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', json, 0, json.length, except);
};

/** Waits until promises and flushes have run. */
async function settle() {
  for (let i = 0; i < 4; i++) await turn();
}

/** Waits until members that read have taken their steps. */
async function catchUp() {
  for (let i = 0; i < 20; i++) await settle();
}

/** A hub in which rooms named h… have history. */
function build({ env = {}, size = 100, maxBufferBytes = 1e9 } = {}) {
  const config = configOf(env);
  const broker = new StreamBroker({ size });
  const clock = { now: 1000 };
  const parts = buildHub({
    config,
    broker,
    historyOf: (room) => (room.startsWith('h') ? { size, ttlMs: 60_000 } : null),
    clock: () => clock.now,
    maxBufferBytes,
  });
  parts.turn.clock = () => clock.now;
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    parts.hub.addConnection(connection);
    const messages = (/** @type {string} */ type) =>
      transport.messages().filter((message) => message.type === type);
    return {
      connection,
      transport,
      of: messages,
      offsets: () => messages('message').map(({ offset }) => offset),
      say: (/** @type {object} */ message) => receive(parts.commands, connection, message),
    };
  };
  const join = async (room = 'h') => {
    const client = connect();
    client.say({ type: 'join', room });
    await settle();
    return client;
  };
  /**
   * Publishes, and lets each publication reach the members by itself.
   * @param {number} count @param {{payload?: unknown, room?: string, except?: string}} [options]
   */
  const publish = async (count, { payload = 'x', room = 'h', except = '' } = {}) => {
    for (let i = 0; i < count; i++) {
      broker.accept(room, publication(payload, except));
      broker.deliver();
      await settle();
    }
  };
  const tick = async (/** @type {number} */ count) => {
    for (let i = 0; i < count; i++) {
      clock.now += 250;
      parts.scheduler.wheel.tick();
      await settle();
    }
  };
  /** A member that has lagged since offset 2. */
  const lagging = async () => {
    const client = await join();
    client.transport.isStuck = true;
    await publish(3, { payload: LARGE });
    assert.equal(parts.counters.laggingMembers, 1);
    return client;
  };
  return { ...parts, broker, clock, connect, join, publish, tick, lagging };
}

const range = (/** @type {number} */ from, /** @type {number} */ to) =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);

test('a member that does not read is sent nothing more, and gets all in order when it reads', async () => {
  const { lagging, join, publish, counters } = build();
  const quick = await join();
  const slow = await lagging();
  const { pendingBytes, writes } = slow.transport;
  const written = writes.length;
  await publish(50, { payload: LARGE });
  assert.equal(slow.transport.pendingBytes, pendingBytes);
  assert.equal(writes.length, written);
  assert.deepEqual(quick.offsets(), range(1, 53));
  slow.transport.drain();
  await catchUp();
  assert.deepEqual(slow.offsets(), range(1, 53));
  assert.equal(counters.laggingMembers, 0);
  assert.deepEqual(counters.lagsEnded, { caught_up: 1, resync: 0, left: 0 });
  assert.equal(counters.deliveries, 2 * 53);
  await publish(2);
  assert.deepEqual(slow.offsets(), range(1, 55));
  assert.equal(slow.transport.closed, null);
});

test('a step is small, and the next one waits until the kernel has taken it', async () => {
  const { lagging, publish } = build();
  const slow = await lagging();
  await publish(17, { payload: LARGE });
  const had = slow.offsets().length;
  assert.equal(had, 2);
  for (let most = had + 2; most <= 20; most += 2) {
    slow.transport.drain(true);
    await settle();
    assert.deepEqual(slow.offsets(), range(1, most), 'two of 30 KB in each step');
  }
});

test('publications that are not in the replay buffer are read in pages, once for all members', async () => {
  const { lagging, join, publish, broker, counters } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '131072', FANFARE_MAX_MESSAGE_BYTES: '40000' },
  });
  const other = await join();
  const slow = await lagging();
  other.transport.isStuck = true;
  await publish(30, { payload: LARGE });
  assert.equal(counters.laggingMembers, 2);
  broker.allReads = [];
  for (const { transport } of [slow, other]) transport.drain();
  await catchUp();
  for (const { offsets } of [slow, other]) assert.deepEqual(offsets(), range(1, 33));
  assert.equal(counters.laggingMembers, 0);
  assert.ok(broker.allReads.length <= 5, `${broker.allReads.length} reads of 256 KB for 900 KB`);
  for (const { isForward, maxBytes } of broker.allReads)
    assert.deepEqual([isForward, maxBytes], [true, 256 * 1024]);
});

test('a page that another member has read says nothing about the publications before it', async () => {
  const { lagging, join, publish, counters } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '131072', FANFARE_MAX_MESSAGE_BYTES: '40000' },
  });
  const ahead = await join();
  const behind = await lagging();
  await publish(10, { payload: LARGE });
  ahead.transport.isStuck = true;
  await publish(20, { payload: LARGE });
  assert.equal(counters.laggingMembers, 2);
  // The page that is left begins after the position of the one behind.
  ahead.transport.drain();
  await catchUp();
  behind.transport.drain();
  await catchUp();
  for (const { offsets, of } of [ahead, behind]) {
    assert.deepEqual(of('resync'), []);
    assert.deepEqual(offsets(), range(1, 33));
  }
});

test('a member that catches up during a flush gets that flush once', async () => {
  const { join, publish, broker, counters, clock } = build();
  const readers = [];
  for (let i = 0; i < 200; i++) readers.push(await join());
  const slow = await join();
  slow.transport.isStuck = true;
  await publish(3, { payload: LARGE });
  assert.equal(counters.laggingMembers, 1);
  for (const { transport } of readers) {
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      clock.now += 0.5; // a slow system call
      write(frames);
    };
  }
  broker.accept('h', publication('during'));
  broker.deliver();
  await turn();
  const hasLast = (/** @type {typeof slow} */ { offsets }) => offsets().at(-1) === 4;
  assert.ok(hasLast(readers[0]) && !readers.every(hasLast), 'the flush has yielded');
  slow.transport.drain();
  while (!readers.every(hasLast)) await turn();
  await catchUp();
  assert.deepEqual(slow.offsets(), range(1, 4));
  assert.equal(counters.laggingMembers, 0);
});

test('if the history no longer has the next publication, the member gets a resync and goes on', async () => {
  const { lagging, publish, broker, counters } = build({ size: 5 });
  const slow = await lagging();
  await publish(20);
  const { epoch } = broker.stream('h');
  slow.transport.drain();
  await settle();
  assert.deepEqual(slow.offsets(), [1, 2]);
  const [resync] = slow.of('resync');
  assert.deepEqual([resync.room, resync.epoch, resync.offset], ['h', epoch, 23]);
  await publish(2);
  assert.deepEqual(slow.offsets(), [1, 2, 24, 25]);
  assert.deepEqual(counters.lagsEnded, { caught_up: 0, resync: 1, left: 0 });
});

test('a new epoch while a member lags is one resync, when the member reads', async () => {
  const { lagging, publish, broker, tick, scheduler } = build();
  const slow = await lagging();
  broker.forget('h');
  await publish(3);
  await tick(1);
  slow.transport.drain();
  await settle();
  const [resync, ...more] = slow.of('resync');
  assert.deepEqual(more, []);
  assert.deepEqual([resync.epoch, resync.offset], [broker.stream('h').epoch, 3]);
  assert.equal(scheduler.syncs.get('h')?.lagging?.members.size, 0);
  await publish(1);
  assert.deepEqual(slow.offsets(), [1, 2, 4]);
});

test('an outage of the broker while a member lags delays what only the broker has', async () => {
  const { lagging, publish, broker, tick, scheduler, counters } = build({ maxBufferBytes: 1 });
  const slow = await lagging();
  await publish(3);
  scheduler.syncs.get('h')?.replayBuffer.evict();
  broker.isAway = true;
  slow.transport.drain();
  await settle();
  await tick(3);
  assert.deepEqual(slow.offsets(), [1, 2]);
  assert.equal(counters.laggingMembers, 1);
  broker.isAway = false;
  await tick(40);
  assert.deepEqual(slow.offsets(), range(1, 6));
  assert.equal(counters.laggingMembers, 0);
});

test('a member that leaves, rejoins or disconnects while it lags is no lagging member any more', async () => {
  const built = build();
  const { hub, counters, publish, broker } = built;
  const one = await built.lagging();
  one.say({ type: 'leave', room: 'h' });
  await settle();
  assert.deepEqual([counters.laggingMembers, one.connection.lags], [0, 0]);
  one.transport.drain();
  await settle();
  assert.deepEqual(one.offsets(), [1, 2], 'nothing follows');
  const { epoch } = broker.stream('h');
  one.say({ type: 'join', room: 'h', since: { epoch, offset: 2 } });
  await settle();
  assert.deepEqual(one.offsets(), [1, 2, 3]);
  one.transport.isStuck = true;
  await publish(3, { payload: LARGE });
  assert.equal(counters.laggingMembers, 1);
  hub.removeConnection(one.connection);
  assert.equal(counters.laggingMembers, 0);
  assert.equal(counters.lagsEnded.left, 2);
  assert.equal(hub.rooms.has('h'), false);
});

test('replies and presence events reach a lagging member, and too many of them close it', async () => {
  const { lagging, publish, hub, counters } = build();
  const slow = await lagging();
  slow.say({ type: 'ping', id: 1 });
  const member = Buffer.from('{"user":"ann"}');
  hub.broadcast('h', Buffer.concat([ANNOUNCEMENTS.join, member]));
  await publish(1);
  assert.equal(slow.of('pong').length, 1);
  assert.deepEqual(
    slow.of('presence').map(({ event }) => event),
    ['join'],
  );
  assert.deepEqual(slow.offsets(), [1, 2]);
  const many = { type: 'echo', payload: 'x'.repeat(60_000) };
  for (let i = 0; i < 20; i++) slow.say(many);
  assert.equal(slow.transport.closed?.code, 4003);
  assert.equal(counters.slow.closed, 1);
});

test('a member gets the presence events of the flush at which it begins to lag', async () => {
  const { join, publish, hub, broker, counters } = build();
  const slow = await join();
  const reader = await join();
  slow.transport.isStuck = true;
  await publish(2, { payload: LARGE });
  const { deliveries } = counters;
  hub.broadcast('h', Buffer.concat([ANNOUNCEMENTS.join, Buffer.from('{"user":"ann"}')]));
  broker.accept('h', publication(LARGE));
  broker.deliver();
  hub.broadcast('h', Buffer.concat([ANNOUNCEMENTS.leave, Buffer.from('{"user":"ann"}')]));
  await settle();
  assert.equal(counters.laggingMembers, 1);
  for (const member of [slow, reader]) {
    const events = member.of('presence').map(({ event }) => event);
    assert.deepEqual(events, ['join', 'leave']);
  }
  assert.equal(counters.deliveries - deliveries, 5);
  slow.transport.drain();
  await catchUp();
  assert.deepEqual(slow.offsets(), [1, 2, 3]);
});

test('messages that a member sent with echo: false are left out when it catches up', async () => {
  const { lagging, publish } = build();
  const slow = await lagging();
  await publish(1, { payload: 'own', except: slow.connection.id });
  await publish(1, { payload: 'of another', except: 'AAAAAAAA1' });
  slow.transport.drain();
  await settle();
  assert.deepEqual(slow.offsets(), [1, 2, 3, 5]);
});

test('a lagging stream of server-sent events continues with the ids of its events', async () => {
  const { connect, publish } = build();
  const slow = connect();
  slow.transport.format = FORMAT.EVENTS;
  slow.say({ type: 'join', room: 'h' });
  await settle();
  slow.transport.isStuck = true;
  await publish(5, { payload: LARGE });
  slow.transport.drain();
  await settle();
  // The fake transport sends the reply to the join as a frame.
  const text = Buffer.concat(slow.transport.writes.slice(1)).toString();
  const ids = [...text.matchAll(/^id: ?(.*)$/gm)].map(([, id]) => Number(id.match(/\d+$/)?.[0]));
  assert.deepEqual(ids, range(1, 5));
});

test('the id of a stream with several rooms does not pass messages that the stream lags behind', async () => {
  const { join, publish, broker } = build();
  const slow = await join();
  /** @type {number[]} */
  const moves = [];
  const withPosition = (
    /** @type {string} */ _,
    /** @type {Buffer} */ events,
    /** @type {string} */ epoch,
    /** @type {number} */ offset,
  ) => {
    moves.push(offset);
    return endWithId(events, eventId(epoch, offset));
  };
  Object.assign(slow.transport, { format: FORMAT.BARE_EVENTS, withPosition, isStuck: true });
  await publish(4, { payload: LARGE });
  assert.equal(broker.stream('h').offset, 4);
  assert.equal(moves.at(-1), 2);
  slow.transport.drain();
  await catchUp();
  assert.equal(moves.at(-1), 4);
});

test('a connection in a room with history is closed when it takes no byte for the time of a ping and a pong', async () => {
  const { lagging, clock, slowConsumers, counters } = build({
    env: { FANFARE_PING_INTERVAL_MS: '20000', FANFARE_PONG_TIMEOUT_MS: '5000' },
  });
  const slow = await lagging();
  for (let second = 0; second < 24; second++) {
    clock.now += 1000;
    slowConsumers.sweep();
  }
  assert.equal(counters.slow.closed, 0);
  clock.now += 2000;
  slowConsumers.sweep();
  assert.equal(slow.transport.closed?.code, 4003);
  assert.equal(counters.slow.closed, 1);
});

test('a message of a plain room closes a lagging connection whose bytes are too old', async () => {
  const { lagging, clock, broker } = build();
  const slow = await lagging();
  slow.say({ type: 'join', room: 'p' });
  await settle();
  clock.now += 11_000;
  broker.onPublication('p', publication('plain'), 0, '');
  await settle();
  assert.equal(slow.transport.closed?.code, 4003);
});

test('whatever readers do, they get each publication once and in order, or a resync', async () => {
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.record({ publish: fc.integer({ min: 1, max: 4 }) }) },
    { weight: 2, arbitrary: fc.record({ stick: fc.nat(2) }) },
    { weight: 3, arbitrary: fc.record({ drain: fc.nat(2), isStuck: fc.boolean() }) },
    { weight: 1, arbitrary: fc.record({ rejoin: fc.nat(2) }) },
    { weight: 1, arbitrary: fc.record({ lose: fc.constant(true) }) },
    { weight: 1, arbitrary: fc.record({ forget: fc.constant(true) }) },
    { weight: 1, arbitrary: fc.record({ evict: fc.constant(true) }) },
    { weight: 1, arbitrary: fc.record({ tick: fc.integer({ min: 1, max: 40 }) }) },
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(/** @type {fc.Arbitrary<any>} */ (step), { minLength: 5, maxLength: 40 }),
      fc.constantFrom(4, 100),
      async (steps, size) => {
        const built = build({ size });
        const clients = [await built.join(), await built.join(), await built.join()];
        const rejoined = new Set();
        for (const one of steps) {
          if (one.publish) {
            for (let i = 0; i < one.publish; i++) built.broker.accept('h', publication(LARGE));
            built.broker.deliver();
          } else if ('stick' in one) clients[one.stick].transport.isStuck = true;
          else if ('drain' in one) clients[one.drain].transport.drain(one.isStuck);
          else if ('rejoin' in one) {
            const client = clients[one.rejoin];
            const since = positionOf(client);
            rejoined.add(client);
            client.say({ type: 'leave', room: 'h' });
            client.say({ type: 'join', room: 'h', since });
          } else if (one.lose) {
            built.broker.accept('h', publication(LARGE));
            built.broker.announcements = [];
          } else if (one.forget) built.broker.forget('h');
          else if (one.evict) built.scheduler.syncs.get('h')?.replayBuffer.evict();
          else await built.tick(one.tick);
          if (steps.length % 2 === 0) await settle();
        }
        for (let i = 0; i < 4; i++) {
          for (const { transport } of clients) transport.drain();
          await catchUp();
          await built.tick(40);
        }
        const { epoch, offset } = built.broker.stream('h');
        for (const client of clients) {
          // In no room with history, a connection is closed for the age of its bytes.
          if (rejoined.has(client) && client.transport.closed !== null) continue;
          assert.equal(client.transport.closed, null);
          assert.deepEqual(positionOf(client), { epoch, offset });
        }
        assert.equal(built.counters.laggingMembers, 0);
      },
    ),
    { numRuns: RUNS },
  );
});

/**
 * The position that a client has reached. Throws if it had a gap or got a message twice.
 * @param {{transport: FakeTransport}} client
 */
function positionOf({ transport }) {
  /** @type {{epoch: string, offset: number}|undefined} */
  let at;
  for (const { type, epoch, offset, recovered } of transport.messages()) {
    if (type === 'resync' || (type === 'joined' && !recovered)) at = { epoch, offset };
    else if (type === 'message') {
      assert.deepEqual({ epoch, offset }, { epoch: at?.epoch, offset: Number(at?.offset) + 1 });
      at = { epoch, offset };
    }
  }
  return at;
}
