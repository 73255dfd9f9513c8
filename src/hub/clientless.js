// clientless.js: the transport of members without a client, which watch a room, or collect its
// messages for a connection.

import { NATIVE_TEXTS } from '../protocol/door-texts.js';

export class Clientless {
  pendingBytes = 0;
  door = NATIVE_TEXTS;

  /** @param {number} format of the frames that it takes */
  constructor(format) {
    this.format = format;
  }

  /** @param {Buffer} _frames */
  write(_frames) {}
  whenDrained() {}
  sendText() {}
  sendAround() {}
  sendShutdown() {
    return true;
  }
  ping() {}
  terminate() {}
  close() {}
}
