// server-places.js: the places of this server's workers, in the primary: connections by client
// address, user or app.
//
// A place is a lease of its worker: it ends with the worker's link. Every second each worker
// reports how many it has, and this count is corrected. fleet-places.js limits the places of all
// servers together. The names of the workers' sessions in Redis are kept here, too: if a worker
// dies, the others learn its name.

import { FleetPlaces, HEARTBEAT_MS, TICK_MS } from './fleet-places.js';
import { MalformedMessage } from './relay-wire.js';
import { Tally } from './tally.js';

/** Sessions that wait for a worker. */
const MAX_LOST = 64;
const NO_PLACES = Object.freeze({ held: 0, asked: 0 });

/** @import { Volunteer } from './fleet-places.js' */
/** @import { Places, ToRelay } from './relay-wire.js' */
/** @import { WorkerLink } from './worker-link.js' */

/** One worker's part of the places. @implements {Volunteer} */
export class PlaceHolder {
  held = new Tally();
  /** The worker's session in a shared store, if it has users there. */
  name = '';

  /** @param {ServerPlaces} places @param {WorkerLink} link */
  constructor(places, link) {
    this.places = places;
    this.link = link;
  }

  get addresses() {
    return this.held.byKey;
  }

  /** @param {boolean} isCarrier */
  carry(isCarrier) {
    this.link.out().control({ type: 'carry', isCarrier });
  }

  /** @param {Buffer} report */
  report(report) {
    this.link.out().control({ type: 'report', report: report.toString('base64') });
  }

  /** @param {string} key @param {number} connections */
  keep(key, connections) {
    this.link.out().control({ type: 'keep', key, connections });
  }

  /** @param {ToRelay} message @returns {boolean} false: it is not about places */
  control(message) {
    const isForPlaces = this.#control(message);
    if (isForPlaces) this.places.stepLater();
    return isForPlaces;
  }

  /** @param {ToRelay} message @returns {boolean} */
  #control(message) {
    const { places } = this;
    switch (message.type) {
      case 'acquire': {
        const { admitted, connections } = places.acquire(this, message);
        this.link.out().reply(message.request, admitted, connections);
        break;
      }
      case 'release':
        if (this.held.countOf(message.key) === 0)
          throw new MalformedMessage('released an address that was not acquired');
        places.giveBack(this, message.key);
        break;
      case 'held':
        this.#compare(message);
        this.link.out().reply(message.request, true, 0);
        break;
      case 'places':
        places.reconcile(this, new Map(message.places));
        break;
      case 'volunteer':
        places.fleet.volunteer(this, message.rules);
        break;
      case 'resign':
        places.fleet.resign(this);
        break;
      case 'report':
        places.fleet.receive(Buffer.from(message.report, 'base64'));
        break;
      case 'name':
        this.name = message.name;
        for (const name of places.takeLost()) this.tellLost(name);
        break;
      default:
        return false;
    }
    return true;
  }

  /** The worker reports its number of places. @param {Places} own */
  #compare({ held, asked }) {
    const { total } = this.held;
    if (total < held || total > held + asked) this.link.out().control({ type: 'tell-places' });
  }

  /** Another worker has died. @param {string} name of its session */
  tellLost(name) {
    this.link.out().control({ type: 'gone', name });
  }

  /** The link has ended. */
  close() {
    this.places.leave(this);
  }
}

export class ServerPlaces {
  /** Over all workers. */
  counts = new Tally();
  /** @type {Set<PlaceHolder>} */
  holders = new Set();
  fleet = new FleetPlaces(this.counts.byKey);
  /** Corrected places: counted but not held, or held but not counted. */
  reconciled = 0;
  /** The clock of `fleet`, and the time of its last step. */
  #fleetMs = 0;
  #steppedMs = 0;
  #isAlone = false;
  /** Sessions of workers that died when no other worker was left. @type {string[]} */
  #lost = [];
  /** @type {NodeJS.Timeout|undefined} */
  #stepper = undefined;
  /** Is the next step in TICK_MS at most? */
  #isSoon = false;
  /** From the last step of `fleet` to the next one, as planned. */
  #waitMs = 0;

