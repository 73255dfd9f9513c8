// closes.js: how this door ends connections.
//
// Pusher clients obey the range of the code, whatever the reason says: after 4000 to 4099 they
// never return, after 4100 to 4199 they return in a second, after 4200 to 4299 at once. Fanfare's
// codes have other meanings, so each is translated. A client that may return gets 4100 or 4200 even
// after its own fault, because a stop would last as long as its page, and limits by address hold it
// back. A `pusher:error` precedes the close if its text helps.

import { CLOSES } from '../../../protocol/codes.js';
import { errorText } from './frames.js';

/** @typedef {{code: number, reason: string, notice?: string}} DoorClose */

/** Its code is one of Pusher's: closeOf() does not translate it. @implements {DoorClose} */
export class PusherClose {
  /**
   * @param {number} code of the close frame, and of the error before it
   * @param {string} message of the error
   * @param {string} [reason] of the close frame: at most 123 bytes (RFC 6455 5.5)
   */
  constructor(code, message, reason = message) {
    this.code = code;
    this.reason = reason;
    this.notice = errorText(code, message);
  }
}

/** The door's own closes. */
export const PUSHER_CLOSES = Object.freeze({
  TLS_ONLY: new PusherClose(4000, 'This app accepts TLS connections only.'),
  APP_DISABLED: new PusherClose(4003, 'The app is disabled.'),
  OVER_QUOTA: new PusherClose(4004, 'The app has as many connections as allowed.'),
  INVALID_VERSION: new PusherClose(4006, 'The protocol version must be a number.'),
  UNSUPPORTED_VERSION: new PusherClose(4007, 'Only protocol versions 4 to 7 are supported.'),
  ORIGIN: new PusherClose(4009, 'This origin is not allowed.'),
  UNAUTHORIZED: new PusherClose(4009, 'Connection not authorized.'),
  // Pusher has 4009 here. But the client's backend may have failed, or its phone been asleep.
  AUTHORIZE_TIMEOUT: new PusherClose(4100, 'Connection not authorized within the time limit.'),
  OVER_CAPACITY: new PusherClose(4100, 'The server is over capacity.'),
  RESTART: new PusherClose(4200, 'The server restarts.'),
  // After an unclean close browsers would ping more often.
  NO_PONG: new PusherClose(4201, 'No answer to the pings of the server.'),
});

const CONFIGURED = 'when the configuration or the page changes';

/**
 * Why they are sent, and when the cause is over.
 * @type {Readonly<Record<keyof typeof PUSHER_CLOSES | 'NO_APP', {cause: string, over: string}>>}
 */
const CAUSES = Object.freeze({
  TLS_ONLY: { cause: 'A plain connection to an app with `tlsOnly`.', over: 'at once, with TLS' },
  NO_APP: { cause: 'The key is not in the file of apps.', over: CONFIGURED },
  APP_DISABLED: { cause: 'The app is disabled.', over: 'when the operator enables it' },
  OVER_QUOTA: {
    cause:
      'The app has been over `maxConnections` for longer than dead connections count, without a break (`quotaCode`; before that 4100).',
    over: 'when connections of the app end',
  },
  INVALID_VERSION: { cause: 'The protocol version is not a number.', over: CONFIGURED },
  UNSUPPORTED_VERSION: { cause: 'The protocol version is not 4 to 7.', over: CONFIGURED },
  ORIGIN: { cause: 'The origin is not allowed.', over: CONFIGURED },
  UNAUTHORIZED: { cause: 'The signature of a sign-in is wrong.', over: CONFIGURED },
  AUTHORIZE_TIMEOUT: {
    cause: 'No sign-in and no private channel within the time that the app allows.',
    over: 'when the client is awake, and its backend signs again',
  },
  OVER_CAPACITY: {
    cause:
      'A limit, the load of the worker, a failed hook or an outage of Redis refuses the connection or one of its requests. The close comes at a random time within 8 s; after an outage, when Redis is back.',
    over: 'when the limit has room, or what failed is available again',
  },
  RESTART: { cause: 'The worker drains.', over: 'at once: another worker accepts' },
  NO_PONG: { cause: 'No answer to the pings of the server.', over: 'when the network carries it' },
});

/**
 * All ends of connections, for docs/pusher.md.
 * @returns {{code: number, cause: string, over: string, clients: string}[]}
 */
