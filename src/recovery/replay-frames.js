// replay-frames.js: frames of a room's older publications, for connections that missed them.
//
// When a server stops, most of its clients have the same last publication. The latest frames of
// each format are kept in the memory of replay buffers, so a thousand equal replays are built once.

import { resolveClaims } from '../protocol/claim.js';
import { encodePublications, encodeWithout, FORMAT, hasEnds } from '../protocol/format.js';
import { framesBytes } from '../protocol/frame.js';
import { exceptOf, isRestricted } from '../protocol/publication.js';

/** @import { Audiences } from '../protocol/audiences.js' */
/** @import { Replay, ReplayBuffer } from './replay-buffer.js' */

/**
 * Publications of kind POSITIONED, by offset.
 * @typedef {{slice(from: number, to: number): Buffer[]}} Publications
 */

/**
 * What one connection gets at once.
 * @typedef {object} Replayed
 * @property {Buffer} frames @property {number} count
 * @property {number} [from] offset before the first publication; absent if there are none
 * @property {boolean} [isBehind] is the last publication hidden from the connection?
 */

/** @type {readonly Buffer[]} */
const NONE = Object.freeze([]);

export class ReplayFrames {
  /**
   * @param {object} parts @param {Buffer} parts.prefix of the room's frames
   * @param {ReplayBuffer} parts.buffer of the room
   * @param {import('../protocol/claim.js').References} parts.references
   */
  constructor({ prefix, buffer, references }) {
    this.prefix = prefix;
    this.buffer = buffer;
    this.references = references;
  }

  /**
   * @param {number} format of a transport
   * @param {{epoch: string, from: number, to: number}} range `from`: offset before the first
   *   publication; `to`: of the last
   * @param {Publications} publications that include the range
   * @param {number} [maxBytes] @returns {Replay|null} null: larger than maxBytes
   */
  framesOf(format, { epoch, from, to }, publications, maxBytes = Number.POSITIVE_INFINITY) {
    const plain = format === FORMAT.DEFLATED ? FORMAT.FRAMES : format;
    const period = this.references.period();
    const latest = this.buffer.replays[plain];
    const isSame = latest?.from === from && latest.to === to && latest.epoch === epoch;
    if (isSame && latest.period === period) return latest;
    const resolved = resolveClaims(publications.slice(from + 1, to), this.references);
    if (framesBytes(this.prefix, resolved) > maxBytes) return null;
    const frames = encodePublications(plain, this.prefix, resolved);
    const excepts = resolved
      .map((publication, place) => ({ place, id: exceptOf(publication) }))
      .filter(({ id }) => id !== '');
    const restricted = resolved.flatMap((publication, place) =>
      isRestricted(publication) ? { place, publication } : [],
    );
    const { prefix } = this;
    const kept = hasEnds(plain) ? NONE : resolved;
    const replay = {
      from,
      to,
      epoch,
      period,
      format: plain,
      prefix,
      publications: kept,
      frames,
      // Frames without what is hidden are kept, too.
      bytes: kept.reduce(
        (sum, { length }) => sum + length,
        frames.length * (restricted.length > 0 ? 2 : 1),
      ),
      excepts,
      restricted,
    };
    this.buffer.keepReplay(replay);
    return replay;
  }
}

/**
 * Omits messages that exclude one of these connections, or are not for the reader.
 * @param {Replay} replay @param {readonly string[]} ids of the client's connection and its former
 *   one
 * @param {Audiences} audiences that the connection holds
 * @returns {Replayed}
 */
export function replayFor(replay, ids, audiences) {
  const { from, to, format, frames, excepts, restricted } = replay;
  const excluded = excepts.filter(({ id }) => ids.includes(id));
  const hidden = restricted.filter(({ publication }) => !audiences.maySee(publication));
  const places = new Set([...excluded, ...hidden].map(({ place }) => place));
  const omitted = [...places].sort((a, b) => a - b);
  return {
    frames: omitted.length === 0 ? frames : restOf(replay, format, omitted),
    count: to - from - omitted.length,
    from,
    isBehind: hidden.at(-1)?.place === to - from - 1,
  };
}

/** @param {Replay} replay @param {number} format @param {readonly number[]} omitted */
function restOf(replay, format, omitted) {
  const text = omitted.join();
  let rest = rests.get(replay);
  if (rest?.text !== text) {
    rest = { text, frames: encodeWithout(format, replay, omitted) };
    rests.set(replay, rest);
  }
  return rest.frames;
}

/** The latest frames of each replay without some publications. @type {WeakMap<Replay, {text: string, frames: Buffer}>} */
const rests = new WeakMap();
