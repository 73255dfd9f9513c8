// Requests to real receivers: signatures, addresses, answers that are slow, large or redirects.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createServer as createSocketServer } from 'node:net';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { AddressGuard } from '../../src/outgoing/addresses.js';
import { signedHeaders } from '../../src/protocol/webhook-signature.js';
import { messageOf } from '../../src/webhooks/message.js';
import { Requester } from '../../src/webhooks/request.js';
import { makeServerCertificate } from '../helpers/certificates.js';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const OTHER = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=';
const MESSAGE = messageOf({
  type: 'member.joined',
  room: 'chat.1',
  user: 'ann',
  count: 1,
  seq: 7,
  epoch: 'e',
  at: 1_700_000_000_000,
});

/**
 * @param {import('node:test').TestContext} t
 * @param {import('node:http').RequestListener} answer
 * @returns {Promise<number>} its port
 */
async function receiver(t, answer) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return /** @type {import('node:net').AddressInfo} */ (server.address()).port;
}

/** @param {import('node:http').IncomingMessage} request */
async function bodyOf(request) {
  let body = '';
  for await (const part of request.setEncoding('utf8')) body += part;
  return body;
}

/**
 * @param {import('node:test').TestContext} t
 * @param {string} url
 * @param {object} [options]
 * @param {boolean} [options.publicOnly]
 * @param {string[]} [options.resolvesTo] the addresses of each look-up, separated by commas
 * @param {string[]} [options.secrets]
 * @param {number} [options.timeoutMs]
 */
function poster(
  t,
  url,
  { publicOnly = false, resolvesTo, secrets = [SECRET], timeoutMs = 2000 } = {},
) {
  let lookups = 0;
  const resolve = resolvesTo && {
    /** @type {import('../../src/outgoing/addresses.js').Resolve} */
    resolve: (_host, _options, callback) => {
      const found = resolvesTo[Math.min(lookups++, resolvesTo.length - 1)].split(',');
      callback(
        null,
        found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
      );
    },
  };
  const requester = new Requester(new AddressGuard({ publicOnly, ...resolve }));
  t.after(() => requester.close());
  const endpoint = /** @type {any} */ ({ name: 'one', url, secrets, timeoutMs });
  return () => requester.post(endpoint, MESSAGE);
}

