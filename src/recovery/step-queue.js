// step-queue.js: lagging members of all rooms whose next step is due, in turn.
//
// When a network path recovers, thousands of members catch up at once, and each step writes to a
// socket. So steps have a share of each turn (worker/turn.js).

/** Rooms may keep this many pages of the broker's history between steps: up to 16 MB. */
const MAX_PAGES = 64;

/**
 * A member as the queue sees it.
 * @typedef {{isQueued: boolean, step: () => void, queued: (isQueued: boolean) => void,
 *   connection: {fail(error: unknown): void}}} Stepper
 */

export class StepQueue {
  /** @param {import('../worker/turn.js').Turn} turn */
  constructor(turn) {
    this.line = turn.line('lagging_members', takeStep);
    /** Rooms that keep a page, the oldest first. @type {Set<{dropPage(): void}>} */
    this.pages = new Set();
  }

  /** @param {Stepper} member */
  add(member) {
    if (member.isQueued) return;
    member.queued(true);
    this.line.push(member);
  }

  /** @param {{dropPage(): void}} room that has read a page */
  keepPage(room) {
    this.pages.delete(room);
    this.pages.add(room);
    if (this.pages.size <= MAX_PAGES) return;
    for (const oldest of this.pages) return oldest.dropPage();
  }

  /** @param {{dropPage(): void}} room that no longer keeps a page */
  freePage(room) {
    this.pages.delete(room);
  }
}

/** @param {Stepper} member */
function takeStep(member) {
  member.queued(false);
  try {
    member.step();
  } catch (error) {
    member.connection.fail(error);
  }
}
