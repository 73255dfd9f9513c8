// commands.test.js: the answers to commands that are malformed, hostile, or beyond the rights of
// their sender.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ERRORS } from '../../src/protocol/codes.js';
import { startServer } from '../harness/server.js';
import { Wire } from './wire.js';

const ENV = {
  WORKERS: '1',
  FANFARE_LIMITS: 'off',
  FANFARE_HISTORY: 'h.*=10/60s',
  FANFARE_PRESENCE: 'p.*',
};

const EPOCH = '0123456789abcdef';
const F = 'INVALID_MESSAGE_FORMAT';
const R = 'INVALID_ROOM';
const nested = (/** @type {number} */ depth) => `${'['.repeat(depth)}${']'.repeat(depth)}`;
const keys = (/** @type {number} */ count) =>
  Array.from({ length: count }, (_, i) => `"k${i}":0`).join();

/**
 * @type {[string, string|object, string][]} name, the first message of a connection, the
 *   error
 */
const REFUSED = [
  ['nothing', '', F],
  ['a blank', ' ', F],
  ['no JSON', 'hello', F],
  ['a byte order mark', '\ufeff{"type":"ping"}', F],
  ['an array', '[]', F],
  ['a string', '"ping"', F],
  ['a number', '1', F],
  ['null', 'null', F],
  ['two objects', '{"type":"ping"}{"type":"ping"}', F],
  ['an object cut off', '{"type":"ping"', F],
  ['a comma too many', '{"type":"ping",}', F],
  ['single quotes', "{'type':'ping'}", F],
  ['a comment', '{"type":"ping"/**/}', F],
  ['a key without quotes', '{type:"ping"}', F],
  ['NaN', '{"type":"echo","payload":NaN}', F],
  ['a plus', '{"type":"echo","payload":+1}', F],
  ['a leading zero', '{"type":"echo","payload":01}', F],
  ['a bare point', '{"type":"echo","payload":.5}', F],
  ['a control character', '{"type":"echo","payload":"\u0001"}', F],
  ['a line break in a string', '{"type":"echo","payload":"\n"}', F],
  ['an escape there is not', '{"type":"echo","payload":"\\x41"}', F],
  ['half an escape', '{"type":"echo","payload":"\\u00"}', F],
  ['a level too deep', `{"type":"echo","payload":${nested(32)}}`, F],
  ['50,000 levels', `{"type":"echo","payload":${'['.repeat(50_000)}`, F],
  ['a key too many', `{"type":"echo",${keys(256)}}`, F],
  ['a key too many in a field', `{"type":"join","room":"a","since":{${keys(255)}}}`, F],
  ['__proto__ as a key', '{"type":"join","room":"p.a","presence":{"__proto__":1}}', F],
  ['__proto__, escaped', '{"type":"join","room":"a","since":{"\\u005f_proto__":1}}', F],
  ['constructor in info', '{"type":"join","room":"p.a","presence":{"info":{"constructor":1}}}', F],
  ['prototype as a key', '{"type":"echo","prototype":1}', F],
  ['no type', '{"payload":1}', F],
  ['a type of another kind', '{"type":1}', F],
  ['an id of another kind', '{"type":"ping","id":{}}', F],
  ['an id that is a fraction', '{"type":"ping","id":1.5}', F],
  ['an id beyond safe integers', '{"type":"ping","id":9007199254740992}', F],
  ['an id of 65 characters', { type: 'ping', id: 'x'.repeat(65) }, F],
  ['a message without a payload', { type: 'message', room: 'a' }, F],
  ['a message with two payloads', { type: 'message', room: 'a', payload: 1, text: '1' }, F],
  ['a text that is no string', { type: 'message', room: 'a', text: 1 }, F],
  ['an echo of nothing', { type: 'echo' }, F],
  ['a broadcast of nothing', { type: 'broadcast' }, F],
  ...[0, -1, 1.5, 1e300, 'ten', [], {}, true].map((limit) =>
    row(`limit ${JSON.stringify(limit)}`, { type: 'history', room: 'h.a', limit }, F),
  ),
  ...[-1, 1.5, 2 ** 53, 'now', [], {}, true].map((sinceTime) =>
    row(`sinceTime ${sinceTime}`, { type: 'history', room: 'h.a', sinceTime }, F),
  ),
  ...[7, 'x', {}, [], { epoch: EPOCH }, { epoch: EPOCH, offset: -1 }].map((before) =>
    row(`before ${JSON.stringify(before)}`, { type: 'history', room: 'h.a', before }, F),
  ),
  ...[
    { since: {}, before: { epoch: EPOCH, offset: 1 } },
    { before: { epoch: EPOCH, offset: 1 }, sinceTime: 0 },
    { since: { epoch: EPOCH, offset: 1 }, sinceTime: 0 },
  ].map((places) =>
    row(Object.keys(places).join(' and '), { type: 'history', room: 'h.a', ...places }, F),
  ),
  ...[0, -1, 1.5, 604_801, '60', [60], true].map((lastSeconds) =>
    row(
      `lastSeconds ${JSON.stringify(lastSeconds)}`,
      { type: 'join', room: 'h.a', lastSeconds },
      F,
    ),
  ),
  ...['user', 1, [], { user: '' }, { user: 'x'.repeat(129) }, { user: 7 }].map((presence) =>
    row(
      `presence ${JSON.stringify(presence).slice(0, 30)}`,
      { type: 'join', room: 'p.a', presence },
      F,
    ),
  ),
  [
    'a user of 1 KB',
    { type: 'join', room: 'p.a', presence: { info: 'x'.repeat(1024) } },
    'MESSAGE_TOO_LARGE',
  ],

  ...['toString', '__proto__', 'constructor', 'hasOwnProperty', '', 'PING', 'auth', 'welcome'].map(
    (type) => row(`type ${JSON.stringify(type)}`, { type }, 'UNKNOWN_TYPE'),
  ),

  ...['join', 'leave', 'message', 'history', 'presence'].flatMap((type) =>
    [
      '',
      'x'.repeat(201),
      'x'.repeat(10_000),
      'a b',
      'a\0',
      'a\r\nb',
      '\u202ea',
      'é',
      'e\u0301',
      '*',
      'h.*',
      'a?',
      '[a]',
      '{a}',
      '"',
      '\\',
      1,
      true,
      [],
      {},
      ['a'],
    ].map((room) =>
      row(`${type} of room ${JSON.stringify(room).slice(0, 30)}`, { type, room, payload: 1 }, R),
    ),
  ),
  ['join of no room', { type: 'join' }, R],
  ['a message to no room, in none', { type: 'message', payload: 1 }, 'ROOM_REQUIRED'],
  ['leave of a room it is not in', { type: 'leave', room: 'a' }, 'NOT_IN_ROOM'],
];

