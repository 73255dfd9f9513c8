// check-wheel.js: when each room with history compares its position with the broker.
//
// A wheel turns one place every TICK_MS. At its turn, a room without a publication for some nine
// seconds is compared, so a loss without a gap is found within ten. Random places avoid bursts.

/** The same period as that of the heartbeat and the health: their timers fire together. */
const TICK_MS = 250;
/** Places of the wheel: ten seconds. */
const PLACES = 40;
/** Ticks from proof to comparison, at random between these; the rest of 10 s is to read. */
const MIN_QUIET_TICKS = 28;
const MAX_QUIET_TICKS = 37;

/**
 * A room as the wheel sees it.
 * @typedef {object} Checked
 * @property {() => void} check compares the position
 * @property {() => void} tend forgets publications that the store has deleted, and lets members
 *   continue that wait without a reason
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
  add(checked) {
    this.size++;
    this.timer ??= setInterval(() => this.tick(), TICK_MS).unref();
    return new Timetable(this, checked);
  }

  /** @param {Timetable} timetable one that is on the wheel */
  remove(timetable) {
    timetable.isRemoved = true;
    if (--this.size === 0) this.close();
  }

  close() {
    clearInterval(this.timer);
    this.timer = undefined;
    // The wheel does not turn, so nothing else would let go of closed rooms.
    for (const place of this.places) place.length = 0;
  }

  /** Turns the wheel by one place. The timer calls it. */
  tick() {
    const place = ++this.ticks % PLACES;
    const due = this.places[place];
    this.places[place] = [];
    for (const timetable of due) {
      // A timetable may stand on the wheel twice, for a retry. Only its latest place counts.
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
    /** Is the room compared at its next turn, even if it had publications in between? */
    this.mustCheck = false;
    wheel.place(this, wheel.ticks + 1 + Math.floor(Math.random() * MAX_QUIET_TICKS));
  }

  /** A publication has come in its order, or a comparison has found no difference. */
  prove() {
    this.provenTick = this.wheel.ticks;
  }

  /** Compares the room in so many ticks, or earlier. @param {number} ticks less than PLACES */
  checkIn(ticks) {
    const tick = this.wheel.ticks + ticks;
    if (this.mustCheck && this.dueTick <= tick) return;
    this.mustCheck = true;
    this.wheel.place(this, tick);
  }

  /** The room's turn on the wheel. */
  run() {
    const { checked, wheel } = this;
    checked.tend();
    const provenTicks = wheel.ticks - this.provenTick;
    if (provenTicks >= MIN_QUIET_TICKS || this.mustCheck) {
      this.mustCheck = false;
      checked.check();
      if (!this.mustCheck) wheel.place(this, wheel.ticks + quietTicks());
    } else {
      wheel.place(this, wheel.ticks + Math.max(1, quietTicks() - provenTicks));
    }
  }
}

function quietTicks() {
  return MIN_QUIET_TICKS + Math.floor(Math.random() * (MAX_QUIET_TICKS - MIN_QUIET_TICKS + 1));
}
