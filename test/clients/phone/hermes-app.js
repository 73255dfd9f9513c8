// hermes-app.js: journey.js as a program for Hermes, and what this Hermes lacks.

import { journey } from './journey.js';
import { phoneServer } from './phone-server.js';
import { appStates, surround } from './surroundings.js';

const { print } = /** @type {any} */ (globalThis);
const LANGUAGE = [
  ...['TextEncoder', 'TextDecoder', 'atob', 'structuredClone', 'Event', 'EventTarget'],
  ...['DOMException', 'BroadcastChannel', 'WeakRef', 'Intl', 'crypto', 'document', 'location'],
];
const lacks = LANGUAGE.filter((name) => !(name in globalThis));
if (!Symbol.asyncIterator) lacks.push('Symbol.asyncIterator');
if (!Array.prototype.at) lacks.push('Array.prototype.at');

// React Native gives these to an app. The timers of this program do not wait, so it looks at the clock.
const { setTimeout: turn } = globalThis;
/** @type {Set<{atMs: number, act: () => void}>} */
const timers = new Set();
function runTimers() {
  for (const timer of [...timers])
    if (timer.atMs <= Date.now() && timers.delete(timer)) timer.act();
  if (timers.size > 0) turn(runTimers, 0);
}
Object.assign(globalThis, {
  setTimeout(/** @type {() => void} */ act, ms = 0) {
    const timer = { atMs: Date.now() + ms, act };
    if (timers.size === 0) turn(runTimers, 0);
    timers.add(timer);
    return timer;
  },
  clearTimeout: (/** @type {any} */ timer) => void timers.delete(timer),
  queueMicrotask: (/** @type {() => void} */ act) => void Promise.resolve().then(act),
  performance: { now: () => Date.now() },
  console: { log: print, warn: print, error: print },
  AbortController: class {
    signal = {};
    abort() {}
  },
});

const server = phoneServer();
surround(/** @type {any} */ (globalThis), server);
const { WebSocket } = /** @type {any} */ (globalThis);
const { publish, cut } = server;
journey({ url: 'ws://phone.example/ws', WebSocket, appStates: appStates(), publish, cut }).then(
  (seen) => print(JSON.stringify({ lacks, seen, dialled: server.dialled })),
  (error) => print(JSON.stringify({ lacks, error: String(error.stack ?? error) })),
);
