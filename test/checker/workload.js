// workload.js: clients in rooms, publishers at a rate, and at the end markers that must reach
// everybody.

import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';
import { Appender } from './appender.js';
import { Bustle } from './bustle.js';
import { HISTORY_PREFIX, RecoveringClient } from './client.js';
import { SETTLE_US } from './indexed-run.js';
import { FACTS, KEPT_PRESENCE_ROOM, Population } from './population.js';
import { Publisher } from './publisher.js';

/**
 * Half of the publishers send one message after another, the others many at a time: at most so
 * many.
 */
const WINDOW = 32;
const TICK_MS = 10;
/** A server that is asked to publish less often is not known to be away. */
const RATE_AT_REST = 5;
const APPEND_MS = 400;
/** In a busy run this share of messages with a key is followed by the end of the connection. */
const BROKEN_SENDS = 0.05;
const BROKEN_MS = /** @type {const} */ ([0, 6]);
/** This many clients start at a time, so that the start is no storm. */
const STARTED_AT_ONCE = 25;
const START_PAUSE_MS = 20;
const JOINED_MS = 30_000;
const MARKER_PAUSE_MS = 250;
/** A client gives a closing handshake 1 s. */
const STOP_MS = 5000;

/**
 * @typedef {object} Load
 * @property {number} clients
 * @property {number} rooms if rooms have history, every other one does
 * @property {boolean} hasHistory
 * @property {number} roomsPerClient
 * @property {number} publishers
 * @property {number} rate messages a second, all together
 * @property {number} [keyed] so many of the publishers have idempotency keys; they publish to rooms
 *   with history
 * @property {number} [stubborn] so many of the others, and of those of rooms with state, have
 *   idempotency keys and repeat what was refused
 * @property {number} [appenders] producers that expect positions, two in each room with history; every
 *   other pair has idempotency keys
 * @property {readonly string[]} [recorded] rooms whose messages webhooks report
 * @property {number} [bytes] of padding in each, at most; in rooms with state this many
 * @property {number} [last] the most messages that a join asks for
 * @property {boolean} [isNarrow] connections hold few bytes
 * @property {number} [kept] messages that a room with history keeps
 * @property {boolean} [isBusy] clients come and go all the time (bustle.js)
 * @property {boolean} [isMixed] with a population: streams, libraries, users (population.js)
 * @property {readonly string[]} [groups] of the population; without it: all
 * @property {boolean} [hasCommuters] in it
 * @property {boolean} [hasAudiences] with messages for an audience in it
 * @property {boolean} [hasBucket] for large ones of these
 * @property {readonly string[]} [hooks] that a back end answers (audience-hooks.js)
 * @property {boolean} [hasPusher] with clients of Pusher's protocol in it
 * @property {boolean} [hasCentrifugo] with clients of Centrifugo's protocol in it
 */

export class Workload {
  /**
   * @param {Load} load
   * @param {readonly string[]} urls
   * @param {import('./record.js').Recorder} recorder
   * @param {import('./random.js').Random} random
   * @param {readonly string[]} [wires] ways to the servers that break, for a population
   * @param {string} [secret] of the HTTP API
   * @param {import('../helpers/pusher.js').Credentials|null} [app] of Pusher clients
   */
  constructor(load, urls, recorder, random, wires = urls, secret = '', app = null) {
    this.load = load;
    this.urls = urls;
    this.recorder = recorder;
    this.random = random;
    const rooms = Array.from({ length: load.rooms }, (_, i) =>
      load.hasHistory && i % 2 === 0 ? `${HISTORY_PREFIX}${i}` : `p.${i}`,
    );
    const history = rooms.filter((room) => room.startsWith(HISTORY_PREFIX));
    // Only users are in it.
    const kept = load.isBusy && load.isMixed && load.hasHistory ? [KEPT_PRESENCE_ROOM] : [];
    recorder.write({
      type: 'run',
      history: [...history, ...kept],
      plain: rooms.filter((room) => !room.startsWith(HISTORY_PREFIX)),
      seed: random.seed,
      ...(load.kept && { kept: load.kept }),
      ...(load.isNarrow && { narrow: true }),
      ...(load.recorded && { recorded: [...load.recorded] }),
      ...(load.isMixed && FACTS),
      // Busy users meet no cap: it counts connections that no server has seen end.
      ...((load.isBusy || load.groups?.includes('crowd') === false) && { capped: {} }),
    });
    this.clients = Array.from(
      { length: load.clients },
      (_, id) =>
        new RecoveringClient({
          id,
          urls,
          rooms: random.shuffled(rooms).slice(0, load.roomsPerClient),
          recorder,
          random,
        }),
    );
    this.publishers = Array.from(
      { length: load.publishers },
      (_, i) =>
        new Publisher({
          ...{ id: `p${i}`, urls, window: i % 2 === 0 ? 1 : WINDOW, recorder },
          isKeyed: i < (load.keyed ?? 0),
          ...(i >= load.publishers - (load.stubborn ?? 0) && { window: WINDOW, isStubborn: true }),
        }),
    );
    this.history = history;
    this.appenders = Array.from(
      { length: history.length === 0 ? 0 : (load.appenders ?? 0) },
      (_, i) =>
        new Appender({
          ...{ id: `a${i}`, urls, recorder, isKeyed: i % 4 > 1 },
          room: history[Math.floor(i / 2) % history.length],
        }),
    );
    this.marker = new Publisher({ id: 'm0', urls, window: load.rooms + 1, recorder });
    this.rooms = [...rooms, ...kept];
    const firstId = load.clients;
    this.population = load.isMixed
      ? new Population({
          ...{ firstId, urls, wires, secret, rooms, history, app, recorder, random },
          kept,
          hasCommuters: load.hasCommuters,
          hasAudiences: load.hasAudiences,
          hasBucket: load.hasBucket,
          hooks: load.hooks,
          bytes: load.bytes,
          last: load.last,
          stubborn: load.stubborn,
          groups: load.groups,
          hasCentrifugo: load.hasCentrifugo,
        })
      : null;
    this.bustle = load.isBusy ? new Bustle(this, random) : null;
    this.isResting = false;
    /** @type {Publisher[]} */
    this.flooders = [];
    /** Messages that no publisher was ready for. */
    this.heldBack = 0;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** @type {NodeJS.Timeout|undefined} */
    this.appending = undefined;
  }

