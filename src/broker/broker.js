// broker.js: what a broker promises. The implementations are memory, local and redis; one suite tests all three.
//
// A broker carries publications between workers and machines. It knows rooms by their names and publications as
// opaque bytes: it never looks into them, so that no worker parses a payload it only passes on.
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
//   - `onState(state)` is called on every change: `up`, `degraded` (publishing or receiving does not work for now;
//     it heals by itself), `down` (closed).
//   - `reportConnections(n)`: how many connections this worker has; `countConnections()`: how many all have.
//   - `start()` resolves when the broker is up, or degraded and trying; it rejects only for faults that waiting does
//     not mend. `close()` waits for publications under way, may be called twice.

/** @typedef {'up'|'degraded'|'down'} BrokerState */

/**
 * @typedef {object} BrokerEvents
 * @property {(room: string, publication: Buffer) => void} onPublication
 * @property {(state: BrokerState) => void} onState
 */

/**
 * @typedef {object} Broker
 * @property {BrokerState} state
 * @property {(events: BrokerEvents) => Promise<void>} start
 * @property {() => Promise<void>} close
 * @property {(room: string) => Promise<void>} subscribe
 * @property {(room: string) => void} unsubscribe
 * @property {(room: string, publication: Buffer) => Promise<void>} publish
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
