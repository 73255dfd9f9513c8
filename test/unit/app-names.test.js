// app-names.test.js: names of the rooms and users of an app, on the wire and inside the server, and
// the sessions and places of tokens that name an app.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AppPlaces } from '../../src/auth/app-places.js';
import { readIdentity } from '../../src/auth/claims.js';
import { AppSession, Session } from '../../src/auth/session.js';
import { TokenError } from '../../src/auth/token-error.js';
import { readPusherSettings } from '../../src/config/pusher-apps.js';
import { fits } from '../../src/config/room-patterns.js';
import { readText } from '../../src/config/texts.js';
import { createCounters } from '../../src/observability/counters.js';
import { AppNames, isOfApp, namesOf, wireName } from '../../src/protocol/app-names.js';
import { isRoom } from '../../src/protocol/decode.js';
import {
  encodeJoined,
  encodeLeaveReply,
  encodeLeft,
  encodeResync,
  historyPrefix,
} from '../../src/protocol/encode.js';
import {
  publicationFrames,
  readHeader,
  roomOfPrefix,
  roomPrefix,
} from '../../src/protocol/frame.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { channelOf, roomOf, roomOfUser } from '../../src/protocol/pusher-channels.js';

const [OWN, OTHER, SHARED] = [
  { id: '1', isShared: false },
  { id: 'app-1', isShared: false },
  { id: '3', isShared: true },
];
const NATIVE = [...'abuxyzABC019_.:@/-'];
const names = fc.oneof(
  fc.string({ unit: fc.constantFrom(...NATIVE), minLength: 1, maxLength: 200 }),
  fc.constantFrom('u:7', 'u', ':', '::', '/e1', '/x41', '/', '1:a', '__proto__', 'presence-x'),
);
const CHANNEL = [...'abuxyzABC019-_=@,.;'];
const channels = fc.string({ unit: fc.constantFrom(...CHANNEL), minLength: 1, maxLength: 100 });
const users = fc.string({ unit: 'binary', minLength: 1, maxLength: 40 });

test('a name and its room stand for each other, on the wire as well', () => {
  fc.assert(
    fc.property(names, fc.constantFrom(OWN, OTHER, SHARED), (name, app) => {
      const { roomOf: toRoom, nameOf } = namesOf(app);
      const room = toRoom(name);
      assert.ok(isRoom(name));
      assert.equal(nameOf(room), name);
      assert.equal(wireName(room), name);
      assert.equal(isRoom(room), app.isShared, 'no native name is a room of an app');
    }),
  );
});

test('no name reaches a room of another app, of a user or of native clients', () => {
  fc.assert(
    fc.property(names, names, users, channels, (one, other, user, channel) => {
      const [own, foreign] = [namesOf(OWN), namesOf(OTHER)];
      assert.notEqual(own.roomOf(one), foreign.roomOf(other));
      assert.notEqual(own.roomOf(one), other);
      assert.notEqual(own.roomOf(one), roomOfUser(OWN, user));
      for (const room of [foreign.roomOf(one), one, roomOf(OTHER, channel), roomOfUser(OWN, user)])
        assert.equal(own.nameOf(room), null, room);
      assert.equal(namesOf(SHARED).nameOf(own.roomOf(one)), null);
    }),
  );
});

test('the room of a prefix is the prefix of the rooms', () => {
  fc.assert(
    fc.property(names, names, (head, rest) => {
      const { roomOf: toRoom } = namesOf(OWN);
      const room = toRoom(`${head}${rest}`.slice(0, 200));
      assert.ok(room.startsWith(toRoom(head.slice(0, 200))));
      assert.ok(room.startsWith(toRoom('')));
    }),
  );
});

test('a channel is the native room of the same name, with its escapes', () => {
  fc.assert(
    fc.property(channels, fc.constantFrom(OWN, SHARED), (channel, app) => {
      const room = roomOf(app, channel);
      const name = namesOf(app).nameOf(room);
      assert.ok(name !== null && isRoom(name));
      assert.equal(channelOf(namesOf(app).roomOf(name)), channel);
      if (/^[\w@.-]+$/.test(channel)) assert.equal(name, channel);
    }),
  );
  assert.equal(channelOf(namesOf(OWN).roomOf('chat/e1')), 'chat=1');
  for (const name of ['chat:1', 'chat/1', 'u:7', '/x41', 'a/b/e'])
    assert.equal(channelOf(namesOf(OWN).roomOf(name)), null, name);
});

