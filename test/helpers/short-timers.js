// short-timers.js: lets a process end although a WebSocket of pusher-js waits: when the server closes,
// it waits 30 s for nothing. A test imports this file for its effect.

import { mock } from 'node:test';

const startTimer = setTimeout;
mock.method(
  globalThis,
  'setTimeout',
  (/** @type {Function} */ act, /** @type {number} */ ms, /** @type {unknown[]} */ ...args) => {
    const timer = startTimer(() => act(...args), ms);
    return ms >= 30_000 ? timer.unref() : timer;
  },
);
