// presence.js: what presence promises. The implementations are memory, local and redis; one suite
// tests all three.
//
// Presence knows who is in a room, over all workers of all servers. Each worker (an owner) says
// which users its own connections are; a user is there while at least one worker has it. Users and
// members are opaque here: a user is a text that names somebody, a member the bytes that are shown
// of it.
//
//   - `join(room, user, member)`: this worker has the user in that room from now on. May be called again, with another
//     member: the latest that was said, by whichever worker, is shown. `leave(room, user)`: it has it no more.
//     Both return at once and never fail: what a worker has said is the truth about its own users, is kept while the
//     store is away, and is put right when it returns. A change undone within a moment may be left out.
//   - When the first worker has a user, and when the last has it no more, an event is published to the room: a publication
//     `announcements.join` or `announcements.leave`, then the member's bytes. It travels as the room's other publications do, in
//     their order, to every worker that has subscribed the room, and has no offset.
//   - Above `maxMembers` (handed to every implementation) a room is large: it is only counted, and its events are left out.
//   - `read(room)` resolves with how many users there are and, unless the room is large, their members. It sees all that this
//     worker has said before. It rejects with a BrokerError UNAVAILABLE or OUTCOME_UNKNOWN while that can't be had.
//   - The users of a worker that dies leave: at once where its machine notices, else when its heartbeat has been missed
//     for so long that no pause explains it. A worker that was only thought dead puts its users back.
//   - What is said again after an outage is told as an event only where it is news: who was told before and has not
//     been declared gone since joins silently.
//   - `start()`; `close()` takes this worker's users away and may be called twice.

/**
 * Heads of the publications that tell a room of a join and of a leave: the member's bytes follow.
 * @typedef {{join: Buffer, leave: Buffer}} Announcements
 */

/**
 * What became of events: the closed label set of `fanfare_presence_events_total`.
 * @typedef {{join: number, leave: number, suppressed: number}} EventCounts
 */

/**
 * Who is in a room.
 * @typedef {object} PresenceSnapshot
 * @property {number} count of users
 * @property {Buffer[]|null} members one for each, in no particular order; null where the room is
 *   large
 */

/**
 * @typedef {object} Presence
 * @property {() => Promise<void>} start
 * @property {() => Promise<void>} close
 * @property {(room: string, user: string, member: Buffer) => void} join
 * @property {(room: string, user: string) => void} leave
 * @property {(room: string) => Promise<PresenceSnapshot>} read
 */
