// member-store.js: the users of rooms with presence, in Redis.
//   presence:{<room>}:members           user -> member
//   presence:{<room>}:owners            user -> number of sessions that have it
//   presence:{<room>}:users:<session>   the users of a session
//
// lua/members.lua changes these three in one step and publishes the events on the room's channel.
// If webhooks cover the room, the same step records the events (recording.js).

import { MAX_LIST_BYTES } from '../presence.js';
import { LUA_FRAMING, readScript } from './scripts.js';

const MEMBERS = LUA_FRAMING + readScript('members');

/**
 * @typedef {object} Scripts as methods of ioredis
 * @property {ChangeScript} presenceMembersBuffer @property {ChangeScript} presenceRecordedBuffer
 * @property {(...args: (string|number)[]) => Promise<[count: number, members?: Buffer[]]>}
 *   presenceReadBuffer
 */

/**
 * @typedef
 *   {(...args: (string|number|Buffer)[]) => Promise<[joins: number, leaves: number, suppressed: number, left: number, refused: Refused, waiting: number]>}
 *   ChangeScript
 */

/** @implements {Store} */
export class MemberStore {
  /**
   * @param {object} parts @param {import('./presence-session.js').Connection} parts.connection
   * @param {string} parts.prefix of keys
   * @param {(room: string) => string} parts.channelOf returns a room's channel
   * @param {'PUBLISH'|'SPUBLISH'} parts.publishCommand @param {number} parts.maxMembers
   * @param {import('../presence.js').Announcements} parts.announcements
   * @param {{presenceEvents: import('../presence.js').EventCounts}} parts.counters
   * @param {import('./recording.js').RedisRecording|null} parts.recording
   */
  constructor(parts) {
    const { connection, prefix, channelOf, publishCommand, maxMembers, announcements } = parts;
    this.prefix = prefix;
    this.channelOf = channelOf;
    this.maxMembers = maxMembers;
    /** The arguments that all calls of lua/members.lua share. */
    this.common = [publishCommand, announcements.join, announcements.leave, maxMembers];
    this.counters = parts.counters;
    this.recording = parts.recording;
    const { redis } = connection;
    redis.defineCommand('presenceMembers', { numberOfKeys: 3, lua: MEMBERS });
    redis.defineCommand('presenceRead', { numberOfKeys: 1, lua: readScript('read-members') });
    if (this.recording !== null)
      redis.defineCommand('presenceRecorded', {
        numberOfKeys: 6,
        lua: this.recording.lua + MEMBERS,
      });
    this.scripts = /** @type {Scripts} */ (/** @type {unknown} */ (redis));
    const head = `${prefix}presence:{`;
    /** @type {Store['held']} */
    this.held = [
      {
        head,
        tail: 'users:*',
        sessionsOf: async (keys) =>
          keys.map((key) => {
            const [room, session] = splitAt(key.slice(head.length), '}:users:');
            return [session, room];
          }),
      },
    ];
  }

  /** @type {Store['change']} */
  async change(room, session, take, changes) {
    const { recording, scripts } = this;
    const head = this.#key(room, '');
    const keys = [`${head}members`, `${head}owners`, `${head}users:${session}`];
    const args = [this.channelOf(room), ...this.common, take, ...changes];
    const isRecorded = recording?.coversMembers(room) ?? false;
    const [joins, leaves, suppressed, left, refused, waiting] =
      recording !== null && isRecorded
        ? await scripts.presenceRecordedBuffer(...keys, ...recording.keysOf(room), ...args)
        : await scripts.presenceMembersBuffer(...keys, ...args);
    const { presenceEvents } = this.counters;
    presenceEvents.join += joins;
    presenceEvents.leave += leaves;
    presenceEvents.suppressed += suppressed;
    // If this fails, the step does not count as done and is repeated.
    if (waiting > 0) await recording?.move(room, waiting);
    return { left, refused };
  }

  /** @type {Store['read']} */
  async read(room, isCount) {
    const key = this.#key(room, 'members');
    const most = isCount ? 0 : this.maxMembers;
    const [count, members = null] = await this.scripts.presenceReadBuffer(
      key,
      most,
      MAX_LIST_BYTES,
    );
    return { count, members };
  }

  /** @param {string} room @param {string} key */
  #key(room, key) {
    return `${this.prefix}presence:{${room}}:${key}`;
  }
}

/** @param {string} text @param {string} seam @returns {[before: string, after: string]} */
function splitAt(text, seam) {
  const at = text.indexOf(seam);
  return [text.slice(0, at), text.slice(at + seam.length)];
}

/** @import { Refused, Store } from './presence.js' */
