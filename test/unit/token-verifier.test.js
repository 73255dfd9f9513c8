import assert from 'node:assert/strict';
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { exportSPKI, generateKeyPair } from 'jose';
import { Revocations } from '../../src/auth/revocations.js';
import { Session } from '../../src/auth/session.js';
import { TokenError } from '../../src/auth/token-error.js';
import { MAX_TOKEN_BYTES, TokenVerifier } from '../../src/auth/verifier.js';
import { ALGORITHMS, readPem, secretFault } from '../../src/config/token-keys.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { RareLog } from '../../src/observability/rare-log.js';
import * as tokens from '../helpers/tokens.js';

const HEADER = '{"alg":"HS256","typ":"JWT"}';
const MAX_LIFETIME_S = 86_400;
const nowS = Math.floor(Date.now() / 1000);
/** For all tests: an RSA key takes long to make. */
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });

const { base64url, OTHER_SECRET, rawToken, SECRET, signed } = tokens;
/** A token of this file's clock, which stands. @param {object} [claims] @param {string} [secret] */
const token = (claims, secret) => tokens.token({ iat: nowS, exp: nowS + 3600, ...claims }, secret);

/** @type {string[]} */
const logged = [];
const log = {
  info: (/** @type {object} */ fields, /** @type {string} */ text) =>
    void logged.push(inspect(fields, { depth: 9 }) + text),
  warn: (/** @type {object} */ fields, /** @type {string} */ text) =>
    void logged.push(inspect(fields, { depth: 9 }) + text),
};

/**
 * @param {Partial<import('../../src/config/tokens.js').TokenSettings>} [more]
 * @param {Partial<ConstructorParameters<typeof TokenVerifier>[0]>} [parts]
 */
async function build(more = {}, parts = {}) {
  const settings = {
    secrets: [SECRET],
    publicKeys: [],
    jwksUrl: '',
    algorithms: [],
    audience: [],
    issuer: [],
    maxLifetimeS: MAX_LIFETIME_S,
    ...more,
  };
  const counters = createAuthCounters();
  const revocations = new Revocations({ maxLifetimeS: settings.maxLifetimeS, counters });
  const verifier = new TokenVerifier({
    settings,
    revocations,
    counters,
    log,
    now: () => nowS * 1000,
    ...parts,
  });
  await verifier.start();
  return { verifier, counters, revocations };
}

/** @param {string} pem */
function keysOf(pem) {
  const { keys, fault } = readPem(pem);
  assert.equal(fault, '');
  return keys;
}

/**
 * @param {TokenVerifier} verifier
 * @param {string} text a token
 * @returns {Promise<string>} why it is refused
 */
async function reasonFor(verifier, text) {
  return (await errorFor(verifier, text)).reason;
}

/** @param {TokenVerifier} verifier @param {string} text a token @returns {Promise<TokenError>} */
async function errorFor(verifier, text) {
  const error = await (async () => verifier.verify(text))().then(
    () => assert.fail('the token was accepted'),
    (refusal) => refusal,
  );
  assert.ok(error instanceof TokenError, inspect(error));
  // No part of a token may reach a log through its error.
  const shown = inspect(error, { depth: 9, showHidden: true });
  for (const part of text.split('.')) if (part.length > 8) assert.ok(!shown.includes(part));
  return error;
}

test('a valid token yields its user, rights, rooms, info and times', async () => {
  const { verifier, counters } = await build();
  const identity = await verifier.verify(
    token({
      jti: 't1',
      iat: nowS,
      exp: nowS + 60,
      rooms: { join: ['chat.*'], publish: ['chat.42'] },
      broadcast: true,
      autojoin: ['user.7'],
      info: { name: 'Älice' },
      unknown: [1],
    }),
  );
  assert.equal(identity.user, 'alice');
  assert.equal(identity.tokenId, 't1');
  assert.equal(identity.issuedAtMs, nowS * 1000);
  assert.equal(identity.expiresAtMs, (nowS + 60) * 1000);
  assert.deepEqual(identity.autojoin, ['user.7']);
  assert.equal(identity.info?.toString(), '{"name":"Älice"}');
  const { rights } = identity;
  assert.ok(identity.mayBroadcast && rights.join.has('chat.1') && rights.publish.has('chat.42'));
  assert.ok(!rights.publish.has('chat.1') && !rights.history.has('chat.1'));
  const session = new Session(identity, null, 0);
  assert.ok(session.mayJoin('user.7') && session.mayJoin('chat.9') && !session.mayJoin('x'));
  assert.equal(counters.tokens.accepted, 1);
});

