// invariants-of-states.js: rows of the table of invariants: rooms with state.
//
// A member may not see each change, because newer ones replace those before. But what it has is
// never older than what it has had, nor than the join or reset it follows, and in calm it is what
// the backend has.

import { SEES_ALL } from './held.js';
import { SETTLE_US } from './indexed-run.js';
import { sizeOf } from './states.js';

/** @typedef {import('./invariants.js').Run} Run */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Invariant} Invariant */
/** @typedef {import('./record.js').StateEvent} StateEvent */

/** Each room keeps at least this many removed keys. */
const LEAST_TOMBSTONES = 8;
/** A worker may know of this many changes that it has not sent yet. */
const UNSENT = 10;
/** A worker that decides a join may know of fewer changes that it has not handed out yet. */
const WAITING = 100;

/** @type {readonly Invariant[]} */
export const INVARIANTS_OF_STATES = Object.freeze([
  {
    id: 'I21',
    anomaly: 'wrong map',
    claim: 'in calm the map of each member of a room with state is that of the backend',
    asked: { state: mapIsTrue },
  },
  {
    id: 'I22',
    anomaly: 'key moves back',
    claim: 'in a room with state offsets rise for each member, until its map is emptied',
    asked: { state: movesForward },
  },
  {
    id: 'I23',
    anomaly: 'stale value',
    claim: 'what follows a join or a reset was not replaced or removed before it',
    asked: { finish: snapshotsAreNew },
  },
  {
    id: 'I24',
    anomaly: 'incomplete map',
    claim:
      'at `synced` a member has each key as it was at that position, or newer, and the position is not before its join or reset',
    asked: { finish: syncsAreWhole },
  },
  {
    id: 'I25',
    anomaly: 'invented state',
    claim:
      'each change of a room with state was published to that key, was not refused, and has one offset',
    asked: { finish: changesWerePublished },
  },
  {
    id: 'I26',
    anomaly: 'lost value',
    claim: 'what was accepted is in the backend until it is replaced, removed or the epoch ends',
    asked: { finish: truthsHaveWhatWasAccepted },
  },
  {
    id: 'I32',
    anomaly: 'needless reset',
    claim:
      'a member of a room with state begins again in its epoch only if it may lack a removal that is forgotten',
    asked: { finish: resetsAreNeeded },
  },
  {
    id: 'I33',
    anomaly: 'recovery without proof',
    claim:
      'the position of a member of a room with state is recovered only if the room keeps all later removals',
    asked: { finish: recoveriesAreProven },
  },
]);

/** @param {Run} run @param {StateEvent} event @returns {Answer} */
function mapIsTrue(run, event) {
  if (event.what !== 'map') return null;
  const { states } = run;
  const member = states.member(event.client, event.room);
  const truth = states.truths.get(event.room);
  const isDue = run.isSettled && member.isOpen && run.now - member.openedAt >= SETTLE_US;
  if (!isDue || truth === undefined) return null;
  if (!member.isSynced) return `${member} has not been synced`;
  if (member.line !== truth.line) return `${member} is in ${member.line}, not ${truth.line}`;
  const { held } = member;
  // Its map becomes what it may see now.
  if (run.now - held.since < SETTLE_US) return null;
  const map = new Map(event.entries);
  let isWhole = true;
  for (const [key, { value }] of truth.entries) {
    const audience = states.audienceOf(value);
    const sees = held.surelySees(audience, run.now);
    if (!sees && held.maySee(audience)) return null;
    isWhole &&= sees;
    if (sees && map.get(key) !== value) return `${member} has ${key}=${map.get(key)}, not ${value}`;
    if (!sees && map.has(key))
      return `${member} has ${key}=${map.get(key)}, which is for ${audience}`;
  }
  for (const key of map.keys())
    if (!truth.entries.has(key)) return `${member} has ${key}=${map.get(key)}, which is removed`;
  // Nobody tells it the position of what it may not see; the latest may also be a removal.
  if (event.hearsAll && isWhole && held === SEES_ALL && member.last !== truth.offset)
    return `${member} is at ${member.last}, not at ${truth.line}:${truth.offset}`;
  return '';
}

