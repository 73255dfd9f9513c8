// control.js: the methods that act on the connections of a user, on all workers and servers, and of
// all doors. A request may name one of them as well. An anonymous connection has no user, so its
// request names the connection.

import { CLOSES } from '../../../protocol/codes.js';
import { json } from '../../../transport/http-api/fields.js';
import { idOf } from '../codec/client-id.js';
import { DISCONNECTS } from '../codec/codes.js';
import { DoorError } from '../codec/errors.js';
import { keyOf } from '../codec/members.js';
import { GRACE_S } from '../codec/tokens.js';
import { flag, roomOfChannel, text, texts, unsupported, whole } from './fields.js';

/** RFC 6455 5.5: a control frame has at most 125 bytes, two of which are the code. */
const MAX_REASON_BYTES = 123;
const MAX_USER_LENGTH = 128;

/** What the open version of Centrifugo passes over would act on too many connections. */
const WHOM = { user: text, client: text, ...unsupported('session', 'label_filter', 'all_users') };
const SUBSCRIBE = {
  ...WHOM,
  channel: text,
  ...unsupported('info', 'b64info', 'data', 'b64data', 'recover_since', 'expire_at', 'override'),
};

/** @import { Method, MethodServices } from './method.js' */
/** @typedef {import('../../../transport/http-api/fields.js').Fields} Fields */
/** @typedef {import('../../../transport/http-api/call.js').Whom} Whom */

export class ControlMethods {
  /** @param {MethodServices} services */
  constructor({ fleet, config }) {
    this.fleet = fleet;
    const { isLenient } = /** @type {NonNullable<typeof config.centrifugo>} */ (config.centrifugo);
    this.isLenient = isLenient;
    this.hasTokens = config.tokens !== null;
  }

  /** @type {Method} */
  subscribe = {
    route: 'centrifugo_subscribe',
    shape: SUBSCRIBE,
    run: async (fields) => {
      const room = roomOfChannel(fields.channel);
      const whom = whomOf(fields);
      if (whom !== null) await this.fleet.join(whom, [room]);
      return {};
    },
  };

  /** @type {Method} */
  unsubscribe = {
    route: 'centrifugo_unsubscribe',
    shape: { ...WHOM, channel: text },
    run: async (fields) => {
      const room = roomOfChannel(fields.channel);
      const whom = whomOf(fields);
      if (whom !== null) await this.fleet.leave(whom, [room]);
      return {};
    },
  };

  /** @type {Method} */
  disconnect = {
    route: 'centrifugo_disconnect',
    shape: { ...WHOM, whitelist: texts, disconnect: json },
    run: async (fields, _call, body) => {
      const { code, reason } = readDisconnect(fields.disconnect, body);
      const whom = whomOf(fields);
      if (whom !== null) await this.fleet.disconnect(whom, code, reason);
      return {};
    },
  };

  /** @type {Method} */
  refresh = {
    route: 'centrifugo_refresh',
    shape: { ...WHOM, expired: flag, expire_at: whole, ...unsupported('info') },
    run: async (fields) => {
      const { expired = false, expire_at: expireAtS = 0 } = fields;
      const whom = whomOf(fields);
      if (expireAtS < 0) throw new DoorError(107, 'expire_at is before 1970');
      const isOver = expired || (expireAtS > 0 && expireAtS * 1000 <= Date.now());
      if (isOver) {
        if (whom !== null) await this.fleet.disconnect(whom, CLOSES.TOKEN_EXPIRED.code);
        return {};
      }
      if (!this.hasTokens) throw new DoorError(108, 'no tokens are configured');
      if (whom?.user === '')
        throw new DoorError(108, 'a connection without a user does not expire');
      if (expireAtS === 0 && !this.isLenient)
        throw new DoorError(107, 'expire_at is required, because tokens are strict');
      if (whom !== null) {
        // The client has the usual time to bring a token of its own.
        const closesAtS = expireAtS === 0 ? 0 : expireAtS + GRACE_S;
        await this.fleet.renew(whom, closesAtS * 1000);
      }
      return {};
    },
  };
}

/** @param {Fields} fields @returns {Whom|null} null: no such connection @throws {DoorError} */
function whomOf(fields) {
  const { user = '', client = '', whitelist = [] } = fields;
  if (user.length > MAX_USER_LENGTH)
    throw new DoorError(107, `user has more than ${MAX_USER_LENGTH} characters`);
  if (user === '' && client === '') throw new DoorError(107, 'user is required');
  // Presence lists a user's connections as one client: all of them are meant.
  const all = user === '' ? '' : keyOf(user);
  if (all !== '' && whitelist.includes(all)) return null;
  // A client that is no longer there needs no action.
  const except = whitelist.flatMap((/** @type {string} */ one) => idOf(one) ?? []);
  if (client === all || client === '') return { user, except };
  const only = idOf(client);
  if (only === null || except.includes(only)) return null;
  return { user, only };
}

/**
 * @param {{start: number, end: number}|undefined} slice @param {Buffer} body
 * @returns {{code?: number, reason?: string}} empty: the default, 3503 for Centrifugo's clients
 */
function readDisconnect(slice, body) {
  const given = slice && JSON.parse(body.toString('utf8', slice.start, slice.end));
  if (given === undefined || given === null) return {};
  const { code = 0, reason = '' } = given;
  if (!Number.isInteger(code) || code < 3000 || code > 4999)
    throw new DoorError(107, 'disconnect.code is not 3000 to 4999');
  if (typeof reason !== 'string' || Buffer.byteLength(reason) > MAX_REASON_BYTES)
    throw new DoorError(107, `disconnect.reason has more than ${MAX_REASON_BYTES} bytes`);
  // A client that gets no reason comes back, whatever the code is.
  return { code, reason: reason === '' ? DISCONNECTS.FORCE.reason : reason };
}
