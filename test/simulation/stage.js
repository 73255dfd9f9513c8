// stage.js: what the acts and checks of a script share: the clients that it has, answers, and the
// simulated servers by name.

import { slotOf } from '../../src/backend/redis/slots.js';

/** @import { WebhookReceiver } from '../checker/webhook-receiver.js' */
/** @import { HookBackend } from './hook-backend.js' */
/** @import { RedisHost } from './redis-host.js' */
/** @import { SimulatedProcess } from './simulated-process.js' */
/** @import { World } from './world.js' */

export class Stage {
  /** Clients by name. @type {Map<string, any>} */
  clients = new Map();
  /** Those of whom the workload does not know. @type {any[]} */
  others = [];
  /** Answers of the HTTP API by name. @type {Map<string, any>} */
  answers = new Map();
  /** Checks that failed. @type {string[]} */
  unmet = [];
  #nextId = 0;

  /**
   * @param {World} world @param {any} plan @param {any} recorder @param {any} random
   * @param {{receiver: WebhookReceiver|null, backend: HookBackend|null}} servers of the application
   */
  constructor(world, plan, recorder, random, servers) {
    this.world = world;
    this.servers = servers;
    this.plan = plan;
    this.recorder = recorder;
    this.random = random;
    this.note = (/** @type {string} */ line) => world.fleet.note(line);
    this.urls = world.servers.map(({ url }) => url);
  }

  get workload() {
    return this.world.workload;
  }

  get population() {
    return this.workload.population;
  }

  get receiver() {
    const { receiver } = this.servers;
    if (receiver === null) throw new Error('the plan has no webhooks');
    return receiver;
  }

  /** A client goes to the server of its number. @param {number} server @returns {number} an id */
  idFor(server) {
    const { length } = this.urls;
    while (this.#nextId % length !== server) this.#nextId++;
    return this.#nextId++;
  }

  /** @param {string} who @returns {any} */
  client(who) {
    const client = this.clients.get(who);
    if (client === undefined) throw new Error(`the script has no client ${who} yet`);
    return client;
  }

  /** @param {string} name of a machine or server of Redis @returns {string} its address */
  host(name) {
    const host = this.world.fleet.names.get(name);
    if (host === undefined) throw new Error(`there is no host ${name}`);
    return host;
  }

  /**
   * @param {string} [name] `of c.0`: the server of a cluster that has this room
   * @returns {RedisHost}
   */
  redis(name = 'redis') {
    const { nodes, cluster } = this.world;
    const room = name.startsWith('of ') ? name.slice('of '.length) : null;
    const node =
      room === null ? nodes.find((one) => one.name === name) : cluster?.primaryOf(slotOf(room));
    if (node === undefined) throw new Error(`there is no server of Redis ${name}`);
    return node;
  }

  /**
   * @param {string} name `server-0`: all of that machine; `server-0/primary`, `server-0/worker`,
   *   `server-0/courier` @returns {SimulatedProcess[]}
   */
  processes(name) {
    const [machine, kind] = name.split('/');
    const server = this.server(machine);
    if (kind === 'primary') return server.primary === null ? [] : [server.primary];
    if (kind === 'worker') return server.workers;
    if (kind === 'courier') return server.courier === null ? [] : [server.courier];
    return [...server.machine.processes];
  }

  /** @param {string} name */
  server(name) {
    const server = this.world.servers.find(({ machine }) => machine.name === name);
    if (server === undefined) throw new Error(`there is no server ${name}`);
    return server;
  }
}
