// network.js: hosts, the links between them, and who listens where.
//
// Each direction between two hosts has a latency and may be cut. Within one host nothing is ever cut.

import { EventEmitter } from 'node:events';
import { SimulatedSocket, socketError } from './sockets.js';

/** One way, in ms: within a host, and between hosts. */
const LOCAL_MS = 0.03;
const REMOTE_MS = /** @type {const} */ ([0.2, 1.2]);
/** After this time bytes are sent again that were lost: a connection delivers nothing meanwhile. */
const RESENT_MS = /** @type {const} */ ([20, 400]);
const FIRST_PORT = 32_768;
const PORTS = 28_000;
/** The end of a connection without what was to be sent. @type {Parcel} */
const RESET = { bytes: [], isEnd: false };

/** @import { Simulator } from './simulator.js' */
/** @import { SimulatedProcess } from './simulated-process.js' */
/** @import { Parcel } from './sockets.js' */

/**
 * One direction between two hosts.
 * @typedef {object} Way
 * @property {boolean} isCut @property {number} extraMs
 */

/** A listener, with the interface of net.Server. */
export class SimulatedServer extends EventEmitter {
  listening = false;
  /** @type {string} */
  place = '';
  port = 0;
  host = '';

  /** @param {Network} network @param {SimulatedProcess} owner @param {{allowHalfOpen?: boolean}} options */
  constructor(network, owner, options) {
    super();
    this.network = network;
    this.owner = owner;
    this.options = options;
    /** @type {Set<SimulatedSocket>} */
    this.connections = new Set();
    this.isClosing = false;
  }

  /** @param {any[]} args */
  listen(...args) {
    const done = args.find((one) => typeof one === 'function');
    const [first] = args;
    const where = typeof first === 'object' ? (first.path ?? first.port) : first;
    const { owner, network } = this;
    if (done) this.once('listening', done);
    if (typeof where === 'string') this.place = `${owner.host}:${where}`;
    else {
      this.port = where === 0 ? network.freePort() : where;
      this.host = owner.host;
      this.place = `${owner.host}:${this.port}`;
    }
    network.listen(this);
    this.listening = true;
    process.nextTick(() => this.emit('listening'));
    return this;
  }

  address() {
    return this.port === 0 ? this.place : { address: this.host, port: this.port, family: 'IPv4' };
  }

  /** @param {() => void} [done] */
  close(done) {
    if (done) this.once('close', done);
    this.listening = false;
    this.network.unlisten(this);
    this.isClosing = true;
    this.emitIfClosed();
    return this;
  }

  emitIfClosed() {
    if (this.isClosing && this.connections.size === 0) process.nextTick(() => this.emit('close'));
  }

  closeAllConnections() {
    for (const socket of this.connections) socket.destroy();
  }

  closeIdleConnections() {}

  ref() {
    return this;
  }

  unref() {
    return this;
  }
}

export class Network {
  /** @type {Map<string, SimulatedServer[]>} */
  #listeners = new Map();
  /** @type {Map<string, Map<string, Way>>} */
  #ways = new Map();
  /** Ends of open connections between hosts. @type {Set<SimulatedSocket>} */
  #remote = new Set();
  #port = FIRST_PORT;
  /**
   * Ports that every host finds on its loopback, and the hosts that they lead to.
   * @type {Map<number, string>}
   */
  gateway = new Map();
  /** Share of parcels that arrive in pieces. */
  pieces = 0;
  /** Share of parcels that are lost once. */
  losses = 0;
  /** Bytes that a connection may have under way and unread, in each direction. */
  windowBytes = 131_072;
  /** The address of a host. @type {(name: string) => string} */
  resolve = (name) => name;

  /** @param {Simulator} simulator */
  constructor(simulator) {
    this.simulator = simulator;
    this.random = simulator.random;
  }

  freePort() {
    this.#port = FIRST_PORT + ((this.#port - FIRST_PORT + 1) % PORTS);
    return this.#port;
  }

  /** @param {SimulatedServer} server */
  listen(server) {
    const list = this.#listeners.get(server.place) ?? [];
    list.push(server);
    this.#listeners.set(server.place, list);
    server.owner.servers.add(server);
  }