/**
 * @param {string} name
 * @param {object} message
 * @param {string} error
 * @returns {[string, object, string]}
 */
function row(name, message, error) {
  return [name, message, error];
}

/** @type {[string, string, string][]} a message, and the exact bytes of its answer */
const TAKEN = [
  ['blanks wherever they may be', ' {\t"type" :\r\n"ping" } ', '{"type":"pong"}'],
  ['an escaped type', '{"type":"\\u0070ing"}', '{"type":"pong"}'],
  ['of a name that comes twice, the last', '{"type":"echo","type":"ping"}', '{"type":"pong"}'],
  ['fields that nobody knows', '{"type":"ping","a":{"b":[1,2]}}', '{"type":"pong"}'],
  [
    'the deepest there may be',
    `{"type":"echo","payload":${nested(31)}}`,
    `{"type":"echo","payload":${nested(31)}}`,
  ],
  [
    'a number larger than any',
    '{"type":"echo","payload":1e400}',
    '{"type":"echo","payload":1e400}',
  ],
  [
    'a number that no double holds',
    '{"type":"echo","payload":9007199254740993}',
    '{"type":"echo","payload":9007199254740993}',
  ],
  [
    'half a surrogate',
    '{"type":"echo","payload":"\\ud800"}',
    '{"type":"echo","payload":"\\ud800"}',
  ],
  [
    'keys twice',
    '{"type":"echo","payload":{"a":1,"a":2}}',
    '{"type":"echo","payload":{"a":1,"a":2}}',
  ],
  [
    'an id that looks like markup',
    '{"type":"ping","id":"</script>\\""}',
    '{"type":"pong","id":"</script>\\""}',
  ],
  [
    'rooms named as parts of objects',
    '{"type":"join","room":"__proto__"}',
    '{"type":"joined","room":"__proto__"}',
  ],
];

