import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { exportJWK, generateKeyPair, importJWK } from 'jose';
import { RemoteKeys } from '../../src/auth/remote-keys.js';
import { TokenVerifier } from '../../src/auth/verifier.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { rawToken, signed, startJwks } from '../helpers/tokens.js';

/** @typedef {import('node:http').ServerResponse} ServerResponse */

/**
 * A JWKS server whose answer each test sets, and a verifier that reads it.
 * @param {import('node:test').TestContext} t
 * @param {(response: ServerResponse) => void} first answers until `state.answer` is set
 * @param {{timeoutMs?: number, algorithms?: string[]}} [options]
 */
async function build(t, first, { timeoutMs = 5000, algorithms = [] } = {}) {
  const state = { answer: first, requests: 0, nowMs: 1_000_000 };
  const url = await startJwks(t, (_request, response) => {
    state.requests++;
    state.answer(response);
  });
  /** @type {string[]} */
  const logged = [];
  const note = (/** @type {object} */ fields, /** @type {string} */ text) =>
    void logged.push(`${text} ${inspect(fields)}`);
  const log = { info: note, warn: note };
  const counters = createAuthCounters();
  const remote = new RemoteKeys({ url, counters, log, now: () => state.nowMs, timeoutMs });
  const verifier = new TokenVerifier({
    settings: {
      secrets: [],
      publicKeys: [],
      jwksUrl: url,
      algorithms,
      audience: [],
      issuer: [],
      maxLifetimeS: 86_400,
    },
    revocations: { isRevoked: () => false },
    counters,
    log,
    remote,
  });
  t.after(() => verifier.close());
  await (await verifier.start()).remote;
  return { state, counters, logged, verifier };
}

/** @param {string} alg @param {string} [kid] */
async function pair(alg, kid) {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const jwk = { ...(await exportJWK(publicKey)), ...(kid !== undefined && { kid }) };
  const secretJwk = { ...(await exportJWK(privateKey)), ...(kid !== undefined && { kid }) };
  return { jwk, secretJwk, privateKey, token: () => signed(privateKey, alg, kid) };
}

/** @param {readonly unknown[]} keys */
const jwks = (keys) => (/** @type {ServerResponse} */ response) =>
  void response.end(JSON.stringify({ keys }));

/** @param {TokenVerifier} verifier @param {string} token */
const refusal = (verifier, token) =>
  (async () => verifier.verify(token))().then(
    () => assert.fail('the token was accepted'),
    (error) => /** @type {import('../../src/auth/token-error.js').TokenError} */ (error),
  );

test('while the URL hangs, invented key ids do not shut out tokens of a known key', async (t) => {
  const known = await pair('ES256', 'a');
  const { verifier, state, counters } = await build(t, jwks([known.jwk]));
  const invented = await signed(known.privateKey, 'ES256', 'invented');
  /** @type {Promise<ServerResponse>} */
  const hanging = new Promise((resolve) => {
    state.answer = resolve;
  });
  state.nowMs += 60_000;
  const flood = Array.from({ length: 1200 }, () => refusal(verifier, invented));
  const response = await hanging;
  await verifier.verify(await known.token());
  jwks([known.jwk])(response);
  const codes = (await Promise.all(flood)).map(({ reason }) => reason);
  // Those above the bound of waiting tokens are refused at once.
  assert.equal(codes.filter((reason) => reason === 'keys_unavailable').length, 200);
  assert.equal(codes.filter((reason) => reason === 'unknown_key').length, 1000);
  assert.equal(counters.tokens.overload, 0);
});

test('a token is accepted by the key that its kid names', async (t) => {
  const [a, b] = [await pair('ES256', 'a'), await pair('EdDSA', 'b')];
  const { verifier, state, logged } = await build(t, jwks([a.jwk, b.jwk]));
  await verifier.verify(await a.token());
  await verifier.verify(await b.token());
  await verifier.verify(await a.token());
  assert.equal(state.requests, 1);
  assert.equal(logged.length, 1);
});

