// joins-of-doors.test.js: who pays for what it reads at a join, through whichever door it comes, with
// the cache channels of Pusher. Rules that need no fake clock or broker are in every-door-joins.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExpiryWheel } from '../../src/auth/expiry-wheel.js';
import { registerFormats } from '../../src/doors/centrifugo/codec/frames.js';
import { FRAMINGS } from '../../src/doors/centrifugo/codec/framing.js';
import { jsonCodec } from '../../src/doors/centrifugo/codec/json.js';
import { ConnectCommand } from '../../src/doors/centrifugo/connect.js';
import { CentrifugoConnections } from '../../src/doors/centrifugo/connections.js';
import { ClientRights } from '../../src/doors/centrifugo/rights.js';
import { ServerSubscriptions } from '../../src/doors/centrifugo/server-subscriptions.js';
import { CentrifugoSubscriptions } from '../../src/doors/centrifugo/subscribe.js';
import { readMessage } from '../../src/doors/pusher/codec/messages.js';
import { PusherSubscriptions } from '../../src/doors/pusher/subscribe.js';
import { Connection } from '../../src/hub/connection.js';
import { Identities } from '../../src/operations/identities.js';
import { FORMAT } from '../../src/protocol/format.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { roomOf } from '../../src/protocol/pusher-channels.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { settle } from '../helpers/recovery.js';
import { StreamBroker } from '../helpers/stream-broker.js';

registerFormats();

const APP = /** @type {any} */ ({ id: '1', maxChannelLength: 200 });

/** A worker in which all rooms have history. @param {Record<string, string>} [env] */
function build(env = {}) {
  const config = configOf({ FANFARE_CENTRIFUGO: 'on', ...env });
  const broker = new StreamBroker();
  /** Bytes that counted as messages: before, and as a debt afterwards. */
  const paid = { before: /** @type {number[]} */ ([]), after: /** @type {number[]} */ ([]) };
  const limits = { wait: 0, hasFreeReads: true };
  const admitMessage = (/** @type {unknown} */ _, /** @type {unknown} */ __, bytes = 0) => {
    paid.before.push(bytes);
    return limits.wait;
  };
  const charge = (/** @type {unknown} */ _, /** @type {number} */ bytes) =>
    void paid.after.push(bytes);
  const takeFreeRead = () => limits.hasFreeReads;
  const historyOf = () => ({ size: 100, ttlMs: 60_000 });
  const parts = buildHub({ config, broker, historyOf, admitMessage, takeFreeRead, charge });
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const services = /** @type {any} */ ({
    ...parts,
    ...{ config, reporter: null },
  });
  return { ...parts, services, broker, paid, limits };
}

/** @typedef {ReturnType<typeof build>} Built */

/**
 * A client of a door. `read`: it asks for messages from the beginning of the room.
 * @typedef {object} Client
 * @property {Connection} connection @property {FakeTransport} transport
 * @property {(channels: string[], read?: boolean) => void} join
 * @property {(channel: string) => void} leave
 */

/** @param {Built} built @param {boolean} [isIn] is it in the hub? */
function connect({ hub }, isIn = true) {
  const transport = new FakeTransport();
  const connection = new Connection(transport, '127.0.0.1');
  if (isIn) hub.addConnection(connection);
  return { transport, connection };
}

/** @param {Built} built @returns {Client} */
function native(built) {
  const { transport, connection } = connect(built);
  const say = (/** @type {object} */ command) => receive(built.commands, connection, command);
  return {
    ...{ transport, connection },
    join(channels, read = false) {
      for (const room of channels) {
        const since = { epoch: built.broker.stream(room).epoch, offset: 0 };
        say({ type: 'join', room, since: read ? since : undefined });
      }
    },
    leave: (room) => say({ type: 'leave', room }),
  };
}

/** A stream of server-sent events. @param {Built} built @returns {Client} */
function events(built) {
  const { transport, connection } = connect(built);
  const { operations, hub } = built;
  return {
    ...{ transport, connection },
    join(channels, read = false) {
      for (const room of channels)
        operations.joins.subscribe(connection, room, {
          since: read
            ? { epoch: built.broker.stream(room).epoch, offset: 0, connectionId: '' }
            : null,
          ...{ mayReadAll: true, who: null, isAsked: true },
          onJoined() {},
          onRefused: (refused) => operations.replies.refuse(connection, refused),
        });
    },
    leave(name) {
      const room = hub.rooms.get(name);
      assert.ok(room);
      hub.leave(connection, room);
    },
  };
}

