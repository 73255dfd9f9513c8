// clientless.js: the transport of a member without a client. Such a member only watches a room, or
// collects its messages for a connection.

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
