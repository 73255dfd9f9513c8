// heap-probe.cjs: preloaded by the processes of a soak: after each signal, the memory that a forced
// collection leaves, as a line of a file.
//
// Compiled code is left out. It grows for as long as V8 finds more to optimize.

const { appendFileSync } = require('node:fs');
const { getHeapSpaceStatistics, setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');
const DATA = new Set(['new_space', 'old_space', 'large_object_space', 'new_large_object_space']);

process.on('SIGPROF', () => {
  collect();
  collect(); // what finalizers of the first one have let go
  const spaces = getHeapSpaceStatistics().filter(({ space_name }) => DATA.has(space_name));
  const heap = spaces.reduce((sum, { space_used_size }) => sum + space_used_size, 0);
  const line = JSON.stringify([Date.now(), heap + process.memoryUsage().arrayBuffers]);
  appendFileSync(`${process.env.HEAP_PROBE}/${process.pid}`, `${line}\n`);
});
