// catch-up.js: which rooms have been compared with the broker since an outage. A read that began
// before its end proves nothing, so the room is compared again.

/** @typedef {{comparePosition(): void}} Checked */

export class CatchUp {
  constructor() {
    /** How often the broker has come up. */
    this.era = 0;
    /** Rooms not compared since then. @type {Set<Checked>} */
    this.unproven = new Set();
    this.onDone = () => {};
  }

  /** @param {() => void} onDone called when the broker is up and every room has been compared */
  listenForEnd(onDone) {
    this.onDone = onDone;
  }

  /** The broker is up: compares all rooms. @param {Iterable<Checked>} rooms */
  begin(rooms) {
    this.era++;
    this.unproven = new Set(rooms);
    for (const room of this.unproven) room.comparePosition();
    this.#finish();
  }

  /** @param {Checked} room @param {number} era of the read that compared it */
  proven(room, era) {
    if (!this.unproven.has(room)) return;
    if (era !== this.era) return room.comparePosition();
    this.unproven.delete(room);
    this.#finish();
  }

  /** @param {Checked} room */
  remove(room) {
    if (this.unproven.delete(room)) this.#finish();
  }

  #finish() {
    if (this.unproven.size === 0) this.onDone();
  }
}
