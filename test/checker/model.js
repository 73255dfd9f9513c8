// model.js: a cluster in memory. Its records are correct by construction, and a test can plant
// faults.
//
// It tests the checker: a random run must have no violation, and a run with one planted fault must
// have the violation of that fault and no other. It keeps a server's promises in the shortest way: a
// store with bounded history and an epoch, workers that get publications late and backfill gaps, and
// clients that rejoin with `since`. The model has its own clock, which moves only when a test
// advances it.

import { AudienceModel } from './audience-model.js';
import { SETTLE_US } from './indexed-run.js';
import { StateModel } from './state-model.js';

/** Publications stored per room. */
const HISTORY_SIZE = 6;
const STEP_US = 1000;

export const HISTORY_ROOMS = Object.freeze(['h.0', 'h.1']);
const PLAIN_ROOMS = Object.freeze(['p.0', 'p.1']);
export const ROOMS = Object.freeze([...HISTORY_ROOMS, ...PLAIN_ROOMS]);
export const PUBLISHERS = Object.freeze(['a', 'b', 'c']);
export const CLIENTS = 4;
export const WORKERS = 2;
/** Users that come and go, by client. They are in a room with presence, and publish nothing. */
export const GUESTS = new Map([
  [10, 'ann'],
  [11, 'ann'],
  [12, 'bob'],
  [13, 'eve'],
  [14, 'crowd'],
  [15, 'crowd'],
  [16, 'crowd'],
]);
export const LOBBY = 'lobby';
/** Webhooks report the messages of this room. */
export const RECORDED = 'h.1';
const ALLOWED = 2;
const CAPPED = Object.freeze({ crowd: { allowed: ALLOWED, wanted: 3 } });
/** These clients are streams of server-sent events. */
export const STREAMS = Object.freeze([1, 2, 3]);

/** @typedef {import('./record.js').Event} Event */
/** @typedef {import('./record.js').Expected} Expected */
/**
 * `by`: the client that published it without an echo.
 * @typedef {{value: string, room: string, epoch?: string, offset?: number, by?: number}} Message
 */
/** @typedef {{epoch: string, top: number, log: Message[]}} Stored */

/**
 * The faults that a test can plant.
 * @typedef {object} Faults
 * @property {boolean} [fenceOff] the epoch continues although a restart lost messages
 * @property {boolean} [forgesRecovery] replies recovered:true although it can't know
 * @property {boolean} [cutsReplays] the last message of a replay is missing
 * @property {boolean} [ignoresEpochs] workers pass on a new epoch without a `resync`
 * @property {boolean} [hidesOutages] clients get no `degraded` when publishes are refused
 * @property {boolean} [echoes] a client gets its message even if it publishes without an echo
 * @property {boolean} [cutsTails] the first message of a join with `last` is missing
 * @property {boolean} [ignoresCaps] users may have any number of connections
 * @property {boolean} [ignoresRevocations] a revoked token is as good as another
 * @property {boolean} [ignoresExpectations] what expects a position is accepted anywhere
 */

class Worker {
  constructor() {
    /** Publications it has not yet heard of. @type {Message[]} */
    this.bus = [];
    /** @type {Map<string, {epoch: string, last: number}>} */
    this.positions = new Map();
    /** Hears nothing, and does not know. */
    this.isMute = false;
  }
}

class Client {
  constructor() {
    this.worker = -1;
    /** @type {Set<string>} rooms that it has a reply for */
    this.joined = new Set();
    /** @type {Map<string, {epoch: string, last: number, floor: number}>} */
    this.positions = new Map();
  }

  get isOpen() {
    return this.worker >= 0;
  }
}