/** @type {[string, unknown][]} invalid positions in a stream */
const PLACES = [
  ['a text', 'x'],
  ['a number', 1],
  ['an array', []],
  ['nothing in it', {}],
  ['an epoch that is none', { epoch: '../../etc', offset: 1 }],
  ['an epoch of another kind', { epoch: 1, offset: 1 }],
  ['a stranger’s epoch', { epoch: 'f'.repeat(16), offset: 1 }],
  ['an offset below nothing', { epoch: 'f'.repeat(16), offset: -1 }],
  ['an offset beyond safe integers', { epoch: 'f'.repeat(16), offset: 2 ** 53 }],
  ['an offset of too many digits', { epoch: 'f'.repeat(16), offset: '9'.repeat(17) }],
  ['an offset that is no number', { epoch: 'f'.repeat(16), offset: '1e3' }],
];

test('each malformed, hostile or forbidden command gets its documented answer', {
  timeout: 60_000,
}, async (t) => {
  const server = await startServer(t, ENV);
  /** @param {(wire: Wire) => Promise<void>} talk */
  const connected = async (talk) => {
    const wire = await new Wire(server.port).opened();
    try {
      return await talk(wire);
    } finally {
      wire.destroy();
    }
  };
  for (const [name, message, error] of REFUSED) {
    await t.test(`${error}: ${name}`, () =>
      connected(async (wire) => {
        const answer = await wire.ask(message);
        assert.deepEqual([answer.type, answer.error], ['error', error]);
        // It says what is wrong.
        assert.notEqual(answer.message, ERRORS.INVALID_MESSAGE_FORMAT.message);
        // The answer has no other fields: it does not repeat the faulty input.
        assert.deepEqual(Object.keys(answer).sort(), ['error', 'message', 'timestamp', 'type']);
        assert.deepEqual(await wire.ask({ type: 'ping', id: 1 }), { type: 'pong', id: 1 });
      }),
    );
  }
  for (const [name, message, answer] of TAKEN) {
    await t.test(`accepted: ${name}`, () =>
      connected(async (wire) => {
        await wire.ask(message);
        assert.deepEqual(wire.heard.texts, [answer]);
      }),
    );
  }
  for (const [name, since] of PLACES) {
    await t.test(`recovered false and no error: ${name} as since`, () =>
      connected(async (wire) => {
        const answer = await wire.ask({ type: 'join', room: 'h.a', since });
        assert.deepEqual([answer.type, answer.recovered], ['joined', false]);
      }),
    );
  }
  await t.test('a message that cannot be read is answered with its id, if that comes first', () =>
    connected(async (wire) => {
      const text = `{"id":7,"type":"message","room":"a","since":{${keys(256)}}}`;
      const { error, id } = await wire.ask(text);
      assert.deepEqual([error, id], [F, 7]);
    }),
  );
  await t.test('4501: a third malformed message within ten seconds', () =>
    connected(async (wire) => {
      for (let i = 0; i < 3; i++) wire.socket.write(Buffer.from([0x81, 0x80, 1, 2, 3, 4]));
      assert.equal((await wire.ended()).close, 4501);
    }),
  );
  await t.test('unknown types never close the connection', () =>
    connected(async (wire) => {
      for (let i = 0; i < 20; i++)
        assert.equal((await wire.ask({ type: 'x', id: i })).error, 'UNKNOWN_TYPE');
    }),
  );
  await t.test('ALREADY_JOINED: a second join; one leave then leaves the room', () =>
    connected(async (wire) => {
      await wire.ask({ type: 'join', room: 'a' });
      assert.equal((await wire.ask({ type: 'join', room: 'a', id: 7 })).error, 'ALREADY_JOINED');
      assert.equal((await wire.ask({ type: 'leave', room: 'a' })).type, 'left');
      assert.equal((await wire.ask({ type: 'leave', room: 'a' })).error, 'NOT_IN_ROOM');
    }),
  );
  await t.test('ROOM_REQUIRED: a message without a room on a connection in several rooms', () =>
    connected(async (wire) => {
      await wire.ask({ type: 'join', room: 'a' });
      await wire.ask({ type: 'join', room: 'b' });
      assert.equal((await wire.ask({ type: 'message', payload: 1 })).error, 'ROOM_REQUIRED');
    }),
  );
  await t.test('no input makes the worker log a warning or an error', () => {
    assert.deepEqual(
      server.lines.filter(({ level }) => level >= 40),
      [],
    );
  });
});

