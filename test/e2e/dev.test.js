// dev.test.js: `npm run dev` restarts once for each save, lets the server drain, and only
// observes limits.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { until } from '../harness/server.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const DEV = fileURLToPath(new URL('../dev.js', import.meta.url));
/** Takes its time to leave, and is cut short by a second signal. */
const SERVER = `
  setInterval(() => {}, 1000);
  let signals = 0;
  process.on('SIGTERM', () => {
    if (++signals > 1) process.exit(1);
    console.log('drain');
    setTimeout(() => { console.log('drained'); process.exit(0); }, 400);
  });
  console.log('start', process.env.FANFARE_LIMITS);
`;

test('a save restarts the server once and lets it drain; so does a save during the drain', {
  timeout: 30_000,
}, async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'hub'));
  writeFileSync(join(folder, 'main.js'), SERVER);
  const other = join(folder, 'hub', 'hub.js');
  writeFileSync(other, '');
  const child = spawn(process.execPath, [DEV, folder], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  t.after(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
  const lines = () => said.trim().split('\n');
  await until(() => said.includes('start'), 10_000, 'the start');
  // As editors save: a new file beside it, then renamed, then touched once more.
  const save = () => {
    writeFileSync(`${other}~`, 'x');
    renameSync(`${other}~`, other);
    writeFileSync(other, 'y');
  };
  save();
  await until(() => lines().at(-1) === 'drain', 10_000, 'the drain');
  save();
  await until(() => lines().at(-1) === 'start observe', 10_000, 'the second start');
  assert.deepEqual(lines(), ['start observe', 'drain', 'drained', 'start observe']);
  child.kill('SIGTERM');
  assert.deepEqual(await exited, [0, null]);
  assert.deepEqual(lines().slice(4), ['drain', 'drained']);
});
