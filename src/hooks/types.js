// types.js: types for authors of hooks, exported as `fanfare/hooks`.
//
//   export default /** @satisfies {import('fanfare/hooks').Hooks} */ ({
//     async onPublish(connection, room, payload) { … },
//   });
//
// docs/hooks.md explains when each hook is called and what each answer means.

/** How the client connected. @typedef {'websocket'|'sse'|'pusher'|'centrifugo'} Transport */

/**
 * A connection as hooks see it. All hooks of a connection get the same object.
 * @typedef {object} HookConnection
 * @property {string} id as in `welcome` and in the HTTP API; '' until the connection is open
 * @property {string|null} user from its token or `onConnect`; null if it is anonymous
 * @property {unknown} info from its token or `onConnect`; undefined if there is none
 * @property {string} address of the client, as the limits count it: for IPv6, the /64 network
 * @property {Transport} transport
 * @property {any} data yours: `onConnect` may return it, and any hook may change it
 */

/**
 * The request that opens a connection.
 * @typedef {object} ConnectRequest
 * @property {Readonly<Record<string, string|string[]|undefined>>} headers with names in lower case
 * @property {string} address of the client, as the limits count it
 * @property {string|null} token as the client sent it, verified if the server is configured with
 *   tokens; null if there is none, and for Pusher clients
 * @property {URLSearchParams} query of the URL
 * @property {string|null} user from the verified token; null if there is none yet
 * @property {Transport} transport
 * @property {any} [data] from the `connect` command of Centrifugo clients
 */

/**
 * @typedef {object} HookContext
 * @property {AbortSignal} signal aborts when the call times out: pass it to `fetch` and the like
 * @property {string} [key] onPublish in a room with state: the key of the message
 * @property {readonly string[]} [audience] onPublish: whom the client's message is for; absent: everybody
 */

/** Refuses, with a text for the client (at most 200 characters). @typedef {{deny: string}} Deny */
/** `undefined` and `true` allow; `false` refuses without a text. @typedef {void|boolean} Plain */

/**
 * Lets the connection in.
 * @typedef {object} Welcome
 * @property {string} [user] 1 to 128 characters; only for a connection without a verified token
 * @property {unknown} [info] shown in presence: JSON of at most 1 KiB; only with `user`
 * @property {unknown} [data] becomes `connection.data`
 * @property {string[]} [audiences] that the user holds in addition to those of its token, up to 16
 */

/** Gives the user up to 16 audiences in this room. @typedef {{audiences: string[]}} Given */
/**
 * Publishes this payload instead, or for this audience of 1 to 4 names.
 * @typedef {{payload: unknown, audience?: string[]}|{audience: string[]}} Changed
 */
/** The result of onRpc: JSON. @typedef {{data: unknown}} Result */

/** @typedef {Plain|Deny|Welcome} ConnectAnswer */
/** @typedef {Plain|Deny|Given} JoinAnswer */
/** @typedef {Plain|Deny|Changed} PublishAnswer */
/** @typedef {Plain|Deny|Result} RpcAnswer */

/** @template T @typedef {T|Promise<T>} Awaitable */

/**
 * @callback OnConnect before a connection opens, and before a later token names its user
 * @param {ConnectRequest} request @param {HookContext} context @returns {Awaitable<ConnectAnswer>}
 */

/**
 * @callback OnJoin before a connection joins a room, or reads its history without being in it
 * @param {HookConnection} connection @param {string} room @param {HookContext} context
 * @returns {Awaitable<JoinAnswer>}
 */

/**
 * @callback OnPublish before a client's message is published
 * @param {HookConnection} connection @param {string} room `*` for a broadcast
 * @param {any} payload parsed @param {HookContext} context @returns {Awaitable<PublishAnswer>}
 */

/**
 * @callback OnRpc a Centrifugo client calls a method of your backend
 * @param {HookConnection} connection @param {string} method
 * @param {any} data parsed; undefined: none
 * @param {HookContext} context @returns {Awaitable<RpcAnswer>}
 */

/**
 * @callback OnSend a Centrifugo client sends your backend a message, without a reply
 * @param {HookConnection} connection @param {any} data parsed @param {HookContext} context
 * @returns {Awaitable<Plain|Deny>}
 */

/**
 * @callback OnDisconnect after a connection has closed; the answer is ignored
 * @param {HookConnection} connection @param {HookContext} context @returns {Awaitable<unknown>}
 */

/**
 * The exports of a file with hooks.
 * @typedef {object} Hooks
 * @property {OnConnect} [onConnect] @property {OnJoin} [onJoin] @property {OnPublish} [onPublish]
 * @property {OnRpc} [onRpc] @property {OnSend} [onSend] @property {OnDisconnect} [onDisconnect]
 */

export {};
