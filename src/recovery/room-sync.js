// room-sync.js: follows one room's stream for its members on this worker: nothing missed, nothing
// twice, in order.
//
// What arrives from the broker has an offset and the epoch of its stream. The follower knows the
// last one it handed to the outbox, and
//
//   the next one          goes into the window and to the outbox
//   an older one          is a repeat, and dropped
//   a later one, or one of another epoch
//                         is held, and so is what comes behind it, while one read of the broker brings what was missed
//                         (`#restore`). Where the read does not prove that this is all, members are told `resync`
//                         between the old and the new, and the stream goes on from where the broker says it stands.
//
// A stream is opened in the same way: what arrives is held until a read has said where it stands. A
// read that fails is tried again, ever more slowly, for as long as there are members. What a cut
// subscription has lost shows no gap until something else comes: so positions are compared
// (`check`) when the broker is back, and every ten seconds in rooms where nothing has arrived
// (recovery.js has the clock).
//
// An outbox that is full is a gap too: what arrives is dropped until it has drained, and is then
// read.
//
// A join is decided, the connection made a member, and the reply and the replay written in one step
// that nothing can come between: what is in the outbox goes to it with all others, and what was
// handed out before is in its replay.
//
//   … handed out before, in the window          | waiting in the outbox | arrives
//   since … ──────────── replay ─────────── offset ──── the next flush ─────────────>

import { framesBytes, publicationFrames } from '../protocol/frame.js';
import {
  encodeResyncMark,
  isEpoch,
  KIND,
  kindOf,
  offsetOf,
  withPosition,
} from '../protocol/publication.js';
import { ReplayBuffer } from './replay-buffer.js';

const MAX_HELD = 10_000;
const MAX_HELD_BYTES = 8 * 1024 * 1024;
/** In beats: the longest pause between two tries of a read. */
const MAX_PAUSE_BEATS = 8;

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/decode.js').Since} Since */
/** @typedef {import('./scheduler.js').HistoryPage} HistoryPage */

/**
 * What the reply to a join says.
 * @typedef {{epoch: string, offset: number, recovered: boolean}} Joined
 */

/**
 * What a connection asks for.
 * @typedef {object} JoinRequest
 * @property {Since|null} since the last publication it has; null: it does not say
 * @property {(joined: Joined) => void} onJoined it is a member now: write the reply
 * @property {(error: Error) => void} onRefused it is not in the room; a BrokerError
 */

/**
 * A join that is not decided yet.
 * @typedef {object} Join
 * @property {Connection} connection
 * @property {JoinRequest} request
 * @property {number} born number of the latest read that had begun when it came
 * @property {(() => void)[]} after what the connection asked for meanwhile
 */

/** @typedef {{publication: Buffer, offset: number, epoch: string}} Arrival */

export class RoomSync {
  /**
   * @param {object} parts
   * @param {import('./scheduler.js').SyncScheduler} parts.recovery
   * @param {import('../hub/hub.js').Room} parts.room
   * @param {{size: number, ttlMs: number}} parts.rule
   * @param {(connection: Connection) => void} parts.leave takes a connection out of the room
   */
  constructor({ recovery, room, rule, leave }) {
    this.recovery = recovery;
    this.room = room;
    this.rule = rule;
    this.leave = leave;
    this.isClosed = false;
    /** The stream's; '': not known yet. */
    this.epoch = '';
    /** Of the last publication handed to the outbox. */
    this.offset = 0;
    /** The epoch before this one, which does not come back. */
    this.formerEpoch = '';
    this.window = new ReplayBuffer({ maxCount: rule.size, maxBytes: recovery.maxReplayBytes });
    /** Resync marks in the outbox: it counts them down. */
    this.resyncsWaiting = 0;
    /** Not yet members. @type {Map<Connection, Join>} */
    this.joins = new Map();
    this.isSettling = false;
    /**
     * What arrived while it is not known what comes next; null: it is known.
     * @type {Arrival[]|null}
     */
    this.held = [];
    this.heldBytes = 0;
    /** Was something not held for want of room? */
    this.isHeldCut = false;
    /** The outbox was full: what arrives is dropped until it has drained. */
    this.isBehind = false;
    this.isRestoring = false;
    this.isChecking = false;
    /** Is the epoch to be ended by the next read? */
    this.mustEnd = false;
    /** @type {Promise<void>|null} */
    this.filling = null;
    this.failures = 0;
    /** Its reads that wait for a place. @type {Set<import('./scheduler.js').WaitingRead>} */
    this.waitingReads = new Set();
    /** Reads are numbered, so that a join knows whether one has begun after it came. */
    this.readsBegun = 0;
    this.readsDone = 0;
    /** The beat of the last publication that came in its turn, or of the last comparison. */
    this.provenBeat = recovery.beats;
    this.refreshedBeat = -1;
    /**
     * Its place on recovery's wheel, and whether it is compared there whatever has come meanwhile.
     */
    this.dueBeat = 0;
    this.mustCheck = false;
    /**
     * The last replay: clients of one server that has gone have mostly the same last publication.
     * @type {{from: number, to: number, epoch: string, frames: Buffer}|null}
     */
    this.replay = null;
  }

