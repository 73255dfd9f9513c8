// fleet-wire.js: the messages of a survey, as JSON: a request to all workers, a worker's answer.
//   request   [survey, reply room, verb, arguments]
//   answer    [survey, worker, result]                   null: the worker refuses
//
// A newer version may append fields. A worker that does not know a verb does not answer. Other
// programs may publish on the same Redis, so each side checks all fields: malformed texts are null.

import { isHeldList } from '../protocol/audiences.js';
import { isEpoch } from '../protocol/position.js';
import { isConnectionId } from '../protocol/publication.js';

/** The most rooms of one answer of `rooms`, and of one `join` or `leave`. */
const MAX_ROOMS = 1000;
/** The most users of one `online`. */
const MAX_USERS = 1000;
/** The most connections in one answer, and the most rooms of each. */
export const MAX_CONNECTIONS = 100;
export const MAX_NAMED_ROOMS = 20;
/** The most rooms in one answer of `top`, and addresses or users in one of `refused`. */
export const MAX_TOP = 100;
/** `online` with MAX_USERS users, each character of which takes six bytes as JSON. */
const MAX_REQUEST_LENGTH = 1024 * 1024;
const MAX_ANSWER_LENGTH = 1024 * 1024;
/** The most connections that an action leaves out. */
const MAX_EXCEPT = 1000;
/** RFC 6455 5.5: a control frame has at most 125 bytes, two of which are the code. */
export const MAX_REASON_BYTES = 123;
/** The longest SERVER_ID, version, address or state. */
const MAX_TEXT_LENGTH = 256;
const NAME = /^[\w-]{16}$/;
const SESSION = /^[\w-]{22}$/;
/** The messages of one `deliver` in base64: 64 KB and a frame around them. */
const MAX_MESSAGES_LENGTH = 96 * 1024;
/** Rooms of any door: those of other doors than the native one begin with `~`, and are longer. */
const ROOM_NAME = /^~?[A-Za-z0-9_.:@/~-]{1,512}$/;
const DOOR = /^[a-z]{1,20}$/;
const WORKER_NUMBERS = ['slot', 'pid', 'connections', 'rooms', 'lagMs', 'memoryBytes', 'uptimeS'];
const CONNECTION_NUMBERS = [
  'unsentBytes',
  'worker',
  'connectedAt',
  'laggingRooms',
  'refusedMessages',
];
const WORKER_COUNTERS = ['messages', 'deliveries', 'refused', 'errors'];

/**
 * @typedef {object} Verbs the arguments and results of each verb, as plain values of JSON
 * @property {{args: {prefix: string, after: string, limit: number}, result: [string, number][]}}
 *   rooms the names in order, each with its number of connections
 * @property {{args: {room: string}, result: number}} room number of connections
 * @property {{args: {room: string, epoch: string}, result: number}} forget always 0
 * @property {{args: {users: string[]}, result: number[]}} online positions in `users`
 * @property {{args: Target & {code: number, reason?: string}, result: number}} disconnect number of
 *   connections
 * @property {{args: Membership, result: number}} join the same
 * @property {{args: Membership, result: number}} leave the same
 * @property {{args: {of: Some, expiresAtMs: number}, result: number}} renew the same
 * @property {{args: {session: string, messages: string}, result: number}} deliver to one worker:
 *   messages of a client, in base64; 1 if it has the stream with that session
 * @property {{args: {user: string}, result: {count: number, listed: UserConnection[]}}} connections
 *   of a user; `listed` has the first MAX_CONNECTIONS of them
 * @property {{args: Place, result: {count: number, listed: UserConnection[]}}} find the connections of
 *   a room, those of an address as limits count it, or one connection
 * @property {{args: {by: 'connections'|'messages', limit: number}, result: TopRoom[]}} top the rooms
 *   with the most connections or messages of this worker
 * @property {{args: Record<string, never>, result: RefusedNames}} refused
 * @property {{args: Record<string, never>, result: WorkerInfo}} describe
 */

/** Name, connections, publications in ten seconds. @typedef {[string, number, number]} TopRoom */

