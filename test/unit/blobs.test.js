// blobs.test.js: large messages without a server: signatures, names, claims and references, and a
// bucket that fails.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { AwsV4Signer } from 'aws4fetch';

import { Bucket } from '../../src/blobs/bucket.js';
import { announcedBy, isKey, newKey, newUploadKey } from '../../src/blobs/object-keys.js';
import { SignedReferences } from '../../src/blobs/references.js';
import { Signer } from '../../src/blobs/signer.js';
import { Uploads } from '../../src/blobs/uploads.js';
import { createBlobCounters } from '../../src/observability/counters.js';
import { claimOf, encodeClaim, NO_BUCKET, resolveClaims } from '../../src/protocol/claim.js';
import { fingerprintOf } from '../../src/protocol/fingerprint.js';
import { publicationFrames, roomPrefix } from '../../src/protocol/frame.js';
import {
  encodePublication,
  exceptOf,
  isClaim,
  isPublication,
  KIND,
  kindOf,
  offsetOf,
  withPosition,
} from '../../src/protocol/publication.js';

const SETTINGS = {
  url: 'http://127.0.0.1:9/bucket/fanfare',
  publicUrl: 'https://cdn.example.com/bucket/fanfare',
  region: 'eu-central-1',
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI',
  sessionToken: 'a+session/token==',
};
const NOW_MS = Date.UTC(2026, 10, 22, 12, 1, 30);
const HASH = 'a'.repeat(64);
const CLAIM = {
  key: newKey(NOW_MS),
  bytes: 5_000_000,
  sha256: HASH,
  contentType: 'text/html; charset="x"',
};

/** The payload of a publication. @param {Buffer} publication */
const payloadOf = (publication) => {
  const frame = publicationFrames(roomPrefix('a'), [publication]);
  return JSON.parse(frame.toString('utf8', frame.indexOf('{'))).payload;
};

describe('a signature', () => {
  const signer = new Signer(SETTINGS);
  const datetime = '20261122T120130Z';
  const url = `${SETTINGS.url}/${CLAIM.key}`;

  test('of a request equals that of aws4fetch', async () => {
    const headers = { 'content-type': 'image/png', 'x-amz-meta-a': 'b  c' };
    const given = signer.headers({ method: 'PUT', url, headers, nowMs: NOW_MS });
    const other = new AwsV4Signer({
      ...SETTINGS,
      service: 's3',
      method: 'PUT',
      url,
      headers,
      datetime,
    });
    const wanted = await other.sign();
    assert.deepEqual(given, Object.fromEntries(wanted.headers));
  });

  test('of a URL equals that of aws4fetch, with headers and a query', async () => {
    const headers = { 'content-type': 'image/png', 'content-length': '5' };
    const withQuery = `${url}?response-content-disposition=attachment`;
    const given = signer.url({ method: 'PUT', url: withQuery, headers, nowMs: NOW_MS }, 60);
    const other = new AwsV4Signer({
      ...SETTINGS,
      service: 's3',
      method: 'PUT',
      url: `${withQuery}&X-Amz-Expires=60`,
      headers,
      datetime,
      signQuery: true,
      allHeaders: true,
    });
    assert.equal(given, (await other.sign()).url.href);
  });

  test('of many URLs equals that of each', () => {
    const base = `${SETTINGS.url}/?response-content-disposition=attachment`;
    const urls = signer.urls({ method: 'GET', url: base, nowMs: NOW_MS }, 60);
    const one = `${SETTINGS.url}/${CLAIM.key}?response-content-disposition=attachment`;
    assert.equal(urls(CLAIM.key), signer.url({ method: 'GET', url: one, nowMs: NOW_MS }, 60));
  });

  test('uses another key on another day', () => {
    const at = (/** @type {number} */ nowMs) => signer.url({ method: 'GET', url, nowMs }, 60);
    const [first, next] = [at(NOW_MS), at(NOW_MS + 86_400_000)];
    assert.notEqual(first, next);
    assert.equal(at(NOW_MS), first);
  });
});

test('only names that Fanfare has made are names of objects', () => {
  const announced = newUploadKey(NOW_MS, 17, HASH);
  assert.ok(isKey(CLAIM.key) && isKey(announced));
  assert.equal(announcedBy(CLAIM.key), null);
  const dayMs = Date.UTC(2026, 10, 22);
  assert.deepEqual(announcedBy(announced), { bytes: 17, sha256: HASH, dayMs });
  for (const key of [
    '',
    '../x',
    `${CLAIM.key}/x`,
    `x/${CLAIM.key}`,
    `${CLAIM.key}?x`,
    `${announced}0`,
  ])
    assert.ok(!isKey(key), key);
});

