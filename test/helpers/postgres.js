// postgres.js: a real PostgreSQL server, on a free port and with a new database.
//
// Debian keeps its programs outside of PATH. As root they refuse to run, so `nobody` runs them.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { temporaryFolder } from './temporary-folder.js';

const NOBODY = 65_534;
const DEBIAN = '/usr/lib/postgresql';

/** The folder with `initdb` and `postgres`; undefined: PostgreSQL is not installed. */
const programs = [
  ...(process.env.PATH ?? '').split(':'),
  ...(existsSync(DEBIAN) ? readdirSync(DEBIAN).map((version) => `${DEBIAN}/${version}/bin`) : []),
].find((folder) => existsSync(join(folder, 'initdb')) && existsSync(join(folder, 'postgres')));

export const withoutPostgres =
  programs === undefined && 'PostgreSQL is not installed: npm run test:setup';

/**
 * @param {import('../harness/server.js').Owner} t
 * @returns {Promise<string>} its URL
 */
export async function startPostgres(t) {
  const folder = temporaryFolder(t);
  const data = join(folder, 'data');
  mkdirSync(data, { mode: 0o700 });
  const isRoot = process.getuid?.() === 0;
  const who = isRoot ? { uid: NOBODY, gid: NOBODY } : {};
  if (isRoot) for (const path of [folder, data]) chownSync(path, NOBODY, NOBODY);
  const options = ['-D', data, '-U', 'test', '-A', 'trust', '-E', 'UTF8', '--locale=C', '-N'];
  const made = spawnSync(join(String(programs), 'initdb'), options, {
    ...who,
    cwd: folder,
    encoding: 'utf8',
  });
  assert.equal(made.status, 0, made.stdout + made.stderr);
  const port = await freePort();
  const settings = ['fsync=off', 'listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`];
  const server = spawn(
    join(String(programs), 'postgres'),
    ['-D', data, '-p', `${port}`, ...settings.flatMap((one) => ['-c', one])],
    { ...who, cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] },
  );
  const exited = once(server, 'exit');
  // SIGQUIT ends it at once, with the processes of its connections.
  t.after(async () => {
    server.kill('SIGQUIT');
    await exited;
  });
  let log = '';
  server.stderr.setEncoding('utf8').on('data', (text) => (log += text));
  await until(() => log.includes('ready to accept connections'), 20_000, `PostgreSQL: ${log}`);
  return `postgres://test@127.0.0.1:${port}/postgres`;
}