test('a token without rights permits nothing', async () => {
  const { verifier } = await build();
  const { rights, mayBroadcast, autojoin, info } = await verifier.verify(token());
  for (const right of /** @type {const} */ (['join', 'publish', 'presence', 'history']))
    assert.ok(!rights[right].has('a'));
  assert.equal(mayBroadcast, false);
  assert.deepEqual([autojoin, info], [[], null]);
});

test('a subscription token of Centrifugo opens no native connection', async () => {
  const { verifier } = await build({ hasSubscriptionTokens: true });
  assert.equal(await reasonFor(verifier, token({ channel: '$secret' })), 'kind');
  for (const channel of ['', 7, null])
    assert.equal((await verifier.verify(token({ channel }))).user, 'alice', String(channel));
  const { verifier: other } = await build();
  assert.equal((await other.verify(token({ channel: 'web' }))).user, 'alice', 'without that door');
});

for (const [algorithm, hash] of [
  ['HS256', 'sha256'],
  ['HS384', 'sha384'],
  ['HS512', 'sha512'],
]) {
  test(`${algorithm} is accepted with a secret of at least 32 bytes`, async () => {
    const { verifier } = await build();
    const text = `${base64url(`{"alg":"${algorithm}"}`)}.${token().split('.')[1]}`;
    const mac = createHmac(hash, SECRET).update(text).digest('base64url');
    assert.equal((await verifier.verify(`${text}.${mac}`)).user, 'alice');
  });
}

for (const algorithm of [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
]) {
  test(`${algorithm} is accepted with its public key`, async () => {
    const { privateKey, publicKey } = /^[PR]S/.test(algorithm)
      ? rsa
      : await generateKeyPair(algorithm, { extractable: true });
    const { verifier } = await build({
      secrets: [],
      publicKeys: keysOf(await exportSPKI(publicKey)),
    });
    assert.equal((await verifier.verify(await signed(privateKey, algorithm))).user, 'alice');
  });
}

test('a signature with any bit changed, or of another length, is refused', async () => {
  const { verifier } = await build();
  const [head, body, mac] = token().split('.');
  const bytes = Buffer.from(mac, 'base64url');
  const signedBy = (/** @type {Buffer} */ signature) =>
    `${head}.${body}.${signature.toString('base64url')}`;
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const wrong = Buffer.from(bytes);
    wrong[bit >> 3] ^= 1 << (bit & 7);
    assert.equal(await reasonFor(verifier, signedBy(wrong)), 'signature', `bit ${bit}`);
  }
  // The longer ones begin with the valid one.
  for (let length = 0; length < 3 * bytes.length; length++) {
    if (length === bytes.length) continue;
    const wrong = Buffer.concat([bytes, bytes, bytes]).subarray(0, length);
    assert.equal(await reasonFor(verifier, signedBy(wrong)), 'signature', `${length} bytes`);
  }
  assert.equal((await verifier.verify(signedBy(bytes))).user, 'alice');
});

test('the same rights of many tokens are one object, and others are not', async () => {
  const { verifier } = await build();
  const rightsOf = async (/** @type {string} */ sub, /** @type {string} */ room) =>
    (await verifier.verify(token({ sub, rooms: { join: [room] } }))).rights;
  assert.equal(await rightsOf('alice', 'chat.*'), await rightsOf('bob', 'chat.*'));
  // More than are remembered.
  for (let i = 0; i < 1500; i++) {
    const { join, publish } = await rightsOf('alice', `room.${i}`);
    assert.ok(join.has(`room.${i}`) && !join.has(`room.${i + 1}`) && !publish.has(`room.${i}`));
  }
});

