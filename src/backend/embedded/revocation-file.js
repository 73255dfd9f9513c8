// revocation-file.js: the revocations of one machine, in a file that its workers share.
//
// Append-only: one line for each revocation, synchronised before `add` resolves. A worker reads
// what was appended since its last read. Each record begins with a line break, so a line cut off by
// a crash does not damage the next one. The file grows until the server starts again (`compact`).
// An unreadable line is reported, and stays until the operator repairs or deletes it.

import { createReadStream } from 'node:fs';
import { access, constants, mkdir, open, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BrokerError } from '../errors.js';
import {
  decodeRevocation,
  encodeRevocation,
  MAX_REVOCATIONS,
  makeRoom,
  revocationKey,
} from '../revocations.js';
import { replaceFile } from './replace-file.js';

const NAME = 'revocations.jsonl';
/** Some 500,000 revocations. Above it, `add` refuses until the server is restarted. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;
const LINE_BREAK = 0x0a;

/** @import { Revocation, RevocationStore } from '../revocations.js' */

/** @implements {RevocationStore} */
export class RevocationFile {
  /** Revocations by user or token. @type {Map<string, Revocation>} */
  #known = new Map();
  #inode = 0;
  /** Whole lines only. */
  #readBytes = 0;
  #unreadable = 0;
  /** The next read waits for it. @type {Promise<void>} */
  #reading = Promise.resolve();

  /**
   * @param {string} folder created if it does not exist @param {object} [options]
   * @param {(lines: number, path: string) => void} [options.onUnreadable] called with the number of
   *   unreadable lines when it grows
   * @param {number} [options.max] for tests
   */
  constructor(folder, { onUnreadable = () => {}, max = MAX_REVOCATIONS } = {}) {
    this.path = join(folder, NAME);
    this.onUnreadable = onUnreadable;
    this.max = max;
  }

  /** @param {Revocation} revocation @returns {Promise<boolean>} */
  async add(revocation) {
    await this.#update();
    if (!this.#hasPlaceFor(revocation)) return false;
    let isWriting = false;
    try {
      await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
      const file = await open(this.path, 'a', 0o600);
      try {
        if ((await file.stat()).size >= MAX_FILE_BYTES) return false;
        isWriting = true;
        const record = Buffer.from(`\n${encodeRevocation(revocation)}\n`);
        // Each record is one write with O_APPEND, so lines of several workers do not mix.
        const { bytesWritten } = await file.write(record);
        if (bytesWritten < record.length)
          throw new Error(`${bytesWritten} of ${record.length} bytes were written`);
        await file.datasync();
      } finally {
        await file.close();
      }
      return true;
    } catch (error) {
      const code = isWriting ? 'OUTCOME_UNKNOWN' : 'UNAVAILABLE';
      throw new BrokerError(code, `cannot write ${this.path}`, { cause: error });
    }
  }

  async read() {
    await this.#update();
    return inForce(this.#known);
  }

  /** Always, for a known user or token. @param {Revocation} revocation */
  #hasPlaceFor(revocation) {
    const key = revocationKey(revocation);
    if (this.#known.size < this.max || this.#known.has(key)) return true;
    makeRoom(this.#known, Date.now());
    return this.#known.size < this.max;
  }

  #update() {
    const reading = this.#reading.then(() => this.#readAppended());
    this.#reading = reading.catch(() => {});
    return reading;
  }

  async #readAppended() {
    try {
      const { ino, size } = await stat(this.path);
      if (ino !== this.#inode || size < this.#readBytes) this.#startOver(ino);
      if (size === this.#readBytes) return;
      const parts = [];
      for await (const part of createReadStream(this.path, { start: this.#readBytes }))
        parts.push(part);
      const bytes = Buffer.concat(parts);
      const end = bytes.lastIndexOf(LINE_BREAK) + 1;
      this.#readBytes += end;
      const unreadable = takeLines(bytes.toString('utf8', 0, end), this.#known).length;
      // The last line may be incomplete, or somebody has edited the file.
      takeLines(bytes.toString('utf8', end), this.#known);
      if (unreadable === 0) return;
      this.#unreadable += unreadable;
      this.onUnreadable(this.#unreadable, this.path);
    } catch (error) {
      if (!isAbsent(error))
        throw new BrokerError('UNAVAILABLE', `cannot read ${this.path}`, { cause: error });
      this.#startOver(0);
    }
  }

  /** Reads the file from its start. @param {number} inode */
  #startOver(inode) {
    this.#known.clear();
    this.#inode = inode;
    this.#readBytes = 0;
    this.#unreadable = 0;
  }
}

/**
 * Rewrites the file without expired revocations. Call it while no worker runs.
 * @param {string} folder created if it does not exist
 * @throws if this process cannot write there, so that the operator knows before the first
 *   revocation
 */
export async function compact(folder) {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await access(folder, constants.W_OK);
  const path = join(folder, NAME);
  const text = await readFile(path, 'utf8').catch((error) => {
    if (isAbsent(error)) return null;
    throw error;
  });
  if (text === null) return;
  /** @type {Map<string, Revocation>} */
  const known = new Map();
  const unreadable = takeLines(text, known);
  const lines = [...inForce(known).map(encodeRevocation), ...unreadable];
  await replaceFile(path, lines.map((line) => `${line}\n`).join(''));
}

/**
 * @param {string} text lines of the file
 * @param {Map<string, Revocation>} known gets the revocations, one for each user and token, with
 *   the latest times
 * @returns unreadable lines
 */
function takeLines(text, known) {
  const unreadable = [];
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const revocation = decodeRevocation(line);
    if (revocation === null) {
      unreadable.push(line);
      continue;
    }
    const key = revocationKey(revocation);
    const earlier = known.get(key);
    known.set(key, earlier === undefined ? revocation : later(earlier, revocation));
  }
  return unreadable;
}

/** @param {Map<string, Revocation>} known */
function inForce(known) {
  const nowMs = Date.now();
  return [...known.values()].filter(({ keepUntilMs }) => keepUntilMs > nowMs);
}

/** @param {Revocation} a @param {Revocation} b @returns {Revocation} */
function later(a, b) {
  return {
    ...a,
    issuedBeforeMs: Math.max(a.issuedBeforeMs, b.issuedBeforeMs),
    keepUntilMs: Math.max(a.keepUntilMs, b.keepUntilMs),
  };
}

/** @param {unknown} error */
function isAbsent(error) {
  return /** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT';
}