test('patterns of cache, presence and user rooms fit only such rooms of an app', () => {
  for (const name of ['x:presence-a', 'x:cache-a', 'u:7', 'a:u:7'])
    for (const pattern of ['~*:presence-*', '~*:cache-*', '~*:u:*'])
      assert.equal(fits(pattern.split('*'), namesOf(OWN).roomOf(name)), false, name);
  assert.ok(fits('~*:presence-*'.split('*'), namesOf(OWN).roomOf('presence-a:b')));
});

test('users of two apps and native ones never have the same name inside', () => {
  fc.assert(
    fc.property(users, users, (one, other) => {
      const { userOf, nameOfUser } = namesOf(OWN);
      assert.equal(nameOfUser(userOf(one)), one);
      assert.notEqual(userOf(one), namesOf(OTHER).userOf(other));
      assert.ok(isOfApp(userOf(one)));
      if (!isOfApp(other)) assert.notEqual(userOf(one), other);
    }),
  );
  assert.ok(namesOf(OWN) instanceof AppNames);
});

test('replies and frames show the bare name, and a prefix still tells its room', () => {
  const room = '~1:chat~42';
  const position = { epoch: 'e'.repeat(16), offset: 1, recovered: true, replayed: 0, first: 1 };
  for (const text of [
    encodeLeaveReply(room, 1),
    encodeLeft(room, 'removed'),
    encodeJoined(room, position, undefined, false),
    encodeResync(room, position.epoch, 1, 0),
    `${historyPrefix(room)}]}`,
  ])
    assert.equal(JSON.parse(text).room, 'chat:42', text);
  const prefix = roomPrefix(room);
  const publication = encodePublication(KIND.MESSAGE, 0, 0, 'ann', Buffer.from('7'), 0, 1);
  const frames = publicationFrames(prefix, [publication]);
  const { start, length } = readHeader(frames, 0);
  assert.equal(JSON.parse(frames.toString('utf8', start, start + length)).room, 'chat:42');
  assert.equal(roomOfPrefix(prefix), room);
  assert.equal(roomOfPrefix(roomPrefix('chat:42')), 'chat:42');
});

/** @param {Record<string, unknown>[]} entries */
function appsOf(...entries) {
  const byId = new Map();
  for (const { id, key = `key-${id}`, ...fields } of entries) {
    const values = { pusherAppId: id, pusherAppKey: key, pusherAppSecret: 'x'.repeat(32) };
    const bounds = { maxMessageBytes: 65_536, apiMaxBodyBytes: 65_536, presenceMaxMembers: 1000 };
    const { pusher } = readPusherSettings({ ...values, ...bounds }, readText);
    byId.set(id, Object.freeze({ ...pusher?.apps[0], ...fields }));
  }
  return byId;
}

const nowS = Math.floor(Date.now() / 1000);
const settings = { audience: [], issuer: [], maxLifetimeS: 86_400 };
const apps = appsOf({ id: '1' }, { id: '2', isEnabled: false }, { id: '3', isShared: true });

/** @param {Record<string, unknown>} claims */
const identityOf = (claims, known = /** @type {typeof apps|null} */ (apps)) =>
  readIdentity({ sub: 'ann', iat: nowS, exp: nowS + 60, ...claims }, nowS, settings, known);

/** @param {Record<string, unknown>} claims @param {typeof apps|null} [known] */
const reasonOf = (claims, known) => {
  try {
    identityOf(claims, known);
  } catch (error) {
    assert.ok(error instanceof TokenError);
    return error.reason;
  }
  return 'accepted';
};

test('a token of an app that is unknown or disabled is refused, also on a server without apps', () => {
  assert.equal(reasonOf({ app: '1' }), 'accepted');
  assert.equal(reasonOf({ app: '2' }), 'app');
  assert.equal(reasonOf({ app: '9' }), 'app');
  assert.equal(reasonOf({ app: '__proto__' }), 'app');
  assert.equal(reasonOf({ app: '1' }, null), 'app');
  assert.equal(new TokenError('app').code, 'NO_APP');
  for (const app of [1, null, '', ['1'], {}, true])
    assert.ok(['app', 'claims'].includes(reasonOf({ app })), JSON.stringify(app));
});

