import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_LIMITS, samples, scrape, startServer, until } from '../harness/server.js';
import { checkBalance } from '../helpers/balance-run.js';
import { checkedTest } from '../helpers/checks.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';

// faults/rebalance.test.js runs the same with the default rate.
checkedTest('after a crash the clients spread over all workers again', (checks) =>
  checkBalance(checks, { count: 600, ratePercent: 10, settleMs: 1000, withinMs: 60_000 }),
);

test('a connection that reaches its maximum age is closed with its own delay', {
  timeout: 30_000,
}, async (t) => {
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_MAX_CONNECTION_AGE_MS: '1000',
    FANFARE_PING_INTERVAL_MS: '500',
    FANFARE_PONG_TIMEOUT_MS: '400',
  });
  const [client, stream] = await Promise.all([
    connect(t, server.port),
    EventClient.open(t, server.port, '?room=a'),
  ]);
  assert.deepEqual(await client.closed(), { code: 4007, reason: 'maximum age' });
  const [{ reconnectAfterMs }] = client.all('SERVER_SHUTDOWN');
  assert.ok(reconnectAfterMs >= 100 && reconnectAfterMs < 1000);
  await stream.ended();
  assert.equal(stream.all('close')[0].code, 4007);
  assert.equal(stream.reader.retryMs, stream.all('SERVER_SHUTDOWN')[0].reconnectAfterMs);
  await until(async () => {
    const { text } = await scrape(server.metricsPort);
    return samples(text).get('fanfare_relocated_connections_total{cause="age"}') === 2;
  });
});