describe('a claim', () => {
  test('is a message whose flag older versions take for an unknown kind', () => {
    const claim = encodeClaim(NOW_MS, '', CLAIM, 'conn-1');
    assert.ok(isClaim(claim) && isPublication(claim));
    assert.deepEqual([kindOf(claim), exceptOf(claim)], [KIND.MESSAGE, 'conn-1']);
    assert.equal(claim[0] & ~0x20, 0x11);
    assert.deepEqual(claimOf(claim), CLAIM);
    const positioned = withPosition(claim, 7, '0123456789abcdef');
    assert.ok(isClaim(positioned));
    assert.deepEqual(claimOf(positioned), CLAIM);
  });

  test('is no broadcast and no announcement of presence', () => {
    const claim = encodeClaim(NOW_MS, '', CLAIM);
    for (const kind of [KIND.BROADCAST, KIND.PRESENCE]) {
      claim[0] = 0x10 | kind;
      assert.ok(!isPublication(claim));
    }
  });

  test('has the fingerprint of its content, not of its name', () => {
    const of = (/** @type {object} */ change) =>
      fingerprintOf(encodeClaim(Date.now(), '', { ...CLAIM, ...change }));
    assert.equal(of({ key: newKey(NOW_MS) }), of({}));
    assert.notEqual(of({ sha256: 'b'.repeat(64) }), of({}));
    assert.notEqual(of({ contentType: 'image/png' }), of({}));
  });
});

describe('a reference', () => {
  /** @param {number} [nowMs] */
  const build = (nowMs = NOW_MS) => {
    const counters = createBlobCounters();
    const references = new SignedReferences({
      signer: new Signer(SETTINGS),
      publicUrl: SETTINGS.publicUrl,
      urlTtlS: 3600,
      ttlDays: 2,
      counters,
      now: () => nowMs,
    });
    return { references, counters };
  };

  test('has a URL at the public address, which is the same for five minutes', () => {
    const claim = encodeClaim(NOW_MS, '', CLAIM);
    const { ref } = payloadOf(build().references.resolve(claim));
    const { key, ...rest } = CLAIM;
    assert.deepEqual(ref, { url: ref.url, ...rest, expires: Date.UTC(2026, 10, 22, 13, 5) });
    assert.ok(ref.url.startsWith(`${SETTINGS.publicUrl}/${key}?`), ref.url);
    assert.match(ref.url, /response-content-disposition=attachment/);
    assert.match(ref.url, /X-Amz-Date=20261122T120000Z/);
    const { references } = build(NOW_MS + 200_000);
    assert.equal(payloadOf(references.resolve(claim)).ref.url, ref.url);
    assert.equal(references.period(), build().references.period());
    assert.notEqual(build(NOW_MS + 300_000).references.period(), references.period());
  });

  test('keeps the position, the sender, the time and the excepted connection', () => {
    const claim = withPosition(encodeClaim(NOW_MS, 'x', CLAIM, 'conn-1'), 7, '0123456789abcdef');
    const resolved = build().references.resolve(claim);
    assert.ok(!isClaim(resolved));
    assert.deepEqual(
      [kindOf(resolved), offsetOf(resolved), exceptOf(resolved)],
      [KIND.POSITIONED, 7, 'conn-1'],
    );
    assert.equal(resolved.readUIntBE(1, 6), NOW_MS);
  });

  test('has no URL once the object has expired, and ends no later than it', () => {
    const claim = encodeClaim(NOW_MS, '', CLAIM);
    const endMs = NOW_MS + 2 * 86_400_000;
    const last = payloadOf(build(endMs - 1000).references.resolve(claim)).ref;
    assert.deepEqual([typeof last.url, last.expires], ['string', endMs]);
    const { references, counters } = build(endMs);
    assert.equal(payloadOf(references.resolve(claim)).ref.url, null);
    assert.equal(counters.references.expired, 1);
  });

  test('to a forged claim has no URL', () => {
    const { references, counters } = build();
    const forged = encodeClaim(NOW_MS, '', { ...CLAIM, key: '../other/secret' });
    assert.equal(payloadOf(references.resolve(forged)).ref.url, null);
    const text = Buffer.from('{"key":1}');
    const broken = encodePublication(KIND.MESSAGE, NOW_MS, 0, '', text, 0, text.length);
    broken[0] |= 0x10;
    assert.deepEqual(payloadOf(references.resolve(broken)), { ref: null });
    assert.equal(counters.references.malformed, 2);
  });

  test('of a worker without a bucket has no URL', () => {
    const { ref } = payloadOf(NO_BUCKET.resolve(encodeClaim(NOW_MS, '', CLAIM)));
    assert.deepEqual([ref.url, ref.bytes], [null, CLAIM.bytes]);
  });

  test('replaces claims only, and a list without one stays the same list', () => {
    const { references } = build();
    const plain = encodePublication(KIND.MESSAGE, NOW_MS, 0, '', Buffer.from('1'), 0, 1);
    const list = [plain];
    assert.equal(resolveClaims(list, references), list);
    const [first, second] = resolveClaims([plain, encodeClaim(NOW_MS, '', CLAIM)], references);
    assert.equal(first, plain);
    assert.equal(payloadOf(second).ref.bytes, CLAIM.bytes);
  });
});

