// due-rooms.js: rooms with a minimum time between flushes, the one due first in front. A binary
// heap, so a turn costs only the rooms that are due, not the thousands that may wait.

/** @import { HubRoom } from './room.js' */

/** @typedef {{room: HubRoom, dueMs: number}} Due */

export class DueRooms {
  /** Each is due no later than those at `2 i + 1` and `2 i + 2`. @type {Due[]} */
  #heap = [];

  get size() {
    return this.#heap.length;
  }

  /** When the first is due, on the turn's clock; Infinity: none waits. */
  get nextMs() {
    return this.#heap.length === 0 ? Number.POSITIVE_INFINITY : this.#heap[0].dueMs;
  }

  /** @param {HubRoom} room @param {number} dueMs */
  addDue(room, dueMs) {
    const heap = this.#heap;
    let i = heap.length;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (heap[parent].dueMs <= dueMs) break;
      heap[i] = heap[parent];
      i = parent;
    }
    heap[i] = { room, dueMs };
  }

  /** Takes the first. @returns {HubRoom|undefined} */
  takeFirst() {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return last?.room;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1].dueMs < heap[child].dueMs) child++;
      if (heap[child].dueMs >= last.dueMs) break;
      heap[i] = heap[child];
      i = child;
    }
    heap[i] = last;
    return first.room;
  }
}
