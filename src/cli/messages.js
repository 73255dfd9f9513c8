// messages.js: a message as a line.

/** @import { Output } from './output.js' */

/**
 * A message, or a change in a room with state.
 * @typedef {{payload: unknown, from: string, timestamp: number, key?: string, epoch?: string,
 *   offset?: number}} Line
 */

const FROM_WIDTH = 12;

/** @param {Output} output @param {string} room @param {Line} line */
export function showMessage(output, room, { key, payload, from, timestamp, epoch, offset }) {
  output.record({ room, key, from, timestamp, epoch, offset, payload }, () => [
    ['dim', timeOf(timestamp)],
    ['cyan', (from || '(backend)').padEnd(FROM_WIDTH)],
    .../** @type {['bold', string][]} */ (key === undefined ? [] : [['bold', key]]),
    JSON.stringify(payload) ?? '',
  ]);
}

/** @param {number} timestamp */
function timeOf(timestamp) {
  const date = new Date(timestamp);
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}