  /** The subscription is confirmed. */
  open() {
    this.#restore();
  }

  /** The room has no members any more. */
  close() {
    this.isClosed = true;
    this.held = null;
    this.replay = null;
    this.#resize(() => this.window.restart(1));
  }

  /** Does it know the stream's position? */
  get isLive() {
    return this.epoch !== '' && !this.isClosed;
  }

  /**
   * @param {Buffer} publication
   * @param {number} offset
   * @param {string} epoch
   */
  arrive(publication, offset, epoch) {
    if (this.isBehind || this.isClosed) return;
    if (this.held !== null) return this.#hold(this.held, { publication, offset, epoch });
    if (epoch === this.epoch) {
      if (offset <= this.offset) return;
      if (offset === this.offset + 1) {
        this.#deliver(publication);
        return;
      }
    } else if (epoch === this.formerEpoch) return;
    else if (!isEpoch(epoch)) return void this.recovery.counters.malformed++;
    this.held = [];
    this.#hold(this.held, { publication, offset, epoch });
    this.#restore();
  }

  /**
   * A publication without an offset has come: a server does not have the room's rule. It has no
   * place in the stream, so no replay would bring it. The epoch ends: members are told to load
   * their state, and a client that comes back with a place in it is not recovered. At most once a
   * beat.
   */
  unnumbered() {
    if (this.isClosed || this.mustEnd) return;
    this.mustEnd = true;
    this.recovery.checkIn(this, 1);
  }

  /** The outbox has written something of this room, to all its members. */
  flushed() {
    if (this.isClosed) return;
    if (this.isBehind && this.room.waiting.length === 0) {
      this.isBehind = false;
      this.held = [];
      this.#restore();
    }
    if (this.joins.size > 0) this.#settle();
  }

  /**
   * Makes a connection a member, at once or when that can be decided.
   * @param {Connection} connection not in the room
   * @param {JoinRequest} request
   */
  join(connection, request) {
    const join = { connection, request, born: this.readsBegun, after: [] };
    this.room.expect(connection);
    this.joins.set(connection, join);
    this.recovery.joining++;
    if (this.isSettling || this.recovery.isTurnSpent()) this.#settleLater();
    else this.#decide(join, null);
  }

  /**
   * Calls back at once, or when a connection's join has been answered.
   * @param {Connection} connection
   * @param {() => void} act
   */
  afterJoin(connection, act) {
    const join = this.joins.get(connection);
    if (join === undefined) act();
    else join.after.push(act);
  }

  /** A connection leaves whose join is not answered. @param {Connection} connection */
  forget(connection) {
    const join = this.joins.get(connection);
    if (join === undefined) return;
    this.joins.delete(connection);
    this.recovery.joining--;
    for (const act of join.after) act();
  }

  /** Subscribing the room has failed. @param {Error} error */
  refuse(error) {
    for (const join of [...this.joins.values()]) this.#refuse(join, error);
  }

  /**
   * Compares positions with the broker, unless that is under way. Live publications go on
   * meanwhile.
   */
  check() {
    if (this.isClosed || this.epoch === '' || this.isBehind || this.isRestoring || this.isChecking)
      return;
    if (this.mustEnd) this.held ??= [];
    if (this.held !== null) return this.#restore();
    this.isChecking = true;
    const end = () => {
      this.isChecking = false;
    };
    this.#look(0, end).catch(() => {}); // it is tried again
  }

