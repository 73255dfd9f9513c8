// replay-buffer.js: a room's recent publications as one worker has them: consecutive, up to the
// last one it handed out.
//
// Joins with `since` and history commands are answered from here, so that a thousand clients that
// come back cost the broker one read. A window begins empty at the room's position; live
// publications are appended, and one read puts in front of them what was there before (`fill`). It
// is a cache: it may be emptied at any time, and filled again.
//
//   … trimmed | first … next-1 | what comes

/** What an entry costs beside its bytes. */
const ENTRY_BYTES = 200;
/** So many places that trimming has left empty are given back together. */
const MAX_EMPTY = 64;

export class ReplayBuffer {
  /** @param {{maxCount: number, maxBytes: number}} bounds */
  constructor({ maxCount, maxBytes }) {
    this.maxCount = maxCount;
    this.maxBytes = maxBytes;
    /** Of kind POSITIONED; the first `head` places are empty. @type {Buffer[]} */
    this.entries = [];
    this.head = 0;
    this.bytes = 0;
    /** Offset of the first that is here; `next` where none is. */
    this.first = 1;
    /** Offset of the next to come. */
    this.next = 1;
    /** Would a read bring nothing that is older? */
    this.isFilled = false;
    /** When the newest was added, in the sync's ms. */
    this.latestMs = 0;
  }

  get length() {
    return this.next - this.first;
  }

  /** Begins anew, empty. @param {number} next */
  restart(next) {
    this.#clear(next);
    this.isFilled = next === 1;
  }

  /** Empties it; a read may fill it again. */
  evict() {
    this.restart(this.next);
  }

  /** Empties it since the store has forgotten them too. */
  expire() {
    this.#clear(this.next);
    this.isFilled = true;
  }

  /** @param {number} next */
  #clear(next) {
    this.entries = [];
    this.head = 0;
    this.bytes = 0;
    this.first = next;
    this.next = next;
  }

  /**
   * @param {Buffer} publication the one at `next`
   * @param {number} nowMs
   */
  append(publication, nowMs) {
    this.entries.push(publication);
    this.next++;
    this.bytes += publication.length + ENTRY_BYTES;
    this.latestMs = nowMs;
    this.#trim();
  }

  /**
   * Puts what a read brought in front.
   * @param {readonly Buffer[]} publications of kind POSITIONED; the last one is at `first - 1`
   */
  fill(publications) {
    this.entries = [...publications, ...this.entries.slice(this.head)];
    this.head = 0;
    this.first -= publications.length;
    for (const { length } of publications) this.bytes += length + ENTRY_BYTES;
    this.isFilled = true;
    this.#trim();
  }

  /**
   * @param {number} from
   * @param {number} to the last; both are here
   * @returns {Buffer[]}
   */
  slice(from, to) {
    const start = this.head + from - this.first;
    return this.entries.slice(start, start + to - from + 1);
  }

  #trim() {
    const { entries } = this;
    while (this.length > this.maxCount || (this.bytes > this.maxBytes && this.length > 1)) {
      this.bytes -= entries[this.head].length + ENTRY_BYTES;
      entries[this.head++] = EMPTY;
      this.first++;
    }
    if (this.head > MAX_EMPTY && this.head > this.length) {
      entries.splice(0, this.head);
      this.head = 0;
    }
  }
}

const EMPTY = Buffer.alloc(0);
