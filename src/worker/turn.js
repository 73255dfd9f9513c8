// turn.js: shares out the time of a worker's event loop.
//
// Work that may come in bursts waits in a slot, and one callback a turn runs the slots in the order
// of SHARES. Each slot has a share of the turn, and continues in the next turn if work is left. If
// the slots want more than TOTAL_MS together, all shares shrink alike, so none starves. The turn's
// publications leave before the slots run, because their receivers may be idle.
//
//   reads, timers, broker -> push, wake -> (turn) publications, flushes, short reads, joins, …
//
// Work that is done when it arrives checks `isSpent`, and waits in line once its share is spent.
// docs/architecture/fan-out.md has the table of slots; a test keeps both equal.

import { Fifo } from '../transport/fair-queue.js';

/** @template T @typedef {import('../transport/fair-queue.js').Queue<T>} Queue */
/** @typedef {'reads'|typeof import('../observability/counters.js').TURN_SLOTS[number]} SlotName */
/**
 * @typedef {object} Share of a slot, in each turn
 * @property {number} ms but at least one item is done
 * @property {number} [maxMs] if other work takes longer than `ms` between two turns of the slot,
 *   the slot gets the same time, up to this bound
 * @property {number} [maxItems]
 */

/** The slots, in the order in which a turn runs them. */
export const SHARES = Object.freeze(
  /** @satisfies {Record<SlotName, Share>} */ ({
    reads: { ms: 8 },
    flushes: { ms: 2, maxMs: 16 },
    short_reads: { ms: 8 },
    joins: { ms: 8 },
    lagging_members: { ms: 4 },
    hooks: { ms: 4 },
    long_reads: { ms: 4, maxItems: 32 },
    handshakes: { ms: 4 },
    admitted: { ms: 4 },
    refused_peers: { ms: 4, maxItems: 64 },
    closes: { ms: 4 },
    notices: { ms: 4 },
    presence: { ms: 4 },
    surveys: { ms: 1 },
    tls: { ms: 4 },
  }),
);

/** The time of all slots in one turn. */
export const TOTAL_MS = 32;

export class Turn {
  #isScheduled = false;
  /** Slots with work. Most turns find one or none. */
  #awake = 0;
  /** When the last turn ended with work left; Infinity: it left none. */
  #yieldedMs = Number.POSITIVE_INFINITY;
  /** The slots in the order of SHARES. @type {Slot[]} */
  #slots = [];
  /** @type {() => void} */
  #sendPublications = () => {};

  /**
   * @param {object} [parts]
   * @param {Readonly<Record<string, {observe(seconds: number): void}>>} [parts.seconds] by slot;
   *   `total`: all slots; `loop`: other work between two turns
   * @param {() => number} [parts.clock] ms, monotonic
   */
  constructor({ seconds = {}, clock = () => performance.now() } = {}) {
    this.seconds = seconds;
    this.clock = clock;
  }

  /** @param {() => void} sendPublications called before the slots of each turn */
  sendFirst(sendPublications) {
    this.#sendPublications = sendPublications;
  }

  /**
   * Takes a slot for work with its own order.
   * @param {SlotName} name
   * @param {() => boolean} [work] works until `isSpent`; true: more is left. Without it, the slot
   *   only measures work that is done when it arrives.
   */
  slot(name, work = nothing) {
    return this.#add(new Slot(this, name, work));
  }

  /**
   * Takes a slot for items that are done one after the other.
   * @template T @param {SlotName} name @param {(item: T) => void} act
   * @param {Queue<T>} [queue] default: first come, first served
   */
  line(name, act, queue = new Fifo()) {
    return this.#add(new Line(this, name, act, queue));
  }

  /** @template {Slot} S @param {S} slot @returns {S} */
  #add(slot) {
    if (this.#slots.some(({ name }) => name === slot.name))
      throw new Error(`the slot ${slot.name} has an owner`);
    const order = Object.keys(SHARES);
    this.#slots.push(slot);
    this.#slots.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
    return slot;
  }