  /**
   * Reads what there was before the window, unless it is here. Rejects where the broker is away.
   * @returns {Promise<void>}
   */
  fill() {
    if (this.window.isFilled) return Promise.resolve();
    this.filling ??= this.#look(this.rule.size, () => {
      this.filling = null;
    });
    return this.filling;
  }

  /** Forgets what the store has forgotten. */
  expire() {
    if (this.window.length === 0 || this.recovery.clock() - this.window.latestMs <= this.rule.ttlMs)
      return;
    this.#resize(() => this.window.expire());
  }

  /** Empties the window for want of room. */
  evict() {
    this.#resize(() => this.window.evict());
  }

  /**
   * A read without holding what arrives.
   * @param {number} limit
   * @param {() => void} end called when it is over, before what follows from it: that may ask for
   *   the next one
   */
  async #look(limit, end) {
    const { recovery, epoch, offset } = this;
    const number = ++this.readsBegun;
    const { era } = recovery;
    /** @type {HistoryPage} */
    let page;
    try {
      // More than the window takes is not read.
      page = await recovery.read(
        this.room.name,
        { after: 0, limit, maxBytes: recovery.maxReplayBytes },
        this,
      );
    } catch (error) {
      end();
      this.#again(/** @type {Error} */ (error));
      throw error;
    }
    end();
    if (this.isClosed) return;
    // What is to end the epoch came while this read was under way, and was not begun then.
    if (this.mustEnd) recovery.checkIn(this, 1);
    this.#done(number);
    // A restore under way or a drain of the outbox decides by itself, and so did one that has ended
    // since.
    if (this.held === null && !this.isBehind && this.epoch === epoch) {
      if (page.epoch !== epoch || page.offset > this.offset || page.offset < offset) {
        this.held = [];
        this.#restore();
      } else {
        this.provenBeat = recovery.beats;
        recovery.proven(this, era);
      }
    }
    if (limit > 0 && page.epoch === this.epoch) this.#fillFrom(page);
    // Where that brought nothing, a join would ask for the same again at once: what is under way
    // decides it first.
    const isUndecided = this.held !== null || this.isBehind;
    if (limit > 0 && isUndecided && !this.window.isFilled) return;
    this.#settle();
  }

  /** @param {HistoryPage} page */
  #fillFrom({ offset, publications }) {
    const { window, epoch } = this;
    const first = offset - publications.length + 1;
    if (offset < window.first - 1) return; // emptied since, or older than what is here
    const older = publications.slice(0, Math.max(0, window.first - first));
    this.#resize(() => {
      window.fill(
        older.map((publication, i) =>
          withPosition(this.recovery.sound(publication), first + i, epoch),
        ),
      );
      if (older.length > 0 && window.latestMs === 0) window.latestMs = this.recovery.clock();
    });
  }

  /** Reads where the stream stands and what was missed, while what arrives is held. */
  #restore() {
    if (this.isRestoring || this.isClosed) return;
    this.isRestoring = true;
    const isOpening = this.epoch === '';
    const number = ++this.readsBegun;
    const { era } = this.recovery;
    const heldBefore = this.held?.length ?? 0;
    // Where the stream stands decides most joins: they say no `since`, or one of another stream, or
    // have missed nothing.
    const limit = isOpening ? 0 : this.rule.size;
    const endedEpoch = this.mustEnd ? this.epoch : '';
    const from = { after: this.offset, limit };
    this.recovery
      .read(this.room.name, endedEpoch === '' ? from : { ...from, endedEpoch }, this)
      .then(
        (page) => {
          this.isRestoring = false;
          if (endedEpoch !== '') this.mustEnd = false;
          else if (this.mustEnd) this.recovery.checkIn(this, 1);
          if (this.isClosed) return;
          this.#done(number);
          this.#restored(page, heldBefore);
          if (this.held === null && !this.isBehind) {
            this.provenBeat = this.recovery.beats;
            this.recovery.proven(this, era);
          }
          this.#settle();
        },
        (error) => {
          this.isRestoring = false;
          if (this.isClosed) return;
          if (this.epoch === '') this.refuse(error);
          else this.#again(error);
        },
      );
  }

  /**
   * @param {HistoryPage} page
   * @param {number} heldBefore how many were held before the read began
   */
  #restored(page, heldBefore) {
    const { epoch, offset, publications } = page;
    const first = offset - publications.length + 1;
    if (
      this.epoch === '' ||
      epoch !== this.epoch ||
      offset < this.offset ||
      first > this.offset + 1
    ) {
      if (this.epoch !== '') this.#resync(epoch, offset);
      this.epoch = epoch;
      this.offset = offset;
      this.#resize(() => this.window.restart(offset + 1));
      if (publications.length > 0) {
        this.#fillFrom(page);
        // Of another stream, or with a gap: there may be more.
        this.window.isFilled = false;
      }
    } else {
      const missed = publications.slice(this.offset + 1 - first);
      if (missed.length > 0) this.recovery.counters.gaps++;
      for (const publication of missed) {
        if (!this.#deliver(publication)) break;
        this.recovery.counters.backfilled++;
      }
    }
    const held = /** @type {Arrival[]} */ (this.held);
    const isCut = this.isHeldCut;
    this.held = null;
    this.heldBytes = 0;
    this.isHeldCut = false;
    for (let i = 0; i < held.length; i++) {
      const arrival = held[i];
      // What came before the read began and does not follow now is a repeat, or nothing the stream
      // knows of.
      if (i < heldBefore && !(arrival.epoch === this.epoch && arrival.offset === this.offset + 1))
        continue;
      this.arrive(arrival.publication, arrival.offset, arrival.epoch);
    }
    if (isCut && this.held === null && !this.isBehind) {
      this.held = [];
      this.#restore();
    }
  }

  /**
   * @param {string} epoch
   * @param {number} offset
   */
  #resync(epoch, offset) {
    const { room, recovery } = this;
    recovery.counters.gaps++;
    recovery.counters.resyncs++;
    if (epoch !== this.epoch) this.formerEpoch = this.epoch;
    if (room.members.length === 0 && room.waiting.length === 0) return;
    this.resyncsWaiting++;
    recovery.outbox.mark(room, encodeResyncMark(offset, epoch));
  }

  /**
   * The next one.
   * @param {Buffer} publication
   * @returns {boolean} false where the outbox is full
   */
  #deliver(publication) {
    const { room, recovery } = this;
    if (recovery.outbox.isFull(room)) {
      this.isBehind = true;
      return false;
    }
    const kept = withPosition(recovery.sound(publication), ++this.offset, this.epoch);
    this.provenBeat = recovery.beats;
    this.#resize(() => this.window.append(kept, recovery.clock()));
    // Where something waits, though everyone has left, who joins now gets it, and this behind it.
    if (room.members.length > 0 || room.waiting.length > 0) recovery.outbox.push(room, kept);
    return true;
  }

  /**
   * @param {Arrival[]} held
   * @param {Arrival} arrival
   */
  #hold(held, arrival) {
    if (held.length >= MAX_HELD || this.heldBytes > MAX_HELD_BYTES) {
      this.isHeldCut = true; // the next read brings it
      return;
    }
    held.push(arrival);
    this.heldBytes += arrival.publication.length;
  }

  /** @param {() => void} change of the window */
  #resize(change) {
    const before = this.window.bytes;
    change();
    this.recovery.resized(this, this.window.bytes - before);
  }

  /** @param {number} number of the read that has succeeded */
  #done(number) {
    this.failures = 0;
    if (number > this.readsDone) this.readsDone = number;
  }

  /**
   * A read has failed: it is tried again later, and who waits for it is told.
   * @param {Error} error
   */
  #again(error) {
    if (this.isClosed) return;
    this.recovery.checkIn(this, Math.min(MAX_PAUSE_BEATS, 2 ** this.failures++));
    this.#settle(error);
  }

  /**
   * Decides what can be decided, some in each turn.
   * @param {Error|null} error of the read they wait for: all of them are told
   */
  #settle(error = null) {
    for (const join of this.joins.values()) {
      const { size } = this.joins;
      this.#decide(join, error);
      // Looking at one that has to wait costs next to nothing, and must not cost those behind it
      // their turn.
      const isDecided = this.joins.size < size;
      if (isDecided && error === null && this.recovery.isTurnSpent()) return this.#settleLater();
    }
  }

  #settleLater() {
    if (this.isSettling) return;
    this.isSettling = true;
    setImmediate(() => {
      this.isSettling = false;
      if (!this.isClosed) this.#settle();
    });
  }

  /**
   * @param {Join} join
   * @param {Error|null} error why what it needs can't be read now
   */
  #decide(join, error) {
    const { since } = join.request;
    if (this.epoch === '') return;
    const offset = this.#handedOut();
    if (offset < 0) return;
    if (since === null) return this.#admit(join, offset, null);
    if (since.epoch === '' || since.epoch === this.formerEpoch || this.mustEnd)
      return this.#admit(join, offset, null);
    if (since.epoch !== this.epoch || since.offset > this.offset) {
      // It may have seen more than this worker, on another one. A read that began after it came
      // knows.
      const isDecided = this.held === null && !this.isBehind;
      if (isDecided && this.readsDone > join.born) return this.#admit(join, offset, null);
      if (error) return this.#refuse(join, error);
      if (isDecided) this.#refresh();
      return;
    }
    if (since.offset > offset) return; // the flush under way brings it there
    this.expire();
    if (since.offset + 1 < this.window.first && since.offset < offset && !this.window.isFilled) {
      if (error) return this.#refuse(join, error);
      this.fill().catch(() => {}); // who waits for it has been refused
      return;
    }
    return this.#admit(join, offset, this.#replayOf(since.offset, offset, join.connection));
  }

  /** A check on behalf of a join: at most one a beat. */
  #refresh() {
    const { recovery } = this;
    if (this.refreshedBeat === recovery.beats) return recovery.checkIn(this, 1);
    this.refreshedBeat = recovery.beats;
    this.check();
  }

  /**
   * @returns {number} offset of the last publication that no longer waits for members; -1: a resync
   *   waits, and it can't be said
   */
  #handedOut() {
    if (this.resyncsWaiting > 0) return -1;
    for (const publication of this.room.waiting) {
      if (kindOf(publication) === KIND.POSITIONED) return offsetOf(publication) - 1;
    }
    return this.offset;
  }

  /**
   * The frames of what a client missed, in one buffer that all with the same place share.
   * @param {number} since
   * @param {number} offset the last
   * @param {Connection} connection
   * @returns {Buffer|null} null where not all of it is here, or it is more than a connection may be
   *   sent at once
   */
  #replayOf(since, offset, connection) {
    if (since === offset) return NOTHING;
    const { window, recovery, room, epoch } = this;
    if (since + 1 < window.first) return null;
    const maxBytes = recovery.maxReplayBytes - connection.transport.pendingBytes;
    let { replay } = this;
    if (
      replay === null ||
      replay.from !== since ||
      replay.to !== offset ||
      replay.epoch !== epoch
    ) {
      const publications = window.slice(since + 1, offset);
      if (framesBytes(room.prefix, publications) > recovery.maxReplayBytes) return null;
      replay = {
        from: since,
        to: offset,
        epoch,
        frames: publicationFrames(room.prefix, publications),
      };
      this.replay = replay;
    }
    return replay.frames.length <= maxBytes ? replay.frames : null;
  }

  /**
   * From here to its end nothing else runs.
   * @param {Join} join
   * @param {number} offset
   * @param {Buffer|null} frames what is replayed; null: not recovered
   */
  #admit({ connection, request, after }, offset, frames) {
    const { recovery, room, epoch } = this;
    this.joins.delete(connection);
    recovery.joining--;
    if (request.since !== null)
      recovery.counters.recoveries[frames === null ? 'insufficient' : 'recovered']++;
    room.add(connection);
    request.onJoined({ epoch, offset, recovered: frames !== null });
    if (
      frames !== null &&
      frames.length > 0 &&
      recovery.slowConsumers.admit(connection, frames.length, true)
    ) {
      connection.transport.write(frames);
      recovery.counters.deliveries += offset - /** @type {Since} */ (request.since).offset;
      recovery.counters.bytesOut += frames.length;
    }
    for (const act of after) act();
  }

  /**
   * @param {Join} join
   * @param {Error} error
   */
  #refuse({ connection, request, after }, error) {
    this.joins.delete(connection);
    this.recovery.joining--;
    if (request.since !== null) this.recovery.counters.recoveries.unavailable++;
    this.leave(connection);
    request.onRefused(error);
    for (const act of after) act();
  }
}

const NOTHING = Buffer.alloc(0);
