// simulator.js: virtual time. All that happens in a simulated fleet is an event of this queue.
//
// An event belongs to a process, and runs with all its promises and ticks before the next one
// begins. Time stands still while an event runs, and then jumps to the next event: with hiccups it
// passes when a server reads its clock, as on a busy machine, and later events are late. The order is
// that of the times; events of one time run in the order in which they were added. So a run is
// determined by its seed.

import { Random } from '../checker/random.js';

/** The real ones: globals.js replaces the global functions. */
const realSetImmediate = setImmediate;
/** So many turns of Node's loop are asked for at a time. Each runs one event. */
const TURNS = 256;
/** Unix time at which every run begins: 1 January 2027. */
const BEGINNING_MS = 1_798_761_600_000;
const HICCUP_MS = /** @type {const} */ ([0.1, 3]);

/**
 * What an event belongs to.
 * @typedef {object} Owner
 * @property {boolean} isAlive false: its events are dropped
 * @property {boolean} isFrozen true: its events wait in `parked`
 * @property {Event[]} parked
 * @property {(error: unknown) => void} fault an event has thrown
 */

/** @typedef {{atMs: number, order: number, owner: Owner, act: (() => void)|null}} Event */

export class Simulator {
  nowMs = 0;
  /** Share of readings of a server's clock at which time has passed. */
  hiccups = 0;
  /** Number of events so far. */
  events = 0;
  #order = 0;
  /** A binary heap. @type {Event[]} */
  #heap = [];
  /** @type {Owner|null} */
  #current = null;
  /** Of the present run; turns that an earlier one asked for do nothing. */
  #run = 0;
  #isRunning = false;

  /** @param {number} seed */
  constructor(seed) {
    this.seed = seed;
    this.random = new Random(seed);
    /** The simulator itself, as an owner of events. @type {Owner} */
    this.self = {
      isAlive: true,
      isFrozen: false,
      parked: [],
      fault(error) {
        throw error;
      },
    };
  }

  /** Unix time, in ms. */
  get unixMs() {
    return BEGINNING_MS + this.nowMs;
  }

  /** A process reads its clock. @param {boolean} isServer */
  read(isServer) {
    if (isServer && this.hiccups > 0 && this.random.next() < this.hiccups)
      this.nowMs += this.random.between(...HICCUP_MS);
    return this.nowMs;
  }

  /** The owner of the event that runs. */
  get current() {
    return this.#current ?? this.self;
  }

  /**
   * @param {number} delayMs from now @param {Owner} owner @param {() => void} act
   * @returns {Event} for `cancel`
   */
  schedule(delayMs, owner, act) {
    const event = { atMs: this.nowMs + delayMs, order: 0, owner, act };
    this.#add(event);
    return event;
  }

  /** Lets the events of a frozen process run that are due. @param {Owner} owner */
  thaw(owner) {
    owner.isFrozen = false;
    for (const event of owner.parked.splice(0)) {
      event.atMs = this.nowMs;
      this.#add(event);
    }
  }

  /** @param {Event} event */
  #add(event) {
    event.order = this.#order++;
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (isBefore(heap[above], event)) break;
      heap[at] = heap[above];
      at = above;
    }
    heap[at] = event;
  }

  /** @param {Event} event */
  cancel(event) {
    event.act = null;
  }

  /**
   * Runs events until a condition holds, or none is left before a time.
   * @param {number} untilMs virtual time @param {() => boolean} [isOver]
   * @returns {Promise<void>}
   */
  run(untilMs, isOver = () => false) {
    if (this.#isRunning) throw new Error('the simulator runs already');
    this.#isRunning = true;
    const number = ++this.#run;
    return new Promise((resolve, reject) => {
      let turns = 0;
      const finish = (
        /** @type {(value?: any) => void} */ settle,
        /** @type {unknown} */ value,
      ) => {
        this.#isRunning = false;
        settle(value);
      };
      const turn = () => {
        turns--;
        if (!this.#isRunning || this.#run !== number) return;
        try {
          if (isOver() || !this.#step(untilMs)) return finish(resolve, undefined);
        } catch (error) {
          return finish(reject, error);
        }
        if (turns === 0) ask();
      };
      // Node runs ticks and promises between two of them.
      const ask = () => {
        turns = TURNS;
        for (let i = 0; i < TURNS; i++) realSetImmediate(turn);
      };
      ask();
    });
  }

  /** @param {number} untilMs @returns {boolean} false: there is no event before this time */
  #step(untilMs) {
    for (;;) {
      const event = this.#heap[0];
      if (event === undefined || event.atMs > untilMs) {
        this.nowMs = Math.max(this.nowMs, untilMs);
        return false;
      }
      this.#pop();
      const { act, owner } = event;
      if (act === null || !owner.isAlive) continue;
      if (owner.isFrozen) {
        owner.parked.push(event);
        continue;
      }
      this.nowMs = Math.max(this.nowMs, event.atMs);
      this.events++;
      this.#current = owner;
      try {
        act();
      } catch (error) {
        owner.fault(error);
      }
      return true;
    }
  }

  #pop() {
    const heap = this.#heap;
    const last = /** @type {Event} */ (heap.pop());
    const { length } = heap;
    if (length === 0) return;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= length) break;
      if (below + 1 < length && isBefore(heap[below + 1], heap[below])) below++;
      if (isBefore(last, heap[below])) break;
      heap[at] = heap[below];
      at = below;
    }
    heap[at] = last;
  }
}

/** @param {Event} one @param {Event} other */
function isBefore(one, other) {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}
