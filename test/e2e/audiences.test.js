// audiences.test.js: messages for some members, on real servers: the exchanges of docs/audiences.md,
// through tokens, hooks and the HTTP API, over every door.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connectRaw } from '../helpers/centrifugo.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

const OPTIONS = { timeout: 60_000 };
const KEY = newSecret();
const HOOKS = `
export const onConnect = ({ query }) =>
  query.get('guest') ? { user: 'guest', audiences: ['guests'] } : undefined;
export const onJoin = (connection, room) =>
  room.startsWith('team.') ? { audiences: [\`\${connection.user}.team\`] } : undefined;
export const onPublish = (connection, room, payload, { audience }) =>
  payload?.secret ? { audience: ['staff'], payload: { by: audience ?? null } } : undefined;
`;

const server = shared(async (t) => {
  const hooks = join(temporaryFolder(t), 'hooks.mjs');
  writeFileSync(hooks, HOOKS);
  return startServer(t, {
    FANFARE_LIMITS: 'off',
    FANFARE_HISTORY: 'doc.*=100/1h',
    FANFARE_STATE: 'auction.*=100/1h',
    FANFARE_SCHEDULING: 'round-robin',
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_AUTH: 'optional',
    FANFARE_HOOKS: hooks,
    JWT_SECRET: SECRET,
    API_KEYS: `test ${KEY} all`,
    WORKERS: '2',
  });
});

const ALL = ['*'];
const RIGHTS = { join: ALL, publish: ALL, history: ALL };

/** @param {import('node:test').TestContext} t @param {string} sub @param {Record<string, unknown>} [claims] */
async function clientOf(t, sub, { rooms = {}, ...claims } = {}) {
  const { port } = await server();
  const jwt = token({ sub, rooms: { ...RIGHTS, .../** @type {object} */ (rooms) }, ...claims });
  return connect(t, port, { headers: { Authorization: `Bearer ${jwt}` } });
}

/** @param {import('../helpers/clients.js').Client} client @param {object} command */
async function ask(client, command) {
  const id = randomUUID();
  client.send({ ...command, id });
  const from = client.taken;
  const reply = await client.next((message) => message.id === id);
  client.goBack(from); // pushes before the reply stay
  return reply;
}

async function api() {
  const call = apiOf(await server(), KEY);
  const post = async (/** @type {string} */ path, /** @type {object} */ body) => {
    const { status, text } = await call(path, { body });
    assert.equal(status, 200, text);
  };
  return { call, post, get: (/** @type {string} */ path) => call(path) };
}

test(
  'a comment for the staff reaches the staff alone: live, replayed, in pages and streams',
  OPTIONS,
  async (t) => {
    const { post, get } = await api();
    const room = 'doc.7';
    const [ann, bob, eve] = [
      await clientOf(t, 'ann'),
      await clientOf(t, 'bob', { audiences: ['staff'] }),
      await clientOf(t, 'eve', { rooms: { 'doc.*': { audiences: ['staff'] } } }),
    ];
    for (const one of [ann, bob, eve]) await ask(one, { type: 'join', room });
    await post('/publish', { room, payload: { edit: 1 } });
    await post('/publish', { room, payload: { comment: 2 }, audience: ['staff'] });
    await post('/publish', { room, payload: { edit: 3 } });
    await post('/publish', { room, payload: { comment: 4 }, audience: ['vip', 'staff'] });
    const offsets = async (/** @type {any} */ client, /** @type {number} */ count) => {
      const seen = [];
      while (seen.length < count)
        seen.push(
          await client.next((/** @type {any} */ one) => /^(message|position)$/.test(one.type)),
        );
      return seen.map((one) => (one.type === 'message' ? one.offset : -one.offset));
    };
    assert.deepEqual(await offsets(bob, 4), [1, 2, 3, 4]);
    assert.deepEqual(await offsets(eve, 4), [1, 2, 3, 4]);
    const seen = [];
    do seen.push(...(await offsets(ann, 1)));
    while (seen.at(-1) !== -4);
    assert.deepEqual(
      seen.filter((offset) => offset > 0),
      [1, 3],
    );

    for (const [claims, expected] of /** @type {const} */ ([
      [{}, [1, 3]],
      [{ audiences: ['vip'] }, [1, 3, 4]],
      [{ audiences: ['*'] }, [1, 2, 3, 4]],
    ])) {
      const late = await clientOf(t, 'late', claims);
      const joined = await ask(late, { type: 'join', room, last: 10 });
      assert.equal(joined.replayed, expected.length);
      assert.deepEqual(await offsets(late, expected.length), expected);
      const page = await ask(late, { type: 'history', room });
      assert.deepEqual(
        page.messages.map((/** @type {any} */ one) => one.offset),
        expected,
      );
      assert.ok(page.messages.every((/** @type {any} */ one) => !('audience' in one)));
      const { port } = await server();
      const jwt = token({ sub: 'late', rooms: RIGHTS, ...claims });
      const query = `?room=${room}&last=10&token=${jwt}`;
      const stream = await EventClient.open(t, port, query);
      const got = await stream.collect('message', expected.length);
      assert.deepEqual(
        got.map((/** @type {any} */ one) => one.offset),
        expected,
      );
    }
    const { body } = await get(`/rooms/${room}/history`);
    assert.deepEqual(
      body.messages.map((/** @type {any} */ one) => one.audience ?? null),
      [null, ['staff'], null, ['staff', 'vip']],
    );
  },
);

