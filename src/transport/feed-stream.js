// feed-stream.js: a stream that ws or Node's HTTP server reads instead of a socket: both accept any
// Duplex. Its owner pushes bytes into it, and writes go to the socket.

import { Duplex } from 'node:stream';

/** @import { Socket } from 'node:net' */

export class FeedStream extends Duplex {
  /** @param {Socket} socket */
  constructor(socket) {
    super({ allowHalfOpen: socket.allowHalfOpen });
    this.socket = socket;
    /** If true, the end of the socket waits until all bytes are fed. */
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
    // Readers add their own listeners. Without any, an error would end the process.
    this.on('error', () => {});
    socket.on('end', this.onEnd);
    socket.on('close', this.onClose);
    socket.on('error', this.onError);
    socket.on('timeout', this.onTimeout);
  }

  /** The address of the peer, for admission and for logs. */
  get remoteAddress() {
    return this.socket.remoteAddress;
  }

  /** Whether the client uses TLS, as sockets of TLS have it. */
  get encrypted() {
    return 'encrypted' in this.socket;
  }

  /** ws and Node's HTTP server set time-outs if the stream supports them. @param {number} ms */
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
    // If the stream has never been read, it would pass on the first bytes in a later step.
    if (!this.readableDidRead) this.read(0);
    this.push(bytes);
  }

  /** Bytes of the socket wait: stops reading the socket, and delays its end. */
  hold() {
    this.isHeld = true;
    this.socket.pause();
  }

  /** No bytes of the socket wait any longer. */
  unhold() {
    this.isHeld = false;
    if (this.hasEnded) this.push(null);
    else this.socket.resume();
  }

  /** Lets go of the socket. Another reader and writer takes it from now on. */
  release() {
    const { socket } = this;
    socket.removeListener('end', this.onEnd);
    socket.removeListener('close', this.onClose);
    socket.removeListener('error', this.onError);
    socket.removeListener('timeout', this.onTimeout);
  }

  /** Lets go of the socket, and ends for its reader, which then frees its own objects. */
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
   * Several writes at once, as ws makes for a close frame, leave together.
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
