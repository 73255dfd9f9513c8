// replication.js: a replica of a simulated redis-server, over the simulated network.
//
//   replica --connects--> primary        primary --beginning, then batches--> replica
//
// A batch is one byte on the wire, and travels beside it as an object. So latency, cuts and frozen
// ends do to replication what they do to any connection: what has not arrived when a replica is
// promoted is lost.

import { SimulatedServer } from './network.js';
import { cloneKey } from './redis/keyspace.js';
import { SimulatedSocket } from './sockets.js';

const PORT = 16_379;
/** Between attempts to reach the primary. */
const RETRY_MS = 1000;
/** A replica says so often how far it is. */
const REPORT_MS = 1000;
/** A replica whose history has ended waits for a snapshot: from, to. */
const SNAPSHOT_MS = /** @type {const} */ ([50, 1500]);
const TICKET = Buffer.from('.');

/** @import { RedisHost } from './redis-host.js' */
/** @import { Batch, Beginning, Change } from './redis/server.js' */

/** What travels beside the bytes of each connection. @type {WeakMap<SimulatedSocket, Link>} */
const links = new WeakMap();

/** A replica's connection to its primary. */
class Link {
  /** Sent, and not yet arrived. @type {(Batch|Beginning)[]} */
  cargo = [];

  /** @param {string} replicationId @param {number} offset */
  constructor(replicationId, offset) {
    this.replicationId = replicationId;
    this.offset = offset;
  }
}

/** Both ends of replication at a host. */
export class Replication {
  /** Whom it follows. @type {RedisHost|null} */
  source = null;
  /** @type {SimulatedSocket|null} */
  #socket = null;
  /** When each replica last said that it is there, by its connection. @type {Map<SimulatedSocket, number>} */
  #reports = new Map();
  /** With fewer replicas it refuses writes. */
  leastReplicas = 0;
  maxLagMs = 0;
  #watches = 0;
  /** The replica has got a beginning over its present connection. */
  isLinked = false;

  /** @param {RedisHost} host */
  constructor(host) {
    this.host = host;
  }

