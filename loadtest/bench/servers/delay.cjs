// delay.cjs: preloaded into a server (`node --require`): how late does its event loop come to what is due?
//
// A timer each 5 ms. One that comes 30 ms late stands for all that would have been due meanwhile, so it counts as 30, 25, 20 …:
// the figures are those of an event at any moment. On SIGUSR2 they go to BENCH_REPORT_DIR/<pid>.json, and begin anew.

const { renameSync, writeFileSync } = require('node:fs');
const { createHistogram } = require('node:perf_hooks');

const INTERVAL_MS = 5;
const directory = process.env.BENCH_REPORT_DIR;

if (directory) {
  const histogram = createHistogram();
  let due = performance.now() + INTERVAL_MS;
  setInterval(() => {
    const now = performance.now();
    let late = now - due;
    do {
      histogram.record(Math.max(1, Math.round(late * 1000)));
      late -= INTERVAL_MS;
    } while (late > 0);
    due = now + INTERVAL_MS;
  }, INTERVAL_MS).unref();
  process.on('SIGUSR2', () => {
    const ms = (us) => us / 1000;
    const seen = {
      samples: histogram.count,
      p50Ms: ms(histogram.percentile(50)),
      p99Ms: ms(histogram.percentile(99)),
      maxMs: ms(histogram.max),
    };
    histogram.reset();
    const path = `${directory}/${process.pid}.json`;
    writeFileSync(`${path}.new`, JSON.stringify(seen));
    renameSync(`${path}.new`, path);
  });
}
