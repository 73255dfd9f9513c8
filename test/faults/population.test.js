// population.test.js: the clients of a random run (checker/population.js) live through two faults, and
// each of their invariants is put to the test.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { INVARIANTS_OF_AUDIENCES } from '../checker/invariants-of-audiences.js';
import { INVARIANTS_OF_CLIENTS } from '../checker/invariants-of-clients.js';
import { NEMESES } from '../checker/nemesis.js';
import { OPTIONS, smoke } from './smoke.js';

const LOAD = {
  ...{ clients: 10, rooms: 8, publishers: 4, rate: 60 },
  ...{ isMixed: true, hasCentrifugo: true, hasAudiences: true },
};

for (const embedded of [false, true]) {
  test(
    `streams, libraries, visitors and users through a reload and cut connections (${embedded ? 'embedded' : 'Redis'})`,
    OPTIONS,
    async (t) => {
      const setting = { servers: embedded ? 1 : 2, workers: 1, embedded, load: LOAD };
      const { trial, report } = await smoke(t, setting, async (trial) => {
        await trial.suffer(NEMESES.serverReloaded, 0);
        await trial.suffer(NEMESES.wiresCutOften, 0);
      });
      const rows = [...INVARIANTS_OF_CLIENTS, ...INVARIANTS_OF_AUDIENCES];
      const ids = rows.map(({ id }) => id);
      const unasked = report.findings.filter(({ id, checks }) => ids.includes(id) && checks === 0);
      assert.deepEqual(unasked, []);
      assert.ok((trial.workload.population?.revoked ?? 0) > 0);
    },
  );
}
