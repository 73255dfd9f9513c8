// shard-visits.js: finds users of ended sessions that only their rooms remember, in a cluster.
//   begin a session --> mark of each primary --new--> claim --> SCAN --> session's list of rooms
//   presence:{<n>}:shard     the mark of the primary that serves <n> (lua/shard.lua)
//   presence:{*}:visits      the marks of primaries that were visited (lua/visits.lua)
//
// A room's users and its session's list of rooms are in different slots. A primary that loses its
// last writes (a promoted replica that lagged, an older RDB) may have a user again whose room is no
// longer on that list, and nothing else leads to the user. So one worker walks over the keys of
// such a primary, and adds what it finds to the lists. Clearing then works as for any dead worker.
//
// If the primary of {*} has lost writes, all primaries are visited, as they are when the first
// worker of a version with visits starts.
//
// Without a loss, a session that begins costs one command for each primary and one more, however
// many rooms there are.

import { readScript } from './scripts.js';

/** A visitor without a sign of life for this time is replaced. */
const CLAIM_MS = 30_000;
/** Keys that a SCAN looks at: some 0.1 ms of Redis' time. */
const PAGE_KEYS = 500;
/** Between two pages, so that Redis serves clients meanwhile. */
const PAUSE_MS = 10;
/** After the first failure. Each further one adds as much. */
const RETRY_MS = 1000;
/** Fewer are normal: the cluster's new map of slots is not known yet. */
const LOGGED_FAILURES = 5;
const SHARD = readScript('shard');

/** @import { ClusterPrimary } from './cluster-client.js' */

/**
 * Keys of rooms that name sessions.
 * @typedef {object} Held
 * @property {string} head of the keys, before the room; then comes `}:`
 * @property {string} tail glob pattern of the rest
 * @property {(keys: string[]) => Promise<[session: string, room: string][]>} sessionsOf
 */

/**
 * @typedef {object} Scripts
 * @property {(...args: (string|number)[]) => Promise<[busy: number, ...marks: (string|number)[]]>}
 *   presenceVisits
 */

export class ShardVisits {
  /** @type {Promise<void>|null} */
  #running = null;
  #isDue = false;
  #isClosed = false;
  /** Failures in a row. */
  #failures = 0;
  /** @type {() => void} */
  #wake = () => {};

  /**
   * @param {object} parts
   * @param {{isWritable: boolean, redis: unknown, describe: (error: unknown) => string, primaries: () => ClusterPrimary[]}}
   *   parts.connection
   * @param {string} parts.prefix of keys @param {string} parts.visitor unique in the fleet
   * @param {readonly Held[]} parts.held
   * @param {(rooms: Map<string, string[]>) => Promise<void>} parts.onFound rooms by session
   * @param {() => Promise<void>} [parts.onLost] a primary may have lost writes
   * @param {{info(fields: object, text: string): void, warn(fields: object, text: string): void}} parts.log
   * @param {number} [parts.retryMs]
   */
  constructor(parts) {
    this.connection = parts.connection;
    this.prefix = parts.prefix;
    this.visitor = parts.visitor;
    this.held = parts.held;
    this.onFound = parts.onFound;
    this.onLost = parts.onLost ?? (async () => {});
    this.log = parts.log;
    this.retryMs = parts.retryMs ?? RETRY_MS;
    const redis = /** @type {any} */ (parts.connection.redis);
    redis.defineCommand('presenceVisits', { numberOfKeys: 1, lua: readScript('visits') });
    this.scripts = /** @type {Scripts} */ (redis);
  }

