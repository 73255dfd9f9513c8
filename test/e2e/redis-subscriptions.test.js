// redis-subscriptions.test.js: the subscription proxy of a server between its workers and a real
// Redis.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { redisSettings, startRedis } from '../../loadtest/lib/redis.js';
import { Keys } from '../../src/backend/redis/keys.js';
import { loadConfig } from '../../src/config/config.js';
import { withoutPushReader } from '../helpers/hidden/fields.js';
import { delivers, eventually, outcome, start } from '../helpers/redis-worker.js';
import { startProxy } from '../helpers/subscription-proxy.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

const OPTIONS = { timeout: 30_000 };
/** Of the room that the workers have. */
const CHANNEL = new Keys('faults:').channelOf('room');

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * A link of which a test sees every byte.
 * @param {TestContext} t
 * @param {string} path
 */
function open(t, path) {
  const socket = connect(path).setEncoding('latin1');
  t.after(() => socket.destroy());
  const link = {
    socket,
    text: '',
    isClosed: false,
    /** @param {string[]} args */
    send: (...args) =>
      void socket.write(
        `*${args.length}\r\n${args.map((arg) => `$${arg.length}\r\n${arg}\r\n`).join('')}`,
        'latin1',
      ),
    /** Takes what has arrived, when all of it has. @param {string} text */
    expects: async (text) => {
      await eventually(() => link.text.length >= text.length, 5000);
      assert.equal(link.text.slice(0, text.length), text);
      link.text = link.text.slice(text.length);
    },
  };
  socket.on('data', (text) => {
    link.text += text;
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    link.isClosed = true;
  });
  return link;
}

/**
 * @param {'subscribe'|'unsubscribe'} kind
 * @param {string} channel
 * @param {number} count
 */
function push(kind, channel, count) {
  return `>3\r\n$${kind.length}\r\n${kind}\r\n$${channel.length}\r\n${channel}\r\n:${count}\r\n`;
}

/**
 * @param {string} channel
 * @param {string} body
 */
function message(channel, body) {
  return `>3\r\n$7\r\nmessage\r\n$${channel.length}\r\n${channel}\r\n$${body.length}\r\n${body}\r\n`;
}

/**
 * @param {Awaited<ReturnType<typeof startRedis>>} redis
 * @param {string} channel
 */
async function subscribers(redis, channel) {
  const [, count] = (await redis.cli('PUBSUB', 'NUMSUB', channel)).trim().split('\n');
  return Number(count);
}

