// invariants-of-appends.js: rows of the table of invariants: publishers that expect a position.
//
// That only one of them wins an offset follows: a publication may stand behind its position only, and
// I3 has one publication at each offset.

import { SETTLE_US } from './indexed-run.js';

/** @typedef {import('./invariants.js').Run} Run */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Refused} Refused */
/** @typedef {import('./invariants.js').Invariant} Invariant */
/** @typedef {import('./publications.js').Publication} Publication */
/** @typedef {import('./publications.js').Stream} Stream */

/** @type {readonly Invariant[]} */
export const INVARIANTS_OF_APPENDS = Object.freeze([
  {
    id: 'I27',
    anomaly: 'second producer',
    claim:
      'what expects a position is accepted there only, and else CONFLICT names where the room was',
    asked: {
      ok: (_, { publication, stream, offset }) => isWhereExpected(publication, stream, offset),
      deliver: (_, { publication, stream, offset }) => isWhereExpected(publication, stream, offset),
      repeat: (_, { publication, stream, offset }) => isWhereExpected(publication, stream, offset),
      fail: conflictIsTrue,
      finish: conflictsNameOffsets,
    },
  },
]);

/** @param {Publication|undefined} publication @param {Stream|null} stream @param {number} offset @returns {Answer} */
function isWhereExpected(publication, stream, offset) {
  const expect = publication?.expect;
  if (publication === undefined || !expect || stream === null) return null;
  const isInStream = expect.epoch === undefined || expect.epoch === stream.epoch;
  if (isInStream && offset === expect.offset + 1) return '';
  return `${publication.value} is at ${stream.epoch}:${offset}, and expected ${expect.epoch}:${expect.offset} before it`;
}

/** @param {Run} run @param {Refused} refused @returns {Answer} */
function conflictIsTrue(run, { publication, reason, position }) {
  const { expect, room, value, invokedAt } = publication;
  if (reason !== 'CONFLICT' || expect === null) return null;
  if (position === undefined) return `the CONFLICT of ${value} names no position`;
  const { epoch, offset } = position;
  const about = `the CONFLICT of ${value} names ${epoch}:${offset}`;
  if (offset === expect.offset && (expect.epoch === undefined || expect.epoch === epoch))
    return `${about}, which it expected`;
  const stream = run.streams.get(room)?.get(epoch);
  if (stream === undefined) return '';
  const before = stream.acceptedUntil(invokedAt);
  if (offset < before) return `${about}, and ${before} had been accepted before it was sent`;
  if (!run.isSettled || run.calmSince > invokedAt - SETTLE_US) return '';
  for (const other of run.streamsOf(room))
    if (other.succeeded(stream, invokedAt - SETTLE_US))
      return `${about}, long after ${other.epoch} began`;
  return '';
}

/**
 * A message that nobody saw and whose publisher got no answer may be at such an offset.
 * @param {Run} run @returns {Iterable<Answer>}
 */
function* conflictsNameOffsets({ publications, conflicts }) {
  if (conflicts.length === 0) return;
  /** @type {Map<string, number>} */
  const unplaced = new Map();
  for (const { room, stream, outcome } of publications.values())
    if (stream === null && outcome !== 'fail') unplaced.set(room, (unplaced.get(room) ?? 0) + 1);
  /** @type {Map<Stream, number>} */
  const tops = new Map();
  for (const { publication, stream, offset } of conflicts) {
    const top = tops.get(stream) ?? Math.max(0, ...stream.places.keys());
    tops.set(stream, top);
    const most = top + (unplaced.get(stream.room) ?? 0);
    yield offset <= most
      ? ''
      : `the CONFLICT of ${publication.value} names ${stream.epoch}:${offset}, and nothing is above ${top}`;
  }
}
