// npm run capacity, in a small form: a row is measured where a rate is held, and none is written
// where it is not.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** @param {import('node:test').TestContext} t @param {string[]} args */
async function capacity(t, ...args) {
  const folder = temporaryFolder(t);
  const save = join(folder, 'capacity.json');
  const child = spawn(
    process.execPath,
    ['loadtest/capacity.js', '--seconds', '1', '--save', save, ...args],
    {
      cwd: root,
    },
  );
  t.after(() => child.kill('SIGTERM'));
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
  const [code] = await once(child, 'exit');
  return { code, said, save };
}

test('capacity adds a row for a rate that holds, and none for a rate or a number that does not', {
  timeout: 60_000,
}, async (t) => {
  const small = ['--messages', '300', '--rest-seconds', '0'];
  const held = await capacity(t, '--sizes', '200', ...small, '--limit-p99-ms', '5000');
  const late = await capacity(t, '--sizes', '100', ...small, '--limit-p99-ms', '0');
  const large = await capacity(t, '--sizes', '100000000');

  assert.equal(held.code, 0, held.said);
  const { rows, machine } = JSON.parse(await readFile(held.save, 'utf8'));
  assert.equal(machine.node, process.version);
  assert.equal(rows.length, 1);
  const [row] = rows;
  assert.equal(row.connections, 200);
  // 120 in 12 rooms of 10, 60 in one of 60, 20 in the hall; 195, 102 and 3 messages.
  assert.equal(row.rooms, 14);
  assert.equal(row.held.messagesPerSecond, 300);
  assert.equal(row.held.deliveriesPerSecond, 195 * 10 + 102 * 60 + 3 * 20);
  assert.ok(row.held.meanMs > 0 && row.held.meanMs <= row.held.p99Ms, held.said);
  for (const figure of [row.serverMb, row.handshakeCpuMs, row.held.serverCores])
    assert.ok(figure > 0, held.said);
  // 200 connections take 1 MB. A collection of garbage between the two readings may free more.
  assert.ok(Number.isFinite(row.kbPerConnection), held.said);
  assert.match(held.said, /^\| 200 \| 300 \| 8,130 \|/m);

  assert.equal(late.code, 1, late.said);
  assert.match(late.said, /FAIL 100 connections: not held with p99 within 0 ms/);
  assert.ok(!existsSync(late.save));

  assert.equal(large.code, 1, large.said);
  assert.match(large.said, /missing for 100,000,000 connections: .* GB of memory are needed/);
});
