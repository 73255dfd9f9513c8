// join.js: the commands join and leave, and the rooms that a token joins.

import { NOBODY } from '../../operations/joins.js';
import {
  MAX_INFO_BYTES,
  MAX_LAST,
  MAX_LAST_SECONDS,
  readLatest,
  readPresence,
  readSince,
} from '../../protocol/decode.js';
import {
  encodeJoined,
  encodeJoinedState,
  encodeLeaveReply,
  encodeLeft,
  encodeNotReplayed,
} from '../../protocol/encode.js';
import { numberText } from '../../protocol/refusal.js';

const BAD_PRESENCE = 'presence is false, or an object with a user of 1 to 128 characters and info.';
const BAD_LAST = `last is a whole number from 1 to ${MAX_LAST}, lastSeconds to ${MAX_LAST_SECONDS}.`;

/** @import { Connection } from '../../hub/connection.js' */
/** @import { JoinOptions } from '../../operations/joins.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Since } from '../../protocol/decode.js' */
/** @import { Handler, Id } from './handler.js' */

export class JoinCommands {
  /**
   * @param {object} parts @param {import('../../hub/room-users.js').Tracker} parts.tracker
   * @param {import('../../operations/joins.js').Joins} parts.joins
   * @param {import('../../operations/replies.js').Replies} parts.replies
   */
  constructor({ tracker, joins, replies }) {
    this.tracker = tracker;
    this.joins = joins;
    this.replies = replies;
  }

  /** @type {Handler} */
  join(connection, command) {
    const { replies } = this;
    const { id } = command;
    const { session } = connection;
    const name = session.validRoomOf(command.room);
    if (name === null) return replies.invalidRoom(connection, id, command.room);
    if (!session.mayJoin(name)) return replies.forbidden(connection, id, 'join');
    const who = this.tracker.covers(name) ? readPresence(command) : null;
    if (who === undefined) return replies.invalid(connection, id, BAD_PRESENCE);
    if (who?.info && who.info.length > MAX_INFO_BYTES) {
      const [bytes, max] = [who.info.length, MAX_INFO_BYTES].map(numberText);
      const text = `presence.info has ${bytes} bytes, over the limit of ${max} bytes.`;
      return replies.error(connection, 'MESSAGE_TOO_LARGE', id, text);
    }
    const latest = readLatest(command.last, command.lastSeconds);
    if (latest === null) return replies.invalid(connection, id, BAD_LAST);
    // The right to join covers missed messages within the resume window, but no earlier ones.
    if (latest.last > 0 && !session.hasRight('history', name))
      return replies.forbidden(connection, id, 'history');
    const { last, lastSeconds } = latest;
    const wanted = { who, since: readSince(command.since), last, lastSeconds };
    this.#subscribe(connection, name, id, wanted, (refused) =>
      replies.refuse(connection, refused, id),
    );
  }

  /**
   * @param {Connection} connection with a session @param {string} name of a room in its token
   * @param {Since|null} since
   */
  autojoin(connection, name, since) {
    const who = this.tracker.covers(name) ? NOBODY : null;
    this.#subscribe(connection, name, undefined, { who, since }, (refused) => {
      if (refused.code !== 'DENIED') return this.replies.refuse(connection, refused);
      this.replies.count(refused);
      // The backend may have let it in meanwhile.
      if (!this.joins.isIn(connection, name)) connection.send(encodeLeft(name, 'permission'));
    });
  }

  /**
   * @param {Connection} connection @param {string} name @param {Id} id
   * @param {Pick<JoinOptions, 'who'|'since'|'last'|'lastSeconds'>} wanted
   * @param {(refused: Refusal) => void} onRefused
   */
  #subscribe(connection, name, id, wanted, onRefused) {
    // Without a spread, which costs 4 us here.
    const { who, since, last = 0, lastSeconds = 0 } = wanted;
    this.joins.subscribe(connection, name, {
      who,
      since,
      last,
      lastSeconds,
      mayReadAll: connection.session.hasRight('history', name),
      onJoined: (joined) => {
        if (joined === null) connection.send(encodeNotReplayed(name, since !== null, last > 0, id));
        else if (joined.isState) connection.send(encodeJoinedState(name, joined, id));
        else connection.send(encodeJoined(name, joined, id, last > 0));
      },
      onRefused,
    });
  }

  /** @type {Handler} */
  leave(connection, { id, room: given }) {
    const name = connection.session.validRoomOf(given);
    if (name === null) return this.replies.invalidRoom(connection, id, given);
    if (!this.joins.unsubscribe(connection, name))
      return this.replies.error(connection, 'NOT_IN_ROOM', id);
    connection.send(encodeLeaveReply(name, id));
  }
}
