// state-members.js: members of one room with state that lack changes: they have just joined, read
// more slowly than messages arrive, or must begin again.
//
// Each step brings a member the next changes after its position from the worker's copy of the
// state: only the newest of each key, the oldest change first. So a member that was away for an
// hour gets each changed key once. Steps, their bounds and the end are those of lagging members.
//
//   a join            position or 0 ── steps ──> the last change: `synced` ──> an ordinary member
//   no proof          `reset`, 0    ── steps ──> the last change: `synced` ──> an ordinary member
//   a slow reader     position      ── steps ──> the last change handed out, an ordinary member
//
// The first two also get what waits for the next flush, because the copy no longer has the values
// that it supersedes: without it, keys would be missing at `synced`. That flush then skips these
// members.
//
// A position proves nothing if a later tombstone was forgotten: the member may still have that key.
// A member that begins with an empty map has no keys that were removed before (`floor`). If it
// needed their tombstones, a slow reader would begin again at each removal, for ever.

import { NO_AUDIENCES } from '../protocol/audiences.js';
import { encodeStateNotice } from '../protocol/encode.js';
import { encodePublications, FORMAT } from '../protocol/format.js';
import { LaggingMember, LaggingMembers, MAX_STEP_COUNT, STEP_BYTES } from './lagging-members.js';

/** @import { Connection } from '../hub/connection.js' */
/** @import { Audiences } from '../protocol/audiences.js' */
/** @import { Position } from '../protocol/position.js' */
/** @import { CompactedLog } from '../protocol/compacted-log.js' */
/** @typedef {import('./room-joins.js').RoomStream & {readonly log: CompactedLog}} StateStream */

const ONE = { maxCount: 1 };

class StateMember extends LaggingMember {
  /**
   * @param {StateMembers} owner @param {Connection} connection @param {Position} position
   * @param {number} floor tombstones up to this offset may be forgotten
   * @param {boolean} isSlow reads too slowly
   */
  constructor(owner, connection, position, floor, isSlow) {
    super(owner, connection, position);
    this.floor = floor;
    this.isSlow = isSlow;
    /** The member gets `synced` when it has the whole state. */
    this.isSyncing = !isSlow;
  }

  /** @param {string} epoch @param {number} floor */
  restart(epoch, floor) {
    this.isLost = false;
    this.hasResynced = true;
    this.isSyncing = true;
    this.epoch = epoch;
    this.offset = 0;
    this.floor = floor;
  }
}

/**
 * A step, shared by members that take it at the same time.
 * @typedef {object} Step
 * @property {number} from @property {number} end @property {string} epoch
 * @property {number} version offset of the state when it was made
 * @property {Audiences} audiences of its members
 * @property {number} reached @property {number} count @property {Buffer} frames
 */

export class StateMembers extends LaggingMembers {
  /**
   * @param {Omit<ConstructorParameters<typeof LaggingMembers>[0], 'stream'> & {stream: StateStream}}
   *   parts
   */
  constructor(parts) {
    super(parts);
    this.state = parts.stream;
    /** The latest of each format. @type {Step[]} */
    this.latest = [];
  }

  /** @override A slow reader. @param {Connection} connection @param {Position} position */
  add(connection, position) {
    this.counters.laggingMembers++;
    this.begin(new StateMember(this, connection, position, position.offset, true));
  }

  /** @param {Connection} connection @param {Position} position @param {number} floor */
  sync(connection, position, floor) {
    this.counters.syncingMembers++;
    this.begin(new StateMember(this, connection, position, floor, false));
  }

  /** The state was replaced: all members begin again. */
  restartAll() {
    for (const connection of this.delivery.members()) this.restartMember(connection);
  }

  /**
   * The member gets `reset`, then the state.
   * @param {Connection} connection in the room @returns false: it is about to, anyway
   */
  restartMember(connection) {
    const { epoch } = this.state;
    const behind = this.members.get(connection);
    if (behind?.isLost) return false;
    if (behind === undefined && connection.isOpen) this.sync(connection, { epoch, offset: 0 }, 0);
    this.lose(connection);
    return true;
  }

  /** @override @param {StateMember} member */
  isLost({ isLost, epoch, offset, floor }) {
    const { state } = this;
    if (isLost || epoch !== state.epoch || offset > state.offset) return true;
    return state.log.floor > Math.max(floor, offset);
  }

  /**
   * @override When the outbox removes superseded messages, the end moves past them.
   * @param {StateMember} member @param {number} end
   */
  hasAll({ offset, isSyncing }, end) {
    if (isSyncing) return false;
    if (offset >= end) return offset === end;
    return this.state.log.read(offset, end, ONE).entries.length === 0;
  }

  /** @override @param {StateMember} member @param {number} end */
  advance(member, end) {
    const { connection, epoch, offset, isSyncing } = member;
    const goal = isSyncing ? this.state.offset : end;
    // The member already has what waits in the outbox.
    if (offset > goal) return void this.waiting.add(member);
    const { reached, count, frames } = this.#stepOf(member, goal);
    member.moveTo(reached);
    if (count > 0) {
      this.delivery.write(connection, frames, { epoch, offset: reached });
      this.counters.deliveries += count;
    }
    if (isSyncing && reached === goal) this.#tellSynced(member);
    const isAtEnd = reached === end && !member.isSyncing;
    if (isAtEnd && connection.transport.pendingBytes === 0) this.finishCatchUp(member);
    else this.shared.steps.add(member);
  }

  /** @override @param {StateMember} member @param {number} end */
  restart(member, end) {
    const { epoch, offset } = this.state;
    member.restart(epoch, offset);
    const text = encodeStateNotice('reset', this.room, epoch, end);
    this.delivery.tell(member.connection, text, { epoch, offset: 0 });
    this.shared.steps.add(member);
  }

  /** @override @param {StateMember} member @param {'caught_up'|'resync'|'left'} outcome */
  end(member, outcome) {
    super.end(member, outcome);
    if (this.members.size === 0) this.latest = [];
  }

  /** @override @param {StateMember} member @param {'caught_up'|'resync'|'left'} outcome */
  count(member, outcome) {
    if (member.isSlow) super.count(member, outcome);
    else this.counters.syncingMembers--;
  }

  /** @param {StateMember} member */
  #tellSynced(member) {
    member.isSyncing = false;
    const { connection, epoch, offset } = member;
    const text = encodeStateNotice('synced', this.room, epoch, offset);
    this.delivery.tell(connection, text, { epoch, offset });
  }

  /** @param {StateMember} member @param {number} end @returns {Step} */
  #stepOf({ connection, epoch, offset: from }, end) {
    const { format } = connection.transport;
    const plain = format === FORMAT.DEFLATED ? FORMAT.FRAMES : format;
    const { log, offset: version } = this.state;
    // If all members see the same, they share their steps.
    const audiences = log.restricted > 0 ? connection.audiencesIn(this.room) : NO_AUDIENCES;
    const known = this.latest[plain];
    const isSame = known?.from === from && known.end === end && known.epoch === epoch;
    if (isSame && known.version === version && known.audiences === audiences) return known;
    const bounds = { maxCount: MAX_STEP_COUNT, maxBytes: STEP_BYTES };
    const { entries, reached } = log.read(from, end, bounds);
    const publications = entries
      .map(({ publication }) => publication)
      .filter((publication) => audiences.maySee(publication));
    const frames = encodePublications(plain, this.frames.prefix, publications);
    const { length: count } = publications;
    const step = { from, end, epoch, version, reached, count, frames, audiences };
    this.latest[plain] = step;
    return step;
  }
}