test('two secrets are accepted at once, and a third is not', async () => {
  const { verifier } = await build({ secrets: [SECRET, OTHER_SECRET] });
  await verifier.verify(token({}, SECRET));
  await verifier.verify(token({}, OTHER_SECRET));
  assert.equal(await reasonFor(verifier, token({}, `${SECRET}x`)), 'signature');
});

test('two public keys in one PEM text are accepted at once', async () => {
  const first = await generateKeyPair('ES256', { extractable: true });
  const second = await generateKeyPair('ES256', { extractable: true });
  const pem = (await exportSPKI(first.publicKey)) + (await exportSPKI(second.publicKey));
  const { verifier } = await build({ secrets: [], publicKeys: keysOf(pem) });
  await verifier.verify(await signed(first.privateKey, 'ES256'));
  await verifier.verify(await signed(second.privateKey, 'ES256'));
});

/** @param {object} claims */
const payload = (claims = {}) =>
  JSON.stringify({ sub: 'alice', iat: nowS, exp: nowS + 60, ...claims });

/** Attacks on the form and the header: a token, and the reason of its refusal. */
const FORMS = /** @type {const} */ ([
  ['an empty text', '', 'malformed'],
  ['two parts', 'a.b', 'malformed'],
  ['four parts', `${token()}.a`, 'malformed'],
  ['five parts, as an encrypted token has', 'a.b.c.d.e', 'malformed'],
  ['characters outside of base64url', token().replace('.', '.+'), 'malformed'],
  ['a line break', `${token()}\n`, 'malformed'],
  ['a header that is not JSON', rawToken('{alg', payload()), 'malformed'],
  ['a header that is an array', rawToken('["HS256"]', payload()), 'malformed'],
  ['a payload that is not JSON', rawToken(HEADER, 'sub=alice'), 'malformed'],
  ['a payload that is an array', rawToken(HEADER, '[]'), 'malformed'],
  ['no algorithm', rawToken('{"typ":"JWT"}', payload()), 'algorithm'],
  ['the algorithm none', `${base64url('{"alg":"none"}')}.${base64url(payload())}.`, 'algorithm'],
  ['the algorithm None', rawToken('{"alg":"None"}', payload()), 'algorithm'],
  ['an algorithm in lower case', rawToken('{"alg":"hs256"}', payload()), 'algorithm'],
  ['an algorithm that is a list', rawToken('{"alg":["HS256"]}', payload()), 'algorithm'],
  ['an algorithm without a key', rawToken('{"alg":"RS256"}', payload()), 'algorithm'],
  ['the name of a member of objects', rawToken('{"alg":"constructor"}', payload()), 'algorithm'],
  ['two algorithms', rawToken('{"alg":"none","alg":"HS256"}', payload()), 'malformed'],
  [
    'an escaped second algorithm',
    rawToken('{"alg":"x","\\u0061lg":"HS256"}', payload()),
    'malformed',
  ],
  ['a critical extension', rawToken('{"alg":"HS256","crit":["x"],"x":1}', payload()), 'malformed'],
  ['an unencoded payload', rawToken('{"alg":"HS256","b64":false}', payload()), 'malformed'],
  ['a nested token', rawToken('{"alg":"HS256","cty":"JWT"}', token()), 'malformed'],
  ['another type', rawToken('{"alg":"HS256","typ":"logout+jwt"}', payload()), 'malformed'],
  ['a type that is a number', rawToken('{"alg":"HS256","typ":1}', payload()), 'malformed'],
  ['no signature', `${token().split('.', 2).join('.')}.`, 'signature'],
  ['a signature cut short', token().slice(0, -4), 'signature'],
  ['the signature of another token', swapSignature(), 'signature'],
  ['another secret', token({}, OTHER_SECRET), 'signature'],
  ['a longer text than allowed', token({ info: 'x'.repeat(MAX_TOKEN_BYTES) }), 'oversized'],
  ['a deep header', rawToken(`{"alg":"HS256","x":${deep(2000)}}`, payload()), 'malformed'],
]);

for (const [name, text, reason] of FORMS) {
  test(`a token is refused that has ${name}`, async () => {
    const { verifier, counters } = await build();
    assert.equal(await reasonFor(verifier, text), reason);
    assert.equal(counters.tokens[reason], 1);
    assert.equal(counters.tokens.accepted, 0);
  });
}

