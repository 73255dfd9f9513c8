// control.js: the routes that act on connections: disconnect, join, leave, revoke.

import { isUser } from '../../protocol/decode.js';
import { sees } from './connections.js';
import { ApiFault, badValue, incomplete } from './fault.js';
import {
  audiences,
  closeCode,
  connectionId,
  invalid,
  readFields,
  requireOne,
  rooms,
  seconds,
  tokenId,
  user,
} from './fields.js';

/** @import { Call, Services } from './call.js' */

const DISCONNECT = { user, connectionId, code: closeCode };
const JOIN = { rooms, audiences };
const LEAVE = { rooms };
const REVOKE = { user, tokenId, issuedBefore: seconds };

export class ControlRoutes {
  /** @param {Services} services */
  constructor({ fleet, revoke }) {
    this.fleet = fleet;
    this.revokeTokens = revoke;
  }

  /** `POST disconnect` @param {Call} call */
  disconnect = async (call) => {
    const fields = readFields(call.body, DISCONNECT);
    call.actsOn(fields);
    requireOne(fields, 'user', 'connectionId');
    const { user: name, connectionId: id, code } = fields;
    if (name === undefined && !(await this.#isSeen(call, id))) return { connections: 0 };
    const target =
      name === undefined ? { connectionId: id } : { user: call.key.names.userOf(name) };
    return { connections: await this.fleet.disconnect(target, code) };
  };

  /** An id does not say whose connection it is. @param {Call} call @param {string} id */
  async #isSeen({ key }, id) {
    if (key.app === null) return true;
    const { listed, isPartial } = await this.fleet.connections({ connectionId: id });
    if (listed.length === 0 && isPartial) throw incomplete();
    return listed.some((connection) => sees(key, connection));
  }

  /** `POST users/:user/join` @param {Call} call */
  join = async (call) => {
    const { whom, rooms: named, audiences: held } = userAndRooms(call, JOIN);
    return { connections: await this.fleet.join(whom, named, held) };
  };

  /** `POST users/:user/leave` @param {Call} call */
  leave = async (call) => {
    const { whom, rooms: named } = userAndRooms(call, LEAVE);
    return { connections: await this.fleet.leave(whom, named) };
  };

  /** `POST revoke` @param {Call} call */
  revoke = async (call) => {
    const fields = readFields(call.body, REVOKE);
    call.actsOn(fields);
    requireOne(fields, 'user', 'tokenId');
    if (fields.tokenId !== undefined && fields.issuedBefore !== undefined)
      throw invalid('issuedBefore', 'it goes with user, not with tokenId');
    if (this.revokeTokens === null) throw new ApiFault('NO_TOKENS');
    const { issuedBefore } = fields;
    const { userOf } = call.key.names;
    const target =
      fields.user === undefined
        ? { tokenId: userOf(fields.tokenId) }
        : {
            user: userOf(fields.user),
            issuedBeforeMs: issuedBefore === undefined ? undefined : issuedBefore * 1000,
          };
    const revocation = await this.revokeTokens(target);
    if (revocation === null)
      throw new ApiFault('UNAVAILABLE', {
        message: 'Not accepted: too many revocations are in force.',
      });
    const { keptUntilMs } = revocation;
    return { keptUntil: keptUntilMs === null ? null : Math.ceil(keptUntilMs / 1000) };
  };
}

/** @param {Call} call @param {import('./fields.js').Shape} shape */
function userAndRooms(call, shape) {
  const { user: name } = call.params;
  if (!isUser(name)) throw badValue('user', user.rule);
  const { rooms: names, audiences: held } = readFields(call.body, shape);
  if (names === undefined) throw invalid('rooms', rooms.rule);
  call.actsOn({ rooms: names, audiences: held });
  call.key.requireRooms(names);
  call.charge(names.length - 1);
  const { userOf, roomOf } = call.key.names;
  return { whom: userOf(name), rooms: names.map(roomOf), audiences: held };
}