  /** The host has started. */
  open() {
    const { host } = this;
    const acceptor = new SimulatedServer(host.fleet.network, /** @type {any} */ (host), {});
    acceptor.on('connection', (/** @type {SimulatedSocket} */ socket) => this.#serve(socket));
    acceptor.listen(PORT);
    this.#reports.clear();
    host.server.replicas.clear();
    this.#socket = null;
    if (this.source !== null) this.#connect();
    this.#watch(++this.#watches);
  }

  /** REPLICAOF @param {RedisHost} source */
  follow(source) {
    const { host } = this;
    if (this.source === source) return;
    host.fleet.note(`${host.name} follows ${source.name}`);
    this.source = source;
    host.server.follow(source.server);
    this.#leave();
    for (const socket of [...this.#reports.keys()]) socket.destroy();
    if (host.isAlive) this.#connect();
  }

  /** Has it the data of its primary, or is it one? */
  get isInStep() {
    return this.source === null || (this.isLinked && this.#socket?.destroyed === false);
  }

  /** REPLICAOF NO ONE */
  promote() {
    const { host } = this;
    host.fleet.note(`${host.name} is promoted`);
    this.source = null;
    this.#leave();
    host.server.promote();
  }

  #leave() {
    this.reconnect();
    this.#socket = null;
  }

  /** Its connection breaks. */
  reconnect() {
    this.#socket?.destroy();
  }

  #connect() {
    const { host, source } = this;
    if (source === null || !host.isAlive) return;
    this.isLinked = false;
    const { network } = host.fleet;
    const { replicationId, offset } = host.server;
    const link = new Link(replicationId, offset);
    const socket = new SimulatedSocket(network, /** @type {any} */ (host));
    this.#socket = socket;
    links.set(socket, link);
    socket.on('data', (bytes) => {
      for (const cargo of link.cargo.splice(0, bytes.length)) this.#take(cargo);
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      if (this.#socket !== socket) return;
      host.simulator.schedule(RETRY_MS, /** @type {any} */ (host), () => {
        if (this.#socket === socket) this.#connect();
      });
    });
    socket.once('connect', () => this.#report(socket));
    network.connect(socket, { host: source.host, port: PORT });
  }

  /** @param {Batch|Beginning} cargo */
  #take(cargo) {
    const { server } = this.host;
    if ('snapshot' in cargo) {
      server.synchronise(cargo);
      this.isLinked = true;
    } else server.applyBatch(cargo);
  }

  /** @param {SimulatedSocket} socket */
  #report(socket) {
    if (socket.destroyed) return;
    socket.write(TICKET);
    this.host.simulator.schedule(REPORT_MS, /** @type {any} */ (this.host), () =>
      this.#report(socket),
    );
  }

  /** A replica has connected. @param {SimulatedSocket} socket */
  #serve(socket) {
    const { host } = this;
    const { server, simulator } = host;
    const link = links.get(/** @type {SimulatedSocket} */ (socket.peer));
    socket.on('error', () => {});
    if (server.primary !== null || link === undefined) {
      socket.destroy();
      return;
    }
    this.#reports.set(socket, simulator.nowMs);
    socket.on('data', () => this.#reports.set(socket, simulator.nowMs));
    const beginning = server.beginningFor(link.replicationId, link.offset);
    const [low, high] = SNAPSHOT_MS;
    const delayMs = beginning.isContinued ? 0 : low + simulator.random.next() * (high - low);
    const outlet = new Outlet(host, (batch) => {
      link.cargo.push(batch);
      socket.write(TICKET);
    });
    simulator.schedule(delayMs, /** @type {any} */ (host), () => {
      if (socket.destroyed) return;
      const { isContinued } = beginning;
      // The snapshot is of now.
      const now = server.beginningFor(link.replicationId, link.offset);
      link.cargo.push({ ...now, isContinued, publications: isContinued ? now.publications : [] });
      socket.write(TICKET);
      server.replicas.add(outlet.add);
    });
    socket.on('close', () => {
      this.#reports.delete(socket);
      server.replicas.delete(outlet.add);
    });
  }

  /** @param {number} count @param {number} maxLagMs */
  requireReplicas(count, maxLagMs) {
    this.leastReplicas = count;
    this.maxLagMs = maxLagMs;
    this.#watch(++this.#watches);
  }

  /** Counts the replicas that are not behind. @param {number} number of this watch */
  #watch(number) {
    const { host } = this;
    if (this.leastReplicas === 0 || number !== this.#watches) return;
    const { simulator, server } = host;
    const since = simulator.nowMs - this.maxLagMs;
    const good = [...this.#reports.values()].filter((atMs) => atMs >= since).length;
    server.lacksReplicas = good < this.leastReplicas;
    simulator.schedule(REPORT_MS, /** @type {any} */ (host), () => this.#watch(number));
  }
}

/** Joins the changes of one event, which a replica gets together or not at all. */
class Outlet {
  /** @type {Set<string>} */
  #names = new Set();
  /** @type {Batch['publications']} */
  #publications = [];
  #isEmptied = false;
  #isPlanned = false;

  /** @param {RedisHost} host @param {(batch: Batch) => void} send */
  constructor(host, send) {
    this.host = host;
    this.send = send;
    /** @type {(change: Change) => void} */
    this.add = ({ names, publication, isEmptied }) => {
      if (isEmptied) {
        this.#names.clear();
        this.#isEmptied = true;
      }
      for (const name of names) this.#names.add(name);
      if (publication !== null) this.#publications.push(publication);
      if (this.#isPlanned) return;
      this.#isPlanned = true;
      queueMicrotask(() => this.#flush());
    };
  }

  #flush() {
    const { server, isAlive } = this.host;
    const { keys } = server.keys;
    this.#isPlanned = false;
    /** @type {Batch} */
    const batch = {
      offset: server.offset,
      keys: [...this.#names].map((name) => {
        const key = keys.get(name);
        return [name, key === undefined ? null : cloneKey(key)];
      }),
      publications: this.#publications,
      isEmptied: this.#isEmptied,
    };
    this.#names.clear();
    this.#publications = [];
    this.#isEmptied = false;
    if (isAlive) this.send(batch);
  }
}
