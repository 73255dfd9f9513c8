// simulated-cluster.js: a Redis Cluster: three primaries, each with a replica.
//
// Each node has its own view, which changes when it hears of a newer one, so that nodes disagree for
// a moment. Node to node there are no connections: what they say needs a link that is not cut.
//
//   a primary is dead or cut off for NODE_TIMEOUT_MS -> its replica is promoted -> the others hear of
//   it, as does the former primary, which then follows
//
// A primary that is merely frozen keeps its slots. If a replica took over, the frozen one would pass
// on, when it wakes up, what clients had sent it before, after later messages of the same clients.
// In plain rooms nothing prevents that (docs/guarantees.md), and runs on real servers leave it out,
// too (test/checker/run.js).

import { SLOTS, slotOf } from '../../src/backend/redis/slots.js';
import { RedisHost } from './redis-host.js';

const SHARDS = 3;
const NODE_TIMEOUT_MS = 1500;
const ROUND_MS = 250;
const ELECTION_MS = /** @type {const} */ ([500, 1500]);
/** A primary that comes back accepts nothing before it has heard the others. */
const WRITABLE_DELAY_MS = 2000;
/** Between two steps of a slot's move, and the most keys of a step. */
const STEP_MS = /** @type {const} */ ([0.2, 20]);
const STEP_KEYS = 5;

/** @import { Fleet } from './fleet.js' */
/** @import { ClusterView, Publication, RedisServer } from './redis/server.js' */

/**
 * What a node may believe. Newer ones replace older ones, whole.
 * @typedef {object} ClusterMap
 * @property {number} version
 * @property {Uint8Array} shards of each slot
 * @property {[number, number][][]} ranges of slots of each shard
 * @property {readonly RedisHost[]} primaries of each shard
 */

/** A slot on its way. @typedef {{slot: number, from: number, to: number}} Move */

/** @implements {ClusterView} */
class NodeView {
  /** Since when it hears the majority of primaries; NaN while it does not. */
  heardSinceMs = 0;
  /** When it last did. */
  heardMs = 0;
  isUp = true;

  /** @param {SimulatedCluster} cluster @param {RedisHost} node @param {number} shard @param {ClusterMap} map */
  constructor(cluster, node, shard, map) {
    this.cluster = cluster;
    this.node = node;
    this.shard = shard;
    this.map = map;
  }

  get isPrimary() {
    return this.map.primaries[this.shard] === this.node;
  }

  /** @param {number} slot */
  ownerOf(slot) {
    const { shards, primaries } = this.map;
    return primaries[shards[slot]].server;
  }

  /** @param {number} slot */
  serves(slot) {
    return this.map.shards[slot] === this.shard;
  }

  /** @param {number} slot @returns {RedisServer|null} */
  leavesTo(slot) {
    const { moves } = this.cluster;
    const move = moves.get(slot);
    return move?.from === this.shard ? this.map.primaries[move.to].server : null;
  }

  /** @param {number} slot */
  isArriving(slot) {
    return this.isPrimary && this.cluster.moves.get(slot)?.to === this.shard;
  }

  shards() {
    const { ranges, primaries } = this.map;
    return primaries.map((primary, shard) => ({
      server: primary.server,
      replicas: this.cluster
        .nodesOf(shard)
        .filter((node) => node !== primary)
        .map(({ server }) => server),
      ranges: ranges[shard],
    }));
  }

  /** @param {Publication} publication */
  relay(publication) {
    const { cluster, node } = this;
    const { network, simulator } = cluster.fleet;
    for (const other of publication.isSharded ? cluster.nodesOf(this.shard) : cluster.nodes) {
      if (other === node || !network.reaches(node.host, other.host)) continue;
      simulator.schedule(network.latency(node.host, other.host), /** @type {any} */ (other), () =>
        other.server.deliver(publication),
      );
    }
  }

  /** @param {ClusterMap} map a newer one */
  adopt(map) {
    this.map = map;
    const { node } = this;
    const primary = map.primaries[this.shard];
    if (primary === node) node.replication.promote();
    else node.replication.follow(primary);
    node.server.dropMovedChannels();
  }
}

