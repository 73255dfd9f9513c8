// delayed-unsubscribe.js: keeps emptied rooms subscribed for a while, so that rooms which empty and
// fill again cause no storm of subscriptions. All rooms wait equally long, so one timer is enough.

export class DelayedUnsubscribe {
  /** @param {number} ms how long a room lingers @param {(rooms: string[]) => void} onOver */
  constructor(ms, onOver) {
    this.ms = ms;
    this.onOver = onOver;
    /** The end of each room's delay. @type {Map<string, number>} */
    this.due = new Map();
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    this.sweep = this.sweep.bind(this);
  }

  /** @param {string} room */
  add(room) {
    this.due.delete(room);
    this.due.set(room, performance.now() + this.ms);
    this.timer ??= setTimeout(this.sweep, this.ms).unref();
  }

  /** @param {string} room */
  has(room) {
    return this.due.has(room);
  }

  /** @param {string} room @returns {boolean} whether it was lingering */
  delete(room) {
    return this.due.delete(room);
  }

  /** Forgets all rooms without calling `onOver`. @returns the rooms that waited */
  forgetRooms() {
    const rooms = [...this.due.keys()];
    this.due.clear();
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    return rooms;
  }

  sweep() {
    this.timer = null;
    const now = performance.now();
    const over = [];
    for (const [room, due] of this.due) {
      // A timer may fire a fraction of a millisecond early.
      if (due > now + 1) {
        this.timer = setTimeout(this.sweep, due - now).unref();
        break;
      }
      this.due.delete(room);
      over.push(room);
    }
    if (over.length > 0) this.onOver(over);
  }
}
