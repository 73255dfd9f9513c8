// centrifugo-tokens.test.js: claims of Centrifugo's tokens, ids of clients, names of channels and the
// codes of the door (doors/centrifugo/codec/tokens.js, client-id.js, channels.js, codes.js).

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { TokenError } from '../../src/auth/token-error.js';
import {
  channelFault,
  channelOf,
  isPrivate,
  roomOf,
  roomPatternsOf,
  usersOf,
} from '../../src/doors/centrifugo/codec/channels.js';
import { clientOf, idOf, isClient } from '../../src/doors/centrifugo/codec/client-id.js';
import {
  closeOf,
  DISCONNECTS,
  errorOfRefusal,
  UNSUBSCRIBED,
} from '../../src/doors/centrifugo/codec/codes.js';
import { connectionReader, subscriptionReader } from '../../src/doors/centrifugo/codec/tokens.js';
import { CLOSES, ERRORS } from '../../src/protocol/codes.js';
import { isRoom } from '../../src/protocol/decode.js';
import { refusal } from '../../src/protocol/refusal.js';

const NOW_S = 1_800_000_000;
const SETTINGS = Object.freeze({ audience: [], issuer: [], maxLifetimeS: 604_800 });
const VALID = Object.freeze({ sub: 'alice', exp: NOW_S + 100 });

/** @param {Record<string, unknown>} claims @param {boolean} [isLenient] */
const read = (claims, isLenient = false) =>
  /** @type {import('../../src/doors/centrifugo/codec/tokens.js').ChannelIdentity} */ (
    connectionReader(isLenient)(claims, NOW_S, SETTINGS)
  );

/** @param {() => unknown} act @returns {string} why a token is refused; '': it is not */
function reasonOf(act) {
  try {
    act();
    return '';
  } catch (error) {
    assert.ok(error instanceof TokenError, inspect(error));
    assert.ok(error.claim !== '', `${error.why} names no claim`);
    if (error.reason === 'claims') assert.match(error.why, /^claim [a-z0-9_]+: /);
    return error.reason;
  }
}

test('connection tokens: user, end, information', () => {
  const { user, endS, expiresAtMs, info, tokenId, issuedAtMs } = read({
    ...VALID,
    jti: 'id',
    iat: NOW_S - 10,
    info: { a: 1 },
  });
  assert.deepEqual([user, endS, tokenId], ['alice', NOW_S + 100, 'id']);
  assert.equal(expiresAtMs, (NOW_S + 125) * 1000, '25 s for the next one');
  assert.equal(issuedAtMs, (NOW_S - 10) * 1000);
  assert.equal(String(info), '{"a":1}');
  const b64info = Buffer.from('{"b": 2}').toString('base64');
  assert.equal(String(read({ ...VALID, b64info }).info), '{"b":2}');
  assert.equal(read({ ...VALID, expire_at: NOW_S + 9 }).endS, NOW_S + 9);
  assert.equal(read({ ...VALID, expire_at: 0 }).expiresAtMs, Number.POSITIVE_INFINITY);
  assert.equal(read(VALID).issuedAtMs, 0, 'any revocation of the user ends it');
});

test('values for clients keep the text of their signer', () => {
  const text = `{"sub":9007199254740993,"exp":${NOW_S + 100},
    "info": {"id":653247040368672761, "price":1.10,\n"big":1e400,"name":"\\u00e4 \\" x"},
    "subs":{"a":{"data":{"n":1.10}},"\\u0062":{"b64data":"${Buffer.from('{"n": 1.10}').toString('base64')}"},"c":{}}}`;
  const source = Buffer.from(text);
  const claims = JSON.parse(text);
  const { user, info, subscriptions } =
    /** @type {import('../../src/doors/centrifugo/codec/tokens.js').ChannelIdentity} */ (
      connectionReader(false)(claims, NOW_S, SETTINGS, null, source)
    );
  assert.equal(user, '9007199254740993');
  const expected = '{"id":653247040368672761,"price":1.10,"big":1e400,"name":"ä \\" x"}';
  assert.equal(String(info), expected);
  const data = [...subscriptions].map(([channel, { data }]) => [channel, data && String(data)]);
  assert.deepEqual(data, [
    ['a', '{"n":1.10}'],
    ['b', '{"n":1.10}'],
    ['c', null],
  ]);
  const own = `{"sub":"a","exp":${NOW_S + 100},"channel":"x","data":[1.10, -0]}`;
  const subscription =
    /** @type {import('../../src/doors/centrifugo/codec/tokens.js').SubscriptionIdentity} */ (
      subscriptionReader(false)(JSON.parse(own), NOW_S, SETTINGS, null, Buffer.from(own))
    );
  assert.equal(String(subscription.data), '[1.10,-0]');
});

