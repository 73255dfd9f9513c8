// channels.js: names of channels: which are allowed, who may use them, and the rooms behind them.
//
//   news:42         the room of that name, which native clients share
//   $secret, a:$b   private: a subscription token has to name the channel
//   dialog#42,43    for these two users alone

import {
  CHANNEL_SPACE,
  escapeChannel,
  escapePattern,
  isNativeName,
  unescapeChannel,
} from '../../../config/channel-names.js';

const MAX_LENGTH = 255;
/** The backend's keys and messages carry names of rooms. */
const MAX_ROOM_LENGTH = 512;
/** Visible ASCII but the reserved `/`, `*` and `&`. */
const CHANNEL = /^[!-%'()+-.0-~]+$/;

/** @param {string} channel @returns {'length'|'characters'|null} null: it is a channel's name */
export function channelFault(channel) {
  if (channel.length === 0 || channel.length > MAX_LENGTH) return 'length';
  if (!CHANNEL.test(channel)) return 'characters';
  return roomOf(channel).length > MAX_ROOM_LENGTH ? 'length' : null;
}

/** @param {string} channel */
export function isChannel(channel) {
  return channelFault(channel) === null;
}

/** @param {string} channel */
export function roomOf(channel) {
  return isNativeName(channel) ? channel : CHANNEL_SPACE + escapeChannel(channel);
}

/** @param {string} room @returns {string|null} null: no channel has this room */
export function channelOf(room) {
  if (isNativeName(room)) return room;
  if (!room.startsWith(CHANNEL_SPACE)) return null;
  const channel = unescapeChannel(room.slice(CHANNEL_SPACE.length));
  return channel === null || isNativeName(channel) || !CHANNEL.test(channel) ? null : channel;
}

/** @param {string} pattern of channels @returns {string[]} of rooms */
export function roomPatternsOf(pattern) {
  const other = CHANNEL_SPACE + escapePattern(pattern);
  if (!pattern.includes('*')) return [roomOf(pattern)];
  return isNativeName(pattern.replaceAll('*', 'x')) ? [pattern, other] : [other];
}

/** Does it need a subscription token? @param {string} channel */
export function isPrivate(channel) {
  return channel.startsWith('$') || channel.startsWith('$', channel.indexOf(':') + 1);
}

/** @param {string} channel @returns {readonly string[]|null} permitted users; null: all */
export function usersOf(channel) {
  const mark = channel.lastIndexOf('#');
  return mark < 0 ? null : channel.slice(mark + 1).split(',');
}

/**
 * @param {string} prefix `#` or `namespace:#`; '': no personal channels @param {string} user
 * @returns {string|null} null: none for that user, as for `42,43`, whose channel is of two others
 */
export function personalChannelOf(prefix, user) {
  if (prefix === '' || user === '') return null;
  const channel = prefix + user;
  const users = usersOf(channel) ?? [];
  return isChannel(channel) && users.length === 1 && users[0] === user ? channel : null;
}
