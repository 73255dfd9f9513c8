// memory.js: the broker of one process: what is published is handed to every subscriber in this process.
//
//   const memory = new MemoryBroker();
//   const a = memory.attach();   // one Broker for each that would be a worker
//
// Publications of a tick are delivered together after it, in one order for all: a subscriber that publishes while it
// is being called does not overtake what others have not got yet.

import { BrokerError } from './broker.js';
import { Rooms } from './rooms.js';

/** @typedef {import('./broker.js').Broker} Broker */
/** @typedef {import('./broker.js').BrokerEvents} BrokerEvents */

export class MemoryBroker {
  constructor() {
    /** @type {Rooms<View>} */
    this.rooms = new Rooms();
    this.connections = 0;
    /** @type {{room: string, publication: Buffer}[]} */
    this.waiting = [];
    this.deliver = this.deliver.bind(this);
  }

  /** @returns {Broker} to be started */
  attach() {
    return new View(this);
  }

  /** @param {string} room @param {Buffer} publication */
  accept(room, publication) {
    if (this.waiting.length === 0) setImmediate(this.deliver);
    this.waiting.push({ room, publication });
  }

  deliver() {
    const { waiting } = this;
    this.waiting = [];
    for (const { room, publication } of waiting) {
      const views = this.rooms.of(room);
      if (views === undefined) continue;
      for (const view of views) view.events?.onPublication(room, publication);
    }
  }
}

/** @implements {Broker} */
class View {
  /** @param {MemoryBroker} memory */
  constructor(memory) {
    this.memory = memory;
    /** @type {import('./broker.js').BrokerState} */
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

  /** @param {string} room @param {Buffer} publication */
  async publish(room, publication) {
    this.#check();
    this.memory.accept(room, publication);
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

  /** @param {import('./broker.js').BrokerState} state */
  #become(state) {
    this.state = state;
    this.events?.onState(state);
  }
}
