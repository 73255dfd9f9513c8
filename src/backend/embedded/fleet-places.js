// fleet-places.js: limits the connections of an address, user or app over all servers.
//
// The relay counts the places of its own server. The relays exchange these counts in reports:
//   relay --REPORT--> its carrier, a worker --Redis pub/sub--> carrier --REPORT--> each relay
//
// - A handshake costs no message. A server reports the keys of which it has at least a fifth of the
//   cap, at most MAX_KEYS of them. A server that has not reported a key closes its own connections
//   first. Such servers do not see each other, so each may exceed the cap by a fifth.
// - A report has all of these keys. It is sent within TICK_MS after a change, and repeated after
//   HEARTBEAT_MS. It is a lease: LEASE_MS after a server's last report, its places are free. When a
//   server drains, it sends an empty one. Servers have this beat in addition to that of their
//   workers (backend/membership.js), because a server must notice within LEASE_MS that it is alone,
//   in fleets of any size, and only carriers read reports.
// - If the servers together exceed the cap, each closes its part of the excess. All split the cap
//   in the same way, so they need no agreement. An excess must last for two ticks, because the
//   count of another server may be out of date.
// - The relay receives its own reports, too. If they stop arriving, another worker becomes the
//   carrier. After LEASE_MS the server is alone, and applies the cap to its own connections only.
// - Each app has a cap of its own, which comes with the handshake. There are few apps, so a server
//   reports all that it has. Their excess is refused, but not closed.

import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { kindOfKey } from '../../protocol/place-keys.js';
import { Leases } from '../membership.js';
import { decodeReport, encodeReport, LEASE_MS, SERVER_BYTES } from './place-report.js';
import { Tally } from './tally.js';

export const TICK_MS = 250;
/** Each report reaches all servers, so the interval grows with their number. */
const TICK_PER_SERVER_MS = 10;
/** A report looks at all heavy keys: 100,000 of them take some 15 ms. */
const TICK_PER_KEY_MS = 0.01;
export const HEARTBEAT_MS = 1000;
/** So that a lease outlives the loss of two reports. */
const MAX_INTERVAL_MS = 1500;
/** A carrier is replaced if no report comes back for this time. */
const PATIENCE_MS = 3000;
/** In a report: those with the most connections. */
export const MAX_KEYS = 1000;
/** Keys of all other servers together. */
const MAX_KNOWN = 100_000;
/** A key with at least this share of its cap is heavy, and reported. */
const REPORTED_SHARE = 1 / 5;
/** Otherwise, if the cap is small, every connection would be reported. */
const MIN_REPORTED = 2;
/** Of heavy keys, if there are more than MAX_KEYS. */
const RANKS = 16;

/** @type {ReadonlyMap<string, number>} */
const NO_PLACES = new Map();

/** @import { FleetRule, FleetRules } from '../places.js' */
/** @import { PlaceKind } from '../../protocol/place-keys.js' */

/**
 * @typedef {object} Volunteer a worker that can carry reports; the relay's end of its link
 * @property {ReadonlyMap<string, number>} addresses its connections by key
 * @property {(isCarrier: boolean) => void} carry starts or stops carrying reports
 * @property {(report: Buffer) => void} report sends a report to all servers
 * @property {(key: string, connections: number) => void} keep closes its newest connections of the
 *   key until this many are left
 */

/** For the primary's metrics. Gauges are marked. */
function createCounters() {
  return {
    decisions: {
      /** connections that this server alone would have admitted */ refused: 0,
      /** the same in mode `observe` */ observed: 0,
      /** connections of reported keys, admitted while the server was alone */ alone: 0,
    },
    /** gauge: connections here above the limit */
    excess: { address: 0, user: 0 },
    /** gauge: heavy keys here; a report has no room for those left out */
    keys: { reported: 0, left_out: 0 },
    reports: {
      sent: 0,
      received: 0,
      /** of another version of Fanfare */ unknown_version: 0,
      /** of other programs, or of too many servers */ malformed: 0,
    },
  };
}

