// outages.js: when the broker was unavailable, as the samples of the workers show it.
//
// Only ready workers count: one that starts has no broker yet, and one that drains has closed it.
// An outage lasts from the first sample in which a worker lacks the broker to the first in which
// none does.

export const BROKER_METRIC = 'fanfare_broker_up';

/**
 * @typedef {object} BrokerState
 * @property {number|null} sinceMs since 1970: the outage began; null: there is none
 * @property {number} without workers that lack the broker
 * @property {number} workers that were asked
 */

export class Outages {
  /** @type {BrokerState} */
  state = { sinceMs: null, without: 0, workers: 0 };

  /** @param {(timeMs: number, kind: 'outage'|'back', forMs: number) => void} onChange */
  constructor(onChange) {
    this.onChange = onChange;
  }

  /**
   * @param {number} timeMs since 1970
   * @param {readonly ReadonlyMap<string, number>[]} workers the metrics of those that are ready
   */
  addSample(timeMs, workers) {
    const known = workers.flatMap((values) => values.get(BROKER_METRIC) ?? []);
    // If no worker has answered, nothing is known: the state of the last sample stays.
    if (known.length === 0) return;
    const { sinceMs: before } = this.state;
    const without = known.filter((value) => value !== 1).length;
    const sinceMs = without === 0 ? null : (before ?? timeMs);
    this.state = { sinceMs, without, workers: known.length };
    if (before === null && sinceMs !== null) this.onChange(timeMs, 'outage', 0);
    if (before !== null && sinceMs === null) this.onChange(timeMs, 'back', timeMs - before);
  }
}