  /** A primary may have lost writes since the last check. */
  check() {
    this.#isDue = true;
    this.#failures = 0;
    this.#wake();
    if (!this.#isClosed) this.#running ??= this.#run();
  }

  get isIdle() {
    return this.#running === null;
  }

  close() {
    this.#isClosed = true;
    this.#wake();
  }

  /** Never rejects. */
  async #run() {
    while (this.#isDue && !this.#isClosed) {
      this.#isDue = false;
      try {
        const areOthersBusy = await this.#visitAll();
        this.#failures = 0;
        // A check that came meanwhile is about a later loss.
        if (!areOthersBusy || this.#isDue) continue;
        this.#isDue = true;
        // One of them may die.
        await this.#pause(CLAIM_MS);
      } catch (error) {
        this.#isDue = true;
        const reason = this.connection.describe(error);
        if (++this.#failures === LOGGED_FAILURES && !this.#isClosed)
          this.log.warn({ reason }, 'cannot look for users of ended sessions: trying again');
        // When the broker is up again, `check` ends the pause.
        await this.#pause(Math.min(this.retryMs * this.#failures, CLAIM_MS));
      }
    }
    // At once: a check in between would find visits that have ended.
    this.#running = null;
  }

  /** @returns {Promise<boolean>} whether other workers are visiting primaries */
  async #visitAll() {
    if (!this.connection.isWritable) throw new Error('Redis is unavailable');
    const primaries = new Map();
    let fleet = '';
    for (const primary of this.connection.primaries()) {
      const mark = await this.#markOf(primary);
      primaries.set(mark, primary);
      if (primary.hasFleetSlot) fleet = mark;
    }
    const [busy, ...claimed] = await this.#claim('claim', fleet, [...primaries.keys()]);
    for (let i = 0; i < claimed.length; i += 2) {
      const mark = String(claimed[i]);
      const primary = primaries.get(mark);
      await this.#visit(primary, () => this.#claim('claim', fleet, [mark]));
      // Otherwise keys may be missing from the walk.
      if ((await this.#markOf(primary)) !== mark) throw new Error('the primary has changed');
      if (claimed[i + 1] === 1) await this.onLost();
      await this.#claim('done', fleet, [mark]);
    }
    return busy === 1;
  }

  /** @param {ClusterPrimary} primary @returns {Promise<string>} */
  async #markOf({ redis, tag }) {
    return String(await redis.eval(SHARD, 1, `${this.prefix}presence:{${tag}}:shard`));
  }

  /** @param {'claim'|'done'} step @param {string} fleet @param {string[]} marks */
  #claim(step, fleet, marks) {
    const key = `${this.prefix}presence:{*}:visits`;
    return this.scripts.presenceVisits(key, step, this.visitor, CLAIM_MS, fleet, ...marks);
  }

  /** @param {ClusterPrimary} primary @param {() => Promise<unknown>} renew */
  async #visit({ redis, tag }, renew) {
    let renewedMs = performance.now();
    const sessions = new Set();
    for (const { head, tail, sessionsOf } of this.held) {
      const pattern = `${head.replace(/[\\*?[\]^-]/g, '\\$&')}*}:${tail}`;
      let cursor = '0';
      do {
        const [next, keys] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', PAGE_KEYS);
        cursor = next;
        const rooms = bySession(keys.length === 0 ? [] : await sessionsOf(keys));
        if (rooms.size > 0) await this.onFound(rooms);
        for (const session of rooms.keys()) sessions.add(session);
        if (performance.now() - renewedMs > CLAIM_MS / 3) {
          await renew();
          renewedMs = performance.now();
        }
        await this.#pause(PAUSE_MS);
        if (this.#isClosed) throw new Error('presence is closed');
      } while (cursor !== '0');
    }
    this.log.info(
      { tag, sessions: sessions.size },
      'looked for users of ended sessions in a primary of the cluster',
    );
  }

  /** @param {number} ms */
  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#isClosed ? 0 : ms).unref();
      this.#wake = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
  }
}

/** @param {[session: string, room: string][]} pairs @returns {Map<string, string[]>} rooms */
function bySession(pairs) {
  /** @type {Map<string, string[]>} */
  const rooms = new Map();
  for (const [session, room] of pairs) {
    const those = rooms.get(session);
    if (those === undefined) rooms.set(session, [room]);
    else those.push(room);
  }
  return rooms;
}
