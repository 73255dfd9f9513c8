// fleet.js: asks all workers of all servers about their connections, or to act on them. If the
// backend counts the connections of rooms (backend/occupancy.js), it is asked instead.
//   survey --EVERYONE--> all workers, this one included --the asker's own room--> answers, merged
//
// A survey ends when all workers have answered, at its deadline, or when a search has found its
// connection. If a worker has not answered, a read is partial, and the outcome of an action is
// unknown: repeating it is safe. Answers are merged as they come, to save memory.

import { randomBytes } from 'node:crypto';
import { addressKey } from '../admission/address.js';
import { topRefused } from '../admission/refused.js';
import { BrokerError } from '../backend/errors.js';
import { EVERYONE, WINDOW_MS } from '../hub/hub.js';
import { CLOSES } from '../protocol/codes.js';
import { encodeNotice, KIND, readNotice } from '../protocol/publication.js';
import { FirstRooms, FleetMember, TopRooms } from './fleet-member.js';
import {
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
  isArguments,
  isName,
  isResult,
  MAX_TOP,
  replyRoomOf,
} from './fleet-wire.js';

/** Workers answer within milliseconds. */
const DEADLINE_MS = 1000;
const MAX_SURVEYS = 1000;
/** Unanswered deliveries to other workers. */
const MAX_DELIVERIES = 500;
/** Rooms or connections. */
const DEFAULT_LISTED = 100;

/** @import { Request, Some, UserConnection, Verb, Verbs, WorkerInfo } from './fleet-wire.js' */
/** @typedef {{user: string}|{room: string}|{address: string}|{connectionId: string}} ConnectionTarget */

/**
 * A user's connections: all, `only` one, or all except some. Without tokens, a user is a name in
 * rooms with presence.
 * @typedef {{user: string, only?: string|null, except?: readonly string[]}} Whom
 */

/**
 * @typedef {object} Survey
 * @property {(result: unknown) => boolean} merge returns false for a malformed result
 * @property {Set<string>} workers that have answered @property {number} refusals among the answers
 * @property {() => boolean} isFound no other answer can change the result
 * @property {() => void} onAnswer
 */

/**
 * @typedef {object} RoomPage of the rooms of a fleet
 * @property {{room: string, connections: number}[]} rooms in the order of their names
 * @property {boolean} isPartial a worker has not answered
 */

/**
 * @typedef {object} RoomInfo
 * @property {string} room @property {number} connections
 * @property {number|null} users null: the room has no presence
 * @property {boolean} hasHistory
 * @property {import('../protocol/position.js').Position|null} position null: the room has no history
 * @property {boolean} isPartial a worker has not answered: `connections` may be too low
 */

/**
 * @param {import('./basics.js').Basics} basics @param {import('./delivery.js').WorkerDelivery} delivery
 * @param {import('./entry.js').Entry} entry
 * @param {Pick<ConstructorParameters<typeof FleetMember>[0],
 *   'joins'|'upstreams'|'surveys'|'describe'>} parts
 */
export function createFleet({ counters, closeAll }, delivery, entry, parts) {
  const { hub, scheduler, tracker, streamOf: historyOf, backend } = delivery;
  const { sessions, userSessions: signedIn, refused, limiter } = entry;
  const { broker, occupancy } = backend;
  const member = new FleetMember({
    ...parts,
    ...{ hub, sessions, signedIn, scheduler, refused, limiter, closeAll },
  });
  return new Fleet({ hub, broker, occupancy, historyOf, tracker, member, counters });
}

export class Fleet {
  /** @type {Map<string, Survey>} */
  #surveys = new Map();
  #deliveries = 0;
  #isClosed = false;

