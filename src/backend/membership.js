// membership.js: who is in a fleet, for as long as each member's lease holds.
//   {v, kind, from, leaseS, …}   the envelope of each message, as JSON
//
// There are two fleets: the workers of all servers (`WorkerMembership`), and the servers that share
// limits (embedded/fleet-places.js). Both have this envelope and this table (`Leases`).
//
// - Each message of a member renews the lease that it names. When the lease ends, the member is
//   gone, and with it all that it has reported.
// - A reader ignores fields and kinds that it does not know. It drops messages with a later `v`,
//   and reports them as of an unknown version.
//
// Workers send, each to all others:
//   join    a worker has started or is back, and all others answer; with the tag of its own channel
//   beat    on a change, and as a heartbeat
//   leave   the lease ends now
//
// Each message reaches all workers, so the intervals grow with the fleet, and answers go only to
// the worker that joined.

const VERSION = 1;
/** Other programs may name any lease. */
const MAX_LEASE_S = 180;
const MAX_ID_CHARS = 512;

const MIN_INTERVAL_MS = 50;
const INTERVAL_PER_WORKER_MS = 25;
const MIN_HEARTBEAT_MS = 2000;
const HEARTBEAT_PER_WORKER_MS = 50;
const MAX_HEARTBEAT_MS = 20_000;
/** A heartbeat leaves with a beat of the worker, whose period is not exact. */
const EARLY_MS = 50;
/** A lease outlives the loss of two heartbeats. */
const HEARTBEATS_PER_LEASE = 3;
/** A message takes this long to arrive. */
export const TRAVEL_MS = 20;
/** A worker that joins has all answers after this time: question and answer travel. */
const ANSWERS_MS = MIN_INTERVAL_MS + 2 * TRAVEL_MS;
/** Other programs may publish on the fleet's channel, too. */
const MAX_WORKERS = 10_000;
/** A worker's rules for rooms are in some messages. */
const MAX_MESSAGE_BYTES = 64 * 1024;

/** @typedef {Readonly<Record<string, unknown>>} Fields */

/**
 * @typedef {object} Envelope
 * @property {string} kind @property {string} from the member's id @property {number} leaseMs
 * @property {Fields} fields
 */

/** @param {string} kind @param {string} from @param {number} leaseMs @param {Fields} fields */
export function encodeEnvelope(kind, from, leaseMs, fields) {
  const leaseS = Math.ceil(leaseMs / 1000);
  return Buffer.from(JSON.stringify({ v: VERSION, kind, from, leaseS, ...fields }));
}

/**
 * @param {Buffer} bytes @param {number} maxBytes
 * @returns {Envelope|'malformed'|'unknown_version'}
 */
export function decodeEnvelope(bytes, maxBytes) {
  if (bytes.length > maxBytes) return 'malformed';
  let message;
  try {
    message = JSON.parse(bytes.toString());
  } catch {
    return 'malformed';
  }
  const { v, kind, from, leaseS, ...fields } = message ?? {};
  if (Number.isInteger(v) && v > VERSION) return 'unknown_version';
  const isNamed = typeof from === 'string' && from !== '' && from.length <= MAX_ID_CHARS;
  if (v !== VERSION || typeof kind !== 'string' || !isNamed) return 'malformed';
  if (!Number.isInteger(leaseS) || leaseS < 1) return 'malformed';
  return { kind, from, leaseMs: 1000 * Math.min(leaseS, MAX_LEASE_S), fields };
}

/** The other members, and what each has reported. @template F the facts */
export class Leases {
  /** By id. @type {Map<string, {facts: F, heardMs: number, leaseMs: number}>} */
  members = new Map();

  /** @param {object} parts @param {number} parts.max @param {(facts: F) => void} parts.onGone */
  constructor({ max, onGone }) {
    this.max = max;
    this.onGone = onGone;
  }

  get size() {
    return this.members.size;
  }

  /** @param {string} id */
  factsOf(id) {
    return this.members.get(id)?.facts;
  }