/** @param {Built} built @param {any} [entrance] */
function centrifugoDoor({ services, hub }, entrance = null) {
  const { lane, joins } = services.operations;
  const identities = new Identities({ hub, lane, waiting: joins.waiting, entrance });
  Object.assign(services, { operations: { ...services.operations, identities } });
  const connections = new CentrifugoConnections(services);
  const rights = new ClientRights(services.config);
  const subscriptions = new CentrifugoSubscriptions(
    services,
    connections,
    rights,
    new ExpiryWheel({ endOf: ({ second }) => second, periodS: 1 }),
  );
  const server = new ServerSubscriptions(services, connections, subscriptions);
  const { connect: command } = new ConnectCommand(services, connections, server, subscriptions);
  const { subscribe, unsubscribe } = subscriptions;
  connections.serve(
    new Map([
      ['connect', command],
      ['subscribe', subscribe],
      ['unsubscribe', unsubscribe],
    ]),
    subscriptions,
  );
  const { transport, connection } = connect(/** @type {any} */ ({ hub }), false);
  transport.door = /** @type {any} */ (connections.textsOf(jsonCodec));
  transport.format = FORMAT.CENTRIFUGO_JSON;
  Object.assign(transport, {
    sendBytes: (/** @type {Buffer} */ message) => transport.sendText(String(message)),
  });
  const form = { codec: jsonCodec, framing: FRAMINGS.text };
  connections.open(connection, { headers: {}, url: '' }, null, form);
  let id = 0;
  const send = (/** @type {object} */ command) =>
    connections.receiveCommands(connection, Buffer.from(JSON.stringify({ id: ++id, ...command })));
  return { transport, connection, send, server, connections };
}

/** @param {Built} built @returns {Client} */
function centrifugo(built) {
  const { transport, connection, send } = centrifugoDoor(built);
  send({ connect: {} });
  return {
    ...{ transport, connection },
    join(channels, recover = false) {
      for (const channel of channels) send({ subscribe: { channel, recover, offset: 0 } });
    },
    leave: (channel) => send({ unsubscribe: { channel } }),
  };
}

/** Channels to which its token subscribes it. @param {Built} built @returns {Client} */
function serverSide(built) {
  const every = { has: () => true };
  const rights = { join: every, history: every, publish: every, presence: every };
  const identity = { user: '', info: null, rights, subscriptions: new Map() };
  const { transport, connection, send } = centrifugoDoor(built, {
    isRequired: false,
    identify: () => ({ identity, lease: null, refusal: null }),
    admitConnection: (/** @type {Connection} */ one) => built.hub.addConnection(one),
    leave: (/** @type {Connection} */ one) => built.hub.removeConnection(one),
  });
  return {
    ...{ transport, connection },
    join(channels, recover = false) {
      if (connection.roomCount + transport.writes.length > 0) {
        for (const channel of channels) send({ subscribe: { channel, recover, offset: 0 } });
        return;
      }
      identity.subscriptions = new Map(channels.map((channel) => [channel, { data: null }]));
      const subs = Object.fromEntries(channels.map((one) => [one, { recover, offset: 0 }]));
      send({ connect: { subs } });
    },
    leave: (channel) => send({ unsubscribe: { channel } }),
  };
}

/** Its cache channels read their last event. @param {Built} built @returns {Client} */
function pusher(built) {
  const { transport, connection } = connect(built);
  transport.door = { ...transport.door, waitsToJoin: true };
  const subscriptions = new PusherSubscriptions(
    built.services,
    () => {},
    () => {},
  );
  const client = /** @type {any} */ ({ app: APP, user: null });
  const send = (/** @type {'subscribe'|'unsubscribe'} */ event, /** @type {string} */ channel) => {
    const message = readMessage(JSON.stringify({ event: `pusher:${event}`, data: { channel } }));
    assert.ok(message);
    subscriptions[event](connection, client, message);
  };
  return {
    ...{ transport, connection },
    join(channels) {
      for (const channel of channels) send('subscribe', channel);
    },
    leave: (channel) => send('unsubscribe', channel),
  };
}

