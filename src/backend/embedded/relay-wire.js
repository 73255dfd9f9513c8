// relay-wire.js: the messages between a worker and the relay in the primary, over a Unix socket.
//
// A reload may start workers from newer files under the old primary. So each side begins with
// HELLO, and a worker of another version does not start. The framing and the first field of HELLO
// never change.
//
// A message is its length (u32, big-endian, without these four bytes), one byte for its type, and
// its fields. Rooms and addresses are ASCII. A reply repeats the number of its request.
//
//   worker -> relay                                   relay -> worker
//   HELLO       u32 RELAY_VERSION, u32 pid            HELLO        u32 RELAY_VERSION
//   PUBLISH     u32 publications, u16 length of       PUBLICATION  as PUBLISH or APPEND
//               the room, room, batch
//   SYNC        u32 request                           OUTCOMES     u32 request, outcomes since the last one
//               (its answer confirms every PUBLISH before it)
//   CONTROL     JSON: one of CONTROLS                 CONTROL      JSON
//                                                     REPLY        u32 request, u8 ok, u32 value
//
// batch.js has the form of a batch, which the relay passes on without reading it. In rooms with
// history it begins with a position item, where the relay writes the position of the first
// publication. A KEY makes the PUBLISH or APPEND after it idempotent, and an EXPECT lets the APPEND
// after it depend on the room's position. Such a message has exactly one publication. Each APPEND,
// and each PUBLISH with a KEY, has an outcome: u8 verdict, position.
//   APPEND      as PUBLISH
//   KEY         KEY_LENGTH characters, then the
//               fingerprint of the payload, if it is known
//   EXPECT      position
//   CONTROL     read                                  PAGE         u32 request, position, u64 first offset,
//                                                                  u8 flags, publications
//   CONTROL     who                                   MEMBERS      u32 request, u32 count, u8 listed?,
//                                                                  then for each: u32 length, bytes
//   A position: protocol/position.js.
//
// In a PAGE the length (u32) of each publication comes before it. Flag 1 says that there are older
// ones. In a room with state an APPEND has one publication, and a PAGE differs: the offset (u64) of
// each publication comes before its length, and the floor replaces the first offset. Its flags are
// 2 (the room has state), 4 (the state is whole) and 8 (more publications follow).

import { MODES } from '../../config/settings.js';
import {
  EPOCH_BYTES,
  OFFSET_BYTES,
  POSITION_BYTES,
  readOffset,
  readPosition,
  writeOffset,
  writePosition,
} from '../../protocol/position.js';
import {
  HEAD_BYTES as ITEM_HEAD_BYTES,
  POSITION_ITEM_BYTES,
  writePositionHead,
  writePublication,
} from '../batch.js';
import { entriesIn, publicationsIn } from './histories.js';

/**
 * The version of these messages, and of those in worker/control-messages.js. Raise it when you
 * change, remove or add one (docs/architecture/versions.md).
 */
export const RELAY_VERSION = 9;

export const OP = Object.freeze({
  HELLO: 1,
  PUBLISH: 4,
  SYNC: 5,
  CONTROL: 8,
  KEY: 9,
  APPEND: 10,
  EXPECT: 11,
  REPLY: 16,
  PUBLICATION: 17,
  OUTCOMES: 19,
  PAGE: 20,
  MEMBERS: 36,
});

/**
 * The rare messages, each `{type, ...fields}` in JSON, and the checks of their fields.
 *
 * `acquire` asks for a place of an address, user or app. Its reply says whether it is admitted, and
 * how many connections the key has now. Every second a worker reports how many it has
 * (`held`). If the relay's count differs, it asks for all of them (`tell-places`) and corrects it.
 *
 * With Redis, a worker offers to carry reports between the relay and the other servers
 * (`volunteer`, `carry`, `report`; fleet-places.js). `name` is its session there: when the worker
 * dies, another one removes the session's users (`gone`).
 *
 * A user of a room (`enter`) has a member in base64. `occupy` gives the number of connections of a
 * room or user, which webhooks cover (webhook-reporter.js). The relay answers `who` with MEMBERS,
 * `occupied` with MEMBERS, each `<room> <connections>`, and `read` with a PAGE. It refuses the last
 * two, and answers all others, with a REPLY.
 * @type {Readonly<Record<string, Readonly<Record<string, (value: any) => boolean>>>>}
 */
