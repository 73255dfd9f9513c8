// client.js: the contract between the client (fanfare.js) and its parts. Names that begin with `_`
// are internal to this library, and the build shortens them (package.json).

/** @import { State } from './connection.js' */
/** @import { FanfareError } from './error.js' */
/** @import { Command, Message, Position } from './wire.js' */

/**
 * @typedef {object} PublishOptions
 * @property {boolean} [echo] false: this connection does not receive its own message
 * @property {string} [key] in a room with state: the key to set; the payload `null` removes it
 * @property {Partial<Position>} [expect] the server accepts the message only if the room is at this
 *   position; `{offset: 0}`: only if it is the first one. Otherwise it answers CONFLICT
 * @property {readonly string[]} [audience] 1 to 4 names: only users who hold one of them get the
 *   message. The token needs the right `rooms.audience`
 * @property {string} [idempotencyKey] the server accepts one message with this key
 *   while it remembers the key
 */

/**
 * Gets the reply to a command, or why there is none: OUTCOME_UNKNOWN if the connection broke.
 * @typedef {(error: FanfareError|false|undefined, reply?: any) => void} OnReply
 */

/** A command without its id. @typedef {{room?: string, [field: string]: any}} Sendable */

/**
 * @typedef {object} Client
 * @property {State} state
 * @property {(
 *   room: string,
 *   payload: unknown,
 *   options?: PublishOptions,
 * ) => Promise<Partial<Position>>} publish
 * @property {(command: Command) => Promise<Message>} request
 * @property {(command: Sendable, onReply: OnReply, text?: string) => void} _request
 *   sends a command if there is a connection; `text`: the command as JSON
 * @property {(room: string) => FanfareError} _offline why nothing can be sent
 * @property {(room: string) => void} _forget the room has no handle any more: leaves it
 * @property {(room: string) => void} _leave @property {(error: FanfareError) => void} _report
 */

export {};
