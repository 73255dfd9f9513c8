// queue.js: the contract between the backend, which records events, and the courier, which delivers
// them.
//   a transition or a message --record--> partition --read, apply, commit--> pending events
//   --send--> endpoint
//
// A transition is the beginning or the end of a state, for example that a room is occupied. A
// partition is an ordered list of recorded events from a part of the rooms (`partitionOf`). One
// courier of the fleet owns it at a time, and applies its events to the pending ones. The backend
// stores these beside the partition, so the next owner continues where the last one stopped. Each
// change of a partition's state is one `commit`, guarded by the fence.

/** Must be the same on all servers. */
export const PARTITIONS = 16;
/** After this time without a renewal, another courier may take a partition. */
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
 * @typedef {object} Entry a recorded event in its partition
 * @property {string} id place in the partition, for `read` and `commit`
 * @property {string} body JSON text of a WebhookEvent
 */

/**
 * Changes of a partition, made together or not at all.
 * @typedef {object} Change
 * @property {Map<string, string>} set pending events, by key, as JSON text
 * @property {string[]} remove keys of pending events
 * @property {string|null} upTo entries up to and including this id are applied: remove them
 * @property {number|null} [announced] lost events up to this number are announced
 */

/**
 * Events that a partition dropped at its bound, or that its backend lost.
 * @typedef {object} Lost
 * @property {number} count not announced yet
 * @property {number} upTo for `announced` of the commit that announces them
 * @property {boolean} [isUnknown] the backend is new, or has lost everything: nobody can tell. That
 *   is announced, too
 */

/**
 * The queue as a courier sees it. Each method may reject if the backend is unreachable.
 * @typedef {object} EventQueue
 * @property {(partition: number) => Promise<number|null>} acquire a fence, larger than all earlier
 *   ones of the partition: this process owns it for LEASE_MS; null: another one does
 * @property {(partition: number, fence: number) => Promise<boolean>} renew false: the partition has
 *   another owner
 * @property {(partition: number, fence: number) => Promise<void>} release
 * @property {(partition: number) => Promise<Map<string, string>>} load pending events of earlier
 *   owners, by key
 * @property {(partition: number, afterId: string|null, limit: number) => Promise<Entry[]>} read in
 *   order; null: from the partition's first entry
 * @property {(partition: number, fence: number, change: Change) => Promise<boolean>} commit false:
 *   the fence is out of date, and nothing has changed
 * @property {(partition: number) => Promise<Lost>} lost @property {() => Promise<QueueSize>} size
 * @property {(ms: number) => Promise<void>} pauseLeaves a worker drains: for this time no courier
 *   sends leaves, because its clients return
 * @property {(ms: number) => Promise<void>} makeUncertain an endpoint reads the state again: for
 *   this time, no transition cancels its opposite (shared-periods.js)
 * @property {() => Promise<{leavesMs: number, uncertainMs: number}>} periods remaining ms of both; 0:
 *   there is none
 */

/**
 * @typedef {object} QueueSize of all partitions
 * @property {number} entries not applied yet
 * @property {number} pending events to send
 * @property {number} bytes of both; an estimate
 */

/** FNV-1a over the UTF-16 code units. @param {string} key of the event (keyOf) */
export function partitionOf(key) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % PARTITIONS;
}

/**
 * Events with the same key share sequence, partition and order.
 * @param {Pick<WebhookEvent, 'room'|'user'>} event
 */
export function keyOf({ room, user }) {
  return room ?? `u:${user}`;
}
