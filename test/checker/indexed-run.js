// indexed-run.js: the state of a run at a point of its record.
//
// The record is gone through once and in order, and no delivery is kept: of each publication, of
// each stream of offsets and of each client in each room there is one small object. Ten minutes of
// 500 messages a second to 200 clients are ten million deliveries and need 200 MB.
//
// A *segment* is the time a client is subscribed without interruption: from a reply to the close. A
// *span* is a sequence that the application may treat as unbroken. It begins with a reply or a
// `resync`, and continues through a close if the next reply has `recovered: true`.

import { Audiences } from './audiences.js';
import { Publication, Stream } from './publications.js';
import { NO_REPLY } from './record.js';
import { States } from './states.js';
import { Users } from './users.js';

/** @typedef {import('./record.js').Event} Event */
/** @typedef {import('./record.js').Position} Position */

/**
 * How long healing may take once nothing is being done to the servers: a position check each 10 s,
 * and time to act on it.
 */
export const SETTLE_US = 15_000_000;

/** @typedef {{reason: string, position?: Position, t: number}} Refusal */

/** A message is recorded so long after it was accepted, at most. */
const RECORDING_US = 2_000_000;
/** A message of a plain room needs no longer to arrive, in calm. */
export const ARRIVING_US = 2_000_000;
/** Answers to a publish while the broker is unavailable. */
const SAID_WHILE_AWAY = new Set(['UNAVAILABLE', 'OUTCOME_UNKNOWN']);

/**
 * Refusals further apart belong to two outages: publishers that stay with a server publish every
 * second or two, so in between it had none.
 */
const UNASKED_US = 5_000_000;

/**
 * Of a gap no more offsets are kept one by one: an offset far off is a fault of its own, and no
 * reason to run out of memory.
 */
const MAX_SKIPPED = 100_000;

/** The newest messages, up to the reply's offset, that a join with `last` has to bring. */
class Tail {
  /**
   * @param {Member} member
   * @param {Stream} stream
   * @param {number} to the reply's offset
   * @param {number} asked this many
   * @param {number} replayed the announced number; NaN: the client does not report it
   * @param {number} at the time of the reply
   */
  constructor(member, stream, to, asked, replayed, at) {
    this.member = member;
    this.stream = stream;
    this.to = to;
    this.asked = asked;
    this.replayed = replayed;
    this.at = at;
    /** @type {Set<number>} */
    this.got = new Set();
    /** A live message has come behind it. */
    this.isComplete = false;
  }
}

/** One client in one room. */
export class Member {
  /** @param {number} client @param {string} room @param {boolean} hasHistory */
  constructor(client, room, hasHistory) {
    this.client = client;
    this.room = room;
    this.hasHistory = hasHistory;
    /** Subscribed: between a reply and the close. */
    this.isOpen = false;
    this.openedAt = 0;
    this.closedAt = Number.POSITIVE_INFINITY;
    /** @type {Position|undefined} the `since` of its request */
    this.since = undefined;
    /**
     * The span: which stream, behind which offset it began, the last offset.
     * @type {Stream|null}
     */
    this.stream = null;
    this.from = 0;
    this.last = 0;
    /** Offsets in between that it did not get. @type {Set<number>|null} */
    this.skipped = null;
    /** Up to which offset a replay was promised. */
    this.replayTo = 0;
    /** Of its request: this many of the newest messages. */
    this.asked = 0;
    /** Its request had the position of another room, so the server knows of none. */
    this.isMisplaced = false;
    /** While those arrive. @type {Tail|null} */
    this.tail = null;
    /** When it left the room, or joined it as a new one. */
    this.leftAt = Number.NEGATIVE_INFINITY;
    /** In a plain room: a bit for each publication of the room that this connection received. */
    this.got = new Uint32Array(0);
    /**
     * The publication of each publisher that was sent last, of those seen in this span or on this
     * connection.
     * @type {Map<string, Publication>}
     */
    this.latest = new Map();
    this.markerAt = Number.POSITIVE_INFINITY;
    /** The last number of subscribers that it was told of since its reply. */
    this.count = Number.NaN;
    /** The last offset that came since the latest reply or `resync`, even if the client dropped it. */
    this.wireAt = Number.NEGATIVE_INFINITY;
  }

