// relay-client.js: a worker's end of the relay in the primary of its machine.
//
// The messages of a tick leave in one write: batches of successive publications to one room, then a
// SYNC, whose answer confirms all of them. Publications with an outcome of their own (a position, a
// used key) share one answer too. A lost link is not repaired: requests under way fail, `onClose`
// is called, and the worker exits.
//
// A stalled primary keeps the socket open and accepts bytes, so the client asks for an answer every
// WATCH_MS. After AWAY_MS without one, publications are refused until the relay answers again. Time
// in which this process itself was stalled does not count.

import { connect } from 'node:net';
import { BatchReader } from '../batch.js';
import { deferred } from '../deferred.js';
import { BrokerError, conflict, full } from '../errors.js';
import {
  batchAt,
  FULL,
  faultOf,
  HEAD_BYTES,
  MAX_OUTCOMES,
  MessageReader,
  MessageWriter,
  OP,
  RELAY_VERSION,
  readAnswer,
  readBatchRoom,
  readControl,
  readMembers,
  readNumber,
  readOp,
  readPage,
  readPositionOf,
} from './relay-wire.js';

/** Usually the relay answers within a tick of the primary. */
const REQUEST_TIMEOUT_MS = 5000;
const WATCH_MS = 1000;
const AWAY_MS = 1500;
/** Requests without an answer. Above it, new ones are refused. */
const MAX_REQUESTS = 100_000;
/** Delay before a changed number of connections is sent. */
const REPORT_DELAY_MS = 10;
const CLOSE_TIMEOUT_MS = 1000;
/** Unsent bytes. Above it the primary is not reading, and new requests are refused. */
const MAX_PENDING_BYTES = 16 * 1024 * 1024;
const MAX_NUMBER = 0xffffffff;

/** @import { HistoryPage, Position, ReadRequest } from '../broker.js' */
/** @import { Deferred } from '../deferred.js' */
/** @import { PresenceSnapshot } from '../presence.js' */
/** @import { Socket } from 'node:net' */
/** @import { FromRelay, ToRelay } from './relay-wire.js' */

/** @typedef {{op: number, outcomes: Deferred<any>[]}} Batch `op`: PUBLISH or APPEND */

/**
 * The values of a REPLY, or the body of another answer.
 * @typedef {{ok: boolean, value: number, body: Buffer}} Answer
 */

/**
 * @typedef {object} Request
 * @property {number} sentMs on the link's clock
 * @property {(answer: Answer) => void} resolve @property {(error: BrokerError) => void} reject
 * @property {((answer: Answer) => void)|null} onLate called with an answer after the time-out
 */

/**
 * @typedef {object} RelayListeners
 * @property {(room: string, publication: Buffer, offset: number, epoch: string) => void}
 *   onPublication
 * @property {(isAnswering: boolean) => void} onAnswering the relay stops or resumes answering
 * @property {(seconds: number) => void} onRoundTrip called for each probe
 * @property {(message: FromRelay) => void} onControl @property {() => void} onProbe called every
 *   WATCH_MS while the relay answers
 * @property {() => void} onClose the link has ended, although `close` was not called
 */

export class RelayClient {
  /** @type {RelayListeners['onAnswering']} */
  onAnswering = () => {};
  /** @type {RelayListeners['onRoundTrip']} */
  onRoundTrip = () => {};
  /** @type {RelayListeners['onClose']} */
  onClose = () => {};
  /** @type {RelayListeners['onPublication']} */
  onPublication = () => {};
  /** @type {RelayListeners['onControl']} */
  onControl = () => {};
  /** @type {RelayListeners['onProbe']} */
  onProbe = () => {};

  /** @type {Socket|null} */
  socket = null;
  /** From HELLO until `close`, or until the link is lost. */
  isOpen = false;
  isAnswering = true;
  isProbing = false;
  /** The version of the relay. @type {Deferred<number>} */
  hello = deferred();
  /** @type {NodeJS.Timeout|null} */
  watch = null;
  /** The link's clock at the last check. It skips time in which this process was stalled. */
  nowMs = 0;
  lookedMs = 0;
  heardMs = 0;
  writer = new MessageWriter();
  isScheduled = false;