describe('the subscription proxy', { concurrency: 4 }, () => {
  test(
    'links that share a channel are one subscriber of Redis, and each gets its messages',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      const { proxy, proxyPath } = await startProxy(t, redis);
      const [a, b] = [open(t, proxyPath), open(t, proxyPath)];
      a.send('SUBSCRIBE', CHANNEL, 'other');
      await a.expects(push('subscribe', CHANNEL, 1) + push('subscribe', 'other', 2));
      b.send('SUBSCRIBE', CHANNEL);
      await b.expects(push('subscribe', CHANNEL, 1));
      assert.equal(await subscribers(redis, CHANNEL), 1);
      assert.deepEqual(proxy.subscriptions(), { workers: 3, redis: 2 });
      await redis.cli('PUBLISH', CHANNEL, 'x\r\ny');
      await redis.cli('PUBLISH', 'other', 'z');
      await a.expects(message(CHANNEL, 'x\r\ny') + message('other', 'z'));
      await b.expects(message(CHANNEL, 'x\r\ny'));
      // The channel stays for b when a has gone, and goes with b.
      a.socket.destroy();
      await eventually(async () => (await subscribers(redis, 'other')) === 0);
      await redis.cli('PUBLISH', CHANNEL, 'still');
      await b.expects(message(CHANNEL, 'still'));
      b.send('UNSUBSCRIBE', CHANNEL);
      await b.expects(push('unsubscribe', CHANNEL, 0));
      await eventually(async () => (await subscribers(redis, CHANNEL)) === 0);
      assert.deepEqual(proxy.subscriptions(), { workers: 0, redis: 0 });
      assert.equal(b.text, '');
    },
  );

  test(
    'replies keep the order of the commands, also where some wait for Redis',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      const { proxyPath } = await startProxy(t, redis);
      const link = open(t, proxyPath);
      link.send('SUBSCRIBE', 'one');
      link.send('PING');
      link.send('UNSUBSCRIBE', 'one');
      link.send('NONSENSE');
      link.send('CLIENT', 'SETNAME', 'x');
      await link.expects(
        `${push('subscribe', 'one', 1)}+PONG\r\n${push('unsubscribe', 'one', 0)}-ERR unknown command\r\n+OK\r\n`,
      );
    },
  );

  test(
    'a subscribe and an unsubscribe of other links that cross leave the channel subscribed',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      const { proxyPath } = await startProxy(t, redis);
      const links = Array.from({ length: 4 }, () => open(t, proxyPath));
      links[0].send('SUBSCRIBE', CHANNEL);
      await links[0].expects(push('subscribe', CHANNEL, 1));
      for (let i = 0; i < 400; i++) {
        const [leaver, joiner] = [links[i % 4], links[(i + 1) % 4]];
        // In one tick, or with Redis' answers in between.
        leaver.send('UNSUBSCRIBE', CHANNEL);
        if (i % 3 === 1) await new Promise((resolve) => setImmediate(resolve));
        if (i % 7 === 2) await new Promise((resolve) => setTimeout(resolve, 1));
        joiner.send('SUBSCRIBE', CHANNEL);
        await leaver.expects(push('unsubscribe', CHANNEL, 0));
        await joiner.expects(push('subscribe', CHANNEL, 1));
        if (i % 20 !== 0) continue;
        await redis.cli('PUBLISH', CHANNEL, `${i}`);
        await joiner.expects(message(CHANNEL, `${i}`));
      }
      assert.equal(await subscribers(redis, CHANNEL), 1);
    },
  );

  test(
    'a link that does not read is closed and counted, and the other gets everything',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      const { proxy, proxyPath, lines } = await startProxy(t, redis, { maxPendingBytes: 200_000 });
      const [slow, quick] = [open(t, proxyPath), open(t, proxyPath)];
      for (const link of [slow, quick]) {
        link.send('SUBSCRIBE', CHANNEL);
        await link.expects(push('subscribe', CHANNEL, 1));
      }
      slow.socket.pause();
      const body = 'x'.repeat(20_000);
      let most = 0;
      for (let i = 0; i < 100; i++) {
        await redis.cli('PUBLISH', CHANNEL, body);
        await quick.expects(message(CHANNEL, body));
        for (const { pendingBytes } of proxy.links) most = Math.max(most, pendingBytes);
      }
      assert.equal(proxy.cutLinks, 1);
      assert.ok(most <= 200_000 + 2 * body.length, `${most}`);
      assert.ok(lines.some(({ msg }) => /reads too slowly/.test(String(msg))));
      assert.equal(proxy.links.size, 1);
      slow.socket.resume();
      await eventually(() => slow.isClosed);
    },
  );

  test('bytes that are no command end the link, and no other', OPTIONS, async (t) => {
    const redis = await startRedis(t);
    const { proxyPath } = await startProxy(t, redis);
    const [bad, good] = [open(t, proxyPath), open(t, proxyPath)];
    good.send('SUBSCRIBE', CHANNEL);
    await good.expects(push('subscribe', CHANNEL, 1));
    bad.send('SUBSCRIBE', CHANNEL);
    bad.socket.write('GET / HTTP/1.1\r\n\r\n');
    await eventually(() => bad.isClosed);
    await redis.cli('PUBLISH', CHANNEL, 'x');
    await good.expects(message(CHANNEL, 'x'));
    assert.equal(good.isClosed, false);
  });

  test(
    'if Redis refuses a channel, the link gets the error and may try again',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      await redis.cli('ACL', 'SETUSER', 'default', 'resetchannels', '&faults:*');
      const { proxy, proxyPath } = await startProxy(t, redis);
      const link = open(t, proxyPath);
      link.send('SUBSCRIBE', 'secret');
      await eventually(() => link.text.startsWith('-NOPERM') && link.text.endsWith('\r\n'));
      assert.deepEqual(proxy.subscriptions(), { workers: 0, redis: 0 });
      await redis.cli('ACL', 'SETUSER', 'default', 'allchannels');
      link.text = '';
      link.send('SUBSCRIBE', 'secret');
      await link.expects(push('subscribe', 'secret', 1));
    },
  );

  test(
    'if Redis drops the subscription, all links end; the workers come back with all their rooms',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      const proxied = await startProxy(t, redis);
      const [a, b] = [await start(t, proxied), await start(t, proxied)];
      await Promise.all([a.broker.subscribe('room'), b.broker.subscribe('room')]);
      const link = open(t, proxied.proxyPath);
      link.send('SUBSCRIBE', CHANNEL);
      await link.expects(push('subscribe', CHANNEL, 1));
      await redis.cli('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await eventually(() => link.isClosed);
      await eventually(() => a.state === 'degraded' && b.state === 'degraded');
      await delivers(a, b, 5000);
      await eventually(() => a.state === 'up' && b.state === 'up');
      // One connection for both workers.
      const list = await redis.cli('CLIENT', 'LIST', 'TYPE', 'pubsub');
      assert.equal(list.trim().split('\n').length, 1, list);
      assert.equal(proxied.lines.filter(({ msg }) => /Redis is away/.test(String(msg))).length, 1);
      assert.equal(proxied.lines.filter(({ msg }) => /Redis is back/.test(String(msg))).length, 1);
    },
  );

  test(
    'a frozen Redis is noticed within 5 s, and healed within 5 s of its return',
    OPTIONS,
    async (t) => {
      const redis = await startRedis(t);
      const proxied = await startProxy(t, redis);
      const [a, b] = [await start(t, proxied), await start(t, proxied)];
      await b.broker.subscribe('room');
      redis.freeze();
      t.after(() => redis.thaw());
      await eventually(() => a.state === 'degraded' && b.state === 'degraded', 5000);
      assert.equal(await outcome(a.broker.publish('room', Buffer.from('lost'))), 'UNAVAILABLE');
      redis.thaw();
      await delivers(a, b, 5000);
    },
  );

  test(
    'if the connection of the proxy leads to another server, it follows the workers',
    OPTIONS,
    async (t) => {
      const [first, second] = [await startRedis(t), await startRedis(t)];
      const address = await startTcpProxy(t, first.port);
      const settings = redisSettings({ REDIS_URL: address.url });
      const proxied = await startProxy(t, { settings }, { minAgeMs: 1000 });
      const [a, b] = [await start(t, proxied), await start(t, proxied)];
      await b.broker.subscribe('room');
      address.target = second.port;
      // The connections of the commands move, that of the proxy stays.
      for (const worker of [a, b]) worker.node.commands.destroy('a test');
      await eventually(() => a.state === 'degraded' && b.state === 'degraded', 5000);
      await delivers(a, b, 15_000);
      assert.equal(await subscribers(second, CHANNEL), 1);
      assert.equal(await subscribers(first, CHANNEL), 0);
    },
  );

  test('a report of a worker does not end a young connection', OPTIONS, async (t) => {
    const redis = await startRedis(t);
    const { proxy, proxyPath } = await startProxy(t, redis, { minAgeMs: 600_000 });
    const link = open(t, proxyPath);
    link.send('FANFARE.LOST');
    link.send('PING');
    await link.expects('+OK\r\n+PONG\r\n');
    assert.equal(proxy.isReady, true);
    proxy.minAgeMs = 0;
    link.send('FANFARE.LOST');
    await eventually(() => link.isClosed);
    await eventually(() => proxy.isReady);
  });

  test('it works without the fast path, too', {
    ...OPTIONS,
    skip: withoutPushReader,
  }, async (t) => {
    const redis = await startRedis(t);
    const { config } = loadConfig({ FANFARE_REDIS_PREFIX: 'faults:', FANFARE_FAST_PATHS: 'off' });
    assert.ok(config);
    const proxied = await startProxy(t, redis, {
      config: { ...config, redis: redis.settings, redisTimeoutMs: 1500 },
    });
    const [a, b] = [await start(t, proxied), await start(t, proxied)];
    await b.broker.subscribe('room');
    await delivers(a, b, 5000);
  });
});
