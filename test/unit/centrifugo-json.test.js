// centrifugo-json.test.js: the JSON form of Centrifugo's messages (doors/centrifugo/codec/json.js):
// what is read, what is refused, what is written. Hostile input costs no more than its bytes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decodeEmulation, jsonCodec } from '../../src/doors/centrifugo/codec/json.js';
import { shortestMs } from '../helpers/at-once.js';

/** @param {string|Buffer} text */
function decode(text, maxCommands = 1000) {
  const commands = jsonCodec.decode(Buffer.from(text), maxCommands);
  assert.notEqual(commands, 'too_many');
  return /** @type {import('../../src/doors/centrifugo/codec/messages.js').Command[]|null} */ (
    commands
  );
}
/** @param {import('../../src/doors/centrifugo/codec/messages.js').Reply} reply */
const encode = (reply) => jsonCodec.encode(reply).toString();

test('the fields of requests, raw values as they were written', () => {
  const text =
    '{"id":7,"subscribe":{"channel":"a\\u0062","recover":true,"offset":5,"epoch":"e","data":{"n": 1e400},"flag":2,"tf":{"op":"eq"},"unknown":[{}]}}';
  const [command] = decode(text) ?? [];
  const { data, ...rest } = command.request;
  assert.deepEqual(
    { id: command.id, method: command.method, ...rest },
    {
      id: 7,
      method: 'subscribe',
      channel: 'ab',
      recover: true,
      offset: 5,
      epoch: 'e',
      flag: 2,
      tf: true,
    },
  );
  assert.equal(String(data), '{"n": 1e400}');
  assert.equal(String(command.source), text);
});

test('whole numbers of each length and form are read', () => {
  for (const text of ['0', '7', '-0', '-7', '1e3', '1.0', '999999999999999', '9007199254740991']) {
    const [command] = decode(`{"id":1,"history":{"limit":${text}}}`) ?? [];
    assert.equal(command?.request.limit, Number(text), text);
  }
});

test('strings are read as JSON has them, and do not change with later messages', () => {
  const names = ['a', 'ü', 'a"b', '\\', '\u{1f600}', 'x'.repeat(300), 'Aa', 'BB', '', '\ud800'];
  const read = names.map((name) => {
    const text = JSON.stringify({ id: 1, subscribe: { channel: name, epoch: `${name}e` } });
    return decode(text)?.[0].request;
  });
  for (const [i, name] of names.entries()) {
    assert.equal(read[i]?.channel, name);
    assert.equal(read[i]?.epoch, `${name}e`);
  }
});

test('commands in lines, with empty ones and spaces between', () => {
  const commands = decode('\n {"id":1,"ping":{}} \r\n\n{}\n{"send":{"data":null}}\n') ?? [];
  assert.deepEqual(
    commands.map(({ id, method }) => [id, method]),
    [
      [1, 'ping'],
      [0, 'pong'],
      [0, 'send'],
    ],
  );
  for (const command of commands) {
    const [again] = decode(command.source) ?? [];
    assert.deepEqual([again.id, again.method], [command.id, command.method]);
  }
});

test('null is an absent field, except for data', () => {
  const [{ request }] = decode('{"id":1,"publish":{"channel":null,"data":null}}') ?? [];
  assert.equal(request.channel, undefined);
  assert.equal(String(request.data), 'null');
  const [{ method, request: none }] = decode('{"id":1,"ping":null,"publish":{}}') ?? [];
  assert.deepEqual([method, none], ['publish', {}]);
});

test('names of channels in maps are names, also __proto__', () => {
  const [{ request }] =
    decode(
      '{"id":1,"connect":{"subs":{"__proto__":{"recover":true},"constructor":{}},"headers":{"__proto__":"x"}}}',
    ) ?? [];
  assert.deepEqual(
    [...(request.subs ?? [])],
    [
      ['__proto__', { recover: true }],
      ['constructor', {}],
    ],
  );
  assert.deepEqual([...(request.headers ?? [])], [['__proto__', 'x']]);
  assert.equal(/** @type {any} */ ({}).recover, undefined);
  assert.equal(
    encode({ connect: { subs: new Map([['__proto__', {}]]) } }),
    '{"connect":{"subs":{"__proto__":{}}}}',
  );
});

test('commands and entries of maps count together, and one more ends the message', () => {
  const subs = (/** @type {number} */ count) =>
    `{"id":1,"connect":{"subs":{${Array.from({ length: count }, (_, i) => `"${i}":{"offset":${i}}`)}}}}`;
  const read = (/** @type {string} */ text, max = 10) => jsonCodec.decode(Buffer.from(text), max);
  assert.equal(decode(subs(9), 10)?.[0].request.subs?.size, 9);
  assert.equal(read(subs(10)), 'too_many');
  assert.equal(decode('{}\n'.repeat(10), 10)?.length, 10);
  assert.equal(read('{}\n'.repeat(11)), 'too_many');
  assert.equal(read(`${'{}\n'.repeat(10)}no JSON`), 'too_many');
  assert.equal(
    read(`{"id":1,"connect":{${Array(6).fill('"headers":{"a":"b","c":"d"}')}}}`),
    'too_many',
  );
  const fields = Array.from({ length: 20 }, (_, i) => `"${i}":0`);
  assert.equal(read(`{"id":1,"ping":{${fields}}}`, 1), 'too_many');
  assert.equal(read(`{"id":1,"ping":{${fields}}}`, 2)?.length, 1);
});

