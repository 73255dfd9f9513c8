// fixture-worker.js: a worker process that keeps to control.js and does nothing else, for the
// supervisor's tests.
//
//   FIXTURE=die          ends with code 3 instead of getting ready
//   FIXTURE=fail         reports why it cannot start, and ends
//   FIXTURE=mute         never gets ready
//   FIXTURE=stubborn     does not leave when it is drained
//   FIXTURE=uneven       has 1,000 connections in slot 0, and 100 in each other one
//
// Two messages are the tests' own: `busy` keeps the event loop from turning for `ms` with system
// calls, as a flood of frames does; `stuck` keeps it from turning for ever without any.

import { closeSync, openSync, readSync } from 'node:fs';
import { BEAT_INTERVAL_MS } from '../../src/worker/control-messages.js';

const behaviour = process.env.FIXTURE ?? '';
/** @param {object} message */
const send = (message) => process.send?.(message);

let messages = 0;
let connections = 0;
const metrics = () => [
  {
    form: {
      name: 'fixture_total',
      help: 'Metrics asked for.',
      type: 'counter',
      aggregator: 'sum',
      series: [{ labels: {} }],
    },
    values: [messages],
  },
  {
    form: {
      name: 'fixture_pid',
      help: 'The process.',
      type: 'gauge',
      aggregator: 'sum',
      series: [{ labels: {} }],
    },
    values: [process.pid],
  },
];

/** @param {number} ms */
function readFor(ms) {
  const end = performance.now() + ms;
  const zero = openSync('/dev/zero', 'r');
  const buffer = Buffer.alloc(4096);
  const pause = new Int32Array(new SharedArrayBuffer(4));
  while (performance.now() < end) {
    readSync(zero, buffer);
    Atomics.wait(pause, 0, 0, 2); // leaves the processor to others
  }
  closeSync(zero);
}

process.on('SIGTERM', () => {});
process.on('SIGINT', () => {});
process.on(
  'message',
  (
    /** @type {import('../../src/worker/control-messages.js').ToWorker | {type: 'busy', ms: number} | {type: 'stuck'}} */ message,
  ) => {
    switch (message.type) {
      case 'start':
        if (behaviour === 'die') process.exit(3);
        if (behaviour === 'mute') return;
        if (behaviour === 'fail') {
          send({ type: 'failed', message: 'listen EADDRINUSE: address already in use :::3000' });
          setTimeout(() => process.exit(1), 20);
          return;
        }
        if (behaviour === 'uneven') connections = message.slot === 0 ? 1000 : 100;
        setInterval(
          () => send({ type: 'beat', connections, lagMs: 0, isSteady: true }),
          BEAT_INTERVAL_MS / 4,
        );
        send({ type: 'ready', address: { port: 1, address: '::' } });
        break;
      case 'metrics':
        messages++;
        send({
          type: 'metrics',
          request: message.request,
          isPart: message.names !== null,
          metrics: metrics().filter(({ form }) => message.names?.includes(form.name) ?? true),
        });
        break;
      case 'busy':
        readFor(message.ms);
        break;
      case 'stuck':
        for (;;);
      case 'drain':
        if (behaviour === 'stubborn') return;
        process.send?.({ type: 'final', metrics: metrics() }, undefined, undefined, () =>
          process.exit(0),
        );
        break;
    }
  },
);
send({ type: 'loaded' });