  /**
   * @param {object} parts @param {import('../hub/hub.js').Hub} parts.hub
   * @param {Pick<import('../backend/broker.js').Broker, 'subscribe'|'publish'|'history'|'countWorkers'>}
   *   parts.broker
   * @param {import('../backend/occupancy.js').FleetOccupancy|null} parts.occupancy
   * @param {import('../backend/broker.js').HistoryOf} parts.historyOf
   * @param {import('../hub/room-users.js').Tracker} parts.tracker
   * @param {import('./fleet-member.js').FleetMember} parts.member carries out requests here
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {number} [parts.deadlineMs]
   */
  constructor(parts) {
    const { hub, broker, occupancy, historyOf, tracker, member, counters } = parts;
    const { deadlineMs = DEADLINE_MS } = parts;
    this.broker = broker;
    this.occupancy = occupancy;
    this.historyOf = historyOf;
    this.tracker = tracker;
    this.member = member;
    this.counters = counters;
    this.deadlineMs = deadlineMs;
    this.name = randomBytes(12).toString('base64url');
    this.replyRoom = replyRoomOf(this.name);
    hub.listenForNotices(KIND.SURVEY, (publication) => this.#receiveRequest(publication));
    hub.listenForNotices(KIND.ANSWER, (publication) => this.#receiveAnswer(publication));
  }

  /** Makes this worker reachable by its name. Rejects if the broker is unavailable. */
  listenForReplies() {
    return this.broker.subscribe(this.replyRoom);
  }

  /** Ends the surveys under way with the answers they have. */
  close() {
    this.#isClosed = true;
    for (const survey of this.#surveys.values()) survey.onAnswer();
  }

  /**
   * Lists rooms with connections by name, and rooms with 0 connections that will soon be recorded
   * as vacated. All errors are BrokerErrors.
   * @param {object} [page] @param {string} [page.prefix] of the names
   * @param {string} [page.after] a name: only rooms after it
   * @param {number} [page.limit] 1 to 1000; 100 if it is absent
   * @param {string|null} [page.except] rooms with this prefix may be missing
   * @returns {Promise<RoomPage>}
   */
  async rooms({ prefix = '', after = '', limit = DEFAULT_LISTED, except = null } = {}) {
    if (this.occupancy?.coversPrefix(prefix, except))
      return { rooms: await this.occupancy.list({ prefix, after, limit }), isPartial: false };
    const first = new FirstRooms(limit);
    const { isPartial } = await this.#askToRead('rooms', { prefix, after, limit }, (rows) => {
      for (const [room, connections] of rows) first.addRoom(room, connections);
    });
    const rooms = first.sorted().map(([room, connections]) => ({ room, connections }));
    return { rooms, isPartial };
  }

  /** @param {string} room @returns {Promise<RoomInfo>} */
  async room(room) {
    const hasHistory = this.historyOf(room) !== null;
    const [{ connections, isPartial }, present, page] = await Promise.all([
      this.#connectionsIn(room),
      this.tracker.covers(room) ? this.tracker.read(room, true) : null,
      hasHistory ? this.broker.history(room, { after: 0, limit: 0, isGlance: true }) : null,
    ]);
    return {
      room,
      connections,
      users: present?.count ?? null,
      hasHistory,
      position: page && { epoch: page.epoch, offset: page.offset },
      isPartial,
    };
  }

  /** @param {string} room */
  async #connectionsIn(room) {
    if (this.occupancy?.covers(room))
      return { connections: await this.occupancy.count(room), isPartial: false };
    let connections = 0;
    const { isPartial } = await this.#askToRead('room', { room }, (count) => {
      connections += count;
    });
    return { connections, isPartial };
  }

  /**
   * Deletes a room's history: a new epoch begins, members get `resync`, and earlier positions are
   * not recovered. When the promise resolves, no worker replays a deleted message. Idempotency keys
   * stay.
   * @param {string} room with history
   * @returns {Promise<void>} Rejects with OUTCOME_UNKNOWN if Redis or a worker has not answered: call
   *   it again.
   */
  async deleteHistory(room) {
    const { broker } = this;
    const { epoch, offset } = await broker.history(room, { after: 0, limit: 0, isGlance: true });
    if (offset === 0) return;
    try {
      await broker.history(room, { after: 0, limit: 0, endedEpoch: epoch });
    } catch (error) {
      // The error of a failed read says that nothing has happened. This call has an effect.
      throw new BrokerError('OUTCOME_UNKNOWN', 'the broker has not answered', { cause: error });
    }
    await this.#act('forget', { room, epoch });
  }

  /**
   * Finds users with at least one connection; if transitions of users are recorded for webhooks, by
   * these. Without configured tokens, users are names in rooms with presence.
   * @param {readonly string[]} users at most 1000
   * @returns {Promise<{users: string[], isPartial: boolean}>} in the order of `users`
   */
  async online(users) {
    // Transitions of users are recorded only if there are tokens.
    const occupancy = this.member.sessions === null ? null : this.occupancy;
    const isKnown = (/** @type {string} */ user) => occupancy?.coversUser(user) ?? false;
    const known = users.filter(isKnown);
    const unknown = users.filter((user) => !isKnown(user));
    const found = new Set(known.length === 0 ? [] : await occupancy?.online(known));
    let isPartial = false;
    if (unknown.length > 0)
      ({ isPartial } = await this.#askToRead('online', { users: unknown }, (positions) => {
        for (const position of positions) found.add(unknown[position]);
      }));
    return { users: users.filter((user) => found.has(user)), isPartial };
  }

  /**
   * @param {ConnectionTarget} target the address with or without its second half, if it is IPv6;
   *   without configured tokens, a user is a name in rooms with presence
   * @param {number} [limit] of the list; 100 if it is absent
   * @returns {Promise<{count: number, listed: UserConnection[], isPartial: boolean}>} `count`: all of
   *   them; `listed`: at most MAX_CONNECTIONS of each worker
   */
  connections(target, limit = DEFAULT_LISTED) {
    if ('user' in target) return this.#list('connections', { user: target.user }, limit);
    const place = { address: null, connectionId: null, room: null };
    if ('address' in target)
      return this.#list('find', { ...place, address: addressKey(target.address) }, limit);
    return this.#list('find', { ...place, ...target }, limit);
  }

  /**
   * @template {'connections'|'find'} V
   * @param {V} verb @param {Verbs[V]['args']} args @param {number} limit
   */
  async #list(verb, args, limit) {
    let count = 0;
    /** @type {UserConnection[]} */
    const listed = [];
    const { isPartial } = await this.#askToRead(
      verb,
      args,
      (result) => {
        count += result.count;
        listed.push(...result.listed.slice(0, limit - listed.length));
      },
      // An id belongs to one connection.
      () => count > 0 && 'connectionId' in args && args.connectionId !== null,
    );
    return { count, listed, isPartial };
  }

  /**
   * The rooms with the most connections or messages, among the first MAX_TOP of each worker.
   * @param {'connections'|'messages'} by @param {number} limit 1 to MAX_TOP
   */
  async top(by, limit) {
    const top = new TopRooms(by, 10 * MAX_TOP);
    const { isPartial } = await this.#askToRead('top', { by, limit: MAX_TOP }, (rows) => {
      for (const row of rows) top.addRoom(...row);
    });
    const rooms = top.largest().slice(0, limit);
    return {
      rooms: rooms.map(([room, connections, heard]) => ({
        room,
        connections,
        messagesPerSecond: heard / (WINDOW_MS / 1000),
      })),
      isPartial,
    };
  }

  /** The addresses and users that limits refused most often in the last five to ten minutes. */
  async refused() {
    /** @type {Record<'addresses'|'users', Map<string, [string, number, number]>>} */
    const sums = { addresses: new Map(), users: new Map() };
    let forgotten = 0;
    const { isPartial } = await this.#askToRead('refused', {}, (result) => {
      forgotten += result.forgotten;
      for (const kind of /** @type {const} */ (['addresses', 'users']))
        for (const [name, connections, messages] of result[kind]) {
          const [, c = 0, m = 0] = sums[kind].get(name) ?? [];
          // 16 workers with other names each: far above what a page shows.
          if (c + m > 0 || sums[kind].size < 16 * MAX_TOP)
            sums[kind].set(name, [name, c + connections, m + messages]);
        }
    });
    return {
      addresses: topRefused(sums.addresses.values(), MAX_TOP),
      users: topRefused(sums.users.values(), MAX_TOP),
      forgotten,
      isPartial,
    };
  }

  /** @returns {Promise<{workers: WorkerInfo[], isPartial: boolean}>} */
  async workers() {
    /** @type {WorkerInfo[]} */
    const workers = [];
    const { isPartial } = await this.#askToRead('describe', {}, (result) => {
      workers.push(result);
    });
    return { workers, isPartial };
  }

  /**
   * Closes connections, on every server. They may connect again; see `revoke` of WorkerAuth.
   * @param {Whom|{connectionId: string}} target @param {number} [code] 3000 to 4999
   * @param {string} [reason] at most MAX_REASON_BYTES; absent: that of the code
   * @returns {Promise<number>} connections closed. Rejects with OUTCOME_UNKNOWN if a worker has not
   *   answered: call it again. After the crash of a worker this takes some seconds, except for a
   *   `connectionId` that another worker has.
   */
  disconnect(target, code = CLOSES.KICKED.code, reason = undefined) {
    const close = reason === undefined ? { code } : { code, reason };
    if (!('user' in target)) {
      const { connectionId } = target;
      return this.#act('disconnect', { user: null, connectionId, ...close }, 1);
    }
    const of = someOf(target);
    if (of === null)
      return this.#act('disconnect', { user: target.user, connectionId: null, ...close });
    return this.#act('disconnect', { user: null, connectionId: null, of, ...close }, mostOf(of));
  }

  /**
   * Joins all connections of a user, or some, to rooms, whatever their tokens permit. Each gets a
   * push `joined`.
   * @param {string|Whom} whom a user's name @param {readonly string[]} rooms at most 1000
   * @param {readonly string[]} [audiences] that it holds there; absent: those that it was given before
   * @returns {Promise<number>} connections that are in all of the rooms now. A connection in as many
   *   rooms as allowed joins no more. Rejects as `disconnect` does.
   */
  join(whom, rooms, audiences) {
    return this.#moveUser('join', whom, rooms, audiences && { audiences: [...audiences] });
  }

  /**
   * Takes all connections of a user, or some, out of rooms. Each gets a push `left`.
   * @param {string|Whom} whom a user's name @param {readonly string[]} rooms at most 1000
   * @returns {Promise<number>} connections that were in at least one of the rooms. Rejects as
   *   `disconnect` does.
   */
  leave(whom, rooms) {
    return this.#moveUser('leave', whom, rooms);
  }

  /**
   * @param {'join'|'leave'} verb @param {string|Whom} whom @param {readonly string[]} rooms
   * @param {{audiences?: string[]}} [more]
   */
  #moveUser(verb, whom, rooms, more) {
    const target = typeof whom === 'string' ? { user: whom } : whom;
    const of = someOf(target);
    if (of === null) return this.#act(verb, { user: target.user, rooms: [...rooms], ...more });
    return this.#act(verb, { user: null, of, rooms: [...rooms], ...more }, mostOf(of));
  }

  /**
   * Gives the sessions of a user, or of some connections, another time at which they expire.
   * @param {Whom} whom @param {number} expiresAtMs ms since 1970; 0: they do not expire
   * @returns {Promise<number>} connections. Rejects as `disconnect` does.
   */
  renew({ user, only = null, except = [] }, expiresAtMs) {
    const of = { user, only, except: [...except] };
    return this.#act('renew', { of, expiresAtMs }, mostOf(of));
  }

  /**
   * Passes messages of a client to the worker that has its stream.
   * @param {string} worker the name of that one, as a client tells it
   * @param {string} session of the stream @param {Buffer} messages
   * @returns {Promise<boolean>} false: there is no such worker, or no such stream. Rejects with a
   *   BrokerError if too many wait for their answer, or if the broker is unavailable.
   */
  async deliver(worker, session, messages) {
    if (worker === this.name) return this.member.deliver(session, messages);
    const args = { session, messages: messages.toString('base64') };
    if (!isName(worker) || !isArguments('deliver', args)) return false;
    if (this.#deliveries >= MAX_DELIVERIES)
      throw new BrokerError('UNAVAILABLE', 'too many deliveries are under way');
    this.#deliveries++;
    let isDelivered = false;
    const merge = (/** @type {number} */ count) => {
      isDelivered = count > 0;
    };
    try {
      await this.#askWorkers('deliver', args, merge, () => false, worker);
      return isDelivered;
    } finally {
      this.#deliveries--;
    }
  }

  /**
   * @template {Verb} V @param {V} verb @param {Verbs[V]['args']} args
   * @param {(result: Verbs[V]['result']) => void} merge
   * @param {() => boolean} [isFound] no other answer can change the result
   */
  async #askToRead(verb, args, merge, isFound) {
    try {
      return await this.#survey(verb, args, merge, isFound);
    } catch (error) {
      // A read has no effect, so the caller may repeat it.
      if (!(error instanceof BrokerError)) throw error;
      throw new BrokerError('UNAVAILABLE', error.message, { cause: error });
    }
  }

  /**
   * @template {'forget'|'disconnect'|'join'|'leave'|'renew'} V
   * @param {V} verb @param {Verbs[V]['args']} args
   * @param {number} [most] the largest total that is possible @returns {Promise<number>}
   */
  async #act(verb, args, most = Number.POSITIVE_INFINITY) {
    let total = 0;
    const merge = (/** @type {number} */ count) => {
      total += count;
    };
    const { isPartial } = await this.#survey(verb, args, merge, () => total >= most);
    if (isPartial) throw new BrokerError('OUTCOME_UNKNOWN', 'a worker has not answered');
    return total;
  }

  /**
   * @template {Verb} V @param {V} verb @param {Verbs[V]['args']} args
   * @param {(result: Verbs[V]['result']) => void} merge
   * @param {() => boolean} [isFound] no other answer can change the result
   * @returns {Promise<{isPartial: boolean}>} @throws {RangeError} for arguments out of their bounds
   */
  async #survey(verb, args, merge, isFound = () => false) {
    if (!isArguments(verb, args)) throw new RangeError(`${verb}: arguments out of bounds`);
    const { counters } = this;
    if (this.#surveys.size - this.#deliveries >= MAX_SURVEYS) {
      counters.surveys.refused++;
      throw new BrokerError('UNAVAILABLE', 'too many surveys are under way');
    }
    try {
      const isWhole = await this.#askWorkers(verb, args, merge, isFound, null);
      counters.surveys[isWhole ? 'complete' : 'partial']++;
      return { isPartial: !isWhole };
    } catch (error) {
      counters.surveys.failed++;
      throw error;
    }
  }

  /**
   * @template {Verb} V @param {V} verb @param {Verbs[V]['args']} args
   * @param {(result: Verbs[V]['result']) => void} merge @param {() => boolean} isFound
   * @param {string|null} worker the only one that is asked; null: all
   * @returns {Promise<boolean>} see `#answers`
   */
  async #askWorkers(verb, args, merge, isFound, worker) {
    const { broker } = this;
    const surveys = this.#surveys;
    if (this.#isClosed) throw new BrokerError('UNAVAILABLE', 'the worker is closing');
    const id = randomBytes(12).toString('base64url');
    /** @type {Survey} */
    const survey = {
      merge: (result) => {
        if (!isResult(verb, result, args)) return false;
        merge(result);
        return true;
      },
      workers: new Set(),
      refusals: 0,
      isFound,
      onAnswer() {},
    };
    surveys.set(id, survey);
    try {
      const [expected] = await Promise.all([
        worker === null ? broker.countWorkers() : 1,
        broker.subscribe(this.replyRoom),
      ]);
      const request = encodeRequest(id, this.replyRoom, verb, args);
      const room = worker === null ? EVERYONE : replyRoomOf(worker);
      await broker.publish(room, encodeNotice(KIND.SURVEY, request));
      return await this.#answers(survey, expected);
    } finally {
      surveys.delete(id);
    }
  }

  /**
   * @param {Survey} survey @param {number} expected
   * @returns {Promise<boolean>} whether the result is whole: all workers have answered and none has
   *   refused, or no other answer can change it
   */
  async #answers(survey, expected) {
    const { workers, isFound } = survey;
    const isOver = () => workers.size >= expected || isFound() || this.#isClosed;
    if (!isOver())
      await new Promise((resolve) => {
        const end = () => {
          clearTimeout(timer);
          resolve(undefined);
        };
        const timer = setTimeout(end, this.deadlineMs);
        survey.onAnswer = () => {
          if (isOver()) end();
        };
      });
    return isFound() || (workers.size >= expected && survey.refusals === 0);
  }

  /** @param {Buffer} publication perhaps of another program */
  #receiveRequest(publication) {
    const request = decodeRequest(readNotice(publication));
    if (request === null) return false;
    this.#answerRequest(request);
    return true;
  }

  /** @param {Request} request */
  async #answerRequest(request) {
    const result = await this.member.carryOut(request);
    if (result === null) this.counters.surveysUnanswered++;
    const { survey, replyRoom } = request;
    if (replyRoom === this.replyRoom) {
      this.#collect(survey, this.name, result);
      return;
    }
    const answer = encodeNotice(KIND.ANSWER, encodeAnswer(survey, this.name, result));
    // If the broker is unavailable, the asker finds this worker's answer missing.
    await this.broker.publish(replyRoom, answer).catch(() => this.counters.surveysUnanswered++);
  }

  /** @param {Buffer} publication perhaps of another program */
  #receiveAnswer(publication) {
    const answer = decodeAnswer(readNotice(publication));
    return answer !== null && this.#collect(answer.survey, answer.worker, answer.result);
  }

  /** @param {string} id @param {string} worker @param {unknown} result @returns {boolean} */
  #collect(id, worker, result) {
    const survey = this.#surveys.get(id);
    // The answer came after the deadline, or twice.
    if (survey === undefined || survey.workers.has(worker)) return true;
    if (result === null) survey.refusals++;
    else if (!survey.merge(result)) return false;
    survey.workers.add(worker);
    survey.onAnswer();
    return true;
  }
}

/** @param {Whom} whom @returns {Some|null} null: all connections of the user */
function someOf({ user, only = null, except = [] }) {
  return only === null && except.length === 0 ? null : { user, only, except: [...except] };
}

/** @param {Some} some @returns {number} the most connections that it names */
function mostOf({ only }) {
  return only === null ? Number.POSITIVE_INFINITY : 1;
}
