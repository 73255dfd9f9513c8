// numbered-stream.js: a stream of numbers in one room with history, and the judge of its viewers.
//
// The stream publishes the next number when the last one has its outcome. A viewer lists the
// messages that its client hands to the application, and the states that it has loaded. Every
// message has to be the one behind the last, unless a state says where to continue.

/** @typedef {import('../../src/client/fanfare.js').Fanfare} Fanfare */
/** @typedef {{epoch: string, offset: number}} Position */

/**
 * The events of a viewer's application.
 * @typedef {{type: 'message', payload: number} & Position | {type: 'state'} & Position} Sight
 */

const RETRY_MS = 50;

export class NumberedStream {
  /** @param {Fanfare} fanfare @param {string} room @param {number} intervalMs */
  constructor(fanfare, room, intervalMs) {
    this.fanfare = fanfare;
    this.room = room;
    this.intervalMs = intervalMs;
    this.number = 0;
    this.isEnding = false;
    /** Accepted numbers, by `epoch:offset`. @type {Map<string, number>} */
    this.accepted = new Map();
    /** Of the last accepted number. @type {Position|null} */
    this.last = null;
    /** @type {import('../checker/record.js').Recorder|null} */
    this.recorder = null;
    /** Numbers published after the end, which must reach everybody. @type {Set<number>} */
    this.markers = new Set();
    /** Codes of refused publishes. @type {string[]} */
    this.refusals = [];
  }

  start() {
    this.ended = this.#run();
  }

  /** @returns {Promise<Position>} of the last number */
  async end() {
    this.isEnding = true;
    await this.ended;
    this.isEnding = false;
    // A last number that is certainly accepted.
    while (!(await this.#publish(true))) await pause(RETRY_MS);
    return /** @type {Position} */ (this.last);
  }

  async #run() {
    while (!this.isEnding) {
      if (await this.#publish()) await pause(this.intervalMs);
      else await pause(RETRY_MS);
    }
  }

  /** @param {number} number @returns {string} how a record names it */
  valueOf(number) {
    return `${this.markers.has(number) ? 'm' : 'p'}1:${number}:${this.room}`;
  }

  async #publish(isMarker = false) {
    if (isMarker && this.fanfare.state !== 'connected') return false;
    const number = ++this.number;
    if (isMarker) this.markers.add(number);
    const value = this.valueOf(number);
    this.recorder?.write({ type: 'invoke', value, ...(isMarker && { marker: true }) });
    try {
      const { epoch, offset } = await this.fanfare.publish(this.room, number);
      const position = { epoch: String(epoch), offset: Number(offset) };
      this.accepted.set(`${epoch}:${offset}`, number);
      this.last = position;
      this.recorder?.write({ type: 'ok', value, ...position });
      return true;
    } catch (error) {
      const { code, retryable } = /** @type {{code: string, retryable: boolean}} */ (error);
      this.refusals.push(code);
      this.recorder?.write({ type: retryable ? 'fail' : 'info', value, reason: code });
      return false;
    }
  }

  /**
   * @param {readonly Sight[]} sights
   * @returns {string[]} faults; [] if each message came once and in order, or a state before it
   */
  judge(sights) {
    /** @type {string[]} */
    const faults = [];
    /** @type {Position|null} */
    let at = null;
    let number = 0;
    for (const sight of sights) {
      const { epoch, offset } = sight;
      const key = `${epoch}:${offset}`;
      if (sight.type === 'message') {
        if (at !== null && (epoch !== at.epoch || offset !== at.offset + 1))
          faults.push(`${key} behind ${at.epoch}:${at.offset}`);
        if ((this.accepted.get(key) ?? sight.payload) !== sight.payload)
          faults.push(`${key} is ${sight.payload}, and was ${this.accepted.get(key)}`);
        if (sight.payload <= number) faults.push(`${sight.payload} behind ${number}`);
        number = sight.payload;
      }
      at = { epoch, offset };
    }
    return faults;
  }
}

/**
 * Follows a room as an application does.
 * @param {Fanfare} fanfare
 * @param {string} room
 * @returns {Sight[]} grows
 */
export function follow(fanfare, room) {
  /** @type {Sight[]} */
  const sights = [];
  const joined = fanfare.join(room, { recoverFailed: (position) => position });
  joined.on('reset', (position) => sights.push({ type: 'state', ...position }));
  joined.on('message', (payload, meta) => {
    const { epoch, offset } = /** @type {Position} */ (meta);
    sights.push({ type: 'message', payload, epoch, offset });
  });
  return sights;
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
