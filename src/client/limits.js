// limits.js: the times and bounds of the client. Without imports here, the build inlines the
// numbers.

/** The time of an attempt until `welcome`, including the token callback. */
export const CONNECT_TIMEOUT_MS = 15_000;
/** The time from an application ping to any message. */
export const PONG_TIMEOUT_MS = 10_000;
/** The same after the page woke up, because its user is waiting. */
export const WAKE_PONG_TIMEOUT_MS = 4000;
/** A connection that lasted this long ends a series of failed attempts. */
export const STABLE_MS = 30_000;
/** The time from `close` to the server's close frame. */
export const CLOSE_TIMEOUT_MS = 1000;
/** After close code 1013, overload. */
export const OVERLOAD_MS = 10_000;
/** After close code 1011, internal error. */
export const INTERNAL_MS = 1000;
/** setTimeout fires at once if the delay is longer. */
export const MAX_TIMEOUT_MS = 2 ** 31 - 1;
/** A token is renewed after this part of its lifetime, plus a random share of RENEW_WITHIN. */
export const RENEW_FROM = 0.75;
export const RENEW_WITHIN = 0.15;
/** After the token callback failed. */
export const TOKEN_RETRY_MS = 10_000;
/** After a temporary refusal without a delay from the server. */
export const RETRY_MS = 5000;

/** Messages that wait for the application's state, or for the reader of an iterator. */
export const MAX_WAITING = 1000;
/** Remembered positions of own messages without an echo, which a replay may repeat. */
export const MAX_OWN = 1000;
