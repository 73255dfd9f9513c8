// rooms.js: the types of payloads by room: `createServer<{ 'chat.*': ChatMessage }>()`.
//
// If several patterns match a room, the narrowest one counts, as in the client (room-types.js). A
// name that no pattern matches is an error of the compiler.

/** @import { PayloadOf, TemplateOf } from '../protocol/room-types.js' */

/** @template {object} Rooms @typedef {TemplateOf<keyof Rooms & string>} RoomName */

/**
 * The payload of a room.
 * @template {object} Rooms @template {string} Room
 * @typedef {string extends keyof Rooms ? Rooms[keyof Rooms] : PayloadOf<Rooms, Room>} Payload
 */

/**
 * One of several messages.
 * @template {object} Rooms
 * @typedef {{[P in keyof Rooms & string]: {room: TemplateOf<P>, payload: Rooms[P], key?: string, except?: string, audience?: readonly string[], expect?: {epoch: string, offset: number}|{offset: 0}, idempotencyKey?: string}}[keyof Rooms & string]} Message
 */

export {};
