// fake-transport.js: a transport for the hub's unit tests. It keeps all written frames, and a test
// can make it lag.

import { NATIVE_TEXTS } from '../../src/protocol/door-texts.js';
import { FORMAT } from '../../src/protocol/format.js';
import { frameAround, textFrame } from '../../src/protocol/frame.js';

/** @typedef {import('../../src/hub/connection.js').Transport} Transport */

/** @implements {Transport} */
export class FakeTransport {
  constructor() {
    /** @type {Buffer[]} */
    this.writes = [];
    this.pendingBytes = 0;
    /** @type {number} */
    this.format = FORMAT.FRAMES;
    /** @type {import('../../src/protocol/door-texts.js').DoorTexts} */
    this.door = NATIVE_TEXTS;
    this.isStuck = false;
    /**
     * The real transport has them too; buildHub sets them.
     * @type {import('../../src/hub/slow-consumers.js').SlowConsumers|null}
     */
    this.slowConsumers = null;
    /** @type {import('../../src/hub/hub.js').Hub|null} */
    this.hub = null;
    /** @type {import('../../src/hub/connection.js').Connection|null} */
    this.connection = null;
    /** @type {(() => void)[]} */
    this.onDrained = [];
    this.pings = 0;
    /** @type {unknown[]} */
    this.failures = [];
    /** @type {{code: number, reason: string}|null} */
    this.closed = null;
    this.terminated = false;
  }

  /** @param {Buffer} frames */
  write(frames) {
    const { connection, isStuck, slowConsumers } = this;
    if (isStuck && connection !== null && slowConsumers?.queue(connection, frames.length) === false)
      return;
    this.writes.push(frames);
    if (this.isStuck) this.pendingBytes += frames.length;
  }

  /** @param {() => void} act */
  whenDrained(act) {
    this.onDrained.push(act);
  }

  /** The kernel takes all bytes that wait. @param {boolean} [isStuck] and none that follow */
  drain(isStuck = false) {
    this.pendingBytes = 0;
    this.isStuck = isStuck;
    for (const act of this.onDrained.splice(0)) act();
  }

  /** @param {string} text */
  sendText(text) {
    this.write(textFrame(text));
  }

  /** @param {number} reconnectAfterMs */
  sendShutdown(reconnectAfterMs) {
    const text = this.door.encodeShutdown(reconnectAfterMs);
    if (text !== null) this.sendText(text);
    return text !== null;
  }

  /**
   * @param {Buffer} before
   * @param {Buffer} source
   * @param {number} start
   * @param {number} end
   * @param {string} after
   */
  sendAround(before, source, start, end, after) {
    this.write(frameAround(before, source, start, end, after));
  }

  /** @param {number} code @param {string} reason */
  close(code, reason) {
    this.closed = { code, reason };
  }

  /** @param {unknown} error */
  failed(error) {
    this.failures.push(error);
    if (this.connection !== null) this.hub?.onFailed(this.connection, error);
  }

  terminate() {
    this.terminated = true;
  }

  ping() {
    this.pings++;
  }

  /** Everything written, as parsed messages. */
  messages() {
    return messagesOf(Buffer.concat(this.writes));
  }
}

/** The text messages of unmasked, unfragmented frames. @param {Buffer} bytes @returns {any[]} */
export function messagesOf(bytes) {
  const messages = [];
  let at = 0;
  while (at < bytes.length) {
    if (bytes[at] !== 0x81) throw new Error(`no text frame at ${at}`);
    let length = bytes[at + 1];
    at += 2;
    if (length === 126) {
      length = bytes.readUInt16BE(at);
      at += 2;
    } else if (length === 127) {
      length = Number(bytes.readBigUInt64BE(at));
      at += 8;
    }
    messages.push(JSON.parse(bytes.toString('utf8', at, at + length)));
    at += length;
  }
  return messages;
}