for (const [what, kid, tokenKid] of /** @type {const} */ ([
  ['without a kid', undefined, undefined],
  ['without a kid, of keys that have one', 'own', undefined],
  ['whose kid several keys have', 'same', 'same'],
])) {
  test(`a token ${what} is tried with the first four keys that fit`, async (t) => {
    const others = [await pair('EdDSA', kid), await pair('EdDSA', kid)];
    /** @type {Awaited<ReturnType<typeof pair>>[]} */
    const fitting = [];
    for (let i = 0; i < 5; i++) fitting.push(await pair('ES256', kid === 'own' ? `own-${i}` : kid));
    const all = [others[0], ...fitting, others[1]].map(({ jwk }) => jwk);
    const { verifier, state } = await build(t, jwks(all));
    const signedBy = (/** @type {number} */ i) => signed(fitting[i].privateKey, 'ES256', tokenKid);
    for (let i = 0; i < 4; i++) await verifier.verify(await signedBy(i));
    assert.equal((await refusal(verifier, await signedBy(4))).reason, 'signature');
    assert.equal(state.requests, 1);
  });
}

test('a key that cannot be imported does not stand in the way of the next one', async (t) => {
  const [good, other] = [await pair('ES256', 'same'), await pair('ES256', 'same')];
  const broken = { ...other.jwk, x: good.jwk.y };
  const { verifier } = await build(t, jwks([broken, good.jwk]));
  await verifier.verify(await good.token());
});

test('an unknown kid causes the set to be read again, at most every 30 s', async (t) => {
  const [a, b] = [await pair('ES256', 'a'), await pair('ES256', 'b')];
  const { verifier, state } = await build(t, jwks([a.jwk]));
  state.answer = jwks([a.jwk, b.jwk]);
  // Within 30 s of a read the key may exist and not be known: come back.
  const early = await refusal(verifier, await b.token());
  assert.deepEqual([early.code, early.retryAfterS], ['UNAVAILABLE', 30]);
  assert.equal(state.requests, 1);
  state.nowMs += 30_000;
  await verifier.verify(await b.token());
  assert.equal(state.requests, 2);
  state.nowMs += 30_000;
  const stranger = await (await pair('ES256', '../../etc/passwd')).token();
  const answers = await Promise.all([1, 2, 3].map(() => refusal(verifier, stranger)));
  assert.deepEqual([...new Set(answers.map(({ code }) => code))], ['INVALID_TOKEN']);
  assert.equal(state.requests, 3);
  for (let i = 0; i < 50; i++) await refusal(verifier, stranger);
  assert.equal(state.requests, 3);
  await verifier.verify(await a.token());
});

test('known keys stay in use while the URL is down', async (t) => {
  const a = await pair('ES256', 'a');
  const { verifier, state, counters, logged } = await build(t, jwks([a.jwk]));
  state.answer = (response) => void response.destroy();
  const stranger = await (await pair('ES256', 'x')).token();
  for (let i = 0; i < 3; i++) {
    state.nowMs += 30_000;
    const { code, reason } = await refusal(verifier, stranger);
    assert.deepEqual([code, reason], ['UNAVAILABLE', 'keys_unavailable']);
    await verifier.verify(await a.token());
  }
  assert.equal(state.requests, 4);
  assert.deepEqual(counters.keyReads, { ok: 1, failed: 3 });
  assert.equal(counters.tokens.keys_unavailable, 3);
  assert.equal(logged.length, 2, 'a state is logged once');
  assert.match(logged[1], /JWKS unavailable: known keys stay in use/);
});

test('a server starts while the URL is down, and accepts tokens when it is up', async (t) => {
  const a = await pair('ES256', 'a');
  const { verifier, state } = await build(t, (response) => void response.destroy());
  assert.equal((await refusal(verifier, await a.token())).code, 'UNAVAILABLE');
  state.answer = jwks([a.jwk]);
  state.nowMs += 30_000;
  await verifier.verify(await a.token());
});

