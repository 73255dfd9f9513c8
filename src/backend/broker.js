// broker.js: the contract of a broker. test/contract/ tests every implementation against it.
//
// Rooms are names to a broker: 1 to 512 printable ASCII characters without braces. Publications are
// opaque bytes, except in rooms with state: there each has a key (protocol/publication.js).
// docs/architecture/backends.md explains the choices.

/** How long a broker remembers an idempotency key. */
export const IDEMPOTENCY_MS = 300_000;
/** The default of `ReadRequest.maxBytes`, and its maximum. */
export const MAX_PAGE_BYTES = 8 * 1024 * 1024;

/**
 * `up`: publishing and receiving work. `degraded`: at least one of them does not work, and the
 * broker keeps trying. `down`: closed.
 * @typedef {'up'|'degraded'|'down'} BrokerState
 */

/** @typedef {import('../protocol/position.js').Position} Position */

/**
 * The rule of a room with history or state, or null if the room has neither.
 * @typedef {(room: string) => import('../config/room-patterns.js').HistoryRule|null} HistoryOf
 */

/**
 * @typedef {object} Broker
 * @property {BrokerState} state the current state; `onState` reports changes
 * @property {(events: BrokerEvents) => Promise<void>} start Resolves when the broker is `up`, or
 *   `degraded` and retrying. Rejects only if retrying cannot help.
 * @property {() => Promise<void>} close Waits for the publications under way, then closes. May be
 *   called twice.
 * @property {(room: string) => Promise<void>} subscribe Resolves when every publication that the
 *   broker accepts from then on reaches this worker: at once if the room is subscribed already.
 *   Rejects with UNAVAILABLE; unless `unsubscribe` follows, the broker still subscribes the room
 *   when it is available again.
 * @property {(room: string) => void} unsubscribe Ends the subscription after a delay, so that rooms
 *   cause no load if they empty and fill again. Until then publications may still arrive.
 * @property
 *   {(room: string, publication: Buffer, options?: PublishOptions) => Promise<Position|void>}
 *   publish Resolves when the broker has accepted the publication, whether or not it reaches a
 *   receiver. Resolves with the publication's position if the room has history. Rejects with
 *   UNAVAILABLE (never accepted) or OUTCOME_UNKNOWN (perhaps accepted, perhaps delivered later).
 *   The buffer belongs to the broker from the call on. Publications of one worker to a room keep
 *   their order.
 *   In a room with state the store keeps the newest publication of each key, and a tombstone for a
 *   removed key. Each accepted publication gets the next offset. Rejects with STATE_FULL if a new
 *   key or a larger publication would exceed the bounds of the room's rule (removals never do), and
 *   with INVALID_MESSAGE_FORMAT if the publication has no key. The whole state expires when the
 *   rule's time has passed since its last publication; then the epoch ends.
 * @property {() => void} [beat] Called at each beat of the worker: what is due may leave with it.
 * @property {() => void} [flush] Sends the publications of this turn now, not at its end.
 * @property {(room: string, request: ReadRequest) => Promise<HistoryPage>} history Reads a room's
 *   position and a page of its history in one atomic step. The room need not be subscribed; if
 *   nothing was published to it, its offset is 0. Rejects with UNAVAILABLE, also if the store may
 *   have lost data without noticing. A read costs the store no more than it returns.
 * @property {(connections: number) => void} reportConnections sets this worker's number of
 *   connections
 * @property {() => Promise<number>} countConnections Resolves with the connections of all workers.
 * @property {() => Promise<number>} countWorkers Resolves with the number of started workers in the
 *   fleet, including this one. A worker killed without notice still counts for some seconds.
 *   Rejects with UNAVAILABLE.
 */