  /** Is a replay under way? */
  get isReplaying() {
    return this.last < this.replayTo;
  }

  toString() {
    return `client ${this.client} in ${this.room}`;
  }

  /**
   * @param {Stream|null} stream
   * @param {number} offset the first of it will be one above
   */
  beginSpan(stream, offset) {
    this.stream = stream;
    this.from = this.last = this.replayTo = offset;
    this.skipped = null;
    this.tail = null;
    this.wireAt = Number.NEGATIVE_INFINITY;
    this.latest.clear();
  }

  /**
   * @param {number} number
   * @returns {boolean} was it there already?
   */
  mark(number) {
    const word = number >>> 5;
    if (word >= this.got.length) {
      const grown = new Uint32Array(Math.max(16, 2 * word));
      grown.set(this.got);
      this.got = grown;
    }
    const bit = 1 << (number & 31);
    const had = (this.got[word] & bit) !== 0;
    this.got[word] |= bit;
    return had;
  }

  /** Has this span delivered that offset? @param {number} offset */
  has(offset) {
    return offset > this.from && offset <= this.last && !this.skipped?.has(offset);
  }
}

/** A client's connection, and its last notice about the broker. */
export class Link {
  /**
   * @param {number} t @param {number} server
   * @param {boolean} isLate it was opened in an outage that others had been told of: only `welcome`
   *   says so, and these clients do not ask for one
   */
  constructor(t, server, isLate) {
    this.openedAt = t;
    this.isLate = isLate;
    this.server = server;
    /** When that notice came. */
    this.toldAt = Number.NEGATIVE_INFINITY;
    /** When it was withdrawn; Infinity: it holds. */
    this.withdrawnAt = Number.NEGATIVE_INFINITY;
    /** What waits until then has not been read; Infinity: its client does not read. */
    this.unreadUntil = Number.NEGATIVE_INFINITY;
  }

  get isDegraded() {
    return this.withdrawnAt === Number.POSITIVE_INFINITY;
  }

  /**
   * Did a notice by `until` report that the broker was away at `since`?
   * @param {number} since @param {number} until
   */
  wasTold(since, until) {
    return this.toldAt <= until && this.withdrawnAt >= since;
  }
}

/**
 * A delivery, as the invariants see it: before it has changed anything but `isRepeated`. One
 * object, used again.
 */
export class Sight {
  constructor() {
    this.t = 0;
    this.value = '';
    this.room = '';
    /** @type {Publication|undefined} undefined: no publisher sent it */
    this.publication = undefined;
    /** @type {Member} */
    // @ts-expect-error: set before it is handed out
    this.member = undefined;
    /** @type {Stream|null} null in a plain room */
    this.stream = null;
    this.offset = 0;
    /** In a plain room: this connection has had it. */
    this.isRepeated = false;
  }

  /** Was it published, and to that room? */
  get isGenuine() {
    return this.publication !== undefined && this.publication.room === this.room;
  }

  toString() {
    const place = this.stream === null ? '' : ` at ${this.stream.epoch}:${this.offset}`;
    return `${this.value}${place} to ${this.member}`;
  }
}

