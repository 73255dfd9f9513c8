// early-joins.js: joins of a connection that is not in the hub yet, because its token names rooms
// and the answer to its first command has to contain them all. No message may precede that answer.
//
//   onJoin asked for each room -> a stand-in joins it, and collects messages -> all rooms answered
//     -> reply -> collected messages -> the connection in the place of its stand-ins, all in one turn
//
// A room that the hook denies is left out. If another one fails, nothing is decided, and the client
// asks again.

import { Clientless } from '../hub/clientless.js';
import { Connection } from '../hub/connection.js';
import { NO_AUDIENCES } from '../protocol/audiences.js';
import { CLOSES } from '../protocol/codes.js';

/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Joined } from '../recovery/room-joins.js' */
/** @import { JoinOptions, Who } from './joins.js' */

/**
 * A room that the connection joins.
 * @typedef {{name: string} & Pick<JoinOptions, 'since'|'mayReadAll'>} EarlyRoom
 */

/**
 * One of these ends the joins, while the connection is open. Too many messages end them, too: they
 * close it.
 * @typedef {object} EarlyListener
 * @property {(joined: ReadonlyMap<string, Joined|null>) => void} onJoined by room: replies, and lets
 *   the connection into the hub, or closes it. Null: the room has no history
 * @property {() => void} onFailed at least one room could not be joined
 */

/**
 * @typedef {object} EarlyMember
 * @property {() => Who} whoOf called when the connection is in the hub
 * @property {(room: string, paidBytes: number) => void} onEntered it is a member now. `paidBytes`: of
 *   messages that were not free
 * @property {() => void} onLost a membership has ended before it was one
 */

/**
 * The joins of one connection, until all are answered.
 * @typedef {object} Round
 * @property {Connection} connection @property {Credentials|null} credentials
 * @property {readonly EarlyRoom[]} rooms @property {number} open rooms that have not answered
 * @property {boolean} isFailed
 * @property {Map<string, {standIn: StandIn, joined: Joined|null}>} entries by room
 * @property {EarlyListener & EarlyMember} listener @property {() => void} settle
 */

export class EarlyJoins {
  /**
   * @param {object} parts @param {{maxUnsentBytes: number}} parts.config
   * @param {import('./joins.js').Joins} parts.joins
   * @param {Pick<import('./lane.js').Lane, 'awaitJoin'>} parts.lane
   * @param {Pick<import('./replies.js').Replies, 'count'>} parts.replies
   */
  constructor({ config, joins, lane, replies }) {
    this.maxBytes = config.maxUnsentBytes;
    this.joins = joins;
    this.lane = lane;
    this.replies = replies;
  }