/** @param {Run} run @param {StateEvent} event @returns {Answer} */
function movesForward({ states }, event) {
  if (event.what !== 'change' && event.what !== 'synced') return null;
  const { client, room, epoch, offset } = event;
  const member = states.member(client, room);
  const at = `${epoch}:${offset}`;
  if (!member.isOpen) return `${member} got ${at} before it had joined`;
  if (member.line?.epoch !== epoch) return `${member} is in ${member.line}, and got ${at}`;
  const isForward = event.what === 'change' ? offset > member.last : offset >= member.last;
  return isForward ? '' : `${member} got ${at} after ${member.last}`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* snapshotsAreNew({ states }) {
  for (const { member, line, key, offset, until } of states.snapshots) {
    const newest = line.newest(key, until);
    yield newest === undefined || newest.offset <= offset
      ? ''
      : `${member} got ${key} of ${line}:${offset} after ${until}, though ${newest.offset} has ${newest.value}`;
  }
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* syncsAreWhole({ states }) {
  const removals = unknownRemovals(states);
  for (const { member, line, offset, until, held, begunAt, keys } of states.syncs) {
    let fault = offset < until ? `${member} was synced at ${line}:${offset}, not at ${until}` : '';
    for (const key of line.keys.keys()) {
      const newest = line.newest(key, offset);
      const own = keys.get(key);
      if (newest === undefined || (own?.offset ?? 0) >= newest.offset) continue;
      // A newer value, which replaced it before it was sent, follows.
      if (Number(line.newest(key, Number.POSITIVE_INFINITY)?.offset) > offset) continue;
      const isAbsent = own === undefined || own.value === null;
      const audience = states.audienceOf(newest.value);
      if (!held.surelySees(audience, begunAt) && (isAbsent || held.maySee(audience))) continue;
      if (isAbsent && newest.value === null) continue;
      // Nobody may have seen a removal whose outcome is unknown.
      const isUnseen = removals.has(`${line.room} ${key}`) && line.hasUnseen(newest.offset, offset);
      if (isAbsent && isUnseen) continue;
      fault = `${member} was synced at ${line}:${offset} with ${key} of ${own?.offset}, not ${newest.offset}`;
    }
    yield fault;
  }
}

/** @param {Run['states']} states @returns {Set<string>} rooms and keys */
function unknownRemovals({ puts }) {
  /** @type {Set<string>} */
  const unknown = new Set();
  for (const { room, key, removes, outcome } of puts.values())
    if (removes && outcome !== 'fail' && outcome !== 'ok') unknown.add(`${room} ${key}`);
  return unknown;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* changesWerePublished({ states }) {
  const { puts, lines, clashes } = states;
  yield* clashes;
  const unknown = unknownRemovals(states);
  const removed = ackedRemovals(lines.values());
  // A state that outlives its epoch keeps its offsets in the next one.
  /** @type {Map<string, {at: string, offset: number}>} */
  const places = new Map();
  for (const line of lines.values()) {
    for (const [offset, { key, value }] of line.spots) {
      const at = `${line}:${offset}`;
      if (value === null) {
        const isKnown =
          removed.has(`${line.room} ${key} ${offset}`) || unknown.has(`${line.room} ${key}`);
        yield isKnown ? '' : `nobody removed ${key} at ${at}`;
        continue;
      }
      const put = puts.get(value);
      const other = places.get(value);
      places.set(value, { at, offset });
      if (put === undefined || put.room !== line.room || put.key !== key || put.removes)
        yield `nobody published ${value} to ${key} of ${at}`;
      else if (put.outcome === 'fail') yield `${value} was refused, and is at ${at}`;
      else {
        const isOnce = other === undefined || other.offset === offset;
        yield isOnce ? '' : `${value} is at ${other.at} and at ${at}`;
      }
    }
  }
}

/** @param {Iterable<import('./states.js').Line>} lines @returns {Set<string>} room, key and offset */
function ackedRemovals(lines) {
  /** @type {Set<string>} */
  const removed = new Set();
  for (const line of lines)
    for (const [offset, { key, value, isAcked }] of line.spots)
      if (value === null && isAcked) removed.add(`${line.room} ${key} ${offset}`);
  return removed;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* truthsHaveWhatWasAccepted({ states }) {
  const unknown = unknownRemovals(states);
  for (const { line, offset, entries } of states.allTruths) {
    for (const key of line.keys.keys()) {
      const newest = line.newest(key, offset, true);
      if (newest === undefined) continue;
      const at = entries.get(key)?.offset ?? 0;
      const isGone = at === 0 && (newest.value === null || unknown.has(`${line.room} ${key}`));
      yield isGone || (at >= newest.offset && (at > newest.offset || newest.value !== null))
        ? ''
        : `${line}:${offset} has ${key} of ${at}, and ${newest.offset} was accepted`;
    }
  }
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* resetsAreNeeded({ states }) {
  for (const { member, line, last, offset, isSameEpoch } of states.resets) {
    let removals = 0;
    for (let at = last + 1; at <= offset + UNSENT; at++) {
      const spot = line.spots.get(at);
      // An offset that nobody has seen may be a removal.
      if (spot === undefined ? at <= offset : spot.value === null) removals++;
    }
    yield !isSameEpoch || removals > LEAST_TOMBSTONES
      ? ''
      : `${member} was at ${last}, and had to begin again at ${line}:${offset}, after ${removals} removals`;
  }
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* recoveriesAreProven({ states }) {
  for (const { member, line, since, offset } of states.recoveries) {
    let removals = 0;
    for (const key of line.keys.keys()) {
      const newest = line.newest(key, offset + WAITING);
      if (newest?.value === null && newest.offset > since && newest.offset <= offset) removals++;
    }
    yield removals > sizeOf(line.room)
      ? `${member} was recovered from ${since} at ${line}:${offset}, after ${removals} removals`
      : '';
  }
}
