// pusher-request-signature.test.js: signed requests to Pusher's HTTP API, as its SDKs make them.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import {
  isSignedBody,
  keyOf,
  verifyRequest,
} from '../../src/doors/pusher/http/request-signature.js';
import { Random } from '../checker/random.js';

const APP = { key: '278d425bdf160c739803', secrets: ['7ad3773142a6692b25b8'] };
const NOW_S = 1_353_088_179;
const BODY = '{"name":"foo","channels":["project-3"],"data":"{\\"some\\":\\"data\\"}"}';
const EVENTS_MD5 = 'ec365a775a4cd0599faeb73354201b6f';
const EVENTS_SIGNATURE = 'da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c';
const AUTH = `auth_key=${APP.key}&auth_timestamp=${NOW_S}&auth_version=1.0`;
const EVENTS = {
  method: 'POST',
  path: '/apps/3/events',
  query: `${AUTH}&body_md5=${EVENTS_MD5}&auth_signature=${EVENTS_SIGNATURE}`,
  hasBody: true,
};

/** @param {string} text */
const hmac = (text, secret = APP.secrets[0]) =>
  createHmac('sha256', secret).update(text).digest('hex');

/**
 * Signs as the SDKs do, without a look at the code under test.
 * @param {Record<string, string>} signed what is signed, by key
 * @param {string} wire the parameters as they are sent, beside those of `auth`
 */
function get(signed, wire, path = '/apps/3/channels') {
  const all = { auth_key: APP.key, auth_timestamp: String(NOW_S), auth_version: '1.0', ...signed };
  const text = Object.entries(all)
    .map(([key, value]) => [key.toLowerCase(), value])
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map((pair) => pair.join('='))
    .join('&');
  const query = [AUTH, wire, `auth_signature=${hmac(`GET\n${path}\n${text}`)}`];
  return { method: 'GET', path, query: query.filter((part) => part).join('&'), hasBody: false };
}

/** @param {Parameters<typeof verifyRequest>[1]} head */
function parametersOf(head) {
  const signed = verifyRequest(APP, head, NOW_S);
  assert.ok(typeof signed === 'object', String(signed));
  return Object.fromEntries([...signed.parameters].filter(([key]) => !key.startsWith('auth_')));
}

test('the documented requests are verified', () => {
  const signed = verifyRequest(APP, EVENTS, NOW_S);
  assert.ok(typeof signed === 'object', String(signed));
  assert.equal(isSignedBody(signed, Buffer.from(BODY)), true);
  assert.equal(isSignedBody(signed, Buffer.from(`${BODY} `)), false);
  const list = 'filter_by_prefix=presence-&info=user_count';
  const signature = '16819168891cb5dfd72b5c7a5d3d602605b26c6ba1930033b5e2eeeb65010291';
  const query = `${AUTH}&${list}&auth_signature=${signature}`;
  const head = { method: 'GET', path: '/apps/3/channels', query, hasBody: false };
  assert.deepEqual(parametersOf(head), { filter_by_prefix: 'presence-', info: 'user_count' });
  assert.equal(keyOf(query), APP.key);
});

test('each secret of the app verifies', () => {
  const rotated = { ...APP, secrets: ['new', ...APP.secrets] };
  assert.equal(typeof verifyRequest(rotated, EVENTS, NOW_S), 'object');
});

test('every change of a signed request is refused', () => {
  const { query } = EVENTS;
  const changed = /** @type {[Partial<typeof EVENTS>, RegExp][]} */ ([
    [{ method: 'PUT' }, /auth_signature/],
    [{ path: '/apps/4/events' }, /auth_signature/],
    [{ query: `${query}&x=1` }, /auth_signature/],
    [{ query: query.replace(EVENTS_MD5, '0'.repeat(32)) }, /auth_signature/],
    [{ query: query.replace(EVENTS_SIGNATURE, EVENTS_SIGNATURE.slice(1)) }, /auth_signature/],
    [{ query: query.replace('auth_signature', 'signature') }, /auth_signature/],
    [{ query: query.replace(APP.key, 'other') }, /auth_key/],
    [{ query: query.replace('=1.0', '=2.0') }, /auth_version/],
    [{ query: query.replace(String(NOW_S), '1e9') }, /auth_timestamp is not/],
    [{ query: query.replace(`&body_md5=${EVENTS_MD5}`, '') }, /body_md5/],
    [{ query: query.replace(EVENTS_MD5, 'x') }, /body_md5/],
    [{ query: `${query}${'&a=1'.repeat(100)}` }, /more than 100 parameters/],
    [{ query: '' }, /auth_key/],
  ]);
  for (const [change, text] of changed)
    assert.match(String(verifyRequest(APP, { ...EVENTS, ...change }, NOW_S)), text);
});

test('no fault contains the expected signature', () => {
  const fault = verifyRequest(APP, { ...EVENTS, query: `${EVENTS.query}0` }, NOW_S);
  assert.ok(!String(fault).includes(EVENTS_SIGNATURE));
});

test('the clocks may differ by ten minutes', () => {
  for (const late of [-600, 0, 600])
    assert.equal(typeof verifyRequest(APP, EVENTS, NOW_S + late), 'object', String(late));
  for (const late of [-601, 601])
    assert.match(String(verifyRequest(APP, EVENTS, NOW_S + late)), /clock/);
});

