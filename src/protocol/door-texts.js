// door-texts.js: what a door says to its clients by itself, and these texts of the native protocol.

import {
  encodeDegraded,
  encodeJoined,
  encodeJoinedState,
  encodeLeft,
  encodeNotReplayed,
  encodeShutdown,
} from './encode.js';
import { toReply } from './refusal.js';

/** @import { Refusal } from './refusal.js' */
/**
 * @typedef {{epoch: string, offset: number, recovered: boolean, replayed: number, first: number, isState?: boolean}}
 *   Joined
 */

/**
 * A user in a room's list, as a door knows it: the JSON of `info` and of the user's id.
 * @typedef {{user: string, info: string, id: string}} RosterMember
 */

/**
 * How a door writes lists of users that its clients get when they join, and never ask for again.
 * @typedef {object} RosterTexts
 * @property {number} format of protocol/format.js, in which its clients get changes of the list
 * @property {(text: string) => RosterMember|null} readMember from JSON of presence; null: another form
 * @property {(room: string, event: 'join'|'leave', member: RosterMember) => string|null} changeText
 *   a change that the events missed; null: no client hears of it
 */

/**
 * The end of a connection, as its door tells it.
 * @typedef {object} DoorClose
 * @property {number} code of the close frame
 * @property {string} reason of the close frame
 * @property {string|Buffer} [notice] sent before the close frame
 */

/**
 * What is said may be a text, or a message's bytes. Null is not sent: clients of this door have no
 * such message. `connection` is one of the hub's.
 * @typedef {object} DoorTexts
 * @property {string} name of the door: `native`, `pusher` or `centrifugo`
 * @property {(connection: {readonly id: string}) => string|null} [appOf] the id of its app, for
 *   operators; null: it has none. Absent: this door has no apps
 * @property {boolean} usesTokens do native tokens, and the rights in them, apply to its clients?
 * @property {boolean} [asksLater] a command of its clients brings the token: it and the hook
 *   onConnect are asked then, and not at the handshake
 * @property {(refused: Refusal, id: string|number|undefined, nowMs: number) => string|Buffer|null}
 *   encodeError a command with that id is refused, or the connection, which is closed next
 * @property {(room: string, reason: 'removed'|'permission') => string|Buffer|null} encodeLeft the
 *   server has taken the connection out of a room
 * @property {boolean} takesState do its clients know the keys of messages in rooms with state?
 * @property {boolean} repeatsJoins may its clients join a room again to read from another position?
 * @property {boolean} [waitsToJoin] do its clients wait for the answer to a join for ever, and send no
 *   second one? Then the server asks again when what refused it may have passed
 * @property {RosterTexts} [roster] absent: its clients get no list when they join
 * @property {'none'|'told'} backendJoins may a backend join its clients to rooms? `none`: they would
 *   not know
 * @property {(connection: any, room: string, joined: Joined|null) => void} entered the backend has
 *   joined the connection to a room: the door tells its client. `joined` null: it has no history
 * @property {(connection: any, room: string, reason: 'resync'|'removed'|'permission') => void}
 *   expelled the server has ended a membership. After a `resync` (Format.leavesAtResync) the
 *   client knows, and the door may close the connection; otherwise `encodeLeft` follows
 * @property {(reconnectAfterMs: number) => string|null} encodeShutdown a close follows. Null: these
 *   clients return at once, so a drain and a relocation spread their closes in place of the returns
 * @property {(degraded: boolean) => string|null} encodeDegraded the broker is unavailable, or it is
 *   back and all that can be recovered is recovered
 * @property {DoorClose} [silentClose] for a connection that gives no sign of life. Absent: its socket
 *   is closed without a word
 * @property {(connection: {readonly id: string}, expiresAtMs: number) => string|Buffer|null}
 *   [encodeRenewed] a backend has changed the time at which its session expires; infinite: never.
 *   Absent: these clients have no such message
 * @property {(close: {code: number, reason: string}) => DoorClose} closeOf translates a row of
 *   codes.js, or a code that a backend has chosen
 */

/** @type {Readonly<DoorTexts>} */
export const NATIVE_TEXTS = Object.freeze({
  name: 'native',
  usesTokens: true,
  takesState: true,
  repeatsJoins: true,
  backendJoins: 'told',
  entered(connection, room, joined) {
    if (joined === null) connection.send(encodeNotReplayed(room, false, false, undefined));
    else if (joined.isState) connection.send(encodeJoinedState(room, joined, undefined));
    else connection.send(encodeJoined(room, joined, undefined, false));
  },
  expelled() {},
  encodeError: toReply,
  encodeLeft,
  encodeShutdown,
  encodeDegraded,
  closeOf: (/** @type {{code: number, reason: string}} */ close) => close,
});
