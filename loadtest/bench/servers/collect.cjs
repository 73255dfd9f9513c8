// collect.cjs: preloaded into a server (`node --require`), so that its memory can be read after a full garbage collection.
//
// On SIGUSR2 it collects twice and writes process.memoryUsage() to BENCH_REPORT_DIR/<pid>.json. CommonJS, since only that
// can be preloaded into every process of a cluster by NODE_OPTIONS on all versions of Node that are measured.

const { renameSync, writeFileSync } = require('node:fs');
const { setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');

const directory = process.env.BENCH_REPORT_DIR;

if (directory) {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  process.on('SIGUSR2', () => {
    collect();
    setImmediate(() => {
      collect();
      const path = `${directory}/${process.pid}.json`;
      writeFileSync(
        `${path}.new`,
        JSON.stringify({ ...process.memoryUsage(), uptime: process.uptime() }),
      );
      renameSync(`${path}.new`, path);
    });
  });
}