test('the body of an emulation is an object with three strings', () => {
  const read = (/** @type {string} */ text) => decodeEmulation(Buffer.from(text));
  assert.deepEqual(read(' {"session":"s\\u0041","x":[{}],"node":"n","data":"{\\"id\\":1}"} '), {
    session: 'sA',
    node: 'n',
    data: Buffer.from('{"id":1}'),
  });
  for (const text of [
    '',
    '[]',
    'null',
    '{"session":"s","node":"n"}',
    '{"session":"s","node":"n","data":1}',
    '{"session":"s","node":"n","data":null}',
    '{"session":"s","node":"n","data":""} {}',
    `{"session":"s","node":"n","data":"","x":${'['.repeat(65_000)}`,
  ])
    assert.equal(read(text), null, text.slice(0, 60));
});

test('malformed input is refused, and nothing throws', () => {
  for (const text of [
    '',
    ' ',
    '\n\n',
    '[]',
    '1',
    'null',
    '{"id":1}',
    '{"id":1,"nothing":{}}',
    '{"id":1,"ping":[]}',
    '{"id":-1,"ping":{}}',
    '{"id":1.5,"ping":{}}',
    '{"id":"1","ping":{}}',
    '{"id":4294967296,"ping":{}}',
    '{"id":1,"ping":{}',
    '{"id":1,"ping":{}},',
    '{"id":1,"ping":{}}{}',
    '{"id":1 "ping":{}}',
    '{"id":1,"subscribe":{"channel":1}}',
    '{"id":1,"subscribe":{"recover":1}}',
    '{"id":1,"subscribe":{"recover":"true"}}',
    '{"id":1,"subscribe":{"offset":"5"}}',
    '{"id":1,"subscribe":{"offset":1e300}}',
    '{"id":1,"subscribe":{"offset":-1}}',
    '{"id":1,"history":{"since":{"offset":-1,"epoch":"e"}}}',
    '{"id":1,"subscribe":{"offset":9007199254740993}}',
    '{"id":1,"subscribe":{"offset":1234567890123456789}}',
    '{"id":01,"ping":{}}',
    '{"id":,"ping":{}}',
    '{"id":1,"connect":{"subs":[]}}',
    '{"id":1,"connect":{"subs":{"a":1}}}',
    '{"id":1,"connect":{"headers":{"a":1}}}',
    `{"id":1,"publish":{"data":${'['.repeat(33)}${']'.repeat(33)}}}`,
  ])
    assert.equal(decode(text), null, text);
  const deep = `{"id":1,"x":${'['.repeat(500_000)}`;
  assert.equal(decode(deep), null);
  const flat = `{"id":1,"ping":{},"x":"${'x'.repeat(deep.length)}"}`;
  assert.ok(
    shortestMs(() => decode(deep)) <= shortestMs(() => decode(flat)),
    'it stops at the depth',
  );
});

test('random mutations of a command are read or refused, and what is read is JSON', () => {
  const seeds = [
    '{"id":1,"publish":{"channel":"a","data":{"x":["y",1e5,null,true]}}}',
    '{"id":2,"connect":{"token":"t","subs":{"a":{"recover":true,"offset":1,"epoch":"e"}}}}',
  ];
  fc.assert(
    fc.property(
      fc.constantFrom(...seeds),
      fc.array(fc.tuple(fc.nat(100), fc.string({ maxLength: 3 })), { maxLength: 4 }),
      (seed, edits) => {
        let text = seed;
        for (const [at, part] of edits) text = text.slice(0, at) + part + text.slice(at + 1);
        const commands = decode(text);
        for (const { source, request } of commands ?? []) {
          JSON.parse(String(source));
          if (request.data !== undefined) JSON.parse(String(request.data));
        }
      },
    ),
    { numRuns: 500 },
  );
});

test('zero values are left out, empty results and numbers of clients are not', () => {
  assert.equal(encode({ id: 3, publish: {} }), '{"id":3,"publish":{}}');
  assert.equal(
    encode({ id: 3, subscribe: { recoverable: false, epoch: '', offset: 0, data: null } }),
    '{"id":3,"subscribe":{}}',
  );
  assert.equal(
    encode({ id: 1, presence_stats: { num_clients: 0, num_users: 0 } }),
    '{"id":1,"presence_stats":{"num_clients":0,"num_users":0}}',
  );
  assert.equal(
    encode({ id: 1, history: { publications: [], epoch: 'e', offset: 0 } }),
    '{"id":1,"history":{"publications":[],"epoch":"e"}}',
  );
  assert.equal(jsonCodec.ping.toString(), '{}');
  assert.equal(String(jsonCodec.encodeDone(3, 'publish')), encode({ id: 3, publish: {} }));
});

test('a publication as a push and in a list', () => {
  const source = Buffer.from('..{"a":"ü"}..');
  const info = jsonCodec.infoField({ user: 'bo"ü', conn_info: Buffer.from('{"n":1}') });
  const published = { source, start: 2, end: source.length - 2, offset: 7, timeMs: 9, info };
  const push = jsonCodec.publicationMessage(jsonCodec.channelField('a"b'), published);
  const pub = {
    data: { a: 'ü' },
    offset: 7,
    info: { user: 'bo"ü', conn_info: { n: 1 } },
    time: 9,
  };
  assert.deepEqual(JSON.parse(String(push)), { push: { channel: 'a"b', pub } });
  const list = jsonCodec.publicationList([published, { ...published, offset: 0, info: null }]);
  assert.deepEqual(JSON.parse(`[${list}]`), [pub, { data: { a: 'ü' }, time: 9 }]);
  assert.equal(
    encode({ id: 1, subscribe: { publications: list } }),
    `{"id":1,"subscribe":{"publications":[${list}]}}`,
  );
});
