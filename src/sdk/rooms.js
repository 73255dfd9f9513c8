// rooms.js: the types of payloads by room: `createServer<{ 'chat.*': ChatMessage }>()`.
//
// If several patterns match a room, the narrowest one counts: `chat.lobby` before `chat.*` before
// `*`. A name that no pattern matches is an error of the compiler.

/**
 * The names that a pattern matches: `chat.*` becomes `chat.${string}`.
 * @template {string} Pattern
 * @typedef {Pattern extends `${infer Head}*${infer Tail}` ? `${Head}${string}${Names<Tail>}` : Pattern} Names
 */

/** @template {object} Rooms @typedef {Names<keyof Rooms & string>} RoomName */

/**
 * Every pattern that matches a room.
 * @template {object} Rooms @template {string} Room
 * @typedef {{[P in keyof Rooms & string]: Room extends Names<P> ? P : never}[keyof Rooms & string]} Matching
 */

/**
 * `true` if one of the others matches fewer names than a pattern.
 * @template {string} Pattern @template {string} Others
 * @typedef {true extends (Others extends Pattern ? never : Names<Others> extends Names<Pattern> ? true : never) ? true : false} HasNarrower
 */

/**
 * @template {string} Patterns @template {string} [All=Patterns]
 * @typedef {Patterns extends string ? (HasNarrower<Patterns, All> extends true ? never : Patterns) : never} Narrowest
 */

/**
 * The payload of a room.
 * @template {object} Rooms @template {string} Room
 * @typedef {string extends keyof Rooms ? Rooms[keyof Rooms] : Rooms[Narrowest<Matching<Rooms, Room>> & keyof Rooms]} Payload
 */

/**
 * One of several messages.
 * @template {object} Rooms
 * @typedef {{[P in keyof Rooms & string]: {room: Names<P>, payload: Rooms[P], key?: string, except?: string, expect?: {epoch: string, offset: number}|{offset: 0}, idempotencyKey?: string}}[keyof Rooms & string]} Message
 */

export {};
