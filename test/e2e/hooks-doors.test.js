// hooks-doors.test.js: every command of every door that reads a room. A connection whose `onJoin`
// is denied gets nothing from any of them: no message, no user, no count. The same command of a
// member shows that the row would find a leak.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { connectRaw, openRaw, subscriptionToken } from '../helpers/centrifugo.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { entryOf, PusherClient, writeApps } from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';
import { SECRET, token } from '../helpers/tokens.js';

const OPTIONS = { timeout: 60_000 };
const ROOM = 'team.board';
const ALL = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
/** In messages, in what presence shows of a member, and in counts of members. */
const MARK = /the secret|555-0100|"num_clients":/;

/** @typedef {import('node:test').TestContext} TestContext */
/** What the client has got when its command is answered. */
/** @typedef {(t: TestContext, port: number, user: string) => Promise<unknown>} Read */
/** @typedef {import('../../src/doors/centrifugo/codec/messages.js').Method} Method */

const started = shared(async (owner) => {
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    JWT_SECRET: SECRET,
    FANFARE_HOOKS: fileURLToPath(new URL('../helpers/hooks/doors.js', import.meta.url)),
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_PUSHER_APPS: writeApps(owner, [entryOf({ shared: true, publicRooms: ['*'] })]),
    FANFARE_HISTORY: `${ROOM}=100/300s`,
    FANFARE_PRESENCE: ROOM,
  });
  for (const room of [ROOM, 'presence-team', 'cache-team']) await occupy(owner, server.port, room);
  return server.port;
});

/**
 * A member with a message in the room.
 * @param {import('../harness/server.js').Owner} owner @param {number} port
 * @param {string} room
 */
async function occupy(owner, port, room) {
  const text = tokenOf('ann', { info: { phone: '555-0100' } });
  const ann = await connect(owner, `ws://127.0.0.1:${port}/ws?token=${text}`);
  await ann.join(room);
  const payload = { event: 'e', data: 'the secret' };
  await ann.ask({ type: 'message', room, payload, id: 1 }, 'ack');
}

/** @param {string} sub @param {Record<string, unknown>} [claims] */
const tokenOf = (sub, claims) => token({ sub, rooms: ALL, ...claims });

/** @param {(room: string) => Record<string, unknown>} command @returns {Read} */
const native = (command) => async (t, port, user) => {
  const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${tokenOf(user)}`);
  client.send({ id: 'read', ...command(ROOM) });
  await client.next(({ id }) => id === 'read');
  // Messages of `last` follow the reply.
  await client.ask({ type: 'ping' }, 'pong');
  return client.messages;
};

/** As a member, who reads after its join. @type {Read} */
const nativePresence = async (t, port, user) => {
  const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${tokenOf(user)}`);
  await client.ask({ type: 'join', room: ROOM, id: 'j' }, 'joined');
  client.send({ type: 'presence', room: ROOM, id: 'p' });
  await client.next(({ id }) => id === 'p');
  return client.messages;
};

/** Rooms of the token. @param {string} type @param {string} reply @returns {Read} */
const nativeAutojoin = (type, reply) => async (t, port, user) => {
  const client = await connect(t, `ws://127.0.0.1:${port}/ws`);
  const text = tokenOf(user, { autojoin: [ROOM] });
  const since = { [ROOM]: await positionOf(port) };
  await client.ask({ type, token: text, since }, reply);
  await client.next(({ type, room }) => room === ROOM && (type === 'joined' || type === 'left'));
  client.send({ type: 'presence', room: ROOM, id: 'p' });
  await client.next(({ id }) => id === 'p');
  return client.messages;
};

/** Before the message. @param {number} port */
async function positionOf(port) {
  const read = await native((room) => ({ type: 'history', room }))(AFTER, port, 'ann');
  const { epoch } = /** @type {any[]} */ (read).find(({ id }) => id === 'read');
  return { epoch, offset: 0 };
}

/** @type {any} an owner of connections that end with the server */
const AFTER = { after() {} };

/** @param {(user: string) => string} queryOf @returns {Read} */
const stream = (queryOf) => async (t, port, user) => {
  const client = await EventClient.open(t, port, queryOf(user));
  if (client.status === 200)
    await client.until(() => client.all('joined').length + client.all('left').length > 0, 'a join');
  if (client.all('joined').length > 0) await client.collect('message');
  return client.text;
};

/**
 * @param {string} method @param {Record<string, unknown>} request
 * @param {(user: string) => Record<string, unknown>} [connectOf] @returns {Read}
 */
