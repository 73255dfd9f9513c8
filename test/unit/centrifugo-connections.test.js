// centrifugo-connections.test.js: times and bounds of connections and subscriptions of the Centrifugo
// door (doors/centrifugo/connections.js, expiry.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExpiryWheel } from '../../src/auth/expiry-wheel.js';
import { clientOf } from '../../src/doors/centrifugo/codec/client-id.js';
import { DISCONNECTS } from '../../src/doors/centrifugo/codec/codes.js';
import { registerFormats } from '../../src/doors/centrifugo/codec/frames.js';
import { FRAMINGS } from '../../src/doors/centrifugo/codec/framing.js';
import { jsonCodec } from '../../src/doors/centrifugo/codec/json.js';
import { readMember } from '../../src/doors/centrifugo/codec/members.js';
import { protobufCodec } from '../../src/doors/centrifugo/codec/protobuf.js';
import { ConnectCommand } from '../../src/doors/centrifugo/connect.js';
import { CentrifugoConnections } from '../../src/doors/centrifugo/connections.js';
import { PublishCommand } from '../../src/doors/centrifugo/publish.js';
import { expiryOf, positionOf } from '../../src/doors/centrifugo/results.js';
import { ClientRights } from '../../src/doors/centrifugo/rights.js';
import { ServerSubscriptions } from '../../src/doors/centrifugo/server-subscriptions.js';
import {
  CentrifugoSubscriptions,
  resultOf,
  sinceOf,
} from '../../src/doors/centrifugo/subscribe.js';
import { Connection } from '../../src/hub/connection.js';
import { EVERYONE } from '../../src/hub/hub.js';
import { Identities } from '../../src/operations/identities.js';
import { JoinReads } from '../../src/operations/join-reads.js';
import { FORMAT } from '../../src/protocol/format.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { QUIET } from '../helpers/hub.js';
import { build, publication, settle } from '../helpers/recovery.js';

/** @returns {ExpiryWheel<import('../../src/doors/centrifugo/client.js').Expiry>} */
const newWheel = () => new ExpiryWheel({ endOf: ({ second }) => second, periodS: 1 });

registerFormats();

const FORM = { codec: jsonCodec, framing: FRAMINGS.text };

/** @param {Record<string, string>} [env] @param {Parameters<typeof build>[0]} [options] */
function buildConnections(env, options) {
  const built = build({ env, ...options });
  const { config, hub, counters, operations } = built;
  /** @type {number[]} */
  const charged = [];
  /** Bytes that counted as messages. @type {number[]} */
  const admitted = [];
  const limits = { wait: 0 };
  /** Of the token of each `connect`. */
  const credentials = { identity: subscribedTo(), lease: null, refusal: null };
  const entrance = {
    isRequired: false,
    identify: () => credentials,
    admitConnection: (/** @type {Connection} */ connection) => hub.addConnection(connection),
    leave: (/** @type {Connection} */ connection) => hub.removeConnection(connection),
  };
  const revocation = { holds: false };
  const admitMessage = (
    /** @type {Connection} */ _,
    /** @type {number} */ __,
    /** @type {number} */ bytes,
  ) => {
    admitted.push(bytes);
    return limits.wait;
  };
  const charge = (/** @type {Connection} */ _, /** @type {number} */ bytes) =>
    void charged.push(bytes);
  const identities = new Identities({
    hub,
    lane: operations.lane,
    waiting: operations.joins.waiting,
    entrance,
    sessions: /** @type {any} */ ({ end() {}, isRevoked: () => revocation.holds }),
  });
  const services = /** @type {any} */ ({
    config,
    hub,
    counters,
    operations: { ...operations, identities, admitMessage, charge },
  });
  const connections = new CentrifugoConnections(services);
  const open = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    transport.door = /** @type {any} */ (connections.textsOf(jsonCodec));
    transport.format = FORMAT.CENTRIFUGO_JSON;
    Object.assign(transport, {
      sendBytes: (/** @type {Buffer} */ message) => transport.sendText(String(message)),
    });
    connections.open(connection, { headers: {}, url: '' }, null, FORM);
    return { connection, transport };
  };
  const subscriptions = new CentrifugoSubscriptions(
    services,
    connections,
    new ClientRights(config),
    newWheel(),
  );
  const publish = new PublishCommand(services, connections, new ClientRights(config));
  const server = new ServerSubscriptions(services, connections, subscriptions);
  const { connect } = new ConnectCommand(services, connections, server, subscriptions);
  connections.serve(new Map([['connect', connect]]), subscriptions);
  /** Opens a connection whose token subscribes it to channels. @param {string[]} channels */
  const openSubscribed = (...channels) => {
    const opened = open();
    credentials.identity = subscribedTo(...channels);
    connections.receiveCommands(opened.connection, Buffer.from('{"id":1,"connect":{}}'));
    return opened;
  };
  const doors = { connections, subscriptions, publish, entrance, open, openSubscribed };
  return { ...built, ...doors, charged, admitted, limits, revocation };
}

