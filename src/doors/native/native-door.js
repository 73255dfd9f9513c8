// native-door.js: the door of the native protocol.

import { CLOSES } from '../../protocol/codes.js';
import { NATIVE_TEXTS } from '../../protocol/door-texts.js';
import { FORMAT } from '../../protocol/format.js';

/** @import { Door } from '../../hub/door.js' */

/** Clients may name it, but do not have to. */
const SUBPROTOCOL = 'fanfare';

/**
 * @param {object} parts
 * @param {Pick<import('../../operations/identities.js').Identities, 'enterSession'|'leave'>} parts.identities
 * @param {Door['receive']} parts.receive the dispatcher's own, because a closure would add a frame
 *   to the stack of each message
 * @returns {Door}
 */
export function createNativeDoor({ identities, receive }) {
  return {
    ...NATIVE_TEXTS,
    format: FORMAT.FRAMES,
    subprotocol: SUBPROTOCOL,
    mayDeflate: true,
    open: (connection, _request, credentials) => identities.enterSession(connection, credentials),
    closed: (connection) => identities.leave(connection),
    receive,
    receiveBinary(connection) {
      connection.close(CLOSES.UNSUPPORTED_DATA);
    },
  };
}
