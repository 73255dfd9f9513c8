// sentinels.js: three Sentinels that watch a primary and its replica.
//
// Clients ask them as they ask real ones, over connections (redis/session.js). What Sentinels say to
// each other and to the servers has no connections: it needs a link that is not cut, and takes as
// long as a real Sentinel's rounds.
//
//   a primary is silent for DOWN_MS -> two of three agree -> one promotes the replica, and says
//   +switch-master -> the others hear of it, and say so, too -> the former primary, when it is
//   reachable, becomes a replica

import { RedisHost } from './redis-host.js';

const NAME = 'main';
const PORT = 26_379;
const SENTINELS = 3;
const QUORUM = 2;
const DOWN_MS = 1500;
const ROUND_MS = 250;
/** From agreement to the promotion, from there to the news, and until others hear it: from, to. */
const ELECTION_MS = /** @type {const} */ ([50, 1000]);
const NEWS_MS = /** @type {const} */ ([50, 1000]);
const HELLO_MS = /** @type {const} */ ([10, 2000]);
/** A server that should be a replica is one after this time. */
const CONVERT_MS = /** @type {const} */ ([2000, 8000]);
/** Before another attempt. */
const FAILOVER_MS = 10_000;

/** @import { Fleet } from './fleet.js' */

class Sentinel {
  /** Of its knowledge. */
  version = 0;
  /** When the primary last answered. */
  seenMs = 0;
  /** It attempts no failover before. */
  restsUntilMs = 0;
  /** Since when a server has another role than it should. @type {Map<RedisHost, number>} */
  wrongSinceMs = new Map();

  /** @param {Sentinels} group @param {string} name @param {string} host */
  constructor(group, name, host) {
    this.group = group;
    /** As far as it knows. @type {RedisHost} */
    this.primary = group.nodes[0];
    this.redis = new RedisHost(group.fleet, name, host, {
      port: PORT,
      sentinel: {
        primaryOf: (asked) => (asked === NAME ? this.primary.server.address : null),
        replicas: () =>
          group.nodes.filter((node) => node !== this.primary).map(({ server }) => server.address),
        sentinels: () =>
          group.all.filter((one) => one !== this).map(({ redis }) => redis.server.address),
      },
    });
  }

  /** @param {RedisHost} node */
  reaches(node) {
    const { network } = this.group.fleet;
    return node.isRunning && network.reaches(this.redis.host, node.host);
  }

  /** @param {number} nowMs */
  look(nowMs) {
    if (this.reaches(this.primary)) this.seenMs = nowMs;
  }

  /** @param {number} nowMs */
  isPrimaryDown(nowMs) {
    return nowMs - this.seenMs > DOWN_MS;
  }

  /** It is told who is primary. @param {RedisHost} primary @param {number} version */
  learn(primary, version) {
    if (version <= this.version || !this.redis.isAlive) return;
    const { host, port } = this.primary;
    this.version = version;
    this.seenMs = this.redis.simulator.nowMs;
    if (primary === this.primary) return;
    this.primary = primary;
    const message = `${NAME} ${host} ${port} ${primary.host} ${primary.port}`;
    this.group.fleet.note(`${this.redis.name} +switch-master ${message}`);
    this.redis.server.deliver({ channel: '+switch-master', message, isSharded: false });
  }
}

export class Sentinels {
  /** @type {Sentinel[]} */
  all = [];
  #version = 0;

  /** @param {Fleet} fleet @param {RedisHost[]} nodes the primary first */
  constructor(fleet, nodes) {
    this.fleet = fleet;
    this.nodes = nodes;
    for (let i = 0; i < SENTINELS; i++)
      this.all.push(new Sentinel(this, `sentinel-${i}`, `10.0.2.${i + 1}`));
    const [primary, ...replicas] = nodes;
    for (const replica of replicas) replica.replication.follow(primary);
    this.#round();
  }

  get hosts() {
    return this.all.map(({ redis }) => redis);
  }

