// redis-host.js: a machine with the model of redis-server.

import { RedisServer } from './redis/server.js';
import { Session } from './redis/session.js';
import { SimulatedServer } from './network.js';

export const REDIS_PORT = 6379;

/** @import { Fleet } from './fleet.js' */
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

  /** @param {Fleet} fleet @param {string} name @param {string} host */
  constructor(fleet, name, host) {
    this.fleet = fleet;
    this.name = name;
    this.host = host;
    this.simulator = fleet.simulator;
    const { simulator } = fleet;
    const world = {
      now: () => Math.floor(simulator.unixMs),
      random: () => simulator.random.next(),
    };
    this.server = new RedisServer(world, { address: { host, port: REDIS_PORT } });
    this.#listen();
  }

  get url() {
    return `redis://${this.host}:${REDIS_PORT}`;
  }

  enter() {}

  /** @param {unknown} error */
  fault(error) {
    throw error;
  }

  #listen() {
    const acceptor = new SimulatedServer(this.fleet.network, /** @type {any} */ (this), {});
    acceptor.on('connection', (/** @type {SimulatedSocket} */ socket) => {
      const session = new Session(this.server, {
        write: (text) => {
          if (socket.writable) socket.write(text, 'latin1');
        },
        close: () => void socket.end(),
      });
      socket.on('data', (bytes) => session.receive(bytes.latin1Slice()));
      socket.on('error', () => socket.destroy());
      socket.on('close', () => session.end());
    });
    acceptor.listen(REDIS_PORT);
  }
}
