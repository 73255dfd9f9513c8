// delivery.js: the contract between recovery and the hub, for one room with history or state.

/** @import { Connection } from '../hub/connection.js' */
/** @import { Position } from '../protocol/position.js' */

/**
 * @typedef {object} Delivery
 * @property {() => boolean} isFull is the room's outbox full? Then nothing may be delivered.
 * @property {(publication: Buffer) => void} deliver puts the stream's next publication, of kind
 *   POSITIONED, into the outbox for all members
 * @property {(mark: Buffer) => void} markResync puts a mark of kind RESYNC into the outbox: each
 *   member gets a `resync` between the publications before and after it. The outbox takes a mark
 *   even if it is full.
 * @property {(latest: number) => number} handedOut returns the offset of the last publication that
 *   no longer waits in the outbox; `latest` if none waits, -1 if a resync mark waits
 * @property {(connection: Connection, reply: () => void, frames: Buffer, end: Position) => boolean}
 *   admit makes a connection a member, then sends its reply, then its replay, without interruption.
 *   `frames` end at that position and may be empty. Returns false if no replay was written.
 * @property {() => readonly Connection[]} members the hub's own list, which changes
 * @property {() => void} dropWaiting forgets messages that wait in the outbox of a room with state,
 *   because they are no longer true
 * @property {() => boolean} isFlushing is a flush to the members under way?
 * @property {() => boolean} isMarking is a `resync` being written to the members?
 * @property {(connection: Connection, frames: Buffer, end: Position) => void} write writes older
 *   publications, which end at that position, to a lagging member
 * @property {(connection: Connection, position: Position) => void} pass tells a lagging member that it
 *   has come to a position whose publication is hidden from it
 * @property {(connection: Connection, text: string, position: Position) => void} tell writes a push
 *   of encode.js to a member of a room with state, which has then reached that position
 * @property {(connection: Connection, position: Position, members: number) => void} resync writes a
 *   `resync` to one of this many members, which lagged until now. If a resync ends a membership in
 *   its format, it leaves the room
 */

export {};