test('a token of an app cannot broadcast, and others cannot have the names of its users', () => {
  assert.equal(reasonOf({ app: '1', broadcast: true }), 'claims');
  assert.equal(reasonOf({ sub: '~1:ann' }), 'claims');
  assert.equal(reasonOf({ jti: '~1:x' }), 'claims');
  assert.equal(reasonOf({ sub: '~ann' }), 'accepted');
  assert.equal(reasonOf({ sub: '~1:ann' }, null), 'accepted');
  assert.equal(reasonOf({ app: '1', sub: '~2:ann' }), 'accepted');
  assert.equal(identityOf({ app: '1', sub: '~2:ann' }).user, '~1:~2:ann');
});

test('the session of an app maps names once, and has its rights in rooms of the app only', () => {
  const rooms = { join: ['chat:*'], publish: ['chat:1'], presence: ['*'], history: [] };
  const identity = identityOf({ app: '1', jti: 't', rooms, autojoin: ['home'] });
  assert.deepEqual([identity.user, identity.tokenId, identity.name], ['~1:ann', '~1:t', 'ann']);
  const session = new AppSession(identity, null, 0);
  assert.deepEqual([session.user, session.name, session.sender], ['~1:ann', 'ann', 'ann']);
  assert.equal(session.validRoomOf('chat:1'), '~1:chat~1');
  for (const name of ['~1:chat~1', '~12:chat', '*', '', 7, null, 'a'.repeat(201)])
    assert.equal(session.validRoomOf(name), null);
  const may = (/** @type {string} */ room) => [
    session.mayJoin(room),
    session.hasRight('publish', room),
    session.hasRight('presence', room),
    session.hasRight('history', room),
  ];
  assert.deepEqual(may('~1:chat~1'), [true, true, true, false]);
  assert.deepEqual(may('~1:chat~2'), [true, false, true, false]);
  assert.deepEqual(may('~1:home'), [true, false, true, false]);
  for (const room of ['chat:1', '~12:chat~1', '~1:u:ann', 'home', '~2:chat~1']) {
    session.grant(room);
    assert.deepEqual(may(room), [false, false, false, false], room);
  }
  const plain = new Session(identityOf({ rooms }), null, 0);
  assert.equal(plain.validRoomOf('chat:1'), 'chat:1');
  assert.equal(plain.app, null);
});

test('the session of a shared app has native rooms, and does not pass for a native user', () => {
  const session = new AppSession(identityOf({ app: '3', rooms: { join: ['a'] } }), null, 0);
  assert.equal(session.validRoomOf('a'), 'a');
  assert.deepEqual([session.mayJoin('a'), session.mayJoin('~1:a')], [true, false]);
  assert.deepEqual([session.name, session.sender], ['ann', '~3:ann']);
});

test('a place of an app is counted, refused above its limit, and given back once', async () => {
  const counters = createCounters(['1']);
  /** @type {string[]} */
  const calls = [];
  let isFull = false;
  /** @type {any} */
  const places = {
    acquire: async (/** @type {string} */ key, /** @type {number} */ cap) => {
      calls.push(`${key} ${cap}`);
      if (calls.length > 2) throw new Error('the primary is gone');
      return { admitted: !isFull, connections: 1 };
    },
    release: (/** @type {string} */ key) => void calls.push(`release ${key}`),
  };
  const limited = appsOf({ id: '1', maxConnections: 2 }).get('1');
  const config = { pingIntervalMs: 30_000, pongTimeoutMs: 10_000 };
  const own = new AppPlaces({
    ...{ config, places, counters: counters.auth, appCounters: counters.apps },
  });
  let released = 0;
  const credentials = () => ({
    identity: identityOf({ app: '1' }),
    lease: { key: 'user:x', release: () => void released++ },
    refusal: null,
  });
  const { lease } = await own.takePlace(limited, credentials());
  assert.equal(counters.apps.connections['1'], 1);
  assert.equal(lease?.key, 'user:x');
  isFull = true;
  const refused = await own.takePlace(limited, credentials());
  assert.deepEqual([refused.refusal?.code, refused.identity], ['APP_LIMIT', null]);
  assert.deepEqual([counters.auth.closes.app_limit, released], [1, 1]);
  await assert.rejects(own.takePlace(limited, credentials()), /gone/);
  assert.equal(released, 2);
  lease?.release();
  lease?.release();
  assert.deepEqual([released, counters.apps.connections['1']], [3, 0]);
  assert.deepEqual(calls, ['app:1 2', 'app:1 2', 'app:1 2', 'release app:1']);
});
