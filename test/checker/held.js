// held.js: the audiences that a client holds in a room, as far as it can know.
//
// While a change is under way, the server may write messages by the former audiences or by the next
// ones. So there are two sets: those that it may hold, and those that it holds for sure.

const ALL = '*';

export class Held {
  constructor() {
    /** @type {ReadonlySet<string>} */
    this.may = new Set();
    /** @type {ReadonlySet<string>} */
    this.surely = new Set();
    /** Since when it has held these for sure, and no others. */
    this.since = 0;
  }

  /** @param {readonly string[]} may @param {readonly string[]} surely @param {number} t */
  become(may, surely, t) {
    const isSame =
      surely.length === this.surely.size && surely.every((one) => this.surely.has(one));
    if (!isSame) this.since = t;
    this.may = new Set(may);
    this.surely = new Set(surely);
  }

  /** @param {readonly string[]} audience empty: everybody */
  maySee(audience) {
    return isIn(audience, this.may);
  }

  /** @param {readonly string[]} audience @param {number} from has it been sure of it since then? */
  surelySees(audience, from) {
    if (audience.length === 0) return true;
    return isIn(audience, this.surely) && this.since <= from;
  }

  /** It stays as it is now. */
  copy() {
    return Object.assign(new Held(), this);
  }
}

/** Of who has said nothing: a member of a room without messages for some. */
export const SEES_ALL = new Held();
SEES_ALL.become([ALL], [ALL], Number.NEGATIVE_INFINITY);

/** @param {readonly string[]} audience @param {ReadonlySet<string>} held */
function isIn(audience, held) {
  return audience.length === 0 || held.has(ALL) || audience.some((one) => held.has(one));
}
