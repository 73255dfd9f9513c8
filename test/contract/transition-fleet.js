// transition-fleet.js: fleets of real workers whose backends record events for webhooks, and tests of
// them on each kind of backend.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { EmbeddedEventQueue } from '../../src/backend/embedded/event-queue.js';
import { EventRecorder } from '../../src/backend/embedded/event-recorder.js';
import * as embeddedRecorder from '../../src/backend/embedded/event-store.js';
import { createBackend as createEmbedded } from '../../src/backend/embedded/index.js';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { FleetOccupancy } from '../../src/backend/occupancy.js';
import { openEventQueue } from '../../src/backend/redis/event-queue.js';
import * as redisRecorder from '../../src/backend/redis/event-store.js';
import { createBackend as createRedis } from '../../src/backend/redis/index.js';
import { WebhookReporter } from '../../src/backend/webhook-reporter.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { EVENT_TYPES, WebhookSettings } from '../../src/config/webhooks.js';
import { createCounters } from '../../src/observability/counters.js';
import { encodeMember } from '../../src/protocol/encode.js';
import { PARTITIONS } from '../../src/webhooks/queue.js';
import { machineAt } from '../helpers/machine.js';
import { TOPOLOGIES } from '../helpers/redis-topologies.js';
import { announcements, configOf, eventually, LINGER_MS, log, sideBySide } from './suite.js';

/** @typedef {import('../../src/webhooks/queue.js').WebhookEvent} WebhookEvent */
/** @typedef {import('../../src/webhooks/queue.js').EventQueue} EventQueue */
/** @typedef {import('../../src/config/redis.js').RedisSettings} RedisSettings */
/** @typedef {import('../../src/backend/redis/broker.js').RedisBroker} RedisBroker */
/** @typedef {import('node:test').TestContext} TestContext */

/** A Sentinel's failover takes some 10 s. */
const TIMEOUT_MS = 60_000;
/** A silent worker is dead after a time that no test waits for: the relay reports each death. */
export const TIMES = { heartbeatMs: 200, ttlMs: 600_000, settleMs: 300 };

/** @type {(() => unknown)[]} */
const ends = [];
after(() => Promise.all(ends.map((end) => end())));

/** @param {Partial<import('../../src/config/webhooks.js').Endpoint> & {countedApps?: string[]}} wanted */
export function settingsOf({ types = EVENT_TYPES, rooms = ['*'], countedApps = [] }) {
  const endpoint = /** @type {import('../../src/config/webhooks.js').Endpoint} */ ({
    types,
    rooms,
    pusher: null,
  });
  return new WebhookSettings([endpoint], false, countedApps);
}

/** A fleet: its servers share their records. */
export class Fleet {
  /**
   * @param {TestContext} t
   * @param {RedisSettings|null} redis
   * @param {string} prefix
   * @param {WebhookSettings} webhooks
   */
  constructor(t, redis, prefix, webhooks) {
    this.t = t;
    this.redis = redis;
    this.config = configOf({
      redis,
      redisPrefix: prefix,
      redisTimeoutMs: 1000,
      webhooks,
      presence: [{ pattern: '*', value: true }],
      history: [{ pattern: 'h.*', value: { size: 10, ttlMs: 60_000 } }],
    });
    this.memory = new EmbeddedEventQueue();
    const opened = redis === null ? null : openEventQueue({ config: this.config });
    if (opened !== null) t.after(opened.close);
    /** @type {EventQueue} */
    this.queue = opened?.queue ?? this.memory;
    this.workers = 0;
    /** The recorder; null: as without endpoints. @type {typeof redisRecorder|null} */
    this.recorder = redisRecorder;
    this.times = TIMES;
    this.lingerMs = LINGER_MS;
  }

  /** @returns {Promise<() => Promise<Worker>>} starts the workers of one server */
  async server() {
    const { t, config } = this;
    const rules = new RoomRules(config.history);
    const covers = /** @type {WebhookSettings} */ (config.webhooks).covers.bind(config.webhooks);
    const counts = /** @type {WebhookSettings} */ (config.webhooks).counts.bind(config.webhooks);
    const presence = { maxMembers: config.presenceMaxMembers, announcements };
    const relay = new RelayServer({ log, historyOf: (room) => rules.ruleFor(room), presence });
    if (this.redis === null) relay.bus.recordBy(new EventRecorder({ covers, queue: this.memory }));
    await relay.start();
    t.after(() => relay.close());
    return async () => {
      const machine = machineAt(relay.path);
      await machine.link.open();
      const parts = {
        config,
        log,
        counters: createCounters(),
        workerId: `worker-${++this.workers}`,
        historyRules: new RoomRules(config.history),
        announcements,
        machine,
        events: { onPublishLag() {}, onRoundTrip() {} },
      };
      const backend =
        this.redis === null
          ? createEmbedded(parts, { recorder: embeddedRecorder })
          : createRedis(parts, { recorder: this.recorder, presenceTimes: this.times });
      const store = backend.eventStore ?? NOBODY;
      assert.ok(backend.presence);
      const reporter = new WebhookReporter({ store, covers, counts, lingerMs: this.lingerMs });
      const settings = /** @type {WebhookSettings} */ (config.webhooks);
      const occupancy = new FleetOccupancy(store, settings);
      const { presence } = backend;
      const worker = new Worker({ ...backend, presence, reporter, occupancy, machine });
      t.after(() => worker.close());
      await backend.broker.start(worker);
      await backend.presence.start();
      await reporter.start();
      return worker;
    };
  }

