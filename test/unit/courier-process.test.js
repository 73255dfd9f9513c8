// A courier that dies at once, or as a whole series of them, and what the primary does then.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import pino from 'pino';
import { CourierProcess } from '../../src/primary/courier-process.js';
import { until } from '../harness/server.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const SETTINGS = /** @type {any} */ ({
  config: { webhooks: { hasEndpoints: true } },
  env: { PATH: process.env.PATH },
  texts: {},
});

/** It stops when it is told to, after a moment. */
const OBEDIENT = `
  process.on('message', ({ type }) => type === 'stop' && setTimeout(() => process.exit(0), 200));`;

/** @param {import('node:test').TestContext} t @param {string} body of its entry point */
function build(t, body) {
  const folder = temporaryFolder(t);
  const [exec, births] = [join(folder, 'courier.mjs'), join(folder, 'births')];
  const note = `import { appendFileSync } from 'node:fs';
    appendFileSync(${JSON.stringify(births)}, \`\${Date.now()}\\n\`);`;
  writeFileSync(exec, `${note}\n${body}\n`);
  writeFileSync(births, '');
  /** @type {Record<string, any>[]} */
  const lines = [];
  const log = pino({}, { write: (/** @type {string} */ line) => lines.push(JSON.parse(line)) });
  const aggregate = /** @type {any} */ ({ update() {}, depart() {} });
  const courier = new CourierProcess({ exec, aggregate, queue: () => null, log });
  t.after(() => courier.stop());
  const bornAt = () => readFileSync(births, 'utf8').split('\n').filter(Boolean).map(Number);
  return { courier, lines, bornAt };
}

test('a courier that dies at once is replaced after pauses that double', async (t) => {
  const { courier, lines, bornAt } = build(t, 'process.exit(7);');
  courier.start(SETTINGS);
  await until(() => courier.restarts === 4, 20_000, 'four deaths');
  assert.deepEqual(
    lines.map(({ code, pauseMs }) => [code, pauseMs]),
    [500, 1000, 2000, 4000].map((ms) => [7, ms]),
  );
  const births = bornAt();
  assert.ok(births[3] - births[0] >= 3500, `${births}`);
  const result = await courier.test('one');
  assert.equal(result.outcome, 'failed');
  await courier.stop();
  const { length } = bornAt();
  assert.equal(length, 4, 'none follows after the end');
});

test('a courier that does not stop is killed after 4 s', async (t) => {
  const { courier, bornAt } = build(
    t,
    "process.on('SIGTERM', () => {}); setInterval(() => {}, 1e6);",
  );
  courier.start(SETTINGS);
  await until(() => bornAt().length === 1, 10_000, 'a courier');
  const beganMs = performance.now();
  await courier.stop();
  assert.ok(performance.now() - beganMs >= 3900);
});

test('two reloads at once leave one courier, which has the later settings', async (t) => {
  const { courier, bornAt } = build(t, OBEDIENT);
  courier.start(SETTINGS);
  await until(() => bornAt().length === 1, 10_000, 'a courier');
  /** @type {string[]} */
  const started = [];
  const start = courier.start.bind(courier);
  courier.start = (settings) => {
    started.push(String(settings.env.NAME));
    start(settings);
  };
  const named = (/** @type {string} */ NAME) => ({ ...SETTINGS, env: { ...SETTINGS.env, NAME } });
  await Promise.all([courier.reload(named('first')), courier.reload(named('second'))]);
  assert.deepEqual(started, ['second']);
  await until(() => bornAt().length === 2, 10_000, 'its successor');
});

test('a courier that starts during a drain sends no leaves, either', {
  timeout: 10_000,
}, async (t) => {
  // Its modules take a moment to load. Then it passes the pause on to the queue.
  const body = `await new Promise((resolve) => setTimeout(resolve, 100));
    process.on('message', ({ type, ms }) => {
      if (type === 'pauseLeaves') process.send({ type: 'call', id: 1, method: 'pauseLeaves', args: [ms] });
    });`;
  const { courier } = build(t, body);
  /** @type {Promise<number>} */
  const held = new Promise((resolve) => {
    courier.queue = () => /** @type {any} */ ({ pauseLeaves: resolve });
  });
  courier.pauseLeaves(60_000);
  courier.start(SETTINGS);
  const ms = await held;
  assert.ok(Number.isInteger(ms) && ms > 50_000 && ms <= 60_000, `${ms}`);
});

test('a courier whose primary dies while it starts ends, too', { timeout: 20_000 }, async (t) => {
  const file = join(temporaryFolder(t), 'webhooks.json');
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  writeFileSync(file, JSON.stringify([{ name: 'one', url: 'http://127.0.0.1:10/', secret }]));
  const child = fork(MAIN, ['courier'], {
    env: { PATH: process.env.PATH, FANFARE_WEBHOOKS: file, REDIS_URL: 'redis://127.0.0.1:9' },
    // Before main.js, whose modules take a while to load.
    execArgv: ['--import', 'data:text/javascript,process.send({})'],
    silent: true,
  });
  t.after(() => child.kill('SIGKILL'));
  await once(child, 'message');
  child.disconnect();
  const [code] = await once(child, 'exit');
  assert.equal(code, 0);
});
