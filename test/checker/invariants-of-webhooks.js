// invariants-of-webhooks.js: rows of the table of invariants: the messages that webhooks report. What
// they say about rooms and users is compared at the end (webhook-watch.js).
//
// docs/webhooks.md: a message is recorded after it was accepted, so a worker that is killed in between
// loses the record. Only what was accepted in calm is owed.

/** @typedef {import('./invariants.js').Run} Run */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Invariant} Invariant */

/** An event may still be under way so long before the end. */
const DELIVERY_US = 15_000_000;

/** @type {readonly Invariant[]} */
export const INVARIANTS_OF_WEBHOOKS = Object.freeze([
  {
    id: 'I28',
    anomaly: 'wrong record',
    claim: 'webhooks report each message that was accepted once, and none that was refused',
    asked: { recorded: wasAcceptedOnce, finish: owedAreRecorded },
  },
]);

/** @type {NonNullable<Invariant['asked']['recorded']>} */
function wasAcceptedOnce(_, { publication, value, id, offset }) {
  if (publication === undefined) return `${value} is in webhooks, and nobody has published it`;
  if (publication.outcome === 'fail') return `${value} is in webhooks, and was refused`;
  // A Redis that loses its data loses the keys, too: a repeat is another publication, elsewhere.
  const same = publication.records.find((one) => one.offset === offset);
  return same === undefined ? '' : `${value} is in two events of webhooks, ${same.id} and ${id}`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* owedAreRecorded({ owed, now }) {
  for (const { value, records, okAt } of owed)
    if (okAt < now - DELIVERY_US)
      yield records.length > 0 ? '' : `${value} was accepted in calm, and webhooks do not have it`;
}