export class Model {
  /** @param {Faults & {isMixed?: boolean}} [faults] isMixed: with guests, `last` and `echo: false` */
  constructor({ isMixed = false, ...faults } = {}) {
    this.isMixed = isMixed;
    /** Guests that are in. @type {Set<number>} */
    this.guests = new Set();
    /** Users. @type {Set<string>} */
    this.revoked = new Set();
    /** @type {Faults} */
    this.faults = faults;
    /** @type {Event[]} */
    this.events = [];
    this.t = 0;
    this.epochs = 0;
    /** Events of webhooks. */
    this.records = 0;
    /** The last publish that was answered was not accepted. */
    this.isRefusing = false;
    /** @type {Map<string, number>} */
    this.sequences = new Map();
    /** Acks on their way. @type {import('./record.js').What[]} */
    this.acks = [];
    /** @type {Map<string, Stored>} */
    this.store = new Map(
      HISTORY_ROOMS.map((room) => [room, { epoch: this.#epoch(), top: 0, log: [] }]),
    );
    this.workers = Array.from({ length: WORKERS }, () => new Worker());
    this.clients = Array.from({ length: CLIENTS }, () => new Client());
    const rooms = { history: [...HISTORY_ROOMS], plain: [...PLAIN_ROOMS] };
    this.emit({
      type: 'run',
      ...rooms,
      recorded: [RECORDED],
      presence: [LOBBY],
      capped: { ...CAPPED },
    });
    this.emit({ type: 'gauges', when: 'before', of: 'server', values: { connections: 0 } });
    for (const worker of this.workers) for (const room of HISTORY_ROOMS) this.#follow(worker, room);
    for (let i = 0; i < CLIENTS; i++) this.open(i, i % WORKERS);
    this.states = new StateModel((what) => this.emit(what));
    this.audiences = new AudienceModel((what) => this.emit(what));
  }

  /** @param {import('./record.js').What} what */
  emit(what) {
    this.t += STEP_US;
    if (what.type === 'ok') this.isRefusing = false;
    else if (what.type === 'info' || (what.type === 'fail' && what.reason !== 'CONFLICT'))
      this.isRefusing = true;
    this.events.push({ t: this.t, ...what });
  }

  /**
   * @param {string} publisher
   * @param {string} room
   * @param {'ok'|'fail'|'lost'|'stored'} [outcome] the last two: nothing is known, and it was lost
   *   or stored
   * @param {{isLate?: boolean, isMarker?: boolean}} [how] isLate: the ack takes its time
   * @returns {Message}
   */
  publish(publisher, room, outcome = 'ok', { isLate = false, isMarker = false } = {}) {
    const message = this.invoke(publisher, room, isMarker);
    if (outcome === 'ok' || outcome === 'stored') this.announce(this.place(message));
    if (outcome === 'ok') this.acks.push({ ...message, type: 'ok' });
    else if (outcome === 'fail')
      this.emit({ type: 'fail', value: message.value, reason: 'UNAVAILABLE' });
    else this.emit({ type: 'info', value: message.value, reason: 'OUTCOME_UNKNOWN' });
    if (!isLate) this.flush();
    return message;
  }

  /**
   * @param {string} publisher
   * @param {string} room
   * @param {boolean} [isMarker]
   * @param {number} [client] that publishes it without an echo
   * @param {Expected} [expect]
   * @returns {Message}
   */
  invoke(publisher, room, isMarker = false, client = undefined, expect = undefined) {
    const sequence = (this.sequences.get(publisher) ?? 0) + 1;
    this.sequences.set(publisher, sequence);
    const value = `${publisher}:${sequence}:${room}`;
    const by = { ...(client !== undefined && { client }), ...(expect && { expect }) };
    this.emit({ type: 'invoke', value, ...(isMarker && { marker: true }), ...by });
    return { value, room };
  }

  /**
   * A producer publishes where it expects the room.
   * @param {string} publisher @param {string} room with history
   * @param {number} [back] it has not heard of so many messages
   */
  append(publisher, room, back = 0) {
    const { epoch, top } = this.#stored(room);
    const offset = Math.max(0, top - back);
    const expect = offset === 0 ? { offset } : { epoch, offset };
    const message = this.invoke(publisher, room, false, undefined, expect);
    if (offset === top || this.faults.ignoresExpectations) {
      this.announce(this.place(message));
      this.acks.push({ ...message, type: 'ok' });
      this.flush();
      return;
    }
    const position = { epoch, offset: top };
    this.emit({ type: 'fail', value: message.value, reason: 'CONFLICT', position });
  }

  /** Gives it the next offset if its room has offsets. @param {Message} message */
  place(message) {
    const stored = this.store.get(message.room);
    if (stored === undefined) return message;
    message.epoch = stored.epoch;
    message.offset = ++stored.top;
    stored.log.push(message);
    if (stored.log.length > HISTORY_SIZE) stored.log.shift();
    return message;
  }

  /** @param {Message} message */
  announce(message) {
    for (const worker of this.workers) if (!worker.isMute) worker.bus.push(message);
  }

  /** The acks arrive. */
  flush() {
    for (const ack of this.acks.splice(0)) {
      this.emit(ack);
      if (ack.type === 'ok' && ack.value.endsWith(`:${RECORDED}`)) this.record(ack);
    }
  }

  /** The receiver of webhooks gets a message. @param {{value: string, offset?: number}} message */
  record({ value, offset }) {
    this.emit({ type: 'recorded', value, offset, id: `evt_${++this.records}` });
  }

  /** A worker receives up to `most` publications. @param {number} number @param {number} [most] */
  pump(number, most = Number.POSITIVE_INFINITY) {
    const worker = this.workers[number];
    for (let n = 0; n < most; n++) {
      const message = worker.bus.shift();
      if (message === undefined) return;
      const { room, epoch, offset = 0 } = message;
      const position = worker.positions.get(room);
      if (position !== undefined && (epoch !== position.epoch || offset > position.last + 1))
        this.check(number, room);
      const followed = worker.positions.get(room);
      if (followed !== undefined) {
        if (epoch !== followed.epoch || offset <= followed.last) continue;
        followed.last = offset;
      }
      this.deliver(number, message);
    }
  }

  /**
   * Compares a worker's position with the store's; heals the gap or sends a `resync`.
   * @param {number} number @param {string} room
   */
  check(number, room) {
    const worker = this.workers[number];
    const { epoch, top, log } = this.#stored(room);
    const position = worker.positions.get(room);
    if (
      position === undefined ||
      worker.isMute ||
      (position.epoch === epoch && position.last >= top)
    )
      return;
    const since = position.epoch === epoch || !this.faults.ignoresEpochs ? position.last : 0;
    const missed = log.filter(({ offset = 0 }) => offset > since);
    const isWhole =
      missed.length === top - since && (position.epoch === epoch || this.faults.ignoresEpochs);
    worker.positions.set(room, { epoch, last: top });
    if (isWhole) for (const message of missed) this.deliver(number, message);
    else
      for (const [client, { worker: of, positions, joined }] of this.clients.entries()) {
        if (of !== number || !joined.has(room)) continue;
        positions.set(room, { epoch, last: top, floor: top });
        this.emit({ type: 'resync', client, room, epoch, offset: top });
      }
  }

  /** Sends to all clients of that worker. @param {number} number @param {Message} message */
  deliver(number, message) {
    for (const [client, { worker, joined }] of this.clients.entries()) {
      if (worker === number && joined.has(message.room)) this.hand(client, message);
    }
  }

  /**
   * Sends to a client, which drops messages that it has passed.
   * @param {number} client @param {Message} message
   */
  hand(client, { room, value, epoch, offset = 0, by }) {
    if (by === client && !this.faults.echoes) return;
    if (epoch === undefined) {
      this.emit({ type: 'deliver', client, room, value });
      return;
    }
    const { positions } = this.clients[client];
    const position = positions.get(room);
    if (position?.epoch === epoch && offset <= position.floor) return;
    const isRepeat = position?.epoch === epoch && offset <= position.last;
    this.emit({ type: isRepeat ? 'repeat' : 'deliver', client, room, value, epoch, offset });
    if (!isRepeat)
      positions.set(room, {
        epoch,
        last: offset,
        floor: position?.epoch === epoch ? position.floor : 0,
      });
  }

  /** @param {number} client */
  close(client) {
    if (!this.clients[client].isOpen) return;
    this.clients[client].worker = -1;
    this.emit({ type: 'close', client, code: 1006 });
  }

  /** @param {number} client @param {number} worker */
  open(client, worker) {
    if (this.clients[client].isOpen) return;
    this.emit({ type: 'connect', client });
    this.clients[client].worker = worker;
    this.clients[client].joined.clear();
    for (const room of HISTORY_ROOMS) this.#join(client, room);
    for (const room of PLAIN_ROOMS) {
      this.emit({ type: 'subscribe', client, room });
      this.emit({ type: 'reply', client, room });
      this.clients[client].joined.add(room);
    }
  }

  /**
   * The worker's subscription is cut: publications that it has not received are lost.
   * @param {number} worker
   */
  cut(worker) {
    this.emit({ type: 'start', name: 'cut' });
    this.workers[worker].bus = [];
    this.emit({ type: 'stop', name: 'cut' });
  }

  /**
   * Redis returns without its last messages.
   * @param {number} lost how many of each room
   * @param {readonly string[]} [rooms]
   */
  crash(lost, rooms = HISTORY_ROOMS) {
    this.emit({ type: 'start', name: 'crash' });
    for (const room of rooms) {
      const { epoch, top, log } = this.#stored(room);
      this.store.set(
        room,
        this.faults.fenceOff
          ? {
              epoch,
              top: Math.max(0, top - lost),
              log: log.slice(0, Math.max(0, log.length - lost)),
            }
          : { epoch: this.#epoch(), top: 0, log: [] },
      );
    }
    this.emit({ type: 'stop', name: 'crash' });
  }

  /**
   * A client publishes without an echo.
   * @param {number} client @param {string} room @returns {Message|undefined}
   */
  speak(client, room) {
    if (!this.isMixed || !this.clients[client].isOpen) return undefined;
    const message = { ...this.invoke(`q${client}`, room, false, client), by: client };
    this.announce(this.place(message));
    const { value, epoch, offset } = message;
    this.acks.push({ type: 'ok', value, epoch, offset });
    this.flush();
    return message;
  }

  /**
   * A client leaves a room, and joins it with `last`.
   * @param {number} client @param {string} room @param {number} n
   */
  visit(client, room, n) {
    const { isOpen, joined, positions, worker } = this.clients[client];
    if (!this.isMixed || !isOpen) return;
    this.emit({ type: 'leave', client, room });
    joined.delete(room);
    if (this.workers[worker].positions.get(room)?.epoch !== this.#stored(room).epoch)
      this.check(worker, room);
    const { epoch, top, log } = this.#stored(room);
    const tail = log.slice(-n).filter(({ by }) => by !== client);
    this.emit({ type: 'subscribe', client, room, last: n });
    this.emit({ type: 'reply', client, room, epoch, offset: top, replayed: tail.length });
    joined.add(room);
    if (this.faults.cutsTails) tail.shift();
    positions.set(room, { epoch, last: top - n, floor: 0 });
    for (const message of tail) this.hand(client, message);
    // Live messages begin above the reply's offset.
    const last = tail.at(-1)?.offset ?? Math.max(0, top - n);
    positions.set(room, { epoch, last, floor: top });
  }

  /** A guest wants to come in. @param {number} guest */
  enter(guest) {
    if (!this.isMixed || this.guests.has(guest)) return;
    const user = /** @type {string} */ (GUESTS.get(guest));
    if (this.revoked.has(user) && !this.faults.ignoresRevocations) return;
    const count = [...this.guests].filter((other) => GUESTS.get(other) === user).length;
    if (user in CAPPED && count >= ALLOWED && !this.faults.ignoresCaps) return;
    this.guests.add(guest);
    this.emit({ type: 'connect', client: guest, user });
    this.emit({ type: 'subscribe', client: guest, room: LOBBY });
    this.emit({ type: 'reply', client: guest, room: LOBBY });
  }

  /** @param {number} guest */
  exit(guest) {
    if (this.guests.delete(guest)) this.emit({ type: 'close', client: guest, code: 1000 });
  }

  /** The tokens of a guest’s user are revoked. @param {number} guest */
  revoke(guest) {
    const user = GUESTS.get(guest);
    // The crowd stays, to be counted.
    if (!this.isMixed || user === undefined || user in CAPPED) return;
    this.revoked.add(user);
    this.emit({ type: 'revoke', user });
    if (this.faults.ignoresRevocations) return;
    for (const [other, name] of GUESTS) if (name === user) this.exit(other);
  }

  /** All is calm: each permitted client is in, counted and listed. */
  survey() {
    if (!this.isMixed) return;
    for (const [guest, user] of GUESTS) if (user in CAPPED) this.enter(guest);
    this.settle();
    this.states.settle();
    this.wait();
    this.states.survey();
    this.lists();
    this.counts();
    this.emit({ type: 'census' });
  }

  /** @param {string[]|null} [users] those that they believe to be in; without it, the truth */
  lists(users = [...new Set([...this.guests].map((guest) => String(GUESTS.get(guest))))]) {
    for (const client of this.guests) this.emit({ type: 'list', client, room: LOBBY, users });
  }

  /** @param {number} [count] that they were told of last; without it, the truth */
  counts(count = this.guests.size) {
    for (const client of this.guests)
      this.emit({ type: 'count', client, room: LOBBY, count, isSurvey: true });
  }

  /** All that is on its way arrives, and every worker compares its positions. */
  settle() {
    this.flush();
    for (let number = 0; number < WORKERS; number++) {
      this.pump(number);
      for (const room of HISTORY_ROOMS) this.check(number, room);
    }
  }

  /**
   * Nothing happens for longer than healing may take. If publishing is impossible, clients get
   * their notice, and a publisher is refused again and again.
   * @param {boolean} [isRefusing]
   */
  wait(isRefusing = this.isRefusing) {
    for (const [client, { isOpen }] of this.clients.entries())
      if (isOpen && this.isRefusing && !this.faults.hidesOutages)
        this.emit({ type: 'degraded', client, degraded: true });
    for (const client of this.guests)
      if (this.isRefusing && !this.faults.hidesOutages)
        this.emit({ type: 'degraded', client, degraded: true });
    for (let part = 0; part < 5; part++) {
      this.t += SETTLE_US / 5 + 1_000_000;
      if (isRefusing) this.publish('a', 'p.0', 'fail');
    }
  }

  /** Everyone is back, markers go out, the servers are stopped. @returns {Event[]} the record */
  end() {
    for (let client = 0; client < CLIENTS; client++) this.open(client, client % WORKERS);
    this.settle();
    for (const room of ROOMS) this.publish('m', room, 'ok', { isMarker: true });
    this.settle();
    this.emit({ type: 'end' });
    for (let client = 0; client < CLIENTS; client++) this.close(client);
    for (const guest of this.guests) this.exit(guest);
    this.emit({ type: 'gauges', when: 'after', of: 'server', values: { connections: 0 } });
    return this.events;
  }

  /** @param {number} client @param {string} room */
  #join(client, room) {
    const { positions, worker } = this.clients[client];
    const { epoch, top, log } = this.#stored(room);
    // A worker that is still in an epoch that is over learns of it here; of mere offsets it hears
    // in time.
    if (this.workers[worker].positions.get(room)?.epoch !== epoch) this.check(worker, room);
    const position = positions.get(room);
    const since = position && { epoch: position.epoch, offset: position.last };
    // It is that of the last message.
    const id = STREAMS.includes(client) && since && { id: since };
    this.emit({ type: 'subscribe', client, room, ...(since && { since }), ...id });
    const missed = log.filter(({ offset = 0 }) => since !== undefined && offset > since.offset);
    const isProved = since?.epoch === epoch && missed.length === top - since.offset;
    const recovered = isProved || (since !== undefined && this.faults.forgesRecovery === true);
    this.emit({ type: 'reply', client, room, epoch, offset: top, recovered });
    this.clients[client].joined.add(room);
    if (!isProved) positions.set(room, { epoch, last: top, floor: top });
    if (this.faults.cutsReplays) missed.pop();
    if (isProved) for (const message of missed) this.hand(client, message);
    // Live ones start above the reply's offset.
    const reached = positions.get(room);
    if (reached !== undefined) reached.floor = top;
  }

  /** @param {Worker} worker @param {string} room */
  #follow(worker, room) {
    const { epoch, top } = this.#stored(room);
    worker.positions.set(room, { epoch, last: top });
  }

  /** @param {string} room @returns {Stored} */
  #stored(room) {
    return /** @type {Stored} */ (this.store.get(room));
  }

  #epoch() {
    return (++this.epochs).toString(16).padStart(16, 'e');
  }
}
