// handler.js: the contract of a command's handler.

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Command } from '../../protocol/decode.js' */

/** @typedef {import('../../operations/replies.js').Id} Id */

/**
 * Answers a valid message of its type by `connection.send`, at once or later.
 * @typedef {(connection: Connection, command: Command) => void} Handler
 */

export {};
