// sockets.js: stream sockets between simulated processes, with the interface of node:net.
//
//   write -> (backlog, if the window is full) -> link: latency, cuts, pieces -> unread bytes -> data
//
// The bytes of a connection arrive in order. A cut link keeps what is sent, as a kernel that
// retransmits, until it is healed or the sender resets the connection. A reader that pauses fills
// its window, and then the sender's backlog grows.

import { EventEmitter } from 'node:events';

const HIGH_WATER_MARK = 16_384;
/** One read of Node takes no more. */
const READ_BYTES = 65_536;
const EMPTY = Buffer.alloc(0);

/** @import { Network } from './network.js' */
/** @import { SimulatedProcess } from './simulated-process.js' */
/** @typedef {{bytes: Buffer, done: ((error?: Error|null) => void)|undefined}} Waiting */
/** What arrives at one moment. @typedef {{bytes: Buffer[], isEnd: boolean}} Parcel */

/** @param {string} code @param {string} [syscall] */
export function socketError(code, syscall = 'read') {
  return Object.assign(new Error(`${syscall} ${code}`), { code, errno: -1, syscall });
}

/** One end of a connection. */
export class SimulatedSocket extends EventEmitter {
  /** @type {SimulatedSocket|null} */
  peer = null;
  connecting = false;
  destroyed = false;
  closed = false;
  /** @type {Error|null} */
  errored = null;
  readable = true;
  writable = true;
  writableEnded = false;
  writableFinished = false;
  writableNeedDrain = false;
  writableHighWaterMark = HIGH_WATER_MARK;
  writableLength = 0;
  readableEnded = false;
  readableLength = 0;
  /** @type {boolean|null} */
  readableFlowing = null;
  bytesRead = 0;
  bytesWritten = 0;
  /** Node's HTTP corks its socket by this field. */
  _writableState = { corked: 0 };
  /** Bytes that the peer has not read yet. */
  underWay = 0;
  /** When the last parcel arrives at the peer. */
  arrivalMs = 0;
  /** Parcels that a cut link keeps. @type {Parcel[]} */
  kept = [];
  /** Parcels on their way. @type {Parcel[]} */
  transit = [];
  /** The parcel of this moment, which further writes join. @type {Parcel|null} */
  parcel = null;
  parcelMs = -1;
  /** @type {Waiting[]} */
  #backlog = [];
  /** @type {Buffer[]} */
  #unread = [];
  #hasEnd = false;
  #isFlowPlanned = false;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #timeoutMs = 0;

  /**
   * @param {Network} network @param {SimulatedProcess} owner
   * @param {{allowHalfOpen?: boolean}} [options]
   */
  constructor(network, owner, { allowHalfOpen = false } = {}) {
    super();
    this.network = network;
    this.owner = owner;
    this.allowHalfOpen = allowHalfOpen;
    /** @type {string|undefined} */
    this.remoteAddress = undefined;
    /** @type {number|undefined} */
    this.remotePort = undefined;
    this.remoteFamily = 'IPv4';
    this.localAddress = '';
    this.localPort = 0;
    /** The hosts of both ends, for the network. */
    this.fromHost = '';
    this.toHost = '';
    owner.sockets.add(this);
  }

  get bufferSize() {
    return this.writableLength;
  }

  get pending() {
    return this.connecting;
  }

  get readyState() {
    if (this.connecting) return 'opening';
    if (this.readable && this.writable) return 'open';
    return this.readable ? 'readOnly' : this.writable ? 'writeOnly' : 'closed';
  }

  address() {
    return { address: this.localAddress, port: this.localPort, family: 'IPv4' };
  }

  /** @override @param {string} name @param {(...args: any[]) => void} listener */
  on(name, listener) {
    super.on(name, listener);
    if (name === 'data' && this.readableFlowing === null) this.resume();
    return this;
  }

  /** @override @param {string} name @param {(...args: any[]) => void} listener */
  addListener(name, listener) {
    return this.on(name, listener);
  }

  setNoDelay() {
    return this;
  }

  setKeepAlive() {
    return this;
  }

  ref() {
    return this;
  }

  unref() {
    return this;
  }

  cork() {}

  uncork() {}

