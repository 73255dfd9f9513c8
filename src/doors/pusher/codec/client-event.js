// client-event.js: events that clients send to each other: as they come, for the hook onPublish,
// and as payloads of publications.

import { asciiJson, MAX_SENDER_BYTES } from '../../../auth/claims.js';
import { sessionUserOf } from '../../../protocol/app-names.js';
import { encodePayload } from './frames.js';
import { isObject } from './messages.js';

export const EVENT_PREFIX = 'client-';

/** @import { App } from '../../../config/pusher.js' */
/** @import { Connection } from '../../../hub/connection.js' */
/** @import { Message } from './messages.js' */
/** @import { SignedInUser } from './signed.js' */

/**
 * @typedef {object} ClientEvent
 * @property {string} event @property {string} data as text
 * @property {boolean} isRaw `data` is JSON and sent as JSON, not as a string
 */

/** @param {ClientEvent} event @param {string|null} user of a presence channel */
export function payloadOf({ event, data, isRaw }, user) {
  return encodePayload(event, data, user, isRaw);
}

/** @param {App} app @param {Message} message @returns {ClientEvent} */
export function readEvent({ clientEventData }, { event, data, dataSource }) {
  const isRaw = clientEventData === 'asSent' && dataSource !== '';
  if (isRaw) return { event, data: dataSource, isRaw };
  return { event, data: typeof data === 'string' ? data : dataSource || '{}', isRaw };
}

/**
 * @param {ClientEvent} sent @param {Buffer} payload JSON, from the hook
 * @returns {ClientEvent|null} null: not an event
 */
export function changedEvent({ event, isRaw }, payload) {
  const changed = JSON.parse(payload.toString());
  if (!isObject(changed) || changed.data === undefined) return null;
  const name = changed.event ?? event;
  if (typeof name !== 'string' || !name.startsWith(EVENT_PREFIX)) return null;
  const { data } = changed;
  const text = typeof data === 'string' && !isRaw ? data : JSON.stringify(data);
  return { event: name, data: text, isRaw };
}

/**
 * The sender that native clients see: the user. In native rooms, as of a shared app, the app's
 * prefix keeps it from looking like a native user.
 * @param {Connection} connection @param {App} app @param {SignedInUser|null} signedIn
 * @param {string|null} member of a presence channel
 */
export function eventSender(connection, app, signedIn, member) {
  const user = member ?? signedIn?.id ?? null;
  if (user === null) return connection.sender;
  const sender = asciiJson(app.isShared ? sessionUserOf(app, user) : user);
  return sender.length <= MAX_SENDER_BYTES ? sender : connection.id;
}
