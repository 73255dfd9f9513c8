// relay-link.js: a worker's end of the link to the relay in the primary of its machine.
//
// What is written in a tick leaves in one write. A lost link is not repaired: requests under way
// fail, `onClose` is called, and the worker exits.

import { connect } from 'node:net';
import { BatchReader } from '../batch.js';
import { deferred, within } from '../deferred.js';
import { BrokerError } from '../errors.js';
import { RelayRequests } from './relay-requests.js';
import {
  batchAt,
  faultOf,
  HEAD_BYTES,
  MessageReader,
  MessageWriter,
  OP,
  RELAY_VERSION,
  readAnswer,
  readBatchRoom,
  readControl,
  readNumber,
  readOp,
} from './relay-wire.js';

/** Usually the relay answers within a tick of the primary. */
const REQUEST_TIMEOUT_MS = 5000;
const WATCH_MS = 1000;
const AWAY_MS = 1500;
const CLOSE_TIMEOUT_MS = 1000;
const NO_VERSION = 0;
/** Unsent bytes. Above it the primary is not reading, and new requests are refused. */
const MAX_PENDING_BYTES = 16 * 1024 * 1024;

/** What the socket reads at a time. Without it, Node allocates as much for each read. */
const readBuffer = Buffer.allocUnsafeSlow(65_536);

/** @import { Deferred } from '../deferred.js' */
/** @import { Socket } from 'node:net' */
/** @import { Answer, OnAnswer } from './relay-requests.js' */
/** @import { FromRelay, ToRelay } from './relay-wire.js' */

/**
 * @typedef {object} LinkListeners
 * @property {(room: string, publication: Buffer, offset: number, epoch: string) => void}
 *   onPublication
 * @property {(message: FromRelay) => void} onControl
 * @property {(isAnswering: boolean) => void} onAnswering the relay stops or resumes answering
 * @property {() => ToRelay & {request: number}} onProbe called every WATCH_MS while the relay
 *   answers; returns the message to ask with
 * @property {(seconds: number) => void} onRoundTrip called for each probe
 * @property {(lost: BrokerError|null) => void} onFlush called before the messages of a tick leave;
 *   `lost`: they do not, because the link has ended
 * @property {() => void} onClose the link has ended, although `close` was not called
 */

export class RelayLink {
  /** @type {LinkListeners['onPublication']} */
  onPublication = () => {};
  /** @type {LinkListeners['onControl']} */
  onControl = () => {};
  /** @type {LinkListeners['onAnswering']} */
  onAnswering = () => {};
  /** @type {LinkListeners['onProbe']} */
  onProbe = () => ({ type: 'count', request: 0 });
  /** @type {LinkListeners['onRoundTrip']} */
  onRoundTrip = () => {};
  /** @type {LinkListeners['onFlush']} */
  onFlush = () => {};
  /** @type {LinkListeners['onClose']} */
  onClose = () => {};