/**
 * Who was refused most often in the last minutes: name, connections, messages.
 * @typedef {object} RefusedNames
 * @property {[string, number, number][]} addresses @property {[string, number, number][]} users
 * @property {number} forgotten names that had to make room for others since the start
 */

/** How the client has come. @typedef {'websocket'|'sse'|'pusher'|'centrifugo'} TransportName */

/**
 * @typedef {object} UserConnection
 * @property {string} id @property {string} address @property {TransportName} transport
 * @property {string} [app] the id of its app, if its door has apps
 * @property {number} roomCount @property {string[]} rooms the first MAX_NAMED_ROOMS of them
 * @property {string} [server] this and the following are absent if the worker is older
 * @property {string} [user] of its token; '': it has none
 * @property {number} [unsentBytes] that wait because the client reads too slowly
 * @property {number} [worker] the slot of its worker
 * @property {number} [connectedAt] ms since 1970, in whole seconds
 * @property {number} [laggingRooms] rooms with history in which it is behind, because it reads too
 *   slowly
 * @property {number} [refusedMessages] in the minute that leads to a close with 4005
 */

/**
 * @typedef {object} WorkerInfo
 * @property {string} server its SERVER_ID
 * @property {string} version @property {number} slot @property {number} pid
 * @property {string} state `ready`, or the reason why the worker is not
 * @property {number} connections @property {number} rooms
 * @property {number} lagMs the worst event-loop lag of the last second
 * @property {number} memoryBytes private
 * @property {number} uptimeS
 * @property {number} [messages] received since the start; this and the following are absent if the
 *   worker is older
 * @property {number} [deliveries] since the start
 * @property {number} [refused] connections refused since the start
 * @property {number} [errors] error replies since the start
 */

/**
 * Some connections of a user: `only` that one, or all but those of `except`. With `only`, the user
 * may be '', which is a connection without one.
 * @typedef {{user: string, only: string|null, except: string[]}} Some
 */
/**
 * `of` stands in place of the others, so that a worker that does not know it refuses the request.
 * @typedef {{user: string, connectionId: null}|{user: null, connectionId: string} |{user: null,
 *   connectionId: null, of: Some}} Target
 */
/**
 * `audiences` of a join: an older worker ignores them, and its members see less.
 * @typedef {({user: string}|{user: null, of: Some}) & {rooms: string[], audiences?: string[]}} Membership
 */
/**
 * One of them is not null. An older asker does not send `room`.
 * @typedef {{address: string|null, connectionId: string|null, room?: string|null}} Place
 */
/** @typedef {keyof Verbs} Verb */
/** @typedef {Record<string, any>} Fields */

/**
 * @type {{readonly [V in Verb]: {
 *   isArgs: (value: Fields) => boolean,
 *   isResult: (value: unknown, args: Verbs[V]['args']) => boolean
 * }}}
 */
