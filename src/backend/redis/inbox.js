// inbox.js: turns Redis messages into publications, in the room's order.
//
// Most publications are delivered at once. After a reference, later publications of its room wait
// until its body is fetched; time and bytes are bounded. If the fetch fails, the publication is
// skipped. In rooms with history the offsets show the gap.

import { setTimeout as delay } from 'node:timers/promises';
import { BatchReader } from '../batch.js';
import { CHANNEL_KIND } from './keys.js';

const FETCH_TIMEOUT_MS = 3000;
const RETRY_MS = 100;
const MAX_FETCHES = 16;
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Memory of a held publication, in addition to its bytes. */
const OVERHEAD_BYTES = 128;

/**
 * @typedef {{body: Buffer|null, isHere: boolean, bytes: number, offset: number, epoch: string}}
 *   Held
 */

export class Inbox {
  /**
   * @param {object} parts @param {import('./keys.js').Keys} parts.keys
   * @param {BrokerEvents['onPublication']} [parts.deliver]
   * @param {(room: string, offset: number, epoch: string) => void} [parts.onNumbered] called before
   *   each publication with an offset
   * @param {(channel: Buffer, message: Buffer) => void} [parts.onOther] called for messages on
   *   channels that are not a room's
   * @param {(room: string, id: string, offset: number, epoch: string) => Promise<Buffer|null>}
   *   parts.fetch fetches the body of a reference
   * @param {(reason: string) => void} parts.onSkipped this worker lost a publication
   * @param {(channel: string) => void} parts.onMalformed a message was malformed; publications
   *   before the fault were delivered
   * @param {(room: string, version: number) => void} parts.onUnknown the same for unknown versions
   */
  constructor({ keys, deliver, onNumbered, onOther, fetch, onSkipped, onMalformed, onUnknown }) {
    this.keys = keys;
    this.deliver = deliver ?? (() => {});
    this.onNumbered = onNumbered ?? (() => {});
    this.onOther = onOther ?? (() => {});
    this.fetch = fetch;
    this.onSkipped = onSkipped;
    this.onMalformed = onMalformed;
    this.onUnknown = onUnknown;
    /** The queues of rooms that wait for a body. @type {Map<string, Held[]>} */
    this.held = new Map();
    this.heldBytes = 0;
    this.fetches = 0;
    /** Waiting fetches. @type {(() => void)[]} */
    this.turns = [];
    this.isClosed = false;
    this.receive = this.receive.bind(this);
  }

  /** @param {BrokerEvents['onPublication']} deliver */
  listen(deliver) {
    this.deliver = deliver;
  }

  /** Hot path. @param {Buffer} channel @param {Buffer} message */
  receive(channel, message) {
    const { keys } = this;
    if (keys.kindOf(channel) !== CHANNEL_KIND.ROOM) {
      this.onOther(channel, message);
      return;
    }
    const room = keys.roomOfRedisChannel(channel);
    const batch = new BatchReader(message);
    while (batch.next()) {
      const { publication, offset, epoch } = batch;
      if (publication === null) this.#reference(room, batch.id, offset, epoch);
      else if (this.held.has(room)) this.#wait(room, publication, offset, epoch);
      else {
        if (offset > 0) this.onNumbered(room, offset, epoch);
        this.deliver(room, publication, offset, epoch);
      }
    }
    if (batch.isMalformed) this.onMalformed(`room ${room}`);
    if (batch.unknownVersion > 0) this.onUnknown(room, batch.unknownVersion);
  }

  /** @param {string} room @param {Buffer} publication @param {number} offset @param {string} epoch */
  #wait(room, publication, offset, epoch) {
    const bytes = publication.length + OVERHEAD_BYTES;
    if (!this.#hold(bytes)) return;
    // A slice would keep its whole read buffer alive.
    const body = Buffer.from(publication);
    this.held.get(room)?.push({ body, isHere: true, bytes, offset, epoch });
  }

  /** @param {string} room @param {string} id @param {number} offset @param {string} epoch */
  #reference(room, id, offset, epoch) {
    if (!this.#hold(OVERHEAD_BYTES)) return;
    const queue = this.held.get(room) ?? [];
    this.held.set(room, queue);
    /** @type {Held} */
    const item = { body: null, isHere: false, bytes: OVERHEAD_BYTES, offset, epoch };
    queue.push(item);
    this.#body(room, id, offset, epoch).then((body) => {
      item.body = body;
      item.isHere = true;
      if (body !== null) {
        item.bytes += body.length;
        this.heldBytes += body.length;
      }
      this.#release(room, queue);
    });
  }

  /** @param {number} bytes @returns whether they fit */
  #hold(bytes) {
    if (this.heldBytes + bytes > MAX_HELD_BYTES) {
      this.onSkipped('too many bytes are waiting for the bodies of large publications');
      return false;
    }
    this.heldBytes += bytes;
    return true;
  }

  /** Delivers what no longer waits. @param {string} room @param {Held[]} queue */
  #release(room, queue) {
    let here = 0;
    while (here < queue.length && queue[here].isHere) here++;
    // Removed first, so that publications that arrive during `deliver` stay in order.
    const ready = queue.splice(0, here);
    if (queue.length === 0) this.held.delete(room);
    for (const { body, bytes, offset, epoch } of ready) {
      this.heldBytes -= bytes;
      if (body === null || this.isClosed) continue;
      if (offset > 0) this.onNumbered(room, offset, epoch);
      this.deliver(room, body, offset, epoch);
    }
  }

  /**
   * @param {string} room @param {string} id @param {number} offset @param {string} epoch
   * @returns {Promise<Buffer|null>} null if it was not found in time; never rejects
   */
  async #body(room, id, offset, epoch) {
    const end = performance.now() + FETCH_TIMEOUT_MS;
    if (this.fetches >= MAX_FETCHES)
      await new Promise((resolve) => this.turns.push(() => resolve(undefined)));
    this.fetches++;
    let reason = 'its body arrived too late';
    try {
      while (performance.now() < end && !this.isClosed) {
        try {
          const body = await this.fetch(room, id, offset, epoch);
          if (body !== null) return body;
          reason = 'its body is no longer in Redis';
          break;
        } catch (error) {
          reason = /** @type {Error} */ (error).message;
          await delay(RETRY_MS, undefined, { ref: false });
        }
      }
      this.onSkipped(reason);
      return null;
    } finally {
      this.fetches--;
      this.turns.shift()?.();
    }
  }

  close() {
    this.isClosed = true;
  }
}

/** @import { BrokerEvents } from '../broker.js' */