  /** @type {Socket|null} */
  socket = null;
  /** From HELLO until `close`, or until the link is lost. */
  isOpen = false;
  writer = new MessageWriter();
  /** The version of the relay. @type {Deferred<number>} */
  #hello = deferred();
  /** @type {NodeJS.Timeout|undefined} */
  #watch = undefined;
  #isProbing = false;
  #isScheduled = false;

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
    this.requests = new RelayRequests({
      watchMs,
      awayMs,
      timeoutMs: requestTimeoutMs,
      onAnswering: (isAnswering) => this.onAnswering(isAnswering),
    });
    this.flush = this.flush.bind(this);
  }

  /** Replaces the listeners that are given. @param {Partial<LinkListeners>} listeners */
  listen(listeners) {
    Object.assign(this, listeners);
  }

  /** Rejects if there is no relay or it has another version. */
  async open() {
    const { requests } = this;
    const reader = new MessageReader((buffer, start, end) => this.#receive(buffer, start, end));
    const socket = connect({
      path: this.path,
      onread: {
        buffer: readBuffer,
        callback: (bytes) => {
          requests.hear();
          // Publications stay in memory as slices of what was read with them.
          const chunk = Buffer.allocUnsafeSlow(bytes);
          readBuffer.copy(chunk, 0, 0, bytes);
          reader.read(chunk);
          return true;
        },
      },
    });
    this.socket = socket;
    await new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.once('connect', () => resolve(undefined));
    });
    socket.removeAllListeners('error');
    socket.on('error', (error) => this.log.debug({ err: error }, 'relay: link error'));
    socket.on('close', () => this.#socketOnClose());
    this.writer.hello(process.pid);
    this.writer.writeTo(socket);
    await this.#compareVersions(socket);
    this.isOpen = true;
    requests.start();
    this.#watchFromNow();
  }

  /**
   * Looks whether the relay answers, and then every `watchMs`. The worker's beat calls it, so that
   * both share their wake-ups.
   */
  watchNow() {
    if (!this.isOpen) return;
    this.#look();
    this.#watchFromNow();
  }

  #watchFromNow() {
    clearInterval(this.#watch);
    this.#watch = setInterval(() => this.#look(), this.requests.watchMs).unref();
  }

  /** @param {Socket} socket @throws if the relay has another version or does not answer */
  async #compareVersions(socket) {
    const { promise, resolve } = this.#hello;
    socket.once('close', () => resolve(NO_VERSION));
    const version = (await within(promise, this.requests.timeoutMs)) ? await promise : NO_VERSION;
    if (version === RELAY_VERSION) return;
    socket.destroy();
    if (version === NO_VERSION) throw new Error('the primary does not answer HELLO');
    throw new Error(otherVersion(version));
  }

  /** Sends what is collected, then ends the link. Requests under way fail. May be called twice. */
  async close() {
    const { socket } = this;
    if (socket === null || socket.writableEnded) return;
    if (!this.isOpen) {
      socket.destroy();
      return;
    }
    this.flush();
    this.isOpen = false;
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS);
    await closed;
    clearTimeout(timer);
  }

  get isAnswering() {
    return this.requests.isAnswering;
  }

  /**
   * Why requests are refused now; null: they are not.
   * @param {boolean} [mayWait] The relay need not be answering now.
   * @returns {BrokerError|null}
   */
  refusal(mayWait = false) {
    const { socket, requests } = this;
    if (!this.isOpen || socket === null) return gone();
    if (!requests.isAnswering && !mayWait) return unavailable('the relay did not answer in time');
    if (requests.isFull) return unavailable('too many requests are waiting for the relay');
    if (socket.writableLength + this.writer.length <= MAX_PENDING_BYTES) return null;
    return unavailable('the relay is not reading');
  }

  /** @returns what is written to it leaves at the end of this tick */
  out() {
    if (!this.#isScheduled) {
      this.#isScheduled = true;
      setImmediate(this.flush);
    }
    return this.writer;
  }

  /** Sends SYNC, whose answer covers all messages before it. @returns {Promise<Answer>} */
  sync() {
    const { id, promise } = this.requests.add();
    this.out().number(OP.SYNC, id);
    return promise;
  }

  /**
   * Sends a control message that the relay answers.
   * @param {ToRelay & {request: number}} message its `request` is set here
   * @param {OnAnswer} [onLate] called with an answer after the time-out. With it, the message is
   *   also sent while the relay is not answering.
   * @throws {RangeError} if a field is out of bounds. The relay would close the link, so nothing is
   *   sent.
   */
  async ask(message, onLate) {
    const refusal = this.refusal(onLate !== undefined);
    if (refusal !== null) throw refusal;
    const fault = faultOf(message);
    if (fault !== null) throw new RangeError(fault);
    const { id, promise } = this.requests.add(onLate);
    message.request = id;
    this.out().control(message);
    return promise;
  }

  /** Sends a control message without an answer. @param {ToRelay} message */
  tell(message) {
    if (this.isOpen) this.out().control(message);
  }

  sendNow() {
    if (this.#isScheduled) this.flush();
  }

  flush() {
    const { socket } = this;
    const lost = this.isOpen && socket?.writable ? null : gone();
    // What the listener adds leaves now.
    this.#isScheduled = true;
    this.onFlush(lost);
    this.#isScheduled = false;
    if (lost === null) this.writer.writeTo(/** @type {Socket} */ (socket));
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
        this.#hello.resolve(readNumber(buffer, at));
        break;
      case OP.CONTROL:
        this.onControl(readControl(buffer, at, end));
        break;
      default:
        this.requests.settle(readAnswer(buffer, at, end));
    }
  }

  #look() {
    if (this.requests.look() && !this.#isProbing) this.#probe();
  }

  /** So that the stall of an idle relay is noticed, too. */
  #probe() {
    this.#isProbing = true;
    const sentMs = performance.now();
    this.ask(this.onProbe(), () => {})
      .then(
        () => this.onRoundTrip((performance.now() - sentMs) / 1000),
        () => {}, // the next probe follows
      )
      .finally(() => {
        this.#isProbing = false;
      });
  }

  #socketOnClose() {
    const isLost = this.isOpen;
    this.isOpen = false;
    clearInterval(this.#watch);
    // What was never written was certainly not accepted.
    this.flush();
    this.requests.rejectAll();
    if (isLost) this.onClose();
  }
}

/** @param {number} version of the relay */
function otherVersion(version) {
  return `the primary runs another version of Fanfare (relay ${version}, this worker has ${RELAY_VERSION}): restart the server`;
}

/** @param {string} reason */
function unavailable(reason) {
  return new BrokerError('UNAVAILABLE', reason);
}

function gone() {
  return unavailable('the relay link is closed');
}
