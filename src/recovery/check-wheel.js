// check-wheel.js: decides when each room with history compares its position with the broker.
//
// The wheel turns by one place every TICK_MS. At its turn, a room without a publication for some
// nine seconds is compared, so a loss that shows no gap is found within ten. Random places avoid
// bursts.

const TICK_MS = 250;
/** Ten seconds. */
const PLACES = 40;
/** A comparison follows a proof at random in this range. The read has the rest of ten seconds. */
const MIN_QUIET_TICKS = 28;
const MAX_QUIET_TICKS = 37;

/**
 * A room as the wheel sees it.
 * @typedef {object} Checked
 * @property {() => void} comparePosition compares the position
 * @property {() => void} tend forgets publications that the store has deleted, and lets waiting
 *   members try again
 */

export class CheckWheel {
  constructor() {
    this.ticks = 0;
    /** Timetables on the wheel. */
    this.size = 0;
    /** @type {Timetable[][]} */
    this.places = Array.from({ length: PLACES }, () => []);
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** @param {Checked} checked @returns {Timetable} */
  addTimetable(checked) {
    this.size++;
    this.timer ??= setInterval(() => this.tick(), TICK_MS).unref();
    return new Timetable(this, checked);
  }

  /** @param {Timetable} timetable */
  remove(timetable) {
    timetable.isRemoved = true;
    if (--this.size === 0) this.close();
  }

  close() {
    clearInterval(this.timer);
    this.timer = undefined;
    // The wheel stops, so nothing else would release closed rooms.
    for (const place of this.places) place.length = 0;
  }

  /** Turns the wheel by one place. */
  tick() {
    const place = ++this.ticks % PLACES;
    const due = this.places[place];
    this.places[place] = [];
    for (const timetable of due) {
      // After `checkIn` a timetable is on the wheel twice. Only its latest place counts.
      if (!timetable.isRemoved && timetable.dueTick === this.ticks) timetable.run();
    }
  }

  /** @param {Timetable} timetable @param {number} tick */
  place(timetable, tick) {
    timetable.dueTick = tick;
    this.places[tick % PLACES].push(timetable);
  }
}

/** One room's place on the wheel. */
class Timetable {
  /** @param {CheckWheel} wheel @param {Checked} checked */
  constructor(wheel, checked) {
    this.wheel = wheel;
    this.checked = checked;
    this.isRemoved = false;
    /** The tick of the last proof that nothing is missing. */
    this.provenTick = wheel.ticks;
    this.dueTick = 0;
    /** The next turn compares the room even if it had publications since. */
    this.mustCheck = false;
    wheel.place(this, wheel.ticks + 1 + Math.floor(Math.random() * MAX_QUIET_TICKS));
  }

  /** A publication has arrived in order, or a comparison found no difference. */
  prove() {
    this.provenTick = this.wheel.ticks;
  }

  /** Compares the room within this time. @param {number} ticks less than PLACES */
  checkIn(ticks) {
    const tick = this.wheel.ticks + ticks;
    if (this.mustCheck && this.dueTick <= tick) return;
    this.mustCheck = true;
    this.wheel.place(this, tick);
  }

  /** The wheel calls it at the room's turn. */
  run() {
    const { checked, wheel } = this;
    checked.tend();
    const provenTicks = wheel.ticks - this.provenTick;
    if (provenTicks >= MIN_QUIET_TICKS || this.mustCheck) {
      this.mustCheck = false;
      checked.comparePosition();
      if (!this.mustCheck) wheel.place(this, wheel.ticks + quietTicks());
    } else {
      wheel.place(this, wheel.ticks + Math.max(1, quietTicks() - provenTicks));
    }
  }
}

function quietTicks() {
  return MIN_QUIET_TICKS + Math.floor(Math.random() * (MAX_QUIET_TICKS - MIN_QUIET_TICKS + 1));
}