const CHECKS = Object.freeze({
  rooms: {
    isArgs: ({ prefix, after, limit }) =>
      isPart(prefix) && isPart(after) && isCount(limit) && limit > 0 && limit <= MAX_ROOMS,
    isResult: (value, { limit }) =>
      isListOf(value, limit, (row) => Array.isArray(row) && isRoomName(row[0]) && isCount(row[1])),
  },
  room: { isArgs: ({ room }) => isRoomName(room), isResult: isCount },
  forget: {
    isArgs: ({ room, epoch }) => isRoomName(room) && typeof epoch === 'string' && isEpoch(epoch),
    isResult: isCount,
  },
  online: {
    isArgs: ({ users }) => isListOf(users, MAX_USERS, isUserName),
    isResult: (value, { users }) =>
      isListOf(value, users.length, (position) => isCount(position) && position < users.length),
  },
  disconnect: {
    isArgs: ({ user, connectionId, of, code, reason = '' }) =>
      isCloseCode(code) &&
      isReason(reason) &&
      (of === undefined
        ? user === null
          ? isConnectionId(connectionId)
          : isUserName(user) && connectionId === null
        : user === null && connectionId === null && isSome(of)),
    isResult: isCount,
  },
  join: { isArgs: isMembership, isResult: isCount },
  leave: { isArgs: isMembership, isResult: isCount },
  deliver: {
    isArgs: ({ session, messages }) =>
      isSession(session) && typeof messages === 'string' && messages.length <= MAX_MESSAGES_LENGTH,
    isResult: isCount,
  },
  renew: {
    isArgs: ({ of, expiresAtMs }) => isSome(of) && isCount(expiresAtMs),
    isResult: isCount,
  },
  connections: {
    isArgs: ({ user }) => isUserName(user),
    isResult: isConnections,
  },
  find: {
    isArgs: ({ address, connectionId, room = null }) =>
      [address, connectionId, room].filter((one) => one !== null).length === 1 &&
      (address === null || isShort(address)) &&
      (connectionId === null || isConnectionId(connectionId)) &&
      (room === null || isRoomName(room)),
    isResult: isConnections,
  },
  top: {
    isArgs: ({ by, limit }) =>
      (by === 'connections' || by === 'messages') && isCount(limit) && limit <= MAX_TOP,
    isResult: (value, { limit }) => isListOf(value, limit, (row) => isCounted(row, isRoomName)),
  },
  refused: {
    isArgs: () => true,
    isResult: (value) => {
      const { addresses, users, forgotten } = fieldsOf(value);
      return (
        isListOf(addresses, MAX_TOP, (row) => isCounted(row, isShort)) &&
        isListOf(users, MAX_TOP, (row) => isCounted(row, isUserName)) &&
        isCount(forgotten)
      );
    },
  },
  describe: { isArgs: () => true, isResult: isWorkerInfo },
});

/** @template {Verb} V @param {V} verb @param {Fields} args @returns {args is Verbs[V]['args']} */
export function isArguments(verb, args) {
  return CHECKS[verb].isArgs(args);
}

/**
 * @template {Verb} V @param {V} verb @param {unknown} result @param {Verbs[V]['args']} args
 * @returns {result is Verbs[V]['result']}
 */
export function isResult(verb, result, args) {
  return CHECKS[verb].isResult(result, args);
}

/**
 * @template {Verb} V
 * @param {string} survey @param {string} replyRoom @param {V} verb @param {Verbs[V]['args']} args
 */
export function encodeRequest(survey, replyRoom, verb, args) {
  return JSON.stringify([survey, replyRoom, verb, args]);
}

/**
 * @typedef {{[V in Verb]: {survey: string, replyRoom: string, verb: V, args: Verbs[V]['args']}}[Verb]}
 *   Request
 */

/** @param {string} text @returns {Request|null} */
export function decodeRequest(text) {
  const fields = readList(text, MAX_REQUEST_LENGTH, 4);
  if (fields === null) return null;
  const [survey, replyRoom, verb, args] = fields;
  if (!isName(survey) || !isReplyRoom(replyRoom)) return null;
  if (typeof verb !== 'string' || !Object.hasOwn(CHECKS, verb)) return null;
  if (typeof args !== 'object' || args === null) return null;
  if (!isArguments(/** @type {Verb} */ (verb), args)) return null;
  return /** @type {Request} */ ({ survey, replyRoom, verb, args });
}

/** @param {string} survey @param {string} worker @param {unknown} result null: refused */
export function encodeAnswer(survey, worker, result) {
  return JSON.stringify([survey, worker, result]);
}

/**
 * @param {string} text
 * @returns {{survey: string, worker: string, result: unknown}|null} the result is not checked yet
 */
export function decodeAnswer(text) {
  const fields = readList(text, MAX_ANSWER_LENGTH, 3);
  if (fields === null) return null;
  const [survey, worker, result] = fields;
  return isName(survey) && isName(worker) ? { survey, worker, result } : null;
}

/** @param {string} worker */
export function replyRoomOf(worker) {
  return `*${worker}`;
}

/** @param {unknown} room @returns {room is string} */
function isRoomName(room) {
  return typeof room === 'string' && ROOM_NAME.test(room);
}

/** @param {unknown} user of any door @returns {user is string} */
function isUserName(user) {
  return isShort(user) && user !== '';
}