test('a URL that never answers delays a token by the time-out, and later tokens not at all', async (t) => {
  const a = await pair('ES256', 'a');
  const { verifier, logged } = await build(t, () => {}, { timeoutMs: 50 });
  assert.match(logged[0], /fault: 'time-out'/);
  assert.equal((await refusal(verifier, await a.token())).code, 'UNAVAILABLE');
});

test('a read ends by its time-out if garbage is collected meanwhile', async (t) => {
  setFlagsFromString('--expose-gc');
  const collect = /** @type {() => void} */ (runInNewContext('gc'));
  const timer = setInterval(collect, 5);
  t.after(() => clearInterval(timer));
  for (const first of [() => {}, (/** @type {ServerResponse} */ response) => response.write('{')]) {
    const { logged } = await build(t, first, { timeoutMs: 100 });
    assert.match(logged[0], /fault: 'time-out'/);
  }
});

test('a body that never ends delays a token by the time-out', async (t) => {
  const { logged } = await build(t, (response) => void response.write('{"keys":['), {
    timeoutMs: 50,
  });
  assert.match(logged[0], /fault: 'time-out'/);
});

/** Answers that are not a JWKS, and their log lines. */
const LIES = /** @type {[string, (response: ServerResponse) => void, RegExp][]} */ ([
  ['status 500', (response) => void response.writeHead(500).end('{"keys":[]}'), /status 500/],
  [
    'a redirect',
    (response) => void response.writeHead(302, { Location: 'http://127.0.0.1:1/' }).end(),
    /fault: 'status 302'/,
  ],
  ['HTML', (response) => void response.end('<html>'), /not JSON/],
  ['another object', (response) => void response.end('{"keys":{"a":1}}'), /not a JWKS/],
  ['null', (response) => void response.end('null'), /not a JWKS/],
  ['an empty set', jwks([]), /no usable key/],
  [
    'rubbish as keys',
    jwks([null, 7, 'x', [], { kty: 'RSA' }, { kty: 'EC', crv: 'P-256' }]),
    /no usable/,
  ],
  [
    'an endless body',
    (response) => {
      const part = Buffer.alloc(65_536, 0x20);
      const more = () => {
        while (!response.destroyed && response.write(part));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    },
    /more than 262144 bytes/,
  ],
]);

for (const [name, lie, text] of LIES) {
  test(`an answer that is ${name} is a failed read, and the known keys stay`, async (t) => {
    const a = await pair('ES256', 'a');
    const { verifier, state, logged } = await build(t, jwks([a.jwk]));
    state.answer = lie;
    state.nowMs += 30_000;
    const stranger = await (await pair('ES256', 'x')).token();
    assert.equal((await refusal(verifier, stranger)).code, 'UNAVAILABLE');
    assert.match(logged[1], text);
    await verifier.verify(await a.token());
  });
}

test('no encoded answer is asked for, and none is decoded', async (t) => {
  const { jwk, token } = await pair('ES256', 'a');
  const body = JSON.stringify({ keys: [jwk] });
  for (const [encoding, pack] of /** @type {[string, (text: string) => Buffer][]} */ ([
    ['br', brotliCompressSync],
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', () => Buffer.from([0xff, 1, 2, 3])],
  ])) {
    let asked = '';
    const { verifier, logged } = await build(t, (response) => {
      asked = String(response.req.headers['accept-encoding']);
      response.setHeader('Content-Encoding', encoding).end(pack(body));
    });
    assert.equal(asked, 'identity');
    assert.equal((await refusal(verifier, await token())).code, 'UNAVAILABLE');
    assert.match(logged[0], /the answer has a content encoding/);
  }
});

test('keys that must not sign tokens are left out of a set', async (t) => {
  const good = await pair('ES256', 'good');
  const { jwk } = await pair('ES256');
  const weak = { kty: 'RSA', kid: 'weak', n: 'A'.repeat(171), e: 'AQAB' };
  const huge = { kty: 'RSA', kid: 'huge', n: 'A'.repeat(4000), e: 'AQAB' };
  const slow = { kty: 'RSA', kid: 'slow', n: 'A'.repeat(342), e: 'A'.repeat(342) };
  const secret = { kty: 'oct', kid: 'secret', k: 'x'.repeat(43) };
  const keys = [
    { ...jwk, kid: 'enc', use: 'enc' },
    { ...jwk, kid: 'ops', key_ops: ['sign'] },
    { ...jwk, kid: 'alg', alg: 'none' },
    { ...jwk, kid: 'k'.repeat(257) },
    { ...jwk, kid: 7 },
    weak,
    huge,
    slow,
    secret,
  ];
  const { verifier, state } = await build(t, jwks([good.jwk, ...keys]));
  await verifier.verify(await good.token());
  for (const { kid } of [...keys]) {
    state.nowMs += 30_000;
    for (const alg of ['ES256', 'RS256', 'HS256']) {
      const header = JSON.stringify({ alg, kid });
      const made = rawToken(header, '{"sub":"a"}', Buffer.from('x'.repeat(43), 'base64url'));
      const { reason } = await refusal(verifier, made);
      assert.match(reason, /^(unknown_key|algorithm|keys_unavailable)$/);
    }
  }
});

test('a point that is not on its curve is an unknown key', async (t) => {
  const good = await pair('ES256', 'a');
  const { verifier } = await build(t, jwks([{ ...good.jwk, y: good.jwk.x }]));
  assert.equal((await refusal(verifier, await good.token())).reason, 'unknown_key');
});

test('a private key in a set is used as its public half', async (t) => {
  const a = await pair('ES256', 'a');
  const { verifier } = await build(t, jwks([{ ...a.secretJwk, key_ops: ['verify'] }]));
  await verifier.verify(await a.token());
});

test('keys beyond 100 are left out', async (t) => {
  const a = await pair('ES256', 'a');
  const others = Array.from({ length: 100 }, (_, i) => ({ ...a.jwk, kid: `k${i}` }));
  const { verifier, state } = await build(t, jwks([...others, a.jwk]));
  state.nowMs += 30_000;
  assert.equal((await refusal(verifier, await a.token())).reason, 'unknown_key');
});

test('the alg of a key in a set restricts its use', async (t) => {
  const { jwk, secretJwk, token } = await pair('RS256', 'a');
  const other = /** @type {import('jose').CryptoKey} */ (await importJWK(secretJwk, 'RS512'));
  const { verifier, state } = await build(t, jwks([{ ...jwk, alg: 'RS256' }]));
  await verifier.verify(await token());
  state.nowMs += 30_000;
  const { reason } = await refusal(verifier, await signed(other, 'RS512', 'a'));
  assert.equal(reason, 'unknown_key');
  // Without `alg` the same key is good for both.
  const both = await build(t, jwks([jwk]));
  await both.verifier.verify(await signed(other, 'RS512', 'a'));
});

test('the log and the errors hold neither URL paths nor keys', async (t) => {
  const a = await pair('ES256', 'a');
  const { verifier, state, logged } = await build(t, jwks([a.jwk]));
  state.answer = (response) => void response.end(JSON.stringify({ keys: [a.jwk.x, a.jwk.y] }));
  state.nowMs += 30_000;
  const error = await refusal(verifier, await (await pair('ES256', 'x')).token());
  const shown = logged.join('\n') + inspect(error, { depth: 9, showHidden: true });
  for (const secret of [a.jwk.x, a.jwk.y, 'jwks.json']) assert.ok(!shown.includes(`${secret}`));
});
