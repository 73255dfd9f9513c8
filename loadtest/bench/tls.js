#!/usr/bin/env node
// tls.js: what TLS on the public port costs a worker: CPU of handshakes, echoes and deliveries, and
// memory of connections, beside a server without TLS.
//
//   node loadtest/bench/tls.js
//
// One worker, CONNECTIONS clients in this process. CPU is that of the worker alone.

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { NO_LIMITS, startServer } from '../lib/server.js';

const CONNECTIONS = 1000;
const ECHOES = 10_000;
const MESSAGES = 100;
/** Connections that are opened at once. */
const STEP = 20;
/** Clock ticks a second of /proc/PID/stat. */
const TICKS = 100;
const KEYS = {
  none: [],
  'ECDSA P-256': ['ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'],
  'RSA 2048': ['rsa:2048'],
};

/** @type {(() => unknown)[]} */
const cleanups = [];
const owner = { after: (/** @type {() => unknown} */ cleanup) => void cleanups.push(cleanup) };
const folder = mkdtempSync(join(tmpdir(), 'fanfare-tls-'));
owner.after(() => rmSync(folder, { recursive: true, force: true }));

try {
  for (const [name, algorithm] of Object.entries(KEYS)) console.log(name, await measure(algorithm));
} finally {
  for (const cleanup of cleanups.reverse()) await cleanup();
}
process.exit(0);

/** @param {string[]} algorithm of the key; empty: no TLS */
async function measure(algorithm) {
  const isSecure = algorithm.length > 0;
  const files = { TLS_CERT_FILE: join(folder, 'cert.pem'), TLS_KEY_FILE: join(folder, 'key.pem') };
  if (isSecure)
    execFileSync(
      'openssl',
      [
        ...['req', '-x509', '-newkey', ...algorithm, '-nodes', '-days', '30', '-subj', '/CN=a'],
        ...['-keyout', files.TLS_KEY_FILE, '-out', files.TLS_CERT_FILE],
      ],
      { stdio: 'ignore' },
    );
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    ...(isSecure ? files : {}),
  });
  const [pid] = server.workerPids();
  const url = `${isSecure ? 'wss' : 'ws'}://127.0.0.1:${server.port}/ws`;
  /** @type {WebSocket[]} */
  const sockets = [];
  const start = { seconds: cpuOf(pid), bytes: memoryOf(pid) };
  while (sockets.length < CONNECTIONS) {
    const step = Array.from(
      { length: STEP },
      () => new WebSocket(url, { rejectUnauthorized: false }),
    );
    await Promise.all(step.map((socket) => once(socket, 'open')));
    sockets.push(...step);
  }
  const opened = { seconds: cpuOf(pid), bytes: memoryOf(pid) };
  let received = 0;
  let due = 0;
  /** @type {() => void} */
  let resolve = () => {};
  const all = async (/** @type {number} */ count, /** @type {() => void} */ send) => {
    received = 0;
    due = count;
    const done = new Promise((settle) => {
      resolve = () => settle(undefined);
    });
    const from = cpuOf(pid);
    send();
    await done;
    return cpuOf(pid) - from;
  };
  for (const socket of sockets) socket.on('message', () => ++received === due && resolve());
  await all(CONNECTIONS, () => {
    for (const socket of sockets) socket.send('{"type":"join","room":"bench"}');
  });
  const payload = 'x'.repeat(100);
  const echoSeconds = await all(ECHOES, () => {
    for (let i = 0; i < ECHOES; i++)
      sockets[i % CONNECTIONS].send(JSON.stringify({ type: 'echo', payload }));
  });
  const fanOutSeconds = await all(MESSAGES * CONNECTIONS, () => {
    let sent = 0;
    const timer = setInterval(() => {
      sockets[0].send(JSON.stringify({ type: 'message', room: 'bench', payload }));
      if (++sent === MESSAGES) clearInterval(timer);
    }, 20);
  });
  for (const socket of sockets) socket.terminate();
  server.kill('SIGKILL');
  return {
    'ms CPU a handshake': (((opened.seconds - start.seconds) / CONNECTIONS) * 1000).toFixed(2),
    'KB a connection': ((opened.bytes - start.bytes) / CONNECTIONS / 1024).toFixed(1),
    'us CPU an echo': ((echoSeconds / ECHOES) * 1e6).toFixed(1),
    'us CPU a delivery': ((fanOutSeconds / (MESSAGES * CONNECTIONS)) * 1e6).toFixed(2),
  };
}

/** User and system time in seconds. @param {number} pid */
function cpuOf(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** Resident bytes. @param {number} pid */
function memoryOf(pid) {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+)/m.exec(text)?.[1]) * 1024;
}
