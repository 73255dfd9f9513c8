// load-scale.test.js: the script that holds very many connections, here with a few hundred.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { hasCompiler } from '../../loadtest/bench/compile.js';

const SCRIPT = fileURLToPath(new URL('../../loadtest/bench/scale.js', import.meta.url));

/** @param {import('node:test').TestContext} t @param {string[]} args */
async function runScale(t, args) {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-scale-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const save = join(folder, 'report');
  const child = spawn(process.execPath, [SCRIPT, ...args, '--save', save]);
  t.after(() => child.kill('SIGTERM'));
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text) => {
      output += text;
    });
  const [code] = await once(child, 'close');
  return { code, output, report: () => JSON.parse(readFileSync(`${save}.json`, 'utf8')) };
}

test('all connections get every broadcast, and all come back after a drop, a reload and a drain', {
  skip: !hasCompiler() && 'no C compiler',
  timeout: 170_000,
}, async (t) => {
  const small =
    '--connections 300 --workers 4 --interval 0.5 --hold 1 --idle 0.3 --window 1 --visits 200 --limit 160';
  const { code, output, report } = await runScale(t, small.split(' '));
  assert.equal(code, 0, output);
  const { measured, stages, failure } = report();
  assert.equal(failure, '');
  assert.equal(measured.broadcast.received, 600);
  assert.equal(stages.at(-1).members, 300);
  const { drop, visits, reload } = measured;
  assert.deepEqual([drop.dropped, drop.open, drop.after.received], [30, 300, 300]);
  assert.deepEqual([visits.joined, visits.left], [200, 200]);
  assert.deepEqual([reload.replacedSeconds.length, reload.open], [4, 300]);
  assert.deepEqual([reload.left, reload.after.received], [300, 300]);
  for (const { others } of [drop, visits, reload])
    assert.ok(others.expected > 0 && others.received === others.expected && others.isClean);
  const { left, back, others, after } = measured.storm;
  assert.deepEqual([left, back, after.received], [300, 300, 300]);
  assert.ok(others.expected > 0 && others.isClean);
});

test('every member of a small room gets each message, from members in turn', {
  skip: !hasCompiler() && 'no C compiler',
  timeout: 60_000,
}, async (t) => {
  const small = '--workload rooms --connections 203 --workers 2 --processes 3 --idle 0.3 --hold 1';
  const { code, output, report } = await runScale(t, [...small.split(' '), '--rate', '300']);
  assert.equal(code, 0, output);
  const { measured, failure } = report();
  assert.equal(failure, '');
  assert.deepEqual(measured.rooms, { rooms: 50, members: 4 });
  const { sent, expected, received, p999Ms } = measured.run;
  assert.deepEqual([sent, expected, received], [300, 1200, 1200]);
  assert.ok(p999Ms > 0);
});

test('a machine that is too small starts nothing and is given the reasons', async (t) => {
  const { code, output } = await runScale(t, '--connections 10000000 --workers 2'.split(' '));
  assert.equal(code, 1);
  assert.match(output, /missing for 10,000,000 connections: 2 workers hold .* more --workers/);
  assert.match(output, /missing for .* GB of memory are needed, .* are available/);
});