/** @typedef {import('../helpers/stream-broker.js').StreamBroker} StreamBroker */

/** An identity whose token subscribes it to channels. @param {string[]} channels */
const subscribedTo = (...channels) =>
  /** @type {any} */ ({
    ...{ user: '', info: null },
    subscriptions: new Map(channels.map((channel) => [channel, { data: null }])),
  });

/** @param {{transport: FakeTransport}} opened @returns {number} 0: it is open */
const codeOf = ({ transport }) => transport.closed?.code ?? 0;

test('until connect is accepted, a connection counts as unauthenticated in the lane', async () => {
  const { connections, open, entrance } = buildConnections();
  /** @type {(credentials: any) => void} */
  let accept = () => {};
  const identify = entrance.identify;
  entrance.identify = () => /** @type {any} */ (new Promise((resolve) => void (accept = resolve)));
  const { connection } = open();
  assert.equal(connection.isHeld, true);
  connections.receiveCommands(connection, Buffer.from('{"id":1,"connect":{}}'));
  assert.equal(connection.isHeld, true, 'onConnect is asked');
  accept(identify());
  await settle();
  assert.equal(connection.isHeld, false);
});

test('a time that ends after a life gives a ttl that fits into every client', () => {
  for (const endS of [1e300, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
    const reply = { id: 1, refresh: /** @type {any} */ ({ client: '', ...expiryOf(endS) }) };
    const ttl = 2 ** 31 - 1;
    assert.equal(JSON.parse(String(jsonCodec.encode(reply))).refresh.ttl, ttl);
    const varint = Buffer.from([0xff, 0xff, 0xff, 0xff, 0x07]);
    assert.ok(protobufCodec.encode(reply).includes(varint), String(endS));
  }
});

test('a connection without a connect is closed after 15 s, and returns', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = performance.now();
  t.mock.method(performance, 'now', () => nowMs);
  const pass = (/** @type {number} */ ms) => {
    nowMs += ms;
    t.mock.timers.tick(ms);
  };
  const { connections, open, counters } = buildConnections();
  const [early, late] = [open(), open()];
  pass(14_000);
  assert.equal(codeOf(early), 0);
  connections.admitted(late.connection);
  pass(2000);
  assert.equal(codeOf(early), 4011);
  assert.equal(codeOf(late), 0);
  assert.equal(counters.auth.closes.timeout, 1);
});

test('the oldest of too many connections without a connect makes room', () => {
  const { open, counters } = buildConnections({ FANFARE_MAX_HANDSHAKES: '3' });
  const [first, ...others] = [open(), open(), open(), open()];
  assert.equal(codeOf(first), 4011);
  for (const other of others) assert.equal(codeOf(other), 0);
  assert.equal(counters.auth.closes.timeout, 1);
});

test('a connection whose connect is refused is closed after 15 s, too', async () => {
  const { broker, connections, openSubscribed } = buildConnections();
  const nowMs = performance.now();
  const letIn = openSubscribed('a');
  await settle();
  broker.isAway = true;
  const refused = openSubscribed('b');
  await settle();
  assert.ok(letIn.transport.messages()[0].connect.subs.a);
  assert.equal(refused.transport.messages()[0].error.code, 100);
  connections.sweep(nowMs + 14_000);
  assert.deepEqual([codeOf(letIn), codeOf(refused)], [0, 0]);
  connections.sweep(nowMs + 16_000);
  assert.deepEqual([codeOf(letIn), codeOf(refused)], [0, 4011]);
});

