// partition-keys.js: the names of the keys for webhooks, after the configured prefix.
//   webhooks:{lane-<n>}:stream     events of the partition, in order
//   webhooks:{lane-<n>}:pending    what the courier has yet to send: field -> JSON
//   webhooks:{lane-<n>}:lease      the fence of the owner
//   webhooks:{lane-<n>}:state      the latest fence, entries lost and announced, bytes, the mark of the Redis
//   webhooks:{lane-0}:hold         exists while a worker drains: couriers hold back leaves
//   webhooks:{lane-0}:doubt        exists while an endpoint reads the state again (shared-periods.js)
//   webhooks:{<room>}:sequence     epoch and number of the room's latest event
//   webhooks:{<room>}:sessions     sessions of workers with a connection in the room
//   webhooks:{<room>}:counts       session -> connections, and the last sum that the room was told
//   webhooks:{<room>}:outbox       in a cluster: events that wait to be moved into their partition
//   webhooks:{lane-<n>}:moved:<room>   in a cluster: the latest one that was moved
//   webhooks:presence:{*}:…        sessions and their rooms: presence-session.js
//   webhooks:{*}:rooms             rooms and sessions with connections, by name: room-index.js
//   webhooks:{*}:connections       how many
//
// For a user, the tag replaces the room (webhook-reporter.js).

export class PartitionKeys {
  /** @param {string} prefix */
  constructor(prefix) {
    this.head = `${prefix}webhooks:{`;
  }

  /** @param {number} partition @param {'stream'|'pending'|'lease'|'state'|'hold'|'doubt'} name */
  ofPartition(partition, name) {
    return `${this.head}lane-${partition}}:${name}`;
  }

  /**
   * @param {string} tag a room, or `u:` and a user as JSON
   * @param {'sequence'|'sessions'|'counts'|'outbox'} name
   */
  partitionKey(tag, name) {
    return `${this.head}${tag}}:${name}`;
  }

  /** @param {'rooms'|'connections'} name of all rooms */
  ofFleet(name) {
    return `${this.head}*}:${name}`;
  }

  /** @param {number} partition @param {string} tag */
  movedOf(partition, tag) {
    return `${this.head}lane-${partition}}:moved:${tag}`;
  }
}
