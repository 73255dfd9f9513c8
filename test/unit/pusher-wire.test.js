// pusher-wire.test.js: messages, frames, closes and presence channels of the Pusher door.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import fc from 'fast-check';
import { BrokerError } from '../../src/backend/errors.js';
import { closeOf, noApp, PUSHER_CLOSES, PusherClose } from '../../src/doors/pusher/codec/closes.js';
import {
  encodePayload,
  errorText,
  establishedText,
  membersData,
  notSubscribedText,
  PusherFrames,
  ROSTER_TEXTS,
  readMember,
  signedInText,
  subscribedText,
  watchlistText,
} from '../../src/doors/pusher/codec/frames.js';
import { fieldsOf, readMessage, readObject } from '../../src/doors/pusher/codec/messages.js';
import { Connection } from '../../src/hub/connection.js';
import { RosterJoins } from '../../src/operations/roster-joins.js';
import { WatchLists } from '../../src/operations/watch-lists.js';
import { CLOSES } from '../../src/protocol/codes.js';
import { frameEnd, publicationFrames, readHeader, roomPrefix } from '../../src/protocol/frame.js';
import {
  ANNOUNCEMENTS,
  asRosterChange,
  encodePublication,
  isPublication,
  KIND,
  withPosition,
} from '../../src/protocol/publication.js';
import { shortestMs } from '../helpers/at-once.js';
import { FakeTransport } from '../helpers/fake-transport.js';

test('a message has an event, and perhaps a channel and data, whose source it keeps', () => {
  assert.deepEqual(
    readMessage('{"event":"client-a","channel":"private-a","data": {"n":1e400, "b":[1,2]} }'),
    {
      event: 'client-a',
      channel: 'private-a',
      data: { n: Number.POSITIVE_INFINITY, b: [1, 2] },
      dataSource: '{"n":1e400, "b":[1,2]}',
    },
  );
  assert.equal(readMessage('{"event":"a"}')?.dataSource, '');
  for (const text of [
    '',
    'null',
    '[]',
    '"a"',
    '{"event":1}',
    '{}',
    '{"event":"a"',
    '{"event":"a"}}',
  ])
    assert.equal(readMessage(text), null, text);
});

test('data may be an object or its JSON', () => {
  const fields = (/** @type {string} */ text) => {
    const message = readMessage(text);
    assert.ok(message);
    return { ...fieldsOf(message) };
  };
  assert.deepEqual(fields('{"event":"e","data":{"channel":"a"}}'), { channel: 'a' });
  assert.deepEqual(fields('{"event":"e","data":"{\\"channel\\":\\"a\\"}"}'), { channel: 'a' });
  for (const data of ['null', '7', '[1]', '"["', '"[1]"', '""'])
    assert.deepEqual(fields(`{"event":"e","data":${data}}`), {}, data);
});

test('nesting beyond 32 levels is refused before it is parsed', () => {
  const nested = (/** @type {number} */ depth) =>
    `{"event":"e","data":${'['.repeat(depth)}${']'.repeat(depth)}}`;
  assert.notEqual(readMessage(nested(31)), null);
  assert.equal(readMessage(nested(32)), null);
  const deep = `{"event":"e","data":${'['.repeat(1_000_000)}`;
  assert.equal(readMessage(deep), null);
  const flat = `{"event":"e","data":[${'0,'.repeat(500_000)}0]}`;
  assert.ok(
    shortestMs(() => readMessage(deep)) <= shortestMs(() => readMessage(flat)),
    'it stops at the depth',
  );
  // In a string they are characters.
  assert.notEqual(readMessage(`{"event":"e","data":"${'['.repeat(100)}"}`), null);
  const tooDeep = { event: 'e', channel: 0, data: '['.repeat(100), dataSource: '' };
  assert.deepEqual({ ...fieldsOf(tooDeep) }, {});
});

