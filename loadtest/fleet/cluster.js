// cluster.js: a fleet on a Redis Cluster of three primaries with a replica each: at rest, with one
// hot room, when a primary is killed, when slots move, and when all servers restart one by one.
//
// After each disturbance a publication to some of the rooms must reach all of their members.

import { startCluster } from '../../test/harness/redis-cluster.js';
import { pause } from '../../test/harness/run.js';
import { until } from '../../test/harness/server.js';
import { show } from '../lib/figures.js';
import { difference, perSecond, Readings } from './readings.js';
import { travelTime, workerAtRest } from './report.js';

/** Rooms that are heard after each disturbance. */
const HEARD_ROOMS = 50_000;
const HEAR_TIMEOUT_MS = 60_000;
const RECOVERY_TIMEOUT_MS = 180_000;
const POLL_MS = 20;
/** A rate at which fewer publications were accepted or delivered was too high. */
const HELD_SHARE = 0.95;
/** Time for the last deliveries of a phase. */
const TRAVEL_MS = 1000;

/**
 * @typedef {object} Options
 * @property {number} workers @property {number} perServer @property {number} rooms
 * @property {number} history percent of the rooms that have one
 * @property {number[]} rates of the hot room @property {number} chat publications a second
 * @property {number} slots @property {number} restarts servers
 * @property {number} nodeTimeoutMs of the cluster
 * @property {number} seconds @property {number} settle
 * @property {readonly string[]} phases
 */

/** @typedef {import('./report.js').ClusterPhase} ClusterPhase */

export const CLUSTER_PHASES = Object.freeze(['idle', 'hot', 'failover', 'slots', 'restart']);

/** What happens to a fleet, phase by phase. */
export class ClusterRun {
  /** @type {ClusterPhase[]} */
  phases = [];
  /** Subscriptions of workers to rooms. */
  memberships = 0;

  /**
   * @param {import('../../test/harness/run.js').Run} test
   * @param {import('./worker-processes.js').WorkerProcesses} workers @param {Options} options
   */
  constructor(test, workers, options) {
    this.test = test;
    this.workers = workers;
    this.options = options;
    /** For orders about rooms. */
    this.rooms = { rooms: options.rooms, historyPercent: options.history };
  }

  async start() {
    const { nodeTimeoutMs, workers, perServer } = this.options;
    this.cluster = await startCluster(this.test, { hasReplicas: true, nodeTimeoutMs });
    this.readings = new Readings(this.test, this.workers, this.cluster.nodes);
    const env = {
      REDIS_CLUSTER: this.cluster.primaries.map(({ port }) => `127.0.0.1:${port}`).join(),
      FANFARE_HISTORY: 'quiet.*=100/1h',
    };
    const order = { env, perServer, workers };
    const up = await this.workers.share('open', workers, order, perServer);
    this.test.check('workers that have reached the cluster', workers, up);
    await this.#phase('rooms', () => this.#join());
    await this.#mustHear('after the start');
    for (const name of this.options.phases) await this.#run(name);
  }

