// state-joins.js: the joins of one room with state. They are decided as soon as the worker has its
// copy of the state. The reply says whether the client's position was recovered; the member then
// gets what it lacks from there, or the whole state (state-members.js).

import { timestampOf } from '../protocol/publication.js';
import { inStream, RoomJoins } from './room-joins.js';

const NOTHING = Buffer.alloc(0);

/** @import { Since } from '../protocol/decode.js' */
/** @import { Join } from './room-joins.js' */
/** @import { StateMembers, StateStream } from './state-members.js' */
/** @typedef {StateStream & {readonly members: StateMembers}} RoomState */

export class StateJoins extends RoomJoins {
  /**
   * @param {Omit<ConstructorParameters<typeof RoomJoins>[0], 'stream'> & {stream: RoomState}} parts
   */
  constructor(parts) {
    super(parts);
    this.room = parts.stream;
  }

  /** @override @param {Join} join @param {Error|null} error of the read that the join waits for */
  decide(join, error) {
    const { room } = this;
    const { since } = join.request;
    if (room.epoch === '') return;
    const from = since === null ? 0 : this.#positionOf(join, inStream(since, room), error);
    if (from !== undefined) this.#admitMember(join, from);
  }

  /**
   * @param {Join} join @param {Since} since @param {Error|null} error
   * @returns {number|null|undefined} the offset to continue from; null: the client begins again;
   *   undefined: undecided or refused
   */
  #positionOf(join, since, error) {
    const { room } = this;
    const { epoch, offset } = since;
    if (epoch === '' || epoch === room.formerEpoch || room.mustEnd) return null;
    // Which keys the client has depends on what it was allowed to see until then.
    if (room.log.restricted > 0) return null;
    if (epoch !== room.epoch || offset > room.offset)
      return this.isUnknown(join, error) ? undefined : null;
    return offset >= room.log.floor ? offset : null;
  }

  /** @param {Join} join @param {number|null} position null: not recovered */
  #admitMember({ connection, request, onAnswered }, position) {
    const { room } = this;
    const { epoch } = room;
    const recovered = position !== null && request.since !== null;
    const from = position ?? 0;
    this.decided(connection, request, recovered);
    const offset = Math.max(from, this.delivery.handedOut(room.offset));
    const { bytes, oldest } = room.log.after(from, connection.audiencesIn(this.roomName));
    const joined = {
      epoch,
      offset,
      recovered,
      replayed: 0,
      first: from + 1,
      bytes,
      acceptedMs: oldest === null ? Number.POSITIVE_INFINITY : timestampOf(oldest.publication),
      isState: true,
    };
    try {
      this.delivery.admit(connection, () => request.onJoined(joined), NOTHING, { epoch, offset });
      // Earlier removals do not matter to a client without a position: it begins with an empty map.
      const floor = recovered ? from : room.offset;
      if (connection.isOpen) room.members.sync(connection, { epoch, offset: from }, floor);
    } finally {
      onAnswered();
    }
  }
}
