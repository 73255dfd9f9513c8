// native-door.js: the door of the native protocol.

import { CLOSES } from '../../protocol/codes.js';
import { NATIVE_TEXTS } from '../../protocol/door-texts.js';
import { FORMAT } from '../../protocol/format.js';

/** @import { Door } from '../../hub/door.js' */

/** Clients may name it, but do not have to. */
const SUBPROTOCOL = 'fanfare';

/**
 * @typedef {Pick<import('../../auth/authentication.js').Authentication,
 *   'isRequired'|'identify'|'enter'|'leave'>} Entrance
 */

/**
 * @param {object} parts @param {Pick<import('../../hub/hub.js').Hub, 'add'|'remove'>} parts.hub
 * @param {Entrance|null} [parts.entrance] null: neither tokens nor hooks
 * @param {Door['receive']} parts.receive the dispatcher's own, because a closure would add a frame
 *   to the stack of each message
 * @param {Door['closed']} parts.forget drops the waiting commands
 * @returns {Door}
 */
export function createNativeDoor({ hub, entrance = null, receive, forget }) {
  return {
    ...NATIVE_TEXTS,
    format: FORMAT.FRAMES,
    subprotocol: SUBPROTOCOL,
    mayDeflate: true,
    open(connection, _request, credentials) {
      if (entrance === null) hub.add(connection);
      else entrance.enter(connection, credentials);
    },
    closed(connection) {
      if (entrance === null) hub.remove(connection);
      else entrance.leave(connection);
      forget(connection);
    },
    receive,
    receiveBinary(connection) {
      connection.close(CLOSES.UNSUPPORTED_DATA);
    },
  };
}
