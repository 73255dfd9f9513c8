// suite.js: runs the behaviours of a contract against every backend. Each test has up to three
// workers of one server, with a real relay, and for Redis with real Redis processes.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import pino from 'pino';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';
import { machineAt } from '../helpers/machine.js';
import { KINDS, TOPOLOGIES } from '../helpers/redis-topologies.js';

/** @typedef {import('../../src/backend/backend.js').Backend} Backend */
/** @typedef {import('../../src/backend/backend.js').CreateBackend} CreateBackend */
/** @typedef {import('../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('../../src/config/settings.js').Config} Config */
/** @typedef {import('../../src/config/redis.js').RedisSettings} RedisSettings */
/** @typedef {import('node:test').TestContext} TestContext */

export const log = pino({ level: 'silent' });
export const LINGER_MS = 100;
const TIMEOUT_MS = 40_000;
/** Backends that are tested at the same time. */
const AT_ONCE = 4;
export const announcements = {
  join: Buffer.from('+'),
  leave: Buffer.from('-'),
  count: Buffer.from('#'),
};

/**
 * A backend under test: the module that exports createBackend, and the Redis it needs, if any.
 * @typedef {object} Candidate
 * @property {() => Promise<{createBackend: CreateBackend}>} load
 * @property {typeof TOPOLOGIES[string]} [topology]
 */

/** @type {Readonly<Record<string, Candidate>>} */
const CANDIDATES = Object.freeze({
  memory: { load: () => import('../helpers/memory-backend/index.js') },
  embedded: { load: () => import('../../src/backend/embedded/index.js') },
  ...Object.fromEntries(
    Object.entries(TOPOLOGIES).map(([name, start]) => [name, overRedis(start)]),
  ),
});

export const EVERY_BACKEND = Object.freeze(Object.keys(CANDIDATES));
/** Without the kinds of Redis that differ only in how they connect. */
export const BACKENDS = Object.freeze(
  EVERY_BACKEND.filter((name) => !(name in TOPOLOGIES) || KINDS.includes(name)),
);

/** Clean-ups at the end of the file. @type {(() => unknown)[]} */
const ends = [];
const file = { after: (/** @type {() => unknown} */ end) => ends.push(end) };
after(() => Promise.all(ends.map((end) => end())));

/**
 * A topology takes seconds to start, so the tests of a file share it.
 * @param {typeof TOPOLOGIES[string]} start @returns {Candidate}
 */
function overRedis(start) {
  /** @type {Promise<RedisSettings>|null} */
  let shared = null;
  return {
    load: () => import('../../src/backend/redis/index.js'),
    topology: () => (shared ??= start(file)),
  };
}

/** @param {Partial<Config>} overrides @returns {Config} */
export function configOf(overrides) {
  const { config, faults } = loadConfig({});
  assert.ok(config, faults.join());
  return { ...config, roomLingerMs: LINGER_MS, ...overrides };
}

let servers = 0;

/**
 * Starts the parts that the workers of one server share.
 * @param {TestContext} t
 * @param {string} name of a candidate
 * @param {Partial<Config>} overrides
 * @param {object} [options] of the backend, for tests
 * @returns {Promise<() => Promise<Backend & {machine: import('../../src/backend/embedded/worker-places.js').WorkerPlaces}>>} makes the backend of a worker
 */
export async function startServer(t, name, overrides, options) {
  const { load, topology } = CANDIDATES[name];
  /** @type {{createBackend: (...args: [...Parameters<CreateBackend>, object?]) => Backend}} */
  const { createBackend } = await load();
  const id = `contract-${++servers}`;
  const redis = (await topology?.(file)) ?? null;
  const config = configOf({ serverId: id, redis, redisPrefix: `${id}:`, ...overrides });
  const rules = new RoomRules(config.history);
  const relay = new RelayServer({
    log,
    historyOf: (room) => rules.ruleFor(room),
    presence: { maxMembers: config.presenceMaxMembers, announcements },
  });
  await relay.start();
  t.after(() => relay.close());
  let workers = 0;
  return async () => {
    const machine = machineAt(relay.path);
    await machine.link.open();
    const parts = {
      config,
      log,
      counters: createCounters(),
      workerId: `worker-${++workers}`,
      historyRules: new RoomRules(config.history),
      announcements,
      machine,
      events: { onPublishLag() {}, onRoundTrip() {} },
    };
    const backend = createBackend(parts, options);
    t.after(async () => {
      await backend.close();
      await machine.link.close();
    });
    return { ...backend, machine };
  };
}

/**
 * @typedef
 *   {(behaviour: string, body: (t: TestContext, worker: () => Promise<Worker>) => Promise<void>) => void}
 *   It
 */

/**
 * Runs the behaviours of a broker against these backends.
 * @param {readonly string[]} backends
 * @param {(it: It) => void} behaviours @param {Partial<Config>} [overrides]
 */
export function suite(backends, behaviours, overrides = {}) {
  /** @type {Map<string, (() => void)[]>} */
  const tests = new Map(backends.map((name) => [name, []]));
  for (const [name, ofBackend] of tests) {
    behaviours((behaviour, body) => {
      ofBackend.push(() => {
        test(`${name}: ${behaviour}`, { timeout: TIMEOUT_MS }, async (t) => {
          const make = await startServer(t, name, overrides);
          await body(t, async () => {
            const { broker } = await make();
            const worker = new Worker(broker);
            await broker.start(worker);
            return worker;
          });
        });
      });
    });
  }
  sideBySide(tests);
}

/**
 * The tests of a backend run one after the other, and the backends at the same time: most of the
 * time tests wait.
 * @param {ReadonlyMap<string, readonly (() => void)[]>} tests by backend
 */
export function sideBySide(tests) {
  describe('backends', { concurrency: AT_ONCE }, () => {
    for (const [name, ofBackend] of tests)
      describe(name, { concurrency: 1 }, () => {
        for (const begin of ofBackend) begin();
      });
  });
}

/** Owns a broker, and records its notifications. */
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
   * @param {string} room @param {Buffer} publication @param {number} offset @param {string} epoch
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

/** Names of rooms as doors make them, at the bounds of a length in one byte and of the contract. */
export const LONG_ROOMS = Object.freeze(
  [1, 200, 254, 255, 256, 257, 511, 512].map((length) =>
    '~123:private-a/eb@c,d;=|'.repeat(32).slice(0, length),
  ),
);

/** @param {() => boolean|Promise<boolean>} condition */
export async function eventually(condition) {
  const end = performance.now() + TIMEOUT_MS / 2;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${TIMEOUT_MS / 2} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
