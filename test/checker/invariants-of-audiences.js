// invariants-of-audiences.js: rows of the table of invariants: messages for an audience.

import { SETTLE_US } from './indexed-run.js';

/** @typedef {import('./invariants.js').Run} Run */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Invariant} Invariant */
/** @typedef {import('./record.js').AudienceEvent} AudienceEvent */
/** @typedef {import('./record.js').StateEvent} StateEvent */

/** Each history keeps at least this many messages. */
const KEPT = 30;

/** @type {readonly Invariant[]} */
export const INVARIANTS_OF_AUDIENCES = Object.freeze([
  {
    id: 'I29',
    anomaly: 'leak to a member',
    claim:
      'a message for an audience reaches no member that does not hold it, nor does its removal',
    asked: { audience: isForTheMember, state: changeIsForTheMember, finish: removalsWereForThem },
  },
  {
    id: 'I30',
    anomaly: 'hidden too much',
    claim: 'a member gets every message that it may see, and in calm it recovers',
    asked: { audience: recoversInCalm, finish: everyVisibleCame },
  },
]);

/** @param {Run} run @param {AudienceEvent} event @returns {Answer} */
function isForTheMember(run, event) {
  if (event.what === 'recorded') return namesItsAudience(run, event);
  if (event.what === 'page') {
    const faults = event.rows.map(([, value]) => faultOf(run, event, value));
    return faults.find((one) => one !== '') ?? '';
  }
  return event.what === 'got' || event.what === 'saw' ? faultOf(run, event, event.value) : null;
}

/** @param {Run} run @param {{client: number, room: string}} member @param {string} value */
function faultOf({ audiences }, { client, room }, value) {
  const message = audiences.messages.get(value);
  if (message === undefined)
    return `${value} came to client ${client}, and nobody has published it`;
  const { held } = audiences.member(client, room);
  return held.maySee(message.audience)
    ? ''
    : `${value} for ${message.audience} came to client ${client}, who holds ${[...held.may]}`;
}

/** @param {Run} run @param {{value: string, audience: readonly string[]}} event */
function namesItsAudience({ audiences }, { value, audience }) {
  const put = audiences.messages.get(value)?.audience ?? [];
  return `${[...audience].sort()}` === `${[...put].sort()}`
    ? ''
    : `${value} for ${put} is for ${audience} in webhooks`;
}

/** @param {Run} run @param {StateEvent} event @returns {Answer} */
function changeIsForTheMember({ states }, event) {
  if (event.what !== 'change' || event.value === null) return null;
  const { client, room, key, value } = event;
  const audience = states.audienceOf(value);
  if (audience.length === 0) return null;
  const { held } = states.member(client, room);
  return held.maySee(audience)
    ? ''
    : `${key}=${value} for ${audience} came to client ${client}, who holds ${[...held.may]}`;
}

/**
 * A removal is for those who could see the key at any time: a worker that missed what the key was for
 * a moment removes what it knew.
 * @param {Run} run @returns {Iterable<Answer>}
 */
function* removalsWereForThem({ states }) {
  const unknown = states.unknownKeys();
  for (const { member, line, key, offset, held } of states.removals) {
    if (unknown.has(`${line.room} ${key}`)) continue;
    const audiences = (line.keys.get(key) ?? []).flatMap((at) => {
      const value = line.spots.get(at)?.value ?? null;
      return at < offset && value !== null ? [states.audienceOf(value)] : [];
    });
    if (audiences.length === 0) continue;
    yield audiences.some((audience) => held.maySee(audience))
      ? ''
      : `${line}:${offset} removes ${key} for ${audiences.at(-1)}, and came to ${member}, who holds ${[...held.may]}`;
  }
}

/** @param {Run} run @param {AudienceEvent} event @returns {Answer} */
function recoversInCalm(run, event) {
  if (event.what !== 'joined' || event.epoch === undefined || !run.isSettled) return null;
  const { client, room, epoch, offset = 0, recovered } = event;
  const { since } = run.audiences.member(client, room);
  if (since === undefined || since.epoch !== epoch || offset - since.offset > KEPT) return null;
  return recovered
    ? ''
    : `client ${client} came back to ${room} at ${since.offset} of ${offset}: not recovered`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* everyVisibleCame({ audiences, now, isSettled, calmSince }) {
  const { skipped, places, members, messages, clashes } = audiences;
  yield* clashes;
  for (const { member, client, held, askedAt, putFrom, place } of skipped) {
    const message = places.get(place);
    if (message === undefined || message.client === client || message.putAt < putFrom) continue;
    yield held.surelySees(message.audience, Math.max(message.putAt, askedAt))
      ? `${message.value} at ${place} has not come to ${member}`
      : '';
  }
  if (!isSettled) return;
  const accepted = [...messages.values()].filter(({ okAt }) => okAt <= now - SETTLE_US);
  for (const member of members.values()) {
    if (!member.isOpen || member.openedAt > now - SETTLE_US) continue;
    const { client, room, held, openedAt, epoch, last, isToldPositions, putFrom } = member;
    const sees = (/** @type {import('./audiences.js').AddressedMessage} */ message) =>
      message.client !== client &&
      held.surelySees(
        message.audience,
        message.putAt < putFrom ? message.putAt : Math.max(message.putAt, openedAt),
      );
    if (epoch === '') {
      // Nothing recovers what a plain room lost in a fault.
      const from = Math.max(openedAt, calmSince + SETTLE_US);
      for (const message of accepted)
        if (message.room === room && message.putAt > from && sees(message))
          yield member.got.has(message.value) ? '' : `${message.value} has not come to ${member}`;
      continue;
    }
    const due = accepted.filter(
      (one) => one.room === room && one.epoch === epoch && one.client !== client,
    );
    const reached = last ?? member.until;
    // The last of them only where the member is told what it passes.
    const told = isToldPositions ? due.at(-1) : undefined;
    yield isReached(member, due.findLast(sees), Math.max(reached, member.missedBefore));
    yield isReached(member, told, Math.max(reached, member.missedUntil));
  }
}

/**
 * @param {import('./audiences.js').AudienceMember} member
 * @param {import('./audiences.js').AddressedMessage|undefined} due @param {number} reached
 */
function isReached(member, due, reached) {
  return due === undefined || due.offset <= reached
    ? ''
    : `${member} is at ${reached}, long after ${due.value} was accepted at ${due.offset}`;
}