  /** @param {number} ms @param {() => void} [act] */
  setTimeout(ms, act) {
    this.#timeoutMs = ms;
    clearTimeout(this.#timer);
    if (act) {
      if (ms > 0) this.once('timeout', act);
      else this.removeListener('timeout', act);
    }
    this.#awake();
    return this;
  }

  #awake() {
    if (this.#timeoutMs === 0) return;
    clearTimeout(this.#timer);
    if (!this.destroyed)
      this.#timer = setTimeout(() => this.destroyed || this.emit('timeout'), this.#timeoutMs);
  }

  /** The connection is made. @param {SimulatedSocket} peer */
  joinPeer(peer) {
    this.peer = peer;
    this.connecting = false;
  }

  /**
   * @param {string|Buffer|Uint8Array} data
   * @param {BufferEncoding|((error?: Error|null) => void)} [encoding]
   * @param {(error?: Error|null) => void} [done]
   * @returns {boolean}
   */
  write(data, encoding, done) {
    if (typeof encoding === 'function') return this.write(data, undefined, encoding);
    if (this.writableEnded || this.destroyed) {
      const error = Object.assign(
        new Error(
          this.destroyed ? 'Cannot call write after a stream was destroyed' : 'write after end',
        ),
        { code: this.destroyed ? 'ERR_STREAM_DESTROYED' : 'ERR_STREAM_WRITE_AFTER_END' },
      );
      process.nextTick(() => {
        done?.(error);
        if (!this.destroyed) this.destroy(error);
      });
      return false;
    }
    const bytes = typeof data === 'string' ? Buffer.from(data, encoding) : asBuffer(data);
    this.bytesWritten += bytes.length;
    this.#awake();
    if (this.connecting || this.#backlog.length > 0 || this.underWay >= this.network.windowBytes) {
      this.writableLength += bytes.length;
      this.#backlog.push({ bytes, done });
    } else {
      this.#send(bytes);
      if (done) process.nextTick(done, null);
    }
    this.writableNeedDrain = this.writableLength >= HIGH_WATER_MARK;
    return !this.writableNeedDrain;
  }

  /** @param {any} [data] @param {any} [encoding] @param {any} [done] @returns {this} */
  end(data, encoding, done) {
    if (typeof data === 'function') return this.end(undefined, undefined, data);
    if (typeof encoding === 'function') return this.end(data, undefined, encoding);
    if (data !== undefined && data !== null && !this.writableEnded) this.write(data, encoding);
    if (done) this.once('finish', done);
    if (this.writableEnded || this.destroyed) return this;
    this.writableEnded = true;
    this.writable = false;
    this.#finish();
    return this;
  }

  /** Sends the end, if nothing waits. */
  #finish() {
    if (!this.writableEnded || this.writableFinished || this.connecting) return;
    if (this.#backlog.length > 0 || this.destroyed) return;
    this.writableFinished = true;
    this.network.send(this, EMPTY, true);
    process.nextTick(() => {
      this.emit('finish');
      this.#closeIfDone();
    });
  }

  /** @param {Buffer} bytes */
  #send(bytes) {
    if (bytes.length === 0) return;
    this.underWay += bytes.length;
    this.network.send(this, bytes, false);
  }

  /** Sends what waited for the window, or for the connection. */
  goOn() {
    const { length } = this.#backlog;
    const { windowBytes } = this.network;
    while (this.#backlog.length > 0 && this.underWay < windowBytes && !this.destroyed) {
      const { bytes, done } = /** @type {Waiting} */ (this.#backlog.shift());
      this.writableLength -= bytes.length;
      this.#send(bytes);
      if (done) process.nextTick(done, null);
    }
    if (this.writableNeedDrain && this.writableLength === 0 && length > 0) {
      this.writableNeedDrain = false;
      process.nextTick(() => this.destroyed || this.emit('drain'));
    }
    this.#finish();
  }

  /** The peer has read bytes. @param {number} count */
  acknowledge(count) {
    this.underWay -= count;
    const { owner, network } = this;
    if (this.#backlog.length === 0 || this.destroyed) return;
    network.simulator.schedule(network.latency(this.toHost, this.fromHost), owner, () =>
      this.goOn(),
    );
  }

  /** Bytes arrive. @param {Parcel} parcel */
  arrive({ bytes, isEnd }) {
    if (this.destroyed) {
      const count = bytes.reduce((sum, { length }) => sum + length, 0);
      // The kernel of a closed socket answers with a reset.
      if (count > 0 && this.peer !== null) this.network.reset(this);
      return;
    }
    this.#awake();
    for (const chunk of bytes) {
      this.#unread.push(chunk);
      this.readableLength += chunk.length;
      this.bytesRead += chunk.length;
    }
    if (isEnd) this.#hasEnd = true;
    if (this.readableFlowing) this.#flow();
    else if (this.listenerCount('readable') > 0) this.emit('readable');
  }

  #flow() {
    while (this.readableFlowing && !this.destroyed && this.#unread.length > 0) {
      const chunk = this.#take();
      this.emit('data', chunk);
    }
    if (this.readableFlowing && this.#unread.length === 0) this.#end();
  }

  /** @returns {Buffer} unread bytes, as one read of Node takes them */
  #take() {
    const chunks = this.#unread;
    let count = 1;
    let size = chunks[0].length;
    while (count < chunks.length && size + chunks[count].length <= READ_BYTES)
      size += chunks[count++].length;
    const taken = chunks.splice(0, count);
    this.readableLength -= size;
    this.peer?.acknowledge(size);
    return count === 1 ? taken[0] : Buffer.concat(taken);
  }

  #end() {
    if (!this.#hasEnd || this.readableEnded || this.destroyed) return;
    this.readableEnded = true;
    this.readable = false;
    this.emit('end');
    if (!this.allowHalfOpen) this.end();
    this.#closeIfDone();
  }

  #closeIfDone() {
    if (this.readableEnded && this.writableFinished) this.destroy();
  }

  /** @returns {Buffer|null} */
  read() {
    if (this.#unread.length === 0) {
      this.#end();
      return null;
    }
    return this.#take();
  }

  /** Puts bytes back. @param {Buffer} bytes */
  unshift(bytes) {
    if (bytes.length === 0) return;
    // They have been acknowledged.
    if (this.peer) this.peer.underWay += bytes.length;
    this.#unread.unshift(bytes);
    this.readableLength += bytes.length;
  }

  pause() {
    this.readableFlowing = false;
    return this;
  }

  isPaused() {
    return this.readableFlowing === false;
  }

  resume() {
    this.readableFlowing = true;
    if (this.#isFlowPlanned) return this;
    this.#isFlowPlanned = true;
    process.nextTick(() => {
      this.#isFlowPlanned = false;
      if (this.readableFlowing) this.#flow();
    });
    return this;
  }

  /** Another part reads from now on: the next listener of `data` starts the flow. */
  handOver() {
    this.readableFlowing = null;
  }

  /** @param {Error|null} [error] */
  destroy(error = null) {
    if (this.destroyed) return this;
    this.#release();
    if (this.peer !== null) {
      // Bytes that the application has not read turn the end into a reset.
      if (this.readableLength > 0) this.network.reset(this);
      else if (!this.writableFinished) this.network.send(this, EMPTY, true);
    }
    this.#emitClose(error);
    return this;
  }

  /** Discards what has not reached the peer. */
  resetAndDestroy() {
    if (this.destroyed) return this;
    this.#release();
    for (const parcel of this.kept.splice(0)) parcel.bytes = [];
    if (this.peer !== null) this.network.reset(this);
    this.#emitClose(null);
    return this;
  }

  /** The peer has reset the connection. @param {string} [code] */
  failWith(code = 'ECONNRESET') {
    if (this.destroyed) return;
    this.#release();
    this.#emitClose(socketError(code));
  }

  /** The process has died: the kernel closes the socket. */
  abandon() {
    if (this.destroyed) return;
    this.#release();
    this.closed = true;
    this.network.forget(this);
    if (this.peer === null) return;
    // Nobody will read what is under way to it.
    if (this.peer.underWay > 0) this.network.reset(this);
    else if (!this.writableFinished) this.network.send(this, EMPTY, true);
  }

  #release() {
    this.destroyed = true;
    this.readable = false;
    this.writable = false;
    this.connecting = false;
    clearTimeout(this.#timer);
    this.owner.sockets.delete(this);
    this.writableLength = 0;
  }

  /** @param {Error|null} error */
  #emitClose(error) {
    this.errored = error;
    const waiting = this.#backlog.splice(0);
    process.nextTick(() => {
      for (const { done } of waiting) done?.(error ?? socketError('ERR_STREAM_DESTROYED', 'write'));
      if (error !== null) this.emit('error', error);
      this.closed = true;
      this.emit('close', error !== null);
    });
  }
}

/** @param {Uint8Array} data */
function asBuffer(data) {
  return Buffer.isBuffer(data) ? data : Buffer.from(data.buffer, data.byteOffset, data.byteLength);
}
