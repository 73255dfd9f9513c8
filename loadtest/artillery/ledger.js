// ledger.js: the accepted messages of each room, and so the messages that each member must get.
//
// A publisher numbers what was accepted of it 1, 2, 3 …: a refused message's number goes to the
// next one. To each member the server owes every one of these, once, in that order, from its join
// to its leaving. So:
//
// - Of one publisher a member sees consecutive numbers. One left out is lost as soon as a later one is there.
// - Where the row must begin and end, time says: due is what was sent after the member had its `joined` and was
//   acknowledged before it asks what is outstanding. What was under way at either moment may come or not.
//
// Nothing here is a guess: a late arrival, a join or a leaving in the middle of traffic is never
// counted as a loss, and no loss of what was due goes unseen. Pure: no I/O, no clock. All times are
// milliseconds of one monotonic clock.

/**
 * @typedef {object} Publisher
 * @property {number[]} sentMs when its accepted messages were sent; message n at n - 1
 * @property {boolean} ended it sends no more
 */

export class Ledger {
  constructor() {
    /** @type {Map<string, Room>} */
    this.rooms = new Map();
  }

  /**
   * Message `n` of a publisher has been accepted. Its messages come in order, from 1.
   * @param {string} room @param {string} publisher @param {number} n @param {number} sentMs
   */
  accept(room, publisher, n, sentMs) {
    const { publishers } = this.#room(room);
    let one = publishers.get(publisher);
    if (one === undefined) publishers.set(publisher, (one = { sentMs: [], ended: false }));
    one.sentMs[n - 1] = sentMs;
  }

  /**
   * @param {string} room
   * @param {string} publisher it sends no more
   */
  end(room, publisher) {
    const one = this.#room(room).publishers.get(publisher);
    if (one !== undefined) one.ended = true;
  }

  /**
   * @param {string} room
   * @param {number} joinedMs when it learned that it has joined
   * @returns {Member}
   */
  join(room, joinedMs) {
    const member = new Member(this.#room(room), joinedMs);
    member.room.members.add(member);
    return member;
  }

  /** @param {string} name @returns {Room} */
  #room(name) {
    let room = this.rooms.get(name);
    if (room === undefined)
      this.rooms.set(name, (room = { publishers: new Map(), members: new Set() }));
    return room;
  }
}

/**
 * @typedef {object} Room
 * @property {Map<string, Publisher>} publishers
 * @property {Set<Member>} members in the order in which they joined
 */

class Member {
  /** @param {Room} room @param {number} joinedMs */
  constructor(room, joinedMs) {
    this.room = room;
    this.joinedMs = joinedMs;
    /**
     * Of each publisher, the first number that came and the one that must come next.
     * @type {Map<string, {first: number, next: number}>}
     */
    this.seen = new Map();
  }

  /**
   * A delivery has come.
   * @param {string} publisher
   * @param {number} n
   * @returns {number} how many were lost just before it; -1 where it came before, or out of order
   */
  receive(publisher, n) {
    const seen = this.seen.get(publisher);
    if (seen === undefined) {
      this.seen.set(publisher, { first: n, next: n + 1 });
      return 0;
    }
    if (n < seen.next) return -1;
    const lost = n - seen.next;
    seen.next = n + 1;
    return lost;
  }

  /**
   * @returns {number} messages that are due and have not come, but for those that `receive` has
   *   called lost
   */
  outstanding() {
    let count = 0;
    for (const [publisher, { sentMs }] of this.room.publishers) {
      const last = sentMs.length;
      if (last === 0 || sentMs[last - 1] <= this.joinedMs) continue;
      const first = firstAfter(sentMs, this.joinedMs);
      const seen = this.seen.get(publisher);
      if (seen === undefined) {
        count += last - first + 1;
      } else {
        count += Math.max(0, Math.min(seen.first, last + 1) - first); // before the first that came
        count += Math.max(0, last + 1 - Math.max(seen.next, first)); // behind the last
      }
    }
    return count;
  }

  /** From now on nothing is due. */
  leave() {
    const { publishers, members } = this.room;
    members.delete(this);
    // No member can get messages that were sent before the oldest one came.
    const [oldest] = members;
    for (const [name, { sentMs, ended }] of publishers) {
      if (!ended || (oldest !== undefined && sentMs[sentMs.length - 1] > oldest.joinedMs)) break;
      publishers.delete(name);
    }
  }
}

/**
 * @param {readonly number[]} times ascending
 * @param {number} ms
 * @returns {number} the place, from 1, of the first later than `ms`
 */
function firstAfter(times, ms) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] > ms) high = middle;
    else low = middle + 1;
  }
  return low + 1;
}
