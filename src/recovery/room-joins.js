// room-joins.js: the joins of one room with history, until they are decided.
//
// A join is one step without interruption: decide, make the connection a member, write the reply
// and the replay. The new member gets publications that wait in the outbox like all others; those
// handed out before are in its replay.
//
//   … handed out, in the replay buffer          | waiting in the outbox | arrives
//   since … ──────────── replay ─────────── offset ──── the next flush ─────────────>
//
// A join without `since` needs only the stream's position. With `since` or `last` it may have to
// wait for older publications, or for a read that proves the position. With both, `last` applies if
// `since` is not recovered.
//
// A replay omits messages that its connection does not get, and those for audiences that it does
// not hold. When a client returns, it names its former connection in `since`.

import { resolveClaims } from '../protocol/claim.js';
import { replyFormatOf } from '../protocol/format.js';
import { framesBytes } from '../protocol/frame.js';
import { timestampOf } from '../protocol/publication.js';
import { replayFor } from './replay-frames.js';

/** @import { Connection } from '../hub/connection.js' */
/** @import { Since } from '../protocol/decode.js' */
/** @import { ReplayFrames, Replayed } from './replay-frames.js' */

/**
 * The content of the reply to a join.
 * @typedef {object} Joined
 * @property {string} epoch @property {number} offset @property {boolean} recovered
 * @property {number} replayed publications sent with the reply
 * @property {number} first offset where the replay begins, including omitted publications
 * @property {number} bytes of the replay
 * @property {Buffer} [replay] if it belongs into the reply
 * @property {boolean} [isState] the room has state: messages and `synced` follow
 * @property {number} acceptedMs when the first one was accepted, in ms since 1970; Infinity if
 *   there is none
 */

/**
 * @typedef {object} JoinRequest
 * @property {Since|null} since the last publication that the client has
 * @property {number} last how many of the latest publications to send
 * @property {number} lastFromMs `last` sends only publications accepted at this time or later, in
 *   ms since 1970; 0: of any age
 * @property {boolean} hasOwn `last` includes publications that exclude this connection
 * @property {number} oldestMs if the replay would begin with a publication accepted before this
 *   time, in ms since 1970, `since` is not recovered; 0: any age is allowed
 * @property {(joined: Joined) => void} onJoined the connection is a member now: write the reply
 * @property {(error: Error) => void} onRefused with a BrokerError
 */

/**
 * A join that is not decided yet.
 * @typedef {object} Join
 * @property {Connection} connection @property {JoinRequest} request
 * @property {number} born the stream's `readsBegun` when the join arrived
 * @property {Promise<void>|null} answered null if nobody waits for it
 * @property {() => void} onAnswered
 */

/**
 * The room's stream as its joins see it. RoomSync implements it.
 * @typedef {object} RoomStream
 * @property {string} epoch '' if not known yet
 * @property {string} formerEpoch an ended epoch
 * @property {string} deletedEpoch an epoch whose history was deleted
 * @property {number} offset of the last publication handed to the outbox
 * @property {boolean} isInStep the next offset is known, so arrivals are delivered at once
 * @property {boolean} mustEnd the next read ends the epoch
 * @property {number} readsBegun the number of the latest read
 * @property {number} readsDone the number of the latest read that succeeded
 * @property {import('./replay-buffer.js').ReplayBuffer} replayBuffer
 * @property {() => void} expire forgets publications that the store has deleted
 * @property {() => Promise<void>} fill reads older publications into the replay buffer
 * @property {() => void} refresh compares the position with the broker
 */

/**
 * What all rooms of a worker share.
 * @typedef {object} Shared
 * @property {import('./read-queue.js').ReadQueue} reads
 * @property {import('./check-wheel.js').CheckWheel} wheel
 * @property {import('./catch-up.js').CatchUp} catchUp
 * @property {import('../worker/turn.js').Line<RoomJoins>} joinLine rooms whose joins wait for a
 *   share of a later turn
 * @property {import('./replay-buffer.js').ReplayBudget} replayBudget
 * @property {import('./step-queue.js').StepQueue} steps
 * @property {number} maxReplayBytes of one replay
 * @property {import('../protocol/claim.js').References} references
 * @property {import('../observability/counters.js').Counters} counters
 * @property {() => number} clock ms, monotonic
 */

export class RoomJoins {
  /**
   * @param {object} parts @param {RoomStream} parts.stream
   * @param {string} parts.room
   * @param {ReplayFrames} parts.frames of the room
   * @param {import('./delivery.js').Delivery} parts.delivery @param {Shared} parts.shared
   */
  constructor({ stream, room, frames, delivery, shared }) {
    this.stream = stream;
    this.roomName = room;
    this.frames = frames;
    this.delivery = delivery;
    this.line = shared.joinLine;
    this.maxReplayBytes = shared.maxReplayBytes;
    this.references = shared.references;
    this.counters = shared.counters;
    /** @type {Map<Connection, Join>} */
    this.pending = new Map();
    this.isInLine = false;
    this.isClosed = false;
  }

