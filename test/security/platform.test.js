// platform.test.js: the packages of the program, and its outputs: headers, labels, logs.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startServer } from '../harness/server.js';
import { RawClient } from '../helpers/raw-http.js';
import { Wire } from './wire.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const lock = JSON.parse(readFileSync(`${root}package-lock.json`, 'utf8'));

/** Lowest versions, with the faults of earlier ones in brackets. */
const FLOORS = Object.freeze({ ws: [8, 23, 0] });

test('packages are pinned by hash, and production packages have no install scripts', () => {
  for (const [path, entry] of Object.entries(lock.packages)) {
    if (path === '' || entry.link) continue;
    assert.match(String(entry.integrity), /^sha512-/, path);
    if (!entry.dev) assert.equal(entry.hasInstallScript, undefined, path);
  }
});

for (const [name, floor] of Object.entries(FLOORS)) {
  test(`${name} is ${floor.join('.')} or later, because earlier versions have vulnerabilities`, () => {
    const version = lock.packages[`node_modules/${name}`].version.split('.').map(Number);
    const difference = version.findIndex(
      (/** @type {number} */ n, /** @type {number} */ i) => n !== floor[i],
    );
    assert.ok(difference === -1 || version[difference] > floor[difference], version.join('.'));
  });
}

/** They start Node without a shell: with `main.js`, and with the file that FANFARE_HOOKS names. */
const STARTS = new Map([
  ['primary/courier-process.js', "import { fork } from 'node:child_process';"],
  ['hooks/load-fault.js', "import { spawnSync } from 'node:child_process';"],
]);

test('no source file evaluates text as code', () => {
  for (const file of readdirSync(`${root}src`, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.js')) continue;
    const source = readFileSync(`${root}src/${file}`, 'utf8');
    assert.ok(!/(?<!\.)\beval\(|new Function\(|node:vm/.test(source), file);
    const uses = source.match(/import .*child_process.*;|child_process'\)(?!\.ChildProcess)/g);
    const allowed = STARTS.get(file);
    assert.deepEqual(uses, allowed === undefined ? null : [allowed], file);
  }
});

test('images run as an unprivileged user', () => {
  const file = readFileSync(`${root}docker/Dockerfile`, 'utf8');
  const stages = file.split(/^FROM /m).slice(1);
  assert.match(/** @type {string} */ (stages.at(-1)), /^USER [1-9]/m);
});

test('log lines, labels and pages contain no secrets and no text of clients', {
  timeout: 30_000,
}, async (t) => {
  const SECRET = 'tops3cret';
  const server = await startServer(t, {
    WORKERS: '1',
    LOG_LEVEL: 'trace',
    ALLOWED_ORIGINS: 'https://app.example.com',
    FANFARE_MAX_CONNECTIONS_PER_IP: '5',
  });
  const lines = [
    `GET /ws?token=${SECRET} HTTP/1.1`,
    'Host: a',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    `Authorization: Bearer ${SECRET}`,
    `Cookie: session=${SECRET}`,
    `User-Agent: ${SECRET}`,
  ];
  const request = (/** @type {string[]} */ more = []) =>
    `${[...lines, ...more].join('\r\n')}\r\n\r\n`;
  const wire = await new Wire(server.port, { request: request() }).opened();
  assert.equal(wire.heard.status, 101);
  await wire.ask({ type: 'join', room: `room-${SECRET}` });
  await wire.ask({ type: 'echo', payload: SECRET });
  await wire.ask({ type: SECRET, token: SECRET });
  await wire.ask(`{"${SECRET}`);
  for (const bad of [
    request([`Origin: https://${SECRET}.example`]),
    request([`Content-Length: 5`]),
    `${SECRET}\r\n\r\n`,
  ]) {
    const client = await RawClient.connect(t, server);
    const response = await client.write(bad).response();
    assert.ok(response.status >= 400);
    assert.ok(!response.text.includes(SECRET));
  }
  // Refusals of an address are logged at the debug level.
  const many = await Promise.all(
    Array.from({ length: 6 }, () => new Wire(server.port, { request: request() }).opened()),
  );
  assert.ok(many.some(({ heard }) => heard.status === 429));
  for (const one of [wire, ...many]) one.destroy();
  const page = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text();
  assert.ok(page.includes('websocket_connections_total'));
  assert.ok(!page.includes(SECRET), 'in /metrics');
  assert.ok(!/127\.0\.0\.\d/.test(page), 'an address in /metrics');
  const log = JSON.stringify(server.lines) + server.stderr();
  assert.ok(!log.includes(SECRET), 'in the log');
  for (const path of ['/metrics', '/livez', '/none']) {
    const response = await fetch(`http://127.0.0.1:${server.metricsPort}${path}`);
    await response.arrayBuffer();
    assert.equal(response.headers.get('x-powered-by'), null);
  }
});