  nextRequest = 1;
  /** In the order they were sent. @type {Map<number, Request>} */
  requests = new Map();
  /** For everything sent in this tick. @type {Deferred<void>|null} */
  sync = null;
  /** For all counts requested in this tick. @type {Promise<number>|null} */
  counting = null;
  /**
   * Rooms whose members are requested next: one at a time, because an answer may be large.
   * @type {Map<string, Deferred<PresenceSnapshot>>}
   */
  asks = new Map();
  isAsking = false;

  /** Batches whose outcomes are not requested yet. @type {Batch[]} */
  undecided = [];

  /** Timed-out requests whose answer still matters. @type {Map<number, (answer: Answer) => void>} */
  late = new Map();
  /** @type {number|null} */
  reported = null;
  /** @type {NodeJS.Timeout|undefined} */
  reportTimer = undefined;

  /**
   * @param {object} parts @param {string} parts.path of the relay's socket
   * @param {import('pino').Logger} parts.log @param {number} [parts.watchMs]
   * @param {number} [parts.awayMs]
   * @param {number} [parts.requestTimeoutMs]
   */
  constructor({
    path,
    log,
    watchMs = WATCH_MS,
    awayMs = AWAY_MS,
    requestTimeoutMs = REQUEST_TIMEOUT_MS,
  }) {
    this.path = path;
    this.log = log;
    this.watchMs = watchMs;
    this.awayMs = awayMs;
    this.requestTimeoutMs = requestTimeoutMs;
    this.flush = this.flush.bind(this);
  }

  /** Replaces the listeners that are given. @param {Partial<RelayListeners>} listeners */
  listen(listeners) {
    Object.assign(this, listeners);
  }

