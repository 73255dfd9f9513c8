// server-sdk.test.js: the code of docs/server-sdk.md, run against a real server, and the same calls in
// Python and PHP.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { signedHeaders } from '../../src/protocol/webhook-signature.js';
import { createServer, sign, verifyWebhook } from '../../src/sdk/index.js';
import { freePort } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { blocksOf, codeWith, runCode, scriptWith } from '../helpers/doc-code.js';
import { checkRequest } from '../helpers/openapi-requests.js';
import { root, run } from '../helpers/packed.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET } from '../helpers/tokens.js';

const PAGE = 'docs/server-sdk.md';
const OPTIONS = { timeout: 60_000 };
const WEBHOOK_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, [
  'sign',
  'verify',
]);

const start = shared(async (owner) => {
  const apiKey = newSecret();
  const spki = Buffer.from(await crypto.subtle.exportKey('spki', keys.publicKey));
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'chat.*=100/60s',
    FANFARE_STATE: 'price.*=100/60s',
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_AUTH: 'optional',
    JWT_SECRET: SECRET,
    JWT_PUBLIC_KEY: `-----BEGIN PUBLIC KEY-----\n${spki.toString('base64')}\n-----END PUBLIC KEY-----`,
    API_KEYS: `main ${apiKey} all`,
  });
  const url = `http://127.0.0.1:${server.port}`;
  return { server, url, apiKey, env: { API_KEY: apiKey, FANFARE_URL: url, JWT_SECRET: SECRET } };
});

/** A block for the server of this file. @param {string} text in it */
async function codeOf(text) {
  const { url } = await start();
  return scriptWith(PAGE, text).replaceAll('http://localhost:3000', url);
}

/** A client that has joined a room. @param {import('node:test').TestContext} t @param {string} room */
async function memberOf(t, room) {
  const { server } = await start();
  const member = await connect(t, server.port);
  await member.join(room);
  return member;
}

/** @param {string} token @param {import('node:test').TestContext} t @returns {Promise<string>} its user */
async function userOf(t, token) {
  const { server } = await start();
  const client = await connect(t, `ws://127.0.0.1:${server.port}/ws?token=${token}`);
  return (await client.ask({ type: 'hello' }, 'welcome')).userId;
}

/** A folder in which code finds the packages that it imports. @param {import('node:test').TestContext} t */
function project(t) {
  const folder = temporaryFolder(t);
  const modules = join(folder, 'node_modules');
  mkdirSync(modules);
  symlinkSync(join(root, 'src/sdk'), join(modules, 'fanfare-server'));
  for (const name of ['express', 'hono'])
    symlinkSync(join(root, 'node_modules', name), join(modules, name));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return folder;
}

/** An event as the courier sends it. @param {object} data @returns {[string, Record<string, string>]} */
function eventOf(data) {
  const body = JSON.stringify({ type: 'member.joined', timestamp: new Date().toISOString(), data });
  const headers = signedHeaders([WEBHOOK_SECRET], 'evt_1', body, Math.floor(Date.now() / 1000));
  return [body, { ...headers, 'content-type': 'application/json' }];
}

test('the first lines publish, read and disconnect', OPTIONS, async (t) => {
  const { env } = await start();
  const member = await memberOf(t, 'chat.42');
  const { offset, messages } = await runCode(
    await codeOf('server.disconnect'),
    { createServer, process: { env } },
    ['offset', 'messages'],
  );
  assert.deepEqual((await member.next('message')).payload, { text: 'hi' });
  assert.equal(messages.at(-1).offset, offset);
});

test('each kind of publish arrives', OPTIONS, async (t) => {
  const { url, apiKey } = await start();
  const [member, left] = [await memberOf(t, 'chat.42'), await memberOf(t, 'chat.42')];
  const { connectionId } = await left.ask({ type: 'hello' }, 'welcome');
  const reader = await memberOf(t, 'price.eur');
  const server = createServer({ url, apiKey });
  await runCode(await codeOf('publishMany'), { server, connectionId });
  await server.publish('chat.42', { text: 'order 7' }, { idempotencyKey: 'order-7' });
  await server.publish('chat.42', 'end');
  /** @type {any[]} */
  const texts = [];
  for (;;) {
    const { payload } = await member.next('message');
    if (payload === 'end') break;
    texts.push(payload.text);
  }
  assert.deepEqual(texts, ['hi', 'hi', 'order 7', 'one', 'two', 'to both', 'first', 'second']);
  assert.equal((await reader.next('message')).payload, 1.08);
  assert.deepEqual((await reader.next('broadcast')).payload, { notice: 'maintenance at 22:00' });
});