test('the signature is that of the vector of Standard Webhooks', () => {
  const headers = signedHeaders(
    [SECRET],
    'msg_p5jXN8AQM9LWM0D4loKWxJek',
    '{"test": 2432232314}',
    1614265330,
  );
  assert.deepEqual(headers, {
    'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
});

test('standardwebhooks verifies a request with either secret while they rotate', async (t) => {
  /** @type {{body: string, headers: Record<string, string>}[]} */
  const seen = [];
  const port = await receiver(t, async (request, response) => {
    seen.push({ body: await bodyOf(request), headers: /** @type {any} */ (request.headers) });
    response.writeHead(204).end();
  });
  const post = poster(t, `http://127.0.0.1:${port}/hook`, { secrets: [SECRET, OTHER] });
  assert.equal((await post()).outcome, 'delivered');
  const [{ body, headers }] = seen;
  for (const secret of [SECRET, OTHER]) {
    const event = /** @type {any} */ (new Webhook(secret).verify(body, headers));
    assert.deepEqual(event, {
      type: 'member.joined',
      timestamp: '2023-11-14T22:13:20.000Z',
      data: { room: 'chat.1', user: 'ann', count: 1, sequence: 7, epoch: 'e' },
    });
  }
  assert.throws(() => new Webhook(SECRET).verify(body.replace('ann', 'bob'), headers));
  assert.equal(headers['content-type'], 'application/json');
  assert.equal(headers['accept-encoding'], undefined, 'so no answer is compressed');
});

test('an answer decides: delivered, failed, a pause, or the end', async (t) => {
  const answers = /** @type {[number, Record<string, string>][]} */ ([
    [204, {}],
    [302, { location: 'http://169.254.169.254/' }],
    [400, {}],
    [500, {}],
    [410, {}],
    [429, { 'retry-after': '7' }],
    [503, {}],
    [500, { 'retry-after': '999999999' }],
    [503, { 'retry-after': 'Tue, 14 Nov 2000 22:13:20 GMT' }],
    [503, { 'retry-after': 'soon' }],
  ]);
  let requests = 0;
  const port = await receiver(t, (_request, response) => {
    const [status, headers] = answers[requests++];
    response.writeHead(status, headers).end('{"secret":"of the answer"}');
  });
  const post = poster(t, `http://127.0.0.1:${port}/`);
  const results = [];
  for (const [status] of answers) {
    const { outcome, error, retryAfterMs } = await post();
    assert.doesNotMatch(error, /secret/);
    results.push([status, outcome, retryAfterMs]);
  }
  assert.deepEqual(results, [
    [204, 'delivered', null],
    [302, 'failed', null],
    [400, 'failed', null],
    [500, 'failed', null],
    [410, 'gone', null],
    [429, 'unavailable', 7000],
    [503, 'unavailable', null],
    [500, 'unavailable', 3_600_000],
    [503, 'unavailable', 0],
    [503, 'unavailable', null],
  ]);
  assert.equal(requests, answers.length, 'no redirect was followed');
});

test('an event without an answer is suspect, and one at an unreachable or busy endpoint is not', async (t) => {
  const answers = ['reset', 'end', '502', '504', '502 later', '503', '429', '500'];
  let requests = 0;
  const port = await receiver(t, async (request, response) => {
    const answer = answers[requests++];
    await bodyOf(request);
    if (answer === 'reset') request.socket.resetAndDestroy();
    else if (answer === 'end') request.socket.end();
    else {
      const [status, later] = answer.split(' ');
      const headers = later && { 'retry-after': '1' };
      response.writeHead(Number(status), { connection: 'close', ...headers }).end();
    }
  });
  const post = poster(t, `http://127.0.0.1:${port}/`);
  const results = [];
  for (const answer of answers) {
    const { outcome, isSuspect } = await post();
    results.push(`${answer} ${outcome} ${isSuspect}`);
  }
  const { outcome, isSuspect } = await poster(t, 'http://127.0.0.1:1/')();
  assert.deepEqual(
    [...results, `refused ${outcome} ${isSuspect}`],
    [
      'reset unavailable true',
      'end unavailable true',
      '502 unavailable true',
      '504 unavailable true',
      '502 later unavailable false',
      '503 unavailable false',
      '429 unavailable false',
      '500 failed false',
      'refused unavailable false',
    ],
  );
});

test('addresses that are never allowed are refused in every notation', async (t) => {
  for (const host of [
    '169.254.169.254',
    '169.254.169.254.',
    '2852039166',
    '0xa9fea9fe',
    '0251.0376.0251.0376',
    '169.16689662',
    '169。254。169。254',
    '[::ffff:169.254.169.254]',
    '[::ffff:a9fe:a9fe]',
    '[64:ff9b::169.254.169.254]',
    '[::169.254.169.254]',
    '[2002:a9fe:a9fe::]',
    '[::ffff:0:169.254.169.254]',
    '[64:ff9b:1::a9fe:a9fe]',
    '[2001:0:1::5601:5601]',
    '[fe80::1]',
    '[fd00:ec2::254]',
    '[fd00:ec2::23]',
    '[fd20:ce::254]',
    '[fd00:c1::a9fe:a9fe]',
    '[fd00:42::42]',
    '100.100.100.200',
    '168.63.129.16',
    '192.0.0.192',
    '[::ffff:100.100.100.200]',
    '[64:ff9b::168.63.129.16]',
    '[2002:c000:c0::]',
    '0.0.0.0',
    '0',
    '[::]',
    '224.0.0.1',
    '[ff02::1]',
    '255.255.255.255',
  ]) {
    const result = await poster(t, `http://${host}/`, { timeoutMs: 200 })();
    assert.equal(result.outcome, 'refused', host);
  }
});

test('private addresses are refused if only public ones are allowed', () => {
  const [all, only] = [false, true].map((publicOnly) => new AddressGuard({ publicOnly }));
  for (const address of [
    '127.0.0.1',
    '::1',
    '10.1.2.3',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.0.1',
    '100.64.0.1',
    '100.100.100.201',
    '192.0.0.191',
    'fc00::1',
    'fd12::1',
    '::ffff:10.1.2.3',
    '64:ff9b::10.1.2.3',
  ]) {
    assert.equal(all.allows(address), true, address);
    assert.equal(only.allows(address), false, address);
  }
  for (const address of ['1.1.1.1', '172.32.0.1', '100.128.0.1', '2606:4700::1111']) {
    assert.equal(all.allows(address), true, address);
    assert.equal(only.allows(address), true, address);
  }
});

test('a name is refused if one of its addresses is, and a redirected name gains nothing', async (t) => {
  let requests = 0;
  const port = await receiver(t, (_request, response) => {
    requests++;
    // Keep-alive would use the checked connection again.
    response.writeHead(204, { connection: 'close' }).end();
  });
  const url = `http://back-end.example:${port}/`;
  const mixed = await poster(t, url, { resolvesTo: ['127.0.0.1,169.254.169.254'] })();
  assert.equal(mixed.outcome, 'refused');
  assert.match(mixed.error, /169\.254\.169\.254/);

  // The first answer is harmless; each connection has one look-up only, which is checked.
  const rebinding = poster(t, url, { resolvesTo: ['127.0.0.1', '169.254.169.254', '127.0.0.1'] });
  assert.equal((await rebinding()).outcome, 'delivered');
  assert.equal((await rebinding()).outcome, 'refused');
  assert.equal((await rebinding()).outcome, 'delivered');
  assert.equal(requests, 2);

  const isPrivate = await poster(t, url, { publicOnly: true, resolvesTo: ['127.0.0.1'] })();
  assert.equal(isPrivate.outcome, 'refused');
});

test('a receiver that never answers, or drips its head, fails at the deadline', async (t) => {
  const silent = await receiver(t, () => {});
  const post = poster(t, `http://127.0.0.1:${silent}/`, { timeoutMs: 200 });
  const { outcome, error } = await post();
  assert.deepEqual([outcome, error], ['failed', 'no answer within 200 ms']);
  const dripping = createSocketServer((socket) => {
    socket.on('error', () => {});
    const timer = setInterval(() => socket.write('H'), 20);
    socket.on('close', () => clearInterval(timer));
    socket.write('HTTP/1.1 200 OK\r\nx-');
  });
  await new Promise((resolve) => dripping.listen(0, '127.0.0.1', () => resolve(undefined)));
  t.after(() => dripping.close());
  const { port } = /** @type {import('node:net').AddressInfo} */ (dripping.address());
  const drip = await poster(t, `http://127.0.0.1:${port}/`, { timeoutMs: 300 })();
  assert.equal(drip.outcome, 'failed');
});

test('an answer whose body drips is delivered at its head, and its connection closed after a second', async (t) => {
  /** @type {(value: unknown) => void} */
  let close = () => {};
  const closed = new Promise((resolve) => {
    close = resolve;
  });
  const port = await receiver(t, (_request, response) => {
    response.writeHead(200).write('x');
    const timer = setInterval(() => response.write('x'), 50);
    response.on('close', () => {
      clearInterval(timer);
      close(null);
    });
  });
  const beganMs = performance.now();
  const { outcome } = await poster(t, `http://127.0.0.1:${port}/`, { timeoutMs: 30_000 })();
  assert.equal(outcome, 'delivered');
  await closed;
  assert.ok(performance.now() - beganMs < 10_000);
});

test('the body of an answer is read to 64 KiB at most, and thrown away', async (t) => {
  let written = 0;
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => {
    receiver(t, (_request, response) => {
      response.on('close', () => resolve());
      response.writeHead(200);
      const part = Buffer.alloc(65_536);
      const write = () => {
        // A gigabyte, as fast as it is read.
        while (!response.destroyed && written < 2 ** 30) {
          written += part.length;
          if (!response.write(part)) return response.once('drain', write);
        }
        return response.end();
      };
      write();
    }).then(async (port) => {
      const { outcome } = await poster(t, `http://127.0.0.1:${port}/`)();
      assert.equal(outcome, 'delivered');
    });
  });
  await closed;
  assert.ok(written < 64 * 2 ** 20, `${written} bytes`);
});

test('a head above 16 KiB, and what is no HTTP, are failures of the event', async (t) => {
  const large = await receiver(t, (_request, response) => {
    response.writeHead(200, { 'x-large': 'x'.repeat(20_000) }).end();
  });
  const { outcome, error } = await poster(t, `http://127.0.0.1:${large}/`)();
  assert.deepEqual([outcome, error], ['failed', 'not an HTTP answer (HPE_HEADER_OVERFLOW)']);
});

/** Parts of an answer that never end: what comes first, and what is repeated. */
const ENDLESS = {
  'interim answers': ['', 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'],
  'interim answers with large heads': ['', `HTTP/1.1 103 x\r\nA: ${'a'.repeat(9000)}\r\n\r\n`],
  continuations: ['', 'HTTP/1.1 100 Continue\r\n\r\n'],
  headers: ['HTTP/1.1 503 x\r\n', 'X-A: a\r\n'],
  'one header': ['HTTP/1.1 503 x\r\nX-A: ', 'a'],
  'a body of small chunks': ['HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n', '1\r\na\r\n'],
  'extensions of chunks': [
    'HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n',
    `1;a=${'b'.repeat(4000)}\r\na\r\n`,
  ],
  'one extension of a chunk': [
    'HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=',
    'b'.repeat(1000),
  ],
  trailers: ['HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n', 'X-A: a\r\n'],
  'bytes after the answer': ['HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n', 'a'],
};

for (const [what, [first, again]] of Object.entries(ENDLESS))
  test(`an answer with endless ${what} ends after at most 160 KiB`, async (t) => {
    const server = createSocketServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.write(first);
        const more = Buffer.from(again.repeat(Math.ceil(16_384 / again.length)));
        const timer = setInterval(() => socket.writableLength < 65_536 && socket.write(more), 1);
        socket.once('close', () => clearInterval(timer));
      });
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
    t.after(() => server.close());
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    const requester = new Requester(new AddressGuard({ publicOnly: false }));
    t.after(() => requester.close());
    const agent = /** @type {any} */ (requester.poster.agents['http:']);
    const { createConnection } = agent;
    /** @type {Promise<number>} */
    const read = new Promise((resolve) => {
      agent.createConnection = (/** @type {any[]} */ ...options) => {
        const socket = createConnection.apply(agent, options);
        socket.once('close', () => resolve(socket.bytesRead));
        return socket;
      };
    });
    const url = `http://127.0.0.1:${port}/hook`;
    // Only a bound ends it: neither the request nor the idle connection times out in the test.
    const endpoint = /** @type {any} */ ({
      name: 'one',
      url,
      secrets: [SECRET],
      timeoutMs: 60_000,
    });
    const { outcome } = await requester.post(endpoint, MESSAGE);
    assert.match(outcome, /^(failed|unavailable)$/);
    const bytes = await read;
    assert.ok(bytes <= 160 * 1024, `${bytes} bytes`);
  });

