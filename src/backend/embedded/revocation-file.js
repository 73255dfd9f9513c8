// revocation-file.js: the revocations of one machine, in a file that its workers share.
//
// The file is append-only. Each revocation is one line, written and synchronised before `add`
// resolves. A worker reads the whole file again when it has changed. The file is in
// FANFARE_STATE_DIR, or beside the relay's socket, which is removed when the server ends. If a
// crash cut a line off, readers ignore it; each record begins with a line break, so the next record
// stays whole. The file grows until the server is started again (`compact`).

import {
  access,
  constants,
  mkdir,
  open,
  readFile,
  rename,
  stat,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BrokerError } from '../errors.js';
import { decodeRevocation, encodeRevocation, MAX_REVOCATIONS } from '../revocations.js';

const NAME = 'revocations.jsonl';
/** Some 500,000 revocations. If the file is larger, `add` refuses until the server is restarted. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** @typedef {import('../revocations.js').Revocation} Revocation */
/** @typedef {import('../revocations.js').RevocationStore} RevocationStore */

/** @implements {RevocationStore} */
export class RevocationFile {
  /** The revocations in the file when it was last read. @type {Revocation[]} */
  #known = [];
  /** Inode and size of the file when it was last read. */
  #version = '';

  /** @param {string} folder created if it does not exist */
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
        // Each record is one write with O_APPEND, so lines of several workers do not mix.
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
 * Rewrites the file without expired revocations. Call it while no worker runs.
 * @param {string} folder created if it does not exist
 * @throws if this process cannot write there. Otherwise the first revocation would find that out
 */
export async function compact(folder) {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await access(folder, constants.W_OK);
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
