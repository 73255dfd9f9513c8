// disk.js: the files of a simulated machine. What does not exist there is read from the real disk:
// the program and its scripts, which nobody writes.

import fs from 'node:fs';
import { dirname } from 'node:path';
import { Readable } from 'node:stream';

/** An operation takes this long, in ms. */
const OPERATION_MS = 0.2;
const SUFFIX_LENGTH = 6;

/** @import { SimulatedProcess } from './simulated-process.js' */

/** @typedef {{bytes: Buffer, ino: number, mtimeMs: number}} File */

/** The disk of a machine. It survives its processes. */
export class Disk {
  /** @type {Map<string, File>} */
  files = new Map();
  /** @type {Set<string>} */
  folders = new Set(['/tmp', '/proc/self']);
  #ino = 1;

  /** @param {string} path @param {Buffer} bytes @param {number} mtimeMs */
  put(path, bytes, mtimeMs) {
    const file = this.files.get(path);
    if (file) Object.assign(file, { bytes, mtimeMs });
    else this.files.set(path, { bytes, ino: this.#ino++, mtimeMs });
  }

  /** @param {string} path */
  has(path) {
    return this.files.has(path) || this.folders.has(path);
  }
}

/** @param {string} code @param {string} path */
function fileError(code, path) {
  return Object.assign(new Error(`${code}: ${path}`), { code, path });
}

/** Processes look for these files every second, so the error has no stack. */
function noSystemFile() {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  const error = fileError('ENOENT', 'a file of the system');
  Error.stackTraceLimit = stackTraceLimit;
  return error;
}

/** @param {unknown} path @returns {string} */
function text(path) {
  return path instanceof URL ? path.pathname : String(path);
}

/** @param {any} options @returns {BufferEncoding|undefined} */
function encodingOf(options) {
  return typeof options === 'string' ? /** @type {BufferEncoding} */ (options) : options?.encoding;
}

/** @param {SimulatedProcess} owner */
export function diskModules(owner) {
  const { simulator, machine } = owner;
  const { disk } = machine;
  /** @template T @param {() => T} act @returns {Promise<T>} */
  const later = (act) =>
    new Promise((resolve, reject) => {
      simulator.schedule(OPERATION_MS, owner, () => {
        try {
          resolve(act());
        } catch (error) {
          reject(error);
        }
      });
    });
  const now = () => simulator.unixMs;
  const read = (/** @type {unknown} */ path, /** @type {any} */ options) => {
    const name = text(path);
    const bytes = path === 0 ? Buffer.from(owner.stdin) : bytesOf(disk, name);
    const encoding = encodingOf(options);
    return encoding === undefined || encoding === null ? bytes : bytes.toString(encoding);
  };
  const write = (/** @type {unknown} */ path, /** @type {any} */ data) => {
    const name = text(path);
    if (!disk.folders.has(dirname(name))) throw fileError('ENOENT', name);
    disk.put(name, Buffer.from(data), now());
  };
  const stat = (/** @type {unknown} */ path) => {
    const name = text(path);
    const file = disk.files.get(name);
    if (file === undefined && !disk.folders.has(name)) throw fileError('ENOENT', name);
    const { bytes, ino, mtimeMs } = file ?? { bytes: Buffer.alloc(0), ino: 0, mtimeMs: now() };
    const uid = process.getuid?.() ?? 0;
    return {
      size: bytes.length,
      ino,
      mtimeMs,
      uid,
      isFile: () => file !== undefined,
      isDirectory: () => file === undefined,
    };
  };
  const remove = (/** @type {unknown} */ path) => {
    const name = text(path);
    for (const one of [...disk.files.keys()])
      if (one === name || one.startsWith(`${name}/`)) disk.files.delete(one);
    disk.folders.delete(name);
  };
  const access = (/** @type {unknown} */ path) => {
    if (!disk.has(text(path)) && !fs.existsSync(text(path))) throw fileError('ENOENT', text(path));
  };
  const append = (/** @type {string} */ name, /** @type {any} */ data) =>
    disk.put(
      name,
      Buffer.concat([disk.files.get(name)?.bytes ?? Buffer.alloc(0), Buffer.from(data)]),
      now(),
    );
  const open = (/** @type {unknown} */ path, /** @type {string} */ flags = 'r') =>
    later(() => {
      const name = text(path);
      if (!disk.files.has(name)) {
        if (flags === 'r' || !disk.folders.has(dirname(name))) throw fileError('ENOENT', name);
        disk.put(name, Buffer.alloc(0), now());
      }
      return {
        stat: () => later(() => stat(name)),
        write: (/** @type {any} */ data) =>
          later(() => {
            append(name, data);
            return { bytesWritten: data.length, buffer: data };
          }),
        appendFile: (/** @type {any} */ data) => later(() => append(name, data)),
        writeFile: (/** @type {any} */ data) => later(() => append(name, data)),
        readFile: (/** @type {any} */ options) => later(() => read(name, options)),
        sync: () => later(() => undefined),
        datasync: () => later(() => undefined),
        close: () => later(() => undefined),
      };
    });
  const folderOf = (/** @type {string} */ prefix) => {
    let name = prefix;
    for (let i = 0; i < SUFFIX_LENGTH; i++) name += owner.random.below(36).toString(36);
    disk.folders.add(name);
    return name;
  };
  const list = (/** @type {unknown} */ path) => {
    const inside = `${text(path)}/`;
    const names = [...disk.files.keys(), ...disk.folders]
      .filter((name) => name.startsWith(inside))
      .map((name) => name.slice(inside.length).split('/')[0]);
    return [...new Set(names)];
  };
  return {
    promises: {
      readFile: (/** @type {unknown} */ path, /** @type {any} */ options) =>
        later(() => read(path, options)),
      writeFile: (/** @type {unknown} */ path, /** @type {any} */ data) =>
        later(() => write(path, data)),
      mkdir: (/** @type {unknown} */ path) => later(() => void disk.folders.add(text(path))),
      mkdtemp: (/** @type {string} */ prefix) => later(() => folderOf(prefix)),
      readdir: (/** @type {unknown} */ path) => later(() => list(path)),
      rm: (/** @type {unknown} */ path) => later(() => remove(path)),
      unlink: (/** @type {unknown} */ path) => later(() => remove(path)),
      stat: (/** @type {unknown} */ path) => later(() => stat(path)),
      access: (/** @type {unknown} */ path) => later(() => access(path)),
      open,
      rename: (/** @type {unknown} */ from, /** @type {unknown} */ to) =>
        later(() => {
          const file = disk.files.get(text(from));
          if (file === undefined) throw fileError('ENOENT', text(from));
          disk.files.delete(text(from));
          disk.files.set(text(to), file);
        }),
    },
    fs: {
      readFileSync: read,
      existsSync: (/** @type {unknown} */ path) =>
        disk.has(text(path)) || fs.existsSync(text(path)),
      rmSync: remove,
      mkdirSync: (/** @type {unknown} */ path) => void disk.folders.add(text(path)),
      writeFileSync: write,
      accessSync: access,
      lstatSync: (/** @type {unknown} */ path) =>
        disk.has(text(path)) ? stat(path) : fs.lstatSync(text(path)),
      createReadStream: (/** @type {unknown} */ path, /** @type {any} */ options = {}) =>
        Readable.from(
          (async function* () {
            const all = await later(() => bytesOf(disk, text(path)));
            const {
              start = 0,
              end = Number.POSITIVE_INFINITY,
              encoding,
            } = typeof options === 'string' ? { encoding: options } : options;
            const part = all.subarray(start, end + 1);
            yield encoding ? part.toString(encoding) : part;
          })(),
        ),
    },
  };
}

/** @param {Disk} disk @param {string} path */
function bytesOf(disk, path) {
  const file = disk.files.get(path);
  if (file !== undefined) return file.bytes;
  if (path.startsWith('/proc/') || path.startsWith('/sys/')) throw noSystemFile();
  return fs.readFileSync(path);
}
