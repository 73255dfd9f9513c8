// story.js: feeds events of a cluster to the model, for the tests of the checker.

import fc from 'fast-check';
import { AUDIENCE_MEMBERS } from './audience-model.js';
import { Checker } from './checker.js';
import { CLIENTS, GUESTS, HISTORY_ROOMS, PUBLISHERS, ROOMS, WORKERS } from './model.js';
import { STATE_KEYS, STATE_MEMBERS } from './state-model.js';

/** @typedef {import('./record.js').Event} Event */
/** @typedef {import('./model.js').Model} Model */
/** @typedef {Extract<Event, {type: 'deliver'|'repeat'}>} Delivery */

const publish = fc.record({
  act: fc.constant(/** @type {const} */ ('publish')),
  publisher: fc.constantFrom(...PUBLISHERS),
  room: fc.constantFrom(...ROOMS),
  outcome: fc.constantFrom(
    .../** @type {const} */ (['ok', 'ok', 'ok', 'ok', 'fail', 'lost', 'stored']),
  ),
  isLate: fc.boolean(),
});
const append = fc.record({
  act: fc.constant(/** @type {const} */ ('append')),
  publisher: fc.constantFrom(...PUBLISHERS),
  room: fc.constantFrom(...HISTORY_ROOMS),
  back: fc.nat(2),
});
const other = fc.record({
  act: fc.constantFrom(
    .../** @type {const} */ ([
      'pump',
      'pump',
      'pump',
      'close',
      'open',
      'open',
      'flush',
      'cut',
      'check',
      'crash',
      'outage',
      'wait',
    ]),
  ),
  client: fc.nat(CLIENTS - 1),
  worker: fc.nat(WORKERS - 1),
  room: fc.constantFrom(...HISTORY_ROOMS),
  n: fc.integer({ min: 1, max: 4 }),
});
/** Acts of a model with guests. */
const mixed = fc.record({
  act: fc.constantFrom(
    .../** @type {const} */ ([
      'speak',
      'visit',
      'visit',
      'enter',
      'enter',
      'exit',
      'revoke',
      'survey',
      'whisper',
      'whisper',
      'vanish',
      'vanish',
    ]),
  ),
  client: fc.nat(CLIENTS - 1),
  room: fc.constantFrom(...HISTORY_ROOMS),
  guest: fc.constantFrom(...GUESTS.keys()),
  n: fc.integer({ min: 1, max: 6 }),
});

/** Acts of a room with state. */
const state = fc.record({
  act: fc.constant(/** @type {const} */ ('state')),
  how: fc.constantFrom(
    .../** @type {const} */ ([
      'put',
      'put',
      'put',
      'remove',
      'close',
      'open',
      'open',
      'pause',
      'resume',
      'resume',
      'crash',
    ]),
  ),
  client: fc.constantFrom(...STATE_MEMBERS),
  key: fc.constantFrom(...STATE_KEYS),
  outcome: fc.constantFrom(
    .../** @type {const} */ (['ok', 'ok', 'ok', 'ok', 'fail', 'lost', 'stored']),
  ),
  n: fc.integer({ min: 0, max: 3 }),
});

/** The events of a cluster. */
export const story = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: publish },
    { weight: 1, arbitrary: append },
    { weight: 7, arbitrary: other },
    { weight: 6, arbitrary: mixed },
    { weight: 6, arbitrary: state },
  ),
  {
    minLength: 30,
    maxLength: 240,
  },
);
/** @typedef {typeof story extends fc.Arbitrary<infer T> ? T : never} Story */