test('no ping is sent before the connect, and one pong answers one ping', () => {
  const { connections, open } = buildConnections();
  const opened = open();
  const { connection } = opened;
  assert.equal(connections.expectPong(connection), false);
  connections.clientOf(connection)?.become('connected');
  assert.equal(connections.expectPong(connection), true);
  assert.equal(connections.expectPong(connection), true);
  connections.receiveCommands(connection, Buffer.from('{}'));
  connections.receiveCommands(connection, Buffer.from('{}'));
  assert.equal(codeOf(opened), 0);
  connections.receiveCommands(connection, Buffer.from('{}'));
  assert.equal(codeOf(opened), 3501);
});

test('subscriptions are looked at once their second has come, also after a jump of the clock', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const expiries = newWheel();
  const connection = /** @type {any} */ ({});
  const looked = () => {
    const due = expiries.takeDue();
    for (const item of due) expiries.removeItem(item);
    return due.map(({ channel }) => channel);
  };
  const add = (/** @type {number} */ atS, /** @type {string} */ channel) => {
    const item = { connection, channel, second: expiries.secondAfter(atS) };
    expiries.addItem(item);
    return item;
  };
  const removed = add(1_800_000_010, 'removed');
  add(1_800_000_010, 'ten');
  expiries.removeItem(removed);
  expiries.removeItem(removed);
  assert.equal(expiries.itemCount, 1);
  add(1_800_000_010.5, 'eleven');
  add(1_799_000_000, 'past');
  add(1_800_100_000, 'later');
  assert.deepEqual(looked(), []);
  t.mock.timers.setTime(1_800_000_001_000);
  assert.deepEqual(looked(), ['past']);
  t.mock.timers.setTime(1_800_000_010_999);
  assert.deepEqual(looked(), ['ten']);
  t.mock.timers.setTime(1_900_000_000_000);
  assert.deepEqual(looked(), ['eleven', 'later']);
  assert.deepEqual(looked(), []);
  assert.equal(expiries.itemCount, 0);
});

test('old publications in a reply count as messages, recent ones are free', () => {
  /** @type {number[]} */
  const charged = [];
  const reads = new JoinReads({
    config: { reconnectWindowMs: 30_000 },
    admitMessage: () => 0,
    takeFreeRead: () => true,
    charge: (_connection, bytes) => void charged.push(bytes),
  });
  const connection = new Connection(new FakeTransport(), '');
  const joined = (/** @type {boolean} */ recovered, /** @type {number} */ ageMs) => ({
    ...{ epoch: '', offset: 9, first: 1, replayed: 9, bytes: 100_000 },
    ...{ recovered, acceptedMs: Date.now() - ageMs },
  });
  const free = { isFree: true, wait: 0, cost: 0, roomCount: 0 };
  const paid = [
    reads.pay(connection, 'a', null, free),
    reads.pay(connection, 'a', { ...joined(true, 1e9), bytes: 0 }, free),
    reads.pay(connection, 'a', joined(true, 60_000), free),
    reads.pay(connection, 'a', joined(true, 60_000), { ...free, isFree: false }),
    reads.pay(connection, 'a', joined(true, 600_000), free),
  ];
  assert.deepEqual(paid, [0, 0, 0, 100_000, 100_000]);
  assert.deepEqual(charged, [100_000, 100_000]);
});

test('publications that a subscription pays for delay the next subscriptions', () => {
  const { connections, open } = buildConnections({
    FANFARE_MAX_ROOMS_PER_CONNECTION: '2',
    FANFARE_LIMITS: 'enforce',
  });
  const { connection } = open();
  const client = connections.clientOf(connection);
  assert.ok(client);
  const admit = () => connections.commandRate.admit(connection, client, 1);
  assert.equal(admit(), true);
  connections.commandRate.charge(client, 200_000);
  assert.equal(admit(), false);
});

