// occupancy-store.js: which rooms have a connection on which workers, and which users, in Redis.
//
// The same session, queue and cleaning as those of presence write it (presence.js): a room is
// entered and left as if it had one user. lua/occupancy.lua has the step.

import { edgesOf } from '../edges.js';

/** @implements {Store} */
export class OccupancyStore {
  /** @param {import('./recording.js').RedisRecording} recording */
  constructor(recording) {
    this.recording = recording;
  }

  /** @type {Store['change']} */
  async change(tag, session, take, [what]) {
    // The store has forgotten the room, and the connections in it have left. No edge is left to
    // record. The courier announces the gap.
    if (what === 'announceLeave') return DONE;
    const { recording } = this;
    const isOut = take > 0 || what === 'leave';
    const waiting = await recording.redis.webhooksOccupancy(
      recording.keys.of(tag, 'sessions'),
      ...recording.keysOf(tag),
      session,
      isOut ? 'out' : 'in',
      ...edgesOf(tag, recording.covers),
    );
    if (waiting > 0) await recording.move(tag, waiting);
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