const CONTROLS = Object.freeze({
  // worker -> relay
  subscribe: { request: isCount, room: isText },
  unsubscribe: { room: isText },
  acquire: { request: isCount, key: isText, cap: isCount, force: isBoolean },
  release: { key: isText },
  enter: { room: isText, user: isText, member: isText },
  exit: { room: isText, user: isText },
  who: { request: isCount, room: isText, isCount: isBoolean },
  occupy: { tag: isText, connections: isCount, isTold: isBoolean },
  vacate: { tag: isText },
  connections: { connections: isCount },
  count: { request: isCount },
  workers: { request: isCount },
  held: { request: isCount, held: isCount, asked: isCount },
  places: { places: isPlaces },
  volunteer: { rules: isRules },
  resign: {},
  'exit-all': {},
  name: { name: isText },
  record: { room: isText, kind: isText, mark: isText, fields: isText, key: isText },
  'connections-in': { request: isCount, room: isText },
  occupied: { request: isCount, prefix: isText, after: isText, limit: isCount },
  // The fields of a ReadRequest.
  read: {
    request: isCount,
    room: isText,
    after: isCount,
    limit: isCount,
    maxBytes: orAbsent(isCount),
    before: orAbsent(isPosition),
    since: orAbsent(isPosition),
    keys: orAbsent(isTexts),
    isForward: orAbsent(isBoolean),
    endedEpoch: orAbsent(isText),
  },
  // in both directions
  report: { report: isText },
  // relay -> worker
  'tell-places': {},
  carry: { isCarrier: isBoolean },
  keep: { key: isText, connections: isCount },
  gone: { name: isText },
});

/** By type. */
const CHECKS = new Map(
  Object.entries(CONTROLS).map(([type, fields]) => [type, Object.entries(fields)]),
);

/**
 * @typedef {{type: 'subscribe'|'connections-in', request: number, room: string}
 *   | {type: 'unsubscribe', room: string} | HistoryRead
 *   | {type: 'enter', room: string, user: string, member: string}
 *   | {type: 'exit', room: string, user: string} | {type: 'exit-all'}
 *   | {type: 'who', request: number, room: string, isCount: boolean}
 *   | {type: 'occupy', tag: string, connections: number, isTold: boolean}
 *   | {type: 'vacate', tag: string} | Occupied | Recorded
 *   | {type: 'connections', connections: number} | {type: 'count'|'workers', request: number}
 *   | {type: 'acquire', request: number, key: string, cap: number, force: boolean}
 *   | {type: 'release', key: string} | {type: 'name', name: string} | Report
 *   | {type: 'held', request: number, held: number, asked: number}
 *   | {type: 'places', places: [address: string, places: Places][]}
 *   | {type: 'volunteer', rules: FleetRules} | {type: 'resign'}} ToRelay
 * @typedef {{type: 'record', room: string, kind: EventType, mark: string, fields: string,
 *   key: string}}
 *   Recorded `key`: as in a KEY, without a fingerprint; empty if there is none
 * @typedef {import('../../config/webhooks.js').EventType} EventType
 * @typedef {{type: 'occupied', request: number} & import('../occupancy.js').RoomPage} Occupied
 * @typedef {{type: 'read', request: number, room: string} & ReadRequest} HistoryRead
 * @typedef {Report | {type: 'tell-places'} | {type: 'carry', isCarrier: boolean}
 *   | {type: 'keep', key: string, connections: number} | {type: 'gone', name: string}} FromRelay
 * @typedef {{type: 'report', report: string}} Report in base64
 */

/** A message's length and type. */
export const HEAD_BYTES = 5;
/** The largest `FANFARE_MAX_MESSAGE_BYTES` and some room. */
export const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;
/** Length of an idempotency key, before its fingerprint. */
export const KEY_LENGTH = 22;
/**
 * ACCEPTED: now, or earlier with the same key; the position is that of the first publication.
 * KEY_CONFLICT: the key has another publication. CONFLICT: the room is not where EXPECT says, but
 * at the position. FULL: the state of the room is full.
 */
export const VERDICT = Object.freeze({ ACCEPTED: 0, KEY_CONFLICT: 1, CONFLICT: 2, FULL: 3 });
/** In a position: without history, or of any epoch. */
const NO_EPOCH = '0'.repeat(EPOCH_BYTES);
const OUTCOME_BYTES = 1 + POSITION_BYTES;
/** In one answer. */
export const MAX_OUTCOMES = 10_000;
const NO_BATCH = -1;