/**
 * @typedef {object} PublishOptions
 * @property {string} [idempotencyKey] If the key was used in this room within IDEMPOTENCY_MS,
 *   nothing is published, and the promise resolves like that of the first publication. The embedded
 *   broker remembers a bounded number of keys.
 * @property {string} [fingerprint] of the payload: at most 64 ASCII characters. If the key's first
 *   publication had another fingerprint, the promise rejects with IDEMPOTENCY_CONFLICT. If either
 *   has none, they match.
 * @property {import('../protocol/position.js').ExpectedPosition} [expect] In a room with history or
 *   state: publishes only if the room is at this position, compared in the same atomic step.
 *   Otherwise the promise rejects with CONFLICT and the room's `position`. A repeated idempotency
 *   key is answered before the comparison, and a refused publication does not use its key up.
 *   Without history nothing is compared, so the caller refuses it.
 * @property {boolean} [isTransient] The publication is not kept although the room has history: it
 *   gets no position, and the promise resolves without one. Transient publications of one worker to
 *   a room keep their order, and may overtake kept ones. Their bytes are marked as well
 *   (`asTransient` in publication.js); otherwise subscribers would miss a position.
 */

/**
 * @typedef {object} BrokerEvents
 * @property {(room: string, publication: Buffer, offset: number, epoch: string) => void}
 *   onPublication Called once for each publication, in the order of acceptance, on every subscribed
 *   worker including the publisher's. A disconnected subscriber misses it. Never modify the buffer.
 *   It may be a slice of a larger one, so copy it to keep it for long. Without history `offset` is
 *   0 and `epoch` is ''.
 * @property {(state: BrokerState) => void} onState Called on every change of `state`. After `up`
 *   all wanted rooms are subscribed, but publications accepted during the outage were not
 *   delivered: the owner compares positions and reads what it missed.
 * @property {(rooms: string[]) => void} [onLost] This worker may have missed recent publications in
 *   these rooms, although they are subscribed and the state has not changed: for example when a
 *   slot of a Redis Cluster moves. The owner compares positions.
 */

/**
 * @typedef {object} ReadRequest
 * @property {number} after an offset: the read returns publications above it
 * @property {number} limit the most publications to return; 0 asks for the position alone
 * @property {number} [maxBytes] roughly the most bytes to return, but at least one publication;
 *   MAX_PAGE_BYTES if omitted
 * @property {Position} [before] unless `isForward`: the read returns publications below this
 *   position, and none if the epoch is not the current one
 * @property {boolean} [isForward] returns the oldest publications above `after` instead of the
 *   newest, and perhaps more than the rule's size
 * @property {boolean} [isGlance] the caller does not follow the room, so the store need not
 *   remember an epoch for a room without publications
 * @property {Position} [since] in a room with state: replaces `after`. If its epoch is current and
 *   its offset neither above the room's nor below `floor`, the read returns the changes since then;
 *   otherwise the whole state
 * @property {readonly string[]} [keys] in a room with state: returns only these, in any order
 * @property {string} [endedEpoch] an epoch that must not continue, because it has forked or its
 *   history is to be deleted. If it is current, the store deletes its publications and begins a new
 *   epoch in the same step
 */

/**
 * A page of a room's history. If `epoch` is the one the caller knew, `offset` is not below `after`,
 * and `first` is `after + 1`, the caller has missed nothing else.
 * @typedef {object} HistoryPage
 * @property {string} epoch of the room's current stream
 * @property {number} offset of the room's newest publication; 0 if it has none yet
 * @property {number} first offset of the first of `publications`; meaningless if there are none
 * @property {Buffer[]} publications consecutive; the last is the one at `offset`, or the one below
 *   `before`, unless the read was forward
 * @property {boolean} hasOlder unless the read was forward: does the room keep older ones above
 *   `after`? False if there are no publications
 * @property {StatePart} [state] of a room with state. `publications` then has the newest one of
 *   each key, including tombstones, the oldest change first; they are not consecutive
 */

/**
 * @typedef {object} StatePart
 * @property {readonly number[]} offsets of the publications
 * @property {number} floor the highest offset of a forgotten tombstone; 0 if none was forgotten
 * @property {boolean} isWhole `since` proves nothing, so the pages return the whole state
 * @property {boolean} hasMore later publications follow on the next page
 */