  /**
   * Replaces the facts, and renews the lease.
   * @param {string} id @param {F} facts @param {number} leaseMs @param {number} nowMs
   * @returns {boolean} false if there are too many members
   */
  renewLease(id, facts, leaseMs, nowMs) {
    if (!this.members.has(id) && this.members.size >= this.max) return false;
    this.members.set(id, { facts, heardMs: nowMs, leaseMs });
    return true;
  }

  /** @param {string} id */
  endLease(id) {
    const member = this.members.get(id);
    if (member === undefined) return;
    this.members.delete(id);
    this.onGone(member.facts);
  }

  /**
   * @param {number} nowMs on the clock of `renewLease`
   * @returns {number} when the next lease ends, unless it is renewed
   */
  endLateLeases(nowMs) {
    let earliestMs = Number.POSITIVE_INFINITY;
    for (const [id, { heardMs, leaseMs }] of this.members)
      if (nowMs - heardMs > leaseMs) this.endLease(id);
      else earliestMs = Math.min(earliestMs, heardMs + leaseMs);
    return earliestMs;
  }

  endAllLeases() {
    for (const id of this.members.keys()) this.endLease(id);
  }
}

/**
 * Messages of this worker. All are best effort, because the next one replaces them.
 * @typedef {object} Wire
 * @property {(message: Buffer) => void} sendToAll
 * @property {(message: Buffer, worker: string, tag: string) => void} sendTo one worker, on its own
 *   channel with this hash tag
 * @property {() => string} tag of this worker's own channel; empty without a cluster
 */

/**
 * What the workers report, read and written by its owners.
 * @template F
 * @typedef {object} Reports
 * @property {(sinceMs: number|null) => Fields} toTell of this worker; what others have told after
 *   `sinceMs` may be left out. Null: only what is small, because such messages are frequent
 * @property {(fields: Fields, before: F|undefined) => F|null} read null if malformed
 * @property {(facts: F) => void} onGone the facts count no longer: a member is gone
 * @property {() => number} maxHeartbeatMs for members that expect more than the lease says
 */

/** This worker's membership in the fleet of workers. @template F the facts about a worker */
export class WorkerMembership {
  /** The tags of workers that wait for an answer. @type {Map<string, string>} */
  #askers = new Map();
  #askedMs = 0;
  /** @type {NodeJS.Timeout|null} */
  #answering = null;
  isLive = false;
  #joinedMs = Number.NEGATIVE_INFINITY;
  #toldMs = Number.NEGATIVE_INFINITY;
  /** The others expect the next message within this time. */
  #promisedMs = 0;
  /** @type {NodeJS.Timeout|null} */
  #telling = null;

  /**
   * @param {object} parts @param {string} parts.id of this worker, unique in the fleet
   * @param {Wire} parts.wire @param {{nowMs: number}} parts.clock skips stalls of this process
   * @param {Reports<F>} parts.reports
   * @param {(fault: 'malformed'|'unknown_version') => void} parts.onFault another program's message,
   *   one of a later version, or too many workers
   */
  constructor({ id, wire, clock, reports, onFault }) {
    this.id = id;
    this.wire = wire;
    this.clock = clock;
    this.reports = reports;
    this.onFault = onFault;
    /** @type {Leases<F>} */
    this.others = new Leases({ max: MAX_WORKERS, onGone: reports.onGone });
  }

  /** Includes this worker. */
  get size() {
    return this.others.size + 1;
  }

  /** Between two messages about changes. */
  get intervalMs() {
    return Math.max(MIN_INTERVAL_MS, INTERVAL_PER_WORKER_MS * this.others.size);
  }

