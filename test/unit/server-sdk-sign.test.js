// server-sdk-sign.test.js: `sign` of fanfare/server against the verifier of the server, and
// `verifyWebhook` against what the courier sends.

import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import { exportSPKI } from 'jose';
import { Revocations } from '../../src/auth/revocations.js';
import { TokenVerifier } from '../../src/auth/verifier.js';
import { loadConfig } from '../../src/config/config.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { signedHeaders } from '../../src/protocol/webhook-signature.js';
import { FanfareApiError, sign, verifyWebhook } from '../../src/sdk/index.js';
import { messageOf } from '../../src/webhooks/message.js';
import { OTHER_SECRET, rawToken, SECRET } from '../helpers/tokens.js';

const silent = { info() {}, warn() {} };

/** A verifier of a server with these settings. @param {Record<string, string>} [env] */
async function verifierOf(env = { JWT_SECRET: SECRET }) {
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  const settings = /** @type {import('../../src/config/tokens.js').TokenSettings} */ (
    config?.tokens
  );
  const counters = createAuthCounters();
  const revocations = new Revocations({ maxLifetimeS: settings.maxLifetimeS, counters });
  const verifier = new TokenVerifier({ settings, revocations, counters, log: silent });
  await verifier.start();
  return verifier;
}

/** @param {unknown} error @param {string} [field] */
function assertRefused(error, field) {
  assert.ok(error instanceof FanfareApiError, String(error));
  assert.equal(error.code, 'INVALID_FIELD');
  if (field !== undefined) assert.equal(error.field, field);
  return true;
}

test('the server reads each claim as it was signed', async () => {
  const verifier = await verifierOf({
    JWT_SECRET: SECRET,
    JWT_AUDIENCE: 'chat',
    JWT_ISSUER: 'me',
  });
  const token = await sign(
    {
      user: 'Ann Ö',
      rooms: { join: ['chat.*'], publish: ['chat.7'] },
      broadcast: true,
      autojoin: ['user.42'],
      info: { name: 'Ann', born: [1990] },
      tokenId: 't-1',
      audience: 'chat',
      issuer: 'me',
    },
    SECRET,
    { expiresInS: 60.9 },
  );
  const identity = await verifier.verify(token);
  assert.deepEqual(
    [identity.user, identity.tokenId, identity.mayBroadcast, identity.autojoin],
    ['Ann Ö', 't-1', true, ['user.42']],
  );
  assert.equal(String(identity.info), '{"name":"Ann","born":[1990]}');
  assert.equal(identity.expiresAtMs - identity.issuedAtMs, 60_000);
  const { join, publish, history } = identity.rights;
  assert.deepEqual(
    [join.has('chat.1'), publish.has('chat.7'), publish.has('chat.1'), history.has('chat.7')],
    [true, true, false, false],
  );
});

test('a list of patterns gives all four rights, and a number stands for its digits', async () => {
  const identity = await (await verifierOf()).verify(
    await sign({ user: 42, rooms: ['chat.*'] }, SECRET),
  );
  assert.equal(identity.user, '42');
  const { audience, ...four } = identity.rights;
  for (const list of Object.values(four)) assert.ok(list.has('chat.7'));
  assert.ok(!audience.has('chat.7'));
  assert.equal(identity.expiresAtMs - identity.issuedAtMs, 3_600_000);
});

/** Deep JSON. @param {number} levels */
const nested = (levels) => JSON.parse('['.repeat(levels) + ']'.repeat(levels));

/** At a limit, and over it: the claims of `sign`, and its field. @type {[string, any, any][]} */
const LIMITS = [
  ['user', { user: 'x'.repeat(128) }, { user: 'x'.repeat(129) }],
  ['user', { user: 'ö'.repeat(42) }, { user: 'ö'.repeat(43) }],
  ['user', { user: 'a b' }, { user: '' }],
  ['user', { user: 'a"b' }, { user: 'a\nb' }],
  ['user', { user: '😀' }, { user: '\ud83d' }],
  ['rooms.join', { rooms: { join: ['a*b'] } }, { rooms: { join: ['a b'] } }],
  [
    'rooms.history',
    { rooms: { history: Array(100).fill('a') } },
    { rooms: { history: Array(101).fill('a') } },
  ],
  ['rooms.join', { rooms: { join: ['x'.repeat(200)] } }, { rooms: { join: ['x'.repeat(201)] } }],
  ['autojoin', { autojoin: ['a'] }, { autojoin: ['a*'] }],
  ['autojoin', { autojoin: Array(100).fill('a') }, { autojoin: Array(101).fill('a') }],
  ['tokenId', { tokenId: 'x'.repeat(256) }, { tokenId: 'x'.repeat(257) }],
  ['tokenId', {}, { tokenId: '' }],
  ['info', { info: 'x'.repeat(1022) }, { info: 'x'.repeat(1023) }],
  ['info', { info: 'ö'.repeat(511) }, { info: 'ö'.repeat(512) }],
  ['info', { info: nested(15) }, { info: nested(16) }],
  ['info', { info: { proto: 1 } }, { info: JSON.parse('{"__proto__":1}') }],
  ['broadcast', { broadcast: false }, { broadcast: 'yes' }],
];