  /** Of the newest version. */
  get primary() {
    return this.all.reduce((best, one) => (one.version > best.version ? one : best)).primary;
  }

  /** Do all agree, and do the servers? */
  get isSettled() {
    const { primary } = this;
    return (
      this.all.every((one) => one.redis.isRunning && one.primary === primary) &&
      this.nodes.every((node) => node.replication.source === (node === primary ? null : primary))
    );
  }

  get env() {
    return {
      REDIS_SENTINELS: this.hosts.map(({ host, port }) => `${host}:${port}`).join(','),
      REDIS_SENTINEL_NAME: NAME,
    };
  }

  /** @param {readonly [number, number]} range */
  #draw([low, high]) {
    return low + this.fleet.random.next() * (high - low);
  }

  #round() {
    const { simulator } = this.fleet;
    const { nowMs } = simulator;
    for (const one of this.all) {
      if (!one.redis.isRunning) continue;
      one.look(nowMs);
      if (one.isPrimaryDown(nowMs)) this.#vote(one, nowMs);
      else this.#correct(one, nowMs);
    }
    simulator.schedule(ROUND_MS, simulator.self, () => this.#round());
  }

  /** @param {Sentinel} leader @param {number} nowMs */
  #vote(leader, nowMs) {
    if (nowMs < leader.restsUntilMs) return;
    const peers = this.all.filter(
      (one) => one === leader || (one.version <= leader.version && leader.reaches(one.redis)),
    );
    const votes = peers.filter((one) => one.isPrimaryDown(nowMs));
    if (votes.length < QUORUM) return;
    for (const one of peers) one.restsUntilMs = nowMs + FAILOVER_MS;
    this.fleet.simulator.schedule(this.#draw(ELECTION_MS), this.fleet.simulator.self, () =>
      this.failOver(leader),
    );
  }

  /**
   * Promotes the replica with most data. Without a fault this is a planned failover.
   * @param {Sentinel} [leader]
   */
  failOver(leader = this.all.find(({ redis }) => redis.isRunning)) {
    if (leader === undefined || !leader.redis.isRunning) return;
    const replicas = this.nodes.filter((node) => node !== leader.primary && leader.reaches(node));
    if (replicas.length === 0) {
      leader.restsUntilMs = 0;
      return;
    }
    const next = replicas.reduce((best, one) =>
      one.server.offset > best.server.offset ? one : best,
    );
    this.#configure(next, () => next.replication.promote());
    const version = ++this.#version;
    const { simulator } = this.fleet;
    simulator.schedule(this.#draw(NEWS_MS), simulator.self, () => {
      leader.learn(next, version);
      for (const node of this.nodes)
        if (node !== next && !node.isPrimary && leader.reaches(node))
          this.#configure(node, () => node.replication.follow(next));
    });
  }

  /** Sentinel ends the connections of clients, so that they look for the primary. @param {RedisHost} node @param {() => void} act */
  #configure(node, act) {
    act();
    for (const session of [...node.server.sessions]) session.close();
  }

  /** The news spreads, and servers get the roles that they should have. @param {Sentinel} one @param {number} nowMs */
  #correct(one, nowMs) {
    const { simulator } = this.fleet;
    for (const other of this.all)
      if (other.version < one.version && one.reaches(other.redis))
        simulator.schedule(this.#draw(HELLO_MS), simulator.self, () => {
          if (one.reaches(other.redis)) other.learn(one.primary, one.version);
        });
    for (const node of this.nodes) {
      const isWrong = node !== one.primary && node.replication.source !== one.primary;
      if (!isWrong || !one.reaches(node) || one.version < this.#version) {
        one.wrongSinceMs.delete(node);
        continue;
      }
      const since = one.wrongSinceMs.get(node) ?? nowMs + this.#draw(CONVERT_MS);
      one.wrongSinceMs.set(node, since);
      if (nowMs < since) continue;
      one.wrongSinceMs.delete(node);
      this.#configure(node, () => node.replication.follow(one.primary));
    }
  }
}
