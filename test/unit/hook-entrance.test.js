// hook-entrance.test.js: onConnect and onDisconnect around the authentication, without a server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Authentication } from '../../src/auth/authentication.js';
import { Identity } from '../../src/auth/claims.js';
import { Sessions } from '../../src/auth/sessions.js';
import { UserPlaces } from '../../src/auth/user-places.js';
import { deferred } from '../../src/backend/deferred.js';
import { loadConfig } from '../../src/config/config.js';
import { HookEntrance } from '../../src/hooks/entrance.js';
import { Hooks } from '../../src/hooks/hooks.js';
import { Connection } from '../../src/hub/connection.js';
import { createAuthCounters, createHookCounters } from '../../src/observability/counters.js';
import { NATIVE_TEXTS } from '../../src/protocol/door-texts.js';
import { createBasics } from '../../src/worker/basics.js';
import { createCloseAll } from '../../src/worker/close-all.js';
import { createEntry } from '../../src/worker/entry.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { FakeTransport } from '../helpers/fake-transport.js';

/** @typedef {import('../../src/auth/credentials.js').Credentials} Credentials */

/**
 * @param {import('../../src/hooks/types.js').Hooks} functions
 * @param {{places?: any, authentication?: any}} [parts]
 */
function build(functions, { places, authentication = null } = {}) {
  const { config } = loadConfig(
    places === undefined ? { FANFARE_MAX_CONNECTIONS_PER_USER_MODE: 'off' } : {},
  );
  assert.ok(config);
  const counters = createAuthCounters();
  const hookCounters = createHookCounters();
  const added = /** @type {Connection[]} */ ([]);
  const gone = /** @type {(string|null)[]} */ ([]);
  const refused = /** @type {import('../../src/protocol/refusal.js').Refusal[]} */ ([]);
  const hooks = new Hooks({
    functions: { onDisconnect: ({ user }) => void gone.push(user), ...functions },
    timeoutMs: 60_000,
    concurrency: 10,
    maxPayloadBytes: 100,
    counters: hookCounters,
    observe() {},
    turn: new Turn(),
    log: { warn() {} },
  });
  const sessions = new Sessions({
    revocations: { isRevoked: () => false },
    counters,
    closeAll: createCloseAll(new Turn()),
  });
  const entrance = new HookEntrance({
    hooks,
    authentication,
    sessions,
    userPlaces: new UserPlaces({ config, places, counters }),
    hub: {
      addConnection: (connection) => void added.push(connection),
      removeConnection: (connection) => connection.markClosed(),
    },
  });
  entrance.listen((_connection, refusal) => void refused.push(refusal));
  const check = (headers = {}, url = '/ws') =>
    /** @type {Promise<Credentials>} */ (
      entrance.checkToken(/** @type {any} */ ({ headers, url }), '192.0.2.1')
    );
  const enter = (/** @type {Credentials} */ credentials) => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '192.0.2.1');
    entrance.admitConnection(connection, credentials);
    return { connection, transport };
  };
  return {
    ...{ entrance, check, enter, sessions, hookCounters, counters },
    ...{ added, gone, refused },
  };
}

test('onConnect gets the request', async () => {
  /** @type {any} */
  let seen;
  const { check } = build({ onConnect: (request) => void (seen = request) });
  await check({ cookie: 'a=1', authorization: 'Bearer secret' }, '/ws?room=1&room=2');
  const { headers, query, ...rest } = seen;
  assert.equal(headers.cookie, 'a=1');
  assert.deepEqual(query.getAll('room'), ['1', '2']);
  assert.deepEqual(rest, {
    address: '192.0.2.1',
    token: 'secret',
    user: null,
    transport: 'websocket',
  });
});

test('a connection with a user of onConnect has a session with all rights but broadcasts', async () => {
  const { check, enter, added, entrance, gone, counters } = build({
    onConnect: () => ({ user: 'ann', info: { a: 1 } }),
  });
  const credentials = await check();
  const { connection } = enter(credentials);
  const { session } = connection;
  assert.deepEqual(added, [connection]);
  assert.equal(session?.user, 'ann');
  assert.deepEqual(
    [session.mayJoin('x'), session.hasRight('publish', 'x'), session.hasRight('history', 'x')],
    [true, true, true],
  );
  assert.equal(session.mayBroadcast, false);
  entrance.leave(connection);
  credentials.lease?.release();
  assert.deepEqual([gone, counters.sessions, connection.session.user], [['ann'], 0, '']);
});