export class IndexedRun {
  constructor() {
    /** @type {Set<string>} */
    this.history = new Set();
    /** Messages that a room with history keeps. */
    this.kept = Number.POSITIVE_INFINITY;
    /** Connections hold few bytes. */
    this.isNarrow = false;
    /** @type {Map<string, Publication>} */
    this.publications = new Map();
    /** How many there are in each room. @type {Map<string, number>} */
    this.counts = new Map();
    /** @type {Map<string, Map<string, Stream>>} by room, then epoch */
    this.streams = new Map();
    /** @type {Map<number, Map<string, Member>>} by client, then room */
    this.clients = new Map();
    /** Of the clients that are connected. @type {Map<number, Link>} */
    this.links = new Map();
    /**
     * By server: the first and the latest of the refused publishes after its last accepted one.
     * @type {Map<number, {since: number, latest: number}>}
     */
    this.refusals = new Map();
    /** @type {Map<string, number>} members subscribed now */
    this.open = new Map();
    /** The latest accepted position of each publisher in a room. @type {Map<string, Position>} */
    this.settled = new Map();
    /** The last marker of each room. @type {Map<string, Publication>} */
    this.markers = new Map();
    /** Every join with `last`. @type {Tail[]} */
    this.tails = [];
    /** Clients that publish without an echo. @type {Set<number>} */
    this.quiet = new Set();
    /**
     * Offsets that such a client did not get: its own messages.
     * @type {{member: Member, stream: Stream, offset: number}[]}
     */
    this.holes = [];
    this.users = new Users();
    this.states = new States();
    this.audiences = new Audiences();
    /** Rooms whose messages webhooks have. @type {Set<string>} */
    this.recorded = new Set();
    /** Accepted in calm, so that webhooks have to have them. @type {Set<Publication>} */
    this.owed = new Set();
    /** Of plain rooms, accepted in calm a moment ago. @type {Set<Publication>} */
    this.awaited = new Set();
    /**
     * Positions that CONFLICT named.
     * @type {{publication: Publication, stream: Stream, offset: number}[]}
     */
    this.conflicts = [];
    /** @type {Map<string, {before?: Record<string, number>, after?: Record<string, number>}>} */
    this.gauges = new Map();
    this.now = Number.NEGATIVE_INFINITY;
    /** The faults in progress. */
    this.disturbances = 0;
    /** Since when nothing is; NaN while something is. */
    this.calmSince = Number.NEGATIVE_INFINITY;
    /** The last time of calm before that which lasted long enough for everything to settle. */
    this.longCalm = { from: 0, to: Number.NEGATIVE_INFINITY };
    this.hasEnded = false;
    this.sight = new Sight();
  }

  /** @param {string} value @returns {Publication} */
  publication(value) {
    const publication = this.publications.get(value);
    if (publication === undefined) throw new Error(`the record is wrong: ${value} was never sent`);
    return publication;
  }

  /**
   * @param {string} room
   * @returns {Iterable<Stream>} in the order they were heard of
   */
  streamsOf(room) {
    return this.streams.get(room)?.values() ?? [];
  }

  /** @returns {Generator<Member>} */
  *members() {
    for (const rooms of this.clients.values()) yield* rooms.values();
  }

