// event-store.js: the rooms, users and messages of a worker that webhooks cover, over Redis.
//
// A second RedisPresence writes rooms and users. It has a session of its own, because servers
// without webhooks, or of earlier versions, must not clean up after it. The messages of a tick to a
// room leave in one call, after Redis has accepted them. A message that cannot be recorded is
// counted as lost in its partition.

import { RareLog } from '../../observability/rare-log.js';
import { BrokerError } from '../errors.js';
import { tagOfUser } from '../webhook-reporter.js';
import { OccupancyStore } from './occupancy-store.js';
import { RedisPresence } from './presence.js';
import { RedisRecording } from './recording.js';
import { RoomIndex } from './room-index.js';

/** Waiting messages, and their characters. Above either, messages are lost. */
const MAX_WAITING = 10_000;
const MAX_WAITING_LENGTH = 16 * 1024 * 1024;
/** The most messages in one call. */
const MAX_MESSAGES = 100;
const NO_MEMBER = Buffer.alloc(0);
const ONLY_USER = '';

/** @typedef {import('./occupancy-store.js').Announce} Announce */
/** @import { EventStore, RecordedMessage } from '../webhook-reporter.js' */

// Loaded with the transitions, on demand.
export { RedisRecording };

/** @implements {EventStore} */
export class RedisEventStore {
  /** @type {RedisPresence} */
  occupancy;

  /**
   * @param {Omit<ConstructorParameters<typeof RedisPresence>[0], 'store'|'counters'> & {recording:
   *   RedisRecording, announce: Announce}} parts
   */
  constructor({ recording, announce, ...parts }) {
    this.recording = recording;
    this.rareLog = new RareLog(parts.log);
    this.describe = parts.connection.describe.bind(parts.connection);
    this.counters = { presenceReaped: 0 };
    this.rooms = new RoomIndex({
      connection: parts.connection,
      keys: recording.keys,
      session: () => this.occupancy.session.name,
    });
    this.store = new OccupancyStore({
      recording,
      announce,
      onEarly: (tag, ms) => this.#recountLater(tag, ms),
    });
    this.occupancy = new RedisPresence({
      ...parts,
      index: this.rooms,
      prefix: `${parts.prefix}webhooks:`,
      store: this.store,
      counters: this.counters,
      // Transitions may have been lost with it, also of rooms whose partition is on another
      // primary.
      onLost: () => recording.loseSome(),
      log: {
        // Presence has its own session, and reports the same death.
        info() {},
        warn: (fields) => parts.log.warn(fields, 'cannot record transitions for webhooks'),
      },
    });
    /** Large rooms that are told their count later. @type {Map<string, NodeJS.Timeout>} */
    this.early = new Map();
    /** Messages by room. @type {Map<string, RecordedMessage[]>} */
    this.waiting = new Map();
    this.waitingCount = 0;
    this.waitingLength = 0;
    /** Messages lost and not yet counted in Redis, by partition. @type {Map<number, number>} */
    this.lost = new Map();
    this.isScheduled = false;
    /** @type {Promise<void>|null} */
    this.flushing = null;
  }

  start() {
    return this.occupancy.start();
  }

  /** @param {boolean} isUp */
  setUp(isUp) {
    this.occupancy.setUp(isUp);
    if (isUp) this.#scheduleReport();
  }

  /** @param {string} session */
  died(session) {
    this.occupancy.died(session);
  }

  async close() {
    for (const timer of this.early.values()) clearTimeout(timer);
    this.flushing ??= this.#flush();
    await this.flushing;
    this.rooms.close();
    await this.occupancy.close();
  }

  /** @param {string} tag @param {number} connections */
  enter(tag, connections) {
    this.rooms.set(tag, connections);
    this.occupancy.join(tag, ONLY_USER, NO_MEMBER);
  }

  /** @param {string} tag */
  exit(tag) {
    this.rooms.delete(tag);
    this.occupancy.leave(tag, ONLY_USER);
  }

  /** @param {string} room @param {number} connections @param {boolean} isTold */
  count(room, connections, isTold) {
    this.rooms.reportCount(room, connections);
    if (isTold) this.occupancy.join(room, ONLY_USER, Buffer.from(String(connections)));
  }