test('an error has the code and the cause that the page shows', OPTIONS, async () => {
  const { url, apiKey } = await start();
  /** @type {unknown[]} */
  const said = [];
  const console = { log: (/** @type {unknown[]} */ ...args) => said.push(args.join(' ')) };
  const code = await codeOf('NO_HISTORY');
  await runCode(code, { server: createServer({ url, apiKey }), console });
  const [, shown] = /\/\/ (.*)…/.exec(code) ?? [];
  assert.ok(String(said[0]).startsWith(shown), String(said[0]));
});

test('the server accepts the tokens, of a secret and of a private key', OPTIONS, async (t) => {
  const process = { env: { JWT_SECRET: SECRET } };
  const { token } = await runCode(await codeOf("info: { name: 'Ann' }"), { sign, process }, [
    'token',
  ]);
  assert.equal(await userOf(t, token), '42');
  const jwk = { ...(await crypto.subtle.exportKey('jwk', keys.privateKey)), kid: 'k1' };
  const other = await runCode(await codeOf('jwk.kid'), { sign, jwk }, ['token']);
  assert.equal(await userOf(t, other.token), '42');
});

test('the event of a webhook is verified', OPTIONS, async () => {
  const [body, headers] = eventOf({ room: 'chat.1', user: 'ann', count: 1 });
  const request = new Request('http://localhost/fanfare', { method: 'POST', body, headers });
  /** @type {string[]} */
  const said = [];
  const names = {
    ...{ verifyWebhook, request, process: { env: { WEBHOOK_SECRET } } },
    console: { log: (/** @type {string[]} */ ...args) => said.push(args.join(' ')) },
  };
  await runCode(await codeOf("'joined', event"), names);
  assert.deepEqual(said, ['ann joined chat.1']);
});

test('the compiler knows the payloads of rooms', OPTIONS, async (t) => {
  const { env } = await start();
  const code = await codeOf('type ChatMessage');
  const { texts } = await runCode(code, { createServer, process: { env } }, ['texts']);
  assert.equal(texts.at(-1), 'hi');
  const folder = project(t);
  const types = join(folder, 'types');
  // TypeScript 5 makes the published types, too.
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  const config = join(root, 'src/sdk/tsconfig.types.json');
  assert.equal(run(folder, process.execPath, tsc, '-p', config, '--outDir', types).stdout, '');
  const options = {
    ...{ strict: true, noEmit: true, module: 'nodenext', target: 'es2022', types: ['node'] },
    ...{ typeRoots: [join(root, 'node_modules/@types')] },
    paths: { 'fanfare-server': [join(types, 'sdk/index.d.ts')] },
  };
  const project_ = { compilerOptions: options, files: ['page.ts'] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(project_));
  writeFileSync(join(folder, 'page.ts'), codeWith(PAGE, 'type ChatMessage'));
  assert.equal(run(folder, process.execPath, tsc).stdout, '');
});

