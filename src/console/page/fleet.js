// fleet.js: what all servers say of themselves, and how fast their figures grow.
//
// The page keeps the surveys of the last minute, so growth needs no history on a server. A server
// that no longer answers stays in the list for a while, with the time of its last answer.

import { act } from './api.js';

/** Surveys kept: the growth of rare events is shown for this time. */
const WINDOW_MS = 60_000;
/** Rates are measured over this time. */
const RATE_MS = 10_000;
const FORGET_MS = 15 * 60_000;
const MAX_SERVERS = 200;

/**
 * `messages`, `deliveries`, `refused` and `errors` have counted since the start of the worker. A
 * worker of an older version does not send them.
 * @typedef {{server: string, version: string, slot: number, pid: number, state: string, connections: number, rooms: number, lagMs: number, memoryBytes: number, uptimeS: number, messages?: number, deliveries?: number, refused?: number, errors?: number}}
 *   WorkerInfo
 * @typedef {'messages'|'deliveries'|'refused'|'errors'} Counter
 */

/**
 * @typedef {object} Member a server
 * @property {string} name @property {WorkerInfo[]} workers as they last answered
 * @property {number} seenMs since 1970: its last answer
 * @property {boolean} isGone it was not in the last survey
 */

/**
 * @typedef {object} Sums of a server, or of all
 * @property {number} workers @property {number} ready @property {number} connections
 * @property {number|null} messages a second; null: unknown
 * @property {number|null} deliveries a second
 * @property {number|null} refused in the last minute
 * @property {number|null} errors in the last minute
 */

export class Fleet {
  /** @type {{atMs: number, workers: Map<string, WorkerInfo>}[]} */
  #surveys = [];
  /** @type {Map<string, {workers: WorkerInfo[], seenMs: number}>} */
  #servers = new Map();
  isPartial = false;

  async load() {
    const { workers, partial } = await act('workers');
    this.add(Date.now(), workers, partial);
  }

  /** @param {number} atMs @param {readonly WorkerInfo[]} workers @param {boolean} isPartial */
  add(atMs, workers, isPartial) {
    this.isPartial = isPartial;
    this.#surveys.push({ atMs, workers: new Map(workers.map((one) => [keyOf(one), one])) });
    this.#surveys = this.#surveys.filter((survey) => survey.atMs >= atMs - WINDOW_MS - RATE_MS);
    const sorted = [...workers].sort((one, other) => one.slot - other.slot);
    for (const name of new Set(sorted.map(({ server }) => server))) {
      const members = sorted.filter(({ server }) => server === name);
      this.#servers.set(name, { workers: members, seenMs: atMs });
    }
    for (const [name, { seenMs }] of this.#servers)
      if (seenMs < atMs - FORGET_MS || this.#servers.size > MAX_SERVERS) this.#servers.delete(name);
  }

  /** @returns {Member[]} by name */
  servers() {
    const atMs = this.#surveys.at(-1)?.atMs ?? 0;
    return [...this.#servers]
      .map(([name, { workers, seenMs }]) => ({ name, workers, seenMs, isGone: seenMs < atMs }))
      .sort((one, other) => one.name.localeCompare(other.name));
  }

  /** @param {string|null} server null: all @returns {Sums|null} null: no answer, or it is gone */
  sums(server) {
    const last = this.#surveys.at(-1);
    const workers = [...(last?.workers.values() ?? [])].filter(
      (one) => server === null || one.server === server,
    );
    if (workers.length === 0) return null;
    return {
      workers: workers.length,
      ready: workers.filter(({ state }) => state === 'ready').length,
      connections: workers.reduce((sum, one) => sum + one.connections, 0),
      messages: this.#growth(workers, 'messages', RATE_MS, 1000),
      deliveries: this.#growth(workers, 'deliveries', RATE_MS, 1000),
      refused: this.#growth(workers, 'refused', WINDOW_MS, WINDOW_MS),
      errors: this.#growth(workers, 'errors', WINDOW_MS, WINDOW_MS),
    };
  }

  /**
   * @param {readonly WorkerInfo[]} workers of the last survey
   * @param {Counter} counter @param {number} spanMs the longest time that is looked back
   * @param {number} perMs the time for which the growth is given, at most the time looked back
   */
  #growth(workers, counter, spanMs, perMs) {
    const last = this.#surveys[this.#surveys.length - 1];
    const base = this.#surveys.find(({ atMs }) => atMs >= last.atMs - spanMs);
    if (base === undefined || base === last) return null;
    const forMs = last.atMs - base.atMs;
    let growth = 0;
    let isKnown = false;
    for (const one of workers) {
      const now = one[counter];
      if (now === undefined) continue;
      const before = base.workers.get(keyOf(one));
      // A worker that has started since has counted from 0.
      const isNew = before === undefined && one.uptimeS * 1000 <= forMs;
      if (!isNew && before?.[counter] === undefined) continue;
      isKnown = true;
      growth += now - (before?.[counter] ?? 0);
    }
    return isKnown ? (growth * Math.min(perMs, forMs)) / forMs : null;
  }
}

/** @param {WorkerInfo} worker */
function keyOf({ server, slot, pid }) {
  return `${server} ${slot} ${pid}`;
}
