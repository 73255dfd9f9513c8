// batch.js: publications of one room and tick that share a message, and their framing: on a
// channel of Redis, in its streams, and between a worker and the relay of the embedded backend.
//   publication   u32 length (big-endian), the publication's bytes
//   reference     u32 length with the top bit set, an id (ASCII): the publication was too large for
//                 pub/sub and is stored under this id, or in its room's history if the id is empty
//   position      u32 length with the second bit set, the position (protocol/position.js) of the next
//                 publication. Rooms with history begin with one; offsets after it are consecutive
//   version       u32: both top bits, and a version from 2 to 65535. All that follows has that version
//
// A message without a version item has version 1. In version 2, publications may have an audience:
// a version item stands before each of them, so that readers of version 1 stop there. A reader
// stops at a version that it does not know. docs/architecture/versions.md has the rules.
//
// redis/lua/batch.lua writes the same framing. Other programs may publish on the channels in Redis,
// so a BatchReader never throws and never reads past the end.

import {
  EPOCH_BYTES,
  isEpoch,
  POSITION_BYTES,
  readEpoch,
  readOffset,
} from '../protocol/position.js';
import { isRestricted } from '../protocol/publication.js';

export const HEAD_BYTES = 4;
const REFERENCE = 0x80000000;
const POSITION = 0x40000000;
const VERSION = 0xc0000000;
const MAX_VERSION = 0xffff;
/** The version of messages with an audience. */
const RESTRICTED_VERSION = VERSION + 2;
export const POSITION_ITEM_BYTES = HEAD_BYTES + POSITION_BYTES;
/** The longest id; a UUID has 36 bytes. */
const MAX_ID_BYTES = 64;

/** @param {Buffer} buffer @param {number} at @param {Buffer} publication @returns its end */
export function writePublication(buffer, at, publication) {
  buffer.writeUInt32BE(publication.length, at);
  return at + HEAD_BYTES + publication.copy(buffer, at + HEAD_BYTES);
}

/** Bytes of `writeVersioned`. @param {Buffer} publication */
export function versionedBytes(publication) {
  return (isRestricted(publication) ? 2 * HEAD_BYTES : HEAD_BYTES) + publication.length;
}

/**
 * Writes a publication for readers that may have another version.
 * @param {Buffer} buffer @param {number} at @param {Buffer} publication @returns its end
 */
export function writeVersioned(buffer, at, publication) {
  const start = isRestricted(publication) ? buffer.writeUInt32BE(RESTRICTED_VERSION, at) : at;
  return writePublication(buffer, start, publication);
}

/** @param {Buffer} buffer @param {number} at @returns {number} the end of the item */
export function writePositionHead(buffer, at) {
  buffer.writeUInt32BE(POSITION + POSITION_BYTES, at);
  return at + POSITION_ITEM_BYTES;
}

/**
 * Counts the publications in a batch.
 * @param {Buffer} buffer @param {number} at the start of its first item
 * @param {number} end @returns {number} 0 if it is empty or has other items
 */
export function countPublications(buffer, at, end) {
  let count = 0;
  let next = at;
  for (; next + HEAD_BYTES <= end; count++) next += HEAD_BYTES + buffer.readUInt32BE(next);
  return next === end ? count : 0;
}

/**
 * @param {string} id @param {Buffer} [publication] stored under it
 * @returns {Buffer} a message with one reference
 */
export function encodeReference(id, publication) {
  const at = publication !== undefined && isRestricted(publication) ? HEAD_BYTES : 0;
  const message = Buffer.allocUnsafe(at + HEAD_BYTES + id.length);
  if (at > 0) message.writeUInt32BE(RESTRICTED_VERSION, 0);
  message.writeUInt32BE(REFERENCE + id.length, at);
  message.write(id, at + HEAD_BYTES, 'latin1');
  return message;
}

/** Reads one message. A cursor instead of callbacks keeps the stack shallow on the hot path. */
export class BatchReader {
  /** @param {Buffer} message @param {number} [at] @param {number} [end] */
  constructor(message, at = 0, end = message.length) {
    this.message = message;
    this.end = end;
    /** Bytes of the item that `next` found: a slice of the message. @type {Buffer|null} */
    this.publication = null;
    /** If `publication` is null: the id of a reference. */
    this.id = '';
    /** Position of the item; 0 without one. */
    this.offset = 0;
    this.epoch = '';
    this.isMalformed = false;
    /** The version of the message from here on, if this server does not know it; else 0. */
    this.unknownVersion = 0;
    this.at = at;
    this.nextOffset = 0;
  }

  /** @returns {boolean} false at the end, after malformed bytes, or for an unknown version */
  next() {
    const { message, end: length } = this;
    while (this.at + HEAD_BYTES <= length) {
      const head = message.readUInt32BE(this.at);
      const start = this.at + HEAD_BYTES;
      if (head < POSITION) {
        const end = start + head;
        if (end > length) return this.#fail();
        this.publication = message.subarray(start, end);
        return this.#advance(end);
      }
      if (head === RESTRICTED_VERSION) {
        this.at = start;
        continue;
      }
      if (head > VERSION && head <= VERSION + MAX_VERSION) {
        this.unknownVersion = head - VERSION;
        return false;
      }
      if (head >= REFERENCE) {
        const end = start + head - REFERENCE;
        if (end > length || end - start > MAX_ID_BYTES) return this.#fail();
        this.publication = null;
        this.id = message.toString('latin1', start, end);
        return this.#advance(end);
      }
      const end = start + POSITION_BYTES;
      if (head !== POSITION + POSITION_BYTES || end > length) return this.#fail();
      this.epoch = readEpoch(message, start);
      this.nextOffset = readOffset(message, start + EPOCH_BYTES);
      const isOffset = this.nextOffset > 0 && Number.isSafeInteger(this.nextOffset);
      if (!isOffset || !isEpoch(this.epoch)) return this.#fail();
      this.at = end;
    }
    return this.at === length ? false : this.#fail();
  }

  /** @param {number} end of the item */
  #advance(end) {
    this.at = end;
    if (this.nextOffset > 0) this.offset = this.nextOffset++;
    return true;
  }

  #fail() {
    this.isMalformed = true;
    return false;
  }
}
