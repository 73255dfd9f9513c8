// broker.js: a broker for workers in one process: a store hands each publication to every subscriber.
//
// Publications of a tick are delivered together after it, in one order for all. So a subscriber that
// publishes while it is being called does not overtake publications that others have not got yet.

import { HEAD_BYTES, writePublication } from '../../../src/backend/batch.js';
import { entriesIn, Histories, publicationsIn } from '../../../src/backend/embedded/histories.js';
import { Holdings } from '../../../src/backend/embedded/holdings.js';
import { IdempotencyKeys, isConflict } from '../../../src/backend/embedded/idempotency-keys.js';
import {
  BrokerError,
  conflict,
  full,
  keyMissing,
  notAsExpected,
} from '../../../src/backend/errors.js';
import { isAsExpected } from '../../../src/protocol/position.js';
import { hasKey } from '../../../src/protocol/publication.js';

/** @typedef {import('../../../src/config/room-patterns.js').StateRule} StateRule */
/** @typedef {import('../../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('../../../src/backend/broker.js').BrokerEvents} BrokerEvents */
/** @typedef {import('../../../src/backend/broker.js').Position} Position */

/** State that the brokers of one server share. */
export class MemoryStore {
  /** @param {import('../../../src/backend/broker.js').HistoryOf} historyOf */
  constructor(historyOf) {
    this.historyOf = historyOf;
    /** @type {Holdings<MemoryBroker, true>} */
    this.rooms = new Holdings();
    this.streams = new Histories();
    this.keys = new IdempotencyKeys();
    /** @type {Map<MemoryBroker, number>} */
    this.connections = new Map();
    /** Brokers that are up. @type {Set<MemoryBroker>} */
    this.brokers = new Set();
    /** @type {{room: string, publication: Buffer, offset: number, epoch: string}[]} */
    this.waiting = [];
    this.deliver = this.deliver.bind(this);
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {import('../../../src/backend/broker.js').PublishOptions} options
   * @returns {Position|void}
   */
  accept(room, publication, options) {
    const { idempotencyKey: key = '', fingerprint = '', isTransient = false, expect } = options;
    const found = this.historyOf(room);
    if (found?.state !== undefined && !hasKey(publication)) throw keyMissing();
    const rule = isTransient && found?.state === undefined ? null : found;
    const nowMs = performance.now();
    const first = key === '' ? null : this.keys.find(room, key, nowMs);
    if (first !== null) {
      if (isConflict(first, fingerprint)) throw conflict();
      return first.position ?? undefined;
    }
    if (rule !== null && expect !== undefined) {
      const { epoch, offset } = this.streams.page(room, { after: 0, limit: 0 }, nowMs);
      if (!isAsExpected({ epoch, offset }, expect)) throw notAsExpected({ epoch, offset });
    }
    const run = Buffer.alloc(HEAD_BYTES + publication.length);
    writePublication(run, 0, publication);
    const position =
      rule === null
        ? null
        : rule.state === undefined
          ? this.streams.append(room, rule, run, 1, nowMs)
          : this.streams.set(room, /** @type {StateRule} */ (rule), publication, nowMs);
    if (rule?.state !== undefined && position === null) throw full();
    this.announce(room, publication, position?.offset ?? 0, position?.epoch ?? '');
    if (key !== '') this.keys.set(room, key, { position, fingerprint }, nowMs);
    return position ?? undefined;
  }

  /**
   * @param {string} room @param {Buffer} publication @param {number} offset @param {string} epoch
   */
  announce(room, publication, offset, epoch) {
    if (this.waiting.length === 0) setImmediate(this.deliver);
    this.waiting.push({ room, publication, offset, epoch });
  }

  deliver() {
    const { waiting } = this;
    this.waiting = [];
    this.streams.sweep(performance.now());
    for (const { room, publication, offset, epoch } of waiting) {
      for (const { events } of this.rooms.holdersOf(room)?.keys() ?? [])
        events?.onPublication(room, publication, offset, epoch);
    }
  }
}

/** @implements {Broker} */
export class MemoryBroker {
  /** @param {MemoryStore} store */
  constructor(store) {
    this.store = store;
    /** @type {import('../../../src/backend/broker.js').BrokerState} */
    this.state = 'degraded';
    /** @type {BrokerEvents|null} */
    this.events = null;
  }

  /** @param {BrokerEvents} events */
  async start(events) {
    this.events = events;
    this.store.brokers.add(this);
    this.#become('up');
  }

  async close() {
    if (this.state === 'down') return;
    for (const room of this.store.rooms.namesOf(this)) this.store.rooms.drop(this, room);
    this.store.connections.delete(this);
    this.store.brokers.delete(this);
    this.#become('down');
  }

  /** @param {string} room */
  async subscribe(room) {
    this.#check();
    this.store.rooms.hold(this, room, true);
  }

  /** @param {string} room */
  unsubscribe(room) {
    this.store.rooms.drop(this, room);
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {import('../../../src/backend/broker.js').PublishOptions} [options]
   */
  async publish(room, publication, options) {
    this.#check();
    return this.store.accept(room, publication, options ?? {});
  }

  /** @param {string} room @param {import('../../../src/backend/broker.js').ReadRequest} from */
  async history(room, from) {
    this.#check();
    const { runs, state, ...page } = this.store.streams.page(room, from, performance.now());
    if (this.store.historyOf(room)?.state === undefined)
      return { ...page, publications: runs.flatMap(publicationsIn) };
    const none = { floor: 0, isWhole: true, hasMore: false };
    const { publications, offsets } = entriesIn(Buffer.concat(runs));
    return { ...page, publications, state: { ...(state ?? none), offsets } };
  }

  /** @param {number} connections */
  reportConnections(connections) {
    if (this.state === 'down') return;
    this.store.connections.set(this, connections);
  }

  async countConnections() {
    let total = 0;
    for (const connections of this.store.connections.values()) total += connections;
    return total;
  }

  async countWorkers() {
    this.#check();
    return this.store.brokers.size;
  }

  #check() {
    if (this.state !== 'up') throw new BrokerError('UNAVAILABLE', `the broker is ${this.state}`);
  }

  /** @param {import('../../../src/backend/broker.js').BrokerState} state */
  #become(state) {
    this.state = state;
    this.events?.onState(state);
  }
}