const LENGTH_BYTES = 4;
/** Bounds a batch too, because it ends with its slab. As large as a segment of histories.js. */
export const SLAB_BYTES = 32 * 1024;
const COUNT_BYTES = 4;
/** The count, and the length of the room. */
const BATCH_HEAD_BYTES = COUNT_BYTES + 2;
const NOTHING = Buffer.alloc(0);
const HAS_OLDER = 1;
const STATE = 2;
const WHOLE = 4;
const HAS_MORE = 8;

/** @import { ExpectedPosition, Position } from '../../protocol/position.js' */
/** The epoch is '' without history. @typedef {Position & {verdict: number}} Outcome of VERDICT */
/** @import { HistoryPage, ReadRequest } from '../broker.js' */
/** @import { FleetRules } from '../places.js' */
/** @import { Read } from './histories.js' */

/** A message whose fields contradict its length or the protocol. */
export class MalformedMessage extends Error {}

/** Finds whole messages in the bytes that a socket reads. */
export class MessageReader {
  /**
   * @param {(buffer: Buffer, start: number, end: number) => void} onMessage called with each whole
   *   message, without a copy. The callee may keep and modify only these bytes.
   */
  constructor(onMessage) {
    this.onMessage = onMessage;
    /** Chunks of a message that has not arrived in full. @type {Buffer[]} */
    this.parts = [];
    this.partsBytes = 0;
    this.neededBytes = 0;
  }

  /** @param {Buffer} chunk @throws {RangeError} for an impossible length: close the stream */
  read(chunk) {
    let buffer = chunk;
    if (this.partsBytes > 0) {
      this.parts.push(chunk);
      this.partsBytes += chunk.length;
      // Joined only once, so that a large message is not copied with every chunk.
      if (this.partsBytes < this.neededBytes) return;
      buffer = Buffer.concat(this.parts, this.partsBytes);
      this.parts = [];
      this.partsBytes = 0;
    }
    let at = 0;
    this.neededBytes = LENGTH_BYTES;
    while (buffer.length - at >= LENGTH_BYTES) {
      const length = buffer.readUInt32BE(at);
      if (length === 0 || length > MAX_MESSAGE_BYTES)
        throw new RangeError(`message too large: ${length} bytes`);
      const end = at + LENGTH_BYTES + length;
      if (end > buffer.length) {
        this.neededBytes = LENGTH_BYTES + length;
        break;
      }
      this.onMessage(buffer, at, end);
      at = end;
    }
    if (at === buffer.length) return;
    // A slice of a few bytes would keep the whole chunk alive.
    const rest = Buffer.from(buffer.subarray(at));
    this.parts.push(rest);
    this.partsBytes = rest.length;
  }
}

// Readers. A message's fields start at `at`, and the message ends at `end`.

/** @param {Buffer} buffer @param {number} start */
export function readOp(buffer, start) {
  return buffer[start + LENGTH_BYTES];
}

/** HELLO: version. PUBLISH: count. SYNC: request. @param {Buffer} buffer @param {number} at */
export function readNumber(buffer, at) {
  return buffer.readUInt32BE(at);
}

/**
 * @param {Buffer} buffer @param {number} at @param {number} end @returns {any} ToRelay or FromRelay
 * @throws {MalformedMessage}
 */
export function readControl(buffer, at, end) {
  let message;
  try {
    message = JSON.parse(buffer.toString('utf8', at, end));
  } catch (cause) {
    throw new MalformedMessage('control message is not JSON', { cause });
  }
  const fault = faultOf(message);
  if (fault !== null) throw new MalformedMessage(fault);
  return message;
}

/** @param {any} message @returns {string|null} what is wrong with a control message */
export function faultOf(message) {
  const checks = CHECKS.get(message?.type);
  if (checks === undefined) return 'unknown control message';
  for (const [name, isValid] of checks)
    if (!isValid(message[name])) return `${name} of ${message.type} is invalid`;
  return null;
}

/** @param {any} value */
function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

/** @param {any} value */
function isText(value) {
  return typeof value === 'string';
}

/** @param {any} value */
function isBoolean(value) {
  return typeof value === 'boolean';
}

/** @param {any} value */
function isPlaces(value) {
  return (
    Array.isArray(value) &&
    value.every((one) => isText(one?.[0]) && isCount(one[1]?.held) && isCount(one[1].asked))
  );
}

