// dev.js: `npm run dev`: runs the server, and restarts it when a source file has changed.
//
// `node --watch` restarted twice for one save and ended a server that was draining. Here a save is
// all changes of SETTLE_MS; the server gets one SIGTERM and the time it takes to drain; what
// changes meanwhile is in the next start anyway. Usage: node test/dev.js [folder [main]]

import { spawn } from 'node:child_process';
import { readdirSync, watch } from 'node:fs';
import { join } from 'node:path';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';

const SETTLE_MS = 150;
const PARENT_CHECK_MS = 500;

const [folder = fileURLToPath(new URL('../src/', import.meta.url)), main = `${folder}/main.js`] =
  process.argv.slice(2);
const onTerminal = isatty(0) || isatty(1);
let isEnding = false;
/** A save is waiting for the end of the server. */
let isRestarting = false;
/** @type {NodeJS.Timeout|undefined} */
let settled;
/** @type {import('node:child_process').ChildProcess|undefined} undefined: it has ended by itself */
let server;

function start() {
  const child = spawn(process.execPath, [main], {
    stdio: 'inherit',
    // Limits are observed: a developer tries things out, and is one address with many tabs.
    env: { FANFARE_DRAIN_DELAY_MS: '0', FANFARE_LIMITS: 'observe', ...process.env },
  });
  server = child;
  isRestarting = false;
  child.on('exit', (code) => {
    server = undefined;
    if (isEnding) process.exit(code ?? 1);
    if (isRestarting) start();
    else
      process.stderr.write(
        `the server has ended with ${code}: it is started again at the next change\n`,
      );
  });
}

function restart() {
  if (isEnding || isRestarting) return;
  isRestarting = true;
  if (server) server.kill('SIGTERM');
  else start();
}

const onChange = () => {
  clearTimeout(settled);
  settled = setTimeout(restart, SETTLE_MS);
};
// Folder by folder, as inotify offers it; a new folder is seen at the next start.
const folders = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
  entry.isDirectory(),
);
const watchers = [folder, ...folders.map(({ parentPath, name }) => join(parentPath, name))].map(
  (path) => watch(path, onChange),
);

/** @param {NodeJS.Signals} signal */
function end(signal) {
  isEnding = true;
  for (const watcher of watchers) watcher.close();
  if (!server) process.exit(0);
  // A second signal would cut the server's drain short. A terminal sends Ctrl-C and SIGHUP to the
  // server as well, and a restart under way has sent SIGTERM.
  if ((signal === 'SIGTERM' || !onTerminal) && !isRestarting) server.kill('SIGTERM');
}

for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
  process.on(signal, end);
}
// npm does not pass every signal on. If it has gone, the server goes, too.
const npm = process.ppid;
setInterval(() => {
  if (process.ppid !== npm && !isEnding) end('SIGTERM');
}, PARENT_CHECK_MS).unref();

start();