  /**
   * The caller has checked the number of rooms, which is above 0. Later commands wait.
   * @param {Connection} connection not in the hub
   * @param {Credentials|null} credentials from its token or hook
   * @param {readonly EarlyRoom[]} rooms @param {EarlyListener & EarlyMember} listener
   */
  joinBeforeReply(connection, credentials, rooms, listener) {
    /** @type {() => void} */
    let settle = () => {};
    const answered = /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        settle = () => resolve(undefined);
      })
    );
    /** @type {Round} */
    const round = {
      ...{ connection, credentials, listener, settle },
      ...{ rooms, open: rooms.length, isFailed: false, entries: new Map() },
    };
    this.lane.awaitJoin(connection, answered);
    for (const room of rooms) this.#askOnJoin(round, room);
  }

  /** @param {Round} round @param {EarlyRoom} room */
  #askOnJoin(round, room) {
    const { connection, credentials } = round;
    const enter = (/** @type {Refusal|null} */ refused) => {
      try {
        if (refused !== null) return this.#refusedEarly(round, refused);
        if (connection.isOpen) return this.#joinStandIn(round, room);
      } catch (error) {
        connection.fail(error);
      }
      this.#answered(round); // without a membership
    };
    // Not through the lane, which waits for this round.
    const asked = this.joins.askEarly(connection, credentials, [room.name]);
    if (asked === null) enter(null);
    else asked.then(([refused]) => enter(refused));
  }

  /** @param {Round} round @param {EarlyRoom} room */
  #joinStandIn(round, { name, since, mayReadAll }) {
    const standIn = new StandIn(round, this.maxBytes);
    this.joins.prepare(standIn, name, {
      ...{ since, mayReadAll },
      onJoined: (joined) => {
        round.entries.set(name, { standIn, joined });
        this.#answered(round);
      },
      onRefused: (refused) => this.#refusedEarly(round, refused),
    });
  }

  /** A room has refused. @param {Round} round @param {Refusal} refused */
  #refusedEarly(round, refused) {
    if (isDenied(refused)) this.replies.count(refused);
    else round.isFailed = true;
    this.#answered(round);
  }

  /** A room has answered. @param {Round} round */
  #answered(round) {
    if (--round.open > 0) return;
    // Later, because the last join has not returned, and a flush may be under way.
    queueMicrotask(() => {
      try {
        this.#concludeRound(round);
      } catch (error) {
        round.connection.fail(error);
      }
      // Those that the connection has not replaced leave.
      for (const [name, { standIn }] of round.entries) this.joins.unsubscribe(standIn, name);
      const { connection } = round;
      for (const { name } of round.rooms)
        if (!this.joins.isIn(connection, name)) connection.withdrawAudiences(name);
      round.settle();
    });
  }

  /** @param {Round} round */
  #concludeRound({ connection, isFailed, entries, listener }) {
    if (!connection.isOpen) return;
    const isFull = [...entries.values()].some(({ standIn }) => standIn.isFull);
    if (isFull) return connection.close(CLOSES.SLOW_CONSUMER);
    if (isFailed) return listener.onFailed();
    listener.onJoined(new Map([...entries].map(([name, { joined }]) => [name, joined])));
    for (const [name, { standIn, joined }] of entries) {
      if (!connection.isOpen) return;
      // A resync, which is among the frames, has ended the membership. The close says so.
      if (!this.joins.isIn(standIn, name)) return listener.onLost();
      for (const frames of standIn.frames) connection.transport.write(frames);
      // Now the connection has a user, whose rate is charged, too.
      const paidBytes = this.joins.adopt(connection, standIn, name, joined, listener.whoOf());
      listener.onEntered(name, paidBytes);
    }
  }
}

/** Is the client refused for good? @param {Refusal} refused */
export function isDenied({ code }) {
  return code === 'DENIED' || code === 'PERMISSION_DENIED';
}

/** A member for a connection whose first command is not answered. */
class StandIn extends Connection {
  /** @type {Buffer[]} */
  frames = [];
  isFull = false;
  #bytes = 0;

  /** @param {Pick<Round, 'connection'|'credentials'>} round @param {number} maxBytes */
  constructor({ connection, credentials }, maxBytes) {
    super(new Collector(connection, (frames) => this.#keepFrames(frames)), connection.address);
    // So that publications exclude both of them.
    this.number = connection.number;
    this.maxBytes = maxBytes;
    this.owner = connection;
    this.identity = credentials?.identity ?? null;
  }

  /** @override What its connection will hold when it is in the hub. @param {string} room */
  audiencesIn(room) {
    const { identity, owner } = this;
    // A token without a user begins no session.
    const name = identity === null || identity.user === '' ? null : identity.nameOf(room);
    if (identity === null || name === null) return NO_AUDIENCES;
    return identity.audiences.in(name).with(owner.given?.get(room) ?? NO_AUDIENCES);
  }

  /** @param {Buffer} frames */
  #keepFrames(frames) {
    this.#bytes += frames.length;
    if (this.#bytes > this.maxBytes) {
      this.isFull = true;
      this.frames = [];
    } else this.frames.push(frames);
  }
}

/** The transport of a stand-in. */
class Collector extends Clientless {
  /** @param {Connection} connection @param {(frames: Buffer) => void} write */
  constructor({ transport }, write) {
    super(transport.format);
    this.door = transport.door;
    this.write = write;
    this.failed = (/** @type {unknown} */ error) => transport.failed(error);
  }
}