/** @param {any} value */
function isTexts(value) {
  return Array.isArray(value) && value.every(isText);
}

/** @param {any} value */
function isPosition(value) {
  return isText(value?.epoch) && isCount(value.offset);
}

/** @param {(value: any) => boolean} isValid */
function orAbsent(isValid) {
  return (/** @type {any} */ value) => value === undefined || isValid(value);
}

/** @param {any} rules */
function isRules(rules) {
  return [rules?.address, rules?.user].every(
    (rule) => isCount(rule?.cap) && MODES.includes(rule.mode),
  );
}

/** KEY. @param {Buffer} buffer @param {number} at @param {number} end */
export function readText(buffer, at, end) {
  return buffer.toString('latin1', at, end);
}

/** A worker's places of one address. @typedef {{held: number, asked: number}} Places */

/**
 * REPLY, OUTCOMES, PAGE, MEMBERS.
 * @param {Buffer} buffer @param {number} at @param {number} end
 * @returns {{request: number, ok: boolean, value: number, body: Buffer}} `ok` and `value` for a
 *   REPLY; `body` for the others, whose readers are below
 */
export function readAnswer(buffer, at, end) {
  const request = buffer.readUInt32BE(at);
  if (buffer[at - 1] !== OP.REPLY)
    return { request, ok: true, value: 0, body: buffer.subarray(at + 4, end) };
  return { request, ok: buffer[at + 4] === 1, value: buffer.readUInt32BE(at + 5), body: NOTHING };
}

/**
 * PUBLISH, APPEND, PUBLICATION.
 * @param {Buffer} buffer @param {number} at @param {number} end @returns {string}
 * @throws {MalformedMessage} if the room is longer than its message
 */
export function readBatchRoom(buffer, at, end) {
  const roomEnd = batchAt(buffer, at);
  if (roomEnd > end) throw new MalformedMessage('room longer than its message');
  return buffer.toString('latin1', at + BATCH_HEAD_BYTES, roomEnd);
}

/** @param {Buffer} buffer @param {number} at @returns the start of the batch */
export function batchAt(buffer, at) {
  return at + BATCH_HEAD_BYTES + buffer.readUInt16BE(at + COUNT_BYTES);
}

/** Changes PUBLISH or APPEND to PUBLICATION. @param {Buffer} buffer @param {number} at */
export function makePublication(buffer, at) {
  buffer[at - 1] = OP.PUBLICATION;
}

/** @param {Buffer} buffer @param {number} itemsAt the batch of an APPEND @param {Position} position */
export function setPosition(buffer, itemsAt, { epoch, offset }) {
  writePosition(buffer, itemsAt + ITEM_HEAD_BYTES, epoch, offset);
}

/** @param {Buffer} body @returns slices of it */
export function readMembers(body) {
  const count = body.readUInt32BE(0);
  return { count, members: body[4] === 0 ? null : publicationsIn(body.subarray(5)) };
}

/** @param {Buffer} body @param {number} index @returns {Outcome} */
export function readOutcome(body, index) {
  const at = index * OUTCOME_BYTES;
  return { verdict: body[at], ...readPosition(body, at + 1) };
}

/** @param {Buffer} buffer @param {number} at @param {number} end @returns {ExpectedPosition} */
export function readExpect(buffer, at, end) {
  if (end - at !== POSITION_BYTES) throw new MalformedMessage('EXPECT of a wrong length');
  const { epoch, offset } = readPosition(buffer, at);
  return { epoch: epoch === NO_EPOCH ? '' : epoch, offset };
}

/** @param {Buffer} body @returns {HistoryPage} publications are slices of it */
export function readPage(body) {
  const { epoch, offset } = readPosition(body, 0);
  const first = readOffset(body, POSITION_BYTES);
  const flags = body[POSITION_BYTES + OFFSET_BYTES];
  const hasOlder = (flags & HAS_OLDER) !== 0;
  const run = body.subarray(POSITION_BYTES + OFFSET_BYTES + 1);
  if ((flags & STATE) !== 0) {
    const { publications, offsets } = entriesIn(run);
    const isWhole = (flags & WHOLE) !== 0;
    const state = { offsets, floor: first, isWhole, hasMore: (flags & HAS_MORE) !== 0 };
    return { epoch, offset, first: offset + 1, publications, hasOlder, state };
  }
  const publications = publicationsIn(run);
  return { epoch, offset, first, publications, hasOlder };
}