test(
  'hidden bids: a bidder sees the own one, the auctioneer all, the public none before the end',
  OPTIONS,
  async (t) => {
    const { post, get } = await api();
    const room = 'auction.9';
    const publish = (/** @type {object} */ fields) => post('/publish', { room, ...fields });
    await publish({ key: 'bid.42', payload: 120, audience: ['bidder.42'] });
    await publish({ key: 'item', payload: 'vase' });
    await publish({ key: 'gone', payload: 1, audience: ['bidder.7'] });
    await publish({ key: 'gone', payload: null });
    const [owner, all, none] = [
      await clientOf(t, 'b42', { audiences: ['bidder.42'] }),
      await clientOf(t, 'boss', { audiences: ['*'] }),
      await clientOf(t, 'crowd'),
    ];
    for (const one of [owner, all, none]) {
      await ask(one, { type: 'join', room });
      await one.next('synced');
    }
    const keysOf = (/** @type {any} */ client) =>
      client.messages.flatMap((/** @type {any} */ one) => (one.type === 'message' ? one.key : []));
    assert.deepEqual(keysOf(owner), ['bid.42', 'item']);
    assert.deepEqual(keysOf(all), ['bid.42', 'item', 'gone']);
    assert.deepEqual(keysOf(none), ['item']);
    const { body } = await get(`/rooms/${room}/state`);
    assert.deepEqual(
      body.entries.map((/** @type {any} */ one) => [one.key, one.audience]),
      [
        ['bid.42', ['bidder.42']],
        ['item', undefined],
      ],
    );
    // The end: the key is for everybody.
    await publish({ key: 'bid.42', payload: 120 });
    assert.equal((await none.next('message')).key, 'bid.42');
    // Hidden again: who could see it begins again without it.
    await publish({ key: 'bid.42', payload: 130, audience: ['bidder.42'] });
    await none.next('reset');
    await none.next('synced');
    assert.deepEqual(keysOf(none), ['item', 'bid.42', 'item']);
    assert.equal((await owner.next(({ payload }) => payload === 130)).key, 'bid.42');
    const since = { epoch: body.epoch, offset: body.offset };
    await ask(none, { type: 'leave', room });
    assert.equal((await ask(none, { type: 'join', room, since })).recovered, false);
  },
);

test(
  'a client names an audience with the right only, and never nobody by mistake',
  OPTIONS,
  async (t) => {
    const room = 'doc.publish';
    const message = { type: 'message', room, payload: 1 };
    const plain = await clientOf(t, 'plain');
    const refused = await ask(plain, { ...message, audience: ['staff'] });
    assert.deepEqual([refused.error, refused.type], ['PERMISSION_DENIED', 'error']);
    const anonymous = await connect(t, (await server()).port);
    assert.equal(
      (await ask(anonymous, { ...message, audience: ['a'] })).error,
      'PERMISSION_DENIED',
    );
    const may = await clientOf(t, 'may', { rooms: { audience: ALL }, audiences: ['own'] });
    for (const audience of [
      null,
      [],
      'staff',
      ['a b'],
      ['*'],
      ['a', 'a'],
      ['a', 'b', 'c', 'd', 'e'],
    ])
      assert.equal((await ask(may, { ...message, audience })).error, 'INVALID_MESSAGE_FORMAT');
    await ask(may, { type: 'join', room });
    assert.equal((await ask(may, { ...message, audience: ['own'] })).type, 'ack');
    assert.equal((await may.next('message')).offset, 1);
    assert.equal((await ask(may, { ...message, audience: ['other'] })).offset, 2);
    assert.equal((await may.next('position')).offset, 2);
    const { call } = await api();
    for (const audience of [null, [], ['a', 'a']]) {
      const { status, body } = await call('/publish', { body: { room, payload: 1, audience } });
      assert.deepEqual([status, body.error, body.field], [422, 'INVALID_FIELD', 'audience']);
    }
    for (const [path, body] of Object.entries({
      '/publish': { room, payload: 1 },
      '/publish/batch': { messages: [{ room, payload: 1 }] },
      '/broadcast': { payload: 1 },
    })) {
      const { status, body: fault } = await call(`${path}?audience=staff`, { body });
      assert.deepEqual([status, fault.error, fault.field], [400, 'INVALID_REQUEST', 'audience']);
    }
  },
);

