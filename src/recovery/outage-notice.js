// outage-notice.js: the notice to clients that the broker is unavailable, and that it is back.
//
// After GRACE_MS of outage, the worker sends `degraded` to all connections that have said hello or
// are in a room, and sets it in every `welcome`. It withdraws the notice when every room with
// history has been compared with the broker: all that can be recovered is recovered then. The
// notices to 50,000 connections are paced. Clients of a door without such a notice get none.
//
// Presence events have no position, so a lost subscription loses them without a trace. So members
// of rooms with presence get the withdrawal after each loss, announced or not: it asks them to read
// the list again. Comparing lists would need those of all rooms in memory.

const GRACE_MS = 1000;

/** @import { BrokerState } from '../backend/broker.js' */
/** @import { Connection } from '../hub/connection.js' */

/**
 * A notice to many connections.
 * @typedef {object} Round
 * @property {readonly Connection[]} connections
 * @property {(connection: Connection) => boolean} isFor @property {boolean} isOn
 * @property {number} number of the round
 * @property {number} next the connection that comes next
 */

export class OutageNotice {
  /**
   * @param {object} parts
   * @param {{readonly connections: readonly Connection[], readonly rooms: ReadonlyMap<string, import('../hub/room.js').Room>}}
   *   parts.hub
   * @param {import('./scheduler.js').SyncScheduler} parts.scheduler
   * @param {import('../worker/turn.js').Turn} parts.turn @param {number} [parts.graceMs]
   */
  constructor({ hub, scheduler, turn, graceMs = GRACE_MS }) {
    this.hub = hub;
    this.scheduler = scheduler;
    this.graceMs = graceMs;
    /** Is the notice in force? */
    this.isOn = false;
    this.isUp = true;
    /** May presence events have been lost since the last withdrawal? */
    this.hasGap = false;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Rooms with presence whose members are told in a moment. @type {Set<string>} */
    this.lostRooms = new Set();
    /** @type {NodeJS.Timeout|undefined} */
    this.lostTimer = undefined;
    /** Notices to all. A later one ends what is left of those before. */
    this.rounds = 0;
    /** Notices under way. @type {Round[]} */
    this.sending = [];
    // Publications that have just been recovered wait in the outbox: their slot comes first.
    this.slot = turn.slot('notices', this.#send.bind(this));
    scheduler.catchUp.listen(() => this.#withdraw());
  }

  /** The broker is unavailable when this worker starts, and no client is connected yet. */
  startAway() {
    this.isUp = false;
    this.isOn = true;
  }

  /** The broker's state has changed. @param {BrokerState} state */
  onState(state) {
    this.isUp = state === 'up';
    clearTimeout(this.timer);
    if (!this.isUp) this.hasGap = true;
    if (state === 'degraded') this.timer = setTimeout(() => this.#turn(true), this.graceMs).unref();
    this.scheduler.onState(state);
  }

  /** The worker may have missed publications there. @param {readonly string[]} rooms */
  onLost(rooms) {
    this.scheduler.onLost(rooms);
    for (const room of rooms) if (this.hub.rooms.get(room)?.users) this.lostRooms.add(room);
    // Rooms of one node follow each other, and so do publications of a version that is too new.
    if (this.lostRooms.size > 0)
      this.lostTimer ??= setTimeout(() => this.#tellLost(), this.graceMs).unref();
  }

  #tellLost() {
    this.lostTimer = undefined;
    const rooms = this.lostRooms;
    this.lostRooms = new Set();
    if (this.isOn) return; // its withdrawal tells all
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
    if (this.isOn) this.#turn(false);
    else if (hasGap) this.#tell(this.hub.connections, seesUsers, false);
  }

  /** @param {boolean} isOn */
  #turn(isOn) {
    if (isOn === this.isUp) return;
    // Away again before the withdrawal: who has joined meanwhile without a hello has not been told.
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

  /** @returns {boolean} true if more is left for a later turn */
  #send() {
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

/** Is it in a room with presence? @param {Connection} connection */
function seesUsers(connection) {
  return connection.listRooms().some(({ users }) => users !== null);
}
