// liveness.js: is a worker alive, busy or hung? It tells these apart by messages and system calls.

import { readFileSync } from 'node:fs';

/** A silent worker is busy, not hung, for at most this many time-outs. */
const MAX_BUSY_TIMEOUTS = 6;
/** A worker with an older message is silent, and the numbers of an older heartbeat may be wrong. */
export const MAX_BEAT_AGE_MS = 3000;

export class Liveness {
  #heardMs = performance.now();
  #isBusy = false;
  /** The worker's system calls, counted while it is silent. @type {number|null} */
  #calls = null;
  /** When that number last grew. */
  #calledMs = 0;

  /** A message has arrived. @param {number} [now] */
  heard(now = performance.now()) {
    this.#heardMs = now;
  }

  /** Time since the last message. @param {number} nowMs */
  silentMs(nowMs) {
    return nowMs - this.#heardMs;
  }

  /** Has it sent nothing for some heartbeats? @param {number} nowMs */
  isSilent(nowMs) {
    return this.silentMs(nowMs) > MAX_BEAT_AGE_MS;
  }

  /**
   * A ready worker without a message for `timeoutMs` is hung. If it still makes system calls, it is
   * busy, for at most MAX_BUSY_TIMEOUTS time-outs.
   * @param {number|undefined} pid @param {number} now @param {number} timeoutMs
   * @returns {'alive'|'recovered'|'silent'|'busy'|'hung'} `recovered` and `busy` only once
   */
  judge(pid, now, timeoutMs) {
    const silentMs = this.silentMs(now);
    if (silentMs <= timeoutMs / 2) {
      const wasBusy = this.#isBusy;
      this.#calls = null;
      this.#isBusy = false;
      return wasBusy ? 'recovered' : 'alive';
    }
    const calls = systemCalls(pid);
    if (this.#calls !== null && calls !== null && calls > this.#calls) this.#calledMs = now;
    this.#calls = calls;
    if (silentMs <= timeoutMs) return 'silent';
    const calledOfLate = now - this.#calledMs <= timeoutMs / 2;
    if (!calledOfLate || silentMs > MAX_BUSY_TIMEOUTS * timeoutMs) return 'hung';
    if (this.#isBusy) return 'silent';
    this.#isBusy = true;
    return 'busy';
  }
}

/**
 * Reads and writes of a process. A flood keeps the event loop busy with both; an endless loop in
 * JavaScript and a stopped process do neither.
 * @param {number|undefined} pid
 * @returns {number|null} null if the system does not count them: not Linux, or an old kernel
 */
function systemCalls(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/io`, 'latin1');
    const reads = /^syscr: (\d+)$/m.exec(text);
    const writes = /^syscw: (\d+)$/m.exec(text);
    return reads && writes ? Number(reads[1]) + Number(writes[1]) : null;
  } catch {
    return null;
  }
}
