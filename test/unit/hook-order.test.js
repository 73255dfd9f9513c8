// hook-order.test.js: commands of a connection while hooks are awaited, with a hub in memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deferred } from '../../src/backend/deferred.js';
import { loadConfig } from '../../src/config/config.js';
import { JoinCommands } from '../../src/doors/native/join.js';
import { readMessage } from '../../src/doors/pusher/codec/messages.js';
import { PusherSubscriptions } from '../../src/doors/pusher/subscribe.js';
import { Connection } from '../../src/hub/connection.js';
import { NO_HOOKS } from '../../src/operations/hook-gate.js';
import { audiencesOf } from '../../src/protocol/audiences.js';
import {
  audienceTextOf,
  exceptOf,
  isPublication,
  payloadText,
  senderOf,
} from '../../src/protocol/publication.js';
import { refusal } from '../../src/protocol/refusal.js';
import { sessionHolding } from '../helpers/audiences.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, noHistory, receive } from '../helpers/hub.js';

const ALLOWED = { refusal: null, answer: { payload: null, audience: '', audiences: [] } };

/** @typedef {{hook: string, args: readonly any[], answer: (verdict: any) => Promise<void>}} Call */

/**
 * A hub with hooks that a test answers, and a connection.
 * @param {{hooks?: string[], subscribed?: Promise<void>, env?: Record<string, string>}} [options]
 */
function build({ hooks = ['onJoin', 'onPublish'], subscribed = Promise.resolve(), env = {} } = {}) {
  const { config, faults } = loadConfig(env);
  assert.ok(config, faults.join());
  const published = /** @type {string[]} */ ([]);
  const publications = /** @type {Buffer[]} */ ([]);
  const calls = /** @type {Call[]} */ ([]);
  const broker = {
    subscribe: () => subscribed,
    unsubscribe() {},
    reportConnections() {},
    countConnections: async () => 1,
    history: noHistory,
    publish: async (/** @type {string} */ room, /** @type {Buffer} */ publication) => {
      publications.push(publication);
      published.push(`${room} ${payloadText(publication)}`);
    },
  };
  const parts = buildHub({
    config,
    broker,
    hooks: {
      has: (hook) => hooks.includes(hook),
      callFor: (hook, _connection, args) => {
        const { promise, resolve } = deferred();
        /** @param {any} verdict */
        const answer = async (verdict) => {
          resolve(verdict);
          await promise;
          await new Promise(setImmediate);
        };
        calls.push({ hook, args, answer });
        return promise;
      },
    },
  });
  const transport = new FakeTransport();
  const connection = new Connection(transport, '');
  parts.hub.addConnection(connection);
  const send = (/** @type {object} */ command) => receive(parts.commands, connection, command);
  /** Types, or errors, of the replies. */
  const replies = () =>
    transport.messages().map(({ type, error, id, room }) => [error ?? type, id ?? room].join(' '));
  return {
    ...parts,
    ...{ config, connection, transport, calls, published, publications, send, replies },
    refused: () => parts.counters.readsRefused,
    /** @param {string} room @param {number} payload */
    publish: (room, payload) => send({ type: 'message', room, payload, id: payload }),
  };
}

/** @param {Call[]} calls */
const payloadsOf = (calls) => calls.map(({ args }) => args[1]);

test('messages are published in the order of sending, whichever hook answers first', async () => {
  const { calls, published, publish, commands } = build();
  for (const n of [1, 2, 3]) publish('a', n);
  assert.equal(calls.length, 3); // they overlap
  await calls[2].answer(ALLOWED);
  await calls[1].answer(ALLOWED);
  assert.deepEqual(published, []);
  assert.equal(commands.isSettled(), false);
  await calls[0].answer(ALLOWED);
  assert.deepEqual(published, ['a 1', 'a 2', 'a 3']);
  assert.equal(commands.isSettled(), true);
});

test('an answer of onJoin leaves what the HTTP API gave while the hook was asked', async () => {
  const { calls, send, connection, operations } = build();
  connection.beginSession(sessionHolding([]));
  send({ type: 'join', room: 'a' });
  assert.ok(operations.joins.joinAs(connection, 'a', 'ann', ['staff']));
  await calls[0].answer(ALLOWED);
  assert.equal(connection.audiencesIn('a'), audiencesOf(['staff']));
});

