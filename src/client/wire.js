// wire.js: types of the wire (docs/protocol.md).

/** A message of the server, parsed. @typedef {Record<string, any>} Message */

/**
 * @typedef {object} Welcome
 * @property {string} connectionId unique over all servers
 * @property {string} [userId] of the connection's token
 * @property {string} serverId
 * @property {number} heartbeatMs between two pings of the server
 * @property {{
 *   maxMessageBytes: number,
 *   maxRooms?: number,
 *   messagesPerMinute?: number,
 *   idempotencyMs?: number,
 * }} limits those that the server enforces
 * @property {boolean} degraded is the broker unavailable?
 */

/** A command without its id. @typedef {Record<string, unknown> & {type: string}} Command */

/** A place in a room's stream. @typedef {{epoch: string, offset: number}} Position */

export {};
