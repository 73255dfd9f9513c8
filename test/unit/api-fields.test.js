// api-fields.test.js: bodies of the HTTP API are read up to their bounds, not beyond.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  audiences,
  readFields,
  room,
  rooms,
  seconds,
} from '../../src/transport/http-api/fields.js';

const SHAPE = { rooms, seconds, audiences, messages: { items: { room } } };
const LIST_FAULT = /^rooms: a list of 1 to 1,000 different rooms/;
const read = (/** @type {string} */ text) => readFields(Buffer.from(text), SHAPE);

test('a list has 1 to 1,000 different strings, with any spaces', () => {
  const names = Array.from({ length: 1000 }, (_, i) => `r${i}`);
  assert.deepEqual(read(`{"rooms" : [ ${names.map((name) => `"${name}"`).join(' ,\n')} ]}`), {
    rooms: names,
  });
  assert.deepEqual(read('{"rooms":["\\u0061"],"seconds":7}'), { rooms: ['a'], seconds: 7 });
  for (const list of [
    '[]',
    '{}',
    '"a"',
    '["a","\\u0061"]',
    '["a",1]',
    '[["a"]]',
    '[null]',
    '[" "]',
  ])
    assert.throws(() => read(`{"rooms":${list}}`), { message: LIST_FAULT }, list);
  assert.throws(() => read(JSON.stringify({ rooms: [...names, 'one'] })), { message: LIST_FAULT });
  for (const text of ['{"rooms":["a",]}', '{"rooms":["a" "b"]}', '{"rooms":["a"'])
    assert.throws(() => read(text), { code: 'INVALID_JSON' }, text);
});

test('a user holds up to 16 audiences, however their names are written', () => {
  const escaped = `"${'\\u0061'.repeat(64)}"`;
  const names = Array(16).fill('a'.repeat(64));
  assert.deepEqual(read(`{"audiences":[\n  ${Array(16).fill(escaped).join(',\n  ')}\n]}`), {
    audiences: names,
  });
  assert.deepEqual(read('{"audiences":[]}'), { audiences: [] });
  for (const list of ['{}', '"a"', 'null', '["a b"]', JSON.stringify([...names, 'a'])])
    assert.throws(() => read(`{"audiences":${list}}`), /^ApiFault: audiences: a list/, list);
});

test('what is beyond the bounds is scanned, and not built', (t) => {
  const parse = t.mock.method(JSON, 'parse');
  const many = '[],'.repeat(10_000);
  assert.throws(() => read(`{"rooms":[${many}[]]}`), { message: LIST_FAULT });
  assert.throws(() => read(`{"seconds":[${many}[]]}`), /^ApiFault: seconds: whole seconds/);
  assert.throws(
    () => read(`{"audiences":[${many}[]]}`),
    /^ApiFault: audiences: a list of up to 16/,
  );
  const texts = () => parse.mock.calls.map(({ arguments: [text] }) => text);
  assert.deepEqual(texts(), ['"rooms"', '"seconds"', '"audiences"']);
  const messages = '{"room":"a"},'.repeat(3000);
  assert.throws(() => read(`{"messages":[${messages}{"room":1}]}`), {
    message: 'messages: a list of 1 to 1,000 objects.',
  });
  assert.equal(texts().filter((text) => text === '"a"').length, 1000);
  assert.throws(() => read(`{"messages":[${messages}{"room":]}`), { code: 'INVALID_JSON' });
});
