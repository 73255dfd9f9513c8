// event-queue.js: the partitions of recorded events in the memory of the primary, and their file.
//
// When the server stops, it writes the queue to FANFARE_STATE_DIR for the next server. While it
// runs, the file says so. A server that finds such a file knows that the former one was killed and
// that events are missing: the courier announces a gap.

import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LEASE_MS, PARTITIONS, partitionOf } from '../../webhooks/queue.js';
import { replaceFile } from './replace-file.js';

const NAME = 'webhooks.json';
/** Uncommitted events of a partition. Above either bound, the oldest are dropped and counted. */
const MAX_ENTRIES = 10_000;
const MAX_LENGTH = 8 * 1024 * 1024;
/**
 * While a partition has this many entries, or half of MAX_LENGTH, messages are recorded without
 * their payload. The other half is for transitions.
 */
const MAX_PAYLOADS = 1000;
/** By type: the field that `bytes` replaces. */
const LARGE = /** @type {Record<string, string>} */ ({
  'message.published': ',"payload":',
  'client.event': ',"data":',
});
const MAX_FILE_BYTES = 512 * 1024 * 1024;

/** @import { Change, Entry, EventQueue } from '../../webhooks/queue.js' */

class Partition {
  constructor() {
    /** @type {Entry[]} */
    this.entries = [];
    /** Entries before it are dropped. */
    this.first = 0;
    this.length = 0;
    /** @type {Map<string, string>} */
    this.pending = new Map();
    this.pendingLength = 0;
    /** A fence; 0: none. */
    this.owner = 0;
    this.leaseEndMs = 0;
    this.lost = 0;
    /** How many of the lost ones are announced. */
    this.announced = 0;
  }

  get size() {
    return this.entries.length - this.first;
  }

  shift() {
    this.length -= this.entries[this.first++].body.length;
    // `slice` copies, so not at each entry.
    if (this.first < 1024 || this.first < this.size) return;
    this.entries = this.entries.slice(this.first);
    this.first = 0;
  }
}

/** @implements {EventQueue} */
export class EmbeddedEventQueue {
  #partitions = Array.from({ length: PARTITIONS }, () => new Partition());
  /** The number of the latest entry, over all partitions. */
  #entries = 0;
  #fences = 0;
  #leavesPausedUntilMs = 0;
  #uncertainUntilMs = 0;

  /**
   * @param {object} [options] for tests @param {number} [options.maxEntries] of a partition
   * @param {number} [options.maxLength] characters of a partition's entries
   * @param {() => number} [options.nowMs] of a clock that never goes back
   */
  constructor({ maxEntries = MAX_ENTRIES, maxLength = MAX_LENGTH, nowMs } = {}) {
    this.maxEntries = maxEntries;
    this.maxLength = maxLength;
    this.nowMs = nowMs ?? (() => performance.now());
  }

  /** @param {string} key of the event's sequence @param {string} body JSON */
  append(key, body) {
    const partition = this.#partitions[partitionOf(key)];
    const isFull = partition.size >= MAX_PAYLOADS || 2 * partition.length >= this.maxLength;
    this.#push(partition, isFull ? withoutPayload(body) : body);
    while (
      partition.size > this.maxEntries ||
      (partition.length > this.maxLength && partition.size > 1)
    ) {
      partition.shift();
      partition.lost++;
    }
  }