test('a token that names an app, or has the name of one of its users, is refused', () => {
  const apps = new Map([['1', /** @type {any} */ ({ id: '1', isShared: false, isEnabled: true })]]);
  for (const [reader, claims] of /** @type {const} */ ([
    [connectionReader(true), VALID],
    [subscriptionReader(true), { ...VALID, channel: 'news' }],
  ])) {
    const reason = (/** @type {Record<string, unknown>} */ more, known = apps) =>
      reasonOf(() => reader({ ...claims, ...more }, NOW_S, SETTINGS, known));
    assert.equal(reason({}), '');
    for (const app of ['1', '2']) assert.equal(reason({ app }), 'app');
    assert.equal(reason({ sub: '~1:alice' }), 'claims');
  }
});

test('connection tokens that are refused, and what lenient ones may leave out', () => {
  for (const [
    claims,
    strict,
    lenient,
  ] of /** @type {[Record<string, unknown>, string, string][]} */ ([
    [{ ...VALID, sub: undefined }, 'claims', ''],
    [{ ...VALID, sub: '' }, 'claims', ''],
    [{ ...VALID, exp: undefined }, 'claims', ''],
    [{ ...VALID, exp: NOW_S + 1e7 }, 'lifetime', ''],
    [{ ...VALID, exp: NOW_S - 60 }, 'expired', 'expired'],
    [{ ...VALID, nbf: NOW_S + 60 }, 'not_yet_valid', 'not_yet_valid'],
    [{ ...VALID, iat: NOW_S + 60 }, 'not_yet_valid', 'not_yet_valid'],
    [{ ...VALID, iat: 'now' }, 'claims', 'claims'],
    [{ ...VALID, expire_at: -1 }, 'claims', 'claims'],
    [{ ...VALID, sub: 7 }, '', ''],
    [{ ...VALID, sub: 7.5 }, 'claims', 'claims'],
    [{ ...VALID, sub: true }, 'claims', 'claims'],
    [{ ...VALID, sub: 'x'.repeat(129) }, 'claims', 'claims'],
    [{ ...VALID, jti: '' }, 'claims', 'claims'],
    [{ ...VALID, info: 'x'.repeat(1025) }, 'claims', 'claims'],
    [{ ...VALID, b64info: '{' }, 'claims', 'claims'],
    [{ ...VALID, b64info: 'AAAA' }, 'claims', 'claims'],
    [{ ...VALID, channels: 'a' }, 'claims', 'claims'],
    [{ ...VALID, channels: ['a', 7] }, 'claims', 'claims'],
    [{ ...VALID, channels: ['a b'] }, 'claims', 'claims'],
    [{ ...VALID, channels: Array.from({ length: 101 }, (_, i) => `${i}`) }, 'claims', 'claims'],
    [{ ...VALID, subs: [] }, '', ''],
    [{ ...VALID, subs: { 'a b': {} } }, 'claims', 'claims'],
    [{ ...VALID, rooms: 'a' }, 'claims', 'claims'],
    [{ ...VALID, channel: 'news' }, 'kind', 'kind'],
    [{ ...VALID, channel: 'news', channels: ['news'] }, 'kind', 'kind'],
    [{ ...VALID, channel: '' }, '', ''],
    [{ ...VALID, caps: {} }, 'claims', 'claims'],
    [{ ...VALID, caps: [null] }, 'claims', 'claims'],
    [{ ...VALID, caps: [{ channels: ['a*'], allow: [] }] }, 'claims', 'claims'],
    [{ ...VALID, caps: [{ channels: [' '], allow: [] }] }, 'claims', 'claims'],
    [{ ...VALID, caps: [{ channels: ['.'], match: 'regex', allow: [] }] }, 'claims', 'claims'],
  ])) {
    assert.equal(
      reasonOf(() => read(claims)),
      strict,
      JSON.stringify(claims),
    );
    assert.equal(
      reasonOf(() => read(claims, true)),
      lenient,
      `lenient ${JSON.stringify(claims)}`,
    );
  }
});