test('a broadcast for which onPublish names an audience reaches nobody', async () => {
  const { calls, send, published, replies } = build({
    env: { FANFARE_CLIENT_BROADCAST: 'on', FANFARE_AUTH: 'off' },
  });
  send({ type: 'broadcast', payload: 1, id: 'b', audience: ['staff'] });
  assert.deepEqual([calls.length, replies()], [0, ['INVALID_MESSAGE_FORMAT b']]);
  send({ type: 'broadcast', payload: 1, id: 'c' });
  await calls[0].answer({ ...ALLOWED, answer: { ...ALLOWED.answer, audience: 'staff' } });
  assert.deepEqual([published, replies()[1]], [[], 'PERMISSION_DENIED c']);
});

test('a changed message keeps its sender and the connection that does not get it', async () => {
  const { calls, send, connection, publications } = build();
  send({ type: 'message', room: 'a', payload: 1, echo: false });
  await calls[0].answer({
    ...ALLOWED,
    answer: { ...ALLOWED.answer, payload: Buffer.from('{"long":true}') },
  });
  const [publication] = publications;
  assert.equal(payloadText(publication), '{"long":true}');
  assert.deepEqual(
    [senderOf(publication), exceptOf(publication), isPublication(publication)],
    [connection.id, connection.id, true],
  );
});

test('a hook chooses the audience of a message, and gives the user some in a room', async () => {
  const { calls, send, connection, publications } = build();
  connection.beginSession(sessionHolding([]));
  send({ type: 'message', room: 'a', payload: 1, audience: ['own'] });
  await calls[0].answer({ ...ALLOWED, answer: { ...ALLOWED.answer, audience: 'staff,vip' } });
  send({ type: 'message', room: 'a', payload: 2, audience: ['own', 'a'] });
  await calls[1].answer(ALLOWED);
  assert.deepEqual(publications.map(audienceTextOf), ['staff,vip', 'a,own']);
  send({ type: 'join', room: 'b', id: 3 });
  await calls[2].answer({ ...ALLOWED, answer: { ...ALLOWED.answer, audiences: ['staff'] } });
  assert.equal(connection.audiencesIn('b'), audiencesOf(['staff']));
  assert.equal(connection.audiencesIn('a'), audiencesOf([]));
});

test('a refused message leaves the others in their order', async () => {
  const { calls, published, publish, replies } = build();
  for (const n of [1, 2, 3]) publish('a', n);
  await calls[1].answer({ ...ALLOWED, refusal: refusal('DENIED', 'no') });
  await calls[2].answer({
    ...ALLOWED,
    answer: { ...ALLOWED.answer, payload: Buffer.from('"three"') },
  });
  await calls[0].answer(ALLOWED);
  assert.deepEqual(published, ['a 1', 'a "three"']);
  assert.deepEqual(replies().sort(), ['PERMISSION_DENIED 2', 'ack 1', 'ack 3']);
});

test('a message waits for the join before it, and a leave for the message', async () => {
  const { calls, published, publish, send, replies } = build();
  send({ type: 'join', room: 'a' });
  publish('a', 1);
  send({ type: 'leave', room: 'a' });
  assert.deepEqual(
    calls.map(({ hook }) => hook),
    ['onJoin'],
  );
  await calls[0].answer(ALLOWED);
  assert.deepEqual(
    calls.map(({ hook }) => hook),
    ['onJoin', 'onPublish'],
  );
  assert.deepEqual(replies(), ['joined a']);
  await calls[1].answer(ALLOWED);
  assert.deepEqual(published, ['a 1']);
  assert.ok(replies().includes('left a'));
});

test('joins overlap, and a message waits until all of them are answered', async () => {
  const { calls, publish, send, replies } = build();
  send({ type: 'join', room: 'a' });
  send({ type: 'join', room: 'b' });
  publish('a', 1);
  assert.equal(calls.length, 2);
  await calls[1].answer(ALLOWED);
  assert.deepEqual(replies(), []);
  await calls[0].answer(ALLOWED);
  assert.deepEqual(replies(), ['joined a', 'joined b']);
  assert.equal(calls.length, 3);
});

