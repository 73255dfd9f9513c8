// types.js: the types for authors of hooks. `fanfare/hooks` of the package is this file.
//
//   export default /** @satisfies {import('fanfare/hooks').Hooks} */ ({
//     async onPublish(connection, room, payload) { … },
//   });
//
// docs/hooks.md explains when each hook is called, and the meaning of each answer.

/** How a client has come. @typedef {'websocket'|'sse'|'pusher'|'centrifugo'} Transport */

/**
 * A connection as hooks see it. The same object is passed to all hooks of one connection.
 * @typedef {object} HookConnection
 * @property {string} id as in `welcome` and in the HTTP API; '' until the connection is open
 * @property {string|null} user of its token or of `onConnect`; null if it is anonymous
 * @property {unknown} info of its token or of `onConnect`; undefined if there is none
 * @property {string} address of the client, as the limits count it: of IPv6 the /64 network
 * @property {Transport} transport
 * @property {any} data yours: `onConnect` may return it, and each hook may change it
 */

/**
 * The request that opens a connection.
 * @typedef {object} ConnectRequest
 * @property {Readonly<Record<string, string|string[]|undefined>>} headers with names in lower case
 * @property {string} address of the client, as the limits count it
 * @property {string|null} token as the client sent it; null if there is none. If the server is
 *   configured with tokens, this one has been verified. Null for clients of Pusher.
 * @property {URLSearchParams} query of the URL
 * @property {string|null} user of the verified token; null if there is none yet
 * @property {Transport} transport
 * @property {any} [data] of the command connect of Centrifugo's clients
 */

/**
 * @typedef {object} HookContext
 * @property {AbortSignal} signal aborted at the deadline of the call: pass it to `fetch` and the like
 * @property {string} [key] of onPublish: the key of a message in a room with state
 */

/** Refuses. The client gets the text, of at most 200 characters. @typedef {{deny: string}} Deny */
/** `undefined` and `true` allow; `false` denies without a text. @typedef {void|boolean} Plain */

/**
 * Lets the connection in.
 * @typedef {object} Welcome
 * @property {string} [user] 1 to 128 characters; only for a connection without a verified token
 * @property {unknown} [info] JSON of at most 1 KiB that presence shows; only with `user`
 * @property {unknown} [data] becomes `connection.data`
 */

/** Publishes this payload instead. @typedef {{payload: unknown}} Changed */
/** The result of a call: JSON. @typedef {{data: unknown}} Result */

/** @typedef {Plain|Deny|Welcome} ConnectAnswer */
/** @typedef {Plain|Deny} JoinAnswer */
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
 * @callback OnPublish before a message of a client is published
 * @param {HookConnection} connection @param {string} room `*` for a broadcast
 * @param {any} payload parsed @param {HookContext} context @returns {Awaitable<PublishAnswer>}
 */

/**
 * @callback OnRpc a client of Centrifugo calls a method of the backend
 * @param {HookConnection} connection @param {string} method @param {any} data parsed; undefined:
 *   none
 * @param {HookContext} context @returns {Awaitable<RpcAnswer>}
 */

/**
 * @callback OnSend a client of Centrifugo sends a message to the backend, without a reply
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
