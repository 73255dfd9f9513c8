// lagging-members.js: members of one room with history that read more slowly than messages arrive.
//
// The worker keeps only the position of such a member. When the kernel has taken all its bytes, it
// gets the messages that it missed, in order:
//
//   position ── step, drain, step, drain … ──> the last publication handed out: an ordinary member
//                  └── the history no longer has the next publication: `resync`, an ordinary member
//
// A member becomes an ordinary one only between two flushes; otherwise a flush would skip it or
// repeat publications. A member that cannot take a step waits for `resume`.
// docs/architecture/recovery.md, "Lagging members", explains the steps and their bounds.

import { KIND, kindOf, withPosition } from '../protocol/publication.js';
import { asDeliverable } from './deliverable.js';
import { replayFor } from './replay-frames.js';

/** A single publication may be larger. */
export const STEP_BYTES = 64 * 1024;
export const MAX_STEP_COUNT = 1024;
const PAGE_BYTES = 256 * 1024;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Position } from '../protocol/position.js' */
/** @import { Replay } from './replay-buffer.js' */
/** @import { Publications, ReplayFrames } from './replay-frames.js' */

export class LaggingMember {
  /**
   * @param {LaggingMembers} owner @param {Connection} connection
   * @param {Position} position of the last publication written to it
   */
  constructor(owner, connection, { epoch, offset }) {
    this.owner = owner;
    this.connection = connection;
    this.epoch = epoch;
    this.offset = offset;
    /** A publication after its position is gone, so it gets `resync`. */
    this.isLost = false;
    this.hasResynced = false;
    this.isQueued = false;
  }

  /** @param {boolean} isQueued */
  queued(isQueued) {
    this.isQueued = isQueued;
  }

  step() {
    this.owner.step(this);
  }

  /** @param {number} offset of the last publication sent to it */
  moveTo(offset) {
    this.offset = offset;
  }
}

class Page {
  /**
   * @param {number} after the read began after this offset
   * @param {import('../backend/broker.js').HistoryPage} page
   * @param {import('../observability/counters.js').Counters} counters
   */
  constructor(after, { epoch, offset, first, publications }, counters) {
    this.after = after;
    this.epoch = epoch;
    this.first = publications.length > 0 ? first : offset + 1;
    this.publications = publications.map((publication, i) =>
      kindOf(publication) === KIND.POSITIONED
        ? publication
        : withPosition(asDeliverable(publication, counters), first + i, epoch),
    );
    this.last = this.first + publications.length - 1;
  }

  /** @param {number} offset */
  has(offset) {
    return offset >= this.first && offset <= this.last;
  }

  /** Does the page prove that the history no longer has this one? @param {number} offset */
  lacks(offset) {
    return this.first > this.after + 1 && offset < this.first;
  }

  /** @param {number} from @param {number} to the last; both are here */
  slice(from, to) {
    return this.publications.slice(from - this.first, to - this.first + 1);
  }
}

export class LaggingMembers {
  /**
   * @param {object} parts
   * @param {import('./room-joins.js').RoomStream} parts.stream @param {string} parts.room
   * @param {number} parts.size publications that the room keeps
   * @param {ReplayFrames} parts.frames
   * @param {import('./delivery.js').Delivery} parts.delivery
   * @param {import('./room-joins.js').Shared} parts.shared
   */
  constructor({ stream, room, size, frames, delivery, shared }) {
    this.stream = stream;
    this.room = room;
    this.size = size;
    this.frames = frames;
    this.delivery = delivery;
    this.shared = shared;
    this.counters = shared.counters;
    /** @type {Map<Connection, LaggingMember>} */
    this.members = new Map();
    /** Members that wait for `resume`. @type {Set<LaggingMember>} */
    this.waiting = new Set();
    /** @type {Page|null} */
    this.page = null;
    this.isReading = false;
    /** The tick of the last read that failed or did not help: no other one begins in it. */
    this.failedTick = -1;
    this.isClosed = false;
  }

  /** @param {Connection} connection */
  has(connection) {
    return this.members.has(connection);
  }

  /** @param {Connection} connection @param {Position} position */
  add(connection, position) {
    this.counters.laggingMembers++;
    this.begin(new LaggingMember(this, connection, position));
  }

  /** @param {LaggingMember} member */
  begin(member) {
    this.members.set(member.connection, member);
    member.connection.beginLag();
    if (member.connection.transport.pendingBytes === 0) this.shared.steps.add(member);
    else this.stepWhenDrained(member);
  }

  /** A resync mark has passed the member. @param {Connection} connection */
  lose(connection) {
    const member = this.members.get(connection);
    if (member !== undefined) member.isLost = true;
  }

  /** @param {Connection} connection that leaves the room */
  forget(connection) {
    const member = this.members.get(connection);
    if (member !== undefined) this.end(member, 'left');
  }

  close() {
    this.isClosed = true;
    this.shared.reads.cancel(this);
    this.dropPage();
  }

