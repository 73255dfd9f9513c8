// state-people.js: the clients in the rooms with state of a random run: members of each kind, and
// publishers that set and remove keys. In calm the map of each member is compared with the backend's.

import { pause } from '../harness/run.js';
import { Publisher } from './publisher.js';
import { StateClient, StateLibrary, stateRecorder } from './state-clients.js';
import { ORDERS, sizeOf } from './states.js';

/** Some of them send their members at most one update of a key in 100 ms. */
const ROOMS = Object.freeze(['k.0', 'k.paced.0', 'k.paced.1']);
const ORDER_SHARE = 0.2;
/** Their numbers come again, so one that was never removed is removed then. */
const ORDER_NUMBERS = 64;
/** More keys than a room may have, so that some are refused. */
const WANTED_KEYS = 44;
const REMOVED_SHARE = 0.2;
const NEW_PAGES = 0.15;
const CLIENTS = 24;
const LIBRARIES = 9;
const PUBLISHERS = 4;
const WINDOW = 8;
const TICK_MS = 10;
const UPDATES_PER_TICK = 1;
/** Average number of ticks until a library joins a room again. */
const AGAIN_TICKS = 300;
const READS = 20;
const READ_PAUSE_MS = 250;
const API_MS = 5000;
const PAGE = 15;

/** FANFARE_STATE of the servers. */
export const STATE_RULES = `k.paced.*=${sizeOf('k.paced')}/300s every 100ms,${ORDERS}=${sizeOf(ORDERS)}/300s,k.*=${sizeOf('k')}/300s`;

/** @typedef {Pick<StateClient|StateLibrary, 'id'|'hearsAll'|'shown'>} Shown */

export class StatePeople {
  /**
   * @param {object} parts
   * @param {number} parts.firstId of the clients
   * @param {readonly string[]} parts.urls of the servers
   * @param {readonly string[]} parts.wires ways to them that break
   * @param {string} parts.secret of the HTTP API
   * @param {import('./record.js').Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   * @param {number} [parts.bytes] of padding in each value
   * @param {number} [parts.stubborn] so many publishers repeat what was refused
   */
  constructor({ firstId, urls, wires, secret, recorder, random, bytes = 0, stubborn = 0 }) {
    this.urls = urls;
    this.secret = secret;
    this.recorder = recorder;
    this.random = random;
    this.bytes = bytes;
    let id = firstId;
    const some = () => random.shuffled(ROOMS).slice(0, 2);
    this.clients = Array.from(
      { length: CLIENTS },
      (_, i) =>
        new StateClient({
          ...{ id: id++, urls, recorder, random, newPages: NEW_PAGES },
          rooms: i % 3 === 0 ? [...some(), ORDERS] : some(),
        }),
    );
    this.libraries = Array.from(
      { length: LIBRARIES },
      (_, i) =>
        new StateLibrary({
          ...{ id: id++, url: wires[i % wires.length], isStream: i % 3 === 2 },
          ...{ rooms: i % 2 === 0 ? [...some(), ORDERS] : some(), recorder },
        }),
    );
    this.publishers = Array.from(
      { length: PUBLISHERS },
      (_, i) =>
        new Publisher({
          id: `k${i}`,
          urls,
          window: i % 2 === 0 ? 1 : WINDOW,
          recorder: /** @type {import('./record.js').Recorder} */ (stateRecorder(recorder)),
          isStubborn: i < stubborn,
        }),
    );
    /** Others whose maps are compared, by room. @type {Map<string, readonly Shown[]>} */
    this.watched = new Map();
    /** Numbers of the oldest order that is open, and of the next one. */
    this.oldestOrder = 0;
    this.nextOrder = 0;
    /** Do publishers publish? */
    this.isStirring = true;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Comparisons in calm, and those whose backend did not answer or had changes meanwhile. */
    this.compared = 0;
    this.skipped = 0;
    this.id = 'state';
    /** Rooms that no server could read in calm. @type {string[]} */
    this.oddities = [];
  }

  /** Nobody takes part. */
  dismiss() {
    this.clients = [];
    this.libraries = [];
    this.publishers = [];
  }

