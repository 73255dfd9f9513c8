// server.js: a Fanfare server, as a backend sees it: a method for each route of the HTTP API.
//
// Each publish has an idempotency key, so that it can be repeated until its outcome is known.

import { ApiCalls } from './api-calls.js';
import { FanfareApiError } from './api-error.js';

/** @import { CallOptions, Options } from './api-calls.js' */
/** @import { Position, Result } from './api-error.js' */
/** @import { Message, Payload, RoomName } from './rooms.js' */

/**
 * @typedef {object} OfMessage
 * @property {string} [key] of the message in a room with state
 * @property {string} [except] id of a connection that does not get the message
 * @property {Position|{offset: 0}} [expect] publishes only if the room is at this position, else
 *   `CONFLICT`
 * @property {readonly string[]} [audience] 1 to 4 names: only users who hold one of them get the message
 * @property {string} [idempotencyKey] 1 to 128 visible ASCII characters; a random one if absent
 */

/** @typedef {OfMessage & CallOptions} PublishOptions */
/** @typedef {{contentType?: string} & PublishOptions} FileOptions */
/** The position of the message, if its room has history or state. @typedef {Partial<Position>} Published */

/** @typedef {{limit?: number, after?: string}} Page */
/** @typedef {Page & {prefix?: string} & CallOptions} RoomsOptions */
/**
 * At most one of `since`, `before` and `sinceTime`, which is in ms since 1970.
 * @typedef {{limit?: number, since?: Position, before?: Position, sinceTime?: number} & CallOptions} HistoryOptions
 */
/** @typedef {{keys?: readonly string[], limit?: number, after?: number} & CallOptions} StateOptions */
/** Where connections are looked for. @typedef {{user: string}|{room: string}|{address: string}} ConnectionQuery */

/**
 * @template [Payload=any]
 * @typedef {object} HistoryPage
 * @property {string} room
 * @property {({payload: Payload, from: string, timestamp: number} & Position)[]} messages in the
 *   order of their offsets
 * @property {string} epoch @property {number} offset of the room @property {boolean} more
 */

/**
 * @template [Payload=any]
 * @typedef {object} StatePage
 * @property {string} room
 * @property {{key: string, payload: Payload, from: string, timestamp: number, offset: number}[]}
 *   entries the oldest change first
 * @property {string} epoch @property {number} offset of the room @property {boolean} more
 */

/** @typedef {{room: string, connections: number, users?: number, partial: boolean} & Partial<Position>} Room */
/** @typedef {{room: string, count: number, members?: {user: string, info?: any}[], more?: boolean}} Presence */

/**
 * @typedef {object} Connection
 * @property {string} id @property {string} [server] @property {number} [worker]
 * @property {number} [connectedAt] ms since 1970
 * @property {'websocket'|'sse'|'pusher'|'centrifugo'} transport
 * @property {string} [app] @property {string} [address] @property {string} [user]
 * @property {number} roomCount @property {string[]} rooms the first 20
 * @property {number} [unsentBytes] @property {number} [laggingRooms] @property {number} [refusedMessages]
 */

/**
 * @typedef {object} Worker
 * @property {number} worker @property {number} pid @property {string} state
 * @property {number} connections @property {number} rooms
 * @property {number} loopLagMs @property {number} memoryBytes @property {number} uptimeSeconds
 */

/** @template {object} [Rooms=Record<string, any>] */
export class FanfareServer {
  #calls;

  /** @param {Options} options */
  constructor(options) {
    this.#calls = new ApiCalls(options);
  }

  /**
   * Publishes to a room. Resolves when the broker has accepted the message. With a list of rooms it
   * resolves when all of them have, and rejects if one has not: see `results` of the error.
   * @template {RoomName<Rooms>} Room @overload
   * @param {Room} room @param {Payload<Rooms, Room>} payload @param {PublishOptions} [options]
   * @returns {Promise<Published>}
   */
  /**
   * @template {RoomName<Rooms>} Room @overload
   * @param {readonly Room[]} rooms @param {Payload<Rooms, Room>} payload
   * @param {PublishOptions} [options]
   * @returns {Promise<Result[]>}
   */
  /**
   * @param {string|readonly string[]} to @param {unknown} payload @param {PublishOptions} [options]
   * @returns {Promise<any>}
   */
  async publish(to, payload, options) {
    return this.#publish(to, { payload }, options);
  }

