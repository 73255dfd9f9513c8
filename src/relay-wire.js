// relay-wire.js: the messages between a worker and the relay in the primary, over a Unix socket.
//
// Both ends share this file. A message is a big-endian u32 length of what follows, one byte that names it, and its
// fields. Rooms and addresses are ASCII. Requests carry a number that the reply returns.
//
//   worker -> relay                                   relay -> worker
//   HELLO       u32 pid                               REPLY        u32 request, u8 ok, u32 value
//   SUBSCRIBE   u32 request, room                     PUBLICATION  u8 room length, room, bytes
//   UNSUBSCRIBE room
//   PUBLISH     u8 room length, room, bytes           (no reply of its own: SYNC's tells that all before it are accepted)
//   SYNC        u32 request
//   ACQUIRE     u32 request, u32 cap, u8 force, address    reply: ok = admitted, value = connections of that address
//   RELEASE     address
//   CONNECTIONS u32 how many this worker has
//   COUNT       u32 request                                reply: value = connections of all workers
//
// Presence (src/presence/): who is where, on the embedded broker; with Redis, what a worker is called there, so that others
// can take its users away when it dies.
//
//   ENTER       u8 room length, room, u16 user length, user, member
//   EXIT        u8 room length, room, user
//   EXIT_ALL
//   WHO         u32 request, room                     MEMBERS      u32 request, u32 count, u8 listed?,
//                                                                  then of each member u32 length, bytes
//                                                     EVENT        u8 room length, room, publication
//   NAME        name in Redis, or nothing             GONE         name of a worker that has died
//
// PUBLISH and PUBLICATION differ in their name byte alone, so that the relay passes a publication on as it came.
// Whole messages are found in what was read without copying it; what leaves in one tick is gathered in slabs and
// written at once.

export const OP = Object.freeze({
  HELLO: 1,
  SUBSCRIBE: 2,
  UNSUBSCRIBE: 3,
  PUBLISH: 4,
  SYNC: 5,
  ACQUIRE: 6,
  RELEASE: 7,
  CONNECTIONS: 8,
  COUNT: 9,
  REPLY: 16,
  PUBLICATION: 17,
  ENTER: 32,
  EXIT: 33,
  EXIT_ALL: 34,
  WHO: 35,
  MEMBERS: 36,
  EVENT: 37,
  NAME: 38,
  GONE: 39,
});

/** Bytes before a message's fields: its length, then its name. */
export const HEAD_BYTES = 5;
/** Largest message either end takes: the largest `FANFARE_MAX_MESSAGE_BYTES` and room to spare. */
export const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;

const LENGTH_BYTES = 4;
const SLAB_BYTES = 32 * 1024;

/** Finds the messages in what a socket reads. */
export class MessageReader {
  /**
   * @param {(buffer: Buffer, start: number, end: number) => void} onMessage called for each whole message, with the
   *   buffer it lies in, where its length field starts and where it ends. The bytes are the callee's, to keep and to
   *   modify; the buffer may hold other messages too.
   */
  constructor(onMessage) {
    this.onMessage = onMessage;
    /** Of a message that has not arrived in full. @type {Buffer[]} */
    this.parts = [];
    this.partsBytes = 0;
    this.neededBytes = 0;
  }

  /** @param {Buffer} chunk @throws {RangeError} where the length can't be one of ours: the stream is of no use any more */
  read(chunk) {
    let buffer = chunk;
    if (this.partsBytes > 0) {
      this.parts.push(chunk);
      this.partsBytes += chunk.length;
      // Joined once, when it is all there: joining at every chunk would copy a large message over and over.
      if (this.partsBytes < this.neededBytes) return;
      buffer = Buffer.concat(this.parts, this.partsBytes);
      this.parts = [];
      this.partsBytes = 0;
    }
    let at = 0;
    this.neededBytes = LENGTH_BYTES;
    while (buffer.length - at >= LENGTH_BYTES) {
      const length = buffer.readUInt32BE(at);
      if (length === 0 || length > MAX_MESSAGE_BYTES) throw new RangeError(`a message of ${length} bytes`);
      const end = at + LENGTH_BYTES + length;
      if (end > buffer.length) {
        this.neededBytes = LENGTH_BYTES + length;
        break;
      }
      this.onMessage(buffer, at, end);
      at = end;
    }
    if (at === buffer.length) return;
    // Copied, so that a few bytes do not keep the whole chunk.
    const rest = Buffer.from(buffer.subarray(at));
    this.parts.push(rest);
    this.partsBytes = rest.length;
  }
}

/**
 * Reads a MEMBERS.
 * @param {Buffer} buffer the members stay slices of it
 * @param {number} at behind its request
 * @param {number} end
 * @returns {{count: number, members: Buffer[]|null}}
 */
export function readMembers(buffer, at, end) {
  const count = buffer.readUInt32BE(at);
  if (buffer[at + 4] === 0) return { count, members: null };
  const members = [];
  for (let i = at + 5; i < end; ) {
    const length = buffer.readUInt32BE(i);
    members.push(buffer.subarray(i + 4, i + 4 + length));
    i += 4 + length;
  }
  return { count, members };
}

