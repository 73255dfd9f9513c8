// fleet-limits.test.js: the limits over all servers, over each kind of Redis: two servers, each with
// a real relay.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../harness/server.js';
import { BACKENDS, startServer } from './suite.js';

const CAP = 100;
const KEY = '192.0.2.1';

for (const name of BACKENDS.filter((one) => one.startsWith('redis'))) {
  test(`${name}: two servers refuse and close what is above a cap over both`, {
    timeout: 20_000,
  }, async (t) => {
    const [a, b] = await Promise.all(['a', 'b'].map(() => startWorker(t, name)));
    await Promise.all([a.take(CAP), b.take(CAP)]);
    await until(() => a.held + b.held === CAP, 5000, 'the end of the excess');
    const { admitted } = await b.machine.acquire(KEY, CAP, false);
    assert.equal(admitted, false);
  });
}

/**
 * The only worker of a server. It closes connections when the relay asks it to.
 * @param {import('node:test').TestContext} t @param {string} name
 */
async function startWorker(t, name) {
  const make = await startServer(t, name, { redisPrefix: 'contract-limits:' });
  const { broker, machine } = await make();
  const worker = {
    machine,
    held: 0,
    /** @param {number} count */
    async take(count) {
      for (let i = 0; i < count; i++) {
        const { admitted } = await machine.acquire(KEY, CAP, false);
        if (admitted) worker.held++;
      }
    },
  };
  machine.listen({
    onKeep(key, connections) {
      for (; worker.held > connections; worker.held--) machine.release(key);
    },
  });
  await broker.start({
    onPublication() {},
    onLost() {},
    onState() {},
  });
  await until(() => broker.state === 'up', 10_000, 'the broker');
  return worker;
}