test('tokens do not apply to another door; the hooks do, and get its name', async () => {
  const door = { ...NATIVE_TEXTS, name: 'pusher', usesTokens: false };
  const { config } = loadConfig({ JWT_SECRET: 'a secret of at least 32 characters' });
  assert.ok(config);
  const lobby = /** @type {Connection[]} */ ([]);
  const hubbed = /** @type {Connection[]} */ ([]);
  const authentication = new Authentication({
    config,
    verifier: /** @type {any} */ ({ verify: () => assert.fail('a token is verified') }),
    sessions: /** @type {any} */ ({}),
    lobby: /** @type {any} */ ({
      admitGuest: (/** @type {Connection} */ one) => void lobby.push(one),
    }),
    hub: { addConnection: (one) => void hubbed.push(one), removeConnection() {} },
    places: /** @type {any} */ (null),
    counters: createAuthCounters(),
    log: { error() {} },
  });
  /** @type {any} */
  let seen;
  /** @type {any} */
  let joining;
  const { entrance } = build(
    {
      onConnect: (request) => void (seen = request),
      onJoin: (connection) => void (joining = connection),
    },
    { authentication },
  );
  const request = /** @type {any} */ ({
    headers: { authorization: 'Bearer not-ours' },
    url: '/app/key?token=x',
  });
  const credentials = await entrance.checkToken(request, '192.0.2.1', door);
  assert.deepEqual([seen.transport, seen.token, seen.user], ['pusher', null, null]);
  const transport = new FakeTransport();
  transport.door = door;
  const connection = new Connection(transport, '192.0.2.1');
  entrance.admitConnection(connection, credentials);
  assert.deepEqual([hubbed, lobby], [[connection], []], 'although tokens are required');
  await entrance.callFor('onJoin', connection, ['room']);
  assert.equal(joining.transport, 'pusher');
  // The native door beside it.
  const native = new Connection(new FakeTransport(), '192.0.2.1');
  authentication.admitConnection(native, null);
  assert.deepEqual(lobby, [native]);
});

test('a denied connection is closed with 4506, and has no onDisconnect', async () => {
  const { check, enter, added, refused, gone } = build({ onConnect: () => ({ deny: 'no' }) });
  const credentials = await check();
  const { transport } = enter(credentials);
  assert.deepEqual([refused[0].code, refused[0].message], ['DENIED', 'no']);
  assert.equal(transport.closed?.code, 4506);
  credentials.lease?.release();
  assert.deepEqual([added, gone], [[], []]);
});

test('a client that is gone before its connection opens has its onDisconnect, once', async () => {
  const { promise, resolve } = deferred();
  const { check, gone } = build({ onConnect: () => promise.then(() => ({ user: 'ann' })) });
  const checked = check();
  resolve(undefined);
  const { lease } = await checked;
  lease?.release();
  lease?.release();
  assert.deepEqual(gone, ['ann']);
});

test('connections of a user of onConnect count for the limit per user', async () => {
  /** @type {[string, number][]} */
  const acquired = [];
  const released = /** @type {string[]} */ ([]);
  const places = {
    acquire: async (/** @type {string} */ key, /** @type {number} */ cap) => {
      acquired.push([key.slice(0, 5), cap]);
      return { admitted: acquired.length === 1, connections: acquired.length };
    },
    release: (/** @type {string} */ key) => void released.push(key.slice(0, 5)),
  };
  const { check, enter, refused, gone } = build({ onConnect: () => ({ user: 'ann' }) }, { places });
  const first = await check();
  enter(first);
  const { transport } = enter(await check());
  assert.deepEqual(acquired, [
    ['user:', 100],
    ['user:', 100],
  ]);
  assert.equal(refused[0].code, 'USER_LIMIT');
  assert.equal(transport.closed?.code, 4009);
  assert.deepEqual(gone, ['ann']); // its onConnect had allowed
  first.lease?.release();
  assert.deepEqual(released, ['user:']);
});