/**
 * Collects messages until `writeTo`. Slabs are never overwritten, so written bytes may wait in a
 * socket while the rest of their slab is filled.
 */
export class MessageWriter {
  constructor() {
    this.slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    /** Where the unwritten bytes start in the slab. */
    this.from = 0;
    this.at = 0;
    /** @type {Buffer[]} */
    this.full = [];
    this.fullBytes = 0;
    /** A run of bytes to pass on, not copied yet. @type {Buffer|null} */
    this.run = null;
    this.runStart = 0;
    this.runEnd = 0;
    /** The latest batch in the slab. */
    this.batchAt = 0;
    this.batchEnd = NO_BATCH;
    this.batchOp = 0;
    this.batchRoom = '';
  }

  get length() {
    return this.fullBytes + this.at - this.from + (this.runEnd - this.runStart);
  }

  /**
   * Makes room for a message and writes its head.
   * @param {number} op @param {number} bytes of its fields
   * @param {number} [lentBytes] that follow in other buffers
   * @returns the start of the fields in `slab`
   */
  #open(op, bytes, lentBytes = 0) {
    this.#endRun();
    this.#reserve(HEAD_BYTES + bytes);
    const { slab } = this;
    const at = this.at;
    slab.writeUInt32BE(1 + bytes + lentBytes, at);
    slab[at + LENGTH_BYTES] = op;
    this.at = at + HEAD_BYTES + bytes;
    return at + HEAD_BYTES;
  }

  /** @param {number} bytes */
  #reserve(bytes) {
    if (this.at + bytes <= this.slab.length) return;
    this.#cut();
    this.slab = Buffer.allocUnsafeSlow(Math.max(SLAB_BYTES, bytes));
    this.from = this.at = 0;
    this.batchEnd = NO_BATCH;
  }

  /** Ends the current part of the slab, because the bytes that follow are in another buffer. */
  #cut() {
    if (this.at === this.from) return;
    this.full.push(this.slab.subarray(this.from, this.at));
    this.fullBytes += this.at - this.from;
    this.from = this.at;
  }

  /** @param {number} op @param {number} value */
  number(op, value) {
    const at = this.#open(op, 4);
    this.slab.writeUInt32BE(value, at);
  }

  /** @param {ToRelay|FromRelay} message */
  control(message) {
    const text = JSON.stringify(message);
    const at = this.#open(OP.CONTROL, Buffer.byteLength(text));
    this.slab.write(text, at);
  }

  /** @param {number} pid of the worker */
  hello(pid) {
    const at = this.#open(OP.HELLO, 8);
    this.slab.writeUInt32BE(RELAY_VERSION, at);
    this.slab.writeUInt32BE(pid, at + 4);
  }

  /** @param {number} op @param {string} text */
  text(op, text) {
    const at = this.#open(op, text.length);
    this.slab.write(text, at, 'latin1');
  }

  /** @param {number} request @param {boolean} ok @param {number} value */
  reply(request, ok, value) {
    const at = this.#open(OP.REPLY, 9);
    const { slab } = this;
    slab.writeUInt32BE(request, at);
    slab[at + 4] = ok ? 1 : 0;
    slab.writeUInt32BE(value, at + 5);
  }

  /**
   * Adds a publication to the last message if that is a batch for the same room, or begins one.
   * @param {number} op PUBLISH, APPEND or PUBLICATION
   * @param {string} room at most 65,535 ASCII characters @param {Buffer} publication copied
   * @param {boolean} [isAlone] in a batch of its own @returns whether it was added to a batch
   */
  publication(op, room, publication, isAlone = false) {
    const bytes = ITEM_HEAD_BYTES + publication.length;
    if (!isAlone && this.#isLastBatch(op, room, bytes)) {
      const { slab, batchAt } = this;
      slab.writeUInt32BE(slab.readUInt32BE(batchAt) + bytes, batchAt);
      const countAt = batchAt + HEAD_BYTES;
      slab.writeUInt32BE(slab.readUInt32BE(countAt) + 1, countAt);
      this.at = this.batchEnd = writePublication(slab, this.at, publication);
      return true;
    }
    const headBytes = BATCH_HEAD_BYTES + room.length;
    let at = this.#open(op, headBytes + (op === OP.APPEND ? POSITION_ITEM_BYTES : 0) + bytes);
    const { slab } = this;
    this.batchAt = at - HEAD_BYTES;
    this.batchEnd = isAlone ? NO_BATCH : this.at;
    this.batchOp = op;
    this.batchRoom = room;
    slab.writeUInt32BE(1, at);
    slab.writeUInt16BE(room.length, at + COUNT_BYTES);
    at += BATCH_HEAD_BYTES;
    at += slab.write(room, at, 'latin1');
    if (op === OP.APPEND) at = writePositionHead(slab, at);
    writePublication(slab, at, publication);
    return false;
  }

  /** @param {number} op @param {string} room @param {number} bytes that are to join it */
  #isLastBatch(op, room, bytes) {
    return (
      this.at === this.batchEnd &&
      this.batchRoom === room &&
      this.batchOp === op &&
      this.from <= this.batchAt &&
      this.runStart === this.runEnd &&
      this.at + bytes <= this.slab.length
    );
  }

  /** @param {number} request @param {number} count @param {Buffer[]|null} members copied */
  members(request, count, members) {
    const listed = members ?? [];
    let at = this.#open(
      OP.MEMBERS,
      listed.reduce((bytes, { length }) => bytes + 4 + length, 9),
    );
    const { slab } = this;
    slab.writeUInt32BE(request, at);
    slab.writeUInt32BE(count, at + 4);
    slab[at + 8] = members === null ? 0 : 1;
    at += 9;
    for (const member of listed) {
      slab.writeUInt32BE(member.length, at);
      at += 4 + member.copy(slab, at + 4);
    }
  }

  /** @param {ExpectedPosition} position of the room of the next APPEND */
  expect({ epoch, offset }) {
    const at = this.#open(OP.EXPECT, POSITION_BYTES);
    writePosition(this.slab, at, epoch || NO_EPOCH, offset);
  }

  /** @param {number} request @param {readonly Outcome[]} outcomes */
  outcomes(request, outcomes) {
    let at = this.#open(OP.OUTCOMES, 4 + outcomes.length * OUTCOME_BYTES);
    const { slab } = this;
    slab.writeUInt32BE(request, at);
    at += 4;
    for (const { verdict, epoch, offset } of outcomes) {
      slab[at] = verdict;
      writePosition(slab, at + 1, epoch || NO_EPOCH, offset);
      at += OUTCOME_BYTES;
    }
  }

  /** @param {number} request @param {Read} page its runs are not copied: never modify them */
  page(request, page) {
    const { runs, state } = page;
    let bytes = 0;
    for (const run of runs) bytes += run.length;
    const at = this.#open(OP.PAGE, 4 + POSITION_BYTES + OFFSET_BYTES + 1, bytes);
    this.slab.writeUInt32BE(request, at);
    writePosition(this.slab, at + 4, page.epoch, page.offset);
    writeOffset(this.slab, at + 4 + POSITION_BYTES, state?.floor ?? page.first);
    this.slab[at + 4 + POSITION_BYTES + OFFSET_BYTES] =
      (page.hasOlder ? HAS_OLDER : 0) |
      (state === undefined ? 0 : STATE) |
      (state?.isWhole ? WHOLE : 0) |
      (state?.hasMore ? HAS_MORE : 0);
    if (bytes === 0) return;
    this.#cut();
    this.full.push(...runs);
    this.fullBytes += bytes;
  }

  /**
   * Passes a message on unchanged. Neighbours are copied together.
   * @param {Buffer} buffer not modified until the next `writeTo`
   * @param {number} start @param {number} end
   */
  pass(buffer, start, end) {
    if (this.run === buffer && this.runEnd === start) {
      this.runEnd = end;
      return;
    }
    this.#endRun();
    this.run = buffer;
    this.runStart = start;
    this.runEnd = end;
  }

  #endRun() {
    const { run } = this;
    if (run === null) return;
    this.#reserve(this.runEnd - this.runStart);
    this.at += run.copy(this.slab, this.at, this.runStart, this.runEnd);
    this.run = null;
    this.runStart = this.runEnd = 0;
  }

  /** @param {import('node:net').Socket} socket @returns the result of the last write() */
  writeTo(socket) {
    this.#endRun();
    const last = this.slab.subarray(this.from, this.at);
    this.from = this.at;
    if (this.full.length === 0) return last.length === 0 || socket.write(last);
    socket.cork();
    for (const slab of this.full) socket.write(slab);
    const isTaken = last.length === 0 || socket.write(last);
    socket.uncork();
    this.full = [];
    this.fullBytes = 0;
    return isTaken;
  }
}
