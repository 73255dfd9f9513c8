#!/usr/bin/env node
// tls.js: the cost of TLS on the public port: a worker's CPU of handshakes, echoes and deliveries, and
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
import { NO_LIMITS, startServer, until } from '../../test/harness/server.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable } from '../lib/figures.js';
import { cpuSecondsOf } from './machine.js';

const CONNECTIONS = 1000;
const ECHOES = 10_000;
const MESSAGES = 100;
const ARRIVE_MS = 60_000;
/** Connections that are opened at once. */
const STEP = 20;
/** Arguments of openssl for each kind of key. @type {Record<string, string[]>} */
const KEYS = {
  none: [],
  'ECDSA P-256': ['ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'],
  'RSA 2048': ['rsa:2048'],
};

await experiment({
  question: 'Measures what TLS adds to handshakes, echoes, deliveries and memory.',
  variants: () => Object.keys(KEYS),

  async setup({ owner, variant }) {
    const isSecure = variant !== 'none';
    const env = isSecure ? certificate(owner, KEYS[variant]) : {};
    const server = await startServer(owner, { ...NO_LIMITS, WORKERS: '1', ...env });
    const url = `${isSecure ? 'wss' : 'ws'}://127.0.0.1:${server.port}/ws`;
    return { url, pid: server.workerPids()[0] };
  },

  async measure({ url, pid }, { owner, variant }) {
    const cpu = () => cpuSecondsOf([pid]);
    const start = { seconds: cpu(), bytes: memoryOf(pid) };
    const sockets = await openAll(url);
    owner.after(() => {
      for (const socket of sockets) socket.terminate();
    });
    const opened = { seconds: cpu(), bytes: memoryOf(pid) };
    let received = 0;
    /** CPU until this many messages have arrived. @type {(count: number, send: () => void) => Promise<number>} */
    const cpuFor = async (count, send) => {
      received = 0;
      const from = cpu();
      send();
      await until(() => received >= count, ARRIVE_MS, `the arrival of ${count} messages`);
      return cpu() - from;
    };
    for (const socket of sockets) socket.on('message', () => received++);
    await cpuFor(CONNECTIONS, () => {
      for (const socket of sockets) socket.send('{"type":"join","room":"bench"}');
    });
    const payload = 'x'.repeat(100);
    const echoSeconds = await cpuFor(ECHOES, () => {
      for (let i = 0; i < ECHOES; i++)
        sockets[i % CONNECTIONS].send(JSON.stringify({ type: 'echo', payload }));
    });
    const fanOutSeconds = await cpuFor(MESSAGES * CONNECTIONS, () => {
      let sent = 0;
      const timer = setInterval(() => {
        sockets[0].send(JSON.stringify({ type: 'message', room: 'bench', payload }));
        if (++sent === MESSAGES) clearInterval(timer);
      }, 20);
    });
    const figures = {
      'ms CPU a handshake': (((opened.seconds - start.seconds) / CONNECTIONS) * 1000).toFixed(2),
      'KB a connection': ((opened.bytes - start.bytes) / CONNECTIONS / 1024).toFixed(1),
      'us CPU an echo': ((echoSeconds / ECHOES) * 1e6).toFixed(1),
      'us CPU a delivery': ((fanOutSeconds / (MESSAGES * CONNECTIONS)) * 1e6).toFixed(2),
    };
    console.log(variant, figures);
    return { key: variant, figures };
  },

  report: ([keys]) => ({
    title: 'What TLS costs a worker',
    lines: markdownTable(
      ['key', ...Object.keys(keys[0].figures)],
      keys.map(({ key, figures }) => [key, ...Object.values(figures)]),
      1,
    ),
    data: { keys },
  }),
});

/**
 * @param {import('../../test/harness/server.js').Owner} owner of the files
 * @param {readonly string[]} algorithm
 */
function certificate(owner, algorithm) {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-tls-'));
  owner.after(() => rmSync(folder, { recursive: true, force: true }));
  const files = { TLS_CERT_FILE: join(folder, 'cert.pem'), TLS_KEY_FILE: join(folder, 'key.pem') };
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', ...algorithm, '-nodes', '-days', '30', '-subj', '/CN=a'],
      ...['-keyout', files.TLS_KEY_FILE, '-out', files.TLS_CERT_FILE],
    ],
    { stdio: 'ignore' },
  );
  return files;
}

/** @param {string} url */
async function openAll(url) {
  /** @type {WebSocket[]} */
  const sockets = [];
  while (sockets.length < CONNECTIONS) {
    const step = Array.from(
      { length: STEP },
      () => new WebSocket(url, { rejectUnauthorized: false }),
    );
    await Promise.all(step.map((socket) => once(socket, 'open')));
    sockets.push(...step);
  }
  return sockets;
}

/** Resident bytes. @param {number} pid */
function memoryOf(pid) {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+)/m.exec(text)?.[1]) * 1024;
}
