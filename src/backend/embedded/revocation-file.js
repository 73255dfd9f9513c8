// revocation-file.js: the revocations of one machine, in a file that its workers share.
//
// The file is append-only: a line for each revocation, written and synchronised before `add`
// resolves. Each worker reads the whole of it when it has changed. It lies in FANFARE_STATE_DIR, or
// beside the relay's socket, where it ends with the server. A line that was cut off by a crash is
// ignored; each record begins with a line break, so the next record stays whole. The file grows
// until the server is started again (`compact`).

import { mkdir, open, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BrokerError } from '../errors.js';
import { decodeRevocation, encodeRevocation, MAX_REVOCATIONS } from '../revocations.js';

const NAME = 'revocations.jsonl';
/** Some 500,000 revocations. Above it none is taken until the server has been started again. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** @typedef {import('../revocations.js').Revocation} Revocation */
/** @typedef {import('../revocations.js').RevocationStore} RevocationStore */

/** @implements {RevocationStore} */
export class RevocationFile {
  /** What the file held when it was last read. @type {Revocation[]} */
  #known = [];
  /** Of that file: its inode and size. */
  #version = '';

  /** @param {string} folder is made if it is not there */
  constructor(folder) {
    this.path = join(folder, NAME);
  }

  /**
   * @param {Revocation} revocation
   * @returns {Promise<boolean>}
   */
  async add(revocation) {
    const known = await this.read();
    if (known.length >= MAX_REVOCATIONS) return false;
    let isWriting = false;
    try {
      await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
      const file = await open(this.path, 'a', 0o600);
      try {
        if ((await file.stat()).size >= MAX_FILE_BYTES) return false;
        isWriting = true;
        // One write of O_APPEND: lines of several workers do not mix.
        await file.write(`\n${encodeRevocation(revocation)}\n`);
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

  /** @returns {Promise<Revocation[]>} */
  async read() {
    try {
      const { ino, size } = await stat(this.path);
      const version = `${ino} ${size}`;
      if (version !== this.#version) {
        this.#known = parse(await readFile(this.path, 'utf8'));
        this.#version = version;
      }
    } catch (error) {
      if (!isAbsent(error))
        throw new BrokerError('UNAVAILABLE', `cannot read ${this.path}`, { cause: error });
      this.#known = [];
      this.#version = '';
    }
    const nowMs = Date.now();
    return this.#known.filter(({ keepUntilMs }) => keepUntilMs > nowMs);
  }
}

/**
 * Rewrites the file without what is over. Call it while no worker runs.
 * @param {string} folder
 */
export async function compact(folder) {
  const path = join(folder, NAME);
  const kept = await new RevocationFile(folder).read();
  if (kept.length === 0 && !(await exists(path))) return;
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, kept.map((one) => `${encodeRevocation(one)}\n`).join(''), {
    mode: 0o600,
    flush: true,
  });
  await rename(draft, path);
}

/**
 * @param {string} text
 * @returns {Revocation[]} one for each user and token, with the latest times
 */
function parse(text) {
  /** @type {Map<string, Revocation>} */
  const revocations = new Map();
  for (const line of text.split('\n')) {
    const revocation = line === '' ? null : decodeRevocation(line);
    if (revocation === null) continue;
    const key = JSON.stringify([revocation.user, revocation.tokenId]);
    const known = revocations.get(key);
    revocations.set(key, known === undefined ? revocation : later(known, revocation));
  }
  return [...revocations.values()];
}

/**
 * @param {Revocation} a
 * @param {Revocation} b
 * @returns {Revocation}
 */
function later(a, b) {
  return {
    ...a,
    issuedBeforeMs: Math.max(a.issuedBeforeMs, b.issuedBeforeMs),
    keepUntilMs: Math.max(a.keepUntilMs, b.keepUntilMs),
  };
}

/** @param {string} path */
async function exists(path) {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (isAbsent(error)) return false;
    throw error;
  }
}

/** @param {unknown} error */
function isAbsent(error) {
  return /** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT';
}
