// step-queue.js: the lagging members of all rooms whose next step is due, in turn.
//
// When a network path recovers, thousands of members catch up at once, and each step is a write to
// a socket. The steps of one turn of the event loop take at most STEPS_MS; the others follow in the
// next turn.

const STEPS_MS = 4;
const STEPS_PER_CLOCK = 8;
/**
 * Rooms that may keep a page of the broker's history between the steps of their members. A page has
 * up to PAGE_BYTES of lagging-members.js, so all pages of a worker have 16 MB.
 */
const MAX_PAGES = 64;

/**
 * A member as the queue sees it.
 * @typedef {object} Stepper
 * @property {boolean} isQueued
 * @property {() => void} step
 * @property {(isQueued: boolean) => void} queued
 * @property {{fail(error: unknown): void}} connection
 */

export class StepQueue {
  /** @param {() => number} clock ms, monotonic */
  constructor(clock) {
    this.clock = clock;
    /** @type {Stepper[]} */
    this.due = [];
    this.isScheduled = false;
    this.run = this.run.bind(this);
    /** Rooms that keep a page, the one read first in front. @type {Set<{dropPage(): void}>} */
    this.pages = new Set();
  }

  /** Queues a member, unless it is in the queue. @param {Stepper} member */
  add(member) {
    if (member.isQueued) return;
    member.queued(true);
    this.due.push(member);
    this.#runLater();
  }

  #runLater() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.run);
  }

  /** The steps of one turn of the event loop. */
  run() {
    this.isScheduled = false;
    const { due } = this;
    this.due = [];
    const endMs = this.clock() + STEPS_MS;
    let taken = 0;
    while (taken < due.length) {
      const member = due[taken++];
      member.queued(false);
      try {
        member.step();
      } catch (error) {
        member.connection.fail(error);
      }
      if (taken % STEPS_PER_CLOCK === 0 && this.clock() > endMs) break;
    }
    if (taken < due.length) this.due = [...due.slice(taken), ...this.due];
    if (this.due.length > 0) this.#runLater();
  }

  /** A room has read a page. @param {{dropPage(): void}} room */
  keepPage(room) {
    this.pages.delete(room);
    this.pages.add(room);
    if (this.pages.size <= MAX_PAGES) return;
    for (const oldest of this.pages) return oldest.dropPage();
  }

  /** A room keeps no page any more. @param {{dropPage(): void}} room */
  freePage(room) {
    this.pages.delete(room);
  }
}
