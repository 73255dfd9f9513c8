// The Redis of test/simulation/ answers like the real one. `node test/run.js simulate-redis` compares
// more, and `bash test/redis-versions.sh model` runs the contracts of the backends on it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compare } from '../simulation/redis/differential.js';

const COMMANDS = 4000;

test('the model of Redis answers random commands and scripts like redis-server', {
  timeout: 60_000,
}, async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 32);
  const { differences } = await compare(t, seed, COMMANDS);
  assert.deepEqual(differences.slice(0, 3), [], `seed ${seed}`);
});
