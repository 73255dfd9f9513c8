// message.js: an event as a request body, and its id.

import { createHash } from 'node:crypto';

/** Longer than any event. Most receivers would refuse a longer body. */
export const MAX_BODY_BYTES = 65_536;

/** @import { WebhookEvent } from './queue.js' */

/**
 * A recorded event, or an event that the courier makes.
 * @typedef {WebhookEvent | (Omit<WebhookEvent, 'type'> & {type: 'webhook.gap'|'webhook.test',
 *   endpoint: string, dropped?: number, since?: number})} Sendable
 */

/**
 * @typedef {object} Message of one request
 * @property {string} id @property {string} body
 * @property {Readonly<Record<string, string>>} [headers] additional ones, in lower case
 */

/**
 * @typedef {object} Form the kind of requests that an endpoint gets
 * @property {readonly number[]} scheduleMs pauses after failures of an event. The last one repeats
 *   until the event expires
 * @property {boolean} entersAtOnce only leaves wait for the grace
 * @property {boolean} tellsGaps sends webhook.gap
 * @property {number} batchMs how long events are collected; 0: each request has one event
 * @property {(event: Sendable) => boolean} wants
 * @property {(events: readonly Sendable[]) => Message} messageOf one event, unless `batchMs` > 0
 */

/**
 * The id is a hash of what identifies the event. So all attempts have the same id, even from
 * another server, and even if the event was recorded twice.
 * @param {Sendable} event @returns {Message}
 */
export function messageOf(event) {
  const { type, seq, epoch, at, since, text, ...rest } = /** @type {Record<string, any>} */ (event);
  const { room = null, user = null, endpoint = null } = rest;
  const name = JSON.stringify([room, user, endpoint, epoch, seq, type]);
  const id = `evt_${createHash('sha256').update(name).digest('base64url').slice(0, 22)}`;
  const data =
    endpoint === null
      ? { ...rest, sequence: seq, epoch }
      : { ...rest, ...(since === undefined ? {} : { since: new Date(since).toISOString() }) };
  const body = JSON.stringify({ type, timestamp: new Date(at).toISOString(), data });
  return { id, body: text === undefined ? body : `${body.slice(0, -2)},"payload":${text}}}` };
}
