// system-memory.js: the memory for the server, a worker's share of it, and the use of this process.
//   all   = the memory of the machine, or the lowest limit of the control groups of this process
//   part  = (all - the reserve of the primary) / WORKERS
//
// The heap of a worker is limited to a share of its part, because buffers are outside the heap.
// Only private memory counts as used, because all processes share program text and libraries.

import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';

/** cgroup v1 writes nearly 2^63 for "no limit". No machine has 2^60 bytes. */
const V1_UNLIMITED = 2 ** 60;
/** Reserve of the primary: with full histories of the embedded broker it takes 593 MB. */
const PRIMARY_BYTES = 600 * 1024 * 1024;
/** Upper bound of that reserve, as a share of the memory, for small machines. */
const PRIMARY_SHARE = 0.25;
/** Share of a worker's part that its heap may use. */
const HEAP_SHARE = 0.75;
/** Least heap of a worker. */
const MIN_PART_BYTES = 96 * 1024 * 1024;

/** @typedef {(path: string) => string} ReadFile throws like readFileSync */

/** @type {ReadFile} */
const fromSystem = (path) => readFileSync(path, 'utf8');

/** @param {ReadFile} read */
export function memoryBytes(read) {
  return kilobytes(read, '/proc/meminfo', 'MemTotal');
}

/** The share of one worker. @param {number} all bytes of this server @param {number} workers */
export function partOfWorker(all, workers) {
  const forWorkers = all - Math.min(PRIMARY_BYTES, all * PRIMARY_SHARE);
  return Math.max(MIN_PART_BYTES, Math.floor(forWorkers / workers));
}

/** @param {number} part bytes @param {number} limit V8's, never raised */
export function heapOfWorker(part, limit) {
  return Math.min(limit, Math.floor(part * HEAP_SHARE));
}

/**
 * The share of each worker of this server, as far as the system reports it.
 * @param {number} workers @param {ReadFile} [read] @returns {number} bytes
 */
export function readPart(workers, read = fromSystem) {
  let all = totalmem();
  try {
    all = Math.min(all, cgroupMemory(read, 'self').bytes);
  } catch {
    // Only the memory of the machine is known if this is not Linux, or if the files are hidden.
  }
  return partOfWorker(all, workers);
}

let latestBytes = 0;

/**
 * Private memory of this process: resident or swapped out, inside or outside the heap.
 * @param {ReadFile} [read]
 * @returns {number} bytes, including shared memory if the system does not separate them; the latest
 *   known value if it can't be read now
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
    // This is not Linux, or no descriptor is free.
  }
  try {
    latestBytes = process.memoryUsage.rss();
  } catch {
    // No descriptor is free. Node opens a file for this call too.
  }
  return latestBytes;
}

/**
 * The lowest memory limit of a process's control group and its visible parents; Infinity if there
 * is none. Only one of v1 and v2 has the memory controller. In a container the path of the group
 * may be that of the host; the mount itself is then the group.
 * @param {ReadFile} read @param {string} pid @returns {{bytes: number, file: string}}
 */
export function cgroupMemory(read, pid) {
  const mounts = read('/proc/self/mountinfo').trim().split('\n').map(mountOf);
  let least = { bytes: Number.POSITIVE_INFINITY, file: '' };
  /** @param {string} file @param {number|null} bytes null for the root group, which has no limit */
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
      // Groups above a v1 mount are invisible, but this value includes them.
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

/** Decodes blanks and similar characters, which the kernel writes in octal. @param {string} text */
function plain(text) {
  return text.replace(/\\([0-7]{3})/g, (_all, octal) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}

/** @param {string} path @returns {(read: ReadFile) => number} `max` is Infinity */
export function integerOf(path) {
  return (read) => {
    const text = read(path).trim();
    if (text === 'max') return Number.POSITIVE_INFINITY;
    return /^\d+$/.test(text) ? Number(text) : malformed(path);
  };
}

/**
 * @param {ReadFile} read @param {string} path @param {string} name of a line `Name:   12 kB`
 * @returns {number} bytes
 */
export function kilobytes(read, path, name) {
  const match = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(path));
  return match ? 1024 * Number(match[1]) : malformed(path);
}

/** @template T @param {() => T} read @returns {T|null} null if the file does not exist */
export function unlessAbsent(read) {
  try {
    return read();
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return null;
    throw error;
  }
}

/** @param {string} path @returns {never} */
export function malformed(path) {
  throw new Error(`${path} has an unexpected format`);
}
