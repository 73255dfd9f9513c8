// presence.js: the contract of presence; test/contract/ tests every implementation. A user is
// present while a worker has it. Users are opaque names, members opaque bytes
// (docs/architecture/backends.md).

/** The most bytes of a list of members: well below the relay's largest message. */
export const MAX_LIST_BYTES = 16 * 1024 * 1024;

/**
 * @typedef {object} Presence
 * @property {() => Promise<void>} start Starts the heartbeat, if there is one.
 * @property {() => Promise<void>} close Removes this worker's users. May be called twice.
 * @property {(room: string, user: string, member: Buffer) => void} join This worker now has the
 *   user in the room. A later call may bring another member; the latest one from any worker is
 *   shown. If no worker had the user, the room gets a join event. Never fails: while the store is
 *   unavailable, the change waits.
 * @property {(room: string, user: string) => void} leave This worker no longer has the user. Never
 *   fails. If no other worker has the user, the room gets a leave event. A quick join and leave may
 *   cancel out.
 * @property {(room: string) => Promise<void>} recorded Resolves when the store has all earlier
 *   joins of this worker in the room. Until then another worker's leave may announce that a user is
 *   gone, although the user has joined here. Rejects with a BrokerError if the store is
 *   unavailable.
 * @property {(room: string, isCount?: boolean) => Promise<PresenceSnapshot>} read Resolves with the
 *   users of the room, including all earlier calls of this worker. With `isCount` only their number
 *   is needed, and `members` may be null. Calls that share a read share its promise. Rejects with
 *   a BrokerError if the store is unavailable.
 */

/**
 * @typedef {object} PresenceSnapshot
 * @property {number} count of users
 * @property {Buffer[]|null} members one for each user, in no particular order; null if the room is
 *   large (more than `presenceMaxMembers` users), or the list would exceed MAX_LIST_BYTES
 */

/**
 * Heads of the publications that announce a join and a leave; the member's bytes follow. `count` is
 * for webhook-reporter.js. Events are in order with the room's publications and have no offset.
 * Large rooms get none. After an outage a user is announced if the store did not know it. So a
 * list, together with the events since it was read, is always right.
 * @typedef {{join: Buffer, leave: Buffer, count: Buffer}} Announcements
 */

/**
 * Events by outcome: the closed label set of `fanfare_presence_events_total`.
 * @typedef {{join: number, leave: number, suppressed: number}} EventCounts
 */
