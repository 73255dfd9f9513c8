// audiences.js: users who hold audiences, and messages that say for whom they are, for unit tests.

import { Identity } from '../../src/auth/claims.js';
import { readHeldAudiences, readRights } from '../../src/auth/rights.js';
import { Session } from '../../src/auth/session.js';
import {
  encodeKeyed,
  encodePublication,
  KIND,
  withAudience,
} from '../../src/protocol/publication.js';

const ALL = ['*'];
const RIGHTS = { join: ALL, publish: ALL, presence: ALL, history: ALL, audience: ALL };

/**
 * A session that may do everything.
 * @param {readonly string[]} audiences in every room @param {object} [rooms] `{pattern: {audiences}}`
 */
export function sessionHolding(audiences, rooms = {}) {
  const identity = new Identity({
    ...{ user: 'ann', tokenId: null, issuedAtMs: 0, expiresAtMs: Number.POSITIVE_INFINITY },
    ...{ mayBroadcast: false, autojoin: [], info: null },
    rights: /** @type {import('../../src/auth/rights.js').Rights} */ (readRights(RIGHTS)),
    audiences: readHeldAudiences(audiences, rooms) ?? undefined,
  });
  return new Session(identity, null, Number.MAX_SAFE_INTEGER);
}

/** A payload by which a test finds the message in any bytes. @param {number} id */
export const markOf = (id) => `m${id}.`;

/** @param {Buffer} bytes of any format @returns {number[]} the messages in it */
export function marksIn(bytes) {
  return [...bytes.toString('latin1').matchAll(/m(\d+)\./g)].map(([, id]) => Number(id));
}

/**
 * @param {number} id @param {string} audience names with commas between them; '': everybody
 * @param {{except?: string, key?: string|null, isRemoval?: boolean, size?: number}} [parts]
 */
export function messageFor(id, audience, parts = {}) {
  const { except = '', key = null, isRemoval = false, size = 0 } = parts;
  const json = Buffer.from(isRemoval ? 'null' : JSON.stringify(markOf(id) + 'x'.repeat(size)));
  const plain =
    key === null
      ? encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', json, 0, json.length, except)
      : encodeKeyed(1_760_000_000_000, 'me', key, json, 0, json.length);
  return withAudience(plain, audience);
}