  /** Those whom every message of their rooms has to reach. */
  get listeners() {
    return [...this.clients, ...(this.population?.listeners ?? [])];
  }

  /** Those that can read slowly. */
  get readers() {
    const { streams = [], visitors = [], centrifugos = [], states } = this.population ?? {};
    return [...this.clients, ...streams, ...visitors, ...centrifugos, ...(states?.clients ?? [])];
  }

  get everybody() {
    return [...this.clients, ...(this.population?.everybody ?? [])];
  }

  /** Rooms that somebody is in, or wants to be in. */
  get joinedRooms() {
    return [...new Set(this.everybody.flatMap(({ places }) => [...places.keys()]))];
  }

  /** Messages that were certainly not accepted, so far. */
  get refused() {
    return this.publishers.reduce((sum, { refused }) => sum + refused, 0);
  }

  /** Messages that were accepted, so far. */
  get accepted() {
    return this.publishers.reduce((sum, { accepted }) => sum + accepted, 0);
  }

  /** @returns {Promise<void>} when every client is in its rooms */
  async start() {
    for (const publisher of [...this.publishers, ...this.appenders, this.marker]) publisher.start();
    for (const [i, client] of this.clients.entries()) {
      client.start();
      if (i % STARTED_AT_ONCE === STARTED_AT_ONCE - 1) await pause(START_PAUSE_MS);
    }
    this.population?.start();
    await this.joined();
    this.population?.begin();
    this.bustle?.begin();
  }

  /**
   * @param {number} [timeoutMs]
   * @returns {Promise<unknown>} when every client is in its rooms
   */
  joined(timeoutMs = JOINED_MS) {
    const isEverybody = () => this.listeners.every(({ isJoined }) => isJoined);
    return until(isEverybody, timeoutMs, 'everyone in their rooms').catch((cause) => {
      const missing = this.listeners.filter(({ isJoined }) => !isJoined);
      const said = missing.flatMap(({ oddities }) => oddities).slice(0, 3);
      throw new Error(
        `${missing.length} clients are not in their rooms, like ${missing[0]?.id}; what they were told: ${said}`,
        { cause },
      );
    });
  }

  /** Publishes at the load's rate from now on. */
  publish() {
    let last = performance.now();
    let due = 0;
    let next = 0;
    this.timer = setInterval(() => {
      const now = performance.now();
      // Messages that are due during a stall of this process are skipped, because sending them late
      // would be a flood.
      const { rate } = this.load;
      const perSecond = this.isResting ? Math.min(rate, RATE_AT_REST) : rate;
      due += (Math.min(now - last, 10 * TICK_MS) * perSecond) / 1000;
      last = now;
      for (; due >= 1; due--) {
        const publisher = this.#ready(next++);
        if (publisher === undefined) this.heldBack++;
        else this.#publishBy(publisher);
      }
    }, TICK_MS);
    if (this.appenders.length === 0) return;
    // Each other one is a rival at the same position.
    this.appending = setInterval(() => {
      for (const appender of this.appenders) if (appender.isReady) appender.append();
    }, APPEND_MS);
  }

  /** In a busy run: clients come and go, or do so no more. @param {boolean} rests */
  rest(rests) {
    if (this.bustle === null || rests === this.isResting) return;
    this.isResting = rests;
    if (rests) {
      this.bustle.rest();
      this.population?.rest();
    } else {
      this.population?.goOn();
      this.bustle.begin();
    }
  }

