// socket-folder.js: the folder of the relay's socket, which only this user can enter.

import { rmSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** unix(7): sun_path has 108 bytes on Linux and 104 on macOS, the closing NUL included. */
const MAX_PATH_BYTES = 103;
const SHORT_TMPDIR = '/tmp';
const SOCKET = 'relay';
/** Names that mkdtemp makes. */
const FOLDER_NAME = /^fanfare-[A-Za-z0-9]{6}$/;
const STALE_FOLDER_MS = 60_000;
const MAX_SWEPT_FOLDERS = 100;
const NOT_OURS = { uid: -1, mtimeMs: 0 };

/** @returns {Promise<string>} the path of a socket in a new folder */
export async function makeSocketFolder() {
  const prefix = join(tmpdir(), 'fanfare-');
  const isShort = Buffer.byteLength(join(`${prefix}XXXXXX`, SOCKET)) <= MAX_PATH_BYTES;
  // mkdtemp creates a new folder with mode 0700, so leftovers of a killed primary do no harm.
  return join(await mkdtemp(isShort ? prefix : join(SHORT_TMPDIR, 'fanfare-')), SOCKET);
}

/** @param {string} path of the socket */
export function removeSocketFolder(path) {
  rmSync(dirname(path), { recursive: true, force: true });
}

/** Removes folders of primaries that were killed with their workers. @param {string} path */
export async function sweepSocketFolders(path) {
  const parent = dirname(dirname(path));
  const names = (await readdir(parent))
    .filter((name) => FOLDER_NAME.test(name))
    .slice(0, MAX_SWEPT_FOLDERS);
  for (const name of names) {
    const folder = join(parent, name);
    const { uid, mtimeMs } = await stat(folder).catch(() => NOT_OURS);
    // A recent folder may belong to a primary that does not listen yet.
    if (uid !== process.getuid?.() || Date.now() - mtimeMs < STALE_FOLDER_MS) continue;
    if (await isDeserted(join(folder, SOCKET)))
      await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}

/** Has the socket no listener? @param {string} path @returns {Promise<boolean>} */
function isDeserted(path) {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', (error) =>
      resolve(/** @type {NodeJS.ErrnoException} */ (error).code === 'ECONNREFUSED'),
    );
  });
}
