// fake-socket.js: a socket without a network. A test pushes the bytes that a server reads, and
// keeps the bytes that it writes.

import { Duplex } from 'node:stream';

export class FakeSocket extends Duplex {
  remoteAddress = '127.0.0.1';
  /** As of a socket that is destroyed: nothing may be written past its stream. */
  _handle = null;
  bytesWritten = 0;
  /** @type {Buffer[]} */
  #written = [];

  constructor() {
    super({ allowHalfOpen: true });
    this.on('error', () => {});
  }

  /** @override */
  _read() {}

  /** @override @param {Buffer} chunk @param {string} _encoding @param {() => void} done */
  _write(chunk, _encoding, done) {
    this.#written.push(Buffer.from(chunk));
    this.bytesWritten += chunk.length;
    done();
  }

  get written() {
    return Buffer.concat(this.#written);
  }

  /**
   * @param {number} a position of the cut, if any
   * @param {Buffer} bytes
   */
  feed(bytes, a) {
    if (this.destroyed) return;
    const at = a % (2 * bytes.length + 1);
    // Half of them come whole.
    if (at === 0 || at >= bytes.length) this.push(bytes);
    else {
      this.push(bytes.subarray(0, at));
      this.push(bytes.subarray(at));
    }
  }

  // The methods of a net.Socket that servers call.
  setTimeout() {
    return this;
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

  destroySoon() {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  resetAndDestroy() {
    return this.destroy();
  }
}
