// feed-stream.js: a stream that ws or Node's HTTP server reads instead of a socket. Both accept any
// Duplex. The owner feeds bytes; writes go to the socket.

import { Duplex } from 'node:stream';

/** @import { Socket } from 'node:net' */

export class FeedStream extends Duplex {
  /** @param {Socket} socket */
  constructor(socket) {
    super({ allowHalfOpen: socket.allowHalfOpen });
    this.socket = socket;
    /** Delays the end until all bytes are fed. */
    this.isHeld = false;
    this.hasEnded = false;
    this.isAbandoned = false;
    this.onEnd = () => {
      this.hasEnded = true;
      if (!this.isHeld) this.push(null);
    };
    this.onClose = () => this.destroy();
    this.onTimeout = () => void this.emit('timeout');
    this.onError = (/** @type {Error} */ error) => this.destroy(error);
    // Readers add their own listeners. Before that, an error would end the process.
    this.on('error', () => {});
    socket.on('end', this.onEnd);
    socket.on('close', this.onClose);
    socket.on('error', this.onError);
    socket.on('timeout', this.onTimeout);
  }

  get remoteAddress() {
    return this.socket.remoteAddress;
  }

  /** Node reads this property of a TLSSocket. */
  get encrypted() {
    return 'encrypted' in this.socket;
  }

  /** ws and Node's HTTP server call it if it is there. @param {number} ms */
  setTimeout(ms) {
    this.socket.setTimeout(ms);
  }

  /** @param {boolean} [on] */
  setNoDelay(on) {
    this.socket.setNoDelay(on);
  }

  /** Ends the stream, then destroys it, as a socket does. */
  destroySoon() {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  /** Passes bytes on before it returns, unless paused. @param {Buffer} bytes */
  feed(bytes) {
    // A stream that was never read passes its first bytes on later.
    if (!this.readableDidRead) this.read(0);
    this.push(bytes);
  }

  /** Stops reading the socket, and delays its end, because bytes are waiting. */
  hold() {
    this.isHeld = true;
    this.socket.pause();
  }

  /** No bytes are waiting any more. */
  unhold() {
    this.isHeld = false;
    if (this.hasEnded) this.push(null);
    else this.socket.resume();
  }

  release() {
    const { socket } = this;
    socket.removeListener('end', this.onEnd);
    socket.removeListener('close', this.onClose);
    socket.removeListener('error', this.onError);
    socket.removeListener('timeout', this.onTimeout);
  }

  /** Releases the socket, and ends for the reader, which then frees its own objects. */
  abandon() {
    this.release();
    this.isAbandoned = true;
    this.destroy();
  }

  /** @override The owner pushes the bytes. */
  _read() {}

  /**
   * @override @param {Buffer} bytes @param {BufferEncoding} encoding
   * @param {(error?: Error|null) => void} done
   */
  _write(bytes, encoding, done) {
    this.socket.write(bytes, encoding, done);
  }

  /**
   * Sends several writes together, such as ws makes for a close frame.
   * @override @param {{chunk: Buffer}[]} writes @param {(error?: Error|null) => void} done
   */
  _writev(writes, done) {
    this.socket.write(Buffer.concat(writes.map(({ chunk }) => chunk)), done);
  }

  /** @override @param {(error?: Error|null) => void} done */
  _final(done) {
    this.socket.end(done);
  }

  /** @override @param {Error|null} error @param {(error?: Error|null) => void} done */
  _destroy(error, done) {
    if (!this.isAbandoned) this.socket.destroy(error ?? undefined);
    done(error);
  }
}
