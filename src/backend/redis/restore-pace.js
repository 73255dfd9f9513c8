// restore-pace.js: how many channels a worker subscribes at once on a new connection.
//
// After a failover all workers of a fleet return at the same moment, and Redis answers their
// commands one after the other. If each of 720 workers sent 1,000 channels, the last answers would
// come after the time limit, and those workers would begin again. So the first chunk is smaller.
// The next ones double while Redis answers soon, and halve while it needs half of the time limit.
//
// Chunks are no smaller than necessary, because a channel costs Redis 3.5 µs of CPU in a chunk of
// 1,000, 5 in one of 256, 7 in one of 64 and 9 in one of 16 (Redis 7.0, loopback).

const FIRST_CHANNELS = 256;
const MIN_CHANNELS = 64;
const MAX_CHANNELS = 1000;
/** Shares of the time limit. */
const SOON = 1 / 8;
const LATE = 1 / 2;

export class RestorePace {
  /** Of the next chunk. */
  channels = FIRST_CHANNELS;

  /** @param {number} timeoutMs the limit for each answer */
  constructor(timeoutMs) {
    this.timeoutMs = timeoutMs;
  }

  /** @param {number} tookMs from sending a chunk to its last answer */
  answered(tookMs) {
    if (tookMs <= SOON * this.timeoutMs) this.channels = Math.min(MAX_CHANNELS, 2 * this.channels);
    else if (tookMs > LATE * this.timeoutMs)
      this.channels = Math.max(MIN_CHANNELS, this.channels >> 1);
  }
}