test('the source of a member is the text that JSON.parse reads', () => {
  const names = fc.constantFrom(
    'a',
    'b',
    '__proto__',
    'constructor',
    '',
    '"',
    '\\',
    'ä,:{',
    'toString',
  );
  fc.assert(
    fc.property(
      fc.array(fc.tuple(names, fc.jsonValue({ maxDepth: 4 })), { maxLength: 6 }),
      fc.constantFrom('', ' ', '\n\t'),
      (members, space) => {
        const text = `{${members
          .map(
            ([name, value]) =>
              `${space}${JSON.stringify(name)}${space}:${space}${JSON.stringify(value)}${space}`,
          )
          .join(',')}}`;
        const parsed = readObject(text);
        assert.ok(parsed);
        for (const [name] of members) {
          const last = members.findLast(([other]) => other === name);
          assert.equal(parsed.sourceOf(name), JSON.stringify(last?.[1]));
        }
        assert.equal(parsed.sourceOf('absent'), undefined);
      },
    ),
  );
  assert.equal(readObject('{"\\u0061":1}')?.sourceOf('a'), '1');
  assert.deepEqual(Object.keys(readObject('{"__proto__":1}')?.value ?? {}), ['__proto__']);
});

test('no text makes reading throw', () => {
  const parts = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '"',
    ':',
    ',',
    '\\',
    'a',
    '1',
    'null',
    '"event"',
  );
  fc.assert(
    fc.property(fc.array(parts, { maxLength: 30 }), (tokens) => {
      const text = tokens.join('');
      const message = readMessage(text);
      if (message !== null) assert.equal(typeof JSON.parse(text).event, 'string');
      assert.doesNotThrow(() => message && fieldsOf(message));
    }),
    { numRuns: 2000 },
  );
});

test('data is a string, except in errors, signin_success and watchlist events', () => {
  const types = Object.fromEntries(
    [
      establishedText('1.2', 120),
      subscribedText('a'),
      subscribedText('presence-a', membersData([])),
      errorText(null, 'm'),
      errorText(4009, 'm', 'private-a'),
      notSubscribedText('private-a', { type: 'AuthError', status: 401, error: 'e' }),
      signedInText('{"id":"7"}'),
      watchlistText(new Map([['1', true]])),
    ].map((text) => [JSON.parse(text).event, typeof JSON.parse(text).data]),
  );
  assert.deepEqual(types, {
    'pusher:connection_established': 'string',
    'pusher_internal:subscription_succeeded': 'string',
    'pusher:error': 'object',
    'pusher:subscription_error': 'object',
    'pusher:signin_success': 'object',
    'pusher_internal:watchlist_events': 'object',
  });
  assert.equal(
    errorText(4009, 'm', 'private-a'),
    '{"event":"pusher:error","data":{"message":"m","code":4009},"channel":"private-a"}',
  );
  assert.equal(errorText(null, 'm'), '{"event":"pusher:error","data":{"message":"m","code":null}}');
});

test('members are listed by string ids, with their information as it was written', () => {
  const members = [
    readMember('{"user":"2","info":{"n":1.0},"user_id":2}'),
    readMember('{"user":"__proto__"}'),
    readMember('{"user":"12345678901234567890","user_id":12345678901234567890}'),
  ];
  const text = membersData(members.map((member) => member ?? assert.fail()));
  assert.equal(
    text,
    '{"presence":{"ids":["2","__proto__","12345678901234567890"],' +
      '"hash":{"2":{"n":1.0},"__proto__":{},"12345678901234567890":{}},"count":3}}',
  );
  assert.deepEqual(Object.keys(JSON.parse(text).presence.hash).sort(), [
    '12345678901234567890',
    '2',
    '__proto__',
  ]);
  assert.equal(readMember('{"info":1}'), null);
  assert.equal(readMember('['), null);
});

/** @param {Buffer} frames @returns {string[]} the texts; '' for an empty pong */
function textsOf(frames) {
  const texts = [];
  for (let at = 0; at < frames.length; at = frameEnd(frames, at)) {
    const { start, length } = readHeader(frames, at);
    assert.equal(frames[at], length === 0 ? 0x8a : 0x81);
    texts.push(frames.toString('utf8', start, start + length));
  }
  return texts;
}

/** @param {Buffer|string} payload @param {string} [sender] @param {string} [except] */
function message(payload, sender = '', except = '') {
  const bytes = Buffer.from(payload);
  return encodePublication(KIND.MESSAGE, 0, 0, sender, bytes, 0, bytes.length, except);
}

/** @param {'join'|'leave'} event @param {string} member */
function presence(event, member) {
  return Buffer.concat([ANNOUNCEMENTS[event], Buffer.from(member)]);
}

/** @param {string} room @param {Buffer[]} publications */
function encode(room, publications) {
  return new PusherFrames().encode(roomPrefix(room), publications);
}

