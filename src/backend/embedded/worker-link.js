// worker-link.js: the primary's end of the link to a worker (relay-link.js has the other end).
//
// What is written in a tick leaves in one write. A worker that reads too slowly must not fill the
// primary's memory. Above `maxBacklogBytes` publications are dropped, which `pass` reports. Above
// `maxPendingBytes`, reached only if the worker does not read its answers, the link is closed.

import {
  HEAD_BYTES,
  MalformedMessage,
  MessageReader,
  MessageWriter,
  OP,
  RELAY_VERSION,
  readControl,
  readNumber,
  readOp,
} from './relay-wire.js';

/** @import { ToRelay } from './relay-wire.js' */

/**
 * @typedef {object} LinkOwner
 * @property {import('pino').Logger} log
 * @property {number} maxBacklogBytes publications queued for one worker
 * @property {number} maxPendingBytes everything queued for one worker
 * @property {(link: WorkerLink) => void} schedule calls `flush` at the end of this tick
 * @property {(isHung: boolean, pid: number) => void} onDropped the link was closed, because its
 *   worker does not read its answers (hung) or has sent nonsense
 */

/**
 * @typedef {object} LinkReceiver
 * @property {(op: number, buffer: Buffer, start: number, end: number) => void} onMessage PUBLISH,
 *   APPEND, KEY or SYNC. The callee may keep and modify only these bytes.
 * @property {(message: ToRelay) => void} onControl
 * @property {() => void} onDrain the worker has read what was pending
 * @property {() => void} onClose the worker has ended, or its link was closed
 */

export class WorkerLink {
  pid = 0;
  #writer = new MessageWriter();
  #isScheduled = false;
  /** Bytes that the writer may collect in this tick before publications are dropped. */
  #allowance = 0;

  /** @param {import('node:net').Socket} socket @param {LinkOwner} owner */
  constructor(socket, owner) {
    this.socket = socket;
    this.owner = owner;
  }

  /** @param {LinkReceiver} receiver */
  open(receiver) {
    const { socket, owner } = this;
    const reader = new MessageReader((buffer, start, end) =>
      this.#receive(receiver, buffer, start, end),
    );
    socket.on('data', (chunk) => this.#socketOnData(reader, chunk));
    socket.on('drain', receiver.onDrain);
    // `close` follows, and the supervisor reports a worker's crash.
    socket.on('error', (error) =>
      owner.log.debug({ err: error, pid: this.pid }, 'relay: link error'),
    );
    socket.on('close', receiver.onClose);
  }

  get pendingBytes() {
    return this.socket.writableLength + this.#writer.length;
  }

  get isWritable() {
    return this.socket.writable;
  }

  /** @returns what is written to it leaves at the end of this tick */
  out() {
    if (!this.#isScheduled) {
      this.#isScheduled = true;
      this.#allowance = this.owner.maxBacklogBytes - this.socket.writableLength;
      this.owner.schedule(this);
    }
    return this.#writer;
  }

  /**
   * Passes a message on unchanged.
   * @param {Buffer} buffer @param {number} start @param {number} end
   * @returns false if it was dropped, because too many bytes wait
   */
  pass(buffer, start, end) {
    const writer = this.out();
    if (writer.length >= this.#allowance) return false;
    writer.pass(buffer, start, end);
    return true;
  }

  flush() {
    this.#isScheduled = false;
    const { socket, owner, pid, pendingBytes } = this;
    if (!socket.writable) return;
    if (pendingBytes <= owner.maxPendingBytes) {
      this.#writer.writeTo(socket);
      return;
    }
    const text = 'relay: worker does not read its answers, closing its link';
    owner.log.error({ pid, pendingBytes }, text);
    socket.destroy();
    owner.onDropped(true, pid);
  }

  /** @param {MessageReader} reader @param {Buffer} chunk */
  #socketOnData(reader, chunk) {
    try {
      reader.read(chunk);
    } catch (error) {
      if (!(error instanceof MalformedMessage) && !(error instanceof RangeError)) throw error;
      const { owner, pid } = this;
      owner.log.error({ err: error, pid }, 'relay: malformed message, closing the link');
      this.socket.destroy();
      owner.onDropped(false, pid);
    }
  }

  /** @param {LinkReceiver} receiver @param {Buffer} buffer @param {number} start @param {number} end */
  #receive(receiver, buffer, start, end) {
    const op = readOp(buffer, start);
    const at = start + HEAD_BYTES;
    switch (op) {
      case OP.CONTROL:
        receiver.onControl(readControl(buffer, at, end));
        return;
      case OP.HELLO:
        this.#hello(readNumber(buffer, at));
        this.pid = end - at < 8 ? 0 : readNumber(buffer, at + 4);
        return;
      default:
        receiver.onMessage(op, buffer, start, end);
    }
  }

  /** A worker of another version ends the link itself. @param {number} version */
  #hello(version) {
    this.out().number(OP.HELLO, RELAY_VERSION);
    if (version === RELAY_VERSION) return;
    const { log } = this.owner;
    log.warn({ version, expected: RELAY_VERSION }, 'relay: worker of another version');
  }
}