  /** @param {import('pino').Logger} log */
  constructor(log) {
    this.log = log;
  }

  close() {
    clearTimeout(this.#stepper);
  }

  /** Call it when `fleet` may have something to do. Its next step comes in time for it. */
  stepLater() {
    const { fleet } = this;
    if (this.#stepper !== undefined && (this.#isSoon || fleet.isAtRest)) return;
    if (fleet.isOff) return;
    if (this.#stepper === undefined) this.#steppedMs = performance.now();
    this.#stepSoon();
  }

  #stepSoon() {
    clearTimeout(this.#stepper);
    this.#isSoon = !this.fleet.isAtRest;
    const waitMs = this.#isSoon ? TICK_MS : HEARTBEAT_MS;
    // A rest that ends early counts, too.
    const restedMs = Math.min(performance.now() - this.#steppedMs, HEARTBEAT_MS);
    this.#waitMs = restedMs + waitMs;
    this.#stepper = setTimeout(() => this.#stepFleet(), waitMs).unref();
  }

  /** A stall of this process counts little: reports that arrived meanwhile are still unread. */
  #stepFleet() {
    const nowMs = performance.now();
    this.#fleetMs += Math.min(nowMs - this.#steppedMs, this.#waitMs + TICK_MS);
    this.#steppedMs = nowMs;
    this.fleet.step(this.#fleetMs);
    this.#stepper = undefined;
    if (!this.fleet.isOff) this.#stepSoon();
    const { isAlone, servers } = this.fleet;
    if (isAlone === this.#isAlone) return;
    this.#isAlone = isAlone;
    if (isAlone)
      this.log.warn('fleet limits: no reports from Redis, applying limits to this server only');
    else this.log.info({ servers }, 'fleet limits: applied to all servers together');
  }

  /** @param {WorkerLink} link */
  join(link) {
    const holder = new PlaceHolder(this, link);
    this.holders.add(holder);
    return holder;
  }

  /**
   * @param {PlaceHolder} holder
   * @param {{key: string, cap: number, force: boolean}} place `force`: counted even above the cap
   * @returns `connections` of the key now
   */
  acquire(holder, { key, cap, force }) {
    const connections = this.counts.countOf(key);
    if ((connections >= cap && !force) || this.fleet.refuses(key, connections, force, cap))
      return { admitted: false, connections };
    this.take(holder, key);
    return { admitted: true, connections: connections + 1 };
  }

  /** @param {PlaceHolder} holder @param {string} key */
  take(holder, key) {
    holder.held.add(key, 1);
    this.fleet.changed(key, this.counts.add(key, 1));
  }

  /** @param {PlaceHolder} holder @param {string} key that it holds */
  giveBack(holder, key) {
    holder.held.add(key, -1);
    this.fleet.changed(key, this.counts.add(key, -1));
  }

  /**
   * Adopts a worker's own count of its places. Requested ones may be counted already or not.
   * @param {PlaceHolder} holder
   * @param {ReadonlyMap<string, Places>} told by the worker
   */
  reconcile(holder, told) {
    const own = holder.held;
    let places = 0;
    for (const key of [...own.byKey.keys()]) {
      const { held, asked } = told.get(key) ?? NO_PLACES;
      for (; own.countOf(key) > held + asked; places++) this.giveBack(holder, key);
    }
    for (const [key, { held }] of told)
      for (; own.countOf(key) < held; places++) this.take(holder, key);
    if (places === 0) return;
    this.reconciled += places;
    this.log.warn(
      { workerPid: holder.link.pid, places },
      'relay: corrected the connection counts of client addresses',
    );
  }

  /** Releases what a worker held. @param {PlaceHolder} holder */
  leave(holder) {
    this.holders.delete(holder);
    this.fleet.leave(holder);
    for (const [key, held] of holder.held.byKey)
      this.fleet.changed(key, this.counts.add(key, -held));
    const { name } = holder;
    if (name === '') return;
    // A live worker removes the users of the dead one from Redis.
    if (this.holders.size === 0 && this.#lost.length < MAX_LOST) this.#lost.push(name);
    for (const other of this.holders) other.tellLost(name);
  }

  takeLost() {
    return this.#lost.splice(0);
  }
}
