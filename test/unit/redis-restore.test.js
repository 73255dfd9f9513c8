// redis-restore.test.js: what a fleet sends when all of its workers return to Redis at the same
// moment.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { RestorePace } from '../../src/backend/redis/restore-pace.js';
import { Subscriber } from '../../src/backend/redis/subscriber.js';

const TIMEOUT_MS = 1500;

/** A Redis that takes its time, on a clock of its own. It answers one command after the other. */
class SlowRedis {
  nowMs = 0;
  longestMs = 0;
  commands = 0;
  /** @type {{channels: number, sentMs: number, resolve: (count: number) => void, reject: (error: Error) => void}[]} */
  queue = [];

  /** @param {number} channelMs for each channel */
  constructor(channelMs) {
    this.channelMs = channelMs;
  }

  /** @param {string[]} channels */
  ssubscribe = (...channels) =>
    new Promise((resolve, reject) => {
      this.commands++;
      const { nowMs: sentMs } = this;
      this.queue.push({ channels: channels.length, sentMs, resolve, reject });
    });

  async serve() {
    for (let next = this.queue.shift(); next !== undefined; next = this.queue.shift()) {
      this.nowMs += next.channels * this.channelMs;
      const tookMs = this.nowMs - next.sentMs;
      this.longestMs = Math.max(this.longestMs, tookMs);
      if (tookMs > TIMEOUT_MS) next.reject(new Error('Command timed out'));
      else next.resolve(next.channels);
      // Subscribers send their next chunks.
      if (this.queue.length === 0 || next.sentMs !== this.queue[0].sentMs) await turn();
    }
  }
}

/** @param {SlowRedis} redis @param {string[]} lost gets the reason if the connection is given up */
function subscriberOf(redis, lost) {
  const connection = {
    redis,
    isWritable: true,
    destroy: (/** @type {string} */ reason) => lost.push(reason),
    describe: String,
  };
  return new Subscriber({
    connection: /** @type {any} */ (connection),
    isSharded: true,
    roomLingerMs: 100,
    timeoutMs: TIMEOUT_MS,
    onLive() {},
    onRefused() {},
    onMoved() {},
  });
}

test('a fleet that returns at once gets its answers in time, although Redis needs seconds for all', async (t) => {
  const redis = new SlowRedis(0.1);
  t.mock.method(performance, 'now', () => redis.nowMs);
  /** @type {string[]} */
  const lost = [];
  const subscribers = Array.from({ length: 20 }, () => subscriberOf(redis, lost));
  for (const [i, subscriber] of subscribers.entries()) {
    for (let room = 0; room < 1500; room++)
      subscriber.subscribe(`room:{${i}-${room}}`).catch(() => {}); // not live yet
    subscriber.restore();
  }
  await redis.serve();
  assert.deepEqual(lost, []);
  assert.ok(subscribers.every(({ isLive }) => isLive));
  // Twenty chunks of 1,000 would take 2 s, more than the time limit.
  assert.ok(redis.longestMs < TIMEOUT_MS / 2, `${redis.longestMs} ms`);
});

test('a subscriber restores the channels of one slot by one command, or by two at the end of a chunk', async (t) => {
  const redis = new SlowRedis(0);
  t.mock.method(performance, 'now', () => redis.nowMs);
  const subscriber = subscriberOf(redis, []);
  // Rooms of five slots, in turn.
  for (let room = 0; room < 500; room++)
    subscriber.subscribe(`room:{${room % 5}}:${room}`).catch(() => {}); // not live yet
  subscriber.restore();
  await redis.serve();
  assert.equal(subscriber.isLive, true);
  // Chunks of 256 and 244.
  assert.equal(redis.commands, 5 + 1);
});

test('chunks grow while Redis answers soon, and shrink while it is late, within bounds', () => {
  const pace = new RestorePace(800);
  assert.equal(pace.channels, 256);
  pace.answered(100);
  assert.equal(pace.channels, 512);
  pace.answered(400);
  assert.equal(pace.channels, 512, 'neither soon nor late');
  pace.answered(401);
  assert.equal(pace.channels, 256);
  for (let i = 0; i < 10; i++) pace.answered(800);
  assert.equal(pace.channels, 64);
  for (let i = 0; i < 10; i++) pace.answered(1);
  assert.equal(pace.channels, 1000);
});