  /**
   * Publishes up to 1,000 messages in one request. Those to one room keep their order. Rejects if
   * one was not accepted: see `results` of the error.
   * @param {readonly Message<Rooms>[]} messages @param {CallOptions} [options]
   * @returns {Promise<Result[]>} in the order of the messages
   */
  async publishMany(messages, options) {
    messages.forEach(requireAudience);
    const keyed = messages.map((message) => ({
      ...message,
      idempotencyKey: message.idempotencyKey ?? newKey(),
      expect: positionOf(message.expect),
    }));
    return this.#publishEach(keyed, options, (left) => ({
      path: 'publish/batch',
      body: JSON.stringify({ messages: left }),
    }));
  }

  /**
   * Puts a large message into the bucket and publishes a reference to it.
   * @param {RoomName<Rooms>} room @param {Blob|string|ArrayBuffer|Uint8Array} content
   * @param {FileOptions} [options] `contentType`: that of the blob if absent. `timeoutMs`: for each
   *   of the three requests
   * @returns {Promise<Published>}
   */
  async publishFile(room, content, options = {}) {
    const blob = content instanceof Blob ? content : new Blob([/** @type {any} */ (content)]);
    const bytes = await blob.arrayBuffer();
    const contentType = options.contentType ?? (blob.type || 'application/octet-stream');
    const sha256 = toHex(await crypto.subtle.digest('SHA-256', bytes));
    const fields = { bytes: bytes.byteLength, sha256, contentType };
    const { upload, method, url, headers } = await this.#act('uploads', fields, options);
    await this.#calls.call({ method, path: url, headers, body: bytes }, options);
    return this.#publish(room, { upload }, options);
  }

  /**
   * Sends a payload to every connection.
   * @param {unknown} payload @param {CallOptions & {idempotencyKey?: string}} [options]
   * @returns {Promise<{listenerCount?: number}>}
   */
  async broadcast(payload, options) {
    return this.#act('broadcast', { payload }, options, keyHeader(options));
  }

  /**
   * The rooms that have connections, in the order of their names. For the next page pass the last
   * name as `after`.
   * @param {RoomsOptions} [options]
   * @returns {Promise<{rooms: {room: string, connections: number}[], partial: boolean}>}
   */
  async rooms({ prefix, after, limit, ...options } = {}) {
    return this.#read('rooms', { prefix, after, limit }, options);
  }

  /** @param {RoomName<Rooms>} room @param {CallOptions} [options] @returns {Promise<Room>} */
  async room(room, options) {
    return this.#read(pathOf(room), {}, options);
  }

  /**
   * The newest messages of a room with history, or those at a position.
   * @template {RoomName<Rooms>} Room
   * @param {Room} room @param {HistoryOptions} [options]
   * @returns {Promise<HistoryPage<Payload<Rooms, Room>>>}
   */
  async history(room, { limit, since, before, sinceTime, ...options } = {}) {
    const query = { limit, since: placeOf(since), before: placeOf(before), sinceTime };
    const page = await this.#read(`${pathOf(room)}/history`, query, options);
    const { epoch } = page;
    // So that a message is a position: `history(room, { before: messages[0] })`.
    return {
      ...page,
      messages: page.messages.map((/** @type {object} */ one) => ({ ...one, epoch })),
    };
  }

  /** @param {RoomName<Rooms>} room @param {CallOptions} [options] @returns {Promise<{}>} */
  async deleteHistory(room, options) {
    const path = `${pathOf(room)}/history`;
    // A second time would delete what was published after the first.
    return this.#calls.call({ method: 'DELETE', path, isOnce: true }, options);
  }

  /**
   * The latest message of each key of a room with state, or of up to 100 `keys`. For the next page
   * pass the last offset as `after`.
   * @template {RoomName<Rooms>} Room
   * @param {Room} room @param {StateOptions} [options]
   * @returns {Promise<StatePage<Payload<Rooms, Room>>>}
   */
  async state(room, { keys, limit, after, ...options } = {}) {
    if (keys?.length === 0)
      throw new FanfareApiError('INVALID_FIELD', { field: 'keys', message: 'keys: name 1 to 100' });
    return this.#read(`${pathOf(room)}/state`, { key: keys, limit, after }, options);
  }

  /**
   * The users of a room. For the next page pass the last user as `after`.
   * @param {RoomName<Rooms>} room @param {Page & CallOptions} [options] @returns {Promise<Presence>}
   */
  async presence(room, { limit, after, ...options } = {}) {
    return this.#read(`${pathOf(room)}/presence`, { limit, after }, options);
  }

  /**
   * Counts the users of up to 1,000 rooms; null: the room has no presence.
   * @param {readonly RoomName<Rooms>[]} rooms @param {CallOptions} [options]
   * @returns {Promise<{rooms: {room: string, count: number|null}[]}>}
   */
  async countUsers(rooms, options) {
    return this.#act('presence', { rooms }, options);
  }

  /**
   * Which of up to 1,000 users have a connection.
   * @param {readonly string[]} users @param {CallOptions} [options]
   * @returns {Promise<{online: string[], partial: boolean}>}
   */
  async online(users, options) {
    return this.#act('presence', { users }, options);
  }

  /**
   * The connections of a user, a room or an address, on every server.
   * @param {ConnectionQuery} query @param {{limit?: number} & CallOptions} [options]
   * @returns {Promise<{count: number, connections: Connection[], partial: boolean}>}
   */
  async connections(query, { limit, ...options } = {}) {
    return this.#read('connections', { ...query, limit }, options);
  }

  /** @param {string} connectionId @param {CallOptions} [options] @returns {Promise<Connection>} */
  async connection(connectionId, options) {
    return this.#read(`connections/${partOf(connectionId, 'connectionId')}`, {}, options);
  }

  /**
   * Closes connections, on every server.
   * @param {{user: string, code?: number}|{connectionId: string, code?: number}} whom `code`: 4503 if
   *   absent, after which clients do not come back
   * @param {CallOptions} [options] @returns {Promise<{connections: number}>}
   */
  async disconnect(whom, options) {
    return this.#act('disconnect', whom, options);
  }

  /**
   * Joins all connections of a user to rooms.
   * @param {string} user @param {readonly RoomName<Rooms>[]} rooms
   * @param {{audiences?: readonly string[]} & CallOptions} [options] `audiences`: up to 16 that the user
   *   holds there, instead of those given before
   * @returns {Promise<{connections: number}>} that are in all of the rooms now
   */
  async join(user, rooms, { audiences, ...options } = {}) {
    return this.#act(`users/${partOf(user, 'user')}/join`, { rooms, audiences }, options);
  }

  /**
   * Takes all connections of a user out of rooms.
   * @param {string} user @param {readonly RoomName<Rooms>[]} rooms @param {CallOptions} [options]
   * @returns {Promise<{connections: number}>} that were in one of the rooms
   */
  async leave(user, rooms, options) {
    return this.#act(`users/${partOf(user, 'user')}/leave`, { rooms }, options);
  }

  /**
   * Revokes the tokens of a user, or one token. Its connections are closed.
   * @param {{user: string, issuedBefore?: number}|{tokenId: string}} whom `issuedBefore`: seconds
   *   since 1970
   * @param {CallOptions} [options] @returns {Promise<{keptUntil: number|null}>}
   */
  async revoke(whom, options) {
    return this.#act('revoke', whom, options);
  }

  /**
   * @param {CallOptions} [options]
   * @returns {Promise<{servers: {server: string, version: string, workers: Worker[]}[], partial: boolean}>}
   */
  async servers(options) {
    return this.#read('servers', {}, options);
  }

  /**
   * @param {string|readonly string[]} to @param {{payload: unknown}|{upload: string}} content
   * @param {PublishOptions} [options]
   */
  #publish(to, content, options = {}) {
    const { key, except, expect, audience } = options;
    const more = { key, except, expect: positionOf(expect), audience };
    requireAudience(options);
    const headers = keyHeader(options);
    if (typeof to === 'string')
      return this.#act('publish', { room: to, ...content, ...more }, options, headers);
    const rooms = to.map((room) => ({ room }));
    return this.#publishEach(rooms, options, (left) => ({
      path: 'publish',
      headers,
      body: JSON.stringify({ rooms: left.map(({ room }) => room), ...content, ...more }),
    }));
  }

  /**
   * Repeats only the messages that were not accepted, each with its own key.
   * @template {{room: string}} T
   * @param {readonly T[]} all @param {CallOptions|undefined} options
   * @param {(left: readonly T[]) => import('./api-calls.js').Request} requestOf
   * @returns {Promise<Result[]>}
   */
  async #publishEach(all, options, requestOf) {
    /** @type {Result[]} */
    const results = [];
    let left = [...all.keys()];
    const attempt = async (/** @type {import('./api-calls.js').Send} */ send) => {
      const answer = await send(requestOf(left.map((index) => all[index])));
      for (const [place, index] of left.entries()) results[index] = resultOf(answer.results[place]);
      left = left.filter((index) => mayRepeat(results[index].error));
      const errors = results.flatMap(({ error }) => error ?? []);
      if (errors.length > 0) throw errors.find(mayRepeat) ?? errors[0];
      return results;
    };
    try {
      return await this.#calls.repeat(attempt, options);
    } catch (error) {
      if (!(error instanceof FanfareApiError) || results.length === 0) throw error;
      const { code, message, cause } = error;
      throw new FanfareApiError(code, { ...error, message, cause, results });
    }
  }

  /**
   * @param {string} path @param {object} fields of the body @param {CallOptions} [options]
   * @param {Record<string, string>} [headers]
   */
  #act(path, fields, options, headers) {
    return this.#calls.call({ path, headers, body: JSON.stringify(fields) }, options);
  }

  /** @param {string} path @param {object} query @param {CallOptions} [options] */
  #read(path, query, options) {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      for (const one of [value ?? []].flat()) search.append(name, `${one}`);
    return this.#calls.call({ method: 'GET', path: `${path}?${search}` }, options);
  }
}