  /** A flush or a read has ended: waiting members continue. */
  resume() {
    if (this.waiting.size === 0) return;
    const waiting = [...this.waiting];
    this.waiting.clear();
    for (const member of waiting) {
      // A member that has everything becomes an ordinary one now, before the next flush.
      if (this.#isCaughtUp(member)) this.finishCatchUp(member);
      else this.shared.steps.add(member);
    }
  }

  dropPage() {
    this.page = null;
    this.shared.steps.freePage(this);
  }

  /** Takes one step. StepQueue calls it. @param {LaggingMember} member */
  step(member) {
    const { connection } = member;
    if (this.members.get(connection) !== member || !connection.isOpen || this.isClosed) return;
    if (connection.transport.pendingBytes > 0) return this.stepWhenDrained(member);
    const { stream, delivery } = this;
    const end = delivery.handedOut(stream.offset);
    // A resync mark or a new epoch is about to reach all members.
    if (end < 0 || delivery.isMarking() || stream.epoch === stream.deletedEpoch)
      return void this.waiting.add(member);
    if (this.isLost(member, end)) return this.restart(member, end);
    if (this.hasAll(member, end)) return this.finishCatchUp(member);
    this.advance(member, end);
  }

  /** @param {LaggingMember} member @param {number} end */
  advance(member, end) {
    const { stream } = this;
    stream.expire();
    const next = member.offset + 1;
    const { replayBuffer } = stream;
    if (next >= replayBuffer.first) return this.#sendFrames(member, replayBuffer, end);
    const { page } = this;
    if (page?.epoch !== member.epoch) return this.#readPage(member);
    if (page.has(next)) return this.#sendFrames(member, page, Math.min(end, page.last));
    if (!page.lacks(next)) return this.#readPage(member);
    member.isLost = true;
    this.restart(member, end);
  }

  /** @param {LaggingMember} member @param {number} end */
  isLost({ isLost, epoch, offset }, end) {
    return isLost || epoch !== this.stream.epoch || offset > end;
  }

  /** @param {LaggingMember} member @param {number} end offset of the last publication handed out */
  hasAll({ offset }, end) {
    return offset === end;
  }

  /** @param {LaggingMember} member */
  #isCaughtUp(member) {
    const { stream, delivery } = this;
    const end = delivery.handedOut(stream.offset);
    return (
      this.hasAll(member, end) &&
      !this.isLost(member, end) &&
      stream.epoch !== stream.deletedEpoch &&
      member.connection.transport.pendingBytes === 0
    );
  }

  /** @param {LaggingMember} member */
  stepWhenDrained(member) {
    member.connection.transport.whenDrained(() => this.shared.steps.add(member));
  }

  /**
   * @param {LaggingMember} member
   * @param {Publications} publications those after its position, up to `end` @param {number} end
   */
  #sendFrames(member, publications, end) {
    const { connection, epoch, offset: from } = member;
    const { transport } = connection;
    const most = publications.slice(from + 1, Math.min(end, from + MAX_STEP_COUNT));
    let bytes = most[0].length;
    let n = 1;
    while (n < most.length && bytes + most[n].length <= STEP_BYTES) bytes += most[n++].length;
    const to = from + n;
    const replay = this.frames.framesOf(transport.format, { epoch, from, to }, publications);
    const audiences = connection.audiencesIn(this.room);
    const replayed = replayFor(/** @type {Replay} */ (replay), [connection.id], audiences);
    const { frames, count, isBehind } = replayed;
    member.offset = to;
    if (count > 0) {
      this.delivery.write(connection, frames, { epoch, offset: to });
      this.counters.deliveries += count;
    }
    if (isBehind) this.delivery.pass(connection, { epoch, offset: to });
    this.shared.steps.add(member);
  }

  /** Reads the page after the member's position. @param {LaggingMember} member */
  #readPage(member) {
    this.waiting.add(member);
    const { reads, wheel, steps } = this.shared;
    if (this.isReading || this.failedTick === wheel.ticks) return;
    this.isReading = true;
    const { offset: after, epoch } = member;
    const from = { after, limit: this.size, maxBytes: PAGE_BYTES, isForward: true };
    reads.read(this.room, from, this).then(
      (page) => {
        this.isReading = false;
        if (this.isClosed) return;
        // The broker has another epoch, or less than this worker. A comparison decides.
        if (page.epoch !== epoch || page.offset <= after) {
          this.failedTick = wheel.ticks;
          return this.stream.refresh();
        }
        this.page = new Page(after, page, this.counters);
        steps.keepPage(this);
        this.resume();
      },
      () => {
        this.isReading = false;
        this.failedTick = wheel.ticks;
      },
    );
  }

  /** Continues after a `resync`. @param {LaggingMember} member @param {number} end @returns {void} */
  restart(member, end) {
    const { delivery, stream, members } = this;
    if (delivery.isFlushing()) return void this.waiting.add(member);
    const { size } = members;
    member.epoch = stream.epoch;
    member.offset = end;
    member.isLost = false;
    member.hasResynced = true;
    this.finishCatchUp(member);
    delivery.resync(member.connection, { epoch: stream.epoch, offset: end }, size);
  }

  /** @param {LaggingMember} member that has everything up to the next flush */
  finishCatchUp(member) {
    if (this.delivery.isFlushing()) this.waiting.add(member);
    else this.end(member, member.hasResynced ? 'resync' : 'caught_up');
  }

  /** @param {LaggingMember} member @param {'caught_up'|'resync'|'left'} outcome */
  end(member, outcome) {
    this.members.delete(member.connection);
    this.waiting.delete(member);
    member.connection.endLag();
    this.count(member, outcome);
    if (this.members.size === 0) this.dropPage();
  }

  /** @param {LaggingMember} _member @param {'caught_up'|'resync'|'left'} outcome */
  count(_member, outcome) {
    this.counters.laggingMembers--;
    this.counters.lagsEnded[outcome]++;
  }
}
