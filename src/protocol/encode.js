// encode.js: the texts of replies. They are concatenated, because room names need no escape, and
// payloads are JSON already. Rooms of an app appear under their bare names.

import { wireName } from './app-names.js';
import { audienceMember } from './audiences.js';
import { audienceTextOf, keyTextOf, payloadOf, senderOf, timestampOf } from './publication.js';

const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** The field `,"id":…` of a reply, or ''. @param {string|number|undefined} id */
function idMember(id) {
  return id === undefined ? '' : `,"id":${typeof id === 'number' ? id : JSON.stringify(id)}`;
}

/** An `echo` reply is this prefix, the bytes of the payload, and `echoSuffix`. */
export const ECHO_PREFIX = Buffer.from('{"type":"echo","payload":');

/** @param {string|number|undefined} id */
export function echoSuffix(id) {
  return `${idMember(id)}}`;
}

/** The reply to `leave`. @param {string} room @param {string|number|undefined} id */
export function encodeLeaveReply(room, id) {
  return `{"type":"left","room":"${wireName(room)}"${idMember(id)}}`;
}

/** The server took the connection out of a room. @param {string} room @param {string} reason */
export function encodeLeft(room, reason) {
  return `{"type":"left","room":"${wireName(room)}","reason":"${reason}"}`;
}

/** @param {string} userId @param {number} expiresAt Unix ms @param {string|number|undefined} id */
export function encodeAuthenticated(userId, expiresAt, id) {
  return `{"type":"authenticated","userId":${JSON.stringify(userId)},"expiresAt":${Math.floor(expiresAt)}${idMember(id)}}`;
}

/**
 * The reply to a join with `since` or `last` if the room has no history.
 * @param {string} room @param {boolean} hasSince @param {boolean} hasLast
 * @param {string|number|undefined} id
 */
export function encodeNotReplayed(room, hasSince, hasLast, id) {
  const recovered = hasSince ? ',"recovered":false' : '';
  return `{"type":"joined","room":"${wireName(room)}"${recovered}${hasLast ? ',"replayed":0' : ''}${idMember(id)}}`;
}

/**
 * The reply to a join if the room has history.
 * @param {string} room
 * @param {{epoch: string, offset: number, recovered: boolean, replayed: number, first: number}} joined
 * @param {string|number|undefined} id
 * @param {boolean} hasLast if true, the reply has `replayed`, the number of messages that follow,
 *   and `first`, where they begin
 */
export function encodeJoined(room, { epoch, offset, recovered, replayed, first }, id, hasLast) {
  const replay = hasLast ? `,"replayed":${replayed},"first":${first}` : '';
  return `{"type":"joined","room":"${wireName(room)}"${positionMembers(epoch, offset)},"recovered":${recovered}${replay}${idMember(id)}}`;
}

/**
 * The reply to a join if the room has state: messages follow, then `synced`.
 * @param {string} room @param {{epoch: string, offset: number, recovered: boolean}} joined
 * @param {string|number|undefined} id
 */
export function encodeJoinedState(room, { epoch, offset, recovered }, id) {
  return `{"type":"joined","room":"${wireName(room)}"${positionMembers(epoch, offset)},"recovered":${recovered},"state":true${idMember(id)}}`;
}

/**
 * `synced`: a member has the state up to a position. `reset`: forget it, all of it follows.
 * @param {'synced'|'reset'} type @param {string} room @param {string} epoch @param {number} offset
 */
export function encodeStateNotice(type, room, epoch, offset) {
  return `{"type":"${type}","room":"${wireName(room)}"${positionMembers(epoch, offset)}}`;
}

/** @param {string} epoch @param {number} offset */
function positionMembers(epoch, offset) {
  return `,"epoch":"${epoch}","offset":${offset}`;
}

/**
 * A member has come to a position, whose message is for others.
 * @param {string} room @param {string} epoch @param {number} offset
 */
export function encodePosition(room, epoch, offset) {
  return `{"type":"position","room":"${wireName(room)}"${positionMembers(epoch, offset)}}`;
}

