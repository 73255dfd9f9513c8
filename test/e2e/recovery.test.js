import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { samples, startServer } from '../harness/server.js';
import { connect, connectInTurn } from '../helpers/clients.js';

const OPTIONS = { timeout: 60_000 };

/** @param {{metricsPort: number}} server */
async function metricsOf({ metricsPort }) {
  return samples(await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text());
}

test(
  'clients of a worker killed with -9 come back with since and miss nothing, at one read a worker',
  OPTIONS,
  async (t) => {
    const env = {
      FANFARE_LIMITS: 'off',
      FANFARE_HISTORY: 'chat.*=1000/60s',
      FANFARE_SCHEDULING: 'round-robin',
    };
    const server = await startServer(t, env);
    const clients = await connectInTurn(t, server.port, 40);
    for (const client of clients) {
      const { epoch, offset, recovered } = await client.join('chat.1');
      assert.match(epoch, /^[0-9a-f]{16}$/);
      assert.deepEqual([offset, recovered], [0, false]);
    }
    let publisher = await connect(t, server.port);
    let published = 0;
    const publish = async (/** @type {number} */ count) => {
      for (let i = 0; i < count; i++) {
        publisher.send({ type: 'message', room: 'chat.1', payload: ++published, id: published });
        const { offset } = await publisher.next('ack');
        assert.equal(offset, published);
      }
    };
    await publish(20);
    await Promise.all(clients.map((client) => client.collect('message', 20)));
    process.kill(server.workerPids()[0], 'SIGKILL');
    const isAlive = (/** @type {import('../helpers/clients.js').Client} */ client) =>
      client.ask({ type: 'ping' }, 'pong').then(
        () => true,
        () => false,
      );
    const alive = await Promise.all(clients.map(isAlive));
    if (!(await isAlive(publisher))) publisher = await connect(t, server.port);
    await publish(30);
    const lost = clients.filter((_, i) => !alive[i]);
    const stayed = clients.filter((_, i) => alive[i]);
    assert.ok(lost.length > 0 && stayed.length > 0, `${lost.length} lost, ${stayed.length} stayed`);
    await Promise.all(stayed.map((client) => client.collect('message', 50)));
    const before = (await metricsOf(server)).get('fanfare_history_reads_total') ?? 0;
    const back = await Promise.all(
      lost.map(async (old) => {
        const client = await connect(t, server.port);
        const last = old.messages.filter(({ type }) => type === 'message').at(-1);
        const { epoch, offset } = /** @type {{epoch: string, offset: number}} */ (last);
        const joined = await client.ask(
          { type: 'join', room: 'chat.1', since: { epoch, offset } },
          'joined',
        );
        return { old, client, joined, offset };
      }),
    );
    await publish(10);
    for (const { old, client, joined, offset } of back) {
      assert.equal(joined.recovered, true);
      await client.collect('message', 60 - offset);
      const seen = [...old.all('message'), ...client.all('message')].map(({ payload }) => payload);
      assert.deepEqual(
        seen,
        Array.from({ length: 60 }, (_, i) => i + 1),
      );
    }
    const metrics = await metricsOf(server);
    const reads = (metrics.get('fanfare_history_reads_total') ?? 0) - before;
    assert.ok(reads <= 2, `${reads} reads for ${back.length} clients on two workers`);
    assert.equal(metrics.get('fanfare_recoveries_total{result="recovered"}'), back.length);
    const { messages, offset } = await back[0].client.ask(
      { type: 'history', room: 'chat.1', limit: 3 },
      'history',
    );
    assert.deepEqual(
      [messages.map((/** @type {any} */ { payload }) => payload), offset],
      [[58, 59, 60], 60],
    );
  },
);