  /** @param {Partition} partition @param {string} body */
  #push(partition, body) {
    partition.entries.push({ id: String(++this.#entries), body });
    partition.length += body.length;
  }

  /** @param {number} partition @returns {Promise<number|null>} */
  async acquire(partition) {
    const one = this.#partitions[partition];
    const nowMs = this.nowMs();
    if (one.owner !== 0 && one.leaseEndMs > nowMs) return null;
    one.owner = ++this.#fences;
    one.leaseEndMs = nowMs + LEASE_MS;
    return one.owner;
  }

  /** @param {number} partition @param {number} fence */
  async renew(partition, fence) {
    const one = this.#partitions[partition];
    if (!this.#owns(one, fence)) return false;
    one.leaseEndMs = this.nowMs() + LEASE_MS;
    return true;
  }

  /** @param {number} partition @param {number} fence */
  async release(partition, fence) {
    const one = this.#partitions[partition];
    if (one.owner === fence) one.owner = 0;
  }

  /** @param {Partition} partition @param {number} fence */
  #owns(partition, fence) {
    return partition.owner === fence && partition.leaseEndMs > this.nowMs();
  }

  /** @param {number} partition */
  async load(partition) {
    return new Map(this.#partitions[partition].pending);
  }

  /** @param {number} partition @param {string|null} afterId @param {number} limit */
  async read(partition, afterId, limit) {
    const { entries, first } = this.#partitions[partition];
    let at = first;
    if (afterId !== null) {
      const after = Number(afterId);
      let end = entries.length;
      while (at < end) {
        const middle = (at + end) >>> 1;
        if (Number(entries[middle].id) <= after) at = middle + 1;
        else end = middle;
      }
    }
    return entries.slice(at, at + limit);
  }

  /** @param {number} partition @param {number} fence @param {Change} change */
  async commit(partition, fence, { set, remove, upTo, announced = null }) {
    const one = this.#partitions[partition];
    if (!this.#owns(one, fence)) return false;
    if (announced !== null) one.announced = announced;
    const { pending } = one;
    for (const [field, json] of set) {
      one.pendingLength += json.length - (pending.get(field)?.length ?? 0);
      pending.set(field, json);
    }
    for (const field of remove) {
      one.pendingLength -= pending.get(field)?.length ?? 0;
      pending.delete(field);
    }
    if (upTo !== null)
      while (one.size > 0 && Number(one.entries[one.first].id) <= Number(upTo)) one.shift();
    return true;
  }

  /** @param {number} partition */
  async lost(partition) {
    const { lost, announced } = this.#partitions[partition];
    return { count: lost - announced, upTo: lost };
  }

  async size() {
    const size = { entries: 0, pending: 0, bytes: 0 };
    for (const partition of this.#partitions) {
      size.entries += partition.size;
      size.pending += partition.pending.size;
      size.bytes += partition.length + partition.pendingLength;
    }
    return size;
  }

  /** @param {number} ms */
  async pauseLeaves(ms) {
    this.#leavesPausedUntilMs = Math.max(this.#leavesPausedUntilMs, this.nowMs() + ms);
  }

  /** @param {number} ms */
  async makeUncertain(ms) {
    this.#uncertainUntilMs = this.nowMs() + ms;
  }

  async periods() {
    const nowMs = this.nowMs();
    return {
      leavesMs: Math.max(0, this.#leavesPausedUntilMs - nowMs),
      uncertainMs: Math.max(0, this.#uncertainUntilMs - nowMs),
    };
  }

  /**
   * Reads what the former server left, and marks the file as in use. Call it before the first
   * event.
   * @param {string} folder created if it does not exist
   * @throws if the folder or its file cannot be used. The queue works nevertheless.
   */
  async open(folder) {
    const path = join(folder, NAME);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const saved = await read(path);
    await write(path, { isClosed: false, lanes: [] });
    if (saved === null) return;
    const { heldUntil = 0, heldMs = 0 } = saved;
    await this.pauseLeaves(Math.min(heldUntil - Date.now(), heldMs)); // the clock may have been set
    // How many events are missing is not known.
    if (!saved.isClosed) for (const partition of this.#partitions) partition.lost++;
    for (const [number, { bodies, pending, lost }] of saved.lanes.entries()) {
      const partition = this.#partitions[number];
      for (const body of bodies) this.#push(partition, body);
      for (const [field, json] of pending) {
        partition.pending.set(field, json);
        partition.pendingLength += json.length;
      }
      partition.lost += lost;
    }
  }

  /** Writes the queue. Call it after the last event and the last commit. @param {string} folder */
  async save(folder) {
    const { leavesMs } = await this.periods();
    await write(join(folder, NAME), {
      isClosed: true,
      heldUntil: Date.now() + leavesMs,
      heldMs: leavesMs,
      lanes: this.#partitions.map(({ entries, first, pending, lost, announced }) => ({
        bodies: entries.slice(first).map(({ body }) => body),
        pending: [...pending],
        lost: lost - announced,
      })),
    });
  }
}

/**
 * As `fitting` in record.lua. Quotes within JSON strings are escaped, so the first `,"payload":`
 * and the last `,"seq":` are the event's own.
 * @param {string} body @returns with the size of a message instead of its payload
 */
function withoutPayload(body) {
  const field = LARGE[/^{"type":"([^"]*)"/.exec(body)?.[1] ?? ''];
  const head = field === undefined ? -1 : body.indexOf(field);
  if (head === -1) return body;
  const tail = body.lastIndexOf(',"seq":');
  const bytes = Buffer.byteLength(body.slice(head + field.length, tail));
  return `${body.slice(0, head)},"bytes":${bytes}${body.slice(tail)}`;
}

/**
 * @typedef {object} Saved
 * @property {boolean} isClosed false while a server runs
 * @property {number} [heldUntil] ms since 1970: clients of the server return until then
 * @property {number} [heldMs] the same, in ms after the file was written
 * @property {{bodies: string[], pending: [string, string][], lost: number}[]} lanes
 */

/** @param {string} path @returns {Promise<Saved|null>} null if there is no file */
async function read(path) {
  let text;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return null;
    throw error;
  }
  try {
    const saved = JSON.parse(text);
    if (Array.isArray(saved.lanes) && saved.lanes.length <= PARTITIONS) return saved;
  } catch {
    // Cut off or edited: treated as if the server had been killed.
  }
  return { isClosed: false, lanes: [] };
}

/** @param {string} path @param {Saved} saved */
async function write(path, saved) {
  const text = JSON.stringify(saved);
  if (text.length > MAX_FILE_BYTES) throw new Error(`${path} would have ${text.length} bytes`);
  await replaceFile(path, text);
}
