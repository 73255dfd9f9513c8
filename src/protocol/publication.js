// publication.js: a publication as the broker carries it: a small binary header, then the payload as JSON text.
//
//   byte 0       kind: MESSAGE, BROADCAST or PRESENCE
//   bytes 1-6    time of acceptance, ms since 1970, big-endian
//   bytes 7-10   tag: the publisher's own number for it, so that its worker knows it again; 0 for none
//   byte 11      length of the sender
//   then         the sender (ASCII), then the payload (UTF-8 JSON, exactly as the client wrote it)
//
// The payload is text from the first worker to the last: nobody between the publisher and the receivers parses it.
//
// In a room with history a worker keeps a copy with its position behind the payload (`keep`): so publications with and
// without one wait in one line, frames of live ones and of replays come from the same bytes, and plain rooms pay nothing.
//
//   last 24 bytes    offset (a double, big-endian), epoch (16 ASCII characters)

const HEADER_BYTES = 12;
const POSITION_BYTES = 24;

export const KIND = Object.freeze({
  MESSAGE: 1,
  BROADCAST: 2,
  PRESENCE: 3,
  // These two are never sent to a broker, nor taken from one.
  /** a MESSAGE with its position */ KEPT: 0x41,
  /** a position alone: what came before it may not be complete */ RESYNC: 0x42,
});

/**
 * Heads of the publications by which presence tells a room of a join and of a leave: the member, as JSON, follows. They have
 * no sender and no time, and the tag says which it is.
 */
export const ANNOUNCEMENTS = Object.freeze({ join: announcement(1), leave: announcement(2) });

/** @param {number} tag */
function announcement(tag) {
  return encodePublication(KIND.PRESENCE, 0, tag, '', Buffer.alloc(0), 0, 0);
}

/** @param {Buffer} publication of kind PRESENCE @returns {'join'|'leave'} */
export function eventOf(publication) {
  return tagOf(publication) === 1 ? 'join' : 'leave';
}

/**
 * @param {number} kind of KIND
 * @param {number} timestampMs
 * @param {number} tag 0 to 2³²-1
 * @param {string} from the sender: at most 255 ASCII characters that need no escape in JSON
 * @param {Buffer} source where the payload lies, as JSON
 * @param {number} start
 * @param {number} end
 * @returns {Buffer}
 */
export function encodePublication(kind, timestampMs, tag, from, source, start, end) {
  const at = HEADER_BYTES + from.length;
  const publication = Buffer.allocUnsafe(at + end - start);
  publication[0] = kind;
  publication.writeUIntBE(timestampMs, 1, 6);
  publication.writeUInt32BE(tag, 7);
  publication[11] = from.length;
  publication.write(from, HEADER_BYTES, 'latin1');
  source.copy(publication, at, start, end);
  return publication;
}

/** @param {Buffer} publication */
export function kindOf(publication) {
  return publication[0];
}

/** @param {Buffer} publication @returns {number} ms since 1970 */
export function timestampOf(publication) {
  return publication.readUIntBE(1, 6);
}

/** @param {Buffer} publication */
export function tagOf(publication) {
  return publication.readUInt32BE(7);
}

/** @param {Buffer} publication @returns {string} */
export function senderOf(publication) {
  return publication.toString('latin1', HEADER_BYTES, HEADER_BYTES + publication[11]);
}

/** @param {Buffer} publication @returns {number} where its payload starts */
export function payloadStart(publication) {
  return HEADER_BYTES + publication[11];
}

/** @param {Buffer} publication @returns {number} where its payload ends */
export function payloadEnd(publication) {
  return kindOf(publication) === KIND.KEPT ? publication.length - POSITION_BYTES : publication.length;
}

/**
 * A copy with its position, in memory of its own: what came may be a slice of something large.
 * @param {Buffer} publication a MESSAGE
 * @param {number} offset
 * @param {string} epoch 16 characters
 */
export function keep(publication, offset, epoch) {
  const end = publication.length;
  const kept = Buffer.allocUnsafeSlow(end + POSITION_BYTES);
  publication.copy(kept, 0);
  kept[0] = KIND.KEPT;
  writePosition(kept, end, offset, epoch);
  return kept;
}

/** @param {number} offset @param {string} epoch 16 characters @returns {Buffer} of kind RESYNC */
export function encodeResyncMark(offset, epoch) {
  const mark = Buffer.alloc(HEADER_BYTES + POSITION_BYTES);
  mark[0] = KIND.RESYNC;
  writePosition(mark, HEADER_BYTES, offset, epoch);
  return mark;
}

/** @param {Buffer} target @param {number} at @param {number} offset @param {string} epoch */
function writePosition(target, at, offset, epoch) {
  target.writeDoubleBE(offset, at);
  target.write(epoch, at + 8, 16, 'latin1');
}

/** @param {Buffer} publication of kind KEPT or RESYNC */
export function offsetOf(publication) {
  return publication.readDoubleBE(publication.length - POSITION_BYTES);
}

/** @param {Buffer} publication of kind KEPT or RESYNC */
export function epochOf(publication) {
  return publication.toString('latin1', publication.length - 16);
}

/**
 * Is this what encodePublication makes? Another program may publish on the same Redis.
 * @param {Buffer} publication
 */
export function isPublication(publication) {
  return (
    publication.length > HEADER_BYTES &&
    (publication[0] === KIND.MESSAGE || publication[0] === KIND.BROADCAST || publication[0] === KIND.PRESENCE) &&
    publication.length > payloadStart(publication)
  );
}