for (const [index, [field, right, wrong]] of LIMITS.entries())
  test(`sign refuses ${field} where the server does (${index})`, async () => {
    const verifier = await verifierOf();
    await verifier.verify(await sign({ user: 'ann', ...right }, SECRET));
    await assert.rejects(sign({ user: 'ann', ...wrong }, SECRET), (error) =>
      assertRefused(error, field),
    );
    const { user = 'ann', tokenId: jti, ...claims } = wrong;
    const nowS = Math.floor(Date.now() / 1000);
    const raw = JSON.stringify({ sub: user, jti, iat: nowS, exp: nowS + 60, ...claims });
    assert.throws(() => verifier.verify(rawToken('{"alg":"HS256"}', raw)), { name: 'TokenError' });
  });

test('sign refuses what no server could accept', async () => {
  const none = /** @type {any} */ ({ user: 'ann' });
  for (const [claims, key, options, field] of /** @type {[any, any, any, string][]} */ ([
    [{}, SECRET, {}, 'user'],
    [{ user: 1.5 }, SECRET, {}, 'user'],
    [{ ...none, sub: 'ann' }, SECRET, {}, 'sub'],
    [{ ...none, rooms: { subscribe: ['a'] } }, SECRET, {}, 'rooms.subscribe'],
    [{ ...none, rooms: null }, SECRET, {}, 'rooms'],
    [{ ...none, rooms: 'chat.*' }, SECRET, {}, 'rooms'],
    [{ ...none, app: '1', broadcast: true }, SECRET, {}, 'broadcast'],
    [none, undefined, {}, 'key'],
    [none, 'short', {}, 'key'],
    [none, `-----BEGIN PUBLIC KEY-----\n${'x'.repeat(64)}`, {}, 'key'],
    [none, SECRET, { algorithm: 'none' }, 'algorithm'],
    [none, null, {}, 'key'],
    [none, createSecretKey(SECRET, 'utf8'), {}, 'key'],
    [none, SECRET, { expiresInS: 0 }, 'expiresInS'],
    [none, SECRET, { expiresInS: 0.5 }, 'expiresInS'],
    [none, SECRET, { expiresInS: Number.NaN }, 'expiresInS'],
    [none, SECRET, { expiresInS: 31_622_401 }, 'expiresInS'],
    [{ ...none, autojoin: Array(100).fill('x'.repeat(200)) }, SECRET, {}, 'claims'],
  ]))
    await assert.rejects(sign(claims, key, options), (error) => assertRefused(error, field), field);
});

test('the first line of rotated secrets signs', async () => {
  const token = await sign({ user: 'ann' }, `\n ${SECRET}\n${OTHER_SECRET}\n`);
  await (await verifierOf()).verify(token);
});

for (const algorithm of /** @type {const} */ (['HS256', 'HS384', 'HS512']))
  test(`the server verifies ${algorithm}`, async () => {
    const verifier = await verifierOf({ JWT_SECRET: SECRET, JWT_ALGORITHMS: algorithm });
    await verifier.verify(await sign({ user: 'ann' }, SECRET, { algorithm }));
  });

const RSA = { modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]) };