test('a sign-in ends the session of a user of onConnect, and not the connection', async () => {
  const released = /** @type {string[]} */ ([]);
  const places = {
    acquire: async () => ({ admitted: true, connections: 1 }),
    release: (/** @type {string} */ key) => void released.push(key.slice(0, 5)),
  };
  const { check, enter, entrance, sessions, gone } = build(
    { onConnect: () => ({ user: 'guest' }) },
    { places },
  );
  const credentials = await check();
  const { connection } = enter(credentials);
  sessions.end(connection);
  sessions.begin(connection, Identity.named('ann', null), null);
  assert.deepEqual([released, gone], [['user:'], []]);
  entrance.leave(connection);
  credentials.lease?.release();
  assert.deepEqual([released, gone], [['user:'], ['ann']]);
});

test('if places cannot be counted, the connection is refused, and can come again', async () => {
  const places = { acquire: () => Promise.reject(new Error('the relay is away')), release() {} };
  const { check } = build({ onConnect: () => ({ user: 'ann' }) }, { places });
  const { refusal } = await check();
  assert.equal(refusal?.code, 'HOOK_FAILED');
  assert.ok(Number(refusal?.retryAfterS) > 0);
});

test('a refused token calls no hook, and a hook that renames a user has failed', async () => {
  let calls = 0;
  const released = /** @type {number[]} */ ([]);
  const lease = { key: '', release: () => void released.push(1) };
  const identity = /** @type {any} */ ({ user: 'carl', info: null, rights: {}, autojoin: [] });
  /** @type {Credentials} */
  let ofToken = { identity: null, lease: null, refusal: /** @type {any} */ ({ error: 'x' }) };
  const { check, hookCounters } = build(
    {
      onConnect: ({ user }) => {
        calls++;
        return { user: user === 'carl' ? 'eve' : 'ann' };
      },
    },
    { authentication: { isRequired: true, checkToken: () => ofToken } },
  );
  assert.equal(await check(), ofToken);
  assert.equal(calls, 0);
  ofToken = { identity, lease, refusal: null };
  assert.equal((await check()).refusal?.code, 'HOOK_FAILED');
  assert.deepEqual([released, hookCounters.failures['onConnect,answer']], [[1], 1]);
});

test('a connection without a token and a user goes the way of the authentication', async () => {
  const entered = /** @type {unknown[]} */ ([]);
  const authentication = {
    isRequired: true,
    checkToken: () => null,
    admitConnection: (/** @type {unknown} */ _connection, /** @type {unknown} */ credentials) =>
      void entered.push(credentials),
  };
  const { check, enter, added } = build({ onConnect: () => true }, { authentication });
  enter(await check());
  assert.deepEqual([entered, added], [[null], []]);
});

test('a token that is revoked while onConnect is asked does not keep the next one from it', async (t) => {
  const asked = /** @type {(string|null)[]} */ ([]);
  const { check, enter, entrance, sessions } = build(
    { onConnect: ({ user }) => void asked.push(user) },
    { authentication: { isRequired: false, checkToken: () => null, admitConnection() {} } },
  );
  const { connection } = enter(await check());
  const tokenOf = (/** @type {string} */ user) =>
    entrance.confirm(
      connection,
      'token',
      /** @type {any} */ ({ identity: { user }, refusal: null }),
    );
  t.mock.method(sessions, 'isRevoked', ({ user = '' }) => user === 'ann');
  await tokenOf('ann');
  await tokenOf('bob');
  await tokenOf('carl');
  assert.deepEqual(asked, [null, 'ann', 'bob']);
});

test('with hooks that name no users, one who has signed in through another door leaves', async () => {
  const path = fileURLToPath(new URL('../helpers/hooks/state.js', import.meta.url));
  const { config } = loadConfig({ FANFARE_HOOKS: path });
  assert.ok(config);
  const log = /** @type {any} */ ({ warn() {} });
  const basics = createBasics({ config, log, phase: new Phase(), slot: 0 });
  const hub = {
    removeConnection: (/** @type {Connection} */ connection) => connection.markClosed(),
  };
  const delivery = /** @type {any} */ ({ hub, backend: { addresses: {}, reporter: null } });
  const { entrance, sessions, userSessions } = await createEntry(basics, delivery);
  assert.equal(sessions, null);
  const connection = new Connection(new FakeTransport(), '192.0.2.1');
  userSessions.begin(connection, Identity.named('ann', null), null);
  entrance?.leave(connection);
  assert.equal(userSessions.users, 0);
});
