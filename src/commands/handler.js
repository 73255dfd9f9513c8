// handler.js: the contract of a command's handler, alone.

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/decode.js').Command} Command */

/** A command's `id`: its reply repeats it. @typedef {string|number|undefined} Id */

/**
 * Handles a valid message of its type, and answers by `connection.send`, at once or later.
 * @typedef {(connection: Connection, command: Command) => void} Handler
 */

export {};
