// heartbeat.js: pings, spread evenly over their period, and the end of connections that give no
// sign of life.
//
// The period is divided into slots; a connection gets the next slot in turn and is pinged when the
// wheel comes by, so that the pings of 50,000 connections are a trickle and no burst. PONG_TIMEOUT
// later the wheel looks again: anything that came meanwhile, not only a pong, counts as life. If
// the event loop itself stood still, the peers are not to blame: what they sent waits unread. Then
// the look is put off by one turn of the wheel.

const SLOT_MS = 250;
const MAX_SLOTS = 240;

/** @typedef {import('./connection.js').Connection} Connection */

export class Heartbeat {
  /**
   * @param {object} parts
   * @param {number} parts.intervalMs
   * @param {number} parts.timeoutMs shorter than intervalMs
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ intervalMs, timeoutMs, counters }) {
    const slots = Math.max(2, Math.min(MAX_SLOTS, Math.floor(intervalMs / SLOT_MS)));
    this.stepMs = intervalMs / slots;
    this.timeoutSlots = Math.max(1, Math.min(slots - 1, Math.ceil(timeoutMs / this.stepMs)));
    this.counters = counters;
    /** @type {Connection[][]} */
    this.slots = Array.from({ length: slots }, () => []);
    /** The slot whose peers are asked next. */
    this.at = 0;
    this.nextSlot = 0;
    /** Steps left in which no one is judged. */
    this.graceSteps = 0;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    this.lastStepMs = 0;
  }

  start() {
    this.lastStepMs = performance.now();
    this.timer = setInterval(() => this.step(performance.now()), this.stepMs);
    this.timer.unref();
  }

  close() {
    clearInterval(this.timer);
  }

  /** @param {Connection} connection */
  add(connection) {
    const slot = this.slots[this.nextSlot];
    connection.beatSlot = this.nextSlot;
    connection.beatIndex = slot.length;
    slot.push(connection);
    this.nextSlot = (this.nextSlot + 1) % this.slots.length;
  }

  /** @param {Connection} connection */
  remove(connection) {
    if (connection.beatSlot < 0) return;
    const slot = this.slots[connection.beatSlot];
    const last = /** @type {Connection} */ (slot.pop());
    if (last !== connection) {
      slot[connection.beatIndex] = last;
      last.beatIndex = connection.beatIndex;
    }
    connection.beatSlot = -1;
  }

  /** One step of the wheel. @param {number} nowMs */
  step(nowMs) {
    const lateMs = nowMs - this.lastStepMs - this.stepMs;
    this.lastStepMs = nowMs;
    if (lateMs > Math.max(500, 2 * this.stepMs)) this.graceSteps = this.timeoutSlots;
    const { length } = this.slots;
    const judged = this.slots[(this.at - this.timeoutSlots + length) % length];
    if (this.graceSteps > 0) {
      this.graceSteps--;
      // They are asked again when the wheel comes by.
    } else {
      // From the end: a termination takes its connection out of this very list.
      for (let i = judged.length - 1; i >= 0; i--) {
        const connection = judged[i];
        if (connection !== undefined && !connection.isAlive) {
          this.counters.heartbeatTimeouts++;
          connection.transport.terminate();
        }
      }
    }
    const asked = this.slots[this.at];
    for (let i = 0; i < asked.length; i++) {
      asked[i].isAlive = false;
      asked[i].transport.ping();
    }
    this.at = (this.at + 1) % length;
  }
}