  /** @param {SimulatedServer} server */
  unlisten(server) {
    const list = (this.#listeners.get(server.place) ?? []).filter((one) => one !== server);
    if (list.length > 0) this.#listeners.set(server.place, list);
    else this.#listeners.delete(server.place);
    server.owner.servers.delete(server);
  }

  /** @param {string} from @param {string} to @returns {Way} */
  way(from, to) {
    let ways = this.#ways.get(from);
    if (ways === undefined) this.#ways.set(from, (ways = new Map()));
    let way = ways.get(to);
    if (way === undefined) ways.set(to, (way = { isCut: false, extraMs: 0 }));
    return way;
  }

  /** @param {string} from @param {string} to @returns {number} ms, for bytes that leave now */
  latency(from, to) {
    if (from === to) return LOCAL_MS;
    const [low, high] = REMOTE_MS;
    return low + this.random.next() * (high - low) + this.way(from, to).extraMs;
  }

  /** Cuts a direction. @param {string} from @param {string} to */
  cut(from, to) {
    this.way(from, to).isCut = true;
  }

  /** Do packets pass in both directions? @param {string} one @param {string} other */
  reaches(one, other) {
    return !this.#isCut(one, other) && !this.#isCut(other, one);
  }

  /** What was kept arrives. @param {string} from @param {string} to */
  heal(from, to) {
    this.way(from, to).isCut = false;
    for (const socket of this.#remote) {
      if (socket.fromHost !== from || socket.toHost !== to) continue;
      const kept = socket.kept.splice(0);
      // What is in transit was sent later.
      socket.transit.unshift(...kept);
      for (let i = 0; i < kept.length; i++) this.#scheduleArrival(socket);
      if (socket.closed) this.#remote.delete(socket);
    }
    for (const attempt of this.#attempts.splice(0)) attempt();
  }

  /** Connections that are being made over a cut link. @type {(() => void)[]} */
  #attempts = [];

  /**
   * Breaks connections between two hosts: both ends get a reset, after a part of what is on its way.
   * @param {string} one @param {string} other @param {(socket: SimulatedSocket) => boolean} [which]
   */
  breakConnections(one, other, which = () => true) {
    for (const socket of [...this.#remote]) {
      if (socket.fromHost !== one || socket.toHost !== other || !which(socket)) continue;
      const { peer } = socket;
      for (const end of [socket, peer])
        if (end)
          this.simulator.schedule(0, end.owner, () => {
            if (end.peer !== null) this.#arriveInPart(end.peer, end);
            end.failWith();
          });
    }
  }

  /** @param {SimulatedSocket} socket with parcels on their way @param {SimulatedSocket} peer */
  #arriveInPart(socket, peer) {
    const [parcel] = socket.transit;
    if (parcel === undefined || parcel === RESET || peer.destroyed) return;
    if (this.#isCut(socket.fromHost, socket.toHost)) return;
    const all = Buffer.concat(parcel.bytes);
    const bytes = all.subarray(0, this.random.below(all.length + 1));
    if (bytes.length > 0) peer.arrive({ bytes: [bytes], isEnd: false });
  }

  /**
   * Nothing arrives on some connections between two hosts for a while, in one direction.
   * @param {string} from @param {string} to @param {number} ms
   * @param {(socket: SimulatedSocket) => boolean} which
   */
  stall(from, to, ms, which) {
    for (const socket of this.#remote) {
      if (socket.fromHost !== from || socket.toHost !== to || !which(socket)) continue;
      socket.arrivalMs = Math.max(socket.arrivalMs, this.simulator.nowMs + ms);
    }
  }

  /**
   * @param {SimulatedSocket} socket of the process that connects
   * @param {{host?: string, port?: number, path?: string, localAddress?: string}} to
   */
  connect(socket, { host = '127.0.0.1', port = 0, path, localAddress }) {
    const { owner } = socket;
    const isLocal = path !== undefined || isLoopback(host);
    const target = !isLocal
      ? this.resolve(host)
      : path === undefined && !this.#listeners.has(`${owner.host}:${port}`)
        ? (this.gateway.get(port) ?? owner.host)
        : owner.host;
    const place = path === undefined ? `${target}:${port}` : `${target}:${path}`;
    socket.connecting = true;
    socket.fromHost = owner.host;
    socket.toHost = target;
    socket.remoteAddress = target;
    socket.remotePort = port;
    socket.localAddress = localAddress ?? owner.host;
    socket.localPort = this.freePort();
    const attempt = () => {
      if (socket.destroyed || !owner.isAlive) return;
      if (this.#isCut(owner.host, target) || this.#isCut(target, owner.host)) {
        this.#attempts.push(attempt);
        return;
      }
      this.simulator.schedule(this.latency(owner.host, target), this.simulator.self, () =>
        this.#accept(socket, place),
      );
    };
    attempt();
  }

  /** @param {string} from @param {string} to */
  #isCut(from, to) {
    return from !== to && this.way(from, to).isCut;
  }

  /** @param {SimulatedSocket} socket @param {string} place */
  #accept(socket, place) {
    const { simulator, random } = this;
    const { owner } = socket;
    if (socket.destroyed || !owner.isAlive) return;
    const back = this.latency(socket.toHost, socket.fromHost);
    const list = this.#listeners.get(place);
    if (list === undefined || list.length === 0) {
      simulator.schedule(back, owner, () => {
        if (socket.destroyed) return;
        const error = socketError('ECONNREFUSED', 'connect');
        Object.assign(error, { address: socket.toHost, port: socket.remotePort });
        error.message = `connect ECONNREFUSED ${place}`;
        socket.destroy(error);
      });
      return;
    }
    const server = list.length === 1 ? list[0] : random.pick(list);
    const peer = new SimulatedSocket(this, server.owner, server.options);
    peer.fromHost = socket.toHost;
    peer.toHost = socket.fromHost;
    peer.remoteAddress = socket.localAddress;
    peer.remotePort = socket.localPort;
    peer.localAddress = server.host;
    peer.localPort = server.port;
    peer.joinPeer(socket);
    socket.peer = peer;
    for (const end of [socket, peer]) {
      if (end.fromHost !== end.toHost) this.#remote.add(end);
      end.once('close', () => this.forget(end));
    }
    server.connections.add(peer);
    peer.once('close', () => {
      server.connections.delete(peer);
      server.emitIfClosed();
    });
    simulator.schedule(0, server.owner, () => {
      if (!peer.destroyed) server.emit('connection', peer);
    });
    simulator.schedule(back, owner, () => {
      if (socket.destroyed) return;
      socket.joinPeer(peer);
      socket.emit('connect');
      socket.emit('ready');
      socket.goOn();
    });
  }

  /** @param {SimulatedSocket} socket @param {Buffer} bytes @param {boolean} isEnd */
  send(socket, bytes, isEnd) {
    const { simulator } = this;
    // Bytes of one moment travel together.
    if (socket.parcel !== null && socket.parcelMs === simulator.nowMs && !socket.parcel.isEnd) {
      if (bytes.length > 0) socket.parcel.bytes.push(bytes);
      if (isEnd) socket.parcel.isEnd = true;
      return;
    }
    const parcel = { bytes: bytes.length > 0 ? [bytes] : [], isEnd };
    socket.parcel = parcel;
    socket.parcelMs = simulator.nowMs;
    socket.transit.push(parcel);
    this.#scheduleArrival(socket);
  }

  /** One of the parcels in transit, the first one by then, arrives. @param {SimulatedSocket} socket */
  #scheduleArrival(socket) {
    const { peer } = socket;
    if (peer === null) return;
    const { simulator } = this;
    const isLost =
      this.losses > 0 && socket.fromHost !== socket.toHost && this.random.next() < this.losses;
    const resentMs = isLost ? this.random.between(...RESENT_MS) : 0;
    const atMs = simulator.nowMs + this.latency(socket.fromHost, socket.toHost) + resentMs;
    socket.arrivalMs = Math.max(socket.arrivalMs, atMs);
    // For a process that has died, the kernel answers.
    const receiver = peer.destroyed ? simulator.self : peer.owner;
    simulator.schedule(socket.arrivalMs - simulator.nowMs, receiver, () =>
      this.#arrive(socket, peer),
    );
  }