test('hooks give audiences, and choose that of a message', OPTIONS, async (t) => {
  const { port } = await server();
  const { post } = await api();
  const guest = await connect(t, `ws://127.0.0.1:${port}/?guest=1`);
  const ann = await clientOf(t, 'ann');
  await ask(ann, { type: 'join', room: 'team.1' });
  await post('/publish', { room: 'team.1', payload: 'no', audience: ['bob.team'] });
  await post('/publish', { room: 'team.1', payload: 'yes', audience: ['ann.team'] });
  assert.equal((await ann.next('message')).payload, 'yes');
  await ask(guest, { type: 'join', room: 'plain' });
  await post('/publish', { room: 'plain', payload: 'no', audience: ['staff'] });
  await post('/publish', { room: 'plain', payload: 'yes', audience: ['guests', 'x'] });
  assert.equal((await guest.next('message')).payload, 'yes');
  const bob = await clientOf(t, 'bob', { audiences: ['staff'] });
  for (const one of [ann, bob]) await ask(one, { type: 'join', room: 'doc.hooks' });
  await ask(ann, { type: 'message', room: 'doc.hooks', payload: { secret: true } });
  assert.deepEqual((await bob.next('message')).payload, { by: null });
  assert.equal((await ann.next('position')).offset, 1);
});

test(
  'rights change at once: by a new token, and by the API, which takes them back',
  OPTIONS,
  async (t) => {
    const { post } = await api();
    const room = 'doc.rights';
    const ann = await clientOf(t, 'ann.rights');
    await ask(ann, { type: 'join', room });
    let sent = 0;
    const publish = () => post('/publish', { room, payload: ++sent, audience: ['staff'] });
    const sees = async () => {
      await publish();
      const { type, offset } = await ann.next(
        ({ type }) => type === 'message' || type === 'position',
      );
      assert.equal(offset, sent);
      return type === 'message';
    };
    const renew = (/** @type {string[]} */ audiences) =>
      ask(ann, { type: 'auth', token: token({ sub: 'ann.rights', rooms: RIGHTS, audiences }) });
    const give = (/** @type {string[]|undefined} */ audiences) =>
      post('/users/ann.rights/join', { rooms: [room], audiences });
    assert.equal(await sees(), false);
    await renew(['staff']);
    assert.equal(await sees(), true);
    await renew([]);
    assert.equal(await sees(), false);
    await give(['staff']);
    assert.equal(await sees(), true);
    await give(undefined);
    assert.equal(await sees(), true);
    await give([]);
    assert.equal(await sees(), false);
  },
);

test('a Centrifugo client gets, recovers and reads what its token holds', OPTIONS, async (t) => {
  const { port } = await server();
  const { post } = await api();
  const channel = 'doc.cent';
  const clients = await Promise.all(
    [[], ['staff']].map((audiences) =>
      connectRaw(t, port, {
        token: token({ sub: 'c', rooms: RIGHTS, channels: [channel], audiences }),
      }),
    ),
  );
  for (const [id, audience] of [undefined, ['staff'], undefined, ['vip']].entries())
    await post('/publish', { room: channel, payload: id, audience });
  for (const [index, expected] of [
    [0, 2],
    [0, 1, 2],
  ].entries()) {
    const client = clients[index];
    const has = () => client.publications(channel).length >= expected.length;
    await client.until(has, 10_000, 'publications');
    assert.deepEqual(
      client.publications(channel).map(({ data }) => data),
      expected,
    );
    const { history } = await client.call('history', { channel, limit: 10 });
    assert.deepEqual(
      history.publications.map((/** @type {any} */ one) => one.data),
      expected,
    );
    await client.call('unsubscribe', { channel });
    const { epoch } = history;
    const { subscribe } = await client.call('subscribe', {
      channel,
      recover: true,
      epoch,
      offset: 0,
    });
    assert.ok(subscribe.recovered);
    assert.deepEqual(
      subscribe.publications.map((/** @type {any} */ one) => one.data),
      expected,
    );
  }
});
