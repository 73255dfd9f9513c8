// frames.js: texts for one client, and frames of publications.
//
// A frame is `{"event":…,"channel":…,"data":…}`. `data` is a string that contains JSON, because
// some clients accept nothing else. Exceptions are errors, signin_success and watchlist events.
//
// The payload of a publication is `{"event":E,"data":"D"}`, with `,"user_id":"U"` at the end if it
// names a user. So a frame is `{"channel":C,` and the payload without its first byte, built once
// for the room. If the room may have native publishers, payloads are checked, except those of
// client events.

import { FORMAT } from '../../../protocol/format.js';
import { headerBytes, roomOfPrefix, writeHeader } from '../../../protocol/frame.js';
import {
  eventOf,
  isRosterChange,
  isTransient,
  KIND,
  kindOf,
  payloadEnd,
  payloadStart,
  payloadText,
  senderOf,
} from '../../../protocol/publication.js';
import { appIdOf, channelOf } from '../../../protocol/pusher-channels.js';
import { isReserved, readObject } from './messages.js';

/** @import { RosterMember, RosterTexts } from '../../../protocol/door-texts.js' */

/** @param {number|null} code @param {string} message @param {string} [channel] */
export function errorText(code, message, channel) {
  return JSON.stringify({ event: 'pusher:error', data: { message, code }, channel });
}

/** @param {string} socketId @param {number} activityTimeoutS */
export function establishedText(socketId, activityTimeoutS) {
  const data = JSON.stringify({ socket_id: socketId, activity_timeout: activityTimeoutS });
  return JSON.stringify({ event: 'pusher:connection_established', data });
}

export const PONG_TEXT = '{"event":"pusher:pong","data":"{}"}';

/** @param {string} channel @param {string} [data] JSON: the members of a presence channel */
export function subscribedText(channel, data = '{}') {
  return JSON.stringify({ event: 'pusher_internal:subscription_succeeded', channel, data });
}

/** @param {string} channel @param {{type: string, status: number, error: string}} refused */
export function notSubscribedText(channel, { type, status, error }) {
  const data = { type, error, status };
  return JSON.stringify({ event: 'pusher:subscription_error', channel, data });
}

/** @param {string} channel */
export function cacheMissText(channel) {
  return JSON.stringify({ event: 'pusher:cache_miss', channel, data: '{}' });
}

/** @param {string} userData as the client sent it */
export function signedInText(userData) {
  return JSON.stringify({ event: 'pusher:signin_success', data: { user_data: userData } });
}

/** @param {ReadonlyMap<string, boolean>} online is a user online? */
export function watchlistText(online) {
  const users = (/** @type {boolean} */ isOnline) =>
    [...online.keys()].filter((user) => online.get(user) === isOnline);
  const events = [
    { name: 'online', user_ids: users(true) },
    { name: 'offline', user_ids: users(false) },
  ].filter(({ user_ids }) => user_ids.length > 0);
  return JSON.stringify({ event: 'pusher_internal:watchlist_events', data: { events } });
}

/**
 * @param {string} event @param {string} data any text
 * @param {string|null} [user] of a client event in a presence channel
 * @param {boolean} [isRaw] `data` is JSON and sent as JSON, not as a string
 * @returns {Buffer} the payload of a publication
 */
export function encodePayload(event, data, user = null, isRaw = false) {
  const end = user === null ? '}' : `,"user_id":${JSON.stringify(user)}}`;
  const text = isRaw ? data : JSON.stringify(data);
  return Buffer.from(`{"event":${JSON.stringify(event)},"data":${text}${end}`);
}

/**
 * @param {string} text JSON from presence: `{"user":…,"info":…,"user_id":…}`
 * @returns {RosterMember|null} null: another form
 */
export function readMember(text) {
  const member = readObject(text);
  const user = member?.value.user;
  if (!member || typeof user !== 'string') return null;
  return {
    user,
    id: member.sourceOf('user_id') ?? JSON.stringify(user),
    info: member.sourceOf('info') ?? '{}',
  };
}

/** @param {Iterable<RosterMember>} members @returns {string} JSON for subscription_succeeded */
export function membersData(members) {
  const ids = [];
  const hash = [];
  for (const { user, info } of members) {
    const id = JSON.stringify(user);
    ids.push(id);
    hash.push(`${id}:${info}`);
  }
  return `{"presence":{"ids":[${ids}],"hash":{${hash}},"count":${ids.length}}}`;
}

/**
 * @param {'join'|'leave'} event @param {RosterMember} member
 * @returns {string} the event of a channel, without the channel
 */
function memberText(event, { id, info }) {
  const isJoin = event === 'join';
  const data = isJoin ? `{"user_id":${id},"user_info":${info}}` : `{"user_id":${id}}`;
  const name = isJoin ? 'member_added' : 'member_removed';
  return `"event":"pusher_internal:${name}","data":${JSON.stringify(data)}}`;
}