describe('a bucket', () => {
  /**
   * @param {import('node:test').TestContext} t
   * @param {import('node:http').RequestListener} onRequest
   * @param {{timeoutMs?: number, maxUploads?: number, maxBytes?: number}} [limits]
   */
  const start = async (t, onRequest, limits = {}) => {
    const { timeoutMs = 5000, maxUploads = 1, maxBytes = 1e8 } = limits;
    const server = createServer(onRequest).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    const signer = new Signer(SETTINGS);
    /** @type {(string|undefined)[]} */
    const outcomes = [];
    const bucket = new Bucket({
      url: `http://127.0.0.1:${port}/bucket`,
      signer,
      timeoutMs,
      observe() {},
      onOutcome: (error) => outcomes.push(error?.message),
    });
    const counters = createBlobCounters();
    const uploads = new Uploads({
      bucket,
      signer,
      publicUrl: SETTINGS.publicUrl,
      maxBytes,
      maxUploads,
      timeoutMs: 5000,
      counters,
    });
    return { uploads, counters, outcomes };
  };
  const TYPE = { contentType: 'text/plain' };
  /** A body that stays open until it is destroyed. */
  const openBody = () => new Readable({ read() {} });

  test('that refuses makes an upload fail, and the error has no credentials', async (t) => {
    const { uploads, counters, outcomes } = await start(t, (_request, response) => {
      response.writeHead(403).end('<Error><Code>SignatureDoesNotMatch</Code></Error>');
    });
    const body = openBody();
    body.push('x');
    await assert.rejects(
      uploads.store(body, { bytes: 1e6, ...TYPE }),
      (/** @type {any} */ error) => {
        assert.equal(error.code, 'UNAVAILABLE');
        assert.doesNotMatch(String(error.stack), /AKIDEXAMPLE|wJalr|Signature=/);
        return true;
      },
    );
    assert.deepEqual(outcomes, ['the bucket answered 403 SignatureDoesNotMatch']);
    assert.deepEqual([counters.uploads.failed, counters.inFlight], [1, 0]);
  });

  test('that does not answer makes an upload fail in time, and others are refused', async (t) => {
    const { uploads, counters } = await start(t, () => {}, { timeoutMs: 200 });
    const first = uploads.store(Buffer.from('x'), TYPE);
    assert.ok(uploads.isBusy);
    await assert.rejects(uploads.store(Buffer.from('y'), TYPE), {
      code: 'UNAVAILABLE',
      explanation: 'Not accepted: too many uploads are under way. Try again.',
    });
    await assert.rejects(first, {
      code: 'UNAVAILABLE',
      message: /in time/,
      explanation: 'Not accepted: the bucket is unavailable. Try again.',
    });
    assert.deepEqual([counters.uploads.refused, counters.uploads.failed], [1, 1]);
    assert.ok(!uploads.isBusy);
  });

  test('that waits for a late body is not at fault', async (t) => {
    const { uploads, outcomes } = await start(t, (request) => void request.resume(), {
      timeoutMs: 200,
    });
    const body = openBody();
    body.push('x');
    await assert.rejects(uploads.store(body, { bytes: 10, ...TYPE }), { code: 'REQUEST_TIMEOUT' });
    assert.deepEqual(outcomes, []);
  });

  test('gets no request after the time of the upload', async (t) => {
    let requests = 0;
    const { uploads } = await start(t, (request, response) => {
      requests++;
      request.resume();
      response.end();
    });
    const reason = new Error('too late');
    const signal = AbortSignal.abort(reason);
    await assert.rejects(uploads.bucket.head(newKey(NOW_MS), signal), { code: 'UNAVAILABLE' });
    assert.equal(requests, 0);
  });

  test('that is away makes an upload fail at once', async (t) => {
    const { uploads } = await start(t, (request) => void request.socket.destroy());
    await assert.rejects(uploads.store(Buffer.from('x'), TYPE), { code: 'UNAVAILABLE' });
    const stream = Readable.from([Buffer.from('x')]);
    await assert.rejects(uploads.store(stream, { bytes: 1, ...TYPE }), { code: 'UNAVAILABLE' });
  });

  test('does not see the end of a body that ends early', async (t) => {
    let isComplete = false;
    const { uploads, counters, outcomes } = await start(t, (request) => {
      request.on('end', () => {
        isComplete = true;
      });
      request.on('error', () => {});
      request.resume();
    });
    const body = openBody();
    body.push('x');
    const stored = uploads.store(body, { bytes: 10, ...TYPE });
    body.destroy(new Error('the client has left'));
    await assert.rejects(stored, { message: 'the client has left' });
    assert.deepEqual([isComplete, counters.uploads.aborted, outcomes.length], [false, 1, 0]);
  });

  test('gets no body above the limit, known or not', async (t) => {
    const { uploads } = await start(t, (request) => void request.resume(), { maxBytes: 5 });
    const body = () => Readable.from([Buffer.from('1234'), Buffer.from('56')]);
    for (const bytes of [undefined, 6]) {
      await assert.rejects(uploads.store(body(), { bytes, ...TYPE }), {
        code: 'PAYLOAD_TOO_LARGE',
      });
    }
  });

  test('gets a long body of unknown length in parts, and no object if one of them fails', async (t) => {
    /** @type {string[]} */
    const seen = [];
    const { uploads } = await start(t, (request, response) => {
      const url = new URL(request.url ?? '', 'http://x');
      url.searchParams.delete('uploadId');
      seen.push(`${request.method} ${url.search}`);
      request.resume();
      request.on('end', () => {
        if (url.searchParams.get('partNumber') === '2') return response.writeHead(500).end();
        response.setHeader('ETag', '"x"');
        response.end('<X><UploadId>u1</UploadId></X>');
      });
    });
    const body = Readable.from([Buffer.alloc(5_242_880), Buffer.alloc(10)]);
    await assert.rejects(uploads.store(body, TYPE), { code: 'UNAVAILABLE' });
    const parts = ['POST ?uploads=', 'PUT ?partNumber=1', 'PUT ?partNumber=2'];
    assert.deepEqual(seen.slice(0, 3), parts);
  });

  test('that does not have an announced upload, or another one, is no reason to publish', async (t) => {
    const upload = newUploadKey(Date.now(), 5, HASH);
    let headers = /** @type {Record<string, string>} */ ({});
    const { uploads } = await start(t, (request, response) => {
      response.writeHead(Object.keys(headers).length === 0 ? 404 : 200, headers).end();
      request.resume();
    });
    const sum = (/** @type {string} */ hash) => Buffer.from(hash, 'hex').toString('base64');
    const verify = () => uploads.verify(upload);
    await assert.rejects(verify(), { code: 'NO_UPLOAD' });
    headers = { 'content-length': '6', 'x-amz-checksum-sha256': sum(HASH) };
    await assert.rejects(verify(), { code: 'NO_UPLOAD' });
    headers = { 'content-length': '5', 'x-amz-checksum-sha256': sum('b'.repeat(64)) };
    await assert.rejects(verify(), { code: 'NO_UPLOAD' });
    headers = { 'content-length': '5', 'x-amz-checksum-sha256': sum(HASH), 'content-type': 'a/b' };
    assert.deepEqual(await verify(), { key: upload, bytes: 5, sha256: HASH, contentType: 'a/b' });
    for (const other of [
      newKey(Date.now()),
      '../x',
      newUploadKey(Date.now() - 3 * 86_400_000, 5, HASH),
    ])
      await assert.rejects(uploads.verify(other), { code: 'NO_UPLOAD' });
  });
});