test('history of a room asks onJoin, unless the connection is in the room', async () => {
  const { calls, send, replies } = build();
  send({ type: 'history', room: 'a', id: 1 });
  await calls[0].answer({ ...ALLOWED, refusal: refusal('DENIED', 'no') });
  assert.deepEqual(replies(), ['PERMISSION_DENIED 1']);
  send({ type: 'history', room: 'a', id: 2 });
  await calls[1].answer(ALLOWED);
  assert.deepEqual(replies().slice(1), ['history 2']);
  // One after a join waits for its answer, and then needs no hook.
  send({ type: 'join', room: 'a' });
  send({ type: 'history', room: 'a', id: 3 });
  await calls[2].answer(ALLOWED);
  assert.deepEqual(replies().slice(2), ['joined a', 'history 3']);
  assert.deepEqual(
    calls.map(({ hook, args }) => [hook, ...args]),
    [
      ['onJoin', 'a'],
      ['onJoin', 'a'],
      ['onJoin', 'a'],
    ],
  );
});

test('a message waits for the broker to confirm the join, with a hook for messages alone', async () => {
  const { promise, resolve } = deferred();
  const { calls, publish, send } = build({ hooks: ['onPublish'], subscribed: promise });
  send({ type: 'join', room: 'a' });
  for (const n of [1, 2]) publish('a', n);
  assert.equal(calls.length, 0);
  resolve(undefined);
  await new Promise(setImmediate);
  assert.deepEqual(payloadsOf(calls), [1, 2]);
});

test('ping and echo do not wait', () => {
  const { publish, send, replies } = build();
  publish('a', 1);
  send({ type: 'ping', id: 2 });
  send({ type: 'echo', payload: 0, id: 3 });
  assert.deepEqual(replies(), ['pong 2', 'echo 3']);
});

test('a connection has as many calls as the setting permits', async () => {
  const { calls, published, publish } = build({
    env: { FANFARE_HOOK_CALLS_PER_CONNECTION: '2' },
  });
  for (const n of [1, 2, 3, 4]) publish('a', n);
  assert.deepEqual(payloadsOf(calls), [1, 2]);
  await calls[0].answer(ALLOWED);
  assert.deepEqual(payloadsOf(calls), [1, 2, 3]);
  for (const n of [1, 2, 3]) await calls[n].answer(ALLOWED);
  assert.deepEqual(published, ['a 1', 'a 2', 'a 3', 'a 4']);
});

test('above 256 KiB of waiting commands a connection is refused, and goes on later', async () => {
  const { calls, published, send, replies, refused, commands } = build();
  const payload = 'x'.repeat(50_000);
  for (let id = 1; id <= 10; id++) send({ type: 'message', room: 'a', payload, id });
  assert.ok(refused() > 0);
  assert.equal(replies().length, refused());
  assert.ok(replies().every((reply) => reply.startsWith('UNAVAILABLE')));
  for (let i = 0; i < calls.length; i++) await calls[i].answer(ALLOWED);
  assert.equal(published.length, 10 - refused());
  assert.equal(commands.isSettled(), true);
  send({ type: 'message', room: 'a', payload, id: 11 });
  await calls[calls.length - 1].answer(ALLOWED);
  assert.ok(replies().includes('ack 11'));
});

test('above 32 MiB of all connections, messages are refused', async () => {
  const { commands, hub, refused } = build();
  const text = JSON.stringify({ type: 'message', room: 'a', payload: 'x'.repeat(90_000) });
  for (let i = 0; i < 400; i++) {
    const connection = new Connection(new FakeTransport(), '');
    hub.addConnection(connection);
    receive(commands, connection, text);
  }
  assert.equal(refused(), 400 - Math.ceil((32 * 2 ** 20) / (90_002 + 20 + 512)));
});

test('a message whose hook was called is published after the close; what waits is dropped', async () => {
  const { calls, published, publish, send, hub, connection, commands } = build();
  publish('a', 1);
  send({ type: 'join', room: 'b' });
  publish('a', 2);
  hub.removeConnection(connection);
  await calls[0].answer(ALLOWED);
  assert.deepEqual(published, ['a 1']);
  assert.equal(calls.length, 1);
  assert.equal(hub.rooms.has('b'), false);
  assert.equal(commands.isSettled(), true);
});

test('a join whose connection has closed meanwhile joins nothing', async () => {
  const { calls, send, hub, connection } = build();
  send({ type: 'join', room: 'b' });
  hub.removeConnection(connection);
  await calls[0].answer(ALLOWED);
  assert.equal(hub.rooms.has('b'), false);
});