/** @type {Record<string, (built: Built) => Client>} */
const WAYS = {
  'native clients': native,
  'streams of server-sent events': events,
  "Centrifugo's clients": centrifugo,
  "subscriptions of Centrifugo's tokens": serverSide,
  'Pusher clients': pusher,
};
/** Those whose clients may leave a room and join it again. */
const REPEATABLE = Object.entries(WAYS).filter(([, way]) => way !== events);

/** A recent message of 8 KB in a room. @param {Built} built @param {string} room */
function fill({ broker }, room) {
  const payload = Buffer.from(JSON.stringify('x'.repeat(8000)));
  broker.accept(
    room,
    encodePublication(KIND.MESSAGE, Date.now(), 0, '', payload, 0, payload.length),
  );
  broker.announcements.length = 0;
}

for (const [name, way] of REPEATABLE) {
  const isPusher = way === pusher;
  const channels = ['cache-a', 'cache-b', 'cache-c'];
  /** @param {Built} built */
  const filled = (built) => {
    for (const one of channels) fill(built, isPusher ? roomOf(APP, one) : one);
    return way(built);
  };
  /** Native joins count as messages in the dispatcher. */
  const joins = way === native ? 1 : 0;

  test(`a connection reads once for free in each room: ${name}`, async () => {
    const built = build();
    const { join } = filled(built);
    join(channels, true);
    await settle();
    assert.equal(built.paid.before.length, 3 * joins);
    assert.deepEqual(built.paid.after, []);
  });

  test(`a further read in a room is paid, and refused or postponed over the rate: ${name}`, async () => {
    const built = build();
    const { connection, transport, join, leave } = filled(built);
    join(['cache-a'], true);
    await settle();
    leave('cache-a');
    built.paid.before.length = 0;
    join(['cache-a'], true);
    await settle();
    assert.equal(built.paid.before.length, 1);
    if (isPusher) assert.equal(built.paid.before[0], 40_960, 'ten messages');
    assert.equal(built.paid.after.length, 1);
    assert.ok(built.paid.after[0] >= 8000);
    leave('cache-a');
    built.limits.wait = 3;
    const before = transport.messages().length;
    join(['cache-a'], true);
    await settle();
    assert.equal(connection.roomCount, 0);
    assert.equal(built.counters.errors.RATE_LIMIT_EXCEEDED, 1);
    if (isPusher) return assert.equal(transport.messages().length, before);
    assert.match(JSON.stringify(transport.messages().at(-1)), /RATE_LIMIT_EXCEEDED|111/);
  });

  test(`a first read is paid if the address has used up its free reads: ${name}`, async () => {
    const built = build();
    const { join } = filled(built);
    built.limits.hasFreeReads = false;
    join(['cache-a'], true);
    await settle();
    assert.equal(built.paid.before.length, way === serverSide ? 0 : 1);
    assert.equal(built.paid.after.length, 1);
  });

  test(`a read in another room is paid if the connection has left the first: ${name}`, async () => {
    const built = build();
    const { join, leave } = filled(built);
    join(['cache-a', 'cache-b'], true);
    await settle();
    leave('cache-a');
    built.paid.before.length = 0;
    join(['cache-c'], true);
    await settle();
    assert.equal(built.paid.before.length, 1);
    assert.equal(built.paid.after.length, 1);
  });
}

test('a read is free again after the server has ended the membership', async () => {
  const built = build();
  const { connection, join } = centrifugo(built);
  fill(built, 'a');
  for (let i = 0; i < 3; i++) {
    join(['a'], true);
    await settle();
    assert.equal(built.hub.rooms.get('a')?.has(connection), true);
    built.operations.joins.expel(connection, 'a', 'removed');
    assert.equal(connection.roomCount, 0);
  }
  assert.deepEqual(built.paid, { before: [], after: [] });
});

test('free reads are counted by room, and given back one by one', () => {
  const built = build();
  const { connection } = native(built);
  const { reads } = built.operations.joins;
  assert.equal(reads.take(connection, 'a', 0), true);
  assert.equal(reads.take(connection, 'a', 1), false);
  assert.equal(reads.take(connection, 'b', 0), false);
  assert.equal(reads.take(connection, 'b', 1), true);
  assert.equal(reads.take(connection, 'c', 1), false);
  reads.giveBack(connection, 'a');
  assert.equal(reads.take(connection, 'b', 2), false);
  assert.equal(reads.take(connection, 'a', 1), true);
});
