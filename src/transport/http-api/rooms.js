// rooms.js: the routes that look at rooms: their connections, history and presence.

import { EVERY_AUDIENCE } from '../../protocol/audiences.js';
import { isRoom, isUser, readSince, readSinceTime } from '../../protocol/decode.js';
import { encodeMembers } from '../../protocol/encode.js';
import { isStateKey } from '../../protocol/publication.js';
import { ApiFault, badValue } from './fault.js';
import {
  A_ROOM,
  A_STATE_KEY,
  MAX_LIMIT,
  readFields,
  readLimit,
  requireOne,
  rooms,
  user,
  users,
} from './fields.js';
import { inParallel } from './in-parallel.js';

/** Pages of rooms that a request reads, if its key is limited to some of them. */
const MAX_PAGES = 10;
/** The largest answer with members. If a room has more, the client asks for the next page. */
const MAX_MEMBER_BYTES = 1_048_576;
/** Keys that a request for a state names. */
const MAX_KEYS = 100;
const OFFSET = /^\d{1,15}$/;
const POSITION = /^[0-9a-f]{16}:\d{1,15}$/;
const TIME = /^\d{1,16}$/;

/** @import { Call, Services } from './call.js' */

const QUERY = { rooms, users };

export class RoomRoutes {
  /** @param {Services} services */
  constructor({ historyReader, historyOf, stateReader, tracker, fleet }) {
    this.historyReader = historyReader;
    this.stateReader = stateReader;
    this.historyOf = historyOf;
    this.tracker = tracker;
    this.fleet = fleet;
  }

  /** `GET rooms` @param {Call} call */
  rooms = async (call) => {
    const { prefix, after = '', limit } = call.readQuery(['prefix', 'after', 'limit']);
    if (prefix !== undefined && !isRoom(prefix)) throw badValue('prefix', A_ROOM);
    if (call.query.has('after') && !isRoom(after)) throw badValue('after', A_ROOM);
    const count = readLimit(limit) ?? 100;
    const { names } = call.key;
    const found = [];
    let isPartial = false;
    const first = {
      prefix: names.roomOf(prefix ?? ''),
      except: names.unnamed || null,
    };
    let last = after === '' ? '' : names.roomOf(after);
    // A key for some rooms sees only these, so it may need several pages for one.
    const isLimited = !call.key.isForAllRooms || names.unnamed !== '';
    const size = isLimited ? MAX_LIMIT : count;
    for (let page = 0; ; page++) {
      const next = await this.fleet.rooms({ ...first, after: last, limit: size });
      isPartial ||= next.isPartial;
      for (const { room, connections } of next.rooms) {
        const name = names.nameOf(room);
        if (name !== null && call.key.covers(name)) found.push({ room: name, connections });
      }
      const isEnd = next.rooms.length < size;
      if (isEnd || !isLimited || found.length >= count) break;
      if (page + 1 === MAX_PAGES) {
        isPartial = true;
        break;
      }
      last = next.rooms[next.rooms.length - 1].room;
      // Rooms that no client of the app can name are passed over at once.
      if (names.nameOf(last) === null) last = `${names.unnamed}~`;
    }
    return { rooms: found.slice(0, count), partial: isPartial };
  };

  /** `GET rooms/:room` @param {Call} call */
  room = async (call) => {
    call.readQuery([]);
    const { name, room } = roomOfCall(call);
    const { connections, users: present, position, isPartial } = await this.fleet.room(room);
    return {
      room: name,
      connections,
      users: present ?? undefined,
      ...position,
      partial: isPartial,
    };
  };

  /** `GET rooms/:room/history` @param {Call} call */
  history = async (call) => {
    const query = call.readQuery(['limit', 'since', 'before', 'sinceTime']);
    const { name, room } = roomOfCall(call);
    const since = readPosition('since', query.since);
    const before = readPosition('before', query.before);
    const sinceTimeMs = readTime('sinceTime', query.sinceTime);
    const places = Object.entries({ since, before, sinceTime: sinceTimeMs });
    const [, second] = places.filter(([, place]) => place !== null);
    if (second !== undefined)
      throw badValue(second[0], 'only one of since, before and sinceTime is allowed');
    const limit = readLimit(query.limit);
    this.#requireHistory(call, room);
    const place = { limit, since, before, sinceTimeMs };
    const page = await this.historyReader.read(room, place, () => EVERY_AUDIENCE, true);
    if (page.position === null) throw lacking('NO_HISTORY', call);
    const { epoch, offset } = page.position;
    return Buffer.concat([
      Buffer.from(`{"room":"${name}","messages":[`),
      page.messages,
      Buffer.from(`],"epoch":"${epoch}","offset":${offset},"more":${page.hasMore}}`),
    ]);
  };