  /**
   * Compares the maps of others, too.
   * @param {string} room @param {readonly Shown[]} members
   */
  watch(room, members) {
    this.watched.set(room, members);
  }

  get members() {
    return [...this.clients, ...this.libraries];
  }

  /** They begin to publish. */
  begin() {
    if (this.publishers.length === 0) return;
    this.timer = setInterval(() => this.#tick(), TICK_MS);
  }

  silence() {
    clearInterval(this.timer);
  }

  /** In calm: records what each member shows, and what the backend has. */
  async compare() {
    const own = this.members.length === 0 ? [] : [...ROOMS, ORDERS];
    const all = own.map((room) => /** @type {const} */ ([room, this.members]));
    for (const [room, members] of [...all, ...this.watched]) {
      const before = await this.#read(room);
      const shown = members.map((member) => ({ member, entries: member.shown(room) }));
      const after = await this.#read(room);
      if (!before || !after) this.oddities.push(`${room} cannot be read`);
      if (!before || !after || before.epoch !== after.epoch || before.offset !== after.offset) {
        this.skipped++;
        continue;
      }
      this.compared++;
      this.recorder.write({ type: 'state', what: 'truth', room, ...after });
      for (const { member, entries } of shown)
        if (entries !== null)
          this.recorder.write({
            ...{ type: 'state', what: 'map', client: member.id, room, entries },
            hearsAll: member.hearsAll,
          });
    }
  }

  #tick() {
    if (!this.isStirring) return;
    const { random, publishers, libraries, bytes } = this;
    for (let i = 0; i < UPDATES_PER_TICK; i++) {
      const publisher = random.pick(publishers);
      if (random.next() < ORDER_SHARE) {
        this.#order(publisher);
        continue;
      }
      const key = `key-${random.below(WANTED_KEYS)}`;
      const removes = random.next() < REMOVED_SHARE;
      publisher.publish(random.pick(ROOMS), { key, removes, bytes });
    }
    if (random.next() * AGAIN_TICKS < 1)
      random.pick(libraries).again(random.pick([...ROOMS, ORDERS]));
  }

  /**
   * A new order, a change of one that is open, or the removal of the oldest. One that was removed may
   * be opened again.
   * @param {Publisher} publisher
   */
  #order(publisher) {
    const { random, bytes } = this;
    if (!publisher.isReady) return;
    const open = this.nextOrder - this.oldestOrder;
    const kind = random.below(8);
    const removes = open >= sizeOf(ORDERS) || (kind < 3 && open > 1);
    let number = this.oldestOrder;
    if (removes) this.oldestOrder++;
    else if (kind < 5 || open === 0) number = this.nextOrder++;
    else if (kind === 5 && number > 0) number = --this.oldestOrder;
    else number += random.below(open);
    publisher.publish(ORDERS, { key: `order-${number % ORDER_NUMBERS}`, removes, bytes });
  }

  /**
   * The state of a room by the HTTP API, page by page.
   * @param {string} room
   * @returns {Promise<{epoch: string, offset: number, entries: [string, string, number][]}|null>}
   */
  async #read(room) {
    for (let i = 0; i < READS; i++) {
      const url = this.urls[i % this.urls.length].replace(/^ws/, 'http');
      const state = await this.#pages(`${url}api/rooms/${room}/state?limit=${PAGE}`).catch(
        () => null,
      );
      if (state !== null) return state;
      await pause(READ_PAUSE_MS);
    }
    return null;
  }

  /** @param {string} url */
  async #pages(url) {
    /** @type {[string, string, number][]} */
    const entries = [];
    for (let after = 0; ; ) {
      const response = await fetch(`${url}&after=${after}`, {
        headers: { Authorization: `Bearer ${this.secret}` },
        signal: AbortSignal.timeout(API_MS),
      });
      if (response.status !== 200) throw new Error(`HTTP ${response.status}`);
      const page = /** @type {any} */ (await response.json());
      for (const { key, payload, offset } of page.entries)
        entries.push([key, typeof payload === 'string' ? payload : payload.value, offset]);
      if (!page.more) return { epoch: page.epoch, offset: page.offset, entries };
      after = page.entries.at(-1).offset;
    }
  }
}