test('a subscription is expected to end once, however often it is prolonged', () => {
  const { connections, subscriptions, open } = buildConnections();
  const { connection } = open();
  const client = connections.clientOf(connection);
  assert.ok(client);
  const endS = Math.ceil(Date.now() / 1000) + 100;
  for (let i = 0; i < 10; i++) {
    subscriptions.prolong(connection, client, 'a', endS + i);
    subscriptions.limit(connection, client, endS + i);
  }
  assert.equal(subscriptions.expiries.itemCount, 2);
  subscriptions.leave(connection, client, 'a');
  assert.equal(subscriptions.expiries.itemCount, 1);
  subscriptions.prolong(connection, client, 'b', endS);
  subscriptions.closed(client);
  assert.equal(subscriptions.expiries.itemCount, 0);
});

test('a client that goes before its channel is confirmed keeps no end of its token', async () => {
  const { hub, broker, subscriptions, openSubscribed } = buildConnections({}, { isManual: true });
  const { connection } = openSubscribed();
  const client = subscriptions.connections.clientOf(connection);
  assert.ok(client);
  const endS = Math.ceil(Date.now() / 1000) + 100;
  subscriptions.verifyToken = (_connection, _client, _channel, _token, act) =>
    act(/** @type {any} */ ({ endS }), 0);
  const command = {
    id: 2,
    method: 'subscribe',
    source: null,
    request: { channel: 'a', token: 't' },
  };
  subscriptions.subscribe(connection, client, /** @type {any} */ (command));
  hub.removeConnection(connection);
  subscriptions.closed(client);
  broker.subscribing[0].resolve();
  await settle();
  assert.equal(subscriptions.expiries.itemCount, 0);
});

test('the end of a subscription token is forgotten when the backend unsubscribes the client', async () => {
  const { hub, operations, subscriptions, openSubscribed } = buildConnections();
  const opened = openSubscribed();
  const { connection, transport } = opened;
  const client = subscriptions.connections.clientOf(connection);
  assert.ok(client);
  hub.join(connection, 'a', QUIET);
  subscriptions.keepUntil(connection, client, 'a', Math.ceil(Date.now() / 1000) + 100, 'token');
  await settle();
  assert.equal(operations.joins.remove(connection, 'a'), true);
  await settle();
  assert.equal(transport.messages().at(-1).push.unsubscribe.code, 2000);
  assert.deepEqual([client.listSubscriptions(), subscriptions.expiries.itemCount], [[], 0]);
  assert.equal(codeOf(opened), 0);
});

test('a client without a user that the backend subscribes is in presence by its connection', async () => {
  const { hub, operations, subscriptions, openSubscribed } = buildConnections(
    {},
    { covers: () => true },
  );
  /** @type {(import('../../src/doors/centrifugo/codec/messages.js').ClientInfo|null)[]} */
  const members = [];
  const { presence } = /** @type {import('../../src/hub/room-users.js').PresenceTracker} */ (
    hub.tracker
  );
  presence.join = (_room, _key, member) => void members.push(readMember(member));
  const { connection, transport } = openSubscribed();
  assert.equal(operations.joins.joinAs(connection, 'a', ''), true);
  await settle();
  assert.deepEqual(transport.messages().at(-1), { push: { channel: 'a', subscribe: {} } });
  assert.deepEqual(members, [{ user: '', client: clientOf(connection.id), conn_info: null }]);
  const client = subscriptions.connections.clientOf(connection);
  assert.equal(client?.subscriptionTo('a')?.by, 'backend');
});

test('a lost position ends a subscription of the client, and the connection of one by the server', async () => {
  const { hub, subscriptions, openSubscribed } = buildConnections();
  for (const [by, code] of /** @type {const} */ ([
    ['right', 0],
    ['token', 0],
    ['connection', DISCONNECTS.INSUFFICIENT_STATE.code],
    ['backend', DISCONNECTS.INSUFFICIENT_STATE.code],
  ])) {
    const opened = openSubscribed();
    const { connection } = opened;
    const client = subscriptions.connections.clientOf(connection);
    assert.ok(client);
    hub.join(connection, 'a', QUIET);
    subscriptions.keepUntil(connection, client, 'a', 0, by);
    await settle();
    subscriptions.expelled(connection, 'a', 'resync');
    assert.deepEqual([client.subscriptionTo('a'), codeOf(opened)], [null, code], by);
  }
});

