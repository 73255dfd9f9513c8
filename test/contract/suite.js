// suite.js: a behaviour that every broker must show, tried on several of them: two or three brokers
// that are as many workers, in this process, over the real relay's socket, or over a real Redis.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pino from 'pino';
import { EmbeddedBroker } from '../../src/backend/embedded/broker.js';
import { RelayClient } from '../../src/backend/embedded/relay-client.js';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { RedisBroker } from '../../src/backend/redis/broker.js';
import { createCounters } from '../../src/observability/counters.js';
import { MemoryBroker } from '../helpers/memory-broker.js';
import { TOPOLOGIES } from '../helpers/redis-topologies.js';

/** @typedef {import('../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('../../src/backend/broker.js').HistoryOf} HistoryOf */
/** @typedef {import('node:test').TestContext} TestContext */

const log = pino({ level: 'silent' });
export const LINGER_MS = 100;
const TIMEOUT_MS = 20_000;

/**
 * Makes what the brokers of one test share, and tells how to make one of them.
 * @typedef {(t: TestContext, historyOf: HistoryOf) => Promise<() => Broker|Promise<Broker>>}
 *   Prepare
 */

/** What ends with the file. @type {(() => unknown)[]} */
const ends = [];
const file = { after: (/** @type {() => unknown} */ end) => ends.push(end) };
after(() => Promise.all(ends.map((end) => end())));

/** @type {Readonly<Record<string, Prepare>>} */
const PREPARE = Object.freeze({
  memory: async (_t, historyOf) => {
    const memory = new MemoryBroker({ historyOf });
    return () => memory.attach();
  },

  local: async (t, historyOf) => {
    const relay = new RelayServer({ log, historyOf });
    await relay.start();
    t.after(() => relay.close());
    return async () => {
      const link = new RelayClient({ path: relay.path, log });
      await link.open();
      t.after(() => link.close());
      return new EmbeddedBroker({ link, roomLingerMs: LINGER_MS, historyOf });
    };
  },

  ...Object.fromEntries(
    Object.entries(TOPOLOGIES).map(([name, start]) => [name, overRedis(start)]),
  ),
});

/** Every way in which Redis may be had. */
export const REDIS = Object.freeze(Object.keys(TOPOLOGIES));

/**
 * A topology takes seconds to start, and is shared by the tests of a file; each has a prefix of its
 * own.
 * @param {typeof TOPOLOGIES[string]} start
 * @returns {Prepare}
 */
function overRedis(start) {
  /** @type {Promise<import('../../src/config/redis.js').RedisSettings>|null} */
  let shared = null;
  let tests = 0;
  return async (_t, historyOf) => {
    shared ??= start(file);
    const redis = await shared;
    const redisPrefix = `contract-${++tests}:`;
    let workers = 0;
    return () =>
      new RedisBroker({
        config: {
          redis,
          redisPrefix,
          redisTimeoutMs: 5000,
          maxPubsubBytes: 65_536,
          roomLingerMs: LINGER_MS,
          historyFence: 'strict',
        },
        log,
        counters: createCounters(),
        workerId: `worker-${++workers}`,
        historyOf,
      });
  };
}

/**
 * @typedef
 *   {(behaviour: string, body: (t: TestContext, worker: () => Promise<Worker>) => Promise<void>) => void}
 *   It
 */

/**
 * @param {readonly string[]} brokers
 * @param {(it: It) => void} behaviours
 * @param {{historyOf?: HistoryOf}} [options]
 */
export function suite(brokers, behaviours, { historyOf = () => null } = {}) {
  for (const name of brokers) {
    behaviours((behaviour, body) => {
      test(`${name}: ${behaviour}`, { timeout: TIMEOUT_MS }, async (t) => {
        const make = await PREPARE[name](t, historyOf);
        await body(t, async () => {
          const worker = new Worker(await make());
          t.after(() => worker.broker.close());
          await worker.broker.start(worker);
          return worker;
        });
      });
    });
  }
}

/** Owns a broker, and remembers what it was told. */
export class Worker {
  /** @param {Broker} broker */
  constructor(broker) {
    this.broker = broker;
    /** @type {Buffer[]} */
    this.publications = [];
    /** Where each stood. @type {{room: string, epoch: string, offset: number}[]} */
    this.positions = [];
    /** @type {string[]} */
    this.texts = [];
    /** @type {string[]} */
    this.states = [];
    this.onPublication = this.onPublication.bind(this);
    this.onState = this.onState.bind(this);
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {number} offset
   * @param {string} epoch
   */
  onPublication(room, publication, offset, epoch) {
    this.publications.push(publication);
    this.positions.push({ room, epoch, offset });
    this.texts.push(`${room} ${publication.toString('latin1', 0, 40)}`);
  }

  /** @param {string} state */
  onState(state) {
    this.states.push(state);
  }

  /** @param {number} count of publications, and no more */
  async received(count) {
    await eventually(() => this.publications.length >= count);
    assert.equal(this.publications.length, count);
  }
}

/** @param {() => boolean|Promise<boolean>} condition */
export async function eventually(condition) {
  const end = performance.now() + TIMEOUT_MS / 2;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${TIMEOUT_MS / 2} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