test('caps and rooms together are the rights of a token', () => {
  const { rights, hasRights } = read({
    ...VALID,
    rooms: { join: ['n.*'] },
    caps: [
      { channels: ['a:*', '$b'], match: 'wildcard', allow: ['sub', 'hst', 'unknown'] },
      { channels: ['one'], allow: ['pub', 'prs'] },
    ],
  });
  assert.equal(hasRights, true);
  for (const channel of ['a:1', 'a:#1', '$b', 'n.1'])
    assert.ok(rights.join.has(roomOf(channel)), channel);
  for (const channel of ['b', 'one', 'a', '~'])
    assert.ok(!rights.join.has(roomOf(channel)), channel);
  assert.ok(rights.history.has('a:1') && !rights.history.has('n.1'));
  assert.ok(rights.publish.has('one') && rights.presence.has('one') && !rights.publish.has('ones'));
  assert.equal(read(VALID).hasRights, false);
});

test('subscription tokens name a channel; their user may be nobody', () => {
  const reader = subscriptionReader(false);
  const own = (/** @type {Record<string, unknown>} */ claims) =>
    /** @type {import('../../src/doors/centrifugo/codec/tokens.js').SubscriptionIdentity} */ (
      reader({ ...VALID, channel: '$a', ...claims }, NOW_S, SETTINGS)
    );
  const { user, channel, endS, data } = own({ data: [1] });
  assert.deepEqual([user, channel, endS, String(data)], ['alice', '$a', NOW_S + 100, '[1]']);
  assert.equal(own({ sub: undefined }).user, '');
  assert.equal(
    reasonOf(() => own({ channel: undefined })),
    'claims',
  );
  assert.equal(
    reasonOf(() => own({ channel: 'a b' })),
    'claims',
  );
  assert.equal(
    reasonOf(() => own({ exp: undefined })),
    'claims',
  );
});

test('ids of clients have the form of a UUID, and lead back', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 6, maxLength: 6 }), fc.nat(), (prefix, number) => {
      const id = Buffer.from(prefix).toString('base64url') + number.toString(36);
      const client = clientOf(id);
      assert.match(client, /^[0-9a-f]{8}-[0-9a-f]{4}-4000-8000-[0-9a-f]{12}$/);
      assert.equal(idOf(client), id);
      assert.ok(isClient(client) && !isClient(id));
    }),
  );
  for (const other of ['', 'alice', '00000000-0000-4000-8000-00000000000g', `${'0'.repeat(36)}`])
    assert.equal(idOf(other), null);
});

test('each channel has a room of its own, which leads back to it', () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1, maxLength: 40 }), (text) => {
      if (channelFault(text) !== null) return;
      const room = roomOf(text);
      assert.equal(channelOf(room), text);
      assert.ok(isRoom(room) === /^[A-Za-z0-9_.:@-]+$/.test(text), room);
    }),
    { numRuns: 2000 },
  );
  for (const room of ['~c:', '~c:a', '~c:/d/', '~1:a', 'a/b', '*', '~c:/2f', '~c:/s'])
    assert.equal(channelOf(room), null, room);
  assert.equal(channelFault(''), 'length');
  assert.equal(channelFault('x'.repeat(256)), 'length');
  assert.equal(channelFault('('.repeat(255)), 'length', 'of its room');
  for (const text of [' ', 'a b', '/', '*', '&', 'ü', '\u007f', 'a\n'])
    assert.equal(channelFault(text), 'characters', text);
  assert.deepEqual(
    [isPrivate('$a'), isPrivate('a:$b'), isPrivate('a$b'), isPrivate('a')],
    [true, true, false, false],
  );
  assert.deepEqual(
    [usersOf('a'), usersOf('a#1'), usersOf('a#1,2'), usersOf('a#')],
    [null, ['1'], ['1', '2'], ['']],
  );
  assert.deepEqual(roomPatternsOf('a:*'), ['a:*', '~c:a:*']);
  assert.deepEqual(roomPatternsOf('$a*'), ['~c:/da*']);
  assert.deepEqual(roomPatternsOf('a'), ['a']);
});