/** Payloads with a valid signature, and the reason of their refusal. */
const CLAIMS = /** @type {const} */ ([
  ['no exp', payload({ exp: undefined }), 'claims'],
  ['an exp that is a text', payload({ exp: `${nowS + 60}` }), 'claims'],
  ['an infinite exp', payload().replace(`${nowS + 60}`, '1e999'), 'claims'],
  ['an exp 6 s ago', payload({ iat: nowS - 99, exp: nowS - 6 }), 'expired'],
  ['an nbf in 9 s', payload({ nbf: nowS + 9 }), 'not_yet_valid'],
  ['an nbf that is a text', payload({ nbf: '0' }), 'claims'],
  ['an iat in 9 s', payload({ iat: nowS + 9 }), 'not_yet_valid'],
  ['an iat that is a text', payload({ iat: '0' }), 'claims'],
  ['a lifetime above the limit', payload({ exp: nowS + MAX_LIFETIME_S + 9 }), 'lifetime'],
  ['such a lifetime from iat on', payload({ iat: nowS - MAX_LIFETIME_S }), 'lifetime'],
  ['no iat', payload({ iat: undefined }), 'claims'],
  ['no sub', payload({ sub: undefined }), 'claims'],
  ['an empty sub', payload({ sub: '' }), 'claims'],
  ['a sub that is a fraction', payload({ sub: 7.5 }), 'claims'],
  ['a sub with an exponent', `{"sub":1e3,"iat":${nowS},"exp":${nowS + 60}}`, 'claims'],
  ['a sub of 129 characters', payload({ sub: 'a'.repeat(129) }), 'claims'],
  ['a sub with a control character', payload({ sub: 'a\u0000' }), 'claims'],
  ['a sub with half a surrogate pair', payload({ sub: 'a\ud800' }), 'claims'],
  ['an empty jti', payload({ jti: '' }), 'claims'],
  ['a jti of 257 characters', payload({ jti: 'a'.repeat(257) }), 'claims'],
  ['rooms that are a list', payload({ rooms: ['*'] }), 'claims'],
  ['rooms that are null', payload({ rooms: null }), 'claims'],
  ['a list that is a text', payload({ rooms: { join: '*' } }), 'claims'],
  ['a pattern that is a number', payload({ rooms: { join: [1] } }), 'claims'],
  ['a pattern with a space', payload({ rooms: { join: ['a b'] } }), 'claims'],
  ['101 patterns', payload({ rooms: { join: Array(101).fill('a') } }), 'claims'],
  ['a broadcast that is a text', payload({ broadcast: 'true' }), 'claims'],
  ['an autojoin that is a text', payload({ autojoin: 'a' }), 'claims'],
  ['an autojoin of a pattern', payload({ autojoin: ['a*'] }), 'claims'],
  ['101 rooms to join', payload({ autojoin: Array(101).fill('a') }), 'claims'],
  ['an info of 1,025 bytes', payload({ info: 'x'.repeat(1023) }), 'claims'],
  ['two subs', `{"sub":"eve","exp":${nowS + 60},"sub":"alice"}`, 'malformed'],
  [
    'two lists of one right',
    `{"sub":"a","exp":${nowS + 60},"rooms":{"join":[],"join":["*"]}}`,
    'malformed',
  ],
  ['two rooms', `{"sub":"a","exp":${nowS + 60},"rooms":{},"rooms":{}}`, 'malformed'],
  [
    'an escaped second rooms',
    `{"sub":"a","exp":${nowS + 60},"rooms":{},"r\\u006foms":{}}`,
    'malformed',
  ],
  ['the name __proto__', `{"sub":"a","exp":${nowS + 60},"info":{"__proto__":1}}`, 'malformed'],
  ['a deep claim', `{"sub":"a","exp":${nowS + 60},"info":${deep(40)}}`, 'malformed'],
]);

for (const [name, text, reason] of CLAIMS) {
  test(`a signed token is refused that has ${name}`, async () => {
    const { verifier } = await build();
    assert.equal(await reasonFor(verifier, rawToken(HEADER, text)), reason);
  });
}