export function endings() {
  const own = Object.entries(CAUSES).map(([name, { cause, over }]) => {
    const { code } =
      name === 'NO_APP'
        ? noApp('')
        : PUSHER_CLOSES[/** @type {keyof typeof PUSHER_CLOSES} */ (name)];
    return { code, cause, over, clients: actionAfter(code) };
  });
  const translated = Object.values(CLOSES)
    .filter(hasOther)
    .map((close) => {
      const { code } = closeOf(close);
      return { code, cause: close.cause, over: close.over, clients: actionAfter(code) };
    });
  return [...own, ...translated];
}

/** Not of native clients alone, and not explained above. @param {object} close of codes.js */
function hasOther(close) {
  const { TOKEN_EXPIRED, INVALID_TOKEN, AUTH_TIMEOUT, CLIENT_TIMEOUT, APP_LIMIT, DRAIN } = CLOSES;
  const without = [TOKEN_EXPIRED, INVALID_TOKEN, AUTH_TIMEOUT, CLIENT_TIMEOUT, APP_LIMIT, DRAIN];
  return !without.includes(/** @type {import('../../../protocol/codes.js').Close} */ (close));
}

/** What pusher-js does. @param {number} code */
function actionAfter(code) {
  if (code === PUSHER_CLOSES.TLS_ONLY.code) return 'return with TLS';
  if (code >= 4200 && code < 4300) return 'return at once';
  return code < 4000 || (code >= 4100 && code < 4200) ? 'return after a second' : 'never return';
}

/** @param {Pick<import('../../../config/pusher.js').App, 'quotaCode'>} app at its limit of connections */
export function overQuota({ quotaCode }) {
  const { OVER_QUOTA } = PUSHER_CLOSES;
  return quotaCode === OVER_QUOTA.code ? OVER_QUOTA : new PusherClose(quotaCode, OVER_QUOTA.reason);
}

/** @param {import('../../../protocol/refusal.js').Refusal} refused that its client may repeat */
export function closeOfRefusal({ code, message }) {
  if (code === 'service_unavailable') return PUSHER_CLOSES.RESTART;
  if (code === 'origin') return PUSHER_CLOSES.ORIGIN;
  return new PusherClose(PUSHER_CLOSES.OVER_CAPACITY.code, message);
}

/** @param {string} key as the client wrote it */
export function noApp(key) {
  return new PusherClose(
    4001,
    `App key ${key.slice(0, 64)} not in this cluster. Did you forget to specify the cluster?`,
    'Unknown app key.',
  );
}

/**
 * @param {number} code @param {{code: number, reason: string}} close
 * @param {boolean} [isExplained] does a `pusher:error` precede?
 * @returns {[number, Readonly<DoorClose>]}
 */
function row(code, { code: own, reason }, isExplained = false) {
  const notice = isExplained ? { notice: errorText(code, reason) } : {};
  return [own, Object.freeze({ code, reason, ...notice })];
}

const AT_ONCE = 4200;
const LATER = 4100;
const NEVER = 4009;

/** The rows of codes.js, by code. @type {ReadonlyMap<number, Readonly<DoorClose>>} */
const TRANSLATED = new Map([
  row(AT_ONCE, CLOSES.DRAIN),
  row(AT_ONCE, CLOSES.REBALANCE),
  row(AT_ONCE, CLOSES.AGE),
  row(LATER, CLOSES.SLOW_CONSUMER),
  row(LATER, CLOSES.OVERLOAD),
  row(LATER, CLOSES.TOKEN_NOT_YET_VALID),
  row(LATER, CLOSES.UNSUPPORTED_DATA),
  row(LATER, CLOSES.POLICY),
  row(LATER, CLOSES.BAD_REQUESTS),
  row(LATER, CLOSES.RATE_LIMITED),
  row(LATER, CLOSES.ROOM_LIMIT),
  row(LATER, CLOSES.ADDRESS_LIMIT, true),
  row(LATER, CLOSES.USER_LIMIT, true),
  row(LATER, CLOSES.APP_LIMIT, true),
  row(LATER, CLOSES.CLIENT_TIMEOUT),
  row(1011, CLOSES.INTERNAL),
  row(NEVER, CLOSES.INVALID_TOKEN, true),
  row(NEVER, CLOSES.TOKEN_EXPIRED, true),
  row(NEVER, CLOSES.AUTH_TIMEOUT, true),
  row(NEVER, CLOSES.KICKED, true),
  row(NEVER, CLOSES.DENIED), // the hook's text precedes
]);

/** @param {{code: number, reason: string}} close a row of codes.js or of this file */
export function closeOf(close) {
  if (close instanceof PusherClose) return close;
  const { code, reason } = close;
  // A code that the application chose to disconnect the client for good.
  return TRANSLATED.get(code) ?? { code: NEVER, reason, notice: errorText(NEVER, reason) };
}
