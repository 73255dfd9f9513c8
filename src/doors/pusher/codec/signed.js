// signed.js: what an application has signed for a client: channels, members of presence channels,
// users of sign-ins. Data is parsed only after its signature was checked.

import { asciiJson, MAX_SENDER_BYTES } from '../../../auth/claims.js';
import { sessionUserOf } from '../../../protocol/app-names.js';
import { roomOfUser } from '../../../protocol/pusher-channels.js';
import { channelText, checkAuth, userText } from '../../../protocol/pusher-signature.js';
import { readObject } from './messages.js';
import { socketIdOf } from './socket-id.js';

const MAX_USER_LENGTH = 128;
const MAX_ROOM_LENGTH = 512;
/** @type {readonly unknown[]} */
const NO_IDS = Object.freeze([]);

/** @import { App } from '../../../config/pusher.js' */

/** Why a subscription is refused. @typedef {{type: string, status: number, error: string}} Refused */

/** Whoever is in a presence channel. @typedef {{user: string, info: Buffer|null, member: Buffer}} Member */

/**
 * @typedef {object} SignedInUser
 * @property {string} id @property {string|null} info JSON
 * @property {readonly string[]} watchlist ids
 */

/** @param {string} error @returns {Refused} */
export const authError = (error) => ({ type: 'AuthError', status: 401, error });
/** @param {number} status @param {string} error @returns {Refused} */
export const limitReached = (status, error) => ({ type: 'LimitReached', status, error });

export const UNAUTHORIZED = authError('The connection is unauthorized.');
const INVALID_MEMBER = authError('Invalid presence information');

/**
 * @param {string} id of the connection @param {App} app @param {string} channel
 * @param {unknown} auth @param {unknown} data as received
 * @returns {Refused|null} null: the signature is valid
 */
export function channelFault(id, app, channel, auth, data) {
  if (typeof data !== 'string') return UNAUTHORIZED;
  switch (checkAuth(app, auth, channelText(socketIdOf(id), channel, data))) {
    case 'ok':
      return null;
    case 'key': {
      const key = String(auth).split(':', 1)[0].slice(0, 64);
      return authError(`Invalid key in subscription auth data: '${key}'`);
    }
    default:
      return UNAUTHORIZED;
  }
}

/**
 * @param {App} app @param {SignedInUser|null} signedIn @param {unknown} data channel_data, verified
 * @returns {Member|Refused}
 */
export function memberOf(app, signedIn, data) {
  const text = String(data);
  if (text === '' && signedIn !== null)
    return newMember(app, signedIn.id, JSON.stringify(signedIn.id), signedIn.info);
  const parsed = readObject(text);
  if (parsed === null) return INVALID_MEMBER;
  const { user_id: id } = parsed.value;
  const source = parsed.sourceOf('user_id') ?? '';
  const user = typeof id === 'string' ? id : typeof id === 'number' ? source : '';
  if (user === '') return INVALID_MEMBER;
  const info = parsed.sourceOf('user_info') ?? null;
  if (user.length > MAX_USER_LENGTH)
    return limitReached(
      4301,
      `The user_id is longer than the allowed ${MAX_USER_LENGTH} characters.`,
    );
  return newMember(app, user, source, info);
}

/**
 * @param {App} app @param {string} user @param {string} id JSON, as the application wrote it
 * @param {string|null} info JSON @returns {Member|Refused}
 */
function newMember(app, user, id, info) {
  if (info !== null && Buffer.byteLength(info) > app.maxMemberBytes)
    return limitReached(4301, `The user_info is larger than ${app.maxMemberBytes} bytes.`);
  const shown = info === null ? '' : `,"info":${info}`;
  // A string id equals the user's name.
  const raw = id.startsWith('"') ? '' : `,"user_id":${id}`;
  return {
    user,
    info: info === null ? null : Buffer.from(info),
    member: Buffer.from(`{"user":${JSON.stringify(user)}${shown}${raw}}`),
  };
}

/**
 * @param {string} connection id @param {App} app @param {unknown} auth @param {unknown} data as
 *   received @returns {SignedInUser|null} null: the signature or the user is not valid
 */
export function readUser(connection, app, auth, data) {
  if (typeof data !== 'string') return null;
  if (checkAuth(app, auth, userText(socketIdOf(connection), data)) !== 'ok') return null;
  const parsed = readObject(data);
  if (parsed === null) return null;
  const { id: value, watchlist } = parsed.value;
  const id = typeof value === 'number' ? (parsed.sourceOf('id') ?? '') : value;
  if (typeof id !== 'string' || id === '' || id.length > MAX_USER_LENGTH) return null;
  if (Buffer.from(id).toString() !== id) return null; // halves of surrogate pairs
  if (asciiJson(sessionUserOf(app, id)).length > MAX_SENDER_BYTES) return null;
  if (roomOfUser(app, id).length > MAX_ROOM_LENGTH) return null;
  const listed = Array.isArray(watchlist) ? watchlist : NO_IDS;
  if (!listed.every(isId)) return null;
  return { id, info: parsed.sourceOf('user_info') ?? null, watchlist: listed.map(String) };
}

/** @param {unknown} value */
function isId(value) {
  return typeof value === 'string' || typeof value === 'number';
}