test('one or two interim answers are no failure', async (t) => {
  const port = await receiver(t, (_request, response) => {
    response.writeContinue();
    response.writeProcessing();
    response.writeEarlyHints({ link: '</a>' });
    response.writeHead(204).end();
  });
  assert.equal((await poster(t, `http://127.0.0.1:${port}/hook`)()).outcome, 'delivered');
});

test('an answer that switches protocols is a failure of the event', async (t) => {
  const server = createSocketServer((socket) => {
    const head = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: h2c', 'Connection: upgrade'];
    socket.once('data', () => socket.write(`${head.join('\r\n')}\r\n\r\n`));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  t.after(() => server.close());
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const { outcome, error } = await poster(t, `http://127.0.0.1:${port}/`)();
  assert.deepEqual([outcome, error], ['failed', 'status 101']);
});

test('the certificate of an endpoint is verified, for the name of its URL', async (t) => {
  const { cert, key } = await makeServerCertificate(t);
  /** @type {string[]} */
  const names = [];
  const server = createTlsServer(
    {
      cert: readFileSync(cert),
      key: readFileSync(key),
      SNICallback: (name, callback) => {
        names.push(name);
        callback(null);
      },
    },
    (_request, response) => response.end(),
  );
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  t.after(() => server.close());
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const post = poster(t, `https://back-end.example:${port}/`, { resolvesTo: ['127.0.0.1'] });
  const { outcome, error } = await post();
  assert.equal(outcome, 'unavailable');
  assert.match(error, /CERT|ISSUER|LEAF|ALTNAME/);
  assert.deepEqual(names, ['back-end.example']);
});

test('an endpoint that nobody listens on is unavailable', async (t) => {
  const { outcome, error } = await poster(t, 'http://127.0.0.1:1/')();
  assert.deepEqual([outcome, error], ['unavailable', 'ECONNREFUSED']);
});

test('a connection that the receiver closed in the meantime costs no attempt', async (t) => {
  let requests = 0;
  const port = await receiver(t, (request, response) => {
    requests++;
    if (requests === 2) return request.socket.resetAndDestroy();
    return response.writeHead(204).end();
  });
  const post = poster(t, `http://127.0.0.1:${port}/`);
  assert.equal((await post()).outcome, 'delivered');
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal((await post()).outcome, 'delivered');
  assert.equal(requests, 3);
});