  /** Everything recorded so far, by room in order. @returns {Promise<WebhookEvent[]>} */
  async events() {
    /** @type {WebhookEvent[]} */
    const all = [];
    for (let partition = 0; partition < PARTITIONS; partition++)
      for (const { body } of await this.queue.read(partition, null, 100_000))
        all.push(JSON.parse(body));
    return all;
  }

  /** Waits for this many events. @param {number} count */
  async reached(count) {
    await eventually(() =>
      this.events().then(
        (events) => events.length >= count,
        () => false,
      ),
    );
  }

  /**
   * Waits for this many events, and for the time in which one more would come.
   * @param {number} count
   * @returns {Promise<string[]>} each as `type room user`
   */
  async recorded(count) {
    await this.reached(count);
    await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
    return (await this.events()).map(textOf);
  }
}

/** @type {import('../../src/backend/webhook-reporter.js').EventStore} */
const NOBODY = {
  start: async () => {},
  close: async () => {},
  enter() {},
  exit() {},
  count() {},
  publish() {},
  connectionsIn: async () => 0,
  occupied: async () => [],
  online: async () => [],
};

export class Worker {
  /**
   * @param
   *   {Omit<import('../../src/backend/backend.js').Backend, 'eventStore'> & {presence: import('../../src/backend/presence.js').Presence, reporter: WebhookReporter, occupancy: FleetOccupancy, machine: import('../../src/backend/embedded/worker-places.js').WorkerPlaces}}
   *   parts
   */
  constructor(parts) {
    this.broker = parts.broker;
    this.presence = parts.presence;
    this.reporter = parts.reporter;
    this.occupancy = parts.occupancy;
    this.machine = parts.machine;
    this.closeBackend = parts.close;
    /** Counts that were sent to a room. @type {number[]} */
    this.told = [];
    this.onPublication = (/** @type {string} */ _room, /** @type {Buffer} */ publication) => {
      if (publication[0] === 0x23) this.told.push(Number(publication.toString('latin1', 1)));
    };
  }

  onState() {}

  /** @param {string} room @param {string} user @param {unknown} [info] */
  join(room, user, info) {
    const bytes = info === undefined ? null : Buffer.from(JSON.stringify(info));
    this.presence.join(room, JSON.stringify(user), encodeMember(user, bytes));
  }

  /** @param {string} room @param {string} user */
  leave(room, user) {
    this.presence.leave(room, JSON.stringify(user));
  }

  /** The process is gone, without a word. */
  kill() {
    const { node, cluster, client } = /** @type {RedisBroker} */ (this.broker);
    node?.close();
    cluster?.close();
    client?.close();
    this.reporter.lingering.forgetRooms();
    clearTimeout(this.reporter.timer);
    this.machine.link.socket?.destroy();
  }

  async close() {
    await this.reporter.close();
    await this.closeBackend();
    await this.machine.link.close();
  }
}

/** @param {WebhookEvent} event */
export function textOf({ type, room = '', user = '' }) {
  return `${type} ${room} ${user}`.replace(/ +/g, ' ').trim();
}

/** Numbers of one sequence ascend by 1. @param {WebhookEvent[]} events */
export function assertSequences(events) {
  /** @type {Map<string, number>} */
  const latest = new Map();
  for (const { room, user, type, epoch, seq } of events) {
    const key = type.startsWith('user.') ? `u ${user} ${epoch}` : `${room} ${epoch}`;
    assert.equal(seq, (latest.get(key) ?? 0) + 1, key);
    latest.set(key, seq);
  }
}

const KINDS = ['redis', 'redis cluster'];
/** @type {Map<string, Promise<RedisSettings>>} */
const started = new Map();
/** They begin when their file calls `begin`. @type {Map<string, (() => void)[]>} */
const testsOf = new Map();
const lifetime = { after: (/** @type {() => unknown} */ end) => ends.push(end) };
let prefixes = 0;

/**
 * @param {TestContext} t @param {string} kind @param {Parameters<typeof settingsOf>[0]} [wanted]
 */
export async function fleetOf(t, kind, wanted = {}) {
  let redis = null;
  if (kind !== 'embedded') {
    if (!started.has(kind)) started.set(kind, TOPOLOGIES[kind](lifetime));
    redis = /** @type {RedisSettings} */ (await started.get(kind));
  }
  return new Fleet(t, redis, `contract-reporter-${++prefixes}:`, settingsOf(wanted));
}

/**
 * @param {string} behaviour
 * @param {(fleet: Fleet, t: TestContext) => Promise<void>} body
 * @param {Parameters<typeof settingsOf>[0]} [wanted]
 */
export function it(behaviour, body, wanted) {
  for (const kind of ['embedded', ...KINDS])
    only(kind, behaviour, async (t) => body(await fleetOf(t, kind, wanted), t));
}

/**
 * @param {string} kind of backend
 * @param {string} behaviour
 * @param {(t: TestContext) => Promise<void>} body
 */
export function only(kind, behaviour, body) {
  const tests = testsOf.get(kind) ?? [];
  testsOf.set(kind, tests);
  tests.push(() => {
    test(`${kind}: ${behaviour}`, { timeout: TIMEOUT_MS }, body);
  });
}

/** Begins the tests of this file, each kind of backend on its own. */
export function begin() {
  sideBySide(testsOf);
}
