// resp-reader.js: cuts the bytes of a client of Redis into commands.
//
// A command is an array of strings
// (https://redis.io/docs/latest/develop/reference/protocol-spec/#sending-commands-to-a-redis-server):
//
//   *2 | $9 | SUBSCRIBE | $<length> | <channel> |        (| is CR LF)

const CR = 0x0d;
const LF = 0x0a;
const STAR = 0x2a;
const DOLLAR = 0x24;
const ZERO = 0x30;
const MAX_DIGITS = 8;
/** subscriber.js sends at most 1,000 channels in a command. */
const MAX_ARGS = 10_000;
const MAX_COMMAND_BYTES = 16 * 1024 * 1024;
const INCOMPLETE = -1;

/** The bytes are no command, or too many. */
export class MalformedCommand extends Error {}

export class RespReader {
  /** @param {(args: string[]) => void} onCommand with the bytes of each argument as latin1 */
  constructor(onCommand) {
    this.onCommand = onCommand;
    /** Bytes of an incomplete command that must have arrived before it is examined again. */
    this.neededBytes = 0;
    /** The reads of it. @type {Buffer[]} */
    this.pieces = [];
    this.heldBytes = 0;
  }

  /**
   * @param {Buffer} bytes
   * @throws {MalformedCommand} the reader can't be used any longer
   */
  read(bytes) {
    this.pieces.push(bytes);
    this.heldBytes += bytes.length;
    if (this.heldBytes < this.neededBytes) return;
    const b = this.pieces.length === 1 ? bytes : Buffer.concat(this.pieces, this.heldBytes);
    let at = 0;
    while (at < b.length) {
      const end = this.#command(b, at);
      if (end === INCOMPLETE) break;
      at = end;
    }
    // Copied, because a slice would keep the whole read alive.
    this.pieces = at === b.length ? [] : [Buffer.from(b.subarray(at))];
    this.heldBytes = b.length - at;
    if (this.heldBytes === 0) this.neededBytes = 0;
  }

  /**
   * @param {Buffer} b
   * @param {number} start
   * @returns {number} the end of the command, or INCOMPLETE
   */
  #command(b, start) {
    const count = this.#number(b, start, start, STAR);
    if (count === INCOMPLETE) return INCOMPLETE;
    if (count === 0 || count > MAX_ARGS) throw new MalformedCommand(`${count} arguments`);
    const args = [];
    let at = numberEnd;
    for (let i = 0; i < count; i++) {
      const size = this.#number(b, start, at, DOLLAR);
      if (size === INCOMPLETE) return INCOMPLETE;
      const end = numberEnd + size;
      if (end - start > MAX_COMMAND_BYTES) throw new MalformedCommand('too long');
      if (end + 2 > b.length) return this.#wait(end + 2 - start);
      if (b[end] !== CR || b[end + 1] !== LF) throw new MalformedCommand('no end of a string');
      args.push(b.toString('latin1', numberEnd, end));
      at = end + 2;
    }
    this.onCommand(args);
    return at;
  }

  /**
   * Reads the line of a type and a number. Sets `numberEnd` to its end.
   * @param {Buffer} b
   * @param {number} start of the command
   * @param {number} at
   * @param {number} type
   */
  #number(b, start, at, type) {
    if (at < b.length && b[at] !== type) throw new MalformedCommand('not a command');
    let value = 0;
    let end = at + 1;
    for (; end < b.length && b[end] !== CR; end++) {
      const digit = b[end] - ZERO;
      if (digit < 0 || digit > 9 || end - at > MAX_DIGITS)
        throw new MalformedCommand('not a number');
      value = value * 10 + digit;
    }
    if (end + 2 > b.length) return this.#wait(b.length + 1 - start);
    if (end === at + 1 || b[end + 1] !== LF) throw new MalformedCommand('not a number');
    numberEnd = end + 2;
    return value;
  }

  /** @param {number} neededBytes of this command */
  #wait(neededBytes) {
    this.neededBytes = neededBytes;
    return INCOMPLETE;
  }
}

/** The end of the line that #number read last. */
let numberEnd = 0;

/** @param {unknown} error of Redis @returns {string} as a reply */
export function encodeError(error) {
  const text = error instanceof Error ? error.message : String(error);
  return `-${text.replace(/[^\x20-\x7e]/g, ' ')}\r\n`;
}