  /** Rejects if there is no relay or it has another version. */
  async open() {
    const socket = connect(this.path);
    this.socket = socket;
    await new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.once('connect', () => resolve(undefined));
    });
    const reader = new MessageReader((buffer, start, end) => this.#receive(buffer, start, end));
    socket.removeAllListeners('error');
    socket.on('error', (error) => this.log.debug({ err: error }, 'relay: link error'));
    socket.on('data', (chunk) => {
      this.heardMs = this.nowMs;
      reader.read(chunk);
    });
    socket.on('close', () => this.#socketOnClose());
    this.writer.hello(process.pid);
    this.writer.writeTo(socket);
    await this.#compareVersions(socket);
    this.isOpen = true;
    this.lookedMs = performance.now();
    this.watch = setInterval(() => this.#look(), this.watchMs).unref();
  }

  /** @param {Socket} socket @throws if the relay has another version or does not answer */
  async #compareVersions(socket) {
    const { promise, reject } = this.hello;
    const refuse = () => reject(new Error('the primary does not answer HELLO'));
    socket.once('close', refuse);
    const timer = setTimeout(refuse, this.requestTimeoutMs);
    try {
      const version = await promise;
      if (version !== RELAY_VERSION) throw new Error(otherVersion(version));
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends what is collected, then ends the link. Requests under way fail. May be called twice. */
  async close() {
    const { socket } = this;
    if (socket === null || socket.writableEnded) return;
    if (!this.isOpen) {
      socket.destroy();
      return;
    }
    clearTimeout(this.reportTimer);
    this.flush();
    this.isOpen = false;
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS);
    await closed;
    clearTimeout(timer);
  }

  /**
   * @param {string} key @param {number} cap @param {boolean} force
   * @param {(answer: Answer) => void} onLate
   */
  acquire(key, cap, force, onLate) {
    // Also while the relay is unavailable: it may answer before the handshake's deadline.
    if (!this.isOpen) throw gone();
    if (this.requests.size + this.late.size >= MAX_REQUESTS) throw tooMany();
    const { id, promise } = this.#request(onLate);
    this.out().control({ type: 'acquire', request: id, key, cap, force });
    return promise;
  }

  /** Sends a control message without an answer. @param {ToRelay} message */
  tell(message) {
    if (this.isOpen) this.out().control(message);
  }

  /** @param {string} room */
  async subscribe(room) {
    await this.#ask({ type: 'subscribe', request: 0, room });
  }

  /** @param {string} room */
  unsubscribe(room) {
    this.tell({ type: 'unsubscribe', room });
  }

  /**
   * @param {string} room @param {Buffer} publication copied at once
   * @returns {Promise<void>} Resolves when the relay has accepted it; all of a tick share it.
   */
  publish(room, publication) {
    const refusal = this.#refusal();
    if (refusal !== null) return Promise.reject(refusal);
    this.out().publication(OP.PUBLISH, room, publication);
    return this.#synced();
  }

  /** @returns {Promise<void>} Resolves when the relay has handled everything sent before. */
  confirm() {
    const refusal = this.#refusal();
    if (refusal !== null) return Promise.reject(refusal);
    this.#schedule();
    return this.#synced();
  }

  #synced() {
    this.sync ??= deferred();
    return this.sync.promise;
  }

  /**
   * Publishes to a room without history, unless the key has been used there.
   * @param {string} room @param {string} key with its fingerprint
   * @param {Buffer} publication copied at once
   */
  publishOnce(room, key, publication) {
    return this.#decided(OP.PUBLISH, room, key, publication);
  }

  /**
   * @param {string} room @param {string} key with its fingerprint; may be empty
   * @param {Buffer} publication copied at once
   * @param {boolean} [isAlone] with an outcome of its own, as in a room with state
   */
  append(room, key, publication, isAlone = false) {
    return this.#decided(OP.APPEND, room, key, publication, isAlone);
  }

  /**
   * @param {number} op @param {string} room @param {string} key @param {Buffer} publication
   * @param {boolean} [isAlone]
   */
  #decided(op, room, key, publication, isAlone = key !== '') {
    const refusal = this.#refusal();
    if (refusal !== null) return Promise.reject(refusal);
    const outcome = deferred();
    const out = this.out();
    if (key !== '') out.text(OP.KEY, key);
    if (out.publication(op, room, publication, isAlone || key !== '')) {
      /** @type {Batch} */ (this.undecided.at(-1)).outcomes.push(outcome);
    } else {
      this.undecided.push({ op, outcomes: [outcome] });
      if (this.undecided.length === MAX_OUTCOMES) this.#askOutcomes();
    }
    return outcome.promise;
  }

  /** @param {string} room @param {ReadRequest} from @returns {Promise<HistoryPage>} */
  async history(room, from) {
    const { ok, body } = await this.#ask({ type: 'read', request: 0, room, ...from });
    if (!ok) throw new BrokerError('UNAVAILABLE', 'too many reads are waiting for the relay');
    return readPage(body);
  }

  // Presence. When the link ends, the relay removes all users of this worker.

  /** @param {string} room @param {string} user @param {Buffer} member copied at once */
  enter(room, user, member) {
    this.tell({ type: 'enter', room, user, member: member.toString('base64') });
  }

  /** @param {string} room @param {string} user */
  exit(room, user) {
    this.tell({ type: 'exit', room, user });
  }

  exitAll() {
    this.tell({ type: 'exit-all' });
  }

  /**
   * Records an event for webhooks.
   * @param {string} room @param {import('../edges.js').RecordedMessage} message
   * @param {string} key without a fingerprint; empty if there is none
   */
  recordMessage(room, { type, mark, fields }, key) {
    this.tell({ type: 'record', room, kind: type, mark, fields, key });
  }

  /** Of all workers. @param {string} room */
  async connectionsIn(room) {
    return (await this.#ask({ type: 'connections-in', request: 0, room })).value;
  }

  /** @param {string} room @returns {Promise<number>} users of all workers */
  async usersIn(room) {
    return (await this.#ask({ type: 'users-in', request: 0, room })).value;
  }

  /** @param {import('../occupancy.js').RoomPage} page */
  async occupied(page) {
    const { ok, body } = await this.#ask({ type: 'occupied', request: 0, ...page });
    if (!ok)
      throw new BrokerError('UNAVAILABLE', 'too many lists of rooms are waiting for the relay');
    return (readMembers(body).members ?? []).map((row) => {
      const [room, connections] = String(row).split(' ');
      return { room, connections: Number(connections) };
    });
  }

  /** @param {string} room @returns {Promise<PresenceSnapshot>} */
  members(room) {
    if (!this.isOpen) return Promise.reject(gone());
    if (!this.isAnswering) return Promise.reject(away());
    let ask = this.asks.get(room);
    if (ask === undefined) {
      ask = deferred();
      this.asks.set(room, ask);
      this.#askNext();
    }
    return ask.promise;
  }

  #askNext() {
    if (this.isAsking) return;
    for (const [room, ask] of this.asks) {
      this.asks.delete(room);
      if (!this.isOpen) {
        ask.reject(gone());
        continue;
      }
      this.isAsking = true;
      const answer = this.#ask({ type: 'who', request: 0, room });
      const next = () => {
        this.isAsking = false;
        this.#askNext();
      };
      answer.then(({ body }) => ask.resolve(readMembers(body)), ask.reject).then(next);
      return;
    }
  }

  /** @param {number} connections of this worker */
  reportConnections(connections) {
    if (!this.isOpen) return;
    this.reported = connections;
    // Handshakes in many ticks share a report, so that the primary does not wake up for each.
    this.reportTimer ??= setTimeout(this.#reportLater, REPORT_DELAY_MS).unref();
  }

  #reportLater = () => {
    this.reportTimer = undefined;
    if (this.isOpen && this.reported !== null) this.out();
  };

  async countConnections() {
    this.#check();
    if (this.counting === null) {
      this.#report();
      this.counting = this.#ask({ type: 'count', request: 0 }).then(({ value }) => value);
    }
    return this.counting;
  }

  /** Workers with a subscription. */
  async countWorkers() {
    return (await this.#ask({ type: 'workers', request: 0 })).value;
  }

  /** Why requests are refused now; null: they are not. */
  #refusal() {
    if (!this.isOpen) return gone();
    if (!this.isAnswering) return away();
    const { writableLength } = /** @type {Socket} */ (this.socket);
    if (writableLength + this.writer.length <= MAX_PENDING_BYTES) return null;
    return new BrokerError('UNAVAILABLE', 'the relay is not reading');
  }

  #check() {
    if (!this.isOpen) throw gone();
    if (!this.isAnswering) throw away();
    if (this.requests.size >= MAX_REQUESTS) throw tooMany();
  }

  /** @returns what is written to it leaves at the end of this tick */
  out() {
    this.#schedule();
    return this.writer;
  }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.flush);
  }

  /** @param {Request['onLate']} [onLate] @returns {{id: number, promise: Promise<Answer>}} */
  #request(onLate = null) {
    const id = this.nextRequest;
    this.nextRequest = id === MAX_NUMBER ? 1 : id + 1;
    const { promise, resolve, reject } = deferred();
    this.requests.set(id, { sentMs: this.nowMs, resolve, reject, onLate });
    return { id, promise };
  }

  /**
   * Sends a control message that the relay answers.
   * @param {ToRelay & {request: number}} message its `request` is set here
   * @throws {RangeError} if a field is out of bounds. The relay would close the link, so nothing is
   *   sent.
   */
  async #ask(message) {
    this.#check();
    message.request = this.nextRequest;
    const fault = faultOf(message);
    if (fault !== null) throw new RangeError(fault);
    const { promise } = this.#request();
    this.out().control(message);
    return promise;
  }

  #report() {
    if (this.reported === null) return;
    this.writer.control({ type: 'connections', connections: this.reported });
    this.reported = null;
  }

  #askOutcomes() {
    const { undecided } = this;
    this.undecided = [];
    const request = this.#request();
    this.writer.number(OP.OUTCOMES, request.id);
    request.promise.then(
      ({ body }) => {
        for (const [i, batch] of undecided.entries()) decide(batch, readPositionOf(body, i));
      },
      (error) => rejectAll(undecided, error),
    );
  }

  sendNow() {
    if (this.isScheduled) this.flush();
  }

  flush() {
    this.isScheduled = false;
    this.counting = null;
    const { sync, socket } = this;
    this.sync = null;
    if (!this.isOpen || !socket?.writable) {
      // Nothing was written in this tick, so nothing was accepted.
      sync?.reject(gone());
      rejectAll(this.undecided, gone());
      this.undecided = [];
      return;
    }
    this.#report();
    if (sync !== null) {
      const request = this.#request();
      this.writer.number(OP.SYNC, request.id);
      request.promise.then(() => sync.resolve(), sync.reject);
    }
    if (this.undecided.length > 0) this.#askOutcomes();
    this.writer.writeTo(socket);
  }

  /** @param {Buffer} buffer @param {number} start @param {number} end */
  #receive(buffer, start, end) {
    const at = start + HEAD_BYTES;
    switch (readOp(buffer, start)) {
      case OP.PUBLICATION: {
        const room = readBatchRoom(buffer, at, end);
        const batch = new BatchReader(buffer, batchAt(buffer, at), end);
        while (batch.next())
          this.onPublication(
            room,
            /** @type {Buffer} */ (batch.publication),
            batch.offset,
            batch.epoch,
          );
        break;
      }
      case OP.HELLO:
        this.hello.resolve(readNumber(buffer, at));
        break;
      case OP.CONTROL:
        this.onControl(readControl(buffer, at, end));
        break;
      default:
        this.#receiveAnswer(readAnswer(buffer, at, end));
    }
  }

  /** @param {Answer & {request: number}} answer */
  #receiveAnswer({ request: id, ...answer }) {
    this.#setAnswering(true);
    const request = this.requests.get(id);
    if (request === undefined) {
      const onLate = this.late.get(id);
      this.late.delete(id);
      onLate?.(answer);
      return;
    }
    this.requests.delete(id);
    request.resolve(answer);
  }

  #look() {
    const now = performance.now();
    const step = now - this.lookedMs;
    this.lookedMs = now;
    this.nowMs += Math.min(step, this.watchMs);
    // After a stall of this process, the event loop must first read the answers that have arrived.
    if (step > 1.5 * this.watchMs) return;
    this.#expireRequests();
    if (!this.isProbing) this.#probe();
  }

  #expireRequests() {
    const { nowMs } = this;
    for (const [id, request] of this.requests) {
      // Both times are as of an earlier check, so the silence may be shorter by one interval.
      const silentMs = nowMs - Math.max(request.sentMs, this.heardMs) - this.watchMs;
      if (silentMs >= this.awayMs) this.#setAnswering(false);
      if (nowMs - request.sentMs < this.requestTimeoutMs) return;
      this.requests.delete(id);
      if (request.onLate !== null) this.late.set(id, request.onLate);
      request.reject(new BrokerError('OUTCOME_UNKNOWN', 'the relay did not answer in time'));
    }
  }

  /** So that the client notices the stall of an idle relay, too. */
  #probe() {
    this.isProbing = true;
    const { id, promise } = this.#request();
    const sentMs = performance.now();
    this.onProbe();
    this.out().number(OP.SYNC, id);
    promise
      .then(
        () => this.onRoundTrip((performance.now() - sentMs) / 1000),
        () => {}, // the next probe follows
      )
      .finally(() => {
        this.isProbing = false;
      });
  }

  /** @param {boolean} isAnswering */
  #setAnswering(isAnswering) {
    if (isAnswering === this.isAnswering) return;
    this.isAnswering = isAnswering;
    if (!isAnswering) {
      for (const ask of this.asks.values()) ask.reject(away());
      this.asks.clear();
    }
    this.onAnswering(isAnswering);
  }

  #socketOnClose() {
    const isLost = this.isOpen;
    this.isOpen = false;
    if (this.watch !== null) clearInterval(this.watch);
    // Rejects what was never written, and so was certainly not accepted.
    this.flush();
    for (const request of this.requests.values())
      request.reject(new BrokerError('OUTCOME_UNKNOWN', 'the relay link is closed'));
    this.requests.clear();
    if (isLost) this.onClose();
  }
}

/** @param {Batch} batch @param {Position} position of the first; offset 0: a conflict */
function decide({ op, outcomes }, { epoch, offset }) {
  for (const [i, outcome] of outcomes.entries()) {
    if (offset === 0) outcome.reject(conflict());
    else if (op === OP.APPEND && epoch === FULL.epoch && offset === FULL.offset)
      outcome.reject(full());
    else outcome.resolve(op === OP.APPEND ? { epoch, offset: offset + i } : undefined);
  }
}

/** @param {readonly Batch[]} batches @param {Error} error */
function rejectAll(batches, error) {
  for (const { outcomes } of batches) for (const outcome of outcomes) outcome.reject(error);
}

/** @param {number} version of the relay */
function otherVersion(version) {
  return `the primary runs another version of Fanfare (relay ${version}, this worker has ${RELAY_VERSION}): restart the server`;
}

function tooMany() {
  return new BrokerError('UNAVAILABLE', 'too many requests are waiting for the relay');
}

function away() {
  return new BrokerError('UNAVAILABLE', 'the relay did not answer in time');
}

function gone() {
  return new BrokerError('UNAVAILABLE', 'the relay link is closed');
}