  /** `GET rooms/:room/state` @param {Call} call */
  state = async (call) => {
    const { limit, after = '0' } = call.readQuery(['key', 'limit', 'after'], ['key']);
    const { name, room } = roomOfCall(call);
    const keys = call.query.getAll('key');
    if (keys.length > MAX_KEYS || !keys.every(isStateKey))
      throw badValue('key', `up to ${MAX_KEYS} times ${A_STATE_KEY}`);
    if (!OFFSET.test(after)) throw badValue('after', 'the offset of an entry');
    const most = readLimit(limit) ?? MAX_LIMIT;
    const page = await this.stateReader.read(room, {
      keys: keys.length === 0 ? null : keys,
      after: Number(after),
      limit: most,
    });
    if (page === null) throw lacking('NO_STATE', call);
    const { epoch, offset, entries, hasMore } = page;
    return Buffer.concat([
      Buffer.from(`{"room":"${name}","epoch":"${epoch}","offset":${offset},"entries":[`),
      entries,
      Buffer.from(`],"more":${hasMore}}`),
    ]);
  };

  /** `DELETE rooms/:room/history` @param {Call} call */
  deleteHistory = async (call) => {
    call.readQuery([]);
    const { room } = roomOfCall(call);
    this.#requireHistory(call, room);
    await this.fleet.deleteHistory(room);
    return {};
  };

  /** `GET rooms/:room/presence` @param {Call} call */
  presence = async (call) => {
    const { limit, after } = call.readQuery(['limit', 'after']);
    const { name, room } = roomOfCall(call);
    if (after !== undefined && !isUser(after)) throw badValue('after', user.rule);
    const most = readLimit(limit) ?? MAX_LIMIT;
    if (!this.tracker.covers(room)) throw lacking('NO_PRESENCE', call);
    const { count, members } = await this.tracker.read(room);
    if (members === null) return { room: name, count };
    const page = encodeMembers({ members, after, limit: most, maxBytes: MAX_MEMBER_BYTES });
    return Buffer.concat([
      Buffer.from(`{"room":"${name}","count":${count},"members":[`),
      page.text,
      Buffer.from(`],"more":${page.hasMore}}`),
    ]);
  };

  /** `POST presence` @param {Call} call */
  queryPresence = async (call) => {
    const fields = readFields(call.body, QUERY);
    requireOne(fields, 'rooms', 'users');
    if (fields.users !== undefined) {
      call.key.requireAllRooms();
      call.charge(fields.users.length - 1);
      const { names } = call.key;
      const { users: online, isPartial } = await this.fleet.online(fields.users.map(names.userOf));
      return { online: online.map(names.nameOfUser), partial: isPartial };
    }
    call.key.requireRooms(fields.rooms);
    call.charge(fields.rooms.length - 1);
    return { rooms: await this.#counts(call, fields.rooms) };
  };

  /**
   * @param {Call} call @param {readonly string[]} names
   * @returns {Promise<{room: string, count: number|null}[]>} null: the room has no presence
   */
  #counts({ key }, names) {
    const { tracker } = this;
    return inParallel(names, async (name) => {
      const room = key.names.roomOf(name);
      if (!tracker.covers(room)) return { room: name, count: null };
      return { room: name, count: (await tracker.read(room, true)).count };
    });
  }

  /** @param {Call} call @param {string} room */
  #requireHistory(call, room) {
    if (this.historyOf(room) === null) throw lacking('NO_HISTORY', call);
  }
}

const SETTING = { NO_HISTORY: 'history', NO_STATE: 'state', NO_PRESENCE: 'presence' };

/** @param {keyof typeof SETTING} code @param {Call} call */
function lacking(code, { params, key }) {
  const what = SETTING[code];
  const setting = key.app === null ? `FANFARE_${what.toUpperCase()}` : `"${what}" of the app`;
  const message = `The room ${params.room} has no ${what}: no pattern of ${setting} fits its name.`;
  return new ApiFault(code, { message });
}

/** The room of the path, and the name that the request has for it. @param {Call} call */
function roomOfCall({ params, key }) {
  const { room: name } = params;
  if (!isRoom(name)) throw badValue('room', A_ROOM);
  key.requireRooms([name]);
  return { name, room: key.names.roomOf(name) };
}

/** @param {string} name of the parameter @param {string|undefined} text */
function readPosition(name, text) {
  if (text === undefined) return null;
  if (!POSITION.test(text))
    throw badValue(name, 'an epoch and an offset, as in 0123456789abcdef:42');
  const [epoch, offset] = text.split(':');
  return readSince({ epoch, offset });
}

/** @param {string} name of the parameter @param {string|undefined} text */
function readTime(name, text) {
  if (text === undefined) return null;
  const timeMs = readSinceTime(TIME.test(text) ? Number(text) : Number.NaN);
  if (timeMs === undefined) throw badValue(name, 'whole milliseconds since 1970');
  return timeMs;
}