const centrifugo =
  (method, request, connectOf = (user) => ({ token: tokenOf(user) })) =>
  async (t, port, user) => {
    const client = await connectRaw(t, port, connectOf(user));
    const given =
      request.token === undefined ? {} : { token: subscriptionToken(ROOM, { sub: user }) };
    await client.call(method, { channel: ROOM, ...request, ...given });
    return client.messages;
  };

/** A subscription by the server. @param {Record<string, unknown>} claims @returns {Read} */
const serverSide = (claims) => async (t, port, user) => {
  const client = await openRaw(t, port);
  const { epoch } = await positionOf(port);
  const subs = { [ROOM]: { recover: true, epoch, offset: 0 } };
  await client.call('connect', { token: tokenOf(user, claims), subs });
  return client.messages;
};

/** @type {Read} */
const refreshed = async (t, port, user) => {
  const text = tokenOf(user, { channels: [ROOM] });
  const client = await connectRaw(t, port, { token: tokenOf(user) });
  await client.call('refresh', { token: text });
  await client.call('presence', { channel: ROOM });
  return client.messages;
};

/** @param {string} channel @returns {Read} */
const pusher = (channel) => async (t, port, user) => {
  const client = new PusherClient(
    `ws://127.0.0.1:${port}/app/app-key?protocol=7`,
    { id: '1234', key: 'app-key', secret: 'app-secret' },
    { headers: { 'x-user': user } },
  );
  t.after(() => client.socket.terminate());
  await client.established();
  client.sendSubscribe(channel, channel.startsWith('presence-') ? { user_id: user } : undefined);
  await client.next(({ channel: of }) => of === channel);
  await client.pong();
  return client.texts;
};

const RECOVER = { recover: true, epoch: '', offset: 0 };

/**
 * `Record`, so that the types ask for a row when the protocol gets another command. Null: it reads
 * no room.
 * @type {Record<Method, Read|null>}
 */
const CENTRIFUGO = {
  connect: serverSide({ channels: [ROOM] }),
  subscribe: centrifugo('subscribe', RECOVER),
  history: centrifugo('history', { limit: 10 }),
  presence: centrifugo('presence', {}),
  presence_stats: centrifugo('presence_stats', {}),
  refresh: refreshed,
  sub_refresh: null, // prolongs a subscription that there is
  unsubscribe: null,
  publish: null,
  ping: null,
  pong: null,
  send: null,
  rpc: null,
};

/** Every command of docs/protocol.md. Null: it reads no room. @type {Record<string, Read|null>} */
const NATIVE = {
  hello: nativeAutojoin('hello', 'welcome'),
  auth: nativeAutojoin('auth', 'authenticated'),
  join: native((room) => ({ type: 'join', room, last: 10 })),
  leave: null,
  message: null,
  history: native((room) => ({ type: 'history', room })),
  presence: nativePresence,
  broadcast: null,
  echo: null,
  ping: null,
};

/** @type {[string, Read][]} */
const ROWS = [
  ...rowsOf('native', NATIVE),
  ['a stream of events', stream((user) => `?room=${ROOM}&last=10&token=${tokenOf(user)}`)],
  ...rowsOf('Centrifugo', CENTRIFUGO),
  ['Centrifugo connect with subs', serverSide({ subs: { [ROOM]: {} } })],
  ['Centrifugo subscribe with a token', centrifugo('subscribe', { ...RECOVER, token: '' })],
  ['Pusher subscribe to a presence channel', pusher('presence-team')],
  ['Pusher subscribe to a cache channel', pusher('cache-team')],
];

/** @param {string} door @param {Record<string, Read|null>} reads @returns {[string, Read][]} */
function rowsOf(door, reads) {
  return Object.entries(reads).flatMap(([command, read]) =>
    read === null ? [] : [[`${door} ${command}`, read]],
  );
}

test('the table has every native command', () => {
  const text = readFileSync(new URL('../../docs/protocol.md', import.meta.url), 'utf8');
  const [, commands] = /^## Commands$(.*?)^## /ms.exec(text) ?? [];
  const named = [...commands.matchAll(/^### (\w+)$/gm)].map(([, name]) => name);
  assert.deepEqual(named.sort(), Object.keys(NATIVE).sort());
});

for (const [name, read] of ROWS)
  test(`${name}: a connection that onJoin denies the room reads nothing`, OPTIONS, async (t) => {
    const port = await started();
    assert.match(JSON.stringify(await read(t, port, 'bob')), MARK, 'a member reads it');
    assert.doesNotMatch(JSON.stringify(await read(t, port, 'mallory')), MARK);
  });