test('a client continues at the position of its reply, and only in the epoch that it names', () => {
  const joined = /** @type {any} */ ({ epoch: 'e', offset: 7, recovered: true });
  const position = { recoverable: true, positioned: true, epoch: 'e' };
  assert.deepEqual(positionOf(null), {});
  assert.deepEqual(positionOf(joined), { ...position, offset: 7 });
  assert.equal(sinceOf({}), null);
  assert.equal(sinceOf({ recover: true, epoch: 'e', offset: 3 })?.isAnyEpoch, false);
  assert.equal(sinceOf({ recover: true, offset: 3 })?.isAnyEpoch, true);
  const request = { recover: true, epoch: 'e', offset: 3 };
  const recovered = { was_recovering: true, recovered: true, publications: undefined };
  assert.deepEqual(resultOf(request, joined), { ...position, offset: 3, ...recovered });
  const lost = { ...joined, recovered: false };
  assert.deepEqual(resultOf(request, lost), { ...position, offset: 7, was_recovering: true });
});

test('subscriptions of a client end one by one, whichever was the first', () => {
  const { connections, subscriptions, open } = buildConnections();
  const { connection } = open();
  const client = connections.clientOf(connection);
  assert.ok(client);
  const channels = () => client.listSubscriptions().map(([channel]) => channel);
  const endS = Math.ceil(Date.now() / 1000) + 100;
  const { expiries } = subscriptions;
  assert.deepEqual([channels(), client.subscriptionTo('')], [[], null]);
  subscriptions.keepUntil(connection, client, 'a', 0, 'right');
  subscriptions.keepUntil(connection, client, '__proto__', 0, 'connection');
  subscriptions.keepUntil(connection, client, 'c', endS, 'token');
  assert.deepEqual(channels(), ['a', '__proto__', 'c']);
  const own = { by: 'right', expiry: null };
  assert.deepEqual(client.subscriptionTo('a'), own);
  assert.deepEqual(client.subscriptionTo('__proto__'), { by: 'connection', expiry: null });
  assert.equal(client.subscriptionTo('c')?.expiry?.channel, 'c');
  subscriptions.prolong(connection, client, 'a', endS);
  assert.equal(client.subscriptionTo('a')?.by, 'token');
  assert.deepEqual([channels(), expiries.itemCount], [['a', '__proto__', 'c'], 2]);
  subscriptions.leave(connection, client, 'a');
  assert.deepEqual([channels(), client.subscriptionTo('a')], [['__proto__', 'c'], null]);
  subscriptions.keepUntil(connection, client, 'd', 0, 'right');
  assert.deepEqual(client.subscriptionTo('d'), own);
  subscriptions.leave(connection, client, '__proto__');
  subscriptions.leave(connection, client, 'unknown');
  assert.deepEqual(channels(), ['d', 'c']);
  subscriptions.closed(client);
  assert.equal(expiries.itemCount, 0);
});

test('publications that are answered together have replies in one write', async () => {
  const { publish, open } = buildConnections();
  const [first, second, gone] = [open(), open(), open()];
  for (const id of [1, 2]) publish.onPublished(first.connection, id);
  publish.onPublished(second.connection, 3);
  publish.onPublished(gone.connection, 4);
  gone.connection.markClosed();
  publish.onPublished(first.connection, 5);
  await Promise.resolve();
  const replies = (/** @type {number[]} */ ids) =>
    FRAMINGS.text.frame(ids.map((id) => jsonCodec.encode({ id, publish: {} })));
  assert.deepEqual(first.transport.writes, [replies([1, 2, 5])]);
  assert.deepEqual(second.transport.writes, [replies([3])]);
  assert.deepEqual(gone.transport.writes, []);
  publish.onPublished(first.connection, 6);
  await Promise.resolve();
  assert.deepEqual(first.transport.writes[1], replies([6]));
});