const minute = { iat: nowS, exp: nowS + 60 };
/**
 * What the first day's mistakes are answered with, and logged as.
 * @type {readonly [string, string, string, string][]}
 */
const WHY = /** @type {const} */ ([
  [token({ ...minute, sub: undefined }), 'claims', 'sub', 'claim sub: it is missing or empty'],
  [
    token({ ...minute, sub: [] }),
    'claims',
    'sub',
    'claim sub: it is neither a string nor an integer',
  ],
  [
    token({ ...minute, sub: 1.5 }),
    'claims',
    'sub',
    'claim sub: as a number it has to be an integer',
  ],
  [token({ iat: nowS, exp: undefined }), 'claims', 'exp', 'claim exp: it is missing'],
  [token({ exp: nowS + 60, iat: undefined }), 'claims', 'iat', 'claim iat: it is missing'],
  [token({ iat: nowS, exp: '60' }), 'claims', 'exp', 'claim exp: it is not a number'],
  [token({ iat: nowS - 90, exp: nowS - 30 }), 'expired', 'exp', 'exp passed 30 s ago'],
  [
    token({ iat: nowS + 65, exp: nowS + 600 }),
    'not_yet_valid',
    'iat',
    'iat is 65 s ahead of the server clock',
  ],
  [
    token({ iat: nowS * 1000, exp: (nowS + 60) * 1000 }),
    'not_yet_valid',
    'iat',
    `iat is ${nowS * 999} s ahead of the server clock (milliseconds? JWT has seconds)`,
  ],
  [
    token({ iat: nowS, exp: nowS + 86_400 * 3650 }),
    'lifetime',
    'exp',
    `exp is ${86_400 * 3650} s after iat, JWT_MAX_LIFETIME_S permits ${MAX_LIFETIME_S}`,
  ],
  [
    token({ ...minute, rooms: ['a'] }),
    'claims',
    'rooms',
    'claim rooms: it is not an object with lists of up to 100 room patterns: join, publish, presence, history, audience',
  ],
  [
    'abc',
    'malformed',
    '',
    'it is not a JWT (three parts of base64url, the first two JSON objects)',
  ],
  [token(minute, OTHER_SECRET), 'signature', '', 'it was not signed with a configured key'],
  [
    rawToken('{"alg":"none"}', payload({})),
    'algorithm',
    'alg',
    `alg is none of ${ALGORITHMS.join(', ')}`,
  ],
  [
    rawToken('{"alg":"RS256"}', payload({})),
    'algorithm',
    '',
    'its algorithm is not allowed (JWT_ALGORITHMS), or fits no configured key',
  ],
  [
    token({ ...minute, app: 'x' }),
    'app',
    'app',
    'app is unknown or disabled, or this door has no apps',
  ],
]);

test('a refusal names its claim and its cause; the log has a line a minute for each', async () => {
  /** @type {Record<string, unknown>[]} */
  const lines = [];
  const rareLog = new RareLog({ warn: (fields) => void lines.push({ ...fields }) });
  const { verifier } = await build({}, { rareLog });
  for (const [text, reason, claim, why] of WHY) {
    for (let again = 0; again < 3; again++) {
      const error = await errorFor(verifier, text);
      assert.deepEqual(
        [error.reason, error.claim, error.why, error.told],
        [reason, claim, why, ''],
      );
      assert.match(error.message, /^The token[^:]*\.$/, 'clients are not told');
    }
  }
  const places = new Set(WHY.map(([, reason, claim]) => `${reason} ${claim}`));
  assert.equal(lines.length, places.size);
  const [first] = lines;
  assert.deepEqual(
    [first.reason, first.claim, first.alg, first.ageS],
    ['claims', 'sub', 'HS256', 0],
  );
  const shown = inspect(lines, { depth: 9 });
  for (const [text] of WHY)
    for (const part of text.split('.')) if (part.length > 8) assert.ok(!shown.includes(part));
});

