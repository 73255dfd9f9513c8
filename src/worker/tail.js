// tail.js: watches one room for an operator.
//
// It is a member without a client: it gets what members get, in their order, and no count includes
// it. Its lines are bounded in number and bytes a second; those beyond the bounds are only counted.

import { Clientless } from '../hub/clientless.js';
import { Connection } from '../hub/connection.js';
import { EVERY_AUDIENCE } from '../protocol/audiences.js';
import { FORMAT } from '../protocol/format.js';
import { readHeader } from '../protocol/frame.js';

const FLUSH_MS = 250;
/** The bounds for each FLUSH_MS: 80 lines and 128 KB a second. */
const MAX_LINES = 20;
const MAX_BYTES = 32_768;
/** The part of a long publication that an operator sees. */
const MAX_TEXT_BYTES = 4096;

/** @import { Transport } from '../hub/connection.js' */
/** @import { TailLine } from './control-messages.js' */

/** @implements {Transport} */
export class Tail extends Clientless {
  /** @type {TailLine[]} */
  #lines = [];
  #bytes = 0;
  #left = 0;
  /** @type {import('../hub/room.js').HubRoom|undefined} */
  #watched;

  /**
   * @param {object} parts @param {import('../hub/hub.js').Hub} parts.hub @param {string} parts.room
   * @param {(lines: TailLine[], left: number) => void} parts.onLines gets the lines of FLUSH_MS,
   *   and the number of publications left out; once without any when the tail begins
   * @param {() => void} parts.onEnd the broker has refused the subscription
   */
  constructor({ hub, room, onLines, onEnd }) {
    super(FORMAT.OPERATOR);
    this.hub = hub;
    this.room = room;
    this.onLines = onLines;
    this.onEnd = onEnd;
    this.connection = new OperatorConnection(this, '');
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  start() {
    this.#watched = this.hub.openRoom(this.room);
    this.hub.watch(this.connection, this.#watched, {
      onJoined: () => {
        if (this.connection.isOpen) this.onLines([], 0);
      },
      onRefused: () => {
        this.close();
        this.onEnd();
      },
    });
    this.timer = setInterval(() => this.#flush(), FLUSH_MS);
    this.timer.unref();
  }

  /** @override */
  close() {
    clearInterval(this.timer);
    const room = this.#watched;
    if (room === undefined) return;
    this.#watched = undefined;
    this.hub.unwatch(this.connection, room);
  }

  /** @override @param {Buffer} frames */
  write(frames) {
    for (let at = 0; at < frames.length; ) {
      const { start, length } = readHeader(frames, at);
      at = start + length;
      if (this.#lines.length >= MAX_LINES || this.#bytes >= MAX_BYTES) {
        this.#left++;
        continue;
      }
      const shown = Math.min(length, MAX_TEXT_BYTES);
      this.#bytes += shown;
      this.#lines.push({ text: frames.toString('utf8', start, start + shown), bytes: length });
    }
  }

  /** @param {unknown} error */
  failed(error) {
    this.hub.onFailed(this.connection, error);
  }

  #flush() {
    if (this.#lines.length === 0 && this.#left === 0) return;
    this.onLines(this.#lines, this.#left);
    this.#lines = [];
    this.#bytes = 0;
    this.#left = 0;
  }
}

/** Sees every message. */
class OperatorConnection extends Connection {
  /** @override */
  audiencesIn() {
    return EVERY_AUDIENCE;
  }
}