/**
 * @param {string} room @param {string} epoch @param {number} offset @param {number} reloadAfterMs
 */
export function encodeResync(room, epoch, offset, reloadAfterMs) {
  return `{"type":"resync","room":"${wireName(room)}"${positionMembers(epoch, offset)},"reloadAfterMs":${reloadAfterMs}}`;
}

/** @param {boolean} degraded */
export function encodeDegraded(degraded) {
  return `{"type":"degraded","degraded":${degraded}}`;
}

/** A `history` reply is this prefix, the messages, and `historySuffix`. @param {string} room */
export function historyPrefix(room) {
  return Buffer.from(`{"type":"history","room":"${wireName(room)}","messages":[`, 'latin1');
}

/**
 * @param {{epoch: string, offset: number}|null} position null if the room has no history
 * @param {boolean} hasMore are there more messages in the direction of the page?
 * @param {{epoch: string, offset: number}|null} next where the next page begins, if this one is empty
 * @param {string|number|undefined} id
 */
export function historySuffix(position, hasMore, next, id) {
  const members = position === null ? '' : positionMembers(position.epoch, position.offset);
  const place = next === null ? '' : `,"next":${JSON.stringify(next)}`;
  return `]${members},"more":${hasMore}${place}${idMember(id)}}`;
}

/**
 * @param {readonly {publication: Buffer, offset: number}[]} rows oldest first
 * @param {boolean} showsAudience
 * @returns {Buffer} the messages of a `history` reply, without the brackets
 */
export function encodeHistoryMessages(rows, showsAudience) {
  return Buffer.concat(
    rows.flatMap(({ publication, offset }, i) => [
      i === 0 ? HISTORY_OPEN : HISTORY_NEXT,
      payloadOf(publication),
      rowEnd(publication, offset, showsAudience),
    ]),
  );
}

/**
 * For backends.
 * @param {readonly {publication: Buffer, offset: number}[]} entries of a state, with keys
 * @returns {Buffer} without the brackets
 */
export function encodeStateEntries(entries) {
  return Buffer.concat(
    entries.flatMap(({ publication, offset }, i) => [
      Buffer.from(`${i === 0 ? '' : ','}{"key":"${keyTextOf(publication)}","payload":`),
      payloadOf(publication),
      rowEnd(publication, offset, true),
    ]),
  );
}

/** After the payload. @param {Buffer} publication @param {number} offset @param {boolean} showsAudience */
function rowEnd(publication, offset, showsAudience) {
  const head = `,"from":"${senderOf(publication)}","timestamp":${timestampOf(publication)}`;
  const text = showsAudience ? audienceTextOf(publication) : '';
  return Buffer.from(`${head},"offset":${offset}${audienceMember(text)}}`, 'latin1');
}

const HISTORY_OPEN = Buffer.from('{"payload":');
const HISTORY_NEXT = Buffer.from(',{"payload":');

/** @param {string|number} id @param {{epoch: string, offset: number}|void} position or none */
export function encodeAck(id, position) {
  return `{"type":"ack"${position ? positionMembers(position.epoch, position.offset) : ''}${idMember(id)}}`;
}

/** @param {string|number|undefined} id */
export function encodePong(id) {
  return `{"type":"pong"${idMember(id)}}`;
}

/** A member, as replies and events show it. @param {string} user @param {Buffer|null} info JSON */
export function encodeMember(user, info) {
  const head = memberHead(user);
  return info === null
    ? Buffer.from(`${head}}`)
    : Buffer.concat([Buffer.from(`${head},"info":`), info, END]);
}

const END = Buffer.from('}');

/** The first bytes of a member. @param {string} user */
function memberHead(user) {
  return `{"user":${JSON.stringify(user)}`;
}

/**
 * The part of a member that names the user.
 * @param {Buffer} member JSON
 * @returns {string} latin1; the whole member if another program has written it in another form
 */
