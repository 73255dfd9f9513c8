// occupancy-store.js: which workers have connections of a room or user, in Redis.

import { COUNTED } from '../../config/webhooks.js';
import { transitionsOf } from '../webhook-reporter.js';

/** Keys read at once. */
const MAX_CALLS = 16;

/**
 * @typedef {object} Announce how a script tells a room its count
 * @property {(room: string) => string} channelOf @property {'PUBLISH'|'SPUBLISH'} command
 * @property {Buffer} head of the publication; the count follows
 */

/** @implements {Store} */
export class OccupancyStore {
  /**
   * @param {object} parts @param {import('./recording.js').RedisRecording} parts.recording
   * @param {Announce} parts.announce
   * @param {(tag: string, ms: number) => void} parts.onEarly the room was told a moment ago: repeat
   *   the change after this time
   */
  constructor({ recording, announce, onEarly }) {
    this.recording = recording;
    this.announce = announce;
    this.onEarly = onEarly;
    const { head } = recording.keys;
    /** @type {Store['held']} */
    this.held = [
      { head, tail: 'sessions', sessionsOf: (keys) => this.#sessionsOf(keys) },
      // The worker that should have moved these events has ended, and its list is lost.
      {
        head,
        tail: 'outbox',
        sessionsOf: async (keys) => {
          for (const key of keys) await recording.move(tagOf(key, head, 'outbox'), 1);
          return [];
        },
      },
    ];
  }

  /** @param {string[]} keys @returns {Promise<[session: string, tag: string][]>} */
  async #sessionsOf(keys) {
    const { recording } = this;
    /** @type {[string, string][]} */
    const pairs = [];
    for (let i = 0; i < keys.length; i += MAX_CALLS) {
      const chunk = keys.slice(i, i + MAX_CALLS);
      const all = await Promise.all(chunk.map((key) => recording.redis.smembers(key)));
      for (const [j, sessions] of all.entries()) {
        const tag = tagOf(chunk[j], recording.keys.head, 'sessions');
        for (const session of sessions) pairs.push([session, tag]);
      }
    }
    return pairs;
  }

  /** @type {Store['change']} */
  async change(tag, session, take, [what, , member]) {
    // Redis has lost the room, and its connections have left: there is no transition to record, and
    // the courier announces the gap.
    if (what === 'leaveLost' || what === 'announceLeave') return DONE;
    const { recording, announce } = this;
    const isOut = take > 0 || what === 'leave';
    const isCounted = recording.counts(tag);
    const [waiting, earlyMs] = await recording.redis.webhooksOccupancy(
      recording.keys.partitionKey(tag, 'sessions'),
      ...recording.keysOf(tag),
      recording.keys.partitionKey(tag, 'counts'),
      session,
      isOut ? 'out' : 'in',
      ...transitionsOf(tag, recording.covers),
      ...(isCounted
        ? [
            isOut ? '0' : member,
            announce.channelOf(tag),
            announce.command,
            announce.head,
            recording.covers('room.counted', tag) ? 'room.counted' : '',
            String(COUNTED.large),
            String(COUNTED.pauseMs),
          ]
        : ['']),
    );
    if (waiting > 0) await recording.move(tag, waiting);
    if (earlyMs > 0) this.onEarly(tag, earlyMs);
    return DONE;
  }

  /** @type {Store['read']} */
  async read() {
    throw new Error('occupancy has no members');
  }
}

/** @param {string} key @param {string} head @param {string} name of the key, after its tag */
function tagOf(key, head, name) {
  return key.slice(head.length, -`}:${name}`.length);
}

/** @type {{left: number, refused: Refused}} */
const DONE = { left: 0, refused: [] };

/** @import { Refused, Store } from './presence.js' */