/** The lists of presence channels. @type {RosterTexts} */
export const ROSTER_TEXTS = Object.freeze({
  format: FORMAT.PUSHER,
  readMember,
  changeText(room, event, member) {
    const channel = channelOf(room);
    return channel && `{"channel":${JSON.stringify(channel)},${memberText(event, member)}`;
  },
});

/** @param {string} count @returns {string} as memberText */
function countText(count) {
  const data = JSON.stringify(`{"subscription_count":${count}}`);
  return `"event":"pusher_internal:subscription_count","data":${data}}`;
}

/**
 * @typedef {object} Head
 * @property {Buffer} channel `{"channel":C,`
 * @property {boolean} isOwn only this door publishes to the room
 */

/**
 * Stands for a publication without a frame: an empty pong, which clients ignore (RFC 6455 5.5.3).
 * So each publication has a frame, and its position selects what to leave out.
 */
const NO_FRAME = Buffer.from([0x8a, 0]);
const NOTHING = Buffer.alloc(0);

export class PusherFrames {
  /** By native prefix, which each room has once. @type {WeakMap<Buffer, Head|null>} */
  #heads = new WeakMap();

  /** @param {boolean} [hasNatives] may tokens or API keys of an app publish to its rooms? */
  constructor(hasNatives = false) {
    this.hasNatives = hasNatives;
  }

  /**
   * @param {Buffer} prefix roomPrefix(room) @param {readonly Buffer[]} publications in order
   * @returns {Buffer} a frame for each; empty if clients hear of none
   */
  encode(prefix, publications) {
    const head = this.#headOf(prefix);
    if (head === null) return NOTHING;
    const texts = [];
    let bytes = 0;
    let told = 0;
    for (const publication of publications) {
      const text = this.#textOf(head, publication);
      texts.push(text);
      if (text === null) bytes += NO_FRAME.length;
      else {
        told++;
        const length = head.channel.length + text.length;
        bytes += headerBytes(length) + length;
      }
    }
    if (told === 0) return NOTHING;
    const frames = Buffer.allocUnsafe(bytes);
    let at = 0;
    for (const text of texts) {
      if (text === null) {
        at += NO_FRAME.copy(frames, at);
        continue;
      }
      at = writeHeader(frames, at, head.channel.length + text.length);
      at += head.channel.copy(frames, at);
      at += text.copy(frames, at);
    }
    return frames;
  }

  /**
   * @param {Head} head @param {Buffer} publication
   * @returns {Buffer|null} the frame after `{"channel":C,`; null: not for clients
   */
  #textOf({ isOwn }, publication) {
    const kind = kindOf(publication);
    if (kind === KIND.PRESENCE) {
      const event = eventOf(publication);
      if (event === 'count') return Buffer.from(countText(payloadText(publication)));
      const member = isRosterChange(publication) ? readMember(payloadText(publication)) : null;
      return member === null ? null : Buffer.from(memberText(event, member));
    }
    if (kind !== KIND.MESSAGE && kind !== KIND.POSITIONED) return null;
    if (isOwn || isClientEvent(publication))
      return publication.subarray(payloadStart(publication) + 1, payloadEnd(publication));
    return foreignText(publication);
  }

  /** @param {Buffer} prefix @returns {Head|null} null: not a room of a channel */
  #headOf(prefix) {
    let head = this.#heads.get(prefix);
    if (head !== undefined) return head;
    const room = roomOfPrefix(prefix);
    const channel = channelOf(room);
    head =
      channel === null
        ? null
        : {
            channel: Buffer.from(`{"channel":${JSON.stringify(channel)},`),
            isOwn: appIdOf(room) !== null && !this.hasNatives,
          };
    this.#heads.set(prefix, head);
    return head;
  }
}

/**
 * For a room with native publishers. A payload of another shape becomes the event `message`. Only
 * this door's events name a user or have names of the protocol.
 * @param {Buffer} publication
 */
function foreignText(publication) {
  const text = payloadText(publication);
  const payload = readObject(text);
  const event = payload?.value.event;
  const source = payload?.sourceOf('data');
  if (
    !payload ||
    typeof event !== 'string' ||
    source === undefined ||
    (senderOf(publication) !== '' && isReserved(event)) // by a client, not by the server or its APIs
  )
    return Buffer.from(`"event":"message","data":${JSON.stringify(text)}}`);
  const dataText = typeof payload.value.data === 'string' ? source : JSON.stringify(source);
  return Buffer.from(`"event":${JSON.stringify(event)},"data":${dataText}}`);
}

/** Only client events have a sender and are never kept. @param {Buffer} publication */
function isClientEvent(publication) {
  return isTransient(publication) && senderOf(publication) !== '';
}
