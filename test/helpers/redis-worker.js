// redis-worker.js: a worker's Redis broker, for tests of outages.

import pino from 'pino';
import { RedisBroker } from '../../src/backend/redis/broker.js';
import { loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../../src/config/redis.js').RedisSettings} RedisSettings */

const defaults = /** @type {import('../../src/config/settings.js').Config} */ (
  loadConfig({}).config
);

/** A worker's broker, and the events it reported. */
export class Worker {
  /**
   * @param {{settings: RedisSettings}} redis
   * @param {Partial<import('../../src/config/settings.js').Config>} config
   * @param {typeof RedisBroker} [Broker] of another version
   * @param {RoomRules<import('../../src/config/room-patterns.js').HistoryRule>} [rules] with the
   *   methods that it calls
   */
  constructor(redis, config, Broker = RedisBroker, rules = new RoomRules(config.history ?? [])) {
    this.counters = createCounters();
    /** @type {string[]} */
    this.texts = [];
    /** @type {{state: string, atMs: number}[]} */
    this.states = [];
    /** @type {Record<string, unknown>[]} */
    this.lines = [];
    /** Rooms that may have missed something. @type {string[]} */
    this.lost = [];
    /** Of rooms with history. @type {import('../../src/backend/broker.js').Position[]} */
    this.positions = [];
    this.broker = new Broker({
      config: {
        redis: redis.settings,
        redisPrefix: 'faults:',
        historyFence: 'strict',
        redisTimeoutMs: 1500,
        maxPubsubBytes: 65_536,
        roomLingerMs: 100,
        fastPaths: defaults.fastPaths,
        ...config,
      },
      log: pino({ level: 'debug' }, { write: (line) => this.lines.push(JSON.parse(line)) }),
      counters: this.counters,
      workerId: 'worker',
      historyOf: (room) => rules.ruleFor(room),
      historyRules: rules,
    });
    this.onPublication = this.onPublication.bind(this);
    this.onState = this.onState.bind(this);
    this.onLost = this.onLost.bind(this);
  }

  /**
   * @param {string} _room @param {Buffer} publication @param {number} offset @param {string} epoch
   */
  onPublication(_room, publication, offset, epoch) {
    this.texts.push(publication.toString('latin1', 0, 40));
    if (epoch !== '') this.positions.push({ epoch, offset });
  }

  /** @param {string} state */
  onState(state) {
    this.states.push({ state, atMs: performance.now() });
  }

  /** @param {string[]} rooms */
  onLost(rooms) {
    this.lost.push(...rooms);
  }

  get state() {
    return this.broker.state;
  }

  get node() {
    return /** @type {import('../../src/backend/redis/node.js').RedisNode} */ (this.broker.node);
  }
}

/**
 * @param {TestContext} t
 * @param {{settings: RedisSettings}} redis
 * @param {Partial<import('../../src/config/settings.js').Config>} [config]
 */
export async function start(t, redis, config = {}) {
  const worker = new Worker(redis, config);
  t.after(() => worker.broker.close());
  await worker.broker.start(worker);
  return worker;
}

/**
 * @param {() => unknown} condition
 * @param {number} [withinMs]
 * @returns {Promise<number>} how long it took
 */
export async function eventually(condition, withinMs = 10_000) {
  const started = performance.now();
  while (!(await condition())) {
    if (performance.now() - started > withinMs)
      throw new Error(`not within ${withinMs} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return performance.now() - started;
}

/**
 * @param {Promise<unknown>} published
 * @returns {Promise<string>} what became of it
 */
export function outcome(published) {
  return published.then(
    () => 'OK',
    (error) => error.code ?? error.message,
  );
}

/**
 * @param {Worker} from
 * @param {Worker} to
 * @param {number} withinMs until a new publication arrives
 * @param {string} [room]
 * @returns {Promise<number>}
 */
export async function delivers(from, to, withinMs, room = 'room') {
  const mark = `mark-${Math.random()}`;
  return eventually(async () => {
    if (to.texts.includes(mark)) return true;
    await outcome(from.broker.publish(room, Buffer.from(mark)));
    return false;
  }, withinMs);
}

/** Publishes to a room at fixed times until it is stopped, and collects the outcomes. */
export class Stream {
  /** @param {Worker} from @param {string} room @param {number} intervalMs */
  constructor(from, room, intervalMs) {
    this.room = room;
    /** @type {{text: string, atMs: number, code: string}[]} those that have an outcome */
    this.results = [];
    let sent = 0;
    this.timer = setInterval(() => {
      const text = `${room} #${sent++}`;
      const atMs = performance.now();
      outcome(from.broker.publish(room, Buffer.from(text))).then((code) =>
        this.results.push({ text, atMs, code }),
      );
    }, intervalMs);
  }

  end() {
    clearInterval(this.timer);
  }

  /**
   * @param {string} code
   * @param {number} [sinceMs]
   * @param {number} [untilMs] of being sent
   */
  sent(code, sinceMs = 0, untilMs = Number.POSITIVE_INFINITY) {
    return this.results
      .filter((result) => result.code === code && result.atMs >= sinceMs && result.atMs < untilMs)
      .map(({ text }) => text);
  }

  /** The longest time between two that were accepted. @returns {number} milliseconds */
  get outageMs() {
    const times = this.results.filter(({ code }) => code === 'OK').map(({ atMs }) => atMs);
    times.sort((a, b) => a - b);
    return Math.max(0, ...times.slice(1).map((atMs, i) => atMs - times[i]));
  }
}
