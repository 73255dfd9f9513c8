// join-budget.js: the time that joins with history may take of one turn of the event loop.
//
// When thousands of clients come back at once, each join is two writes to a socket. All rooms of a
// worker share JOINS_MS a turn; later joins are decided in the next turn.

const JOINS_MS = 8;

export class JoinBudget {
  /** @param {() => number} clock ms, monotonic */
  constructor(clock) {
    this.clock = clock;
    /** Joins that wait for a decision, all rooms together. */
    this.waiting = 0;
    /** When this turn's time is over; 0: no join has come in this turn. */
    this.endMs = 0;
  }

  add() {
    this.waiting++;
  }

  remove() {
    this.waiting--;
  }

  /** Has this turn spent its time? */
  isSpent() {
    const now = this.clock();
    if (this.endMs === 0) {
      this.endMs = now + JOINS_MS;
      setImmediate(() => {
        this.endMs = 0;
      });
    }
    return now > this.endMs;
  }
}
