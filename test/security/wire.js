// wire.js: a WebSocket client that sends any bytes, in any pieces, and notes the frames that come
// back.

import { connect } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { closeCode, FrameParser, frame, OPCODES } from '../helpers/raw-frames.js';
import { handshake } from '../helpers/raw-http.js';

const TIMEOUT_MS = 10_000;

/** A close frame as a well-behaved client sends it. */
export const GOODBYE = frame(OPCODES.close, Buffer.from([0x03, 0xe8]));

/**
 * @typedef {{status: number, close: number, texts: string[], pongs: string[], other: number[]}}
 *   Heard
 */

/**
 * @param {string|object} message
 * @returns {Buffer} its frame
 */
export function text(message) {
  return frame(OPCODES.text, typeof message === 'string' ? message : JSON.stringify(message));
}

export class Wire {
  /** @type {Heard} */
  heard = { status: 0, close: 0, texts: [], pongs: [], other: [] };
  isClosed = false;
  #head = '';
  /** @type {Set<() => void>} */
  #waiting = new Set();

  /** @param {number} port @param {{localAddress?: string, request?: string|Buffer}} [options] */
  constructor(port, { localAddress, request = handshake() } = {}) {
    const parser = new FrameParser(({ opcode, body }) => {
      const { heard } = this;
      if (opcode === OPCODES.text) heard.texts.push(body.toString());
      else if (opcode === OPCODES.pong) heard.pongs.push(body.toString());
      else if (opcode === OPCODES.close) {
        heard.close = closeCode(body);
        if (this.socket.writable) this.socket.write(GOODBYE); // RFC 6455 5.5.1: it is answered
      } else heard.other.push(opcode);
    });
    this.socket = connect({ port, host: '127.0.0.1', localAddress, noDelay: true });
    this.socket.on('data', (bytes) => {
      if (this.heard.status === 101) parser.push(bytes);
      else {
        this.#head += bytes.toString('latin1');
        const end = this.#head.indexOf('\r\n\r\n');
        if (end < 0) return;
        this.heard.status = Number(this.#head.slice(9, 12));
        parser.push(Buffer.from(this.#head.slice(end + 4), 'latin1'));
      }
      this.#changed();
    });
    this.socket.on('error', () => {}); // a reset is one of the answers: isClosed tells
    this.socket.on('close', () => {
      this.isClosed = true;
      this.#changed();
    });
    if (request.length > 0) this.socket.write(request);
  }

  /** Resolves when the handshake has been answered. */
  async opened() {
    await this.until(() => this.heard.status !== 0, 'an answer to the handshake');
    return this;
  }

  /** @param {readonly Buffer[]} pieces each its own write, a turn of the event loop apart */
  async send(...pieces) {
    for (const piece of pieces) {
      if (this.socket.destroyed) return;
      this.socket.write(piece);
      if (pieces.length > 1) await turn();
    }
  }

  /**
   * Sends a command and gives the next message.
   * @param {string|object} message @returns {Promise<Record<string, any>>}
   */
  async ask(message) {
    const before = this.heard.texts.length;
    this.socket.write(text(message));
    await this.until(
      () => this.heard.texts.length > before,
      `an answer to ${JSON.stringify(message).slice(0, 200)}`,
    );
    return JSON.parse(this.heard.texts[before]);
  }

  /** @returns {Promise<Heard>} all that came, once the server has closed */
  async ended() {
    await this.until(() => this.isClosed, 'the end of the connection');
    return this.heard;
  }

  /** @param {() => boolean} condition @param {string} what */
  until(condition, what) {
    return /** @type {Promise<void>} */ (
      new Promise((resolve, reject) => {
        const check = () => {
          if (!condition() && !this.isClosed) return;
          this.#waiting.delete(check);
          clearTimeout(timer);
          if (condition()) resolve();
          else
            reject(
              new Error(
                `closed (${this.heard.close}) before ${what}; heard ${JSON.stringify(this.heard)}`,
              ),
            );
        };
        const timer = setTimeout(() => {
          this.#waiting.delete(check);
          reject(
            new Error(
              `${what} did not come within ${TIMEOUT_MS} ms; heard ${JSON.stringify(this.heard)}`,
            ),
          );
        }, TIMEOUT_MS);
        this.#waiting.add(check);
        check();
      })
    );
  }

  destroy() {
    this.socket.destroy();
  }

  #changed() {
    for (const check of [...this.#waiting]) check();
  }
}
