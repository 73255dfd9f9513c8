// workers.js: a process with simulated workers for fleet.js. A simulated worker has the Redis
// backend and the recovery of a real one, and neither connections nor a primary.
//
// The parent sends `{id, order, ...}` and gets `{id, result}` or `{id, error}`.

import pino from 'pino';
import { createBackend } from '../../src/backend/redis/index.js';
import { CHANNEL_KIND } from '../../src/backend/redis/keys.js';
import { loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';
import { ANNOUNCEMENTS, encodePublication, KIND } from '../../src/protocol/publication.js';
import { SyncScheduler } from '../../src/recovery/scheduler.js';
import { Turn } from '../../src/worker/turn.js';
import { Latency } from '../../test/harness/latency.js';
import { pause } from '../../test/harness/run.js';
import { until } from '../../test/harness/server.js';
import { countMembers, firstMember, nameOf, roomsOf } from './rooms.js';

/** Workers that connect at the same time. */
const AT_ONCE = 16;
/** Rooms that are opened at the same time. */
const ROOMS_AT_ONCE = 200;
const ROOMS_TIMEOUT_MS = 60_000;
const CHURN_MS = 50;
/** Pause of publishers, and of those that look at all workers. */
const POLL_MS = 10;
/** The room that each worker follows. */
const COMMON_ROOM = 'common';

/** A worker's link to its primary, as if the primary never wrote. */
function silentPrimary() {
  return /** @type {import('../../src/backend/embedded/worker-places.js').WorkerPlaces} */ (
    /** @type {unknown} */ ({
      volunteer() {},
      listen() {},
      passReport() {},
      nameSession() {},
    })
  );
}
const PAYLOAD = Buffer.from(`"${'x'.repeat(98)}"`);
const PUBLICATION = encodePublication(
  KIND.MESSAGE,
  Date.now(),
  0,
  'simulated',
  PAYLOAD,
  0,
  PAYLOAD.length,
);

/** The place of the time in a publication to the common room. */
const TIME_AT = PUBLICATION.length - 9;

/** The same clock in all processes. */
function timeMs() {
  return performance.timeOrigin + performance.now();
}

/** Messages that have reached the workers of this process, by kind of their channel. */
const delivered = { probe: 0, beat: 0, limits: 0, older: 0, room: 0 };
/** @type {Map<number, keyof typeof delivered>} */
const KIND_NAMES = new Map([
  [CHANNEL_KIND.PROBE, 'probe'],
  [CHANNEL_KIND.FLEET, 'beat'],
  [CHANNEL_KIND.REPORTS, 'limits'],
  [CHANNEL_KIND.OLD_FLEET, 'older'],
  [CHANNEL_KIND.OLD_REPORTS, 'older'],
]);
let beatBytes = 0;
/** Of publications to the common room. */
const delays = new Latency();
/** @type {SimulatedWorker[]} */
let workers = [];
/** The `open` of this process. @type {OpenOrder} */
let opened;
/** The `join` of this process. @type {JoinOrder|null} */
let joined = null;
/** @type {NodeJS.Timeout|undefined} */
let churning;
/** Publications to many rooms, by outcome, and the deliveries that the accepted ones must cause. */
const chat = { isOn: false, accepted: 0, refused: 0, unknown: 0, expected: 0 };
/** Of workers that have been closed. */
const closed = { checks: 0, probeMisses: 0, reconnects: 0 };

/** @typedef {{env: NodeJS.ProcessEnv, first: number, count: number, perServer: number, workers: number}} OpenOrder */
/** @typedef {{rooms: number, historyPercent: number}} JoinOrder */

class SimulatedWorker {
  /** When the state of its broker last changed, on the clock of all processes. */
  degradedMs = 0;
  upMs = 0;

  /**
   * @param {NodeJS.ProcessEnv} env
   * @param {number} number in the fleet, from 0
   * @param {number} perServer workers of a server
   */
  constructor(env, number, perServer) {
    this.number = number;
    const { config, faults } = loadConfig(env);
    if (config === null) throw new Error(faults.join());
    const log = pino({ level: 'silent' });
    const counters = (this.counters = createCounters());
    const historyRules = new RoomRules(config.history);
    this.backend = createBackend({
      config,
      log,
      counters,
      workerId: `server-${Math.floor(number / perServer)}:${number}`,
      historyRules,
      announcements: ANNOUNCEMENTS,
      machine: silentPrimary(),
      events: { onPublishLag() {}, onRoundTrip() {} },
    });
    const broker = (this.broker = this.backend.broker);
    this.scheduler = new SyncScheduler({
      broker,
      historyOf: (room) => historyRules.ruleFor(room),
      counters,
      maxUnsentBytes: config.maxUnsentBytes,
      turn: new Turn(),
    });
    this.redis = /** @type {import('../../src/backend/redis/broker.js').RedisBroker} */ (broker);
    const { inbox, keys } = this.redis;
    const { onOther } = inbox;
    inbox.onOther = (channel, message) => {
      const kind = KIND_NAMES.get(keys.kindOf(channel));
      if (kind !== undefined) delivered[kind]++;
      if (kind === 'beat') beatBytes += message.length;
      onOther(channel, message);
    };
  }

  async open() {
    await this.broker.start({
      onPublication: (room, publication, offset, epoch) => {
        delivered.room++;
        if (room === COMMON_ROOM) delays.add(timeMs() - publication.readDoubleBE(TIME_AT));
        this.scheduler.syncs.get(room)?.arrive(publication, offset, epoch);
      },
      onState: (state) => {
        if (state === 'up') this.upMs = timeMs();
        else this.degradedMs = timeMs();
        this.scheduler.onState(state);
      },
      onLost: (rooms) => this.scheduler.onLost(rooms),
    });
  }

  /**
   * Follows a room with history that has one publication.
   * @param {string} room @param {boolean} [publishes] it
   */
  async follow(room, publishes = true) {
    const sync = this.scheduler.follow(room, Buffer.alloc(0), {
      isFull: () => false,
      deliver() {},
      markResync() {},
      handedOut: (latest) => latest,
      admit: () => true,
      members: () => [],
      dropWaiting() {},
      tell() {},
      isFlushing: () => false,
      isMarking: () => false,
      write() {},
      pass() {},
      resync() {},
    });
    await this.broker.subscribe(room);
    sync.open();
    if (publishes) await this.broker.publish(room, Buffer.from(PUBLICATION));
  }

  /**
   * Becomes a member of its rooms.
   * @param {JoinOrder} order @param {boolean} [isFirst] rooms with history have no publication yet
   */
  async join({ rooms, historyPercent }, isFirst = false) {
    const own = [...roomsOf(this.number, opened.workers, rooms)];
    await each(own, ROOMS_AT_ONCE, async (room) => {
      const name = nameOf(room, historyPercent);
      const publishes = isFirst && firstMember(room, opened.workers) === this.number;
      try {
        if (name.startsWith('quiet')) await this.follow(name, publishes);
        else await this.broker.subscribe(name);
      } catch {
        // A refused subscription stays wanted. The broker subscribes it again.
      }
    });
    await until(() => this.countDeaf() === 0, ROOMS_TIMEOUT_MS).catch(() => {});
  }

  /** Rooms that do not hear, although they should. */
  countDeaf() {
    const { node, cluster } = this.redis;
    const nodes = node !== null ? [node] : [...(cluster?.nodes.values() ?? [])];
    let deaf = cluster?.waiting.size ?? 0;
    for (const { subscriptions } of nodes)
      for (const { isConfirmed } of subscriptions.channels.values()) if (!isConfirmed) deaf++;
    return deaf;
  }

  get figures() {
    const { positionChecks, probeMisses, brokerReconnects } = this.counters;
    return { checks: positionChecks, probeMisses, reconnects: brokerReconnects };
  }

  async close() {
    this.scheduler.close();
    await this.backend.close();
  }
}

/**
 * Does the work for each item, some at a time.
 * @template T
 * @param {readonly T[]} items
 * @param {number} atOnce
 * @param {(item: T, index: number) => Promise<unknown>} work
 */
async function each(items, atOnce, work) {
  for (let at = 0; at < items.length; at += atOnce)
    await Promise.all(items.slice(at, at + atOnce).map((item, i) => work(item, at + i)));
}

/** @param {{perSecond: number, seconds: number}} rate @param {() => void} publish one message */
async function atRate({ perSecond, seconds }, publish) {
  const startedMs = performance.now();
  for (let sent = 0; sent < perSecond * seconds; ) {
    const due = Math.min(seconds, (performance.now() - startedMs) / 1000) * perSecond;
    for (; sent < due; sent++) publish();
    await pause(POLL_MS / 10);
  }
}

const ORDERS = {
  /**
   * Starts workers.
   * @param {OpenOrder} order
   * @returns {Promise<number>} those that have reached Redis
   */
  async open(order) {
    opened = order;
    workers = Array.from({ length: order.count }, (_, i) => newWorker(order.first + i));
    await each(workers, AT_ONCE, (worker) => worker.open());
    return workers.filter(({ broker }) => broker.state === 'up').length;
  },

  /**
   * Follows quiet rooms, each on one worker.
   * @param {{first: number, count: number}} order
   * @returns {Promise<number>} rooms that have reached their publication
   */
  async follow({ first, count }) {
    const rooms = Array.from({ length: count }, (_, i) => `quiet.${first + i}`);
    await each(rooms, ROOMS_AT_ONCE, (room, i) => workers[i % workers.length].follow(room));
    const reached = () =>
      workers.reduce((sum, { scheduler }) => {
        for (const { offset } of scheduler.syncs.values()) if (offset > 0) sum++;
        return sum;
      }, 0);
    await until(() => reached() === count, ROOMS_TIMEOUT_MS).catch(() => {});
    return reached();
  },

  /** Each worker becomes a member of one room. */
  async share() {
    await each(workers, AT_ONCE, ({ broker }) => broker.subscribe(COMMON_ROOM));
  },

  /** Each worker becomes a member of its rooms. @param {JoinOrder} order */
  async join(order) {
    joined = order;
    await each(workers, AT_ONCE, (worker) => worker.join(order, true));
    return workers.reduce(
      (sum, { number }) => sum + [...roomsOf(number, opened.workers, order.rooms)].length,
      0,
    );
  },

  /**
   * The first worker publishes to the room of all.
   * @param {{perSecond: number, seconds: number}} order
   * @returns {Promise<number>} the publications that Redis accepted
   */
  async publish(order) {
    const [{ broker }] = workers;
    let accepted = 0;
    await atRate(order, () => {
      const publication = Buffer.from(PUBLICATION);
      publication.writeDoubleBE(timeMs(), TIME_AT);
      broker.publish(COMMON_ROOM, publication).then(
        () => accepted++,
        () => {}, // not counted
      );
    });
    return accepted;
  },

  /** The number of each worker's connections changes all the time, or no longer. @param {{isOn: boolean}} order */
  async churn({ isOn }) {
    clearInterval(churning);
    let connections = 0;
    if (!isOn) return;
    churning = setInterval(() => {
      connections++;
      for (const { broker } of workers) broker.reportConnections(connections);
    }, CHURN_MS);
  },

  /**
   * All workers publish to random rooms, until `endChat`.
   * @param {JoinOrder & {perSecond: number}} order
   */
  async chat({ rooms, historyPercent, perSecond }) {
    chat.isOn = true;
    const startedMs = performance.now();
    for (let sent = 0; chat.isOn; ) {
      const due = ((performance.now() - startedMs) / 1000) * perSecond;
      for (; sent < due; sent++) say(Math.floor(Math.random() * rooms), historyPercent);
      await pause(POLL_MS);
    }
  },

  /** @returns {Promise<typeof chat>} since the last call */
  async endChat() {
    chat.isOn = false;
    const result = { ...chat };
    Object.assign(chat, { accepted: 0, refused: 0, unknown: 0, expected: 0 });
    return result;
  },

  /**
   * Publishes once to each of these rooms whose first member is here.
   * @param {JoinOrder & {step: number}} order one room in `step`
   * @returns {Promise<number>} the deliveries that this must cause, on all workers
   */
  async hear({ rooms, historyPercent, step }) {
    const own = workers.flatMap((worker) => {
      const all = [...roomsOf(worker.number, opened.workers, rooms)];
      const isOwn = (/** @type {number} */ room) =>
        room % step === 0 && firstMember(room, opened.workers) === worker.number;
      return all.filter(isOwn).map((room) => ({ worker, room }));
    });
    let expected = 0;
    await each(own, ROOMS_AT_ONCE, async ({ worker, room }) => {
      await worker.broker.publish(nameOf(room, historyPercent), Buffer.from(PUBLICATION));
      expected += countMembers(room, opened.workers);
    });
    return expected;
  },

  /**
   * Waits until every worker has noticed an outage, is up again, and every room hears.
   * @param {{sinceMs: number, timeoutMs: number}} order
   * @returns {Promise<{upMs: number[], deaf: number}>} when each was up; rooms that stay deaf
   */
  async recover({ sinceMs, timeoutMs }) {
    const isBack = (/** @type {SimulatedWorker} */ worker) =>
      worker.degradedMs >= sinceMs && worker.broker.state === 'up';
    const endMs = timeMs() + timeoutMs;
    while (!workers.every(isBack) && timeMs() < endMs) await pause(POLL_MS);
    const deaf = workers.reduce((sum, worker) => sum + worker.countDeaf(), 0);
    return { upMs: workers.filter(isBack).map(({ upMs }) => upMs), deaf };
  },

  /** @returns {Promise<number>} rooms that do not hear */
  async countDeaf() {
    return workers.reduce((sum, worker) => sum + worker.countDeaf(), 0);
  },

  /**
   * Replaces the workers of a server, if they are here.
   * @param {{server: number}} order
   * @returns {Promise<number>} the workers that are up again
   */
  async restart({ server }) {
    const those = workers.filter(({ number }) => serverOf(number) === server);
    for (const { figures } of those)
      for (const key of /** @type {(keyof typeof closed)[]} */ (Object.keys(closed)))
        closed[key] += figures[key];
    await Promise.all(those.map((worker) => worker.close()));
    const fresh = those.map(({ number }) => newWorker(number));
    workers = [...workers.filter((worker) => !those.includes(worker)), ...fresh];
    await Promise.all(fresh.map((worker) => worker.open()));
    for (const worker of fresh) {
      await worker.broker.subscribe(COMMON_ROOM);
      if (joined !== null) await worker.join(joined);
    }
    return fresh.filter(({ broker }) => broker.state === 'up').length;
  },

  /** @returns {Promise<Figures>} */
  async figures() {
    const sums = { ...closed };
    for (const { figures } of workers)
      for (const key of /** @type {(keyof typeof sums)[]} */ (Object.keys(sums)))
        sums[key] += figures[key];
    const { user, system } = process.cpuUsage();
    return {
      ...sums,
      delivered,
      beatBytes,
      cpuSeconds: (user + system) / 1e6,
      memoryBytes: process.memoryUsage.rss(),
      delays: delays.drain(),
    };
  },

  async close() {
    clearInterval(churning);
    chat.isOn = false;
    await Promise.all(workers.map((worker) => worker.close()));
  },
};

/** @param {number} number in the fleet */
function newWorker(number) {
  return new SimulatedWorker(opened.env, number, opened.perServer);
}

/** @param {number} worker */
function serverOf(worker) {
  return Math.floor(worker / opened.perServer);
}

/** A random worker publishes. @param {number} room @param {number} historyPercent */
function say(room, historyPercent) {
  const { broker } = workers[Math.floor(Math.random() * workers.length)];
  broker.publish(nameOf(room, historyPercent), Buffer.from(PUBLICATION)).then(
    () => {
      chat.accepted++;
      chat.expected += countMembers(room, opened.workers);
    },
    ({ code }) => {
      if (code === 'OUTCOME_UNKNOWN') chat.unknown++;
      else chat.refused++;
    },
  );
}

/**
 * @typedef {typeof closed & {delivered: Record<string, number>, beatBytes: number, cpuSeconds: number, memoryBytes: number, delays: import('../../test/harness/latency.js').Drained}}
 *   Figures
 */
/** @typedef {typeof ORDERS} Orders */

process.on('message', async (/** @type {{id: number, order: keyof Orders}} */ message) => {
  const { id, order, ...rest } = message;
  const send = (/** @type {object} */ reply) => process.connected && process.send?.(reply);
  try {
    const carryOut = /** @type {(rest: object) => Promise<unknown>} */ (ORDERS[order]);
    send({ id, result: await carryOut(rest) });
  } catch (error) {
    send({ id, error: /** @type {Error} */ (error).stack ?? String(error) });
  }
});
// The parent has ended.
process.once('disconnect', () => process.exit(1));