  /**
   * Messages one after another.
   * @param {Publisher} publisher
   * @param {string} room
   * @param {number} messages
   * @returns {Promise<void>} when all are accepted
   */
  async send(publisher, room, messages) {
    for (let i = 0; i < messages; i++) {
      await until(() => publisher.isReady, JOINED_MS, 'a publisher');
      const outcome = await new Promise((settled) => publisher.publish(room, { settled }));
      if (outcome !== 'ok') throw new Error(`a message was not accepted: ${outcome}`);
    }
  }

  /**
   * Many long messages at once. By a publisher that connects now: one that is there may hang on the
   * worker that is frozen.
   * @param {string} room @param {number} messages @param {number} bytes
   */
  async flood(room, messages, bytes) {
    const { urls, recorder, flooders } = this;
    const publisher = new Publisher({ id: `f${flooders.length}`, urls, window: WINDOW, recorder });
    flooders.push(publisher);
    publisher.start();
    await until(() => publisher.isReady, JOINED_MS, 'a publisher');
    let left = messages;
    const more = () => {
      while (left > 0 && publisher.isReady) {
        left--;
        publisher.publish(room, { bytes, settled: more });
      }
    };
    more();
  }

  /** Ends it. */
  silence() {
    clearInterval(this.timer);
    clearInterval(this.appending);
  }

  /**
   * Sends a marker to every room and waits until everybody has them, or until they are late.
   * @param {number} [withinMs]
   * @returns {Promise<void>} rejects if no marker could be sent to a room: nothing shows its end
   */
  async mark(withinMs = SETTLE_US / 1000) {
    const deadline = performance.now() + withinMs;
    /** @type {Map<string, string>} the marker of each room */
    const markers = new Map();
    await Promise.all(
      this.rooms.map(async (room) => {
        while (!(await this.#markOne(room, markers)) && performance.now() < deadline)
          await pause(MARKER_PAUSE_MS);
      }),
    );
    const unmarked = this.rooms.filter((room) => !markers.has(room));
    if (unmarked.length > 0)
      throw new Error(`no server took a marker to ${unmarked.length} rooms, like ${unmarked[0]}`);
    const isEverywhere = () =>
      this.listeners.every(({ places, markers: got }) =>
        [...places.keys()].every((room) => !markers.has(room) || got.has(markers.get(room) ?? '')),
      );
    while (!isEverywhere() && performance.now() < deadline) await pause(TICK_MS);
    this.recorder.write({ type: 'end' });
  }

  /**
   * Closes everybody.
   * @param {number} [withinMs]
   * @returns {Promise<void>} rejects if some do not close: after an exception in a listener for
   *   messages, a WebSocket of ws emits no `close`
   */
  async stop(withinMs = STOP_MS) {
    this.silence();
    this.population?.silence();
    const { states, audiences } = this.population ?? {};
    const { publishers, appenders, flooders, marker } = this;
    const own = [...publishers, ...appenders, ...flooders, marker];
    const senders = [...own, ...(states?.publishers ?? []), ...(audiences?.senders ?? [])];
    const open = new Set([...this.everybody, ...senders]);
    for (const each of open) each.stop().then(() => open.delete(each));
    await until(() => open.size === 0, withinMs).catch((cause) => {
      const ids = [...open].map(({ id }) => id);
      throw new Error(`these clients did not close: ${ids.slice(0, 5)}`, { cause });
    });
  }

  /**
   * @param {string} room
   * @param {Map<string, string>} markers
   * @returns {Promise<boolean>} was it accepted?
   */
  #markOne(room, markers) {
    return new Promise((resolve) => {
      const value = this.marker.publish(room, {
        isMarker: true,
        settled: (outcome) => resolve(outcome === 'ok'),
      });
      if (value === '') resolve(false);
      else markers.set(room, value);
    });
  }

  /** @param {Publisher} publisher */
  #publishBy(publisher) {
    // A Redis that loses its data loses the keys, too; only history tells such a repeat from a
    // message that came twice.
    const all = publisher.isKeyed ? this.history : this.rooms;
    // At rest no later message shows, or mends, what a room with history has lost.
    const rooms = this.isResting ? all.filter((room) => !room.startsWith(HISTORY_PREFIX)) : all;
    if (rooms.length === 0) return;
    const { random, load } = this;
    // Of two rooms of a slow reader, a small message of one may still wait for it when a large one of
    // the other may not.
    const bytes = load.bytes && random.below(load.bytes + 1);
    publisher.publish(random.pick(rooms), { bytes });
    const isBroken = publisher.isKeyed && this.bustle !== null && !this.isResting;
    if (isBroken && this.random.next() < BROKEN_SENDS)
      setTimeout(() => publisher.leave(), this.random.between(...BROKEN_MS));
  }

  /** @param {number} from @returns {Publisher|undefined} */
  #ready(from) {
    for (let i = 0; i < this.publishers.length; i++) {
      const publisher = this.publishers[(from + i) % this.publishers.length];
      if (publisher.isReady) return publisher;
    }
    return undefined;
  }
}
