// broker.js: the broker of one machine. Its workers meet at the relay in the primary
// (relay-server.js).

import { createHash } from 'node:crypto';
import { hasKey } from '../../protocol/publication.js';
import { DelayedUnsubscribe } from '../delayed-unsubscribe.js';
import { BrokerError, keyMissing } from '../errors.js';
import { RelayPublisher } from './relay-publisher.js';
import { KEY_LENGTH, OP, readPage } from './relay-wire.js';

/** Delay before a changed number of connections is sent. */
const REPORT_DELAY_MS = 10;

/** @implements {Broker} */
export class EmbeddedBroker {
  /** @type {BrokerEvents|null} */
  events = null;
  isClosed = false;
  /** Subscribed or about to be, including lingering ones. @type {Map<string, Promise<void>>} */
  rooms = new Map();
  /** Wanted, and not confirmed: subscribed when the relay answers again. @type {Set<string>} */
  missing = new Set();
  /** The last publish settles after all before it. @type {Promise<Position|void>} */
  last = Promise.resolve();
  /** This worker's connections, until they are sent. @type {number|null} */
  unreported = null;
  /** @type {NodeJS.Timeout|undefined} */
  reportTimer = undefined;
  /** The answer to all counts requested in this tick. @type {Promise<number>|null} */
  counting = null;

  /**
   * @param {object} parts @param {RelayLink} parts.link opened and closed by its owner
   * @param {number} parts.roomLingerMs @param {HistoryOf} [parts.historyOf] the same as the relay's
   * @param {{probeMisses: number}} [parts.counters]
   */
  constructor({ link, roomLingerMs, historyOf = () => null, counters = NOT_COUNTED }) {
    this.link = link;
    this.publisher = new RelayPublisher(link);
    this.counters = counters;
    this.historyOf = historyOf;
    this.delayedUnsubscribe = new DelayedUnsubscribe(roomLingerMs, (rooms) =>
      this.#unsubscribe(rooms),
    );
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
    else for (const room of this.missing) this.subscribe(room).catch(() => {}); // next time
    this.events?.onState(state);
  }

  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    // Failures are reported to the publishers.
    await Promise.allSettled([this.last]);
    this.delayedUnsubscribe.forgetRooms();
    this.#unsubscribe([...this.rooms.keys()]);
    this.unreported = 0;
    this.#report();
    this.link.listen({ onPublication: () => {} });
    this.events?.onState('down');
  }

  /** @param {string} room */
  subscribe(room) {
    if (this.isClosed) return Promise.reject(closed());
    this.delayedUnsubscribe.delete(room);
    let confirming = this.rooms.get(room);
    if (confirming === undefined) {
      const asked = this.#subscribe(room);
      this.rooms.set(room, asked);
      // Before the caller learns of it, who may unsubscribe the room.
      asked.catch(() => this.#failed(room, asked));
      confirming = asked;
    }
    return confirming;
  }

  /** @param {string} room */
  async #subscribe(room) {
    this.missing.delete(room);
    try {
      await this.link.ask({ type: 'subscribe', request: 0, room });
    } catch (cause) {
      const text = 'the relay did not confirm the subscription';
      throw new BrokerError('UNAVAILABLE', text, { cause });
    }
  }

  /** @param {string} room @param {Promise<void>} asked */
  #failed(room, asked) {
    if (this.rooms.get(room) !== asked) return; // unsubscribed, and perhaps subscribed again
    this.rooms.delete(room);
    // The relay may still subscribe the room, and the caller has unsubscribed it already.
    if (this.delayedUnsubscribe.delete(room)) this.link.tell({ type: 'unsubscribe', room });
    else this.missing.add(room);
  }

  /** @param {string} room */
  unsubscribe(room) {
    this.missing.delete(room);
    if (this.rooms.has(room)) this.delayedUnsubscribe.add(room);
    // The confirmation failed, but the relay may still have subscribed the room.
    else this.link.tell({ type: 'unsubscribe', room });
  }

  /** @param {string[]} rooms */
  #unsubscribe(rooms) {
    for (const room of rooms)
      if (this.rooms.delete(room)) this.link.tell({ type: 'unsubscribe', room });
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
      const op = isKept ? OP.APPEND : OP.PUBLISH;
      const expect = isKept ? options?.expect : undefined;
      const isAlone = isState || key !== '' || expect !== undefined;
      this.last = this.publisher.decide(op, room, key, publication, isAlone, expect);
    } else this.last = this.publisher.publish(room, publication);
    return this.last;
  }

  flush() {
    this.link.sendNow();
  }

  /** @param {string} room @param {ReadRequest} from */
  async history(room, from) {
    if (this.isClosed || this.events === null) throw closed();
    try {
      const { ok, body } = await this.link.ask({ type: 'read', request: 0, room, ...from });
      if (!ok) throw new BrokerError('UNAVAILABLE', 'too many reads are waiting for the relay');
      const page = readPage(body);
      // The relay does not know the room, because nobody has published there.
      if (page.state === undefined && this.historyOf(room)?.state !== undefined)
        return { ...page, state: { offsets: [], floor: 0, isWhole: true, hasMore: false } };
      return page;
    } catch (cause) {
      // A failed read has no effect, so the caller may repeat it.
      throw new BrokerError('UNAVAILABLE', 'the relay did not return the history', { cause });
    }
  }

  /** @param {number} connections of this worker */
  reportConnections(connections) {
    this.unreported = connections;
    // Handshakes in many ticks share a report, so that the primary does not wake up for each.
    this.reportTimer ??= setTimeout(() => this.#report(), REPORT_DELAY_MS).unref();
  }

  #report() {
    clearTimeout(this.reportTimer);
    this.reportTimer = undefined;
    if (this.unreported === null) return;
    this.link.tell({ type: 'connections', connections: this.unreported });
    this.unreported = null;
  }

  countConnections() {
    if (this.counting === null) {
      this.#report();
      this.counting = this.#count('count');
      setImmediate(() => {
        this.counting = null;
      });
    }
    return this.counting;
  }

  /** Workers with a subscription. */
  countWorkers() {
    return this.#count('workers');
  }

  /** @param {'count'|'workers'} type */
  async #count(type) {
    return (await this.link.ask({ type, request: 0 })).value;
  }
}

const NOT_COUNTED = { probeMisses: 0 };

/** As in a KEY of relay-wire.js. @param {string} key @param {string} [fingerprint] */
export function keyText(key, fingerprint = '') {
  const hash = createHash('sha256').update(key).digest('base64url');
  return hash.slice(0, KEY_LENGTH) + fingerprint;
}

function closed() {
  return new BrokerError('UNAVAILABLE', 'the broker is closed');
}

/** @import { Broker, BrokerEvents, BrokerState, HistoryOf, Position, PublishOptions, ReadRequest } from '../broker.js' */
/** @import { RelayLink } from './relay-link.js' */