export class SimulatedCluster {
  /** Slots that are moving. @type {Map<number, Move>} */
  moves = new Map();
  /** Shards of which a replica is about to be promoted. @type {Set<number>} */
  #elections = new Set();
  /** When the majority last heard each primary. @type {number[]} */
  #seenMs = Array(SHARDS).fill(0);
  /** The newest map. @type {ClusterMap} */
  map;

  /** @param {Fleet} fleet @param {RedisHost[]} nodes the primaries first, then a replica of each */
  constructor(fleet, nodes) {
    this.fleet = fleet;
    this.nodes = nodes;
    const shards = Uint8Array.from({ length: SLOTS }, (_, slot) =>
      Math.floor((slot * SHARDS) / SLOTS),
    );
    this.map = { version: 0, shards, ranges: rangesOf(shards), primaries: nodes.slice(0, SHARDS) };
    /** @type {Map<RedisHost, NodeView>} */
    this.views = new Map();
    for (const [i, node] of nodes.entries()) {
      const view = new NodeView(this, node, i % SHARDS, this.map);
      this.views.set(node, view);
      node.server.cluster = view;
      if (i >= SHARDS) node.replication.follow(nodes[i % SHARDS]);
      node.onStart = () => {
        view.heardSinceMs = Number.NaN;
        view.isUp = false;
      };
    }
    this.#round();
  }

  get env() {
    const { primaries } = this.map;
    return { REDIS_CLUSTER: primaries.map(({ host, port }) => `${host}:${port}`).join(',') };
  }

  get primaries() {
    return this.map.primaries;
  }

  /** Do all nodes agree, and does each serve? */
  get isSettled() {
    const { version } = this.map;
    return [...this.views.values()].every(({ map, isUp }) => isUp && map.version === version);
  }

  /** @param {number} shard @returns {RedisHost[]} */
  nodesOf(shard) {
    return this.nodes.filter((_, i) => i % SHARDS === shard);
  }

  /** @param {number} slot @returns {RedisHost} its primary */
  primaryOf(slot) {
    return this.primaries[this.map.shards[slot]];
  }

  /** @param {RedisHost} primary @returns {RedisHost} its replica */
  replicaOf(primary) {
    const { shard } = this.#viewOf(primary);
    return /** @type {RedisHost} */ (this.nodesOf(shard).find((node) => node !== primary));
  }

