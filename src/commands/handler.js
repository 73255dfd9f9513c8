// handler.js: the contract of a command's handler.

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/decode.js').Command} Command */

/** The `id` of a command, which its reply repeats. @typedef {string|number|undefined} Id */

/**
 * Handles a valid message of its type, and answers by `connection.send`, at once or later.
 * @typedef {(connection: Connection, command: Command) => void} Handler
 */

export {};