/** @param {unknown} value @returns {value is string} */
function isReplyRoom(value) {
  return typeof value === 'string' && value.startsWith('*') && isName(value.slice(1));
}

/** @param {unknown} value of hub/upstreams.js @returns {value is string} */
function isSession(value) {
  return typeof value === 'string' && SESSION.test(value);
}

/** @param {unknown} value a worker's, or of a survey @returns {value is string} */
export function isName(value) {
  return typeof value === 'string' && NAME.test(value);
}

/** The beginning of a room's name. @param {unknown} value */
function isPart(value) {
  return value === '' || isRoomName(value);
}

/** @param {Fields} args */
function isMembership({ user, of, rooms, audiences = [] }) {
  const isWhom = of === undefined ? isUserName(user) : user === null && isSome(of);
  return isWhom && isListOf(rooms, MAX_ROOMS, isRoomName) && isHeldList(audiences);
}

/** @param {unknown} value @returns {value is Some} */
function isSome(value) {
  const { user, only, except } = fieldsOf(value);
  if (!isListOf(except, MAX_EXCEPT, isConnectionId)) return false;
  return only === null ? isUserName(user) : isConnectionId(only) && isShort(user);
}

/** A name with two counts. @param {unknown} row @param {(name: unknown) => boolean} isOne */
function isCounted(row, isOne) {
  return Array.isArray(row) && isOne(row[0]) && isCount(row[1]) && isCount(row[2]);
}

/** @param {unknown} value */
function isConnections(value) {
  const { count, listed } = fieldsOf(value);
  return isCount(count) && isListOf(listed, MAX_CONNECTIONS, isUserConnection);
}

/** @param {unknown} value */
function isUserConnection(value) {
  const { id, address, transport, app, roomCount, rooms, server, user, ...numbers } =
    fieldsOf(value);
  return (
    (app === undefined || isShort(app)) &&
    (server === undefined || isShort(server)) &&
    (user === undefined || user === '' || isUserName(user)) &&
    CONNECTION_NUMBERS.every((name) => numbers[name] === undefined || isCount(numbers[name])) &&
    isConnectionId(id) &&
    isShort(address) &&
    typeof transport === 'string' &&
    DOOR.test(transport) &&
    isCount(roomCount) &&
    isListOf(rooms, MAX_NAMED_ROOMS, isRoomName)
  );
}

/** @param {unknown} value */
function isWorkerInfo(value) {
  const { server, version, state, ...numbers } = fieldsOf(value);
  return (
    [server, version, state].every(isShort) &&
    WORKER_NUMBERS.every((name) => isCount(numbers[name])) &&
    WORKER_COUNTERS.every((name) => numbers[name] === undefined || isCount(numbers[name]))
  );
}

/** @param {unknown} value @returns {Fields} empty if the value is no object */
function fieldsOf(value) {
  return typeof value === 'object' && value !== null ? value : {};
}

/** @param {unknown} value */
function isShort(value) {
  return typeof value === 'string' && value.length <= MAX_TEXT_LENGTH;
}

/** RFC 6455 7.4.2: 3000-4999 are for libraries and applications. @param {unknown} value */
function isCloseCode(value) {
  return isCount(value) && value >= 3000 && value <= 4999;
}

/** @param {unknown} value */
function isReason(value) {
  return typeof value === 'string' && Buffer.byteLength(value) <= MAX_REASON_BYTES;
}

/** @param {unknown} value @returns {value is number} */
function isCount(value) {
  return Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;
}

/** @param {unknown} value @param {number} max @param {(item: any) => boolean} isItem */
function isListOf(value, max, isItem) {
  return Array.isArray(value) && value.length <= max && value.every(isItem);
}

/**
 * @param {string} text @param {number} maxLength @param {number} count the least number of fields
 * @returns {unknown[]|null}
 */
function readList(text, maxLength, count) {
  if (text.length > maxLength) return null;
  try {
    const fields = JSON.parse(text);
    return Array.isArray(fields) && fields.length >= count ? fields : null;
  } catch {
    return null;
  }
}
