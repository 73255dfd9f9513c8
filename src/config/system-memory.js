// system-memory.js: how much memory there is, which part of it is a worker's, and how much of it
// this process has.
//
//   all   = the machine's memory, or the least limit of the control groups this process is in
//   part  = (all - what the primary keeps) / WORKERS
//
// A worker's heap is limited to a share of its part, because buffers lie outside of the heap. Only
// private memory counts as used: program text and libraries are there once for all processes.

import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';

/**
 * cgroup v1 writes "no limit" as the greatest multiple of a page in a signed 64-bit number; 2^60 is
 * beyond any machine.
 */
const V1_UNLIMITED = 2 ** 60;
/** Kept for the primary, which has the histories of the embedded broker. */
const PRIMARY_BYTES = 512 * 1024 * 1024;
/** Of a small machine the primary keeps no more than this share. */
const PRIMARY_SHARE = 0.25;
/** Share of a worker's part that its heap may have. */
const HEAP_SHARE = 0.75;
/** A worker does not start with less. */
const MIN_PART_BYTES = 96 * 1024 * 1024;

/** @typedef {(path: string) => string} ReadFile throws as readFileSync does */

/** @type {ReadFile} */
const fromSystem = (path) => readFileSync(path, 'utf8');

/** @param {ReadFile} read */
export function memoryBytes(read) {
  return kilobytes(read, '/proc/meminfo', 'MemTotal');
}

/**
 * The part of a worker.
 * @param {number} all bytes there are for this server
 * @param {number} workers
 */
export function partOfWorker(all, workers) {
  const forWorkers = all - Math.min(PRIMARY_BYTES, all * PRIMARY_SHARE);
  return Math.max(MIN_PART_BYTES, Math.floor(forWorkers / workers));
}

/**
 * The heap limit that a worker is given.
 * @param {number} part of the worker, in bytes
 * @param {number} limit V8's own, in bytes: it is never raised
 */
export function heapOfWorker(part, limit) {
  return Math.min(limit, Math.floor(part * HEAP_SHARE));
}

/**
 * The part of each of this server's workers, as far as the system tells.
 * @param {number} workers
 * @param {ReadFile} [read]
 * @returns {number} bytes
 */
export function readPart(workers, read = fromSystem) {
  let all = totalmem();
  try {
    all = Math.min(all, cgroupMemory(read, 'self').bytes);
  } catch {
    // Not Linux, or hidden: the machine's memory is all that is known.
  }
  return partOfWorker(all, workers);
}

let latestBytes = 0;

/**
 * Memory that only this process has: resident or swapped out, in the heap or outside of it.
 * @param {ReadFile} [read]
 * @returns {number} bytes, with shared memory if the system does not tell them apart; the latest
 *   known if it can not be read now
 */
export function privateBytes(read = fromSystem) {
  try {
    const text = read('/proc/self/status');
    const anonymous = /^RssAnon:\s+(\d+) kB/m.exec(text);
    const swapped = /^VmSwap:\s+(\d+) kB/m.exec(text);
    if (anonymous !== null) {
      latestBytes = 1024 * (Number(anonymous[1]) + Number(swapped?.[1] ?? 0));
      return latestBytes;
    }
  } catch {
    // Not Linux, or no descriptor is free.
  }
  try {
    latestBytes = process.memoryUsage.rss();
  } catch {
    // No descriptor is free: Node opens a file for it too.
  }
  return latestBytes;
}

/**
 * The least memory limit of a process's control group and of those above it, as far as they can be
 * seen from here; Infinity where there is none. Both hierarchies are looked at: where v1 has the
 * memory controller v2 has no limit, and the other way round. In a container the group's path may
 * be the host's: then the mount itself is the group.
 * @param {ReadFile} read
 * @param {string} pid
 * @returns {{bytes: number, file: string}}
 */
export function cgroupMemory(read, pid) {
  const mounts = read('/proc/self/mountinfo').trim().split('\n').map(mountOf);
  let least = { bytes: Number.POSITIVE_INFINITY, file: '' };
  /**
   * @param {string} file
   * @param {number|null} bytes null: the root group has none
   */
  const consider = (file, bytes) => {
    if (bytes !== null && bytes < least.bytes && bytes < V1_UNLIMITED) least = { bytes, file };
  };
  for (const group of read(`/proc/${pid}/cgroup`).trim().split('\n')) {
    // hierarchy:controllers:path (cgroups(7)); v2 has no controllers. A path may have colons.
    const [, controllers, path] =
      /^\d+:([^:]*):(.*)$/.exec(group) ?? malformed(`/proc/${pid}/cgroup`);
    const isV2 = controllers === '';
    if (!isV2 && !controllers.split(',').includes('memory')) continue;
    const mount = mounts.find(({ type, options }) =>
      isV2 ? type === 'cgroup2' : type === 'cgroup' && options.includes('memory'),
    );
    if (mount === undefined) continue;
    const top = mount.root.replace(/\/$/, '');
    let folder = path.startsWith(`${top}/`) ? path.slice(top.length).replace(/\/$/, '') : '';
    if (!isV2) {
      // Groups above a v1 mount can't be seen, but count here.
      const stat = unlessAbsent(() => read(`${mount.point}${folder}/memory.stat`)) ?? '';
      const total = /^hierarchical_memory_limit (\d+)/m.exec(stat);
      if (total) consider(`${mount.point}${folder}/memory.limit_in_bytes`, Number(total[1]));
    }
    for (;;) {
      for (const name of isV2 ? ['memory.max', 'memory.high'] : ['memory.limit_in_bytes']) {
        const file = `${mount.point}${folder}/${name}`;
        consider(
          file,
          unlessAbsent(() => integerOf(file)(read)),
        );
      }
      if (folder === '') break;
      folder = folder.slice(0, folder.lastIndexOf('/'));
    }
  }
  return least;
}

/** One line of /proc/PID/mountinfo (proc(5)). @param {string} line */
function mountOf(line) {
  const [before, after = ''] = line.split(' - ');
  const [, , , root = '', point = ''] = before.split(' ').map(plain);
  const [type = '', , options = ''] = after.split(' ');
  return { root, point: point === '/' ? '' : point, type, options: options.split(',') };
}

/** Blanks and the like are written in octal. @param {string} text */
function plain(text) {
  return text.replace(/\\([0-7]{3})/g, (_all, octal) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}

/**
 * @param {string} path
 * @returns {(read: ReadFile) => number} `max` is Infinity
 */
export function integerOf(path) {
  return (read) => {
    const text = read(path).trim();
    if (text === 'max') return Number.POSITIVE_INFINITY;
    return /^\d+$/.test(text) ? Number(text) : malformed(path);
  };
}

/**
 * @param {ReadFile} read
 * @param {string} path
 * @param {string} name of a line `Name:   12 kB`
 * @returns {number} bytes
 */
export function kilobytes(read, path, name) {
  const match = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(path));
  return match ? 1024 * Number(match[1]) : malformed(path);
}

/**
 * @template T
 * @param {() => T} read
 * @returns {T|null} null where there is no such file
 */
export function unlessAbsent(read) {
  try {
    return read();
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return null;
    throw error;
  }
}

/**
 * @param {string} path
 * @returns {never}
 */
export function malformed(path) {
  throw new Error(`${path} has an unexpected format`);
}
