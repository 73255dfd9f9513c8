// limits.js: the times and bounds of the client. Without imports here, the build inlines the
// numbers.

/** From the start of an attempt to `welcome`; with the token callback. */
export const CONNECT_TIMEOUT_MS = 15_000;
/** From an application ping to any message. */
export const PONG_TIMEOUT_MS = 10_000;
/** The same after the page woke up: its user is waiting. */
export const WAKE_PONG_TIMEOUT_MS = 4000;
/** A connection that lasted this long ends a series of failed attempts. */
export const STABLE_MS = 30_000;
/** After `close` the server's close frame has this long. */
export const CLOSE_TIMEOUT_MS = 1000;
/** After close code 1013, overload. */
export const OVERLOAD_MS = 10_000;
/** After close code 1011, internal error. */
export const INTERNAL_MS = 1000;
/** setTimeout fires at once if a delay is longer than this. */
export const MAX_TIMEOUT_MS = 2 ** 31 - 1;
/** A token is renewed after this part of its lifetime, and a random part of the next one. */
export const RENEW_FROM = 0.75;
export const RENEW_WITHIN = 0.15;
/** After a token callback that failed. */
export const TOKEN_RETRY_MS = 10_000;
/** After a command that the server refused for the moment, without saying for how long. */
export const RETRY_MS = 5000;

/** Messages that wait for the state, or for the reader of an iterator. */
export const MAX_WAITING = 1000;
/** Own messages, published without an echo, that a replay may repeat; older ones are forgotten. */
export const MAX_OWN = 1000;
