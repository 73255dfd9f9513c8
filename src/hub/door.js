// door.js: the contract of a door: a protocol that clients speak (overview.md, "Doors"). The native
// one is doors/native/native-door.js.
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

/**
 * How a stream speaks.
 * @typedef {object} StreamForm
 * @property {DoorTexts} texts
 * @property {number} format of protocol/format.js: it takes publications in it
 * @property {string} contentType @property {string} opening its first bytes
 * @property {(message: Buffer) => Buffer} frame one message as bytes of the stream
 * @property {(code: number, reason: string) => Buffer} ending its last bytes
 */

/**
 * The streams of a door: responses that do not end. Its clients send their messages in other
 * requests, which the door's HTTP API takes.
 * @typedef {object} StreamDoor
 * @property {Pick<DoorTexts, 'name'|'usesTokens'|'asksLater'>} rules for admission
 * @property {string} allow the methods of requests for a stream, such as `GET, POST`
 * @property {number} maxBodyBytes of such a request
 * @property {boolean} allowsCredentials may pages of allowed origins send cookies?
 * @property {(request: IncomingMessage) => StreamForm} formOf from its head
 * @property {(request: IncomingMessage, body: Buffer) => Buffer|Refusal} firstOf the client's first
 *   message; `body` is empty if the request has none
 * @property
 *   {(connection: Connection, request: IncomingMessage, credentials: Credentials|null, first: Buffer) => void}
 *   openStream the response has begun: lets the connection into the hub, or closes it. `first` may
 *   be kept
 * @property {(connection: Connection) => boolean} ping sends a ping of its protocol, which the
 *   client answers in a request. False: no answer can be expected now
 * @property {(connection: Connection) => void} closed its socket is closed; once for each stream
 */

export {};