  /** @param {SimulatedSocket} socket @param {SimulatedSocket} peer */
  #arrive(socket, peer) {
    const parcel = /** @type {Parcel} */ (socket.transit.shift());
    if (socket.parcel === parcel) socket.parcel = null;
    if (this.#isCut(socket.fromHost, socket.toHost)) {
      this.#keep(socket, parcel);
      return;
    }
    if (parcel === RESET) return peer.failWith();
    const isSplit =
      this.pieces > 0 &&
      socket.fromHost !== socket.toHost &&
      this.random.next() < this.pieces &&
      this.#split(socket, parcel);
    if (isSplit) this.simulator.schedule(0, peer.owner, () => this.#arrive(socket, peer));
    peer.arrive(parcel);
  }

  /**
   * Cuts a parcel in two. The rest becomes the next one in transit.
   * @param {SimulatedSocket} socket @param {Parcel} parcel @returns {boolean} false: it is too small
   */
  #split(socket, parcel) {
    const all = Buffer.concat(parcel.bytes);
    if (all.length < 2) return false;
    const at = 1 + this.random.below(all.length - 1);
    socket.transit.unshift({ bytes: [all.subarray(at)], isEnd: parcel.isEnd });
    parcel.bytes = [all.subarray(0, at)];
    parcel.isEnd = false;
    return true;
  }

  /** @param {SimulatedSocket} socket that is closed */
  forget(socket) {
    if (socket.kept.length === 0) this.#remote.delete(socket);
  }

  /** @param {SimulatedSocket} socket whose peer gets a reset */
  reset(socket) {
    const { peer } = socket;
    if (peer === null) return;
    const delayMs = this.latency(socket.fromHost, socket.toHost);
    this.simulator.schedule(delayMs, peer.owner, () => {
      if (this.#isCut(socket.fromHost, socket.toHost)) this.#keep(socket, RESET);
      else peer.failWith();
    });
  }

  /**
   * The kernel sends it again until the link is healed, also that of a process that has died.
   * @param {SimulatedSocket} socket @param {Parcel} parcel
   */
  #keep(socket, parcel) {
    socket.kept.push(parcel);
    this.#remote.add(socket);
  }
}

/** @param {string} host */
function isLoopback(host) {
  return host === '127.0.0.1' || host === 'localhost' || host === '::1';
}