export function userHeadOf(member) {
  if (!member.subarray(0, HEAD_START.length).equals(HEAD_START)) return member.toString('latin1');
  let end = HEAD_START.length;
  while (end < member.length && member[end] !== QUOTE) end += member[end] === BACKSLASH ? 2 : 1;
  return member.toString('latin1', 0, end);
}

const HEAD_START = Buffer.from('{"user":"');
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * A page of a `presence` reply's list.
 * @typedef {object} MemberPage
 * @property {Buffer} text JSON text without brackets
 * @property {boolean} hasMore do members follow this page?
 */

/**
 * @typedef {object} PageRequest
 * @property {readonly Buffer[]} members JSON each, in any order
 * @property {string|undefined} after the last user of the previous page
 * @property {number} limit of members
 * @property {number} maxBytes of a page; it has at least one member, even if that one is larger
 */

/** Many clients ask for it after a restart. @type {(PageRequest & {page: MemberPage})|null} */
let latestPage = null;

/**
 * Returns as many members after the given user as fit. Unless one page has all members, they are
 * sorted by their bytes, which begin with the user.
 * @param {PageRequest} request @returns {MemberPage}
 */
export function encodeMembers(request) {
  const { members, after, limit, maxBytes } = request;
  const latest = latestPage;
  if (
    latest !== null &&
    latest.members === members &&
    latest.after === after &&
    latest.limit === limit &&
    latest.maxBytes === maxBytes
  ) {
    return latest.page;
  }
  // Another program may have written malformed members to the same Redis.
  let rest = members.filter(
    (member) => member[0] === OPEN_BRACE && member[member.length - 1] === CLOSE_BRACE,
  );
  if (after !== undefined) {
    // The head ends with the user's closing quote, so only this user's member begins with it.
    const head = Buffer.from(memberHead(after));
    rest = rest.filter(
      (member) => member.compare(head) > 0 && !member.subarray(0, head.length).equals(head),
    );
  }
  let bytes = 0;
  let count = 0;
  for (const member of rest) bytes += member.length + 1;
  if (rest.length <= limit && bytes <= maxBytes) count = rest.length;
  else {
    rest.sort(Buffer.compare);
    bytes = 0;
    while (count < Math.min(limit, rest.length)) {
      bytes += rest[count].length + 1;
      if (bytes > maxBytes && count > 0) break;
      count++;
    }
  }
  const text = Buffer.concat(
    rest.slice(0, count).flatMap((member, i) => (i === 0 ? [member] : [COMMA_TEXT, member])),
  );
  const page = { text, hasMore: count < rest.length };
  latestPage = { ...request, page };
  return page;
}

const COMMA_TEXT = Buffer.from(',');

/** Members and `presenceSuffix` follow. @param {string} room @param {boolean} isListed */
export function presencePrefix(room, isListed) {
  return Buffer.from(
    `{"type":"presence","room":"${wireName(room)}",${isListed ? '"members":[' : ''}`,
    'latin1',
  );
}

/**
 * @param {number} count @param {MemberPage|null} page null if the reply lists no members
 * @param {string|number|undefined} id
 */
export function presenceSuffix(count, page, id) {
  return `${page === null ? '' : '],'}"count":${count}${page?.hasMore ? ',"more":true' : ''}${idMember(id)}}`;
}

/**
 * @param {string} payload JSON text
 * @param {number} listenerCount @param {string|number|undefined} id
 */
export function encodeBroadcastResult(payload, listenerCount, id) {
  return `{"type":"broadcastResult","payload":${payload},"listenerCount":${listenerCount}${idMember(id)}}`;
}

/**
 * @typedef {{connectionId: string, serverId: string, heartbeatMs: number, limits: object,
 *   degraded: boolean}} Welcome
 */

/** @param {Welcome} welcome @param {string|number|undefined} id */
export function encodeWelcome(welcome, id) {
  return JSON.stringify({ type: 'welcome', ...welcome, id });
}

/** @param {number} reconnectAfterMs */
export function encodeShutdown(reconnectAfterMs) {
  return `{"type":"SERVER_SHUTDOWN","message":"The server closes this connection.","reconnectAfterMs":${reconnectAfterMs}}`;
}