  /** @param {string} name of a phase */
  async #run(name) {
    await pause(1000 * this.options.settle);
    if (name === 'idle') await this.#phase(name, () => this.#idle());
    else if (name === 'hot') await this.#hot();
    else {
      const disturb = { failover: this.#fail, slots: this.#moveSlots, restart: this.#restart }[
        name
      ];
      await this.#phase(name, () => this.#chatting(() => disturb?.call(this) ?? []));
      await this.#mustHear(`after ${name}`);
    }
  }

  /**
   * Takes readings before and after.
   * @param {string} name
   * @param {() => Promise<(rates: import('./readings.js').Rates) => string[]>} work returns what to
   *   report
   */
  async #phase(name, work) {
    const readings = /** @type {Readings} */ (this.readings);
    const before = await readings.read();
    const describe = await work();
    const rates = difference(before, await readings.read());
    const facts = describe(rates);
    for (const fact of facts) this.test.note(name, fact);
    this.phases.push({ name, rates, facts });
    return rates;
  }

  async #join() {
    this.memberships = (await this.workers.all('join', this.rooms)).reduce((a, b) => a + b, 0);
    await this.workers.all('share');
    return (/** @type {import('./readings.js').Rates} */ rates) => {
      const bytes = (/** @type {number} */ n) => show(n / this.memberships);
      const primaries = rates.nodes.filter(({ isPrimary }) => isPrimary);
      const redis = primaries.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
      return [
        `a subscription takes ${bytes(redis)} bytes of Redis and ` +
          `${bytes(rates.workersMemoryBytes)} bytes of its worker's process.`,
      ];
    };
  }

  async #idle() {
    await pause(1000 * this.options.seconds);
    return (/** @type {import('./readings.js').Rates} */ rates) => [
      workerAtRest(rates, this.options.workers),
    ];
  }

  async #hot() {
    const { rates, seconds, workers } = this.options;
    for (const rate of rates) {
      let accepted = 0;
      const { delivered } = await this.#phase(`hot room, ${show(rate)}/s`, async () => {
        accepted = await this.workers.first('publish', { perSecond: rate, seconds });
        await pause(TRAVEL_MS);
        return (measured) => [
          `${show(accepted)} of ${show(rate * seconds)} publications were accepted, ` +
            `${show(measured.delivered.room * measured.seconds)} of ${show(accepted * workers)} ` +
            `deliveries came, after ${travelTime(measured)}.`,
        ];
      });
      const isHeld =
        accepted >= HELD_SHARE * rate * seconds &&
        delivered.room * (seconds + TRAVEL_MS / 1000) >= HELD_SHARE * accepted * workers;
      if (isHeld) continue;
      this.test.note('hot room', `${show(rate)}/s is more than this machine can deliver`);
      // Nothing of it may be left when the next phase begins.
      await pause(5 * TRAVEL_MS);
      break;
    }
  }

  /** @param {() => Promise<string[]>|string[]} disturb returns what to report */
  async #chatting(disturb) {
    const { chat: rate } = this.options;
    const before = await this.#delivered();
    const share = rate / this.workers.processes.length;
    const chatting = this.workers.all('chat', { ...this.rooms, perSecond: share });
    await pause(TRAVEL_MS);
    const facts = await disturb();
    await pause(TRAVEL_MS);
    const ends = await this.workers.all('endChat');
    await chatting;
    await pause(TRAVEL_MS);
    const arrived = (await this.#delivered()) - before;
    const sum = (/** @type {string} */ key) => ends.reduce((total, each) => total + each[key], 0);
    facts.push(
      `meanwhile ${show(rate)} publications a second went to random rooms: ` +
        `${show(sum('accepted'))} accepted, ${show(sum('refused'))} refused, ` +
        `${show(sum('unknown'))} with unknown outcome; ` +
        `${show(arrived)} of ${show(sum('expected'))} deliveries came.`,
    );
    return (/** @type {import('./readings.js').Rates} */ rates) => [
      ...facts,
      `${show(perSecond(rates.commands) * rates.seconds)} commands, ` +
        `${show(rates.inputBytes * rates.seconds)} bytes to Redis and ` +
        `${show(rates.outputBytes * rates.seconds)} from it, ` +
        `${show(rates.cpu * rates.seconds, 1)} s of Redis CPU and ` +
        `${show(rates.workersCpu * rates.seconds, 1)} s of the workers' in all.`,
    ];
  }

  async #delivered() {
    const figures = await this.workers.all('figures');
    return figures.reduce((sum, { delivered }) => sum + delivered.room, 0);
  }

  /** @param {string} when */
  async #mustHear(when) {
    const { rooms } = this.options;
    const step = Math.ceil(rooms / HEARD_ROOMS);
    const before = await this.#delivered();
    const counts = await this.workers.all('hear', { ...this.rooms, step });
    const expected = counts.reduce((sum, n) => sum + n, 0);
    const arrived = async () => (await this.#delivered()) - before;
    await until(async () => (await arrived()) >= expected, HEAR_TIMEOUT_MS).catch(() => {});
    const what = `deliveries of a publication to ${show(Math.ceil(rooms / step))} rooms ${when}`;
    this.test.check(what, expected, await arrived());
  }

  async #fail() {
    const { cluster, workers } = this;
    const [{ primary, replicas }] = await this.#shards();
    const sinceMs = performance.timeOrigin + performance.now();
    const since = () => performance.timeOrigin + performance.now() - sinceMs;
    const recovering = workers.all('recover', { sinceMs, timeoutMs: RECOVERY_TIMEOUT_MS });
    await primary.kill();
    const isPromoted = async () => /role:master/.test(await replicas[0].cli('INFO', 'replication'));
    await until(isPromoted, RECOVERY_TIMEOUT_MS, 'a failover');
    const promotedMs = since();
    const results = await recovering;
    const upMs = results.flatMap((each) => each.upMs).sort((a, b) => a - b);
    this.test.check('workers that are up after the failover', this.options.workers, upMs.length);
    const deaf = results.reduce((sum, each) => sum + each.deaf, 0);
    this.test.check('rooms that do not hear after the failover', 0, deaf);
    const at = (/** @type {number} */ ms) => `${show((ms - sinceMs) / 1000, 2)} s`;
    cluster?.primaries.splice(cluster.primaries.indexOf(primary), 1, replicas[0]);
    return [
      `a replica was promoted after ${show(promotedMs / 1000, 2)} s ` +
        `(cluster-node-timeout ${show(this.options.nodeTimeoutMs)} ms). The first worker heard all ` +
        `of its rooms again after ${at(upMs[0])}, half of them after ` +
        `${at(upMs[upMs.length >> 1])}, and the last one after ${at(upMs[upMs.length - 1])}.`,
    ];
  }

  #shards() {
    return /** @type {import('../../test/harness/redis-cluster.js').Cluster} */ (
      this.cluster
    ).shards();
  }

  async #moveSlots() {
    const shards = await this.#shards();
    const [from, to] = shards.slice(-2);
    const [first] = from.ranges[0];
    const startedAt = performance.now();
    for (let slot = first; slot < first + this.options.slots; slot++)
      await this.cluster?.moveSlot(slot, from.primary, to.primary);
    const movedMs = performance.now() - startedAt;
    const countDeaf = async () =>
      (await this.workers.all('countDeaf')).reduce((sum, n) => sum + n, 0);
    let deaf = await countDeaf();
    const end = performance.now() + RECOVERY_TIMEOUT_MS;
    while (deaf > 0 && performance.now() < end) {
      await pause(POLL_MS);
      deaf = await countDeaf();
    }
    const lateMs = performance.now() - startedAt - movedMs;
    this.test.check('rooms that do not hear after the move', 0, deaf);
    return [
      `${show(this.options.slots)} slots moved in ${show(movedMs / 1000, 1)} s, one after the ` +
        `other. ${show(lateMs)} ms later all rooms heard.`,
    ];
  }

  async #restart() {
    const { workers, perServer } = this.options;
    const servers = Math.min(this.options.restarts, Math.ceil(workers / perServer));
    /** @type {number[]} */
    const times = [];
    let up = 0;
    for (let server = 0; server < servers; server++) {
      const startedAt = performance.now();
      const counts = await this.workers.all('restart', { server });
      up += counts.reduce((sum, n) => sum + n, 0);
      times.push(performance.now() - startedAt);
    }
    this.test.check(
      'workers that are up after their restart',
      Math.min(workers, servers * perServer),
      up,
    );
    times.sort((a, b) => a - b);
    const total = times.reduce((sum, ms) => sum + ms, 0);
    return [
      `${show(servers)} servers of ${show(perServer)} workers restarted one by one in ` +
        `${show(total / 1000, 1)} s: half of them within ${show(times[times.length >> 1])} ms, all ` +
        `within ${show(times[times.length - 1])} ms.`,
    ];
  }
}