test(
  'without Redis clients are told, publishes are refused, readiness follows where it should, and all is taken back',
  OPTIONS,
  async (t) => {
    const redis = await startRedis(t);
    const env = {
      FANFARE_LIMITS: 'off',
      REDIS_URL: redis.url,
      WORKERS: '1',
      FANFARE_READINESS: 'redis',
    };
    const server = await startServer(t, env);
    const readiness = async () => (await fetch(`http://127.0.0.1:${server.port}/readyz`)).status;
    const member = await connect(t, server.port);
    await member.join('plain');
    const silent = await connect(t, server.port);
    assert.equal(await readiness(), 200);
    await redis.kill();
    assert.equal((await member.next('degraded')).degraded, true);
    assert.equal(await readiness(), 503);
    const late = await connect(t, server.port);
    assert.equal((await late.ask({ type: 'hello' }, 'welcome')).degraded, true);
    assert.equal(
      (await member.ask({ type: 'message', payload: 1, id: 1 }, 'ack')).error,
      'UNAVAILABLE',
    );
    await redis.restart();
    for (const client of [member, late])
      assert.equal((await client.next('degraded')).degraded, false);
    assert.equal(await readiness(), 200);
    assert.equal((await member.ask({ type: 'message', payload: 1, id: 2 }, 'ack')).type, 'ack');
    assert.deepEqual(silent.messages, []);
  },
);

for (const backend of ['embedded', 'Redis']) {
  test(
    `${backend}: a message with echo: false reaches every member but its sender, and last begins with the latest messages`,
    OPTIONS,
    async (t) => {
      const env = {
        FANFARE_LIMITS: 'off',
        FANFARE_HISTORY: 'chat.*=100/60s',
        FANFARE_SCHEDULING: 'round-robin',
        WORKERS: '2',
        ...(backend === 'Redis' ? { REDIS_URL: (await startRedis(t)).url } : {}),
      };
      const server = await startServer(t, env);
      const [sender, ...others] = await connectInTurn(t, server.port, 4);
      const payloadsOf = (/** @type {import('../helpers/clients.js').Client} */ client) =>
        client.all('message').map(({ payload }) => payload);
      for (const room of ['plain', 'chat.1']) {
        for (const client of [sender, ...others]) await client.join(room);
        for (const [payload, echo] of [
          ['own', false],
          ['all', true],
        ])
          await sender.ask({ type: 'message', room, payload, echo, id: 1 }, 'ack');
      }
      const both = ['own', 'all', 'own', 'all'];
      await Promise.all(others.map((client) => client.collect('message', 4)));
      await sender.collect('message', 2);
      for (const client of others) assert.deepEqual(payloadsOf(client), both);
      assert.deepEqual(payloadsOf(sender), ['all', 'all']);

      const { connectionId } = await sender.ask({ type: 'hello' }, 'welcome');
      const { epoch } = sender.all('message')[1];
      for (const [named, expected] of /** @type {[object, string[]][]} */ ([
        [{}, ['own', 'all']],
        [{ connectionId }, ['all']],
      ])) {
        for (const client of await connectInTurn(t, server.port, 2)) {
          const since = { epoch, offset: 0, ...named };
          const { recovered } = await client.ask({ type: 'join', room: 'chat.1', since }, 'joined');
          assert.equal(recovered, true);
          await client.ask({ type: 'ping' }, 'pong');
          assert.deepEqual(payloadsOf(client), expected);
        }
      }

      for (let n = 1; n <= 20; n++)
        await sender.ask({ type: 'message', room: 'chat.2', payload: n, id: n }, 'ack');
      const late = await connectInTurn(t, server.port, 2);
      const joined = late.map((client) =>
        client.ask({ type: 'join', room: 'chat.2', last: 5 }, 'joined'),
      );
      for (let n = 21; n <= 30; n++) sender.send({ type: 'message', room: 'chat.2', payload: n });
      for (const [i, client] of late.entries()) {
        const { offset, replayed } = await joined[i];
        assert.equal(replayed, 5);
        const expected = Array.from({ length: 30 - offset + 5 }, (_, k) => offset - 4 + k);
        await client.collect('message', expected.length);
        assert.deepEqual(payloadsOf(client), expected);
      }
    },
  );
}
