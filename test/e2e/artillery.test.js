// The Artillery scenarios: green against a server that keeps its promise, red where deliveries are lost on the way.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startDroppingProxy } from '../helpers/dropping-proxy.js';
import { startServer } from '../helpers/server.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const ARTILLERY = join(dirname(createRequire(import.meta.url).resolve('artillery/package.json')), 'bin', 'run');
/** Artillery runs a thread for each processor but one: with these there are two, whatever the machine has. */
const THREE_PROCESSORS = `--import "data:text/javascript,import os from 'node:os'; os.cpus = () => Array(3).fill({})"`;

/**
 * Runs smoke.yml, in two threads, for two seconds instead of thirty, and with patience.
 * @param {import('node:test').TestContext} t
 * @param {string} target
 * @param {string} room
 */
async function smoke(t, target, room) {
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-artillery-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const report = join(folder, 'report.json');
  const config = {
    phases: [{ duration: 2, arrivalRate: 10 }],
    variables: { room, messages: 5, settleSeconds: 2 },
    // Deliveries are counted here; how late they are on a machine with other tests is not the point.
    ensure: { thresholds: [{ 'fanfare.delivery_ms.p99': 5000 }] },
  };
  const small = JSON.stringify({ config });
  const args = ['run', '--target', target, '--overrides', small, '--output', report, 'loadtest/smoke.yml'];
  const child = spawn(process.execPath, [ARTILLERY, ...args], {
    cwd: root,
    env: { ...process.env, NODE_OPTIONS: THREE_PROCESSORS },
  });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
  const [code] = await once(child, 'exit');
  const text = await readFile(report, 'utf8').catch(() => assert.fail(said));
  return { code, said, counters: /** @type {Record<string, number>} */ (JSON.parse(text).aggregate.counters) };
}

test('smoke.yml passes where every delivery arrives, and fails where some are lost', { timeout: 60_000 }, async (t) => {
  const server = await startServer(t, { FANFARE_LIMITS: 'off' });
  const target = `ws://127.0.0.1:${server.port}`;
  const proxy = await startDroppingProxy(t, target, { every: 20, deaf: 5 });
  // In different rooms, so that each run hears only itself; at once, since both mostly wait.
  const [good, bad] = await Promise.all([smoke(t, target, 'good'), smoke(t, proxy.url, 'bad')]);

  assert.equal(good.code, 0, good.said);
  assert.equal(good.counters['vusers.completed'], 20);
  assert.deepEqual(
    Object.keys(good.counters).filter((name) => name.startsWith('errors.')),
    [],
  );
  assert.equal(good.counters['fanfare.accepted'], 100);
  assert.equal(good.counters['fanfare.lost'], 0);
  assert.ok(good.counters['fanfare.delivered'] > 500, `${good.counters['fanfare.delivered']} deliveries`);

  assert.equal(bad.code, 1, bad.said);
  assert.match(bad.said, /fail: .*fanfare\.lost == 0/);
  assert.equal(bad.counters['vusers.completed'], 20);
  assert.equal(bad.counters['fanfare.repeated'], 0);
  // Nothing that arrived is called lost, and nearly all that did not is. What was on its way as a member came is not due to
  // it, hence nearly. Without the other thread's ledger a third would be missing: the deaf have no gaps.
  const lost = bad.counters['fanfare.lost'];
  assert.ok(proxy.dropped() >= 100, `${proxy.dropped()} dropped`);
  assert.ok(lost <= proxy.dropped() && lost >= 0.9 * proxy.dropped(), `${lost} lost of ${proxy.dropped()} dropped`);
});

test('every scenario is there, checks every delivery, and names only steps there are', async () => {
  const names = (await readdir(`${root}loadtest`)).filter((name) => name.endsWith('.yml')).sort();
  assert.deepEqual(names, ['fan-out.yml', 'profile.yml', 'reconnect-storm.yml', 'slow-consumers.yml', 'smoke.yml']);
  const steps = await import('../../loadtest/artillery/processor.mjs');
  for (const name of names) {
    const text = await readFile(`${root}loadtest/${name}`, 'utf8');
    assert.match(text, /^ {2}target: ws:\/\/localhost:3000$/m, name);
    assert.match(text, /expression: fanfare\.lost == 0$/m, name);
    const used = [...text.matchAll(/function: (\w+)/g)].map(([, step]) => step);
    assert.ok(used.includes('join'), name);
    for (const step of used) assert.ok(step in steps, `${name}: ${step}`);
  }
});