test('each close of the server has a code and a reason that clients act on rightly', () => {
  const stops = (/** @type {number} */ code) =>
    (code >= 3500 && code < 4000) || (code >= 4500 && code < 5000);
  for (const close of Object.values(CLOSES)) {
    const { code, reason } = closeOf(close);
    assert.notEqual(reason, '', `${close.code}: clients take it for a cut`);
    assert.ok(Buffer.byteLength(reason) <= 123);
    assert.equal(stops(code), close.code >= 4500, `${close.code} -> ${code}`);
  }
  const codes = Object.fromEntries(
    Object.entries(CLOSES).map(([name, close]) => [name, closeOf(close).code]),
  );
  assert.deepEqual(codes, {
    UNSUPPORTED_DATA: 1003,
    POLICY: 1008,
    INTERNAL: 1011,
    DRAIN: 3001,
    OVERLOAD: 1013,
    TOKEN_EXPIRED: 3005,
    TOKEN_NOT_YET_VALID: 4002,
    SLOW_CONSUMER: 3008,
    RATE_LIMITED: 3013,
    REBALANCE: 3011,
    AGE: 3011,
    ADDRESS_LIMIT: 4008,
    USER_LIMIT: 4009,
    APP_LIMIT: 4010,
    CLIENT_TIMEOUT: 4011,
    AUTH_TIMEOUT: 4502,
    INVALID_TOKEN: 3500,
    BAD_REQUESTS: 3501,
    KICKED: 3503,
    DENIED: 3507,
    ROOM_LIMIT: 3505,
  });
  const page = readFileSync(new URL('../../docs/centrifugo.md', import.meta.url), 'utf8');
  for (const { code } of [...Object.values(DISCONNECTS), ...Object.values(UNSUBSCRIBED)])
    assert.match(page, new RegExp(`\\b${code}\\b`), `${code} is documented`);
  const own = closeOf({ code: 4100, reason: 'ü'.repeat(100) });
  assert.deepEqual([own.code, own.reason], [4100, 'ü'.repeat(61)], 'of a backend');
});

test('each error of the server has a code, and only 100 and 111 are temporary', () => {
  const codes = Object.fromEntries(
    Object.keys(ERRORS).map((code) => {
      const error = errorOfRefusal(refusal(/** @type {keyof typeof ERRORS} */ (code)));
      return [code, error.temporary ? -error.code : error.code];
    }),
  );
  assert.deepEqual(codes, {
    INVALID_MESSAGE_FORMAT: 107,
    UNKNOWN_TYPE: 104,
    INVALID_ROOM: 102,
    ROOM_REQUIRED: -100,
    NOT_IN_ROOM: 103,
    ALREADY_JOINED: 105,
    ROOM_LIMIT: 106,
    RATE_LIMIT_EXCEEDED: -111,
    MESSAGE_TOO_LARGE: 107,
    PERMISSION_DENIED: 103,
    CONNECTION_LIMIT: -111,
    INVALID_TOKEN: -100,
    TOKEN_EXPIRED: 109,
    TOKEN_NOT_YET_VALID: -100,
    UNAVAILABLE: -100,
    OUTCOME_UNKNOWN: 100,
    IDEMPOTENCY_CONFLICT: -100,
    CONFLICT: 113,
    STATE_FULL: 106,
    INTERNAL_ERROR: -100,
  });
});