test('a frame is the channel and the payload', () => {
  const position = withPosition(
    message(encodePayload('b', 'x'.repeat(200)), 'sender'),
    7,
    'e'.repeat(16),
  );
  const frames = encode('~123:a/eb', [
    message(encodePayload('App\\Events\\X', '{"a":"ä"}')),
    position,
    message(encodePayload('client-a', '7', 'ü"'), 'id', 'other'),
  ]);
  assert.deepEqual(textsOf(frames), [
    '{"channel":"a=b","event":"App\\\\Events\\\\X","data":"{\\"a\\":\\"ä\\"}"}',
    `{"channel":"a=b","event":"b","data":"${'x'.repeat(200)}"}`,
    '{"channel":"a=b","event":"client-a","data":"7","user_id":"ü\\""}',
  ]);
  assert.deepEqual(textsOf(encode('~123:u:7', [message(encodePayload('a', ''))])), [
    '{"channel":"#server-to-user-7","event":"a","data":""}',
  ]);
});

test('every event and text reaches a client unchanged, in frames of each size', () => {
  const texts = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 200 }),
    fc.integer({ min: 0, max: 70_000 }).map((length) => 'x'.repeat(length)),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(texts, texts), { minLength: 1, maxLength: 4 }), (events) => {
      const frames = encode(
        '~1:a',
        events.map(([event, data]) => message(encodePayload(event, data))),
      );
      assert.deepEqual(
        textsOf(frames).map((text) => JSON.parse(text)),
        events.map(([event, data]) => ({ channel: 'a', event, data })),
      );
    }),
    { numRuns: 50 },
  );
});

test('members that come and go: ids keep their type', () => {
  const changes = [
    presence('join', '{"user":"2","info":{"n":1},"user_id":2}'),
    presence('leave', '{"user":"2","info":{"n":1},"user_id":2}'),
    presence('join', '{"user":"x"}'),
  ].map(asRosterChange);
  const frames = encode('~123:presence-a', changes);
  assert.deepEqual(textsOf(frames), [
    '{"channel":"presence-a","event":"pusher_internal:member_added","data":"{\\"user_id\\":2,\\"user_info\\":{\\"n\\":1}}"}',
    '{"channel":"presence-a","event":"pusher_internal:member_removed","data":"{\\"user_id\\":2}"}',
    '{"channel":"presence-a","event":"pusher_internal:member_added","data":"{\\"user_id\\":\\"x\\",\\"user_info\\":{}}"}',
  ]);
  assert.deepEqual(encode('~123:presence-a', changes), frames, 'encoding changes nothing');
  const [join] = changes;
  assert.deepEqual(
    publicationFrames(roomPrefix('a'), [join]),
    publicationFrames(roomPrefix('a'), [
      presence('join', '{"user":"2","info":{"n":1},"user_id":2}'),
    ]),
    'native clients get the event as it came',
  );
  assert.equal(isPublication(join), false, 'no broker carries the mark');
});

test('a count reaches clients as subscription_count', () => {
  const count = Buffer.concat([ANNOUNCEMENTS.count, Buffer.from('120')]);
  assert.ok(isPublication(count));
  assert.deepEqual(textsOf(encode('~123:a/eb', [count])), [
    '{"channel":"a=b","event":"pusher_internal:subscription_count","data":"{\\"subscription_count\\":120}"}',
  ]);
  // An operator who watches the room sees it, too.
  assert.deepEqual(textsOf(publicationFrames(roomPrefix('~123:a'), [count])), [
    '{"type":"presence","room":"a","event":"count","count":120}',
  ]);
});

test('what clients are not told is an empty pong among others, and nothing alone', () => {
  const join = presence('join', '{"user":"2"}');
  const event = message(encodePayload('a', ''));
  assert.deepEqual(textsOf(encode('~1:presence-a', [join, event, join])), [
    '',
    '{"channel":"presence-a","event":"a","data":""}',
    '',
  ]);
  assert.equal(encode('~1:presence-a', [join, join]).length, 0);
  const broadcast = encodePublication(KIND.BROADCAST, 0, 0, '', Buffer.from('1'), 0, 1);
  assert.equal(encode('*', [broadcast]).length, 0);
  assert.equal(encode('chat:1', [event]).length, 0, 'a native room that no channel has');
});

