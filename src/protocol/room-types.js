// room-types.js: the types of payloads, by the names of their rooms.
//
// Applications declare them with the patterns of the server's settings (room-patterns.js):
// `{ 'chat.*': ChatMessage, 'news': Headline }`. Type checkers have no order of keys, so the first
// match cannot count: a whole name does, else the most specific pattern.

/**
 * A pattern as a template literal: `chat.*` is `chat.${string}`.
 * @template {string} Pattern
 * @typedef {Pattern extends `${infer Start}*${infer Rest}`
 *   ? `${Start}${string}${TemplateOf<Rest>}`
 *   : Pattern} TemplateOf
 */

/**
 * The patterns that match a name.
 * @template Rooms @template {string} Name
 * @typedef {{
 *   [Pattern in keyof Rooms & string]: Name extends TemplateOf<Pattern> ? Pattern : never
 * }[keyof Rooms & string]} PatternsOf
 */

/**
 * The patterns that match no other one: of `chat.*` and `chat.staff.*`, the second.
 * @template {string} Patterns
 * @typedef {{
 *   [Wide in Patterns]: [Extract<Exclude<Patterns, Wide>, TemplateOf<Wide>>] extends [never]
 *     ? Wide
 *     : never
 * }[Patterns]} MostSpecific
 */

/**
 * The payload of a room. `any` if no rooms are declared, `unknown` if none of them matches. It asks
 * for the name first: otherwise tsc would write `any` into the declarations of fanfare-client.
 * @template Rooms payloads by the name or pattern of their rooms
 * @template {string} Name
 * @typedef {Name extends keyof Rooms
 *   ? Rooms[Name]
 *   : [PatternsOf<Rooms, Name>] extends [never]
 *     ? keyof Rooms extends never ? any : unknown
 *     : Rooms[MostSpecific<PatternsOf<Rooms, Name>> & keyof Rooms]} PayloadOf
 */

export {};