/**
 * Gathers messages until they are taken to be written. Slabs are filled one after another and never written over, so
 * that what was taken may wait in a socket while the rest of its slab is filled.
 */
export class MessageWriter {
  constructor() {
    this.slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    /** Where what was not taken yet starts in the slab. */
    this.from = 0;
    /** Where the next byte goes. */
    this.at = 0;
    /** Slabs that are full. @type {Buffer[]} */
    this.full = [];
    this.fullBytes = 0;
    /** A run of bytes to pass on that was not copied yet. @type {Buffer|null} */
    this.run = null;
    this.runStart = 0;
    this.runEnd = 0;
  }

  /** Bytes gathered. */
  get length() {
    return this.fullBytes + this.at - this.from + (this.runEnd - this.runStart);
  }

  /** Makes room for a message and writes its head. @param {number} op @param {number} bytes of its fields @returns {number} where they go in `slab` */
  #open(op, bytes) {
    this.#endRun();
    this.#reserve(HEAD_BYTES + bytes);
    const { slab } = this;
    const at = this.at;
    slab.writeUInt32BE(1 + bytes, at);
    slab[at + LENGTH_BYTES] = op;
    this.at = at + HEAD_BYTES + bytes;
    return at + HEAD_BYTES;
  }

  /** @param {number} bytes */
  #reserve(bytes) {
    if (this.at + bytes <= this.slab.length) return;
    if (this.at > this.from) {
      this.full.push(this.slab.subarray(this.from, this.at));
      this.fullBytes += this.at - this.from;
    }
    this.slab = Buffer.allocUnsafeSlow(Math.max(SLAB_BYTES, bytes));
    this.from = this.at = 0;
  }

  /** @param {number} op @param {number} value */
  number(op, value) {
    const at = this.#open(op, 4);
    this.slab.writeUInt32BE(value, at);
  }

  /** @param {number} op @param {string} text */
  text(op, text) {
    const at = this.#open(op, text.length);
    this.slab.write(text, at, 'latin1');
  }

  /** @param {number} op @param {number} request @param {string} text */
  request(op, request, text) {
    const at = this.#open(op, 4 + text.length);
    this.slab.writeUInt32BE(request, at);
    if (text.length > 0) this.slab.write(text, at + 4, 'latin1');
  }

  /** @param {number} request @param {string} address @param {number} cap @param {boolean} force */
  acquire(request, address, cap, force) {
    const at = this.#open(OP.ACQUIRE, 9 + address.length);
    const { slab } = this;
    slab.writeUInt32BE(request, at);
    slab.writeUInt32BE(cap, at + 4);
    slab[at + 8] = force ? 1 : 0;
    slab.write(address, at + 9, 'latin1');
  }

  /** @param {number} request @param {boolean} ok @param {number} value */
  reply(request, ok, value) {
    const at = this.#open(OP.REPLY, 9);
    const { slab } = this;
    slab.writeUInt32BE(request, at);
    slab[at + 4] = ok ? 1 : 0;
    slab.writeUInt32BE(value, at + 5);
  }

  /** @param {string} room at most 255 ASCII characters @param {Buffer} publication copied */
  publish(room, publication) {
    const at = this.#open(OP.PUBLISH, 1 + room.length + publication.length);
    const { slab } = this;
    slab[at] = room.length;
    slab.write(room, at + 1, 'latin1');
    publication.copy(slab, at + 1 + room.length);
  }

  /** A user enters a room. @param {string} room @param {string} user @param {Buffer} member copied */
  enter(room, user, member) {
    const userBytes = Buffer.byteLength(user);
    const at = this.#open(OP.ENTER, 3 + room.length + userBytes + member.length) + 1 + room.length;
    const { slab } = this;
    slab[at - 1 - room.length] = room.length;
    slab.write(room, at - room.length, 'latin1');
    slab.writeUInt16BE(userBytes, at);
    slab.write(user, at + 2);
    member.copy(slab, at + 2 + userBytes);
  }

  /** @param {string} room @param {string} user */
  exit(room, user) {
    const at = this.#open(OP.EXIT, 1 + room.length + Buffer.byteLength(user));
    const { slab } = this;
    slab[at] = room.length;
    slab.write(room, at + 1, 'latin1');
    slab.write(user, at + 1 + room.length);
  }

  /** @param {string} room @param {Buffer} head @param {Buffer} member both copied: the two parts of a publication */
  event(room, head, member) {
    const at = this.#open(OP.EVENT, 1 + room.length + head.length + member.length);
    const { slab } = this;
    slab[at] = room.length;
    slab.write(room, at + 1, 'latin1');
    head.copy(slab, at + 1 + room.length);
    member.copy(slab, at + 1 + room.length + head.length);
  }

  /** @param {number} request @param {number} count @param {Buffer[]|null} members copied; null: too many to list */
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

  /**
   * Passes on a message as it lies in a buffer. Neighbours are copied together: what one worker publishes in a tick
   * mostly goes to the same workers, and then costs one copy each and not one for each message.
   * @param {Buffer} buffer not modified until the next take()
   * @param {number} start
   * @param {number} end
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

  /**
   * Writes all that was gathered.
   * @param {import('node:net').Socket} socket
   * @returns {boolean} what the last write() said
   */
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
