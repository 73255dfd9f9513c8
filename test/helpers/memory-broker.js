// memory-broker.js: the broker of one process: what is published is handed to every subscriber in
// this process.
//
//   const memory = new MemoryBroker();
//   const a = memory.attach();   // one Broker for each that would be a worker
//
// Publications of a tick are delivered together after it, in one order for all: a subscriber that
// publishes while it is being called does not overtake what others have not got yet.

import { BrokerError } from '../../src/backend/broker.js';
import { Histories, publicationsIn } from '../../src/backend/embedded/histories.js';
import { Subscriptions } from '../../src/backend/embedded/subscriptions.js';

/** @typedef {import('../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('../../src/backend/broker.js').BrokerEvents} BrokerEvents */
/** @typedef {import('../../src/backend/broker.js').Position} Position */

export class MemoryBroker {
  /**
   * @param {object} [parts]
   * @param {import('../../src/backend/broker.js').HistoryOf} [parts.historyOf]
   */
  constructor({ historyOf = () => null } = {}) {
    this.historyOf = historyOf;
    /** @type {Subscriptions<View>} */
    this.rooms = new Subscriptions();
    this.streams = new Histories();
    this.connections = 0;
    /** @type {{room: string, publication: Buffer, offset: number, epoch: string}[]} */
    this.waiting = [];
    this.deliver = this.deliver.bind(this);
  }

  /** @returns {Broker} to be started */
  attach() {
    return new View(this);
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {string} key
   * @returns {Position|void}
   */
  accept(room, publication, key) {
    const rule = this.historyOf(room);
    if (rule === null) {
      this.#announce(room, publication, 0, '');
      return;
    }
    const nowMs = performance.now();
    const first = key === '' ? null : this.streams.repeated(room, key, nowMs);
    if (first !== null) return first;
    const position = this.streams.append(room, rule, publication, nowMs, key);
    this.#announce(room, publication, position.offset, position.epoch);
    return position;
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {number} offset
   * @param {string} epoch
   */
  #announce(room, publication, offset, epoch) {
    if (this.waiting.length === 0) setImmediate(this.deliver);
    this.waiting.push({ room, publication, offset, epoch });
  }

  deliver() {
    const { waiting } = this;
    this.waiting = [];
    this.streams.sweep(performance.now());
    for (const { room, publication, offset, epoch } of waiting) {
      const views = this.rooms.of(room);
      if (views === undefined) continue;
      for (const view of views) view.events?.onPublication(room, publication, offset, epoch);
    }
  }
}

/** @implements {Broker} */
class View {
  /** @param {MemoryBroker} memory */
  constructor(memory) {
    this.memory = memory;
    /** @type {import('../../src/backend/broker.js').BrokerState} */
    this.state = 'degraded';
    /** @type {BrokerEvents|null} */
    this.events = null;
    this.connections = 0;
  }

  /** @param {BrokerEvents} events */
  async start(events) {
    this.events = events;
    this.#become('up');
  }

  async close() {
    if (this.state === 'down') return;
    this.memory.rooms.leave(this);
    this.reportConnections(0);
    this.#become('down');
  }

  /** @param {string} room */
  async subscribe(room) {
    this.#check();
    this.memory.rooms.subscribe(room, this);
  }

  /** @param {string} room */
  unsubscribe(room) {
    this.memory.rooms.unsubscribe(room, this);
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {{idempotencyKey?: string}} [options]
   */
  async publish(room, publication, options) {
    this.#check();
    return this.memory.accept(room, publication, options?.idempotencyKey ?? '');
  }

  /**
   * @param {string} room
   * @param {import('../../src/backend/broker.js').ReadRequest} from
   */
  async history(room, from) {
    this.#check();
    const { epoch, offset, first, runs } = this.memory.streams.page(room, from, performance.now());
    return { epoch, offset, first, publications: runs.flatMap(publicationsIn) };
  }

  /** @param {number} connections */
  reportConnections(connections) {
    this.memory.connections += connections - this.connections;
    this.connections = connections;
  }

  async countConnections() {
    return this.memory.connections;
  }

  #check() {
    if (this.state !== 'up') throw new BrokerError('UNAVAILABLE', `the broker is ${this.state}`);
  }

  /** @param {import('../../src/backend/broker.js').BrokerState} state */
  #become(state) {
    this.state = state;
    this.events?.onState(state);
  }
}
