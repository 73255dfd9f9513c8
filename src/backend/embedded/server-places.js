// server-places.js: the places of this server's workers, in the primary: connections by client
// address, user or app.
//
// A place is a lease of its worker: it ends with the worker's link. Every second each worker
// reports how many it has, and this count is corrected. fleet-places.js limits the places of all
// servers together.

import { FleetPlaces, TICK_MS } from './fleet-places.js';
import { MalformedMessage } from './relay-wire.js';
import { Tally } from './tally.js';

const NO_PLACES = Object.freeze({ held: 0, asked: 0 });

/** @import { Volunteer } from './fleet-places.js' */
/** @import { FromRelay, Places } from './relay-wire.js' */

/** The places of one worker. @implements {Volunteer} */
export class PlaceHolder {
  held = new Tally();

  /** @param {(message: FromRelay) => void} send to the worker */
  constructor(send) {
    this.send = send;
  }

  get addresses() {
    return this.held.byKey;
  }

  /** @param {boolean} isCarrier */
  carry(isCarrier) {
    this.send({ type: 'carry', isCarrier });
  }

  /** @param {Buffer} report */
  report(report) {
    this.send({ type: 'report', report: report.toString('base64') });
  }

  /** @param {string} key @param {number} connections */
  keep(key, connections) {
    this.send({ type: 'keep', key, connections });
  }
}

export class ServerPlaces {
  /** Over all workers. */
  counts = new Tally();
  fleet = new FleetPlaces(this.counts.byKey);
  /** Corrected places: counted but not held, or held but not counted. */
  reconciled = 0;
  /** The clock of `fleet`, and the time of its last step. */
  #fleetMs = 0;
  #steppedMs = 0;
  #isAlone = false;
  /** @type {NodeJS.Timeout|undefined} */
  #stepper = undefined;

  /** @param {import('pino').Logger} log */
  constructor(log) {
    this.log = log;
  }

  start() {
    this.#steppedMs = performance.now();
    this.#stepper = setInterval(() => this.#stepFleet(), TICK_MS).unref();
  }

  close() {
    clearInterval(this.#stepper);
  }

  /** A stall of this process counts little: reports that arrived meanwhile are still unread. */
  #stepFleet() {
    const nowMs = performance.now();
    this.#fleetMs += Math.min(nowMs - this.#steppedMs, 2 * TICK_MS);
    this.#steppedMs = nowMs;
    this.fleet.step(this.#fleetMs);
    const { isAlone, servers } = this.fleet;
    if (isAlone === this.#isAlone) return;
    this.#isAlone = isAlone;
    if (isAlone)
      this.log.warn('fleet limits: no reports from Redis, applying limits to this server only');
    else this.log.info({ servers }, 'fleet limits: applied to all servers together');
  }

  /**
   * @param {PlaceHolder} holder @param {string} key @param {number} cap
   * @param {boolean} force counts the place even above the cap
   * @returns `connections` of the key now
   */
  acquire(holder, key, cap, force) {
    const connections = this.counts.of(key);
    if ((connections >= cap && !force) || this.fleet.refuses(key, connections, force, cap))
      return { admitted: false, connections };
    this.take(holder, key);
    return { admitted: true, connections: connections + 1 };
  }

  /** @param {PlaceHolder} holder @param {string} key */
  release(holder, key) {
    if (holder.held.of(key) === 0)
      throw new MalformedMessage('released an address that was not acquired');
    this.giveBack(holder, key);
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

  /** A worker reports its number of places. @param {PlaceHolder} holder @param {Places} own */
  compare(holder, { held, asked }) {
    const { total } = holder.held;
    if (total < held || total > held + asked) holder.send({ type: 'tell-places' });
  }

  /**
   * Adopts a worker's own count of its places. Requested ones may be counted already or not.
   * @param {PlaceHolder} holder
   * @param {ReadonlyMap<string, Places>} told by the worker
   * @param {number} workerPid
   */
  reconcile(holder, told, workerPid) {
    const own = holder.held;
    let places = 0;
    for (const key of [...own.byKey.keys()]) {
      const { held, asked } = told.get(key) ?? NO_PLACES;
      for (; own.of(key) > held + asked; places++) this.giveBack(holder, key);
    }
    for (const [key, { held }] of told) for (; own.of(key) < held; places++) this.take(holder, key);
    if (places === 0) return;
    this.reconciled += places;
    this.log.warn(
      { workerPid, places },
      'relay: corrected the connection counts of client addresses',
    );
  }

  /** The link of a worker has ended. @param {PlaceHolder} holder */
  leave(holder) {
    this.fleet.leave(holder);
    for (const [key, held] of holder.held.byKey)
      this.fleet.changed(key, this.counts.add(key, -held));
  }
}