export class FleetPlaces {
  /** The first is the carrier, the next one would follow it. @type {Set<Volunteer>} */
  #volunteers = new Set();
  /** Null: no worker has volunteered. @type {FleetRules|null} */
  #rules = null;
  #threshold = thresholdsOf(null);
  /** Connections here, of keys at or above their threshold. @type {Map<string, number>} */
  #heavy = new Map();
  #isChanged = false;
  /** The last report. @type {ReadonlyMap<string, number>} */
  #reported = new Map();
  /** The other servers, and their places. @type {Leases<ReadonlyMap<string, number>>} */
  #servers = new Leases({ max: MAX_KNOWN, onGone: (places) => this.#forget(places) });
  /** Connections on the other servers. */
  #elsewhere = new Tally();
  /** This server's shares of keys with an excess, at the last step. @type {Map<string, number>} */
  #over = new Map();
  #nowMs = 0;
  #sentMs = Number.NEGATIVE_INFINITY;
  /** When this server's own report last came back, or the first worker volunteered. */
  #echoMs = 0;
  #appointedMs = 0;

  /** @param {ReadonlyMap<string, number>} counts by key */
  constructor(counts) {
    this.counts = counts;
    this.id = randomBytes(SERVER_BYTES).toString('hex');
    this.counters = createCounters();
  }

  /** Including this one; 0 if it is alone, or the limits are off. */
  get servers() {
    return this.#rules === null || this.isAlone ? 0 : this.#servers.size + 1;
  }

  /** The limits are on, but no report of this server has come back for LEASE_MS. */
  get isAlone() {
    return this.#rules !== null && this.#nowMs - this.#echoMs > LEASE_MS;
  }

  /** The limits are off, and no other server has reported. */
  get isOff() {
    return this.#rules === null && this.#servers.size === 0;
  }

  /** No server has a heavy key, so until `changed` or `receive` a step is only a heartbeat. */
  get isAtRest() {
    return (
      !this.#isChanged && this.#heavy.size + this.#elsewhere.byKey.size + this.#over.size === 0
    );
  }

  figures() {
    return { servers: this.servers, ...this.counters };
  }