/**
 * @template {object} [Rooms=Record<string, any>]
 * @param {Options} options @returns {FanfareServer<Rooms>}
 */
export function createServer(options) {
  return new FanfareServer(options);
}

/** A key of an idempotent publish. */
const newKey = () => crypto.randomUUID();

/** @param {{idempotencyKey?: string}} [options] @returns {Record<string, string>} */
function keyHeader({ idempotencyKey } = {}) {
  return { 'Idempotency-Key': idempotencyKey ?? newKey() };
}

/** JSON would leave it out, and the message would be for everybody. @param {{audience?: unknown}} options */
function requireAudience(options) {
  if ('audience' in options && options.audience === undefined)
    throw new FanfareApiError('INVALID_FIELD', {
      field: 'audience',
      message: 'audience: it is undefined.',
    });
}

/** @param {string} room */
const pathOf = (room) => `rooms/${partOf(room, 'room')}`;

/**
 * A name as a part of a path. `fetch` resolves `.` and `..`, even if they are encoded.
 * @param {string} name @param {string} field @throws {FanfareApiError}
 */
function partOf(name, field) {
  if (/^\.\.?$/.test(name))
    throw new FanfareApiError('INVALID_FIELD', {
      field,
      message: `${field}: no path holds ${name}`,
    });
  return encodeURIComponent(name);
}

/**
 * A message of a history is a position, too.
 * @param {{epoch?: string, offset: number}} [position]
 */
const positionOf = (position) => position && { epoch: position.epoch, offset: position.offset };

/** @param {Position} [position] */
const placeOf = (position) => position && `${position.epoch}:${position.offset}`;

/** @param {any} answer for one message @returns {Result} */
function resultOf({ error, message, position, ...result }) {
  if (error === undefined) return result;
  return { ...result, error: new FanfareApiError(error, { message, position }) };
}

/** @param {FanfareApiError} [error] */
const mayRepeat = (error) =>
  error !== undefined && (error.retryable || error.code === 'OUTCOME_UNKNOWN');

/** @param {ArrayBuffer} bytes */
function toHex(bytes) {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
