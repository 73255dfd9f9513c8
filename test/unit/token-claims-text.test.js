import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readClaims } from '../../src/auth/claims-text.js';
import { readRights } from '../../src/auth/rights.js';
import { parseObject } from '../../src/auth/strict-json.js';

const ROOM_RIGHTS = /** @type {const} */ (['join', 'publish', 'presence', 'history']);
const ROOMS = ['a', 'b', 'chat.1', 'chat.2'];

/** With bytes behind the payload, as another token may leave them. @param {string} text */
const parse = (text) => readClaims(Buffer.from(`${text},"sub":"v"}}`), Buffer.byteLength(text));

/** The claims but `rooms`, and the permitted rooms. @param {ReturnType<typeof parse>} parsed */
function summary(parsed) {
  if (parsed === null) return null;
  const { claims, rights } = parsed;
  const permitted =
    rights && ROOM_RIGHTS.map((right) => ROOMS.filter((room) => rights[right].has(room)));
  // An absent claim is as good as an undefined one.
  const present = Object.entries(claims).filter(([, value]) => value !== undefined);
  return { claims: { ...Object.fromEntries(present), rooms: null }, permitted };
}

/** The same without remembered texts. @param {string} text */
function reference(text) {
  const claims = parseObject(text);
  return summary(claims && { claims, rights: readRights(claims.rooms) });
}

/** Compared twice, because the first time may remember a text. @param {string} text */
function compare(text) {
  const expected = reference(text);
  assert.deepEqual(summary(parse(text)), expected, text);
  assert.deepEqual(summary(parse(text)), expected, text);
  return expected;
}

for (const [what, text, rooms] of /** @type {const} */ ([
  ['first', '{"rooms":{"join":["a"]},"sub":"u"}', ['a']],
  ['last', '{"sub":"u","rooms":{"join":["b"]}}', ['b']],
  ['alone', '{"rooms":{"join":["a"]}}', ['a']],
  ['empty', '{"rooms":{},"sub":"u"}', []],
  ['absent', '{"sub":"u"}', []],
  ['behind white space', '{"rooms" : {"join":["a"]}}', ['a']],
  ['written with an escape', '{"r\\u006foms":{"join":["a"]}}', ['a']],
  ['beside an inner one', '{"info":{"rooms":{"join":["a"]}},"rooms":{"join":["b"]}}', ['b']],
  ['absent beside an inner one', '{"info":{"rooms":{"join":["a"]}}}', []],
  ['quoted in a text', '{"info":"{\\"rooms\\":{\\"join\\":[\\"a\\"]}}"}', []],
  ['the end of a name', '{"x\\"rooms":{"join":["a"]}}', []],
  ['a name with a brace inside', '{"rooms":{"}":1,"join":["a"]}}', ['a']],
])) {
  test(`rooms that are ${what} permit the same as without remembered texts`, () => {
    assert.deepEqual(compare(text)?.permitted?.[0], rooms);
  });
}

for (const [what, text] of /** @type {const} */ ([
  ['twice', '{"rooms":{"join":["a"]},"rooms":{"join":["b"]}}'],
  ['twice, once with an escape', '{"rooms":{"join":["a"]},"r\\u006foms":{"join":["b"]}}'],
  ['followed by a digit', '{"rooms":{"join":["a"]}1}'],
  ['part of a number', '{"x":1"rooms":{"join":["a"]}}'],
  ['without a name', '["rooms":{"join":["a"]}]'],
  ['with a right that comes twice', '{"rooms":{"join":["a"],"join":["b"]}}'],
  ['cut off', '{"rooms":{"join":["a"]'],
])) {
  test(`rooms that are ${what} are malformed`, () => {
    compare('{"rooms":{"join":["a"]}}'); // remembered from here on
    assert.equal(compare(text), null);
  });
}

/** @param {number} seed */
function chance(seed) {
  let state = seed;
  return (/** @type {number} */ below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const MEMBERS = [
  '"rooms":{"join":["a"]}',
  '"rooms":{"join":["chat.*"],"publish":["b"]}',
  '"rooms":{}',
  '"rooms":{"join":[1]}',
  '"rooms":{"x":{}}',
  '"rooms":null',
  '"rooms": {"join":["a"]}',
  '"r\\u006foms":{"join":["b"]}',
  '"info":{"rooms":{"join":["a"]}}',
  '"info":["rooms"]',
  '"info":"\\"rooms\\":{}"',
  '"sub":"u}"',
  '"sub":"u"',
  '"sub":"\u00fc"',
  '"jti":"a\\u0062"',
  '"iat":1',
  '"exp":1795489951',
  '"exp":1234567890123456',
  '"nbf":0',
  '"nbf":01',
  '"exp":1.5',
  '"exp":-1',
  '"iss":"a","aud":"b"',
  '"aud":["b"]',
  '"exp":1e3',
];
const PIECES = [
  ',"sub":"w"',
  '"exp":',
  '\x1f',
  '\x7f',
  '\x80',
  '"',
  '{',
  '}',
  ',',
  ':',
  '\\',
  '1',
  ' ',
  '"rooms":',
  '[',
  ']',
  '{}',
  'null',
];

test('random texts, most of them malformed, mean the same as without remembered texts', () => {
  const random = chance(17);
  let valid = 0;
  for (let i = 0; i < 20_000; i++) {
    const members = Array.from({ length: random(4) }, () => MEMBERS[random(MEMBERS.length)]);
    let text = `{${members.join(',')}}`;
    for (let changes = random(3); changes > 0; changes--) {
      const at = random(text.length + 1);
      const piece = random(3) === 0 ? '' : PIECES[random(PIECES.length)];
      text = text.slice(0, at) + piece + text.slice(at + random(3));
    }
    if (compare(text) !== null) valid++;
  }
  assert.ok(valid > 2000 && valid < 18_000, `${valid} valid texts`);
});

test('texts beyond the remembered ones are read as well', () => {
  for (let i = 0; i < 2500; i++) {
    const rights = parse(`{"rooms":{"join":["room.${i}"]}}`)?.rights;
    assert.equal(rights?.join.has(`room.${i}`), true);
    assert.equal(rights.join.has(`room.${i + 1}`), false);
  }
});

test('the same rights of many tokens are one object', () => {
  const of = (/** @type {string} */ sub) =>
    parse(`{"rooms":{"join":["shared.*"]},"sub":"${sub}"}`)?.rights;
  assert.equal(of('alice'), of('bob'));
});

test('a usual token with known rights is read without JSON.parse()', (t) => {
  const text = '{"rooms":{"join":["usual.*"]},"sub":"alice","iat":1,"exp":2}';
  parse(text);
  const { mock } = t.mock.method(JSON, 'parse');
  const { claims } = parse(text) ?? assert.fail();
  assert.deepEqual([claims.sub, claims.iat, claims.exp], ['alice', 1, 2]);
  assert.equal(mock.callCount(), 0);
  assert.equal(parse(text.replace('"sub":"alice"', '"sub":"\\u0061lice"'))?.claims.sub, 'alice');
  assert.equal(mock.callCount(), 1);
});
