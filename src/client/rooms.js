// rooms.js: the types of an application's payloads, by room. Applications add theirs:
//   declare module 'fanfare-client' { interface Rooms { 'chat.*': ChatMessage } }

/**
 * Payloads by the name or pattern of their rooms; empty unless the application declares some. A
 * class, because JSDoc has no interface that others could add to. It has no use at run time.
 */
export class Rooms {}

/**
 * The payload of a room by its name (protocol/room-types.js).
 * @template {string} Name
 * @typedef {import('../protocol/room-types.js').PayloadOf<Rooms, Name>} RoomPayload
 */
