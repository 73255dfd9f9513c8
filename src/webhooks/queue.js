// queue.js: the contract between the backend, which records events, and the courier, which delivers
// them.
//   an edge or a message --record--> lane --read, fold, commit--> pending effects --send--> endpoint
//
// A lane is an ordered list of recorded events from a part of the rooms (`laneOf`). One courier of
// the fleet owns it at a time, and folds the events into pending effects. The backend stores these
// beside the lane, so the next owner continues where the last one stopped. Each change of a lane's
// state is one `commit`, guarded by the fence.

/** Must be the same on all servers. */
export const LANES = 16;
/** After this time without a renewal, another courier may take a lane. */
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
 * @property {string} [from] in `message.published`
 * @property {number} [offset] in `message.published`, if the room has history
 * @property {number} seq ascends by 1 in each room, or for each user in `user.*`
 * @property {string} epoch changes when `seq` starts over
 * @property {number} at Unix time in ms
 */

/**
 * @typedef {object} Entry a recorded event in its lane
 * @property {string} id place in the lane, for `read` and `commit`
 * @property {string} body JSON text of a WebhookEvent
 */

/**
 * Changes of a lane, made together or not at all.
 * @typedef {object} Change
 * @property {Map<string, string>} set pending effects, by field, as JSON text
 * @property {string[]} remove fields of pending effects
 * @property {string|null} upTo entries up to and including this id are folded: remove them
 * @property {number|null} [announced] lost events up to this number are announced
 */

/**
 * Events that a lane dropped at its bound, or that its backend lost.
 * @typedef {object} Lost
 * @property {number} count not announced yet
 * @property {number} upTo for `announced` of the commit that announces them
 * @property {boolean} [isUnknown] the backend is new, or has lost everything: nobody can tell. That
 *   is announced, too
 */

/**
 * The queue as a courier sees it. Each method may reject if the backend is unreachable.
 * @typedef {object} EventQueue
 * @property {(lane: number) => Promise<number|null>} acquire a fence, larger than all earlier ones
 *   of the lane: this process owns it for LEASE_MS; null: another one does
 * @property {(lane: number, fence: number) => Promise<boolean>} renew false: the lane has another
 *   owner
 * @property {(lane: number, fence: number) => Promise<void>} release
 * @property {(lane: number) => Promise<Map<string, string>>} load pending effects of earlier owners
 * @property {(lane: number, afterId: string|null, limit: number) => Promise<Entry[]>} read in order;
 *   null: from the lane's first entry
 * @property {(lane: number, fence: number, change: Change) => Promise<boolean>} commit false: the
 *   fence is out of date, and nothing has changed
 * @property {(lane: number) => Promise<Lost>} lost @property {() => Promise<QueueSize>} size
 * @property {(ms: number) => Promise<void>} hold a worker drains: for this time all couriers hold back
 *   leaves, because its clients return
 * @property {(ms: number) => Promise<void>} doubt an endpoint reads the state again: for this time, no
 *   edge cancels its opposite (holds.js)
 * @property {() => Promise<{leavesMs: number, doubtMs: number}>} held remaining ms of the longest hold
 *   and of the doubt; 0: none
 */

/**
 * @typedef {object} QueueSize of all lanes
 * @property {number} entries not folded yet
 * @property {number} pending effects
 * @property {number} bytes of both; an estimate
 */

/** FNV-1a over the UTF-16 code units. @param {string} key of the event (keyOf) */
export function laneOf(key) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % LANES;
}

/** Events with the same key share sequence, lane and order. @param {Pick<WebhookEvent, 'room'|'user'>} event */
export function keyOf({ room, user }) {
  return room ?? `u:${user}`;
}
