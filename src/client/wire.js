// wire.js: types of the protocol (docs/protocol.md).

/** A parsed message from the server. @typedef {Record<string, any>} Message */

/**
 * @typedef {object} Welcome
 * @property {string} connectionId unique across all servers
 * @property {string} [userId] from the token
 * @property {string} serverId
 * @property {number} heartbeatMs between two pings from the server
 * @property {{
 *   maxMessageBytes: number,
 *   maxRooms?: number,
 *   messagesPerMinute?: number,
 *   idempotencyMs?: number,
 * }} limits that the server enforces
 * @property {boolean} degraded is the broker unavailable?
 */

/** A command without its id. @typedef {Record<string, unknown> & {type: string}} Command */

/** A place in a room's stream. @typedef {{epoch: string, offset: number}} Position */

export {};