test('a client above its message rate gets retryAfter, and is closed if it continues', {
  timeout: 20_000,
}, async (t) => {
  const server = await startServer(t, {
    WORKERS: '1',
    FANFARE_MESSAGES_PER_MINUTE: '60',
    FANFARE_MESSAGES_BURST: '5',
    FANFARE_MAX_REFUSED_MESSAGES: '10',
    FANFARE_MAX_ROOMS_PER_CONNECTION: '3',
    FANFARE_CLIENT_BROADCAST: 'off',
  });
  const wire = await new Wire(server.port, { localAddress: '127.0.0.9' }).opened();
  for (let i = 0; i < 5; i++) assert.equal((await wire.ask({ type: 'ping', id: i })).type, 'pong');
  const refused = await wire.ask({ type: 'ping', id: 'late' });
  assert.deepEqual([refused.error, refused.id], ['RATE_LIMIT_EXCEEDED', 'late']);
  assert.ok(Number.isSafeInteger(refused.retryAfter) && refused.retryAfter >= 1);
  const large = await wire.ask({ id: 'large', type: 'echo', payload: 'x'.repeat(5000) });
  assert.deepEqual([large.error, large.id], ['RATE_LIMIT_EXCEEDED', 'large']);
  for (let i = 0; i < 10; i++) await wire.send(Buffer.from([0x81, 0x80, 1, 2, 3, 4]));
  assert.equal((await wire.ended()).close, 4005);

  await t.test('PERMISSION_DENIED: a broadcast without the right', async () => {
    const other = await new Wire(server.port, { localAddress: '127.0.0.10' }).opened();
    assert.equal((await other.ask({ type: 'broadcast', payload: 1 })).error, 'PERMISSION_DENIED');
    other.destroy();
  });
});

test('joins above the room limit are refused, and a client that continues is closed with 4505', {
  timeout: 20_000,
}, async (t) => {
  const server = await startServer(t, {
    WORKERS: '1',
    FANFARE_MESSAGES_PER_MINUTE_MODE: 'off',
    FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE: 'off',
    FANFARE_MAX_ROOMS_PER_CONNECTION: '3',
  });
  const wire = await new Wire(server.port).opened();
  for (let i = 0; i < 3; i++)
    assert.equal((await wire.ask({ type: 'join', room: `r${i}` })).type, 'joined');
  for (let i = 0; i < 3; i++)
    assert.equal((await wire.ask({ type: 'join', room: 'more' })).error, 'ROOM_LIMIT');
  await wire.ask({ type: 'join', room: 'more' });
  assert.equal((await wire.ended()).close, 4505);
});