for (const [alg, how] of /** @type {[string, any][]} */ ([
  ['RS256', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', ...RSA }],
  ['PS512', { name: 'RSA-PSS', hash: 'SHA-512', ...RSA }],
  ['ES256', { name: 'ECDSA', namedCurve: 'P-256' }],
  ['ES384', { name: 'ECDSA', namedCurve: 'P-384' }],
  ['ES512', { name: 'ECDSA', namedCurve: 'P-521' }],
  ['EdDSA', { name: 'Ed25519' }],
]))
  test(`the server verifies ${alg} of a private key`, async () => {
    const keys = /** @type {any} */ (
      await crypto.subtle.generateKey(how, true, ['sign', 'verify'])
    );
    const verifier = await verifierOf({
      JWT_PUBLIC_KEY: await exportSPKI(keys.publicKey),
      JWT_ALGORITHMS: alg,
    });
    const token = await sign({ user: 'ann' }, keys.privateKey, { keyId: 'k1' });
    await verifier.verify(token);
    const [header] = token.split('.');
    assert.deepEqual(JSON.parse(Buffer.from(header, 'base64url').toString()), {
      alg,
      typ: 'JWT',
      kid: 'k1',
    });
  });

test('a key that signs no tokens is refused', async () => {
  const how = { name: 'AES-GCM', length: 256 };
  const key = /** @type {any} */ (await crypto.subtle.generateKey(how, true, ['encrypt']));
  await assert.rejects(sign({ user: 'ann' }, key), (error) => assertRefused(error, 'key'));
});

const [WHSEC, OTHER_WHSEC] = [1, 2].map(
  (byte) => `whsec_${Buffer.alloc(24, byte).toString('base64')}`,
);
const SENT = messageOf(
  /** @type {any} */ ({
    ...{ type: 'member.joined', seq: 7, epoch: '1', at: 0 },
    ...{ room: 'chat.lobby', user: 'Ö', info: { name: 'Ann' }, count: 3 },
  }),
);

/** The headers of the courier. @param {string[]} [secrets] @param {number} [ageS] */
const headersOf = (secrets = [WHSEC], ageS = 0) =>
  signedHeaders(secrets, SENT.id, SENT.body, Math.floor(Date.now() / 1000) - ageS);

/** @param {Record<string, string>} [headers] @param {any} [body] */
const requestOf = (headers = headersOf(), body = SENT.body) =>
  new Request('https://app.example/fanfare', { method: 'POST', headers, body });

test('a request of the courier is verified, as a Request and as frameworks have it', async () => {
  const expected = { ...JSON.parse(SENT.body), id: SENT.id };
  for (const request of [
    requestOf(),
    { headers: headersOf(), body: SENT.body },
    { headers: headersOf(), body: Buffer.from(SENT.body) },
  ])
    assert.deepEqual(await verifyWebhook(request, WHSEC), expected);
  assert.equal(expected.data.user, 'Ö');
});

test('either of two secrets verifies while one replaces the other', async () => {
  await verifyWebhook(requestOf(headersOf([OTHER_WHSEC])), [WHSEC, OTHER_WHSEC]);
  await verifyWebhook(requestOf(headersOf([OTHER_WHSEC, WHSEC])), WHSEC);
  await verifyWebhook(requestOf(headersOf([WHSEC], 299)), WHSEC);
  await verifyWebhook(requestOf(headersOf([WHSEC], -299)), WHSEC);
  await verifyWebhook(requestOf(headersOf([WHSEC], 500)), WHSEC, { toleranceS: 600 });
});

test('a request that is forged, altered, late or large is refused', async () => {
  const headers = headersOf();
  const { 'webhook-signature': signature, ...unsigned } = headers;
  const large = `"${'x'.repeat(262_144)}"`;
  const nowS = Math.floor(Date.now() / 1000);
  for (const [why, request] of /** @type {[RegExp, Request][]} */ ([
    [/no signature fits/, requestOf(headersOf([OTHER_WHSEC]))],
    [/no signature fits/, requestOf(headers, SENT.body.replace('chat.lobby', 'chat.lobbx'))],
    [/no signature fits/, requestOf({ ...headers, 'webhook-id': 'evt_2' })],
    [/no signature fits/, requestOf({ ...headers, 'webhook-timestamp': `${nowS - 1}` })],
    [/no signature fits/, requestOf({ ...headers, 'webhook-signature': signature.slice(3) })],
    [/no signature fits/, requestOf({ ...headers, 'webhook-signature': 'v1,%%% v1, v2,' })],
    [
      /no signature fits/,
      requestOf({ ...headers, 'webhook-signature': `${'v1,AA== '.repeat(8)}${signature}` }),
    ],
    [/webhook-signature is missing/, requestOf(unsigned)],
    [/the last 300 s/, requestOf(headersOf([WHSEC], 302))],
    [/the last 300 s/, requestOf(headersOf([WHSEC], -302))],
    [/the last 300 s/, requestOf({ ...headers, 'webhook-timestamp': 'NaN' })],
    [/more than 262144 bytes/, requestOf(signedHeaders([WHSEC], 'x', large, nowS), large)],
  ]))
    await assert.rejects(verifyWebhook(request, WHSEC), (error) => {
      assert.ok(error instanceof FanfareApiError, String(error));
      assert.equal(error.code, 'INVALID_SIGNATURE');
      assert.match(error.message, why);
      return true;
    });
});

test('a secret of another form, and a body that was parsed, are mistakes of the program', async () => {
  for (const secret of [undefined, '', 'secret', 'whsec_', 'whsec_%', [WHSEC, '']])
    await assert.rejects(
      verifyWebhook(requestOf(headersOf([OTHER_WHSEC])), secret),
      /a secret is whsec_ and Base64/,
    );
  const parsed = /** @type {any} */ ({ headers: headersOf(), body: JSON.parse(SENT.body) });
  await assert.rejects(verifyWebhook(parsed, WHSEC), /before a parser reads them/);
});
