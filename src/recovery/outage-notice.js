// outage-notice.js: tells clients that the broker is unavailable, and when it is back.
//
// After an outage of GRACE_MS, the worker sends `degraded` to all connections that have said hello
// or are in a room, and sets it in every `welcome`. It withdraws the notice when every room with
// history has been compared with the broker, so that all that can be recovered is recovered. The
// notices are paced, because there may be 50,000 connections. Doors without such a notice send
// none.
//
// Presence events have no position, so a lost subscription loses them unnoticed. So members of
// rooms with presence get the withdrawal after each loss, announced or not: it asks them to read
// the list again. To compare lists, a worker would have to keep those of all rooms in memory. Rooms
// whose list it does keep (hub/roster.js) read it again.

const GRACE_MS = 1000;

/** @import { BrokerState } from '../backend/broker.js' */
/** @import { Connection } from '../hub/connection.js' */

/**
 * A notice to many connections.
 * @typedef {object} Round
 * @property {readonly Connection[]} connections
 * @property {(connection: Connection) => boolean} isFor @property {boolean} isOn
 * @property {number} number
 * @property {number} next index of the next connection
 */

export class OutageNotice {
  /**
   * @param {object} parts
   * @param {{readonly connections: readonly Connection[], readonly rooms: ReadonlyMap<string, import('../hub/room.js').HubRoom>}}
   *   parts.hub
   * @param {import('./scheduler.js').SyncScheduler} parts.scheduler
   * @param {import('../worker/turn.js').Turn} parts.turn @param {number} [parts.graceMs]
   */
  constructor({ hub, scheduler, turn, graceMs = GRACE_MS }) {
    this.hub = hub;
    this.scheduler = scheduler;
    this.graceMs = graceMs;
    this.isOn = false;
    this.isUp = true;
    /** Presence events may have been lost since the last withdrawal. */
    this.hasGap = false;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Rooms with presence whose members are told soon. @type {Set<string>} */
    this.lostRooms = new Set();
    /** @type {NodeJS.Timeout|undefined} */
    this.lostTimer = undefined;
    /** The number of the latest notice to all. It ends earlier ones under way. */
    this.rounds = 0;
    /** @type {Round[]} */
    this.sending = [];
    // The outbox has an earlier slot, so recovered publications are sent first.
    this.slot = turn.slot('notices', this.#sendNotices.bind(this));
    scheduler.catchUp.listenForEnd(() => this.#withdraw());
  }

  /** The broker is unavailable when this worker starts, and no client is connected yet. */
  startAway() {
    this.isUp = false;
    this.isOn = true;
  }

  /** @param {BrokerState} state */
  onState(state) {
    this.isUp = state === 'up';
    clearTimeout(this.timer);
    if (!this.isUp) this.hasGap = true;
    else for (const { users } of this.hub.rooms.values()) users?.doubt();
    if (state === 'degraded')
      this.timer = setTimeout(() => this.#turnNotice(true), this.graceMs).unref();
    this.scheduler.onState(state);
  }

  /** @param {readonly string[]} rooms that may have missed publications */
  onLost(rooms) {
    this.scheduler.onLost(rooms);
    for (const room of rooms) {
      const users = this.hub.rooms.get(room)?.users;
      if (!users) continue;
      users.doubt();
      this.lostRooms.add(room);
    }
    // Losses come in bursts: the rooms of a node, or publications of an unknown version.
    if (this.lostRooms.size > 0)
      this.lostTimer ??= setTimeout(() => this.#tellLost(), this.graceMs).unref();
  }

  #tellLost() {
    this.lostTimer = undefined;
    const rooms = this.lostRooms;
    this.lostRooms = new Set();
    if (this.isOn) return; // the withdrawal tells all
    for (const room of rooms)
      this.#tell(this.hub.rooms.get(room)?.members ?? [], () => true, false);
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.lostTimer);
    this.rounds++;
  }

  /** The broker is up, and all rooms have been compared. */
  #withdraw() {
    if (!this.isUp) return;
    const { hasGap } = this;
    this.hasGap = false;
    if (this.isOn) this.#turnNotice(false);
    else if (hasGap) this.#tell(this.hub.connections, seesUsers, false);
  }

  /** @param {boolean} isOn */
  #turnNotice(isOn) {
    if (isOn === this.isUp) return;
    // Another outage before the withdrawal: tell those who joined meanwhile without a hello.
    if (isOn && this.isOn) return this.#tell(this.hub.connections, hasNoWelcome, true);
    this.isOn = isOn;
    this.rounds++;
    this.#tell(this.hub.connections, isListening, isOn);
  }

  /**
   * @param {readonly Connection[]} connections @param {(connection: Connection) => boolean} isFor
   * @param {boolean} isOn
   */
  #tell(connections, isFor, isOn) {
    this.sending.push({ connections: [...connections], isFor, isOn, number: this.rounds, next: 0 });
    this.slot.wake();
  }

  /** @returns true if more is left for a later turn */
  #sendNotices() {
    for (;;) {
      const [round] = this.sending;
      if (round === undefined) return false;
      const { connections, isFor, isOn, number } = round;
      while (number === this.rounds && round.next < connections.length) {
        const connection = connections[round.next++];
        if (!isFor(connection)) continue;
        const text = connection.transport.door.encodeDegraded(isOn);
        if (text === null) continue;
        connection.send(text);
        if (this.slot.isSpent()) return true;
      }
      this.sending.shift();
    }
  }
}

/** @param {Connection} connection */
function isListening({ isGreeted, roomCount }) {
  return isGreeted || roomCount > 0;
}

/** @param {Connection} connection */
function hasNoWelcome({ isGreeted, roomCount }) {
  return !isGreeted && roomCount > 0;
}

/** @param {Connection} connection */
function seesUsers(connection) {
  return connection.listRooms().some(({ users }) => users !== null);
}
