// mixed.test.js: FANFARE_HISTORY is set on some servers of a fleet only, as while it is rolled out.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';

test('a server without the rule of another numbers its publications there, and a recovery misses none', {
  timeout: 40_000,
}, async (t) => {
  const redis = await startRedis(t);
  const env = { REDIS_URL: redis.url, WORKERS: '1' };
  const before = await startServer(t, env);
  const a = await startServer(t, { ...env, FANFARE_HISTORY: 'h.*=50/60s' });
  const after = await startServer(t, env);
  const at = {
    a: await connect(t, a.port),
    before: await connect(t, before.port),
    after: await connect(t, after.port),
  };
  const { epoch } = await at.a.join('h.1');
  /** @param {import('../helpers/clients.js').Client} client @param {string} payload */
  const publish = async (client, payload) => {
    client.send({ type: 'message', room: 'h.1', payload, id: payload });
    return client.next(({ id }) => id === payload);
  };
  for (const [i, client] of [at.before, at.after, at.a].entries()) {
    assert.deepEqual(await publish(client, `m${i + 1}`), {
      type: 'ack',
      epoch,
      offset: i + 1,
      id: `m${i + 1}`,
    });
  }
  await at.a.collect('message', 3);
  at.a.socket.terminate();
  // No connection follows the room now.
  await publish(at.before, 'm4');
  await publish(at.after, 'm5');
  const back = await connect(t, a.port);
  const joined = await back.ask(
    { type: 'join', room: 'h.1', since: { epoch, offset: 3 } },
    'joined',
  );
  assert.equal(joined.recovered, true);
  assert.deepEqual(
    (await back.collect('message', 2)).map(({ payload, offset }) => [payload, offset]),
    [
      ['m4', 4],
      ['m5', 5],
    ],
  );
  for (const server of [before, after]) {
    await until(
      () => server.lines.some(({ patterns }) => patterns === 'h.*'),
      5000,
      'the log says so',
    );
  }
});
