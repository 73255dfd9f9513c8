// broker.js: what a broker promises. The implementations are memory, local and redis; one suite
// tests all three.
//
// A broker carries publications between workers and machines. It knows rooms by their names and
// publications as opaque bytes: it never looks into them, so that no worker parses a payload it
// only passes on.
//
//   - `subscribe(room)` resolves when every publication accepted from then on reaches this worker. It may be called
//     again for a room that is subscribed, and resolves at once. It rejects with a BrokerError UNAVAILABLE; the room
//     stays wanted all the same, and is subscribed when the broker returns, until `unsubscribe(room)`.
//   - `unsubscribe(room)` takes effect some time later (a room that empties lingers, so that churn is no storm).
//     Publications that still arrive for the room are the owner's to ignore.
//   - `publish(room, publication)` resolves when the broker has accepted the publication, which says nothing about
//     who received it. It rejects with a BrokerError: UNAVAILABLE (certainly not accepted: it will never be delivered,
//     retry at will) or OUTCOME_UNKNOWN (it may have been accepted and may yet be delivered). The buffer belongs to
//     the broker from the call on. Publications that one owner publishes one after another to a room are delivered in that order.
//   - `onPublication(room, publication)` is called once for each, in the order of acceptance, the publisher's own
//     worker included. The buffer is the owner's to keep, never to modify; it may be a slice of a larger one, so
//     whoever keeps it for long copies it. A publication accepted while a subscriber is away is lost to it.
//   - Rooms with history (`historyOf` names them: it is handed to every implementation) have a stream each: each accepted
//     publication gets an offset, exactly one above the one before it, in a stream named by an epoch. Accepting,
//     numbering, storing and announcing are one atomic step. A stored publication is accepted, even if the broker could
//     not announce it: reads bring it. `publish` resolves with the position it got; of several
//     publishes of one room in a tick each gets its own. `onPublication` gets offset and epoch; in other rooms 0 and ''.
//     Within one epoch no two publications ever have the same offset: where the store may have lost some that were
//     accepted (Redis restarted, a replica was promoted), it begins a new epoch at offset 1 and never tells the old one
//     again. Epochs are 16 hexadecimal digits of chance, offsets safe integers.
//   - `publish(room, publication, {idempotencyKey})` with a key that the room has had within IDEMPOTENCY_MS resolves with
//     the first one's position and publishes nothing. Only in rooms with history.
//   - `history(room, {after, limit})` reads a stretch in one step: where the stream stands (`epoch`, `offset`), and of the
//     publications with offsets above `after` the newest that are still there, consecutive and up to `offset`, at most
//     `limit` of them and some `maxBytes` (MAX_STRETCH_BYTES if left out). `first` is the offset of the first of them.
//     With `isForward` it brings the oldest above `after` that are still there instead, consecutive from `first` on; there may be
//     more of them than the rule's size.
//     A read costs the store no more than it brings.
//     `limit` 0 asks for the position alone. A room nobody has published to has a position too: offset 0 of its epoch. With
//     `isGlance` nobody follows the room, and the epoch of a room nobody has published to may not be remembered.
//     `endedEpoch` is one that the caller has proved to have forked: the store ends it if it still has it.
//     The caller compares: all that it missed is there only if the epoch is the one it knew, `offset` is not below
//     `after`, and the first publication is `after + 1`. Rejects with UNAVAILABLE, also where the store may not
//     tell the truth. Reads of a tick leave together. It may be called for a room that is not subscribed.
//   - A room's history is kept for its rule's time after the latest publication, and for its rule's size.
//   - After `onState('up')` all wanted rooms are subscribed; what was accepted in between has not been announced: the
//     owner compares positions and reads what it missed.
//   - `onLost(rooms)`, which need not be there: these rooms are subscribed, and publications accepted a moment ago may not
//     have been announced to this worker, though the state did not change. In a Redis Cluster a room's slot moves like
//     that. The owner compares their positions.
//   - `onState(state)` is called on every change: `up`, `degraded` (publishing or receiving does not work for now;
//     it heals by itself), `down` (closed).
//   - `reportConnections(n)`: how many connections this worker has; `countConnections()`: how many all have.
//   - `start()` resolves when the broker is up, or degraded and trying; it rejects only for faults that waiting does
//     not mend. `close()` waits for publications under way, may be called twice.

/** How long an idempotency key is remembered. */
export const IDEMPOTENCY_MS = 300_000;
/** What one read of a history may bring: publications up to it, and at least one. */
export const MAX_PAGE_BYTES = 8 * 1024 * 1024;

/** @typedef {'up'|'degraded'|'down'} BrokerState */

/**
 * A place in a room's stream.
 * @typedef {object} Position
 * @property {string} epoch 16 hexadecimal digits
 * @property {number} offset of a publication; 0: before the first
 */

/**
 * What `history` read.
 * @typedef {object} HistoryPage
 * @property {string} epoch
 * @property {number} offset of the room's newest publication; 0: it has none yet
 * @property {number} first offset of the first of `publications`; where there are none, it says
 *   nothing
 * @property {Buffer[]} publications consecutive; the last is the one at `offset`, unless the read
 *   was forward
 */

/**
 * What to read.
 * @typedef {object} ReadRequest
 * @property {number} after an offset
 * @property {number} limit 0: the position alone
 * @property {number} [maxBytes]
 * @property {boolean} [isForward]
 * @property {boolean} [isGlance]
 * @property {string} [endedEpoch]
 */

/**
 * How much of a room is kept; null: no history.
 * @typedef {(room: string) => import('../config/room-patterns.js').HistoryRule|null} HistoryOf
 */

/**
 * @typedef {object} BrokerEvents
 * @property {(room: string, publication: Buffer, offset: number, epoch: string) => void}
 *   onPublication
 * @property {(state: BrokerState) => void} onState
 * @property {(rooms: string[]) => void} [onLost]
 */

/**
 * @typedef {object} Broker
 * @property {BrokerState} state
 * @property {(events: BrokerEvents) => Promise<void>} start
 * @property {() => Promise<void>} close
 * @property {(room: string) => Promise<void>} subscribe
 * @property {(room: string) => void} unsubscribe
 * @property
 *   {(room: string, publication: Buffer, options?: {idempotencyKey?: string}) => Promise<Position|void>}
 *   publish a position in rooms with history
 * @property {(room: string, from: ReadRequest) => Promise<HistoryPage>} history
 * @property {(connections: number) => void} reportConnections
 * @property {() => Promise<number>} countConnections
 */

/** A failure of a broker, told apart by what the publisher may do next. */
export class BrokerError extends Error {
  /**
   * @param {'UNAVAILABLE'|'OUTCOME_UNKNOWN'} code a row of codes.js
   * @param {string} message
   * @param {{cause?: unknown}} [options]
   */
  constructor(code, message, options) {
    super(message, options);
    this.name = 'BrokerError';
    this.code = code;
  }
}
