// queue.js: the contract between the backend, which records events, and the courier, which delivers
// them.
//   an edge or a message --record--> lane --read, fold, commit--> pending effects --send--> endpoint
//
// A lane is an ordered list of recorded events, those of some rooms (`laneOf`). One courier of the
// fleet owns it at a time, and folds the events into pending effects, which the backend stores
// beside it: the next owner continues where the last one stopped. Each change of a lane's state is
// one `commit`, guarded by the fence.

/** Lanes of a fleet. All servers must have the same number. */
export const LANES = 16;
/** A lane is free for another owner this long after its last renewal. */
export const LEASE_MS = 10_000;

/**
 * @typedef {object} WebhookEvent a recorded event; the body of an entry is its JSON text
 * @property {import('../config/webhooks.js').EventType} type
 * @property {string} [room] absent for `user.*`
 * @property {string} [user] of `member.*` and `user.*`
 * @property {unknown} [info] of `member.joined`: what presence shows of the user
 * @property {number} [count] of `member.*`: users in the room after the event
 * @property {unknown} [payload] of `message.published`, up to 16 kB
 * @property {string} [text] instead of the payload: its JSON, as the courier keeps it. It may have
 *   numbers that JavaScript would round
 * @property {number} [bytes] of `message.published` and `client.event`: the size of a payload that
 *   is larger
 * @property {string} [event] of `client.event`, as `socket_id`, `user_id` and `data`, up to 16 kB
 * @property {string} [data] @property {string} [socket_id] @property {string} [user_id]
 * @property {string} [from] of `message.published`
 * @property {number} [offset] of `message.published` in a room with history
 * @property {number} seq ascends by 1 in each room, or for each user if the type is `user.*`
 * @property {string} epoch names the life of the sequence: `seq` starts over with another one
 * @property {number} at Unix time in ms
 */

/**
 * @typedef {object} Entry a recorded event in its lane
 * @property {string} id its place in the lane, for `read` and `commit`
 * @property {string} body JSON text of a WebhookEvent
 */

/**
 * A step of a lane's owner. All of it happens, or none.
 * @typedef {object} Change
 * @property {Map<string, string>} set pending effects, by field, as JSON text
 * @property {string[]} remove fields of pending effects
 * @property {string|null} upTo entries up to and including this id are folded, and trimmed
 * @property {number|null} [announced] lost events up to this number are announced
 */

/**
 * Events of a lane that were lost: its bound has dropped them, or its backend has lost them.
 * @typedef {object} Lost
 * @property {number} count of those that are not announced
 * @property {number} upTo for `announced` of the commit that announces them
 */

/**
 * The queue as a courier sees it. Each method may reject if the backend is unreachable.
 * @typedef {object} EventQueue
 * @property {(lane: number) => Promise<number|null>} acquire a fence, larger than all earlier ones
 *   of the lane: this process owns it for LEASE_MS; null if another one does
 * @property {(lane: number, fence: number) => Promise<boolean>} renew false if the lane has another
 *   owner by now
 * @property {(lane: number, fence: number) => Promise<void>} release
 * @property {(lane: number) => Promise<Map<string, string>>} load the pending effects that earlier
 *   owners have stored
 * @property {(lane: number, afterId: string|null, limit: number) => Promise<Entry[]>} read in order;
 *   null: from the lane's first entry
 * @property {(lane: number, fence: number, change: Change) => Promise<boolean>} commit false if the
 *   fence is out of date: nothing has changed then
 * @property {(lane: number) => Promise<Lost>} lost @property {() => Promise<QueueSize>} size
 * @property {(ms: number) => Promise<void>} hold a worker begins to drain: for this time, all couriers
 *   keep back events of those who left, because its clients come back
 * @property {(ms: number) => Promise<void>} doubt an endpoint reads the state again: for this time, no
 *   courier lets an edge cancel its opposite (holds.js)
 * @property {() => Promise<{leavesMs: number, doubtMs: number}>} held ms that are left of the longest
 *   hold, and of the doubt; 0: none
 */

/**
 * @typedef {object} QueueSize over all lanes
 * @property {number} entries recorded, and not folded yet
 * @property {number} pending effects
 * @property {number} bytes of both; an estimate
 */

/**
 * FNV-1a over the UTF-16 code units. A worker computes it, so no script has to.
 * @param {string} key a room's name, or `u:` and a user's @returns {number} the lane of the room
 */
export function laneOf(key) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % LANES;
}

/**
 * @param {Pick<WebhookEvent, 'room'|'user'>} event
 * @returns {string} the key of the event's sequence, lane and order
 */
export function keyOf({ room, user }) {
  return room ?? `u:${user}`;
}