test('a room that the backend joins meanwhile is joined once', async () => {
  const { calls, operations, connection, send, replies } = build();
  send({ type: 'join', room: 'b', id: 1 });
  operations.joins.joinAs(connection, 'b', 'ann');
  await calls[0].answer(ALLOWED);
  assert.deepEqual(replies().sort(), ['ALREADY_JOINED 1', 'joined b']);
});

test('a hook that fails refuses no join of a room that the client is in meanwhile', async () => {
  const { calls, send, operations, connection, replies, hub } = build();
  send({ type: 'join', room: 'a', id: 1 });
  send({ type: 'join', room: 'a', id: 2 });
  send({ type: 'join', room: 'b', id: 3 });
  operations.joins.joinAs(connection, 'b', 'ann');
  const failed = { refusal: refusal('HOOK_FAILED'), answer: ALLOWED.answer };
  for (const [i, verdict] of [ALLOWED, failed, failed].entries()) await calls[i].answer(verdict);
  // UNAVAILABLE would mean that it is not a member.
  assert.deepEqual(replies().slice(-3), ['joined 1', 'ALREADY_JOINED 2', 'ALREADY_JOINED 3']);
  for (const room of ['a', 'b']) assert.equal(hub.rooms.get(room)?.has(connection), true);
});

test('a room of the token that the backend joins while onJoin denies it is not left', async () => {
  const { calls, connection, operations, replies, hub } = build();
  const { joins, replies: answers } = operations;
  const commands = new JoinCommands({ tracker: hub.tracker, joins, replies: answers });
  for (const room of ['a', 'b']) commands.autojoin(connection, room, null);
  operations.joins.joinAs(connection, 'a', 'ann');
  const denied = { refusal: refusal('DENIED', 'no'), answer: ALLOWED.answer };
  for (const call of calls) await call.answer(denied);
  assert.deepEqual(replies(), ['joined a', 'left b']);
  assert.equal(hub.rooms.get('a')?.has(connection), true);
});

test('subscriptions of Pusher clients that wait for hooks are all answered, up to the limit', async () => {
  const { connection, transport, calls, ...parts } = build({
    env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '2' },
  });
  const subscriptions = new PusherSubscriptions(
    /** @type {any} */ (parts),
    () => {},
    () => {},
  );
  const client = /** @type {any} */ ({ app: { id: '1', maxChannelLength: 200 } });
  for (const channel of ['a', 'a', 'b', 'c']) {
    const data = { channel };
    const message = readMessage(JSON.stringify({ event: 'pusher:subscribe', data }));
    assert.ok(message);
    subscriptions.subscribe(connection, client, message);
  }
  for (const { answer } of calls) await answer(ALLOWED);
  assert.deepEqual(
    transport.messages().map(({ event, channel, data }) => [event, channel, data.status]),
    [
      ['pusher_internal:subscription_succeeded', 'a', undefined],
      ['pusher:error', 'a', undefined],
      ['pusher_internal:subscription_succeeded', 'b', undefined],
      ['pusher:subscription_error', 'c', 4100],
    ],
  );
  assert.equal(connection.roomCount, 2);
});

test('a denied broadcast has no result', async () => {
  const { calls, send, commands, published, replies } = build();
  send({ type: 'broadcast', payload: 1, id: 1 });
  assert.deepEqual(calls[0].args, ['*', 1]);
  assert.equal(commands.broadcasts.pending.size, 0);
  await calls[0].answer({ ...ALLOWED, refusal: refusal('DENIED') });
  assert.deepEqual([published, replies()], [[], ['PERMISSION_DENIED 1']]);
  assert.equal(commands.broadcasts.pending.size, 0);
});

test('a message is refused and counted, and no hook asked, if too many commands wait', () => {
  const { calls, published, publish, replies, refused, operations } = build();
  Object.defineProperty(operations.lane, 'isFull', { value: true });
  publish('a', 1);
  assert.deepEqual([calls, published, replies(), refused()], [[], [], ['UNAVAILABLE 1'], 1]);
});

test('without hooks no command passes through them', () => {
  const { config } = loadConfig({});
  assert.ok(config);
  const publish = () => Promise.resolve();
  const { commands, operations } = buildHub({
    config,
    broker: { publish, reportConnections() {} },
  });
  assert.equal(operations.publisher.gate, null);
  assert.equal(operations.hookGate.hooks, NO_HOOKS);
  assert.equal(commands.broadcasts.publisher.constructor.name, 'Publisher');
});