test('data of too many levels closes with a code after which clients return, unless it is in connect', () => {
  const { connections, open } = buildConnections();
  const deep = `${'['.repeat(33)}${']'.repeat(33)}`;
  for (const [state, text, code] of /** @type {const} */ ([
    ['connected', `{"id":2,"publish":{"channel":"a","data":${deep}}}`, 3013],
    ['connected', `{"id":2,"publish":{"channel":"a","data":[}}`, 3501],
    ['new', `{"id":1,"connect":{"data":${deep}}}`, 3501],
  ])) {
    const opened = open();
    connections.clientOf(opened.connection)?.become(state);
    connections.receiveCommands(opened.connection, Buffer.from(text));
    assert.equal(codeOf(opened), code, text);
  }
});

test('a long message counts before it is decoded, and its command does not count again', () => {
  const { connections, subscriptions, open, admitted, limits } = buildConnections();
  const { connection } = open();
  const client = connections.clientOf(connection);
  assert.ok(client);
  let decoded = 0;
  const { decode } = client.codec;
  const codec = {
    ...client.codec,
    decode(/** @type {Buffer} */ bytes, /** @type {number|undefined} */ maxCommands) {
      decoded++;
      return decode(bytes, maxCommands);
    },
  };
  client.form = { ...client.form, codec };
  connections.serve(new Map(), subscriptions);
  const publish = (/** @type {number} */ bytes) =>
    Buffer.from(`{"id":1,"publish":{"channel":"a","data":"${'x'.repeat(bytes)}"}}`);
  client.become('connected');
  connections.receiveCommands(connection, publish(10));
  const short = publish(10).length;
  connections.receiveCommands(connection, publish(5000));
  connections.receiveCommands(
    connection,
    Buffer.concat([publish(5000), Buffer.from('\n'), publish(10)]),
  );
  const long = publish(5000).length;
  assert.deepEqual(admitted, [short, long, long + 1 + short, 0]);
  assert.equal(decoded, 3);
  limits.wait = 5;
  connections.receiveCommands(connection, publish(5000));
  assert.equal(decoded, 3, 'refused without a look');
  assert.equal(connection.isOpen, true);
  limits.wait = -1;
  connections.receiveCommands(connection, publish(5000));
  assert.equal(connection.isOpen, false);
});

test('a first message above 4 KB counts what the handshake has not paid, and ends the connection if the address is over its rate', () => {
  const { connections, open, admitted, limits, counters } = buildConnections();
  const connect = (/** @type {number} */ bytes) => {
    const text = `{"id":1,"connect":{"name":"${'x'.repeat(bytes - 30)}"}}`;
    assert.equal(text.length, bytes);
    return Buffer.from(text);
  };
  const first = open();
  connections.receiveCommands(first.connection, connect(4096));
  const second = open();
  connections.receiveCommands(second.connection, connect(20_000));
  assert.deepEqual(admitted, [20_000 - 4096]);
  assert.deepEqual([codeOf(first), codeOf(second)], [0, 0]);
  limits.wait = 7;
  const third = open();
  connections.receiveCommands(third.connection, Buffer.alloc(4097, '{}\n'));
  assert.equal(codeOf(third), 3013);
  assert.equal(counters.errors.RATE_LIMIT_EXCEEDED, 1);
});

test('a message with more commands than a connection can use is closed with 3013, and its end is not read', () => {
  const { connections, open } = buildConnections({ FANFARE_MAX_ROOMS_PER_CONNECTION: '1' });
  const [first, second] = [open(), open()];
  connections.receiveCommands(first.connection, Buffer.from(`${'{}\n'.repeat(129)}no JSON`));
  connections.receiveCommands(second.connection, Buffer.from(`${'{}\n'.repeat(130)}no JSON`));
  assert.deepEqual([codeOf(first), codeOf(second)], [3501, 3013]);
  // Where the number of rooms is not enforced, neither is theirs.
  const observed = buildConnections({ FANFARE_LIMITS: 'rooms=observe' });
  assert.equal(observed.connections.maxCommands, 5000);
});

const toAll = (/** @type {string} */ text) =>
  encodePublication(KIND.BROADCAST, 1, 0, '', Buffer.from(`"${text}"`), 0, text.length + 2);