  /** @param {Volunteer} volunteer @param {FleetRules} rules replace those of earlier volunteers */
  volunteer(volunteer, rules) {
    if (this.#volunteers.size === 0) this.#echoMs = this.#nowMs;
    if (!isDeepStrictEqual(rules, this.#rules)) this.#setRules(rules);
    this.#volunteers.add(volunteer);
    if (this.#volunteers.size === 1) this.#appoint();
  }

  /**
   * A worker begins to drain. If it is the last one, this server's places are free at once.
   * @param {Volunteer} volunteer
   */
  resign(volunteer) {
    if (this.#volunteers.size === 1 && this.#carrier === volunteer)
      volunteer.report(encodeReport({ server: this.id, places: NO_PLACES }));
    this.leave(volunteer);
  }

  /** The link of a worker has ended. @param {Volunteer} volunteer */
  leave(volunteer) {
    const isCarrier = this.#carrier === volunteer;
    if (!this.#volunteers.delete(volunteer)) return;
    if (this.#volunteers.size === 0) this.#setRules(null);
    else if (isCarrier) this.#appoint();
  }

  /** @param {string} key @param {number} held places now */
  changed(key, held) {
    if (this.#rules === null) return;
    if (held >= this.#threshold[kindOfKey(key)]) {
      this.#heavy.set(key, held);
      this.#isChanged = true;
    } else if (this.#heavy.delete(key)) {
      this.#isChanged = true;
    }
  }

  /**
   * Would one more be too many for all servers together?
   * @param {string} key that this server alone would admit
   * @param {number} held places of the key here
   * @param {boolean} force the place is counted in any case @param {number} ownCap of an app
   */
  refuses(key, held, force, ownCap) {
    if (this.#rules === null) return false;
    const kind = kindOfKey(key);
    const { cap, mode } = ruleOf(this.#rules, kind, ownCap);
    const elsewhere = this.#elsewhere.countOf(key);
    if (mode === 'off' || elsewhere === 0 || held + elsewhere < cap) {
      if (held >= this.#threshold[kind] && this.isAlone) this.counters.decisions.alone++;
      return false;
    }
    if (mode === 'observe' || force) {
      this.counters.decisions.observed++;
      return false;
    }
    this.counters.decisions.refused++;
    return true;
  }

  /** @param {Buffer} bytes a report that the carrier has received */
  receive(bytes) {
    const report = decodeReport(bytes);
    if (typeof report === 'string') {
      this.counters.reports[report]++;
      return;
    }
    const { server, leaseMs, places } = report;
    if (server === this.id) {
      this.#echoMs = this.#nowMs;
      return;
    }
    this.#servers.endLease(server);
    if (
      this.#elsewhere.byKey.size + places.size > MAX_KNOWN ||
      !this.#servers.renewLease(server, places, leaseMs, this.#nowMs)
    ) {
      this.counters.reports.malformed++;
      return;
    }
    this.counters.reports.received++;
    for (const [key, held] of places) this.#elsewhere.add(key, held);
  }

  /** Call it every TICK_MS, at rest every HEARTBEAT_MS. @param {number} nowMs on a clock that skips stalls of this process */
  step(nowMs) {
    this.#nowMs = nowMs;
    if (this.isAlone) this.#servers.endAllLeases();
    else this.#servers.endLateLeases(nowMs);
    if (this.#rules === null) return;
    this.#closeExcess(this.#rules);
    this.#report();
    const silentMs = nowMs - Math.max(this.#echoMs, this.#appointedMs);
    if (silentMs > PATIENCE_MS && this.#volunteers.size > 1) this.#replaceCarrier();
  }

  get #carrier() {
    const [carrier = null] = this.#volunteers;
    return carrier;
  }

  #appoint() {
    this.#appointedMs = this.#nowMs;
    this.#carrier?.carry(true);
  }

  #replaceCarrier() {
    const carrier = /** @type {Volunteer} */ (this.#carrier);
    carrier.carry(false);
    this.#volunteers.delete(carrier);
    this.#volunteers.add(carrier);
    this.#appoint();
  }

  /** @param {FleetRules|null} rules */
  #setRules(rules) {
    this.#rules = rules;
    this.#threshold = thresholdsOf(rules);
    this.#heavy.clear();
    for (const [key, held] of this.counts) this.changed(key, held);
    this.#isChanged = true;
    this.#over.clear();
    Object.assign(this.counters.excess, { address: 0, user: 0 });
  }

  /** @param {ReadonlyMap<string, number>} places of a server that is gone, or has reported again */
  #forget(places) {
    for (const [key, held] of places) this.#elsewhere.add(key, -held);
  }

  /** @param {FleetRules} rules */
  #closeExcess(rules) {
    const before = this.#over;
    const excess = { address: 0, user: 0 };
    this.#over = new Map();
    for (const [key, elsewhere] of this.#elsewhere.byKey) {
      const held = this.counts.get(key) ?? 0;
      const kind = kindOfKey(key);
      if (kind === 'app') continue;
      const { cap, mode } = rules[kind];
      if (held === 0 || mode === 'off' || held + elsewhere <= cap) continue;
      const share = this.#shareOf(key, held, elsewhere, cap);
      if (held <= share) continue;
      excess[kind] += held - share;
      this.#over.set(key, share);
      const earlier = before.get(key);
      if (mode === 'enforce' && earlier !== undefined) this.#keep(key, Math.max(share, earlier));
    }
    this.counters.excess = excess;
  }

  /** @param {string} key @param {number} held @param {number} elsewhere @param {number} cap */
  #shareOf(key, held, elsewhere, cap) {
    // The others do not know these connections, so they leave no part of the cap for them.
    if (!this.#reported.has(key)) return Math.max(0, cap - elsewhere);
    const parts = [{ id: this.id, held }];
    for (const [id, { facts }] of this.#servers.members) {
      const theirs = facts.get(key);
      if (theirs !== undefined) parts.push({ id, held: theirs });
    }
    parts.sort((a, b) => (a.id < b.id ? -1 : 1));
    const shares = split(
      parts.map((part) => part.held),
      cap,
    );
    return shares[parts.findIndex(({ id }) => id === this.id)];
  }

  /** Splits this server's share among its workers. @param {string} key @param {number} share */
  #keep(key, share) {
    const holders = [...this.#volunteers].filter(({ addresses }) => addresses.has(key));
    const held = holders.map(({ addresses }) => /** @type {number} */ (addresses.get(key)));
    for (const [i, part] of split(held, share).entries())
      if (part < held[i]) holders[i].keep(key, part);
  }

  #report() {
    const intervalMs = Math.min(
      MAX_INTERVAL_MS,
      Math.max(
        TICK_MS,
        TICK_PER_SERVER_MS * this.#servers.size,
        TICK_PER_KEY_MS * this.#heavy.size,
      ),
    );
    // Steps are not exactly TICK_MS apart.
    const dueMs = (this.#isChanged ? intervalMs : HEARTBEAT_MS) - TICK_MS / 2;
    if (this.#nowMs - this.#sentMs < dueMs) return;
    if (this.#isChanged) this.#reported = this.#heaviest();
    this.#isChanged = false;
    this.#sentMs = this.#nowMs;
    this.counters.reports.sent++;
    this.counters.keys.reported = this.#reported.size;
    this.counters.keys.left_out = this.#heavy.size - this.#reported.size;
    this.#carrier?.report(encodeReport({ server: this.id, places: this.#reported }));
  }

  /** At most MAX_KEYS heavy keys: those with the largest part of their cap. */
  #heaviest() {
    const lowest = this.#heavy.size <= MAX_KEYS ? -1 : this.#lowestRank();
    /** @type {Map<string, number>} */
    const found = new Map();
    /** @type {[key: string, held: number][]} */
    const last = [];
    for (const [key, held] of this.#heavy) {
      const rank = this.#rankOf(key, held);
      if (rank > lowest) found.set(key, held);
      else if (rank === lowest && last.length < MAX_KEYS) last.push([key, held]);
    }
    for (const [key, held] of last.slice(0, MAX_KEYS - found.size)) found.set(key, held);
    return found;
  }

  /** The highest rank that has MAX_KEYS keys together with those above it. Linear: no sort. */
  #lowestRank() {
    const sizes = new Array(RANKS + 1).fill(0);
    for (const [key, held] of this.#heavy) sizes[this.#rankOf(key, held)]++;
    let rank = RANKS;
    for (let keys = sizes[rank]; keys < MAX_KEYS && rank > 0; keys += sizes[rank]) rank--;
    return rank;
  }

  /** 0 to RANKS, by the part of the cap. @param {string} key @param {number} held */
  #rankOf(key, held) {
    const kind = kindOfKey(key);
    if (kind === 'app') return RANKS;
    const cap = this.#rules?.[kind].cap ?? 1;
    return Math.min(RANKS, Math.floor((RANKS * held) / cap));
  }
}

/** @param {FleetRules} rules @param {PlaceKind} kind @param {number} ownCap of an app */
function ruleOf(rules, kind, ownCap) {
  if (kind !== 'app') return rules[kind];
  return { cap: ownCap, mode: rules.app?.mode ?? 'off' };
}

/** Connections from which on a key is heavy. @param {FleetRules|null} rules */
function thresholdsOf(rules) {
  const isOff = (rules?.app?.mode ?? 'off') === 'off';
  return {
    address: thresholdOf(rules?.address),
    user: thresholdOf(rules?.user),
    app: isOff ? Number.POSITIVE_INFINITY : 1,
  };
}

/** @param {FleetRule} [rule] */
function thresholdOf(rule) {
  if (rule === undefined || rule.mode === 'off') return Number.POSITIVE_INFINITY;
  return Math.max(MIN_REPORTED, Math.ceil(rule.cap * REPORTED_SHARE));
}

/**
 * Splits a cap among holders: the largest are cut to a common level, and the first of them get the
 * remainder. Once a holder has been cut, the shares of the others stay the same.
 * @param {readonly number[]} held @param {number} cap
 * @returns at most what each holds; together the cap, or all that they hold
 */
export function split(held, cap) {
  let left = cap;
  let cut = held.length;
  for (const one of held.toSorted((a, b) => a - b)) {
    if (one > Math.floor(left / cut)) break;
    left -= one;
    cut--;
  }
  const level = cut === 0 ? cap : Math.floor(left / cut);
  let spare = left - level * cut;
  return held.map((one) => (one <= level ? one : level + (spare-- > 0 ? 1 : 0)));
}
