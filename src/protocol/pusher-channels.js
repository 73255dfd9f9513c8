// pusher-channels.js: channels of a Pusher app: their kinds, their names, and their rooms.
//
// Channel `chat=1` of app 123 is room `~123:chat/e1`, and signed-in user 7 has room `~123:u:7`.
// Native clients cannot name either, because isRoom does not allow `~`. No two channels share a
// room: Pusher's names cannot contain `:` or `/`, which separate and escape. A shared app leaves
// out the prefix, so that its channels are native rooms. Native clients of the app use the same
// rooms (protocol/app-names.js): one that joins `chat/e1` is in channel `chat=1`.

import { roomPrefixOf } from './app-names.js';

/** @import { NamedApp } from './app-names.js' */

/**
 * @typedef {object} Kind
 * @property {string} prefix of the names
 * @property {boolean} isPrivate needs a signature
 * @property {boolean} isPresence has members
 * @property {boolean} isEncrypted by clients, end to end
 * @property {boolean} isCache keeps its last event
 * @property {boolean} isUser reaches a signed-in user
 */

const SERVER_TO_USER = '#server-to-user-';

/** @param {string} prefix @param {string} traits @returns {Readonly<Kind>} */
function kind(prefix, traits) {
  return Object.freeze({
    prefix,
    isPrivate: traits.includes('private'),
    isPresence: traits.includes('presence'),
    isEncrypted: traits.includes('encrypted'),
    isCache: traits.includes('cache'),
    isUser: traits.includes('user'),
  });
}

/** The first row with a matching prefix counts. */
export const KINDS = Object.freeze([
  kind('private-encrypted-cache-', 'private encrypted cache'),
  kind('private-encrypted-', 'private encrypted'),
  kind('private-cache-', 'private cache'),
  kind('private-', 'private'),
  kind('presence-cache-', 'private presence cache'),
  kind('presence-', 'private presence'),
  kind('cache-', 'cache'),
  kind(SERVER_TO_USER, 'user'),
  kind('', ''),
]);

/** @param {string} channel @returns {Readonly<Kind>} */
export function kindOf(channel) {
  return /** @type {Kind} */ (KINDS.find(({ prefix }) => channel.startsWith(prefix)));
}

const CHANNEL = /^[-A-Za-z0-9_=@,.;]+$/;
/** The official SDKs refuse longer user ids in channel names. */
const MAX_USER_CHANNEL_LENGTH = 200;

/** Is it a channel's name, of any length? @param {unknown} name @returns {name is string} */
export function isChannel(name) {
  if (typeof name !== 'string') return false;
  if (!name.startsWith(SERVER_TO_USER)) return CHANNEL.test(name);
  return name.length <= MAX_USER_CHANNEL_LENGTH && CHANNEL.test(name.slice(SERVER_TO_USER.length));
}

/** @param {string} channel @returns {string|null} the user whom it reaches; null: not one user */
export function userOfChannel(channel) {
  return channel.startsWith(SERVER_TO_USER) ? channel.slice(SERVER_TO_USER.length) : null;
}

/** The user's own channel, as clients see it. @param {string} user */
export function channelOfUser(user) {
  return SERVER_TO_USER + user;
}

/** @param {NamedApp} app @param {string} channel for which isChannel() is true */
export function roomOf(app, channel) {
  const user = userOfChannel(channel);
  return user === null ? roomPrefixOf(app) + escapeName(channel) : roomOfUser(app, user);
}

/**
 * The room of all connections signed in as this user.
 * @param {Pick<NamedApp, 'id'>} app @param {string} user any text
 */
export function roomOfUser({ id }, user) {
  return `~${id}:u:${escapeName(user)}`;
}

const OWN_ROOM = /^~(?!c:)[A-Za-z0-9-]+:(u:)?(.+)$/s;

/** @param {string} room @returns {string|null} null: not a channel's room */
export function channelOf(room) {
  const own = OWN_ROOM.exec(room);
  const text = unescapeName(own === null ? room : own[2]);
  if (text === null) return null;
  if (own?.[1] !== undefined) return channelOfUser(text);
  return CHANNEL.test(text) ? text : null;
}

/** @param {string} room @returns {string|null} null: the room has no app's prefix */
export function appIdOf(room) {
  if (room.charCodeAt(0) !== 0x7e) return null;
  const end = room.indexOf(':');
  return end < 0 ? null : room.slice(1, end);
}

/** @type {Readonly<Record<string, string>>} */
const ESCAPES = Object.freeze({ '=': '/e', ',': '/c', ';': '/s' });
/** @type {Readonly<Record<string, string>>} */
const UNESCAPES = Object.freeze({ e: '=', c: ',', s: ';' });
/** User ids are any text. Their other characters become `/x` and UTF-8 in hexadecimal. */
const UNUSUAL = /[^-A-Za-z0-9_.@]+/g;

/** @param {string} text */
function escapeName(text) {
  return text.replace(UNUSUAL, (characters) => {
    let escaped = '';
    for (const character of characters) escaped += ESCAPES[character] ?? escapeBytes(character);
    return escaped;
  });
}

/** @param {string} character */
function escapeBytes(character) {
  let escaped = '';
  for (const byte of Buffer.from(character)) escaped += `/x${byte.toString(16).padStart(2, '0')}`;
  return escaped;
}

/** @param {string} escaped @returns {string|null} null: not an escaped text */
function unescapeName(escaped) {
  if (!escaped.includes('/')) return escaped;
  const text = escaped.replace(/(?:\/x[0-9a-f]{2})+|\/[ecs]/g, (code) => {
    const plain = UNESCAPES[code[1]];
    return plain ?? Buffer.from(code.replaceAll('/x', ''), 'hex').toString();
  });
  return escapeName(text) === escaped ? text : null;
}
