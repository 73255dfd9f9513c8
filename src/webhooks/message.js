// message.js: an event as a request body, its id, and its signatures (Standard Webhooks 1.0.0).

import { createHash, createHmac } from 'node:crypto';

/** No event is this long; a body that is would be refused by most receivers. */
export const MAX_BODY_BYTES = 65_536;

/** @import { WebhookEvent } from './queue.js' */

/**
 * What is sent: a recorded event, or one of the courier's own.
 * @typedef {WebhookEvent | (Omit<WebhookEvent, 'type'> & {type: 'webhook.gap'|'webhook.test',
 *   endpoint: string, dropped?: number, since?: number})} Sendable
 */

/**
 * @typedef {object} Message of one request
 * @property {string} id @property {string} body
 * @property {Readonly<Record<string, string>>} [headers] further ones, in lower case
 */

/**
 * @typedef {object} Form how an endpoint is spoken to
 * @property {readonly number[]} scheduleMs the pauses after the first failures of an event. The last
 *   one repeats, to the event's age
 * @property {boolean} entersAtOnce only who left waits for the grace
 * @property {boolean} tellsGaps webhook.gap is sent
 * @property {number} batchMs time for which events are collected; 0: one event in each request
 * @property {(event: Sendable) => boolean} wants
 * @property {(events: readonly Sendable[]) => Message} messageOf one event, unless `batchMs` is
 *   above 0
 */

/**
 * The id is a hash of what names an event, so every attempt has the same one, also that of another
 * server, and also if the event was recorded twice.
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

/**
 * @param {readonly string[]} secrets `whsec_…`; each of them signs, so that receivers may have
 *   either while a secret rotates
 * @param {string} id @param {string} body @param {number} timestampS Unix time of the attempt
 * @returns {Record<string, string>} the headers
 */
export function signedHeaders(secrets, id, body, timestampS) {
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestampS}.${body}`).digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestampS),
    'webhook-signature': signatures.join(' '),
  };
}
