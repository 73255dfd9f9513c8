// recorded-event.js: reads the JSON of a recorded event, and keeps the payload of a message as it
// was written, because JavaScript would round large numbers.

const MESSAGE = '{"type":"message.published",';
const PAYLOAD = ',"payload":';

/** @import { WebhookEvent } from './queue.js' */

/** @param {string} body of an entry @returns {WebhookEvent|null} null: malformed */
export function parseEvent(body) {
  try {
    const event = JSON.parse(withText(body));
    return isEvent(event) ? event : null;
  } catch {
    return null;
  }
}

/** @param {any} event parsed JSON @returns {event is WebhookEvent} */
export function isEvent(event) {
  return (
    typeof event?.type === 'string' &&
    Number.isFinite(event.seq) &&
    Number.isFinite(event.at) &&
    typeof event.epoch === 'string'
  );
}

/**
 * A quote within a JSON string is escaped, so the first `,"payload":` and the last `,"seq":`
 * are the event's own, as in record.lua.
 * @param {string} body @returns {string} with `text` instead of a message's payload
 */
function withText(body) {
  const at = body.startsWith(MESSAGE) ? body.indexOf(PAYLOAD) : -1;
  if (at === -1) return body;
  const end = body.lastIndexOf(',"seq":');
  const text = JSON.stringify(body.slice(at + PAYLOAD.length, end));
  return `${body.slice(0, at)},"text":${text}${body.slice(end)}`;
}