  /** Runs the slots at the end of this turn of the event loop. */
  schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#run);
  }

  woken() {
    this.#awake++;
    this.schedule();
  }

  #run = () => {
    this.#isScheduled = false;
    if (this.#awake === 0) return this.#rest();
    const { seconds } = this;
    const slots = this.#slots;
    this.#sendPublications();
    const startedMs = this.clock();
    if (this.#yieldedMs !== Number.POSITIVE_INFINITY)
      seconds.loop?.observe((startedMs - this.#yieldedMs) / 1000);
    // A single share is never longer than TOTAL_MS.
    const scale = this.#awake === 1 ? 1 : this.#scale(startedMs);
    let now = startedMs;
    // An index, because for...of costs more until V8 has compiled this function.
    for (let i = 0; i < slots.length; i++) {
      const slot = slots[i];
      if (!slot.isAwake) {
        if (slot.endMs !== 0) slot.rest();
        continue;
      }
      this.#awake--;
      slot.begin(now, scale);
      const hasMore = slot.work();
      const endedMs = this.clock();
      slot.seconds?.observe((endedMs - now) / 1000);
      now = endedMs;
      if (hasMore) slot.yield(now);
      else if (!slot.isAwake) slot.rest();
    }
    if (now > startedMs) seconds.total?.observe((now - startedMs) / 1000);
    this.#yieldedMs = this.#awake > 0 ? now : Number.POSITIVE_INFINITY;
  };

  /** Ends shares of work that was done when it arrived. */
  #rest() {
    const slots = this.#slots;
    for (let i = 0; i < slots.length; i++) if (slots[i].endMs !== 0) slots[i].rest();
  }

  /** @param {number} now @returns {number} the part of its share that each slot gets */
  #scale(now) {
    let wantedMs = 0;
    for (const slot of this.#slots) if (slot.isAwake) wantedMs += slot.shareMs(now);
    return Math.min(1, TOTAL_MS / wantedMs);
  }
}

/** One kind of work. */
export class Slot {
  beganMs = 0;
  /** When the share of this turn ends; 0: it has not begun. */
  endMs = 0;
  /** The last result of `isSpent`, for the hot path, which does not read the clock. */
  isOver = false;
  isAwake = false;
  /** When the slot ended with work left; Infinity: it left none. */
  #yieldedMs = Number.POSITIVE_INFINITY;
  /** Wakes the slot at `#alarmMs`. @type {NodeJS.Timeout|undefined} */
  #alarm = undefined;
  #alarmMs = Number.POSITIVE_INFINITY;

  /** @param {Turn} turn @param {SlotName} name @param {() => boolean} work */
  constructor(turn, name, work) {
    /** @type {Share} */
    const { ms, maxMs = ms, maxItems = Number.POSITIVE_INFINITY } = SHARES[name];
    this.turn = turn;
    this.name = name;
    this.seconds = turn.seconds[name] ?? null;
    this.work = work;
    this.ms = ms;
    this.maxMs = maxMs;
    this.maxItems = maxItems;
  }

  /** Runs the slot in this turn, or in the next one. */
  wake() {
    if (this.isAwake) return;
    this.isAwake = true;
    this.turn.woken();
  }

  /** @param {number} timeMs on the turn's clock */
  wakeAt(timeMs) {
    if (timeMs >= this.#alarmMs) return;
    clearTimeout(this.#alarm);
    this.#alarmMs = timeMs;
    this.#alarm = setTimeout(this.#ring, Math.max(1, timeMs - this.turn.clock())).unref();
  }

  #ring = () => {
    this.#alarmMs = Number.POSITIVE_INFINITY;
    this.wake();
  };

  /** Is the share of this turn spent? It begins with the turn's first work. */
  isSpent() {
    return this.isSpentAt(this.turn.clock());
  }

  /** @param {number} now on the turn's clock */
  isSpentAt(now) {
    if (this.endMs === 0) {
      this.endMs = now + this.ms;
      this.turn.schedule();
    }
    this.isOver = now >= this.endMs;
    return this.isOver;
  }

  /** @param {number} now */
  shareMs(now) {
    return Math.min(this.maxMs, Math.max(this.ms, now - this.#yieldedMs));
  }

  /** @param {number} now @param {number} scale */
  begin(now, scale) {
    this.isAwake = false;
    this.beganMs = now;
    this.endMs = now + scale * this.shareMs(now);
    this.isOver = false;
    this.#yieldedMs = Number.POSITIVE_INFINITY;
  }

  /** Work is left, and the share stays spent until the next turn. @param {number} now */
  yield(now) {
    this.#yieldedMs = now;
    this.wake();
  }

  /** No work is left. The next begins a new share. */
  rest() {
    this.endMs = 0;
    this.isOver = false;
  }
}

/** A slot for items that are done one after the other. @template T */
export class Line extends Slot {
  /**
   * @param {Turn} turn @param {SlotName} name @param {(item: T) => void} act @param {Queue<T>} queue
   */
  constructor(turn, name, act, queue) {
    super(turn, name, () => this.#doSome());
    this.act = act;
    this.queue = queue;
  }

  /** @param {T} item @param {string|null} [address] for queues in which addresses take turns */
  push(item, address = null) {
    this.queue.push(item, address);
    this.wake();
  }

  #doSome() {
    // Items that `act` pushes wait for the next turn.
    const { queue } = this;
    let left = Math.min(this.maxItems, queue.size);
    do {
      this.act(/** @type {T} */ (queue.shift()));
    } while (--left > 0 && !this.isSpent());
    return queue.size > 0;
  }
}

function nothing() {
  return false;
}
