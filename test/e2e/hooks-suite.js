// hooks-suite.js: hooks on real servers, for both kinds: a file, and a backend that is asked over HTTP.
// test/helpers/hooks/all.js has the hooks of both.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { Fanfare } from '../../src/client/node.js';
import { NO_LIMITS, scrape, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { shared } from '../helpers/shared.js';
import { SECRET, token } from '../helpers/tokens.js';

const limit = { timeout: 30_000 };
const KEY = 'a'.repeat(32);
const ENV = {
  ...NO_LIMITS,
  WORKERS: '1',
  FANFARE_HISTORY: 'chat.*=100/60s, staff.*=100/60s',
  FANFARE_PRESENCE: 'team.*, staff.*',
  API_KEYS: `web ${KEY} all`,
};

/**
 * @typedef {object} Kind
 * @property {string} name
 * @property {(t: import('../harness/server.js').Owner, env: Record<string, string>) => Promise<Server>} start
 *   a server with the hooks of all.js
 * @property {(server: Server, user: string) => Promise<unknown>} left onDisconnect was called
 * @property {string} thrown the reason of a hook that throws
 * @typedef {import('../harness/server.js').Server} Server
 */

/** @param {Kind} kind */
export function testHooks(kind) {
  const start = (
    /** @type {import('../harness/server.js').Owner} */ t,
    /** @type {Record<string, string>} */ env,
  ) => kind.start(t, { FANFARE_HOOK_TIMEOUT_MS: '300', ...env });
  /** Servers that several tests share. @type {(() => unknown)[]} */
  const cleanups = [];
  const owner = { after: (/** @type {() => unknown} */ cleanup) => void cleanups.push(cleanup) };
  /** @type {import('../harness/server.js').Server} */
  let server;
  before(async () => {
    server = await start(owner, ENV);
  });
  after(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup();
  });

  /**
   * @param {import('node:test').TestContext} t
   * @param {string} [query]
   * @param {import('ws').ClientOptions} [options]
   * @param {{port: number}} [where]
   */
  const open = (t, query = '', options = {}, where = server) =>
    connect(t, `ws://127.0.0.1:${where.port}/ws${query}`, options);

  /** A server on which no hook misses its deadline, also on a busy machine. */
  const patient = shared((t) => start(t, { ...ENV, FANFARE_HOOK_TIMEOUT_MS: '7000' }));

  /** Servers with tokens, by `FANFARE_AUTH`. */
  const withTokens = {
    required: shared((t) => start(t, { ...ENV, JWT_SECRET: SECRET })),
    optional: shared((t) => start(t, { ...ENV, JWT_SECRET: SECRET, FANFARE_AUTH: 'optional' })),
  };

  /** @param {string} user */
  const as = (user) => ({ headers: { cookie: `a=b; session=${user}` } });

  /** @param {import('../harness/server.js').Server} [where] */
  const metrics = async ({ metricsPort } = server) =>
    (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();

  /** @param {string} series @param {string} text */
  const sampleOf = (series, text) =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.slice(series.length + 1),
    );

  test('a denied connection gets the text and is closed with 4506', limit, async (t) => {
    const client = await open(t, '?is=denied');
    const { error, message } = await client.next('error');
    assert.deepEqual([error, message], ['PERMISSION_DENIED', 'no such customer']);
    await until(() => client.close !== null);
    assert.deepEqual(client.close, { code: 4506, reason: 'denied' });
  });

  for (const is of ['broken', 'slow']) {
    test(`if onConnect is ${is}, the handshake is refused with 503`, limit, async () => {
      const { status, headers } = await upgrade(server.port, `/ws?is=${is}`);
      assert.equal(status, 503);
      assert.ok(Number(headers.get('retry-after')) >= 5);
    });
  }

  test('onConnect names the user, and later hooks get its data', limit, async (t) => {
    const client = await open(t, '', as('ann'));
    const { userId } = await client.ask({ type: 'hello' }, 'welcome');
    assert.equal(userId, 'ann');
    await client.ask({ type: 'join', room: 'news' }, 'joined');
    client.send({ type: 'message', room: 'news', payload: { do: 'change' } });
    const { from, payload } = await client.next('message');
    assert.equal(from, 'ann');
    assert.deepEqual(payload, {
      do: 'change',
      by: 'ann',
      room: 'news',
      data: { token: null, user: null, address: '127.0.0.1', transport: 'websocket' },
    });
  });

  test('presence shows the user and info of onConnect, and no other name', limit, async (t) => {
    const client = await open(t, '', as('bob'));
    const team = 'team.1';
    const refused = await client.ask(
      { type: 'join', room: team, presence: { user: 'eve' } },
      'joined',
    );
    assert.equal(refused.error, 'PERMISSION_DENIED');
    await client.ask({ type: 'join', room: team }, 'joined');
    const { members } = await client.ask({ type: 'presence', room: team, id: 1 }, 'presence');
    const { member } = client.messages.find(({ event }) => event === 'join') ?? {
      member: members[0],
    };
    assert.deepEqual(member, { user: 'bob', info: { colour: 'red' } });
  });

  test('if onConnect names users, a guest cannot take the name of one', limit, async (t) => {
    const guest = await open(t);
    const join = { type: 'join', room: 'team.2' };
    const refused = await guest.ask({ ...join, presence: { user: 'ann' } }, 'joined');
    assert.equal(refused.error, 'PERMISSION_DENIED');
    assert.equal((await guest.ask({ ...join, presence: {} }, 'joined')).type, 'joined');
    const ask = { type: 'presence', room: 'team.2', id: 1 };
    guest.send(ask);
    const { members } = await guest.next(({ id }) => id === 1);
    assert.equal(members.length, 1);
    assert.notEqual(members[0].user, 'ann');
  });

  const CLOSED = 'staff.secret';
  /** Positions before all messages of the room. @param {string} epoch */
  const before1 = (epoch) => ({ epoch, offset: 0 });

  /**
   * For each command: a message of that type about a room that onJoin denies, and the type or error of
   * its answer.
   * @type {Readonly<Record<string, ((epoch: string, token: string) => [object, string])[]>>}
   */
  const AT_A_CLOSED_ROOM = {
    join: [
      () => [{ room: CLOSED }, 'PERMISSION_DENIED'],
      () => [{ room: CLOSED, last: 10 }, 'PERMISSION_DENIED'],
      (epoch) => [{ room: CLOSED, since: before1(epoch) }, 'PERMISSION_DENIED'],
    ],
    leave: [() => [{ room: CLOSED }, 'NOT_IN_ROOM']],
    // Whether strangers may write is for onPublish to say.
    message: [() => [{ room: CLOSED, payload: 'from outside' }, 'ack']],
    history: [
      () => [{ room: CLOSED }, 'PERMISSION_DENIED'],
      (epoch) => [{ room: CLOSED, since: before1(epoch), limit: 1 }, 'PERMISSION_DENIED'],
    ],
    broadcast: [() => [{ payload: 1 }, 'broadcastResult']],
    echo: [() => [{ payload: CLOSED }, 'echo']],
    presence: [() => [{ room: CLOSED }, 'PERMISSION_DENIED']],
    ping: [() => [{}, 'pong']],
    // From here on the connection has the rights of a token.
    hello: [
      (epoch) => [{ since: { [CLOSED]: before1(epoch) } }, 'welcome'],
      (epoch, own) => [{ token: own, since: { [CLOSED]: before1(epoch) } }, 'welcome'],
    ],
    auth: [(_, own) => [{ token: own }, 'authenticated']],
  };

  test('each command is in the table of a closed room', () => {
    const source = readFileSync(
      new URL('../../src/doors/native/index.js', import.meta.url),
      'utf8',
    );
    const commands = [...source.matchAll(/(?:^ +\[|handlers\.set\()'(\w+)', \w+\.\w+\.bind/gm)];
    assert.ok(commands.length >= 11, `${commands.length}`);
    assert.deepEqual(
      Object.keys(AT_A_CLOSED_ROOM).sort(),
      [...new Set(commands.map(([, name]) => name))].sort(),
    );
  });

  test(
    'a connection that onJoin denies gets nothing of the room by any command',
    limit,
    async (t) => {
      const where = await withTokens.optional();
      const ann = await open(t, '', as('ann'), where);
      const { epoch } = await ann.ask({ type: 'join', room: CLOSED }, 'joined');
      await ann.ask({ type: 'message', room: CLOSED, payload: 'for staff only', id: 1 }, 'ack');
      const rooms = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
      const own = token({ sub: 'eve', rooms, broadcast: true, autojoin: [CLOSED] });
      const bearer = { headers: { Authorization: `Bearer ${own}` } };
      /** By name: a connection of each kind, and whether it may broadcast. */
      const kinds = {
        'without a user': () => open(t, '', {}, where),
        'named by onConnect': () => open(t, '', as('eve'), where),
        'with a token': () => open(t, '', bearer, where),
      };
      for (const [kind, connectAs] of Object.entries(kinds)) {
        const stranger = await connectAs();
        if (kind === 'with a token') assert.equal((await stranger.next('left')).room, CLOSED);
        for (const [type, rows] of Object.entries(AT_A_CLOSED_ROOM)) {
          for (const row of rows) {
            const [fields, expected] = row(epoch, own);
            const id = stranger.messages.length + 1;
            stranger.send({ type, ...fields, id });
            const answer = await stranger.next((message) => message.id === id);
            const isTokenNeeded = type === 'broadcast' && kind !== 'with a token' && answer.error;
            if (!isTokenNeeded)
              assert.equal(
                answer.error ?? answer.type,
                expected,
                `${kind}: ${JSON.stringify(answer)}`,
              );
            if (answer.error && type !== 'broadcast' && expected === 'PERMISSION_DENIED')
              assert.equal(answer.message, 'staff only');
          }
        }
        // Joins by a hello or auth are answered before.
        await stranger.ask({ type: 'ping', id: 'end' }, 'pong');
        const got = JSON.stringify(stranger.messages);
        assert.doesNotMatch(got, /for staff only|"user":"ann"/, kind);
      }
    },
  );

  test('onJoin denies with its text, and the connection goes on', limit, async (t) => {
    const client = await open(t, '', as('bob'));
    const refused = await client.ask({ type: 'join', room: 'staff.1', id: 1 }, 'joined');
    assert.deepEqual(
      [refused.error, refused.message, refused.id],
      ['PERMISSION_DENIED', 'staff only', 1],
    );
    const failed = await client.ask({ type: 'join', room: 'broken', id: 2 }, 'joined');
    assert.deepEqual([failed.error, failed.id], ['UNAVAILABLE', 2]);
    assert.equal((await client.ask({ type: 'join', room: 'news', id: 3 }, 'joined')).id, 3);
    const ann = await open(t, '', as('ann'));
    assert.equal((await ann.ask({ type: 'join', room: 'staff.1' }, 'joined')).type, 'joined');
  });

  test('each failure of onPublish refuses its own message and no other', limit, async (t) => {
    const earlier = await metrics();
    const client = await open(t);
    await client.ask({ type: 'join', room: 'news' }, 'joined');
    const payloads = [
      { do: 'deny', text: 'be polite' },
      { do: 'false' },
      { do: 'throw' },
      { do: 'hang' },
      { do: 'abortable' },
      { do: 'null' },
      { do: 'grow', bytes: 200_000 },
      { do: 'nest', depth: 40 },
      { do: 'grow', bytes: 1 },
    ];
    payloads.forEach((payload, id) => {
      client.send({ type: 'message', room: 'news', payload, id });
    });
    await client.next(({ type, id }) => type === 'ack' && id === 8);
    const replies = client.messages.filter(({ id }) => id !== undefined);
    assert.deepEqual(
      replies.map(({ id, error }) => [id, error]),
      [
        [0, 'PERMISSION_DENIED'],
        [1, 'PERMISSION_DENIED'],
        [2, 'UNAVAILABLE'],
        [3, 'UNAVAILABLE'],
        [4, 'UNAVAILABLE'],
        [5, 'UNAVAILABLE'],
        [6, 'MESSAGE_TOO_LARGE'],
        [7, 'UNAVAILABLE'],
        [8, undefined],
      ],
    );
    assert.equal(replies[0].message, 'be polite');
    assert.deepEqual(await next(client, 'message'), 'x');
    const text = await metrics();
    /** @param {string} series */
    const grown = (series) => sampleOf(series, text) - sampleOf(series, earlier);
    const thrown = `fanfare_hook_failures_total{hook="onPublish",reason="${kind.thrown}"}`;
    assert.equal(grown(thrown), 1);
    assert.equal(grown('fanfare_hook_failures_total{hook="onPublish",reason="timeout"}'), 2);
    assert.equal(grown('fanfare_hook_failures_total{hook="onPublish",reason="answer"}'), 3);
    assert.equal(grown('fanfare_hook_denied_total{hook="onPublish"}'), 2);
    assert.equal(grown('fanfare_hook_seconds_count{hook="onPublish"}'), 9);
    // The one that hangs. A request is given up.
    assert.equal(sampleOf('fanfare_hook_calls_running', text) > 0, kind.thrown === 'throw');
  });

  test('a broadcast asks onPublish too', limit, async (t) => {
    const client = await open(t);
    const command = { type: 'broadcast', payload: { do: 'deny', text: 'not to all' }, id: 1 };
    const refused = await client.ask(command, 'broadcastResult');
    assert.deepEqual([refused.error, refused.message], ['PERMISSION_DENIED', 'not to all']);
    client.send({ type: 'broadcast', payload: { do: 'change' }, id: 2 });
    assert.equal((await client.next('broadcast')).payload.room, '*');
    assert.equal((await client.next('broadcastResult')).id, 2);
  });

  test(
    'messages keep their order while hooks of different lengths are awaited',
    limit,
    async (t) => {
      const client = await open(t, '', {}, await patient());
      client.send({ type: 'join', room: 'slow.50' });
      for (let n = 0; n < 100; n++) {
        const payload = { do: 'wait', ms: (n * 7) % 20, n };
        client.send({ type: 'message', room: 'slow.50', payload, id: n });
      }
      client.send({ type: 'leave', room: 'slow.50', id: 'end' });
      await client.next(({ type }) => type === 'left');
      const acks = client.messages.filter(({ type }) => type === 'ack');
      const messages = client.messages.filter(({ type }) => type === 'message');
      const all = Array.from({ length: 100 }, (_, n) => n);
      // The last ones were published, but the client has left before they came back.
      const got = messages.map(({ payload }) => payload.n);
      assert.ok(got.length > 50, `${got.length}`);
      assert.deepEqual(got, all.slice(0, got.length));
      await until(() => client.messages.filter(({ type }) => type === 'ack').length === 100);
      assert.deepEqual(
        acks.map(({ id }) => id),
        all.slice(0, acks.length),
      );
    },
  );

  test(
    'a repeated idempotency key publishes once, though the hook changes the payload',
    limit,
    async (t) => {
      const client = await open(t);
      await client.ask({ type: 'join', room: 'chat.1' }, 'joined');
      const message = {
        type: 'message',
        room: 'chat.1',
        payload: { do: 'count' },
        idempotencyKey: 'k',
      };
      const first = await client.ask({ ...message, id: 1 }, 'ack');
      await open(t); // the payload would be another one
      const second = await client.ask({ ...message, id: 2 }, 'ack');
      assert.equal(second.offset, first.offset);
    },
  );

  test('1,000 hooks at once are awaited and answered', limit, async (t) => {
    const where = await patient();
    const clients = await Promise.all(Array.from({ length: 100 }, () => open(t, '', {}, where)));
    const payload = { do: 'wait', ms: 50 };
    const sentMs = performance.now();
    for (const client of clients)
      for (let id = 0; id < 10; id++) client.send({ type: 'message', room: 'all', payload, id });
    await Promise.all(clients.map((client) => client.next(({ id }) => id === 9)));
    t.diagnostic(`${Math.round(performance.now() - sentMs)} ms for 1,000 hooks of 50 ms`);
    for (const { messages } of clients)
      assert.deepEqual(
        messages.map(({ type }) => type),
        Array(10).fill('ack'),
      );
  });

  test('onDisconnect follows with the user', limit, async (t) => {
    const client = await open(t, '', as('zoe'));
    client.socket.close();
    await kind.left(server, 'zoe');
  });

  test('streams of events ask onConnect and onJoin', limit, async (t) => {
    const headers = { accept: 'text/event-stream' };
    const url = `http://127.0.0.1:${server.port}/sse`;
    const denied = await fetch(`${url}?room=news&is=denied`, { headers });
    assert.deepEqual(
      [denied.status, denied.headers.get('fanfare-error')],
      [204, 'PERMISSION_DENIED'],
    );
    const staff = await fetch(`${url}?room=news&room=staff.1`);
    assert.equal(staff.status, 403);
    assert.equal(/** @type {any} */ (await staff.json()).message, 'staff only');
    assert.equal((await fetch(`${url}?room=broken`)).status, 503);
    const ann = await EventClient.open(t, server.port, '?room=staff.1', { cookie: 'session=ann' });
    await ann.until(() => ann.all('joined').length === 1, 'joined');
    const { values } = await scrape(server.metricsPort);
    assert.equal(values.get('fanfare_transport_connections{transport="sse"}'), 1);
  });

  test('a token names the user; a hook cannot', limit, async (t) => {
    const where = await withTokens.required();
    const rooms = { join: ['*'], publish: ['*'] };
    const bearer = {
      Authorization: `Bearer ${token({ sub: 'carl', rooms, autojoin: ['staff.2'] })}`,
    };
    const client = await open(t, '', { headers: bearer }, where);
    // The token joins a room that onJoin denies.
    assert.deepEqual(await client.next('left'), {
      type: 'left',
      room: 'staff.2',
      reason: 'permission',
    });
    await client.ask({ type: 'join', room: 'news' }, 'joined');
    client.send({ type: 'message', room: 'news', payload: { do: 'change' } });
    assert.equal((await client.next('message')).payload.data.user, 'carl');
    const both = await upgrade(where.port, '/ws', { ...bearer, cookie: 'session=ann' });
    assert.equal(both.status, 503);
    // A user of onConnect counts as authenticated.
    const ann = await open(t, '', as('ann'), where);
    assert.equal((await ann.ask({ type: 'hello' }, 'welcome')).userId, 'ann');
    const nobody = await open(t, '', {}, where);
    assert.equal(
      (await nobody.ask({ type: 'join', room: 'x' }, 'joined')).error,
      'PERMISSION_DENIED',
    );
  });

  for (const mode of /** @type {const} */ (['required', 'optional'])) {
    test(
      `a token that comes in a command asks onConnect about its user (${mode})`,
      limit,
      async (t) => {
        const where = await withTokens[mode]();
        const rooms = { join: ['*'], publish: ['*'] };
        const of = (/** @type {string} */ sub) => token({ sub, rooms });
        for (const type of ['hello', 'auth']) {
          for (const [user, error, code] of /** @type {const} */ ([
            ['banned', 'PERMISSION_DENIED', 4506],
            ['unlucky', 'UNAVAILABLE', 1013],
          ])) {
            const client = await open(t, '', {}, where);
            client.send({ type, token: of(user), id: 1 });
            const refused = await client.next('error');
            assert.equal(refused.error, error);
            if (user === 'banned') assert.equal(refused.message, 'you are banned');
            await until(() => client.close !== null);
            assert.equal(client.close?.code, code);
            assert.equal(client.messages.length, 1, JSON.stringify(client.messages));
          }
        }
        const carl = await open(t, '?room=7', {}, where);
        const own = of('carl');
        // These commands wait for the hook.
        carl.send({ type: 'hello', token: own, id: 1 });
        carl.send({ type: 'join', room: 'news' });
        carl.send({ type: 'message', room: 'news', payload: { do: 'change' } });
        const { from, payload } = await carl.next('message');
        assert.equal(from, 'carl');
        assert.deepEqual(
          [payload.by, payload.data.user, payload.data.token, payload.data.address],
          ['carl', 'carl', own, '127.0.0.1'],
        );
        // A renewal is of the same user, whom onConnect has let in.
        const other = await carl.ask({ type: 'auth', token: of('banned'), id: 2 }, 'authenticated');
        assert.equal(other.error, 'PERMISSION_DENIED');
        assert.match(other.message, /^The token names another user/);
        const renewed = await carl.ask({ type: 'auth', token: of('carl'), id: 3 }, 'authenticated');
        assert.equal(renewed.userId, 'carl');
      },
    );
  }

  test(
    'the client library, which sends its token in hello, is refused by onConnect',
    limit,
    async (t) => {
      const where = await withTokens.required();
      /** @param {string} sub */
      const connectAs = (sub) => {
        const client = new Fanfare(`ws://127.0.0.1:${where.port}`, {
          token: token({ sub, rooms: { join: ['*'] } }),
        });
        t.after(() => client.close());
        return client;
      };
      const banned = connectAs('banned');
      const errors = /** @type {any[]} */ ([]);
      banned.on('error', (/** @type {any} */ error) => errors.push(error));
      banned.join('news');
      await until(() => banned.state === 'closed');
      assert.deepEqual(errors.map(({ code, closeCode }) => [code, closeCode]).at(-1), [
        'REFUSED',
        4506,
      ]);
      const carl = connectAs('carl');
      carl.join('news');
      await until(() => carl.state === 'connected');
    },
  );

  test('the HTTP API acts on users of onConnect', limit, async (t) => {
    const client = await open(t, '', as('ann'));
    await client.ask({ type: 'join', room: 'news' }, 'joined');
    /** @param {string} path @param {object} body */
    const call = async (path, body) => {
      const response = await fetch(`http://127.0.0.1:${server.port}/api/${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      assert.equal(response.status, 200, await response.clone().text());
    };
    // It calls no hook.
    await call('publish', { room: 'news', payload: { do: 'deny' } });
    assert.deepEqual((await client.next('message')).payload, { do: 'deny' });
    await call('disconnect', { user: 'ann' });
    await until(() => client.close !== null);
  });
}

/** @param {import('../helpers/clients.js').Client} client @param {string} type */
async function next(client, type) {
  const found = client.messages.find((message) => message.type === type);
  return (found ?? (await client.next(type))).payload;
}

/**
 * The answer to a handshake that is refused.
 * @param {number} port @param {string} path @param {Record<string, string>} [headers]
 */
async function upgrade(port, path, headers = {}) {
  /** @type {import('node:http').IncomingMessage} */
  const response = await new Promise((resolve, reject) => {
    const handshake = request({
      port,
      path,
      headers: {
        ...headers,
        connection: 'upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
      },
    });
    handshake.on('response', resolve);
    handshake.on('upgrade', (answer, socket) => {
      socket.destroy();
      resolve(answer);
    });
    handshake.on('error', reject);
    handshake.end();
  });
  response.resume();
  return {
    status: response.statusCode,
    headers: new Headers(/** @type {any} */ (response.headers)),
  };
}
