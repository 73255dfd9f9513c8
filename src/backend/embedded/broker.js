// broker.js: the broker of one machine. Its workers meet at the relay in the primary
// (relay-server.js).

import { createHash } from 'node:crypto';

import { hasKey } from '../../protocol/publication.js';
import { DelayedUnsubscribe } from '../delayed-unsubscribe.js';
import { BrokerError, keyMissing } from '../errors.js';
import { KEY_LENGTH } from './relay-wire.js';

/** @implements {Broker} */
export class EmbeddedBroker {
  /**
   * @param {object} parts @param {RelayClient} parts.link opened and closed by its owner
   * @param {number} parts.roomLingerMs @param {HistoryOf} [parts.historyOf] the same as the relay's
   * @param {{probeMisses: number}} [parts.counters]
   */
  constructor({ link, roomLingerMs, historyOf = () => null, counters = { probeMisses: 0 } }) {
    this.link = link;
    this.counters = counters;
    this.historyOf = historyOf;
    this.isClosed = false;
    /** @type {BrokerEvents|null} */
    this.events = null;
    /** Subscribed or about to be, including lingering ones. @type {Map<string, Promise<void>>} */
    this.rooms = new Map();
    this.delayedUnsubscribe = new DelayedUnsubscribe(roomLingerMs, (rooms) =>
      this.#unsubscribe(rooms),
    );
    /** For `close`: the last one settles after all before it. @type {Promise<void>} */
    this.lastPublish = Promise.resolve();
    /** The same for publications with an outcome of their own. @type {Promise<Position|void>} */
    this.lastOutcome = Promise.resolve();
  }

  /** @returns {BrokerState} */
  get state() {
    if (this.isClosed) return 'down';
    return this.link.isOpen && this.link.isAnswering && this.events !== null ? 'up' : 'degraded';
  }

  /** @param {BrokerEvents} events */
  async start(events) {
    this.events = events;
    if (!this.link.isOpen) throw new BrokerError('UNAVAILABLE', 'the relay link is closed');
    this.link.listen({
      onPublication: events.onPublication,
      onAnswering: () => this.#linkOnAnswering(),
    });
    events.onState(this.state);
  }

  #linkOnAnswering() {
    if (this.isClosed) return;
    const { state } = this;
    if (state === 'degraded') this.counters.probeMisses++;
    this.events?.onState(state);
  }

  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    // Failures are reported to the publishers.
    await Promise.allSettled([this.lastPublish, this.lastOutcome]);
    this.delayedUnsubscribe.clear();
    this.#unsubscribe([...this.rooms.keys()]);
    this.link.reportConnections(0);
    this.link.listen({ onPublication: () => {} });
    this.events?.onState('down');
  }

  /** @param {string} room */
  subscribe(room) {
    if (this.isClosed) return Promise.reject(closed());
    this.delayedUnsubscribe.delete(room);
    let confirming = this.rooms.get(room);
    if (confirming === undefined) {
      confirming = this.link.subscribe(room).catch((error) => {
        this.rooms.delete(room);
        throw new BrokerError('UNAVAILABLE', 'the relay did not confirm the subscription', {
          cause: error,
        });
      });
      this.rooms.set(room, confirming);
    }
    return confirming;
  }

  /** @param {string} room */
  unsubscribe(room) {
    if (this.rooms.has(room)) this.delayedUnsubscribe.add(room);
    // The confirmation failed, but the relay may still have subscribed the room.
    else this.link.unsubscribe(room);
  }

  /** @param {string[]} rooms */
  #unsubscribe(rooms) {
    for (const room of rooms) {
      if (this.rooms.delete(room)) this.link.unsubscribe(room);
    }
  }

  /** @param {string} room @param {Buffer} publication @param {PublishOptions} [options] */
  publish(room, publication, options) {
    if (this.isClosed || this.events === null) return Promise.reject(closed());
    const key = options?.idempotencyKey ? keyText(options.idempotencyKey, options.fingerprint) : '';
    const rule = this.historyOf(room);
    const isState = rule?.state !== undefined;
    if (isState && !hasKey(publication)) return Promise.reject(keyMissing());
    const isKept = rule !== null && (isState || !options?.isTransient);
    if (isKept || key !== '') {
      this.lastOutcome = isKept
        ? this.link.append(room, key, publication, isState)
        : this.link.publishOnce(room, key, publication);
      return this.lastOutcome;
    }
    this.lastPublish = this.link.publish(room, publication);
    return this.lastPublish;
  }

  flush() {
    this.link.sendNow();
  }

  /** @param {string} room @param {ReadRequest} from */
  async history(room, from) {
    if (this.isClosed || this.events === null) throw closed();
    try {
      const page = await this.link.history(room, from);
      // The relay does not know the room, because nobody has published there.
      if (page.state === undefined && this.historyOf(room)?.state !== undefined)
        return { ...page, state: { offsets: [], floor: 0, isWhole: true, hasMore: false } };
      return page;
    } catch (error) {
      // A failed read has no effect, so the caller may repeat it.
      throw new BrokerError('UNAVAILABLE', 'the relay did not return the history', {
        cause: error,
      });
    }
  }

  /** @param {number} connections */
  reportConnections(connections) {
    this.link.reportConnections(connections);
  }

  countConnections() {
    return this.link.countConnections();
  }

  countWorkers() {
    return this.link.countWorkers();
  }
}

/** As in a KEY of relay-wire.js. @param {string} key @param {string} [fingerprint] */
export function keyText(key, fingerprint = '') {
  const hash = createHash('sha256').update(key).digest('base64url');
  return hash.slice(0, KEY_LENGTH) + fingerprint;
}

function closed() {
  return new BrokerError('UNAVAILABLE', 'the broker is closed');
}

/** @import { Broker, BrokerEvents, BrokerState, HistoryOf, Position, PublishOptions, ReadRequest } from '../broker.js' */
/** @import { RelayClient } from './relay-client.js' */