  get size() {
    return this.pending.size;
  }

  close() {
    this.isClosed = true;
  }

  /** @param {Connection} connection that the room expects @param {JoinRequest} request */
  addJoin(connection, request) {
    const { readsBegun: born } = this.stream;
    const join = { connection, request, born, answered: null, onAnswered: nothing };
    this.pending.set(connection, join);
    if (this.isInLine || this.line.isSpent()) this.#settleLater();
    else this.decide(join, null);
  }

  /**
   * @param {Connection} connection
   * @returns {Promise<void>|null} resolves when its join is answered or it has left; null if no
   *   join waits
   */
  answerTo(connection) {
    const join = this.pending.get(connection);
    if (join === undefined) return null;
    join.answered ??= new Promise((resolve) => {
      join.onAnswered = resolve;
    });
    return join.answered;
  }

  /** The connection leaves before its join is answered. @param {Connection} connection */
  forget(connection) {
    const join = this.pending.get(connection);
    if (join === undefined) return;
    this.pending.delete(connection);
    join.onAnswered();
  }

  /** @param {Error} error why the room cannot be subscribed or read */
  refuseAll(error) {
    for (const join of [...this.pending.values()]) this.refuse(join, error);
  }

  /**
   * Decides joins until the turn's share is spent; then the room waits in line.
   * @param {Error|null} error of a read: joins that wait for it are refused
   */
  settle(error = null) {
    for (const join of this.pending.values()) {
      const { size } = this.pending;
      try {
        this.decide(join, error);
      } catch (fault) {
        join.connection.fail(fault);
      }
      // A join that keeps waiting costs next to nothing, so it must not end the turn for later
      // ones.
      const isDecided = this.pending.size < size;
      if (isDecided && error === null && this.line.isSpent()) return this.#settleLater();
    }
  }

