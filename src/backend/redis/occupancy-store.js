// occupancy-store.js: which workers have connections of a room or user, in Redis.

import { COUNTED } from '../../config/webhooks.js';
import { edgesOf } from '../edges.js';

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
  }

  /** @type {Store['change']} */
  async change(tag, session, take, [what, , member]) {
    // Redis has lost the room, and its connections have left: there is no edge to record, and the
    // courier announces the gap.
    if (what === 'announceLeave') return DONE;
    const { recording, announce } = this;
    const isOut = take > 0 || what === 'leave';
    const isCounted = recording.counts(tag);
    const [waiting, earlyMs] = await recording.redis.webhooksOccupancy(
      recording.keys.of(tag, 'sessions'),
      ...recording.keysOf(tag),
      recording.keys.of(tag, 'counts'),
      session,
      isOut ? 'out' : 'in',
      ...edgesOf(tag, recording.covers),
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

/** @type {{left: number, refused: Refused}} */
const DONE = { left: 0, refused: [] };

/** @import { Refused, Store } from './presence.js' */