  /** Messages of plain rooms that may still be on their way. @param {number} t */
  #underWay(t) {
    for (const one of this.awaited) if (one.okAt <= t - ARRIVING_US) this.awaited.delete(one);
    return this.awaited;
  }

  /** Those who have been in a room for long. @param {string} room */
  residents(room) {
    let count = 0;
    for (const rooms of this.clients.values()) {
      const member = rooms.get(room);
      if (member?.isOpen && this.now - member.openedAt >= SETTLE_US) count++;
    }
    return count;
  }

  /** Has nothing been done to the servers for as long as healing may take? */
  get isSettled() {
    return this.disturbances === 0 && this.now - this.calmSince >= SETTLE_US;
  }

  /**
   * The latest moment of a segment that was followed, within the segment, by an undisturbed time in
   * which everything must have settled. Messages accepted by then had to arrive.
   * @param {Member} member still open
   * @returns {number} -Infinity if there is no such moment
   */
  settledMoment(member) {
    const calm = this.disturbances === 0 ? { from: this.calmSince, to: this.now } : this.longCalm;
    for (const { from, to } of [calm, this.longCalm]) {
      if (to - Math.max(from, member.openedAt) >= SETTLE_US) return to - SETTLE_US;
    }
    return Number.NEGATIVE_INFINITY;
  }

  /** @param {number} client @param {string} room @returns {Member} */
  member(client, room) {
    let rooms = this.clients.get(client);
    if (rooms === undefined) this.clients.set(client, (rooms = new Map()));
    let member = rooms.get(room);
    if (member === undefined)
      rooms.set(room, (member = new Member(client, room, this.history.has(room))));
    return member;
  }

  /**
   * @param {string} room
   * @param {string|undefined} epoch
   * @returns {Stream|null} null if the message had no position
   */
  stream(room, epoch) {
    if (epoch === undefined) return null;
    let epochs = this.streams.get(room);
    if (epochs === undefined) this.streams.set(room, (epochs = new Map()));
    let stream = epochs.get(epoch);
    if (stream === undefined) epochs.set(epoch, (stream = new Stream(room, epoch, this.now)));
    return stream;
  }

  /**
   * Is this the place of a message that the client has published without an echo?
   * @param {Stream} stream @param {number} offset @param {number} client
   */
  isOwn(stream, offset, client) {
    return stream.places.get(offset)?.client === client;
  }

  /**
   * The highest offset accepted until a moment that a member has to get.
   * @param {Member} member in a stream
   * @param {number} moment
   */
  dueTo(member, moment) {
    const stream = /** @type {Stream} */ (member.stream);
    let due = stream.acceptedUntil(moment);
    while (due > member.last && this.isOwn(stream, due, member.client)) due--;
    return due;
  }

  /**
   * A client that publishes without an echo gets no message at these offsets.
   * @param {Member} member @param {Stream} stream @param {number} end
   */
  #skip(member, stream, end) {
    const last = Math.min(end, member.last + MAX_SKIPPED);
    for (let offset = member.last + 1; offset < last; offset++)
      this.holes.push({ member, stream, offset });
  }

  // The effects of events. The invariants have been checked before, with the previous state.

  /** @param {Extract<Event, {type: 'invoke'}>} event */
  invoke({ t, value, marker, via = 0, server = 0, client: by, expect = undefined, keyed = false }) {
    if (this.publications.has(value))
      throw new Error(`the record is wrong: ${value} was sent twice`);
    const client = by ?? null;
    const link = (client !== null && this.links.get(client)) || null;
    const publication = new Publication(value, t, marker === true, via, server, client, link);
    if (client !== null) this.quiet.add(client);
    publication.expect = expect ?? null;
    publication.isKeyed = keyed;
    const { room } = publication;
    publication.number = this.counts.get(room) ?? 0;
    this.counts.set(room, publication.number + 1);
    publication.behind = this.settled.get(`${publication.publisher}:${room}`) ?? null;
    if (!this.history.has(room)) publication.members = this.open.get(room) ?? 0;
    if (publication.isMarker) this.markers.set(room, publication);
    this.publications.set(value, publication);
  }

  /**
   * @param {Publication} publication
   * @param {number} t
   * @param {Stream|null} stream
   * @param {number} offset
   */
  ok(publication, t, stream, offset) {
    this.refusals.delete(publication.server);
    publication.outcome = 'ok';
    publication.okAt = t;
    if (this.isSettled && !publication.isMarker && this.recorded.has(publication.room))
      this.owed.add(publication);
    if (stream === null && this.isSettled) {
      publication.inCalmTo = this.residents(publication.room);
      this.awaited.add(publication);
    }
    if (stream === null) return;
    this.#place(publication, stream, offset);
    stream.accepted(offset, publication.invokedAt, t);
    const key = `${publication.publisher}:${publication.room}`;
    const settled = this.settled.get(key);
    if (settled === undefined || settled.epoch !== stream.epoch || settled.offset < offset)
      this.settled.set(key, { epoch: stream.epoch, offset });
  }

  /**
   * @param {Publication} publication
   * @param {'fail'|'info'} outcome
   * @param {Refusal} refusal
   */
  notOk(publication, outcome, { reason, position, t }) {
    publication.outcome = outcome;
    publication.isAnswered = reason !== NO_REPLY;
    if (position !== undefined) {
      const stream = /** @type {Stream} */ (this.stream(publication.room, position.epoch));
      this.conflicts.push({ publication, stream, offset: position.offset });
    }
    if (outcome === 'info') publication.unknownAt = t;
    // Only an answer counts: without one the server itself may be away. A Redis without replicas may
    // refuse what it would have to store, and goes on passing on what it need not.
    if (!SAID_WHILE_AWAY.has(reason) || this.history.has(publication.room)) return;
    const refusals = this.refusals.get(publication.server);
    if (refusals === undefined || t - refusals.latest > UNASKED_US)
      this.refusals.set(publication.server, { since: t, latest: t });
    else refusals.latest = t;
  }

  /** @param {Extract<Event, {type: 'deliver'|'repeat'}>} event @returns {Sight} */
  sighted({ t, client, room, value, epoch, offset }) {
    const { sight } = this;
    sight.t = t;
    sight.value = value;
    sight.room = room;
    sight.publication = this.publications.get(value);
    sight.member = this.member(client, room);
    sight.stream = this.stream(room, epoch);
    sight.offset = offset ?? 0;
    const { publication, member } = sight;
    const { tail } = member;
    if (tail !== null && sight.stream === tail.stream && sight.offset > tail.to) {
      tail.isComplete = true;
      member.tail = null;
      member.last = Math.max(member.last, tail.to);
    }
    sight.isRepeated =
      !member.hasHistory && publication?.room === room && member.mark(publication.number);
    return sight;
  }

  /** @param {Sight} sight */
  deliver({ t, publication, member, stream, offset, isRepeated, isGenuine }) {
    if (publication === undefined || !isGenuine) return;
    publication.sights++;
    if (publication.isMarker) member.markerAt = t;
    const latest = member.latest.get(publication.publisher);
    if (latest === undefined || latest.invokedAt < publication.invokedAt)
      member.latest.set(publication.publisher, publication);
    if (stream === null) {
      if (!isRepeated && member.isOpen && member.openedAt < publication.invokedAt)
        publication.reached++;
      return;
    }
    this.#place(publication, stream, offset);
    if (offset > stream.highest) stream.highest = offset;
    if (stream !== member.stream) member.beginSpan(stream, offset - 1);
    member.tail?.got.add(offset);
    // A tail may begin later than asked for, and a quiet client does not get its own messages.
    const isQuiet = this.quiet.has(member.client);
    if (isQuiet && member.tail === null) this.#skip(member, stream, offset);
    const isWhole = !isQuiet && member.tail === null;
    const end = isWhole ? Math.min(offset, member.last + MAX_SKIPPED) : 0;
    for (let skipped = member.last + 1; skipped < end; skipped++) {
      (member.skipped ??= new Set()).add(skipped);
      stream.skipped.add(skipped);
    }
    if (offset > member.last) member.last = offset;
    member.wireAt = offset;
  }

  /** The client has dropped it. @param {Sight} sight */
  repeat({ member, offset }) {
    member.wireAt = offset;
  }

  /**
   * The promises for a plain room apply to one connection.
   * @param {number} client @param {number} t @param {number} [server] @param {string} [user]
   */
  connect(client, t, server = 0, user = undefined) {
    const isLate = [...this.links.values()].some(
      (link) => link.server === server && link.isDegraded,
    );
    this.links.set(client, new Link(t, server, isLate));
    this.users.connect(client, user, t);
    for (const member of this.clients.get(client)?.values() ?? []) {
      if (member.hasHistory) continue;
      member.got.fill(0);
      member.latest.clear();
    }
  }

  /**
   * @param {Member} member
   * @param {Position|undefined} since
   * @param {number} [asked] so many of the newest messages
   */
  subscribe(member, since, asked = 0) {
    if (member.isOpen) throw new Error(`the record is wrong: ${member} subscribes twice`);
    member.asked = asked;
    if (
      since !== undefined &&
      (since.epoch !== member.stream?.epoch || since.offset !== member.last)
    )
      throw new Error(`the record is wrong: ${member} is not at ${since.epoch}:${since.offset}`);
    member.since = since;
  }

  /**
   * @param {Member} member
   * @param {number} t
   * @param {Stream|null} stream
   * @param {number} offset
   * @param {boolean} isRecovered
   * @param {number} [replayed]
   */
  reply(member, t, stream, offset, isRecovered, replayed = Number.NaN) {
    if (!member.isOpen) this.open.set(member.room, (this.open.get(member.room) ?? 0) + 1);
    member.isOpen = true;
    member.openedAt = t;
    member.count = Number.NaN;
    this.users.join(member.client, member.room, t);
    if (!member.hasHistory) return;
    if (isRecovered && stream === member.stream) {
      member.replayTo = offset;
      member.wireAt = Number.NEGATIVE_INFINITY;
      return;
    }
    member.beginSpan(stream, Math.max(0, offset - member.asked));
    if (member.asked === 0 || stream === null) return;
    member.tail = new Tail(member, stream, offset, member.asked, replayed, t);
    this.tails.push(member.tail);
  }

  /** @param {number} client @param {boolean} isDegraded @param {number} t */
  told(client, isDegraded, t) {
    const link = this.links.get(client);
    if (link === undefined) return;
    if (isDegraded === link.isDegraded) return;
    // The first notice of an outage counts; it may have come before the first refusal.
    const since = this.refusals.get(link.server)?.since ?? Number.POSITIVE_INFINITY;
    if (isDegraded && link.withdrawnAt < since) link.toldAt = t;
    link.withdrawnAt = isDegraded ? Number.POSITIVE_INFINITY : t;
  }

  /** @param {number} client @param {boolean} reads @param {number} t */
  reads(client, reads, t) {
    const link = this.links.get(client);
    if (link !== undefined) link.unreadUntil = reads ? t : Number.POSITIVE_INFINITY;
  }

  /** @param {Member} member */
  close(member) {
    if (!member.isOpen) return;
    if (!member.hasHistory)
      for (const one of this.#underWay(this.now)) if (one.room === member.room) one.inCalmTo--;
    member.isOpen = false;
    member.closedAt = this.now;
    member.tail = null;
    this.users.leave(member.client, member.room, this.now, this.calmSince);
    this.open.set(member.room, (this.open.get(member.room) ?? 0) - 1);
  }

  /** @param {number} t */
  disturb(t) {
    // A worker that is killed may have accepted a message, and not recorded it.
    for (const one of this.owed) if (one.okAt > t - RECORDING_US) this.owed.delete(one);
    for (const one of this.#underWay(t)) one.inCalmTo = 0;
    if (this.disturbances++ > 0) return;
    if (t - this.calmSince >= SETTLE_US) this.longCalm = { from: this.calmSince, to: t };
    this.calmSince = Number.NaN;
  }

  /** @param {number} t */
  undisturb(t) {
    if (--this.disturbances === 0) this.calmSince = t;
  }

  /** @param {Publication} publication @param {Stream} stream @param {number} offset */
  #place(publication, stream, offset) {
    if (!stream.places.has(offset)) stream.places.set(offset, publication);
    // The latest epoch it was seen in: it is one offset per epoch that is promised.
    if (publication.stream === stream) return;
    publication.stream = stream;
    publication.offset = offset;
  }
}
