// presence.js: the command presence: a room's users, page by page.

import { isUser } from '../../protocol/decode.js';
import { encodeMembers, presencePrefix, presenceSuffix } from '../../protocol/encode.js';
import { isLimit } from './history.js';

/** The size of a `presence` reply. If a room has more users, the client asks for the next page. */
const MAX_REPLY_BYTES = 256 * 1024;
const BAD_PAGE = 'limit is a whole number from 1, and after is a user.';
const NOTHING = Buffer.alloc(0);

/** @import { Handler } from './handler.js' */
/** @typedef {{attended(): import('../../backend/presence.js').PresenceSnapshot}} Listed */

/** @type {Listed} */
const NOBODY = { attended: () => ({ count: 0, members: [] }) };

export class PresenceCommand {
  /**
   * @param {object} parts @param {import('../../hub/hub.js').Hub} parts.hub
   * @param {number} parts.maxUnsentBytes of a connection
   * @param {import('../../hub/room-users.js').Tracker} parts.tracker
   * @param {import('../../operations/replies.js').Replies} parts.replies
   * @param {import('../../operations/reads.js').Reads} parts.reads
   */
  constructor({ hub, maxUnsentBytes, tracker, replies, reads }) {
    this.hub = hub;
    // A quarter of the unsent bytes: a client may ask for a page before it has read the last one.
    this.maxBytes = Math.min(MAX_REPLY_BYTES, maxUnsentBytes / 4);
    this.tracker = tracker;
    this.replies = replies;
    this.reads = reads;
  }

  /** @type {Handler} */
  presence(connection, { id, room: given, limit, after }) {
    const { session } = connection;
    const name = session.validRoomOf(given);
    if (name === null) return this.replies.invalidRoom(connection, id, given);
    if (!isLimit(limit) || !(after === undefined || isUser(after)))
      return this.replies.invalid(connection, id, BAD_PAGE);
    this.reads.read(connection, id, name, {
      ...{ right: 'presence', mayRead: session.hasRight('presence', name), isOfUsers: true },
      read: async () => (this.tracker.covers(name) ? this.hub.listUsers(name) : NOBODY),
      /** @param {Listed} listed */
      send: (listed) => {
        const { count, members } = listed.attended();
        const { maxBytes } = this;
        const request = { after, limit: limit ?? Number.POSITIVE_INFINITY, maxBytes };
        const page = members === null ? null : encodeMembers({ members, ...request });
        const { text = NOTHING } = page ?? {};
        const [prefix, suffix] = [
          presencePrefix(name, page !== null),
          presenceSuffix(count, page, id),
        ];
        connection.sendAround(prefix, text, 0, text.length, suffix);
        return text.length;
      },
    });
  }
}