test('in a room of native clients, other payloads become the event message', () => {
  const shown = (/** @type {string} */ payload, /** @type {string|undefined} */ sender) =>
    textsOf(encode('a', [message(payload, sender)])).map((text) => JSON.parse(text))[0];
  assert.deepEqual(shown('{"event":"e","data":"d"}', 'x'), { channel: 'a', event: 'e', data: 'd' });
  assert.deepEqual(shown('{"data":{"a": 1e400},"event":"e"}', 'x'), {
    channel: 'a',
    event: 'e',
    data: '{"a": 1e400}',
  });
  for (const payload of ['7', '"text"', '[1]', '{"a":1}', '{"event":"e"}', '{"event":1,"data":""}'])
    assert.deepEqual(shown(payload, 'x'), { channel: 'a', event: 'message', data: payload });
});

test('a native publisher cannot name the channel, a user or an event of the protocol', () => {
  const shown = (/** @type {string} */ payload, /** @type {string} */ sender) =>
    textsOf(encode('a', [message(payload, sender)]))[0];
  const forged = '{"event":"e","data":"d","channel":"private-b","user_id":"admin"}';
  assert.equal(shown(forged, 'mallory'), '{"channel":"a","event":"e","data":"d"}');
  assert.equal(shown(forged, '~123:7'), '{"channel":"a","event":"e","data":"d"}');
  for (const event of ['pusher:error', 'pusher_internal:member_added']) {
    const payload = `{"event":"${event}","data":"{}"}`;
    assert.equal(JSON.parse(shown(payload, 'mallory')).event, 'message');
    assert.equal(JSON.parse(shown(payload, '')).event, event);
  }
});

/** The codes of 4000 to 4099 and from 4300 that stop a client for ever, by their close. */
const STOPS = new Map([
  [CLOSES.INVALID_TOKEN, 4009],
  [CLOSES.TOKEN_EXPIRED, 4009],
  [CLOSES.AUTH_TIMEOUT, 4009],
  [CLOSES.KICKED, 4009],
  [CLOSES.DENIED, 4009],
]);

test('each close of the server has the code that its clients understand', () => {
  const codes = Object.fromEntries(
    Object.entries(CLOSES).map(([name, close]) => [name, closeOf(close).code]),
  );
  assert.deepEqual(codes, {
    UNSUPPORTED_DATA: 4100,
    POLICY: 4100,
    INTERNAL: 1011,
    DRAIN: 4200,
    OVERLOAD: 4100,
    TOKEN_EXPIRED: 4009,
    TOKEN_NOT_YET_VALID: 4100,
    SLOW_CONSUMER: 4100,
    RATE_LIMITED: 4100,
    REBALANCE: 4200,
    AGE: 4200,
    ADDRESS_LIMIT: 4100,
    INVALID_TOKEN: 4009,
    BAD_REQUESTS: 4100,
    AUTH_TIMEOUT: 4009,
    KICKED: 4009,
    USER_LIMIT: 4100,
    APP_LIMIT: 4100,
    CLIENT_TIMEOUT: 4100,
    DENIED: 4009,
    ROOM_LIMIT: 4100,
  });
});

test('no close stops a client for ever unless its row says so', () => {
  for (const close of Object.values(CLOSES)) {
    const { code, reason } = closeOf(close);
    const isStop = (code >= 4000 && code < 4100) || code >= 4300;
    assert.equal(isStop ? code : undefined, STOPS.get(close), close.reason);
    assert.ok(Buffer.byteLength(reason) <= 123);
  }
  const backend = fc.integer({ min: 4000, max: 4999 });
  const own = new Set(Object.values(CLOSES).map(({ code }) => code));
  fc.assert(
    fc.property(backend, (code) => {
      fc.pre(!own.has(code));
      assert.equal(closeOf({ code, reason: 'x' }).code, 4009);
    }),
  );
});

test('the closes of the door itself pass unchanged, with an error of the same code before', () => {
  const all = {
    ...PUSHER_CLOSES,
    NO_APP: noApp('k'.repeat(300)),
    quota: new PusherClose(4100, 'm'),
  };
  const page = readFileSync(new URL('../../docs/pusher.md', import.meta.url), 'utf8');
  for (const [name, close] of Object.entries(all)) {
    assert.equal(closeOf(close), close, name);
    assert.equal(JSON.parse(close.notice).data.code, close.code);
    assert.ok(Buffer.byteLength(close.reason) <= 123, name);
    assert.match(page, new RegExp(`\\b${close.code}\\b`), `${name} is documented`);
  }
  assert.deepEqual(
    Object.entries(PUSHER_CLOSES).map(([name, { code }]) => `${name} ${code}`),
    [
      'TLS_ONLY 4000',
      'APP_DISABLED 4003',
      'OVER_QUOTA 4004',
      'INVALID_VERSION 4006',
      'UNSUPPORTED_VERSION 4007',
      'ORIGIN 4009',
      'UNAUTHORIZED 4009',
      'AUTHORIZE_TIMEOUT 4100',
      'OVER_CAPACITY 4100',
      'RESTART 4200',
      'NO_PONG 4201',
    ],
  );
  assert.equal(
    JSON.parse(noApp('k').notice).data.message,
    'App key k not in this cluster. Did you forget to specify the cluster?',
  );
});

