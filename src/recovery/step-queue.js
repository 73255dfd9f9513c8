// step-queue.js: the lagging members of all rooms whose next step is due, in turn.
//
// When a network path recovers, thousands of members catch up at once, each step with a write to a
// socket. So steps have a share of each turn (worker/turn.js).

/**
 * Rooms that may keep a page of the broker's history between steps. A page has up to PAGE_BYTES of
 * lagging-members.js: 16 MB for a worker.
 */
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
    /** Rooms that keep a page, the one read first in front. @type {Set<{dropPage(): void}>} */
    this.pages = new Set();
  }

  /** Queues a member, unless it is in the queue. @param {Stepper} member */
  add(member) {
    if (member.isQueued) return;
    member.queued(true);
    this.line.push(member);
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

/** @param {Stepper} member */
function takeStep(member) {
  member.queued(false);
  try {
    member.step();
  } catch (error) {
    member.connection.fail(error);
  }
}
