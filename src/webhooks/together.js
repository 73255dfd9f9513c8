// together.js: lets the timers of a courier run at the same time.
//
// At rest it looks at its 16 partitions, asks for shared periods and reports once a second, and
// each wake-up costs some 80 us.

/** Timers may run this much too early. */
const EARLY_MS = 2;

/**
 * @param {number} periodMs @param {number} nowMs
 * @returns {number} ms until the next multiple of the period, at most the period and EARLY_MS
 */
export function untilNext(periodMs, nowMs) {
  const ms = periodMs - (nowMs % periodMs);
  return ms > EARLY_MS ? ms : ms + periodMs;
}

/**
 * Acts at each multiple of the period. Does not keep the process alive.
 * @param {number} periodMs @param {() => number} now @param {() => void} act
 * @returns {() => void} ends it
 */
export function repeatTogether(periodMs, now, act) {
  /** @type {NodeJS.Timeout} */
  let timer;
  const wait = () => {
    timer = setTimeout(
      () => {
        wait();
        act();
      },
      untilNext(periodMs, now()),
    ).unref();
  };
  wait();
  return () => clearTimeout(timer);
}
