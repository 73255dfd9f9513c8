// invariants-of-audiences.js: rows of the table of invariants: messages for an audience.

import { SETTLE_US } from './indexed-run.js';

/** @typedef {import('./invariants.js').Run} Run */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Invariant} Invariant */

/** Each history keeps at least this many messages. */
const KEPT = 30;

/** @type {readonly Invariant[]} */
export const INVARIANTS_OF_AUDIENCES = Object.freeze([
  {
    id: 'I29',
    anomaly: 'leak to a member',
    claim: 'a message for an audience reaches no member that does not hold it',
    asked: { audience: isForTheMember },
  },
  {
    id: 'I30',
    anomaly: 'hidden too much',
    claim: 'a member gets every message that it may see, and in calm it recovers',
    asked: { audience: recoversInCalm, finish: everyVisibleCame },
  },
]);

/** @type {NonNullable<Invariant['asked']['audience']>} */
function isForTheMember({ audiences }, event) {
  if (event.what !== 'got') return null;
  const { value, client, holds } = event;
  const message = audiences.messages.get(value);
  if (message === undefined)
    return `${value} came to client ${client}, and nobody has published it`;
  return message.isRestricted && !holds
    ? `${value} came to client ${client}, without the audience`
    : '';
}

/** @type {NonNullable<Invariant['asked']['audience']>} */
function recoversInCalm(run, event) {
  if (event.what !== 'joined' || event.since === undefined || !run.isSettled) return null;
  const { client, since, epoch, offset, recovered } = event;
  if (since.epoch !== epoch || offset - since.offset > KEPT) return null;
  return recovered
    ? ''
    : `client ${client} came back at ${since.offset} of ${offset}: not recovered`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* everyVisibleCame({ audiences, now, isSettled }) {
  const { skipped, places, members, messages } = audiences;
  for (const { client, holds, place } of skipped) {
    const message = places.get(place);
    if (message === undefined) continue;
    yield message.isRestricted && !holds
      ? ''
      : `${message.value} at ${place} has not come to client ${client}`;
  }
  if (!isSettled) return;
  const accepted = [...messages.values()].filter(({ okAt }) => okAt <= now - SETTLE_US);
  for (const [client, { isOpen, openedAt, holds, epoch, last }] of members) {
    if (!isOpen || openedAt > now - SETTLE_US) continue;
    const due = accepted.findLast((one) => one.epoch === epoch && (holds || !one.isRestricted));
    if (due === undefined) continue;
    yield due.offset <= last
      ? ''
      : `client ${client} is at ${last}, long after ${due.value} was accepted`;
  }
}