  get #heartbeatMs() {
    const wanted = Math.max(HEARTBEAT_PER_WORKER_MS * this.others.size, MIN_HEARTBEAT_MS);
    return Math.min(wanted, MAX_HEARTBEAT_MS, this.reports.maxHeartbeatMs());
  }

  /** The fleet's channel is available, for the first time or again. */
  join() {
    this.isLive = true;
    this.#joinedMs = performance.now();
    this.#send('join', { ...this.reports.toTell(this.#joinedMs), tag: this.wire.tag() });
  }

  /** Resolves when the others have answered, if this worker has just joined. */
  async awaitAnswers() {
    const wait = this.#joinedMs + ANSWERS_MS - performance.now();
    if (wait > 0) await new Promise((resolve) => void setTimeout(resolve, wait));
  }

  /** The fleet's channel is unavailable: messages would be lost. */
  pause() {
    this.isLive = false;
    this.#clearTimer();
    this.#forgetAskers();
  }

  leave() {
    if (this.isLive) this.wire.sendToAll(this.#message('leave', {}));
    this.pause();
  }

  /** A fact of this worker has changed: tells the others, at once or after the interval. */
  changed() {
    if (!this.isLive || this.#telling !== null) return;
    const wait = this.#toldMs + this.intervalMs - performance.now();
    const tell = () => this.#send('beat', this.reports.toTell(null));
    if (wait <= 0) tell();
    else this.#telling = setTimeout(tell, wait).unref();
  }

  /** @param {number} nowMs on the clock @returns {number} when something is due next */
  tick(nowMs) {
    const endMs = this.others.endLateLeases(nowMs);
    if (!this.isLive) return endMs;
    const dueMs = Math.min(this.#promisedMs, this.#heartbeatMs) - EARLY_MS;
    const now = performance.now();
    if (now - this.#toldMs >= dueMs) this.#send('beat', this.reports.toTell(now - dueMs));
    return Math.min(endMs, nowMs + dueMs - (now - this.#toldMs));
  }

  /** @param {Buffer} message */
  receive(message) {
    const envelope = decodeEnvelope(message, MAX_MESSAGE_BYTES);
    if (typeof envelope === 'string') return this.onFault(envelope);
    const { kind, from, leaseMs, fields } = envelope;
    if (from === this.id) return;
    if (kind === 'leave') this.others.endLease(from);
    else if (kind === 'join' || kind === 'beat') {
      const facts = this.reports.read(fields, this.others.factsOf(from));
      if (facts === null) return this.onFault('malformed');
      this.heard(from, facts, leaseMs);
      if (kind === 'join') this.#asked(from, fields.tag);
    }
  }

  /** @param {string} id @param {F} facts @param {number} leaseMs */
  heard(id, facts, leaseMs) {
    if (this.others.renewLease(id, facts, leaseMs, this.clock.nowMs)) return;
    this.reports.onGone(facts);
    this.onFault('malformed');
  }

  /** One delayed answer serves all workers that join together. @param {string} id @param {unknown} tag */
  #asked(id, tag) {
    if (!this.isLive || this.#askers.size >= MAX_WORKERS) return;
    this.#askers.set(id, typeof tag === 'string' ? tag : '');
    if (this.#answering !== null) return;
    this.#askedMs = performance.now();
    const wait = Math.random() * MIN_INTERVAL_MS;
    this.#answering = setTimeout(() => this.#answer(), wait).unref();
  }

  #answer() {
    const fields = this.reports.toTell(this.#askedMs);
    // Many answers cost more than one message to all. Large fields are told once for all workers
    // that lack them, and by few of those that have them.
    const isForAll = 2 * this.#askers.size > this.others.size || 'rules' in fields;
    if (isForAll) this.#send('beat', fields);
    else {
      const message = this.#message('beat', fields);
      for (const [id, tag] of this.#askers) this.wire.sendTo(message, id, tag);
    }
    this.#forgetAskers();
  }

  #forgetAskers() {
    if (this.#answering !== null) clearTimeout(this.#answering);
    this.#answering = null;
    this.#askers.clear();
  }

  /** @param {string} kind @param {Fields} fields */
  #send(kind, fields) {
    this.#clearTimer();
    this.#toldMs = performance.now();
    this.#promisedMs = this.#heartbeatMs;
    this.wire.sendToAll(this.#message(kind, fields));
  }

  /** @param {string} kind @param {Fields} fields */
  #message(kind, fields) {
    // In whole seconds, as the heartbeat is rounded up.
    const leaseMs = HEARTBEATS_PER_LEASE * 1000 * Math.ceil(this.#heartbeatMs / 1000);
    return encodeEnvelope(kind, this.id, leaseMs, fields);
  }

  #clearTimer() {
    if (this.#telling !== null) clearTimeout(this.#telling);
    this.#telling = null;
  }
}