  /** @param {RedisHost} node */
  #viewOf(node) {
    return /** @type {NodeView} */ (this.views.get(node));
  }

  /** @param {readonly [number, number]} range */
  #draw([low, high]) {
    return low + this.fleet.random.next() * (high - low);
  }

  /** @param {RedisHost} one @param {RedisHost} other */
  #hears(one, other) {
    return one.isAlive && other.isRunning && this.fleet.network.reaches(one.host, other.host);
  }

  #round() {
    const { simulator } = this.fleet;
    const { nowMs } = simulator;
    for (const node of this.nodes) {
      if (!node.isRunning) continue;
      const view = this.#viewOf(node);
      this.#gossip(node, view);
      const heard = this.primaries.filter(
        (primary) => primary === node || this.#hears(node, primary),
      );
      if (heard.length * 2 > SHARDS) {
        if (Number.isNaN(view.heardSinceMs)) view.heardSinceMs = nowMs;
        view.heardMs = nowMs;
      } else if (nowMs - view.heardMs > NODE_TIMEOUT_MS) {
        view.heardSinceMs = Number.NaN;
      }
      const sinceMs = view.heardSinceMs;
      view.isUp = sinceMs === 0 || nowMs - sinceMs > (view.isPrimary ? WRITABLE_DELAY_MS : 0);
    }
    for (let shard = 0; shard < SHARDS; shard++) this.#guard(shard, nowMs);
    simulator.schedule(ROUND_MS, simulator.self, () => this.#round());
  }

  /** @param {RedisHost} node @param {NodeView} view */
  #gossip(node, view) {
    for (const [other, { map }] of this.views)
      if (map.version > view.map.version && this.#hears(node, other)) view.adopt(map);
  }

  /** Has a shard a primary? @param {number} shard @param {number} nowMs */
  #guard(shard, nowMs) {
    const primary = this.primaries[shard];
    const others = this.primaries.filter((one) => one !== primary && one.isRunning);
    const isHeard = primary.isAlive && others.some((one) => this.#isLinked(one, primary));
    if (isHeard || others.length * 2 <= SHARDS) this.#seenMs[shard] = nowMs;
    if (nowMs - this.#seenMs[shard] <= NODE_TIMEOUT_MS || this.#elections.has(shard)) return;
    this.#elections.add(shard);
    const { simulator } = this.fleet;
    simulator.schedule(this.#draw(ELECTION_MS), simulator.self, () => {
      this.#elections.delete(shard);
      const replica = this.replicaOf(primary);
      const electors = others.filter((one) => this.#hears(one, replica));
      const isStillGone = !primary.isAlive || !others.some((one) => this.#isLinked(one, primary));
      if (isStillGone && replica.isRunning && electors.length * 2 > SHARDS) this.promote(replica);
    });
  }

  /** A frozen node does not count as gone. @param {RedisHost} one @param {RedisHost} other */
  #isLinked(one, other) {
    return this.fleet.network.reaches(one.host, other.host);
  }

  /** @param {RedisHost} replica */
  promote(replica) {
    const { shard } = this.#viewOf(replica);
    const primaries = this.primaries.map((one, i) => (i === shard ? replica : one));
    this.#publish({ ...this.map, primaries }, replica);
  }

  /** @param {ClusterMap} map @param {RedisHost} node that knows it first */
  #publish(map, node) {
    this.map = { ...map, version: this.map.version + 1 };
    this.#viewOf(node).adopt(this.map);
  }

  /**
   * Moves a slot with all its keys, while clients use them.
   * @param {number} slot @param {number} to a shard
   */
  move(slot, to) {
    const from = this.map.shards[slot];
    if (from === to || this.moves.has(slot)) return;
    this.moves.set(slot, { slot, from, to });
    this.#step(slot);
  }

  /** @param {number} slot */
  #step(slot) {
    const { simulator } = this.fleet;
    simulator.schedule(this.#draw(STEP_MS), simulator.self, () => {
      const { from, to } = /** @type {Move} */ (this.moves.get(slot));
      const source = this.primaries[from];
      const target = this.primaries[to];
      const canMove = [source, target].every(
        (node) => node.isRunning && node.isPrimary && this.#viewOf(node).isUp,
      );
      if (!canMove || !this.#hears(source, target) || !this.#hears(target, source))
        return this.#step(slot);
      const names = [];
      for (const name of source.server.keys.names())
        if (slotOf(name) === slot && names.push(name) === STEP_KEYS) break;
      if (names.length > 0) {
        this.#carry(source.server, target.server, names);
        return this.#step(slot);
      }
      this.moves.delete(slot);
      const shards = Uint8Array.from(this.map.shards);
      shards[slot] = to;
      this.#publish({ ...this.map, shards, ranges: rangesOf(shards) }, target);
      this.#viewOf(source).adopt(this.map);
      this.fleet.note(`slot ${slot} has moved from ${source.name} to ${target.name}`);
    });
  }

  /** MIGRATE @param {RedisServer} source @param {RedisServer} target @param {string[]} names */
  #carry(source, target, names) {
    for (const name of names) {
      target.keys.replace(name, source.keys.keys.get(name) ?? null);
      source.keys.replace(name, null);
    }
    target.recordMoved(names);
    source.recordMoved(names);
  }
}

/** @param {Uint8Array} shards of each slot @returns {[number, number][][]} */
function rangesOf(shards) {
  const ranges = Array.from({ length: SHARDS }, () => /** @type {[number, number][]} */ ([]));
  for (const [slot, shard] of shards.entries()) {
    const last = ranges[shard].at(-1);
    if (last !== undefined && last[1] === slot - 1) last[1] = slot;
    else ranges[shard].push([slot, slot]);
  }
  return ranges;
}
