// stack-depth.test.js: how many functions of ours a message passes on its way through a worker. On
// the way in: from the socket's read to the broker. On the way out: from the bytes that Redis sends
// to the write to a member's socket.
//
// The way out has two synchronous legs: the arrival, up to Outbox.pushPublication, and the flush at the end
// of the tick. Each function that only forwards costs every publication, and every reader of the code.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import WebSocket from 'ws';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { Phase } from '../../src/worker/phase.js';
import { createWorker } from '../../src/worker/worker.js';
import { startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { configOf } from '../helpers/config.js';
import { log } from './suite.js';

const MAX_FRAMES_IN = 10;
const MAX_FRAMES_OUT = 12;

/**
 * The functions on the stack that lie in src/ or in a package, the innermost first.
 * @returns {string[]}
 */
function ownFrames() {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 50;
  const lines = String(new Error().stack).split('\n').slice(1);
  Error.stackTraceLimit = stackTraceLimit;
  return lines
    .filter((line) => /\/(?:src|node_modules)\/(?!.*\.test\.js)/.test(line))
    .map((line) => /at (?:async )?(.+?) \(/.exec(line)?.[1] ?? 'anonymous');
}

/** @param {string[]} frames @param {number} max */
function check(frames, max) {
  assert.deepEqual(
    frames.filter((name) => /anonymous/.test(name)),
    [],
    frames.join(' < '),
  );
  assert.ok(frames.length <= max, `${frames.length}: ${frames.join(' < ')}`);
}

/**
 * A worker with Redis, and a member of the room r.
 * @param {import('node:test').TestContext} t
 */
async function startWorker(t) {
  const redis = await startRedis(t);
  const relay = new RelayServer({ log });
  await relay.start();
  t.after(() => relay.close());
  const config = configOf({
    PORT: '0',
    HOST: '127.0.0.1',
    FANFARE_LIMITS: 'off',
    REDIS_URL: `redis://127.0.0.1:${redis.port}`,
  });
  const worker = await createWorker({
    config,
    log,
    phase: new Phase(),
    slot: 0,
    relayPath: relay.path,
    onBeat() {},
    onOrphaned() {},
  });
  const { port } = await worker.start();
  t.after(() => worker.drain(500));
  const client = new WebSocket(`ws://127.0.0.1:${port}/ws`);
  t.after(() => client.terminate());
  /** @type {string[]} */
  const received = [];
  client.on('message', (data) => received.push(String(data)));
  await new Promise((resolve) => client.once('open', resolve));
  client.send('{"type":"join","room":"r","id":"1"}');
  await until(() => received.length >= 1);
  return { worker, client, received };
}

const LIMITS = {
  timeout: 20_000,
  // Without fast paths ws and ioredis read, and Node's streams write.
  skip: process.env.TEST_HIDDEN_FIELD !== undefined,
};

test(
  `the call stack from a socket's read to the broker has at most ${MAX_FRAMES_IN} functions, all named`,
  LIMITS,
  async (t) => {
    const { worker, client, received } = await startWorker(t);
    /** @type {string[]} */
    let frames = [];
    const { broker } = worker.delivery.backend;
    const publish = broker.publish.bind(broker);
    t.mock.method(broker, 'publish', (/** @type {Parameters<typeof publish>} */ ...args) => {
      frames = ['Broker.publish', ...ownFrames()];
      return publish(...args);
    });
    client.send('{"type":"message","room":"r","id":"2","payload":{"text":"hello"}}');
    await until(() => received.some((text) => text.includes('hello')));
    t.diagnostic(frames.toReversed().join(' > '));
    assert.match(frames.at(-1) ?? '', /read/i);
    check(frames, MAX_FRAMES_IN);
  },
);

test(
  `the call stack from a Redis byte to the socket has at most ${MAX_FRAMES_OUT} functions, all named`,
  LIMITS,
  async (t) => {
    const { worker, client, received } = await startWorker(t);
    /** @type {string[]} */
    let arrival = [];
    /** @type {string[]} */
    let flush = [];
    const { outbox } = worker.delivery;
    const push = outbox.pushPublication.bind(outbox);
    t.mock.method(outbox, 'pushPublication', (/** @type {Parameters<typeof push>} */ ...args) => {
      arrival = ['Outbox.pushPublication', ...ownFrames()];
      push(...args);
    });
    const { writeSync } = fs;
    t.mock.method(fs, 'writeSync', (/** @type {[number, Buffer, number, number]} */ ...args) => {
      const frames = ownFrames();
      if (frames.some((frame) => frame.includes('Outbox'))) flush = frames;
      return writeSync(...args);
    });
    syncBuiltinESMExports();
    t.after(() => {
      t.mock.restoreAll();
      syncBuiltinESMExports();
    });
    client.send('{"type":"message","room":"r","id":"2","payload":{"text":"hello"}}');
    await until(() => received.some((text) => text.includes('hello')));
    assert.ok(arrival.length > 1 && flush.length > 1, `${arrival} / ${flush}`);
    const frames = [...flush, ...arrival];
    t.diagnostic(frames.toReversed().join(' > '));
    check(frames, MAX_FRAMES_OUT);
  },
);
