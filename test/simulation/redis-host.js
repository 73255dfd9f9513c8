// redis-host.js: a machine with the model of redis-server.

import { SimulatedServer } from './network.js';
import { RedisServer } from './redis/server.js';
import { Session } from './redis/session.js';
import { Replication } from './replication.js';

export const REDIS_PORT = 6379;

/** @import { Fleet } from './fleet.js' */
/** @import { SentinelView } from './redis/server.js' */
/** @import { SimulatedSocket } from './sockets.js' */
/** @import { Event } from './simulator.js' */

export class RedisHost {
  isAlive = true;
  isFrozen = false;
  /** @type {Event[]} */
  parked = [];
  /** @type {Set<SimulatedSocket>} */
  sockets = new Set();
  /** @type {Set<SimulatedServer>} */
  servers = new Set();
  /** Snapshots, the oldest first. @type {ReturnType<RedisServer['keys']['snapshot']>[]} */
  seconds = [];
  /** Called after each start. @type {() => void} */
  onStart = () => {};
  /** Answers that are held back, per host that waits for them. @type {Map<string, (() => void)[]>} */
  #held = new Map();

  /**
   * @param {Fleet} fleet @param {string} name @param {string} host
   * @param {{port?: number, sentinel?: SentinelView|null}} [options]
   */
  constructor(fleet, name, host, { port = REDIS_PORT, sentinel = null } = {}) {
    this.fleet = fleet;
    this.name = name;
    this.host = host;
    this.port = port;
    this.simulator = fleet.simulator;
    const { simulator } = fleet;
    const world = {
      now: () => Math.floor(simulator.unixMs),
      random: () => simulator.random.next(),
    };
    this.server = new RedisServer(world, { address: { host, port }, sentinel });
    this.replication = new Replication(this);
    this.#listen();
  }

  get url() {
    return `redis://${this.host}:${this.port}`;
  }

  /** Does it answer, as far as it is concerned? */
  get isRunning() {
    return this.isAlive && !this.isFrozen;
  }

  get isPrimary() {
    return this.server.primary === null;
  }

  /** @param {unknown} error */
  fault(error) {
    throw error;
  }

  freeze() {
    this.isFrozen = true;
    this.fleet.note(`${this.name} is frozen`);
  }

  thaw() {
    this.fleet.note(`${this.name} goes on`);
    this.simulator.thaw(this);
  }

  /** The process ends at once. */
  stop() {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.parked.length = 0;
    for (const server of [...this.servers]) this.fleet.network.unlisten(server);
    for (const session of [...this.server.sessions]) session.end();
    for (const socket of [...this.sockets]) socket.abandon();
    this.fleet.note(`${this.name} stops`);
  }

  /**
   * @param {'kept'|'nothing'|'snapshot'|'last-second'} what data it has: all, none, those of the
   *   latest snapshot, all but those of the last second
   */
  start(what) {
    this.stop();
    const kept = this.server.keys.snapshot();
    const { seconds } = this;
    const data = {
      kept,
      nothing: null,
      snapshot: seconds[0] ?? null,
      'last-second': seconds.at(-1) ?? null,
    }[what];
    this.server.restart(data, what === 'snapshot');
    this.isAlive = true;
    this.isFrozen = false;
    this.fleet.note(`${this.name} starts with ${what}`);
    this.#listen();
    this.onStart();
  }

  /** Answers to commands of a host wait; what it has subscribed to passes. @param {string} host */
  holdAnswers(host) {
    this.#held.set(host, []);
  }

  /** @param {string} host */
  releaseAnswers(host) {
    const held = this.#held.get(host) ?? [];
    this.#held.delete(host);
    for (const send of held) send();
  }

  /** Writes snapshots. @param {number} everyMs @param {number} count are kept */
  keepSnapshots(everyMs, count) {
    const save = () => {
      if (this.isAlive) {
        this.seconds.push(this.server.keys.snapshot());
        if (this.seconds.length > count) this.seconds.shift();
      }
      this.simulator.schedule(everyMs, this.simulator.self, save);
    };
    save();
  }

  #listen() {
    const acceptor = new SimulatedServer(this.fleet.network, /** @type {any} */ (this), {});
    acceptor.on('connection', (/** @type {SimulatedSocket} */ socket) => {
      const session = new Session(this.server, {
        write: (text) => {
          const send = () => void (socket.writable && socket.write(text, 'latin1'));
          const held = session.isSubscriber ? undefined : this.#held.get(socket.toHost);
          if (held === undefined) send();
          else held.push(send);
        },
        close: () => void socket.end(),
      });
      socket.on('data', (bytes) => session.receive(bytes.latin1Slice()));
      socket.on('error', () => socket.destroy());
      socket.on('close', () => session.end());
    });
    acceptor.listen(this.port);
    this.replication.open();
  }
}
