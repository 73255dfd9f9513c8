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
import { until } from '../../test/harness/server.js';

/** Workers that connect at the same time. */
const AT_ONCE = 16;
/** Rooms that are opened at the same time. */
const ROOMS_AT_ONCE = 200;
const ROOMS_TIMEOUT_MS = 60_000;
const CHURN_MS = 50;
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
/** Of publications to the common room, in ms. @type {number[]} */
let delays = [];
/** @type {SimulatedWorker[]} */
let workers = [];
/** @type {NodeJS.Timeout|undefined} */
let churning;

class SimulatedWorker {
  /**
   * @param {NodeJS.ProcessEnv} env
   * @param {number} number in the fleet, from 0
   * @param {number} perServer workers of a server
   */
  constructor(env, number, perServer) {
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
    const { inbox, keys } = /** @type {import('../../src/backend/redis/broker.js').RedisBroker} */ (
      broker
    );
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
        if (room === COMMON_ROOM) delays.push(timeMs() - publication.readDoubleBE(TIME_AT));
        this.scheduler.syncs.get(room)?.arrive(publication, offset, epoch);
      },
      onState: (state) => this.scheduler.onState(state),
      onLost: (rooms) => this.scheduler.onLost(rooms),
    });
  }

  /** Follows a room with history that has one publication. @param {string} room */
  async follow(room) {
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
      resynced() {},
      resync() {},
    });
    await this.broker.subscribe(room);
    sync.open();
    await this.broker.publish(room, Buffer.from(PUBLICATION));
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

const ORDERS = {
  /**
   * Starts workers.
   * @param {{env: NodeJS.ProcessEnv, first: number, count: number, perServer: number}} order
   * @returns {Promise<number>} those that have reached Redis
   */
  async open({ env, first, count, perServer }) {
    workers = Array.from(
      { length: count },
      (_, i) => new SimulatedWorker(env, first + i, perServer),
    );
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

  /**
   * The first worker publishes to that room.
   * @param {{perSecond: number, seconds: number}} order
   */
  async publish({ perSecond, seconds }) {
    const [{ broker }] = workers;
    for (let i = 0; i < perSecond * seconds; i++) {
      const publication = Buffer.from(PUBLICATION);
      publication.writeDoubleBE(timeMs(), TIME_AT);
      broker.publish(COMMON_ROOM, publication).catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 1000 / perSecond));
    }
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

  /** @returns {Promise<Figures>} */
  async figures() {
    const checks = workers.reduce((sum, { counters }) => sum + counters.positionChecks, 0);
    const recent = delays;
    delays = [];
    return { delivered, beatBytes, checks, delays: recent };
  },

  async close() {
    clearInterval(churning);
    await Promise.all(workers.map((worker) => worker.close()));
  },
};

/** @typedef {{delivered: Record<string, number>, beatBytes: number, checks: number, delays: number[]}} Figures */
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