/** Confirms subscriptions. @param {StreamBroker} broker of manual steps */
async function confirm(broker) {
  for (const { resolve } of broker.subscribing.splice(0)) resolve();
  await settle();
}

/** Answers a read. @param {StreamBroker} broker of manual steps @param {string} room */
async function answer(broker, room) {
  const at = broker.reads.findIndex((read) => read.room === room);
  const [read] = broker.reads.splice(at, 1);
  read.resolve(broker.look(room, read));
  await settle();
}

test('no stand-in stays if a resync has ended one of them', async () => {
  const { broker, hub, openSubscribed } = buildConnections({}, { isManual: true });
  const opened = openSubscribed('h1', 'h2');
  await confirm(broker);
  await answer(broker, 'h1');
  broker.forget('h1');
  broker.accept('h1', publication('new'));
  broker.deliver();
  await settle();
  await answer(broker, 'h1');
  await answer(broker, 'h2');
  assert.equal(codeOf(opened), 3010);
  const pushes = opened.transport.messages().flatMap(({ push }) => push ?? []);
  assert.deepEqual(pushes, [], 'its library keeps the position');
  hub.removeConnection(opened.connection);
  assert.deepEqual([...hub.rooms.keys()], ['*']);
});

test('no stand-in stays if its connection does not enter', async () => {
  const { hub, entrance, openSubscribed } = buildConnections();
  entrance.admitConnection = (connection) => connection.close(DISCONNECTS.INVALID_TOKEN);
  const revoked = openSubscribed('a', 'b');
  await settle();
  entrance.admitConnection = () => {
    throw new Error('a fault');
  };
  const failed = openSubscribed('a', 'b');
  await settle();
  assert.deepEqual([codeOf(revoked), codeOf(failed)], [3500, 1011]);
  assert.deepEqual([...hub.rooms.keys()], ['*']);
});

test('nothing overtakes the reply to connect, and nothing comes twice', async () => {
  const { broker, hub, openSubscribed } = buildConnections({}, { isManual: true });
  const { connection, transport } = openSubscribed('a', 'h1');
  await confirm(broker);
  // The backend acts on the hub's connections.
  assert.deepEqual(hub.connections, []);
  hub.broadcast(EVERYONE, toAll('early'));
  hub.broadcast('a', publication('collected'));
  await settle();
  assert.deepEqual(transport.messages(), []);
  await answer(broker, 'h1');
  assert.deepEqual(hub.connections, [connection]);
  hub.broadcast('a', publication('live'));
  hub.broadcast(EVERYONE, toAll('to all'));
  await settle();
  const [reply, ...pushes] = transport.messages();
  assert.deepEqual(Object.keys(reply.connect.subs), ['a', 'h1']);
  assert.deepEqual(
    pushes.map(({ push }) => push.pub?.data ?? push.message?.data),
    ['collected', 'live', 'to all'],
  );
});

test('who is revoked while connect waits is refused, and who came back after it is not', async () => {
  const { broker, hub, openSubscribed, revocation } = buildConnections({}, { isManual: true });
  const waiting = openSubscribed('h1');
  await confirm(broker);
  revocation.holds = true;
  await answer(broker, 'h1');
  assert.equal(codeOf(waiting), 3500);
  assert.deepEqual(hub.connections, []);
  const back = openSubscribed('h2');
  await confirm(broker);
  await answer(broker, 'h2');
  assert.deepEqual(hub.connections, [back.connection]);
});

test('a connect that waits for its rooms is not evicted before silent connections', async () => {
  const { broker, hub, open, openSubscribed } = buildConnections(
    { FANFARE_MAX_HANDSHAKES: '3' },
    { isManual: true },
  );
  const waiting = openSubscribed('h1');
  const silent = [open(), open(), open(), open()];
  assert.deepEqual(silent.map(codeOf), [4011, 0, 0, 0]);
  assert.equal(codeOf(waiting), 0);
  await confirm(broker);
  await answer(broker, 'h1');
  assert.deepEqual(hub.connections, [waiting.connection]);
});
