// wire.js: types of the wire (docs/protocol.md).

/** A message of the server, parsed. @typedef {Record<string, any>} Message */

/** A command without its id. @typedef {Record<string, unknown> & {type: string}} Command */

/** A place in a room's stream. @typedef {{epoch: string, offset: number}} Position */

export {};