  /** @param {string} room */
  connectionsIn(room) {
    return this.rooms.connectionsIn(room);
  }

  /** @type {EventStore['occupied']} */
  async occupied({ prefix, after, limit }) {
    const found = [];
    for (let from = after; ; ) {
      const wanted = limit - found.length;
      const page = await this.rooms.occupied({ prefix, after: from, limit: wanted });
      const names = new Set(await this.#occupied(page.map(({ room }) => room)));
      for (const one of page) if (names.has(one.room)) found.push(one);
      if (page.length < wanted || found.length === limit) return found;
      from = page[page.length - 1].room;
    }
  }

  /** @type {EventStore['online']} */
  async online(users) {
    const tags = users.map(tagOfUser);
    const found = new Set(await this.#occupied(tags));
    return users.filter((_, i) => found.has(tags[i]));
  }

  /** Asks for the keys that decide transitions. @param {readonly string[]} tags */
  #occupied(tags) {
    return this.recording.occupied(tags).catch((cause) => {
      throw new BrokerError('UNAVAILABLE', 'cannot read the users and rooms in use', { cause });
    });
  }

  /** @param {string} room @param {RecordedMessage} message */
  publish(room, message) {
    const { length } = message.fields;
    if (this.waitingCount >= MAX_WAITING || this.waitingLength + length > MAX_WAITING_LENGTH) {
      this.#lose(room, 1);
      return;
    }
    this.waitingCount++;
    this.waitingLength += length;
    const messages = this.waiting.get(room);
    if (messages === undefined) this.waiting.set(room, [message]);
    else messages.push(message);
    this.#scheduleReport();
  }

  /** @param {string} tag @param {number} ms */
  #recountLater(tag, ms) {
    if (this.early.has(tag)) return;
    const timer = setTimeout(() => {
      this.early.delete(tag);
      this.#enterAgain(tag);
    }, ms);
    this.early.set(tag, timer.unref());
  }

  /**
   * Repeats the room's change until it succeeds, which also moves its outbox.
   * @param {string} tag @returns whether this worker has connections in the room
   */
  #enterAgain(tag) {
    const member = this.occupancy.rooms.get(tag)?.users.get(ONLY_USER)?.member;
    if (member !== undefined) this.occupancy.join(tag, ONLY_USER, member);
    return member !== undefined;
  }

  #scheduleReport() {
    if (this.isScheduled || this.flushing !== null) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      this.flushing ??= this.#flush();
    });
  }

  /** Records waiting messages, including those that arrive meanwhile. */
  async #flush() {
    do {
      const { waiting } = this;
      this.waiting = new Map();
      this.waitingCount = this.waitingLength = 0;
      await Promise.all([...waiting].map(([room, messages]) => this.#record(room, messages)));
      if (this.lost.size > 0) await this.#countLost();
    } while (this.waiting.size > 0);
    this.flushing = null;
  }

  /** @param {string} room @param {RecordedMessage[]} messages */
  async #record(room, messages) {
    const { recording } = this;
    for (let i = 0; i < messages.length; i += MAX_MESSAGES) {
      let waiting = 0;
      try {
        waiting = await recording.recordMessages(room, messages.slice(i, i + MAX_MESSAGES));
        if (waiting > 0) await recording.move(room, waiting);
      } catch (error) {
        // Messages in the outbox are not lost.
        if (waiting > 0 && this.#enterAgain(room)) continue;
        const reason = this.describe(error);
        this.rareLog.warn({ reason }, 'cannot record messages for webhooks');
        this.#lose(room, messages.length - i);
        return;
      }
    }
  }

  /** @param {string} room @param {number} count */
  #lose(room, count) {
    const partition = this.recording.partitionOf(room);
    this.lost.set(partition, (this.lost.get(partition) ?? 0) + count);
  }

  /** The courier of the partition announces a gap. */
  async #countLost() {
    const { lost } = this;
    this.lost = new Map();
    for (const [partition, count] of lost) {
      await this.recording.countLost(partition, count).catch(() => {
        this.lost.set(partition, (this.lost.get(partition) ?? 0) + count);
      });
    }
  }
}