test(
  'the backend of Express signs tokens, publishes, and verifies webhooks',
  OPTIONS,
  async (t) => {
    const { env } = await start();
    const folder = project(t);
    const session = `\nfunction currentUser({ query }) { return query.user ? { id: query.user } : null; }\n`;
    writeFileSync(join(folder, 'app.js'), (await codeOf("from 'express'")) + session);
    const port = await freePort();
    const app = spawn(process.execPath, ['app.js'], {
      cwd: folder,
      env: { ...env, PATH: process.env.PATH, WEBHOOK_SECRET, PORT: `${port}` },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => app.kill());
    let said = '';
    app.stdout.setEncoding('utf8').on('data', (text) => (said += text));
    const url = `http://127.0.0.1:${port}`;
    const isUp = () => fetch(url).catch(() => null);
    await until(async () => (await isUp()) !== null, 10_000, 'the start of the backend');
    assert.equal((await fetch(`${url}/chat-token`)).status, 401);
    const response = await fetch(`${url}/chat-token?user=7`);
    assert.equal(response.headers.get('cache-control'), 'no-store');
    assert.equal(await userOf(t, await response.text()), '7');
    const member = await memberOf(t, 'chat.42');
    const post = (
      /** @type {string} */ path,
      /** @type {string} */ body,
      /** @type {any} */ headers,
    ) => fetch(url + path, { method: 'POST', body, headers });
    const json = { 'content-type': 'application/json' };
    assert.equal((await post('/messages', '{"text":"from Express"}', json)).status, 200);
    assert.deepEqual((await member.next('message')).payload, { text: 'from Express' });
    const [body, headers] = eventOf({ room: 'chat.1', user: 'ann', count: 1 });
    assert.equal((await post('/fanfare', body, headers)).status, 204);
    assert.equal((await post('/fanfare', `${body} `, headers)).status, 401);
    await until(() => said !== '', 10_000, 'the event');
    assert.equal(said, 'member.joined chat.1\n');
  },
);

test('the route of Next.js verifies a webhook and publishes', OPTIONS, async (t) => {
  const { env } = await start();
  const folder = project(t);
  writeFileSync(join(folder, 'route.js'), await codeOf('app/fanfare/route.js'));
  Object.assign(process.env, env, { WEBHOOK_SECRET });
  const { POST } = await import(pathToFileURL(join(folder, 'route.js')).href);
  const member = await memberOf(t, 'chat.7');
  const [body, headers] = eventOf({ room: 'chat.7', user: 'ann', count: 1 });
  const post = async (/** @type {string} */ text) => {
    const request = new Request('http://localhost', { method: 'POST', body: text, headers });
    return (await POST(request)).status;
  };
  assert.deepEqual([await post(body), await post(`${body} `)], [204, 401]);
  assert.deepEqual((await member.next('message')).payload, { text: 'Welcome, ann!' });
});

test('the application of Hono signs tokens and publishes', OPTIONS, async (t) => {
  const { env } = await start();
  const folder = project(t);
  const session = `\nconst currentUser = ({ headers }) => headers.has('x-user') && { id: headers.get('x-user') };\n`;
  writeFileSync(join(folder, 'app.js'), (await codeOf("from 'hono'")) + session);
  const { default: app } = await import(pathToFileURL(join(folder, 'app.js')).href);
  const ask = (/** @type {string} */ path, init = {}) =>
    app.fetch(new Request(`http://localhost${path}`, init), env);
  assert.equal((await ask('/chat-token')).status, 401);
  const response = await ask('/chat-token', { headers: { 'x-user': '7' } });
  assert.equal(response.headers.get('cache-control'), 'no-store');
  assert.equal(await userOf(t, await response.text()), '7');
  const member = await memberOf(t, 'chat.42');
  assert.equal(
    (await ask('/messages', { method: 'POST', body: '{"text":"from Hono"}' })).status,
    200,
  );
  assert.deepEqual((await member.next('message')).payload, { text: 'from Hono' });
});

/** A library in one file, and the code of its page. @type {[string, string, string, string][]} */
const FILES = [
  ['Python', 'python3', 'python', 'fanfare.py'],
  ['PHP', 'php', 'php', 'Fanfare.php'],
];

/**
 * Runs the code of an example's page.
 * @param {import('node:test').TestContext} t @param {string} command @param {string} name
 * @param {string} file @param {Record<string, string>} env
 * @returns {Promise<string[]>} the lines that it prints
 */
async function runPage(t, command, name, file, env) {
  const folder = temporaryFolder(t);
  const example = `examples/${name}`;
  symlinkSync(join(root, example, file), join(folder, file));
  writeFileSync(join(folder, 'page'), codeWith(`${example}/README.md`, 'from P'));
  const child = spawn(command, ['page'], {
    cwd: folder,
    env: { PATH: process.env.PATH, PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child.stdout.setEncoding('utf8');
  const lines = [];
  for await (const line of createInterface({ input: child.stdout })) lines.push(line);
  return lines;
}

/** Arguments of Python or PHP. @param {string} path @param {string} url */
function withNullKey(path, url) {
  const message = `{"room": "a", "payload": 1, "idempotencyKey": null}`;
  return path.endsWith('.py')
    ? [
        '-c',
        `import json, runpy; make = runpy.run_path('${path}')['Fanfare']; make('${url}', 'key').publish_many([json.loads('${message}')])`,
      ]
    : [
        '-r',
        `require '${path}'; (new Fanfare('${url}', 'key'))->publishMany([json_decode('${message}', true)]);`,
      ];
}

/** A server that keeps the requests, and answers the first ones badly. @param {import('node:test').TestContext} t */
async function startRecorder(t) {
  /** @type {{method: string, path: string, query: URLSearchParams, key: unknown, body: unknown}[]} */
  const seen = [];
  const http = createHttpServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    const { pathname: path, searchParams: query } = new URL(`http://x${request.url}`);
    const { method = '', headers } = request;
    assert.equal(headers.authorization, 'Bearer key');
    const body = text === '' ? undefined : JSON.parse(text);
    seen.push({ method, path, query, key: headers['idempotency-key'], body });
    if (seen.length === 1) return void request.socket.destroy();
    const [status, error] = [[200], [504, 'OUTCOME_UNKNOWN'], [503, 'UNAVAILABLE']][
      seen.length < 4 ? seen.length - 1 : 0
    ];
    response.writeHead(Number(status), error === undefined ? {} : { 'Fanfare-Error': error });
    const position = { epoch: '8c1f0e6a2b9d4735', offset: 1 };
    const others = { messages: [], results: [], count: 0, connections: 0 };
    const answer = path === '/api/publish' ? position : others;
    response.end(JSON.stringify(error === undefined ? answer : { error, message: '' }));
  });
  t.after(() => http.close());
  await once(http.listen(0, '127.0.0.1'), 'listening');
  t.after(() => http.closeAllConnections());
  const { port } = /** @type {import('node:net').AddressInfo} */ (http.address());
  return { url: `http://127.0.0.1:${port}/`, seen };
}

for (const [language, command, name, file] of FILES) {
  const skip = run('.', command, '--version').status !== 0 && `${command} is not installed`;

  test(`${language}: the code of its page does what it says`, { ...OPTIONS, skip }, async (t) => {
    const { env } = await start();
    const member = await memberOf(t, 'chat.42');
    const lines = await runPage(t, command, name, file, env);
    assert.deepEqual((await member.next('message')).payload, { text: `from ${language}` });
    const [code, token] = [lines.pop(), lines.pop()];
    assert.equal(code, 'CONFLICT');
    assert.equal(await userOf(t, String(token)), '7');
    assert.match(String(lines.at(-2)), /^\d+ 1$/);
  });

  test(`${language}: requests are those of openapi.yaml, and are repeated with their keys`, {
    ...OPTIONS,
    skip,
  }, async (t) => {
    const { url, seen } = await startRecorder(t);
    const env = { FANFARE_URL: url, API_KEY: 'key', JWT_SECRET: SECRET };
    await runPage(t, command, name, file, env);
    const keys = seen.map(({ key }) => key);
    assert.equal(new Set(keys.slice(0, 4)).size, 1, 'the first publish, four times');
    assert.ok(!keys.slice(4).includes(keys[0]));
    const operations = seen.map(({ query, key, ...request }) =>
      checkRequest({ ...request, query: query.keys(), hasKey: key !== undefined }),
    );
    const expected = ['disconnect', 'getHistory', 'getPresence', 'publish', 'publishBatch'];
    assert.deepEqual([...new Set(operations)].sort(), [...expected, 'revoke']);
  });

  test(`${language}: a message of a batch whose key is null has a random one`, {
    ...OPTIONS,
    skip,
  }, async (t) => {
    const { url, seen } = await startRecorder(t);
    const path = join(root, 'examples', name, file);
    const child = spawn(command, withNullKey(path, url), { stdio: 'inherit' });
    assert.deepEqual(await once(child, 'exit'), [0, null]);
    const [message] = seen.flatMap(({ body }) => /** @type {any} */ (body).messages);
    assert.match(message.idempotencyKey, /^[\w-]{32,}$/);
  });
}

test('every block of the page is run here, but for the start of a server', () => {
  const others = blocksOf(PAGE).filter(({ test: name }) => name !== 'e2e/server-sdk');
  assert.deepEqual(
    others.map(({ language }) => language),
    ['sh'],
  );
});