test('clients get the cause if the server is configured so', async () => {
  const { verifier } = await build({}, { tellsWhy: true });
  for (const [text, reason, , why] of WHY) {
    const { message, told } = await errorFor(verifier, text);
    assert.equal(told, why);
    assert.ok(message.endsWith(`: ${why}.`), message);
    if (reason === 'claims') assert.equal(message, `The token is not valid: ${why}.`);
  }
});

test('a key id reaches the log in 64 printable characters', async () => {
  /** @type {any[]} */
  const lines = [];
  const rareLog = new RareLog({ warn: (fields) => void lines.push(fields) });
  const { verifier } = await build({}, { rareLog });
  const header = JSON.stringify({ alg: 'HS256', kid: `\u001b[2J${'k'.repeat(100)}` });
  await errorFor(verifier, rawToken(header, payload({ sub: '' })));
  assert.equal(lines[0].kid, `?[2J${'k'.repeat(60)}`);
});

test('an integer sub is the user of its digits', async () => {
  const { verifier } = await build();
  for (const digits of ['42', '0', '653247040368672761', '-7']) {
    const text = `{"sub": ${digits} ,"iat":${nowS},"exp":${nowS + 60}}`;
    assert.equal((await verifier.verify(rawToken(HEADER, text))).user, digits);
  }
});

test('info keeps the numbers of its signer, in the shortest form', async () => {
  const { verifier } = await build();
  const numbers = '"id":653247040368672761,"price":1.10,"big":1e400';
  const infoOf = async (/** @type {string} */ json) => {
    const text = `{"sub":"a","iat":${nowS},"exp":${nowS + 60},"\\u0069nfo":${json}}`;
    return String((await verifier.verify(rawToken(HEADER, text))).info);
  };
  const spaced = `{ ${numbers.replaceAll(',', ' ,\n ')} , "a" : "\\u00e4 : , \\" \\ud800" }`;
  assert.equal(await infoOf(spaced), `{${numbers},"a":"ä : , \\" \\ud800"}`);
  // As PHP writes it. Its limit is one of the shortest form.
  const escaped = `"${'\\u0434'.repeat(500)}"`;
  assert.equal(await infoOf(escaped), `"${'д'.repeat(500)}"`);
});

test('a token that is not valid yet is refused for now, up to 5 minutes ahead', async () => {
  const { verifier } = await build();
  for (const claim of ['iat', 'nbf']) {
    for (const [aheadS, code, retryAfterS] of /** @type {[number, string, number][]} */ ([
      [6, 'TOKEN_NOT_YET_VALID', 1],
      [300, 'TOKEN_NOT_YET_VALID', 295],
      [301, 'INVALID_TOKEN', 0],
    ])) {
      const text = token({ iat: nowS, [claim]: nowS + aheadS, exp: nowS + 900 });
      const error = await errorFor(verifier, text);
      assert.deepEqual([error.code, error.retryAfterS], [code, retryAfterS], `${claim} ${aheadS}`);
    }
  }
});

test('a time in a token may be off by 5 s', async () => {
  const { verifier } = await build();
  await verifier.verify(token({ iat: nowS - 60, exp: nowS - 2 }));
  await verifier.verify(token({ iat: nowS + 4, nbf: nowS + 4 }));
});

test('audience and issuer are checked if they are configured', async () => {
  const { verifier } = await build({ audience: ['chat', 'game'], issuer: ['https://id.test'] });
  const iss = 'https://id.test';
  await verifier.verify(token({ aud: 'chat', iss }));
  await verifier.verify(token({ aud: ['x', 'game'], iss }));
  assert.equal(await reasonFor(verifier, token({ iss })), 'audience');
  assert.equal(await reasonFor(verifier, token({ aud: 'other', iss })), 'audience');
  assert.equal(await reasonFor(verifier, token({ aud: { 0: 'chat' }, iss })), 'audience');
  assert.equal(await reasonFor(verifier, token({ aud: 'chat' })), 'issuer');
  assert.equal(await reasonFor(verifier, token({ aud: 'chat', iss: [iss] })), 'issuer');
});

test('the configuration decides which algorithms are allowed', async () => {
  const { verifier } = await build({ algorithms: ['HS512'] });
  assert.equal(await reasonFor(verifier, token()), 'algorithm');
});

