// messages.js: the messages of Centrifugo's client protocol v2 as this door's handlers see them,
// and the contract of its two codecs.
//
// Fields have the protocol's JSON names. A raw JSON value, such as `data`, is a Buffer. Maps are
// Map, so that `__proto__` is a name like any other. Codecs refuse a number beyond 2^53.

/**
 * What a client asks for; `pong` answers a ping.
 * @typedef {'connect'|'subscribe'|'unsubscribe'|'publish'|'presence'|'presence_stats'|'history'|'ping'|'send'|'rpc'|'refresh'|'sub_refresh'|'pong'}
 *   Method
 */

/**
 * @typedef {object} Command
 * @property {number} id 0: it has none
 * @property {Method} method @property {Request} request
 * @property {Buffer} source its bytes, for `decode` to read again; they may change after the call
 */

/**
 * All requests. A codec has checked the types; absent: undefined. `data`: JSON; of protobuf clients
 * any bytes. `type` of a subscription: 0, or a kind that this door refuses. `tf`: is a filter by
 * tags given?
 * @typedef {{token?: string, channel?: string, data?: Buffer, name?: string, version?: string,
 *   method?: string, subs?: Map<string, Request>, headers?: Map<string, string>,
 *   recover?: boolean, epoch?: string, offset?: number, positioned?: boolean,
 *   recoverable?: boolean, join_leave?: boolean, flag?: number, type?: number|string, key?: string,
 *   removed?: boolean, tf?: boolean, limit?: number, since?: {offset?: number, epoch?: string},
 *   reverse?: boolean}} Request
 */

/** @typedef {{code: number, message: string, temporary?: boolean}} ReplyError */

/** @typedef {{user?: string, client?: string, conn_info?: Buffer|null}} ClientInfo */

/**
 * A publication in a result.
 * @typedef {{data: Buffer, offset?: number, info?: ClientInfo, time?: number}} Publication
 */

/**
 * `ttl`: seconds. `publications`: of `publicationList`.
 * @typedef {{expires?: boolean, ttl?: number, recoverable?: boolean, positioned?: boolean,
 *   epoch?: string, offset?: number, publications?: Buffer, recovered?: boolean,
 *   was_recovering?: boolean, data?: Buffer|null}} SubscribeResult
 */

/**
 * One message to a client: a reply, or a push without an id. Zero values are left out; an empty
 * result appears.
 * @typedef {{id?: number, error?: ReplyError, push?: Push, connect?: object,
 *   subscribe?: SubscribeResult, unsubscribe?: object, publish?: object,
 *   presence?: {presence: Map<string, ClientInfo>},
 *   presence_stats?: {num_clients: number, num_users: number},
 *   history?: {publications: Publication[], epoch: string, offset: number}, ping?: object,
 *   rpc?: {data: Buffer|null}, refresh?: object, sub_refresh?: object}} Reply
 */

/**
 * @typedef {{channel?: string, pub?: Publication, join?: {info: ClientInfo},
 *   leave?: {info: ClientInfo}, unsubscribe?: {code: number, reason: string},
 *   message?: {data: Buffer}, subscribe?: SubscribeResult,
 *   disconnect?: {code: number, reason: string, reconnect?: boolean},
 *   refresh?: {expires: boolean, ttl?: number}}} Push
 */

/**
 * A publication as the hub has it, for an encoder.
 * @typedef {object} Published
 * @property {Buffer} source has the payload: JSON
 * @property {number} start @property {number} end @property {number} offset 0: it has no position
 * @property {number} timeMs since 1970
 * @property {Buffer|null} info of `infoField`; null: not by a client
 */

/**
 * One form of the messages.
 * @typedef {object} Codec
 * @property {boolean} isBinary
 * @property {(bytes: Buffer, maxCommands?: number) => Command[]|'too_many'|null} decode one message
 *   of a client; null: malformed. An entry of `subs` or `headers` counts as a command. Above
 *   `maxCommands`, or with more fields than so many commands have, the rest is not read.
 * @property {(reply: Reply) => Buffer} encode without a frame or a length
 * @property {(id: number, method: Method) => Buffer} encodeDone as `encode` of an empty result
 * @property {Buffer} ping an empty reply
 * @property {(channel: string) => Buffer} channelField what the pushes of a channel share
 * @property {(field: Buffer, published: Published) => Buffer} publicationMessage a push
 * @property {(list: readonly Published[]) => Buffer} publicationList in a SubscribeResult
 * @property {(info: ClientInfo) => Buffer} infoField
 */

export {};
