// door.js: the contract of a door: a protocol that clients speak.
//
// The native protocol is the first one (commands/native-door.js); the others are loaded if they are
// configured (doors/index.js). All of them share the hub: a room's members may have come through
// different doors, and take its publications in the format of theirs (protocol/format.js).
//
//   handshake answered -> open -> receive … -> closed

/** @import { Credentials } from '../auth/credentials.js' */
/** @import { DoorTexts } from '../protocol/door-texts.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Connection } from './connection.js' */

/**
 * One object serves all connections of its door.
 * @typedef {object} WebSocketDoor
 * @property {number} format of protocol/format.js: its WebSockets take publications in it
 * @property {string} subprotocol that a client may offer; '': none is selected
 * @property {boolean} mayDeflate may permessage-deflate be negotiated?
 * @property {(connection: Connection, request: IncomingMessage, credentials: Credentials|null) => void}
 *   open the handshake is answered: lets the connection into the hub, or refuses it inside the
 *   WebSocket. `credentials` are those of Admission: null without tokens and hooks
 * @property {(refused: Refusal) => boolean} [takesRefusal] admission has refused a handshake. True:
 *   the door refuses it inside the WebSocket, and `open` gets the refusal in its credentials.
 *   Absent, or false: the answer is an HTTP status
 * @property {(connection: Connection) => void} closed its socket is closed; once for each `open`
 * @property {(connection: Connection, text: Buffer) => void} receive a message, valid UTF-8; the
 *   bytes belong to the read, and may change after the call
 * @property {(connection: Connection, bytes: Buffer) => void} receiveBinary the same for a binary
 *   message
 * @property {(message: Buffer) => Buffer} [frame] frames a message that the door has handed over as
 *   bytes
 * @property {(connection: Connection) => boolean} [ping] sends a ping of its protocol, in place of a
 *   WebSocket's. False: no answer can be expected now
 */

/** @typedef {DoorTexts & WebSocketDoor} Door */

export {};