test('a request without a body may have the MD5 of nothing, as Python sends it', () => {
  const md5 = 'd41d8cd98f00b204e9800998ecf8427e';
  const signed = verifyRequest(APP, get({ body_md5: md5 }, `body_md5=${md5}`), NOW_S);
  assert.ok(typeof signed === 'object', String(signed));
  assert.equal(isSignedBody(signed, Buffer.alloc(0)), true);
  const none = verifyRequest(APP, get({}, ''), NOW_S);
  assert.ok(typeof none === 'object');
  assert.equal(isSignedBody(none, Buffer.alloc(0)), true);
  assert.equal(isSignedBody(none, Buffer.from('{}')), false, 'a body that nobody has signed');
});

test('a plus sign is a plus sign or a space, whichever was signed', () => {
  assert.deepEqual(parametersOf(get({ a: 'x+y' }, 'a=x+y')), { a: 'x+y' });
  assert.deepEqual(parametersOf(get({ a: 'x y' }, 'a=x+y')), { a: 'x y' });
  assert.deepEqual(parametersOf(get({ a: 'x y+' }, 'a=x%20y%2B')), { a: 'x y+' });
  assert.deepEqual(parametersOf(get({ a: '100%' }, 'a=100%')), { a: '100%' });
});

test('keys are signed in lower case, and in their order', () => {
  assert.deepEqual(parametersOf(get({ Info: '1', a: '2', B: '3' }, 'Info=1&a=2&B=3')), {
    a: '2',
    b: '3',
    info: '1',
  });
});

test('an array is signed as one parameter, as PHP does, or as several', () => {
  const both = { info: 'user_count,cache' };
  assert.deepEqual(parametersOf(get(both, 'info[]=user_count&info[]=cache')), both);
  assert.deepEqual(parametersOf(get(both, 'info%5B0%5D=user_count&info%5B1%5D=cache')), both);
  const apart = { 'info[0]': 'a', 'info[1]': 'b' };
  assert.deepEqual(parametersOf(get(apart, 'info[0]=a&info[1]=b')), apart);
  assert.deepEqual(parametersOf(get({ info: 'a,b c' }, 'info[]=a&info[]=b+c')), { info: 'a,b c' });
});

test('two requests with the same signed text are not taken for each other', () => {
  const one = get({ a: '1', b: '2' }, 'a=1&b=2');
  assert.deepEqual(parametersOf(one), { a: '1', b: '2' });
  for (const query of ['a=1%26b%3D2', 'a=1%26b=2', 'a=1&b=2&b=2', 'a=1&b=2&B=2']) {
    const head = { ...one, query: one.query.replace('a=1&b=2', query) };
    assert.match(String(verifyRequest(APP, head, NOW_S)), /auth_signature/, query);
  }
});

test('a parameter that occurs twice is refused, even if both are signed', () => {
  const path = '/apps/3/channels';
  const text = `${AUTH}&b=1&b=2`;
  const query = `${text}&auth_signature=${hmac(`GET\n${path}\n${text}`)}`;
  const fault = verifyRequest(APP, { method: 'GET', path, query, hasBody: false }, NOW_S);
  assert.match(String(fault), /auth_signature/);
});

test('names of properties of objects are names', () => {
  assert.deepEqual(
    parametersOf(get(Object.fromEntries([['constructor', '1']]), 'constructor=1')),
    Object.fromEntries([['constructor', '1']]),
  );
});

test('whatever the SDKs encode is verified, and one changed character is not', () => {
  const random = new Random(7);
  const encoders = [
    encodeURIComponent,
    (/** @type {string} */ text) => encodeURIComponent(text).replaceAll('%20', '+'),
    (/** @type {string} */ text) => text.replaceAll('%', '%25').replaceAll('&', '%26'),
    (/** @type {string} */ text) =>
      Array.from(Buffer.from(text), (byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
  ];
  const alphabet = ['a', 'Z', '0', ' ', '+', ',', ';', '=', '-', '_', 'é', '☃', '😀', '/', '%'];
  for (let i = 0; i < 2000; i++) {
    const encode = random.pick(encoders);
    const value = Array.from({ length: random.below(8) }, () => random.pick(alphabet)).join('');
    const head = get({ info: value }, `info=${encode(value)}`);
    assert.deepEqual(parametersOf(head), { info: value }, head.query);
    const at = AUTH.length + random.below(head.query.length - AUTH.length);
    const other = head.query[at] === 'x' ? 'y' : 'x';
    const query = head.query.slice(0, at) + other + head.query.slice(at + 1);
    const result = verifyRequest(APP, { ...head, query }, NOW_S);
    assert.equal(typeof result, 'string', query);
  }
});

test('a hundred parameters cost little, even with all readings and secrets', () => {
  const secrets = ['a', 'b', 'c', 'd'];
  const query = `${AUTH}${'&k[]=+'.repeat(97)}&auth_signature=${'0'.repeat(64)}`;
  const head = { method: 'GET', path: '/apps/3/channels', query, hasBody: false };
  const startMs = performance.now();
  for (let i = 0; i < 200; i++)
    assert.equal(typeof verifyRequest({ ...APP, secrets }, head, NOW_S), 'string');
  const usEach = ((performance.now() - startMs) / 200) * 1000;
  assert.ok(usEach < 2000, `${usEach} us`);
});