/** @param {Model} model @param {Story} acts */
export function tell(model, acts) {
  for (const act of acts) {
    if (act.act === 'publish') model.publish(act.publisher, act.room, act.outcome, act);
    else if (act.act === 'append') model.append(act.publisher, act.room, act.back);
    else if (act.act === 'state') tellState(model, act);
    else if (act.act === 'pump') model.pump(act.worker, act.n);
    else if (act.act === 'close') model.close(act.client);
    else if (act.act === 'open') model.open(act.client, act.worker);
    else if (act.act === 'flush') model.flush();
    else if (act.act === 'cut') model.cut(act.worker);
    else if (act.act === 'check') model.check(act.worker, act.room);
    else if (act.act === 'crash') model.crash(act.n);
    else if (act.act === 'speak') model.speak(act.client, act.room);
    else if (act.act === 'visit') model.visit(act.client, act.room, act.n);
    else if (act.act === 'enter') model.enter(act.guest);
    else if (act.act === 'exit') model.exit(act.guest);
    else if (act.act === 'revoke') model.revoke(act.guest);
    else if (act.act === 'survey') model.survey();
    else if (act.act === 'whisper') model.audiences.publish(act.n % 2 === 0);
    else if (act.act === 'vanish') model.audiences.toggle(AUDIENCE_MEMBERS[act.n % 2]);
    else {
      if (act.act === 'outage') {
        model.flush();
        model.publish(PUBLISHERS[0], act.room, 'fail');
      }
      // Healing has a time limit, which this exceeds.
      model.settle();
      model.wait();
    }
  }
  return model;
}

/** @param {Model} model @param {Extract<Story[number], {act: 'state'}>} act */
function tellState({ states }, { how, client, key, outcome, n }) {
  if (how === 'put' || how === 'remove') states.put(key, { removes: how === 'remove', outcome });
  else if (how === 'crash') states.crash(n);
  else states[how](client);
}

/** @param {Iterable<Event>} events */
export function checked(events) {
  const checker = new Checker();
  for (const event of events) checker.see(event);
  return checker.report();
}

/** @param {import('./checker.js').Report} report @returns {string[]} */
export function violated({ findings }) {
  return findings.filter(({ violations }) => violations > 0).map(({ id }) => id);
}

/**
 * All are connected and nothing is under way, so that a plant's own effect is all that happens.
 * @param {Model} model
 */
export function calm(model) {
  for (let client = 0; client < CLIENTS; client++) {
    model.close(client);
    model.open(client, client % WORKERS);
  }
  model.settle();
  model.states.settle();
}

/**
 * A number of accepted publications that everybody sees.
 * @param {Model} model @param {string} room @param {number} n
 */
export function accepted(model, room, n) {
  const messages = Array.from({ length: n }, (_, i) =>
    model.publish(PUBLISHERS[i % PUBLISHERS.length], room),
  );
  model.settle();
  return messages;
}

/**
 * A fault, planted behind a story of any kind: by a model that does wrong, or by an edit of its
 * record.
 * @typedef {object} Plant
 * @property {string} fault
 * @property {readonly string[]} expected the invariants violated, all of them; the fault's own
 *   comes first
 * @property {boolean} [isMixed] in a model with guests
 * @property {(model: Model) => void} [act] after the story
 * @property {(events: Event[], pick: number) => void} [edit] of the whole record
 */

/** @param {import('./model.js').Message} message */
export function position({ epoch, offset }) {
  return { epoch: String(epoch), last: Number(offset) };
}

/**
 * A live delivery that is followed by another of the same client and room before anything else
 * happens to it, so that the client's sequence is known on both sides.
 * @param {Event[]} events
 * @param {number} pick
 * @param {(delivery: Delivery) => boolean} fits
 * @param {number} [last] only among this many of the last
 * @returns {number}
 */
export function somewhere(events, pick, fits, last = events.length) {
  /** @type {number[]} */
  const places = [];
  /** @type {Map<string, number>} */
  const open = new Map();
  for (const [i, event] of events.entries()) {
    if (!('client' in event)) continue;
    if (event.type === 'deliver') {
      const key = `${event.client} ${event.room}`;
      const before = open.get(key);
      if (before !== undefined) places.push(before);
      if (fits(event)) open.set(key, i);
    } else if (event.type !== 'repeat')
      for (const room of ROOMS) open.delete(`${event.client} ${room}`);
  }
  const near = places.slice(-last);
  fc.pre(near.length > 0);
  return near[pick % near.length];
}

/** @param {Event[]} events @param {string} room */
export function withoutMarker(events, room) {
  const at = events.findLastIndex(
    (event) => event.type === 'deliver' && event.room === room && event.value[0] === 'm',
  );
  events.splice(at, 1);
}
