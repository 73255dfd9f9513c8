// dropped.test.js: a firewall that drops all packets to and from Redis, and tells nobody.
//
// Its rules hold in a network of their own: the test starts itself again in there, with all it needs, and what is left of
// it is gone with the last of its processes.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { newLine, OPTIONS, smoke, tookMs } from './smoke.js';

const INSIDE = 'FANFARE_TEST_NETWORK';
const NOTICED_MS = 5000;
const TITLE = '7: packets to Redis dropped for 8 s: noticed within 5 s, and nothing lost';

if (process.env[INSIDE]) inside();
else outside();

function outside() {
  const isPossible = spawnSync('unshare', ['--net', 'iptables', '-L']).status === 0;
  test(TITLE, { ...OPTIONS, skip: isPossible ? false : 'no network namespaces, or no iptables' }, (t) => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const commands = `ip link set lo up && exec "${process.execPath}" "${fileURLToPath(import.meta.url)}"`;
    const { status, stdout, stderr } = spawnSync('unshare', ['--net', 'sh', '-c', commands], {
      env: { ...env, [INSIDE]: 'yes' },
      encoding: 'utf8',
    });
    for (const [, figure] of stdout.matchAll(/^ {0,4}(?:#|ℹ) (.+: .+)$/gm)) t.diagnostic(figure);
    assert.equal(status, 0, stdout + stderr);
  });
}

function inside() {
  test(TITLE, OPTIONS, async (t) => {
    const { report } = await smoke(t, {}, async (trial) => {
      const away = newLine(trial.server, /^Redis is away/);
      const noticed = tookMs(away, NOTICED_MS + 2000, 'that nothing comes from Redis');
      await trial.suffer(
        {
          name: 'packets dropped',
          holdMs: [0, 0],
          async inflict({ redis }) {
            firewall('-A', redis.port);
            return () => firewall('-D', redis.port);
          },
        },
        8000,
      );
      const noticedMs = await noticed;
      t.diagnostic(`noticed: within ${Math.round(noticedMs)} ms`);
      assert.ok(noticedMs < NOTICED_MS, `${noticedMs}`);
    });
    assert.deepEqual([...report.figures.closes], []);
    assert.equal(report.figures.counts.resync ?? 0, 0);
  });
}

/** @param {'-A'|'-D'} action adds rules, or takes them away @param {number} port */
function firewall(action, port) {
  for (const side of ['--dport', '--sport'])
    execFileSync('iptables', [action, 'INPUT', '-i', 'lo', '-p', 'tcp', side, `${port}`, '-j', 'DROP']);
}