  #settleLater() {
    if (this.isInLine) return;
    this.isInLine = true;
    this.line.push(this);
  }

  /** The line calls it. */
  goOn() {
    this.isInLine = false;
    if (!this.isClosed) this.settle();
  }

  /** @param {Join} join @param {Error|null} error of the read that it waits for */
  decide(join, error) {
    const { stream } = this;
    const { since, last } = join.request;
    if (stream.epoch === '') return;
    const offset = this.delivery.handedOut(stream.offset);
    if (offset < 0) return;
    const missed =
      since === null ? null : this.#recover(join, inStream(since, stream), offset, error);
    if (missed === undefined) return;
    if (missed !== null) return this.#admitMember(join, offset, true, missed);
    const latest = last === 0 ? NOTHING : this.#latest(join, offset, error);
    if (latest !== undefined) this.#admitMember(join, offset, false, latest);
  }

  /**
   * The publications after a client's position.
   * @param {Join} join @param {Since} since @param {number} offset of the last publication
   * @param {Error|null} error of the read that the join waits for
   * @returns {Replayed|null|undefined} null: not recovered; undefined: undecided or refused
   */
  #recover(join, since, offset, error) {
    const { stream } = this;
    if (since.epoch === '' || since.epoch === stream.formerEpoch || stream.mustEnd) return null;
    if (since.epoch === stream.deletedEpoch) return null;
    if (since.epoch !== stream.epoch || since.offset > stream.offset) {
      return this.isUnknown(join, error) ? undefined : null;
    }
    if (since.offset > offset) return undefined; // until the next flush
    stream.expire();
    const { first, isFilled } = stream.replayBuffer;
    if (since.offset + 1 < first && since.offset < offset && !isFilled)
      return this.#fill(join, error);
    const { oldestMs } = join.request;
    if (oldestMs > 0 && since.offset < offset && this.#acceptedMs(since.offset + 1) < oldestMs)
      return null;
    const { connection } = join;
    return this.#replay(connection, since.offset, offset, [connection.id, since.connectionId]);
  }

  /**
   * Is it unknown whether the client's position is in the stream? On another worker, the client may
   * have seen more than this one. A read that began after the join arrived decides.
   * @param {Join} join @param {Error|null} error of the read that the join waits for
   */
  isUnknown(join, error) {
    const { stream } = this;
    const { isInStep } = stream;
    if (isInStep && stream.readsDone > join.born) return false;
    if (error) this.refuse(join, error);
    else if (isInStep) stream.refresh();
    return true;
  }

  /** When a publication was accepted, in ms since 1970; Infinity if it is not here. @param {number} offset */
  #acceptedMs(offset) {
    const { replayBuffer } = this.stream;
    if (offset < replayBuffer.first || offset >= replayBuffer.next) return Number.POSITIVE_INFINITY;
    return timestampOf(replayBuffer.at(offset));
  }

  /**
   * The latest publications that the member may see: as many as requested, kept by the room and
   * allowed at once.
   * @param {Join} join @param {number} offset of the last publication
   * @param {Error|null} error of the read that the join waits for
   * @returns {Replayed|undefined} undefined: undecided or refused
   */
  #latest(join, offset, error) {
    const { stream } = this;
    const { prefix } = this.frames;
    const { connection, request } = join;
    stream.expire();
    const { first, isFilled, maxCount } = stream.replayBuffer;
    const { last, lastFromMs, hasOwn } = request;
    const ids = hasOwn ? [] : [connection.id];
    let wanted = Math.min(last, maxCount);
    const begin = lastFromMs === 0 ? first : stream.replayBuffer.firstSince(lastFromMs);
    const audiences = connection.audiencesIn(this.roomName);
    let from = offset;
    for (; from >= begin && wanted > 0; from--)
      if (audiences.maySee(stream.replayBuffer.at(from))) wanted--;
    // If an older publication is here, so are all since lastFromMs.
    const isHere = wanted === 0 || begin > first;
    if (!isHere && !isFilled) return this.#fill(join, error);
    if (from >= offset) return NOTHING;
    const all = this.#replay(connection, from, offset, ids);
    if (all !== null) return all;
    // Too much to send at once: omit the oldest.
    const publications = resolveClaims(
      stream.replayBuffer.slice(from + 1, offset),
      this.references,
    );
    let space = this.maxReplayBytes - connection.transport.pendingBytes;
    let start = publications.length;
    while (start > 0) {
      space -= framesBytes(prefix, publications.slice(start - 1, start));
      if (space < 0) break;
      start--;
    }
    return this.#replay(connection, from + start, offset, ids) ?? NOTHING;
  }

  /** @param {Join} join @param {Error|null} error of the former read */
  #fill(join, error) {
    if (error) return this.refuse(join, error);
    this.stream.fill().catch(() => {}); // `settle` refuses the joins that wait for it
  }

  /**
   * @param {Connection} connection @param {number} from offset before the first publication
   * @param {number} to offset of the last one
   * @param {readonly string[]} ids omits messages that exclude one of these connections
   * @returns {Replayed|null} null: some are not here, or they are too much to send at once
   */
  #replay(connection, from, to, ids) {
    if (from === to) return NOTHING;
    const { maxReplayBytes, stream } = this;
    if (from + 1 < stream.replayBuffer.first) return null;
    const { format: own, pendingBytes } = connection.transport;
    const format = replyFormatOf(own) ?? own;
    const range = { epoch: stream.epoch, from, to };
    const replay = this.frames.framesOf(format, range, stream.replayBuffer, maxReplayBytes);
    if (replay === null) return null;
    const replayed = replayFor(replay, ids, connection.audiencesIn(this.roomName));
    return replayed.frames.length > maxReplayBytes - pendingBytes ? null : replayed;
  }

  /** @param {Connection} connection @param {JoinRequest} request @param {boolean} recovered */
  decided(connection, { since }, recovered) {
    this.pending.delete(connection);
    if (since !== null) this.counters.recoveries[recovered ? 'recovered' : 'insufficient']++;
  }

  /**
   * @param {Join} join @param {number} offset @param {boolean} recovered @param {Replayed} replayed
   */
  #admitMember(
    { connection, request, onAnswered },
    offset,
    recovered,
    { frames, count, from = offset },
  ) {
    const { counters } = this;
    const { epoch } = this.stream;
    const { onJoined } = request;
    this.decided(connection, request, recovered);
    const bytes = frames.length;
    const first = from + 1;
    const acceptedMs = this.#acceptedMs(first);
    const joined = { epoch, offset, recovered, replayed: count, first, bytes, acceptedMs };
    const isInReply = replyFormatOf(connection.transport.format) !== undefined;
    const reply = () => onJoined(isInReply ? { ...joined, replay: frames } : joined);
    const behind = isInReply ? NOTHING.frames : frames;
    try {
      const isReplayed = this.delivery.admit(connection, reply, behind, { epoch, offset });
      if (isReplayed || isInReply) counters.deliveries += count;
    } finally {
      onAnswered();
    }
  }

  /** @param {Join} join @param {Error} error @returns {undefined} */
  refuse({ connection, request, onAnswered }, error) {
    this.pending.delete(connection);
    if (request.since !== null) this.counters.recoveries.unavailable++;
    request.onRefused(error);
    onAnswered();
  }
}

function nothing() {}

/** The client may have left the epoch open. @param {Since} since @param {RoomStream} stream */
export function inStream(since, { epoch }) {
  return since.isAnyEpoch ? { ...since, epoch } : since;
}

/** @type {Replayed} */
const NOTHING = Object.freeze({ frames: Buffer.alloc(0), count: 0 });