test('a public key is not a secret: HMAC signed with its PEM text is refused', async () => {
  const { publicKey } = rsa;
  const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
  const { verifier } = await build({ secrets: [], publicKeys: keysOf(pem) });
  for (const secret of [pem, pem.trim(), publicKey.export({ type: 'spki', format: 'der' })]) {
    assert.equal(await reasonFor(verifier, rawToken(HEADER, payload(), secret)), 'algorithm');
  }
  // A secret beside it changes nothing.
  const both = await build({ publicKeys: keysOf(pem) });
  assert.equal(await reasonFor(both.verifier, rawToken(HEADER, payload(), pem)), 'signature');
});

test('a key of the token itself is ignored', async () => {
  const { verifier } = await build();
  const jwk = { kty: 'oct', k: base64url(OTHER_SECRET) };
  const header = JSON.stringify({
    alg: 'HS256',
    jwk,
    jku: 'http://127.0.0.1:1/',
    x5u: 'http://x/',
  });
  assert.equal(await reasonFor(verifier, rawToken(header, payload(), OTHER_SECRET)), 'signature');
});

test('a kid that is a path or a query selects no secret', async () => {
  const { verifier } = await build();
  for (const kid of ['../../../../dev/null', "' UNION SELECT 'x", '__proto__', 7, null]) {
    const header = JSON.stringify({ alg: 'HS256', kid });
    assert.equal(await reasonFor(verifier, rawToken(header, payload(), 'x')), 'signature');
  }
});

test('a revoked token is refused', async () => {
  const { verifier, revocations } = await build();
  revocations.add(revocations.create({ tokenId: 't1' }));
  assert.equal(await reasonFor(verifier, token({ jti: 't1' })), 'revoked');
  await verifier.verify(token({ jti: 't2' }));
});

test('tokens above 1,000 at once are answered with UNAVAILABLE', async () => {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
  const publicKeys = keysOf(await exportSPKI(publicKey));
  const { verifier, counters } = await build({ publicKeys });
  const text = await signed(privateKey, 'ES256');
  const flood = Array.from({ length: 1100 }, () => verifier.verify(text));
  const results = await Promise.allSettled(flood);
  assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1000);
  assert.equal(counters.tokens.overload, 100);
  await verifier.verify(text);
});

test('a secret of 31 bytes, and a PEM text as a secret, are faults', () => {
  assert.match(secretFault('x'.repeat(31)), /31 bytes/);
  assert.equal(secretFault('x'.repeat(32)), '');
  assert.match(secretFault(`-----BEGIN PUBLIC KEY-----\n${'x'.repeat(99)}`), /PEM/);
});

test('keys that are private, short or of another kind are faults that do not quote them', () => {
  const options = /** @type {const} */ ({
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  /** @typedef {{publicKey: string, privateKey: string}} Pems */
  const pems = (/** @type {unknown} */ pair) => /** @type {Pems} */ (pair);
  const short = pems(generateKeyPairSync('rsa', { modulusLength: 1024, ...options }));
  const curve = pems(generateKeyPairSync('ec', { namedCurve: 'secp256k1', ...options }));
  const good = pems(generateKeyPairSync('ed25519', options));
  const broken = good.publicKey.replace('MC', 'XX');
  for (const pem of [short.publicKey, curve.publicKey, good.privateKey, broken, 'no key at all']) {
    const { keys, fault } = readPem(pem);
    assert.deepEqual(keys, []);
    assert.notEqual(fault, '');
    for (const line of pem.split('\n')) assert.ok(line.length < 8 || !fault.includes(line));
  }
  assert.equal(readPem(good.publicKey.replaceAll('\n', '\\n')).keys.length, 1);
  assert.match(readPem(good.publicKey.repeat(5)).fault, /more than 4/);
});

test('none of these tests writes a log line', () => assert.deepEqual(logged, []));

/** @param {number} depth */
function deep(depth) {
  return `${'['.repeat(depth)}${']'.repeat(depth)}`;
}

function swapSignature() {
  const [head, body] = token().split('.');
  return [head, body, token({ sub: 'bob' }).split('.')[2]].join('.');
}
