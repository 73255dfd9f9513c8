// dropped.test.js: a firewall that silently drops all packets to and from Redis.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Firewall, testPrivately } from '../helpers/private-network.js';
import { newLine, OPTIONS, smoke, tookMs } from './smoke.js';

const NOTICED_MS = 5000;
const TITLE = '7: packets to Redis dropped for 8 s: noticed within 5 s, and nothing lost';

testPrivately(TITLE, fileURLToPath(import.meta.url), OPTIONS, () => test(TITLE, OPTIONS, inside));

/** @param {import('node:test').TestContext} t */
async function inside(t) {
  const { report } = await smoke(t, {}, async (trial) => {
    const away = newLine(trial.server, /^Redis is unavailable/);
    const noticed = tookMs(away, NOTICED_MS + 2000, 'that nothing comes from Redis');
    await trial.suffer(
      {
        name: 'packets dropped',
        holdMs: [0, 0],
        async inflict({ redis }) {
          const sides = ['--dport', '--sport'].map((side) => [
            '-i',
            'lo',
            '-p',
            'tcp',
            side,
            `${redis.port}`,
          ]);
          const firewall = new Firewall(sides);
          await firewall.add();
          return () => firewall.remove();
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
}