/** A presence channel of an empty store. @param {(item: () => void) => void} push */
function openChannel(push) {
  /** @type {import('../../src/hub/hub.js').RoomRequest[]} */
  const joins = [];
  const here = new Set();
  /** @type {import('../../src/hub/room-users.js').Follower|null} */
  let roster = null;
  const users = {
    follow(/** @type {typeof roster} */ follower) {
      roster = follower;
    },
    isHere: (/** @type {string} */ user) => here.has(user),
    join: (/** @type {Connection} */ _connection, /** @type {string} */ user) => here.add(user),
  };
  const room = { users, flight: null, waiting: [], watch() {}, has: () => false };
  const hub = {
    openRoom: () => room,
    announce() {},
    watch: (
      /** @type {unknown} */ _watcher,
      /** @type {unknown} */ _room,
      /** @type {any} */ one,
    ) => void joins.push(one),
    unwatch() {},
    join: (
      /** @type {unknown} */ _connection,
      /** @type {string} */ _name,
      /** @type {any} */ one,
    ) => void joins.push(one),
    listUsers: async () => ({ attended: () => ({ count: 0, members: [] }), release() {} }),
  };
  const rosters = new RosterJoins(/** @type {any} */ ({ hub, presenceLine: { push } }));
  const member = '{"user":"ann"}';
  /** @type {string[]} */
  const answered = [];
  const subscribe = (/** @type {string} */ name, connection = newConnection()) =>
    rosters.joinWithList(
      connection,
      'presence-cache-a',
      { user: 'ann', info: null, max: 10, member: Buffer.from(member) },
      {
        ...{ since: null, last: 1 },
        onJoined: () => void answered.push(name),
        onRefused: assert.fail,
      },
    );
  const appear = () => void roster?.arrive(presence('join', member));
  const leave = (/** @type {Connection} */ connection) => roster?.onLeft(connection);
  return { joins, rosters, subscribe, answered, appear, leave };
}

function newConnection() {
  const transport = new FakeTransport();
  transport.door = { ...transport.door, roster: ROSTER_TEXTS };
  return new Connection(transport, '');
}

test('a subscription is answered while another of its user reads history', async () => {
  const { joins, subscribe, answered, appear } = openChannel((item) => item());
  const first = subscribe('first');
  joins[0].onJoined(null); // the channel's own
  await new Promise(setImmediate);
  appear();
  await new Promise(setImmediate);
  assert.equal(joins.length, 2);
  const second = subscribe('second');
  for (const { onJoined } of joins.slice(1)) onJoined(null);
  assert.deepEqual(answered, ['first', 'second']);
  await Promise.all([first, second]);
});

test('lists of members wait for their share of a turn, and who leaves meanwhile gets none', async () => {
  /** @type {(() => void)[]} */
  const line = [];
  const { joins, subscribe, answered, appear, leave } = openChannel((item) => line.push(item));
  subscribe('first');
  const leaving = newConnection();
  subscribe('leaving', leaving);
  joins[0].onJoined(null); // the channel's own
  await new Promise(setImmediate);
  appear();
  await new Promise(setImmediate);
  assert.equal(joins.length, 1, 'nobody has entered yet');
  leave(leaving);
  assert.equal(line.length, 2);
  for (const item of line) item();
  for (const { onJoined } of joins.slice(1)) onJoined(null);
  assert.deepEqual(answered, ['first']);
});

test('a watch list that cannot be read is reported, because its client never asks again', () => {
  const { joins, rosters } = openChannel((item) => item());
  let reports = 0;
  new WatchLists(rosters).beginWatch(newConnection(), new Map([['ben', '~1:u:ben']]), {
    onChange: () => assert.fail(),
    onUnavailable: () => reports++,
  });
  joins[0].onRefused(new BrokerError('UNAVAILABLE', 'the broker is down'));
  assert.equal(reports, 1);
});
