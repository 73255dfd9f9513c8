// checker.test.js: the checker has no finding for a correct run, and finds each planted fault by its
// invariant and no other.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { Checker } from '../checker/checker.js';
import { INVARIANTS } from '../checker/invariants.js';
import { CLIENTS, HISTORY_ROOMS, Model, PUBLISHERS, ROOMS, WORKERS } from '../checker/model.js';
import { Recorder, readRecord } from '../checker/record.js';
import { checkRecord } from '../checker/report.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const VALID_RUNS = 300;
const RUNS_OF_EACH_PLANT = 40;
const CHECK = fileURLToPath(new URL('../checker/check.js', import.meta.url));

/** @typedef {import('../checker/record.js').Event} Event */
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
/** The events of a cluster. */
const story = fc.array(
  fc.oneof({ weight: 3, arbitrary: publish }, { weight: 2, arbitrary: other }),
  {
    minLength: 20,
    maxLength: 150,
  },
);
/** @typedef {typeof story extends fc.Arbitrary<infer T> ? T : never} Story */

/**
 * @param {Model} model
 * @param {Story} acts
 */
function tell(model, acts) {
  for (const act of acts) {
    if (act.act === 'publish') model.publish(act.publisher, act.room, act.outcome, act);
    else if (act.act === 'pump') model.pump(act.worker, act.n);
    else if (act.act === 'close') model.close(act.client);
    else if (act.act === 'open') model.open(act.client, act.worker);
    else if (act.act === 'flush') model.flush();
    else if (act.act === 'cut') model.cut(act.worker);
    else if (act.act === 'check') model.check(act.worker, act.room);
    else if (act.act === 'crash') model.crash(act.n);
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

/** @param {Iterable<Event>} events */
function checked(events) {
  const checker = new Checker();
  for (const event of events) checker.see(event);
  return checker.report();
}

/**
 * @param {import('../checker/checker.js').Report} report
 * @returns {string[]}
 */
function violated({ findings }) {
  return findings.filter(({ violations }) => violations > 0).map(({ id }) => id);
}

/**
 * All connected and nothing on its way: so that what a plant does is all that happens.
 * @param {Model} model
 */
function calm(model) {
  for (let client = 0; client < CLIENTS; client++) {
    model.close(client);
    model.open(client, client % WORKERS);
  }
  model.settle();
}

/**
 * A number of accepted publications that everybody sees.
 * @param {Model} model
 * @param {string} room
 * @param {number} n
 */
function accepted(model, room, n) {
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
 * @property {(model: Model) => void} [act] after the story
 * @property {(events: Event[], pick: number) => void} [edit] of the whole record
 */

/** @type {readonly Plant[]} */
const PLANTS = [
  {
    fault: 'a message that nobody published',
    expected: ['I1'],
    act: (model) => model.deliver(0, { room: 'p.0', value: 'z:1:p.0' }),
  },
  {
    fault: 'a message of another room',
    expected: ['I1'],
    act: (model) => {
      const [{ value }] = accepted(model, 'p.1', 1);
      model.deliver(0, { room: 'p.0', value });
    },
  },
  {
    fault: 'a message of another room with history',
    expected: ['I1'],
    act: (model) => {
      const [{ value }] = accepted(model, 'h.1', 1);
      model.emit({
        type: 'deliver',
        client: 1,
        room: 'h.0',
        value,
        epoch: 'f'.repeat(16),
        offset: 1,
      });
    },
  },
  {
    fault: 'a refused message is delivered: announced before it is stored',
    expected: ['I2'],
    act: (model) => {
      model.announce(model.publish('a', 'p.0', 'fail'));
      model.settle();
    },
  },
  {
    fault: 'the same with history, and its offset is given away',
    expected: ['I2'],
    act: (model) => model.announce(model.place(model.publish('a', 'h.0', 'fail'))),
  },
  {
    fault: 'a message is refused after it was delivered',
    expected: ['I2'],
    act: (model) => {
      const message = model.invoke('a', 'p.0');
      model.announce(message);
      model.settle();
      model.emit({ type: 'fail', value: message.value, reason: 'UNAVAILABLE' });
    },
  },
  {
    fault: 'a refused message is stored, and the position check delivers it',
    expected: ['I2'],
    act: (model) => {
      model.place(model.publish('a', 'h.0', 'fail'));
      model.settle();
    },
  },
  {
    fault: 'a refused message is stored, and a replay delivers it',
    expected: ['I2'],
    act: (model) => {
      model.close(0);
      model.place(model.publish('a', 'h.0', 'fail'));
      model.open(0, 0);
    },
  },
  {
    fault: 'a refused message is delivered minutes later in a plain room',
    expected: ['I2'],
    act: (model) => {
      const message = model.publish('a', 'p.0', 'fail');
      accepted(model, 'p.0', 3);
      model.wait();
      model.announce(message);
      model.settle();
    },
  },
  {
    fault: 'a refused message comes without an offset in a room with history',
    // That it has none is a fault of its own.
    expected: ['I2', 'I3'],
    act: (model) => {
      const { value, room } = model.publish('a', 'h.0', 'fail');
      model.deliver(0, { value, room });
    },
  },
  {
    fault: 'a refused message comes at an offset that the client has passed, which drops it',
    expected: ['I2', 'I3'],
    act: (model) => {
      const [{ epoch, offset }] = accepted(model, 'h.0', 1);
      const { value, room } = model.publish('a', 'h.0', 'fail');
      for (const client of [0, 1, 2, 3])
        model.emit({ type: 'repeat', client, room, value, epoch, offset });
    },
  },
  {
    fault: 'a message is refused after its time, and had been delivered',
    expected: ['I2'],
    act: (model) => {
      const { value } = model.publish('a', 'h.0', 'stored');
      model.settle();
      model.emit({ type: 'fail', value, reason: 'UNAVAILABLE, late' });
    },
  },
  {
    fault: 'one client gets another message at an offset',
    expected: ['I3'],
    act: (model) => {
      const { epoch, offset } = model.publish('a', 'h.0');
      const { value } = model.publish('b', 'h.0', 'lost');
      model.pump(0);
      for (const message of model.workers[1].bus)
        if (message.offset === offset && message.epoch === epoch) {
          model.workers[1].bus = [{ ...message, value }];
        }
    },
  },
  {
    fault: 'a message of a room with history without an offset',
    expected: ['I3'],
    act: (model) => {
      const { value, room } = model.publish('a', 'h.0', 'stored');
      model.settle();
      model.emit({ type: 'deliver', client: 0, room, value });
    },
  },
  {
    fault: 'an offset is given to two accepted messages',
    // The second is dropped as seen, by workers and clients: nobody gets it.
    expected: ['I3', 'I7'],
    act: (model) => {
      const [{ epoch, offset }] = accepted(model, 'h.0', 1);
      const { value, room } = model.invoke('b', 'h.0');
      model.announce({ value, room, epoch, offset });
      model.emit({ type: 'ok', value, epoch, offset });
    },
  },
  {
    fault: 'the fence is off: a restart loses messages and the epoch goes on',
    expected: ['I3', 'I7'],
    act: (model) => {
      accepted(model, 'h.0', 3);
      model.faults.fenceOff = true;
      model.crash(3, ['h.0']);
      for (let i = 0; i < 3; i++) model.publish('a', 'h.0');
      model.settle();
    },
  },
  {
    fault: 'a message is delivered twice in a room with history',
    expected: ['I4'],
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room.startsWith('h.'));
      events.splice(at, 0, events[at]);
    },
  },
  {
    fault: 'a message is delivered twice in a plain room',
    expected: ['I4'],
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room.startsWith('p.'));
      events.splice(at, 0, events[at]);
    },
  },
  {
    fault: 'two messages change places on the wire, and the client drops the one that is late',
    expected: ['I4', 'I5'],
    act: (model) => {
      const [first, second] = [model.publish('a', 'h.0'), model.publish('b', 'h.0')];
      model.workers[1].bus.splice(-2, 2, second, first);
      // No healing: that would ask the store for what is on its way.
      model.workers[1].positions.delete('h.0');
      model.pump(1);
      model.workers[1].positions.set('h.0', {
        epoch: String(second.epoch),
        last: Number(second.offset),
      });
    },
  },
  {
    fault: 'one of a thousand is dropped',
    expected: ['I5'],
    act: (model) => {
      for (let i = 0; i < 500; i++) accepted(model, 'h.0', 2);
    },
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room === 'h.0', 1000);
      events.splice(at, 1);
    },
  },
  {
    fault: 'the first message after a reply is dropped',
    expected: ['I5'],
    act: (model) => {
      model.close(0);
      model.open(0, 0);
      for (let i = 0; i < 2; i++) {
        const message = model.place(model.invoke('a', 'h.0'));
        model.acks.push({ ...message, type: 'ok' });
        for (const { positions } of model.workers) positions.set('h.0', position(message));
        for (const client of i === 0 ? [1, 2, 3] : [0, 1, 2, 3]) model.hand(client, message);
      }
    },
  },
  {
    fault: 'a message comes before its room’s reply',
    expected: ['I5'],
    act: (model) => {
      model.close(0);
      const message = model.place(model.invoke('a', 'h.0'));
      model.acks.push({ ...message, type: 'ok' });
      for (const client of [0, 1, 2, 3]) model.hand(client, message);
    },
  },
  {
    fault: 'an accepted message is never stored',
    // A hole for everybody: each of them skips it, and it is lost.
    expected: ['I5', 'I7'],
    act: (model) => {
      const message = model.place(model.invoke('a', 'h.0'));
      model.acks.push({ ...message, type: 'ok' });
      for (const { positions } of model.workers) positions.set('h.0', position(message));
      accepted(model, 'h.0', 1);
    },
  },
  {
    fault: 'recovered:true is forged: the history is trimmed',
    expected: ['I6'],
    act: (model) => {
      model.close(0);
      accepted(model, 'h.0', 12);
      model.faults.forgesRecovery = true;
      model.open(0, 0);
      model.faults.forgesRecovery = false;
      accepted(model, 'h.0', 1);
    },
  },
  {
    fault: 'recovered:true is forged: the epoch is another',
    expected: ['I6'],
    act: (model) => {
      accepted(model, 'h.0', 1);
      accepted(model, 'h.1', 1);
      model.close(0);
      model.crash(1);
      model.settle();
      model.faults.forgesRecovery = true;
      model.open(0, 0);
    },
  },
  {
    fault: 'recovered:true in an epoch that had ended and is used again',
    expected: ['I6'],
    act: (model) => {
      accepted(model, 'h.0', 1);
      model.close(0);
      const ended = /** @type {import('../checker/model.js').Stored} */ (model.store.get('h.0'));
      model.crash(1, ['h.0']);
      accepted(model, 'h.0', 2);
      model.t += 11_000_000;
      model.store.set('h.0', ended);
      model.open(0, 0);
      // So that nothing comes of it later on.
      model.crash(0, ['h.0']);
      model.settle();
    },
  },
  {
    fault: 'recovered:true from an offset above the top',
    expected: ['I6'],
    act: (model) => {
      accepted(model, 'h.0', 3);
      model.close(0);
      Object.assign(model.faults, { fenceOff: true, forgesRecovery: true });
      model.crash(3);
      model.open(0, 0);
      // So that nothing comes of it later on.
      Object.assign(model.faults, { fenceOff: false, forgesRecovery: false });
      model.crash(0);
      model.settle();
    },
  },
  {
    fault: 'recovered:true to one who did not ask',
    expected: ['I6'],
    edit: (events) => {
      const reply = events.find(({ type }) => type === 'reply');
      Object.assign(reply ?? {}, { recovered: true });
    },
  },
  {
    fault: 'a replay ends before the reply’s offset',
    expected: ['I6'],
    act: (model) => {
      model.close(0);
      accepted(model, 'h.0', 3);
      model.faults.cutsReplays = true;
      model.open(0, 0);
      model.faults.cutsReplays = false;
      accepted(model, 'h.0', 1);
    },
  },
  {
    fault: 'a replay never ends, nor does anything else come',
    expected: ['I6'],
    act: (model) => {
      model.close(0);
      model.close(2);
      accepted(model, 'h.0', 3);
      model.faults.cutsReplays = true;
      model.open(0, 0);
      model.faults.cutsReplays = false;
      model.wait();
      model.close(0);
    },
  },
  {
    fault: 'a worker is mute, and its clients leave it after a while',
    expected: ['I7'],
    act: (model) => {
      model.workers[1].isMute = true;
      accepted(model, 'h.0', 3);
      model.wait();
      model.close(1);
      model.workers[1].isMute = false;
    },
  },
  {
    fault: 'a client does not get the marker of a room with history',
    expected: ['I8'],
    edit: (events) => withoutMarker(events, 'h.0'),
  },
  {
    fault: 'a client does not get the marker of a plain room',
    expected: ['I8'],
    edit: (events) => withoutMarker(events, 'p.0'),
  },
  {
    fault: 'a marker is late',
    expected: ['I8'],
    edit: (events) => {
      const at = events.findLastIndex(({ type }) => type === 'deliver');
      for (const event of events.slice(at)) event.t += 16_000_000;
    },
  },
  {
    fault: 'a marker is not accepted',
    expected: ['I8'],
    edit: (events) => {
      const at = events.findLastIndex(({ type }) => type === 'ok');
      const { value } = /** @type {{value: string}} */ (/** @type {unknown} */ (events[at]));
      events[at] = { t: events[at].t, type: 'info', value, reason: 'OUTCOME_UNKNOWN' };
    },
  },
  {
    fault: 'a client does not come back',
    expected: ['I8'],
    edit: (events) => {
      const at = events.findLastIndex(({ type }) => type === 'stop');
      const lost = events.filter(
        (event, i) => !(i > at && 'client' in event && event.client === 2),
      );
      lost.splice(at + 1, 0, { t: events[at].t, type: 'close', client: 2, code: 1006 });
      events.splice(0, events.length, ...lost);
    },
    act: (model) => model.cut(0),
  },
  {
    fault: 'without markers: the end of a stream is not delivered',
    expected: ['I8'],
    act: (model) => {
      model.workers[1].isMute = true;
      accepted(model, 'h.0', 1);
      model.wait();
    },
    edit: (events) => {
      // Without the markers the end comes right after the wait, and nothing heals.
      const at = events.findIndex((event) => event.type === 'invoke' && event.marker === true);
      const end = events.findIndex(({ type }) => type === 'end');
      events.splice(at, end - at);
    },
  },
  {
    fault: 'two messages of a publisher change places in a plain room',
    expected: ['I9'],
    act: (model) => {
      model.wait();
      accepted(model, 'p.0', 1);
      const [first, second] = [model.publish('a', 'p.0'), model.publish('a', 'p.0')];
      model.workers[1].bus.splice(-2, 2, second, first);
      model.settle();
    },
  },
  {
    fault: 'two messages of a publisher change places in the store',
    expected: ['I9'],
    act: (model) => {
      const first = model.invoke('a', 'h.0');
      const { epoch, top } = /** @type {import('../checker/model.js').Stored} */ (
        model.store.get('h.0')
      );
      model.emit({ type: 'ok', ...first, epoch, offset: top + 2 });
      model.announce(model.place(model.publish('a', 'h.0', 'lost')));
      model.announce(model.place(first));
      model.settle();
    },
  },
  {
    fault: 'the ack of a later message has a lower offset',
    expected: ['I9'],
    act: (model) => {
      const [first, second] = [model.invoke('a', 'h.0'), model.publish('b', 'h.0', 'lost')];
      const { epoch, top } = /** @type {import('../checker/model.js').Stored} */ (
        model.store.get('h.0')
      );
      model.emit({ type: 'ok', ...first, epoch, offset: top + 2 });
      const third = model.invoke('a', 'h.0');
      model.emit({ type: 'ok', ...third, epoch, offset: top + 1 });
      // Connected clients get neither message; they get a `resync`.
      void second;
      model.crash(0);
      model.settle();
    },
  },
  {
    fault: 'a message is stored twice',
    expected: ['I10'],
    act: (model) => {
      const message = model.publish('a', 'h.0');
      model.announce(model.place({ value: message.value, room: 'h.0' }));
    },
  },
  {
    fault: 'a new epoch is passed on without a word',
    expected: ['I11'],
    act: (model) => {
      accepted(model, 'h.0', 2);
      model.crash(2);
      model.faults.ignoresEpochs = true;
      accepted(model, 'h.0', 1);
      model.faults.ignoresEpochs = false;
      accepted(model, 'h.1', 1);
    },
  },
  {
    fault: 'a client is not told that an epoch is over, and hears no more',
    expected: ['I11'],
    act: (model) => {
      accepted(model, 'h.0', 1);
      model.workers[1].isMute = true;
      model.crash(1);
      accepted(model, 'h.0', 1);
      model.wait();
      model.close(1);
      model.close(3);
      model.workers[1].isMute = false;
    },
  },
  {
    fault: 'the fence is off, and who comes back is told an offset it had passed',
    expected: ['I11'],
    act: (model) => {
      accepted(model, 'h.0', 3);
      model.close(0);
      model.faults.fenceOff = true;
      model.crash(3);
      model.open(0, 0);
      model.faults.fenceOff = false;
      model.crash(0);
      model.settle();
    },
  },
  {
    fault: 'a connection is still counted when all are closed',
    expected: ['I13'],
    edit: (events) => {
      const gauges = events.findLast(({ type }) => type === 'gauges');
      Object.assign(gauges ?? {}, { values: { connections: 1 } });
    },
  },
  {
    fault:
      'a message of unknown outcome takes effect behind later accepted ones, in a room with history',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'h.0', 'lost');
      model.publish('a', 'h.0');
      model.announce(model.place(late));
      model.settle();
    },
  },
  {
    fault: 'the same, and a replay shows it',
    expected: ['I14'],
    act: (model) => {
      model.close(0);
      const late = model.publish('a', 'h.0', 'lost');
      model.publish('a', 'h.0');
      model.place(late);
      model.open(0, 0);
    },
  },
  {
    fault: 'the same, and the ack of the one that overtook it comes last',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'h.0', 'lost');
      model.publish('a', 'h.0', 'ok', { isLate: true });
      model.announce(model.place(late));
      model.settle();
    },
  },
  {
    fault: 'the same, minutes later',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'h.0', 'lost');
      accepted(model, 'h.0', 3);
      model.wait();
      model.announce(model.place(late));
      model.settle();
    },
  },
  {
    fault: 'the same in a plain room',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'p.0', 'lost');
      model.publish('a', 'p.0');
      model.announce(late);
      model.settle();
    },
  },
  {
    fault: 'no publish is accepted for long, and nobody is told',
    expected: ['I15'],
    act: (model) => {
      model.faults.hidesOutages = true;
      model.publish('a', 'p.0');
      model.publish('a', 'p.0', 'lost');
      model.wait();
      model.publish('a', 'p.0', 'fail');
    },
  },
  {
    fault: 'the same at the run’s end',
    expected: ['I15', 'I8'],
    act: (model) => {
      model.faults.hidesOutages = true;
      model.publish('a', 'p.0');
      model.publish('a', 'p.0', 'fail');
      model.wait();
    },
    edit: (events) => {
      for (const event of events) {
        if (event.type === 'ok' && event.value[0] === 'm')
          Object.assign(event, { type: 'fail', reason: 'UNAVAILABLE' });
      }
      // Markers that are refused must not arrive either.
      const without = events.filter((event) => event.type !== 'deliver' || event.value[0] !== 'm');
      events.splice(0, events.length, ...without);
    },
  },
];

/** @param {import('../checker/model.js').Message} message */
function position({ epoch, offset }) {
  return { epoch: String(epoch), last: Number(offset) };
}

/**
 * A live delivery that is followed by another of the same client and room before anything else
 * happens to it, so that the client's sequence is known on both sides.
 * @param {Event[]} events
 * @param {number} pick
 * @param {(delivery: Delivery) => boolean} fits
 * @param {number} [last] among the last so many
 * @returns {number}
 */
function somewhere(events, pick, fits, last = events.length) {
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

/**
 * @param {Event[]} events
 * @param {string} room
 */
function withoutMarker(events, room) {
  const at = events.findLastIndex(
    (event) => event.type === 'deliver' && event.room === room && event.value[0] === 'm',
  );
  events.splice(at, 1);
}

test('a correct cluster has no findings, whatever faults happen', () => {
  /** @type {Map<string, number>} */
  const checks = new Map();
  fc.assert(
    fc.property(story, (acts) => {
      const report = checked(tell(new Model(), acts).end());
      for (const finding of report.findings) {
        assert.deepEqual(finding.examples, [], finding.id);
        checks.set(finding.id, (checks.get(finding.id) ?? 0) + finding.checks);
      }
      assert.ok(report.isClean);
    }),
    { numRuns: VALID_RUNS },
  );
  // An invariant that is never put to the test would hold as well.
  for (const { id } of INVARIANTS)
    assert.ok((checks.get(id) ?? 0) > VALID_RUNS / 2, `${id}: ${checks.get(id)}`);
});

describe('a planted fault is found by its invariant and no other:', () => {
  for (const { fault, expected, act, edit } of PLANTS) {
    test(`${fault}: ${expected.join(', ')}`, () => {
      fc.assert(
        fc.property(story, fc.nat(), (acts, pick) => {
          const model = tell(new Model(), acts);
          calm(model);
          act?.(model);
          const events = model.end();
          edit?.(events, pick);
          const report = checked(events);
          assert.deepEqual(
            violated(report).sort(),
            [...expected].sort(),
            JSON.stringify(
              report.findings.flatMap(({ id, examples }) =>
                examples.map((text) => `${id} ${text}`),
              ),
            ),
          );
        }),
        { numRuns: RUNS_OF_EACH_PLANT },
      );
    });
  }

  test('each invariant has a planted fault', () => {
    const planted = new Set(PLANTS.map(({ expected }) => expected[0]));
    assert.deepEqual(
      INVARIANTS.map(({ id }) => id).filter((id) => !planted.has(id)),
      [],
    );
  });
});

test('messages of an earlier connection of a publisher may come late, and do not count as overtaken', () => {
  const model = new Model();
  const late = model.publish('a', 'h.0', 'lost');
  const plain = model.publish('a', 'p.0', 'lost');
  const before = model.events.length;
  model.publish('a', 'h.0');
  model.publish('a', 'p.0');
  for (const event of model.events.slice(before)) if (event.type === 'invoke') event.via = 1;
  model.announce(model.place(late));
  model.announce(plain);
  model.settle();
  assert.deepEqual(violated(checked(model.end())), []);
});

test('a client that got the notice of an outage in time, or that connected later, is no finding', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.emit({ type: 'degraded', client: 0, degraded: true });
  model.publish('a', 'p.0', 'fail');
  model.t += 9_000_000;
  for (const client of [1, 2]) model.emit({ type: 'degraded', client, degraded: true });
  model.emit({ type: 'degraded', client: 2, degraded: false });
  model.close(3);
  model.open(3, 1);
  model.wait();
  model.publish('a', 'p.0', 'fail');
  const asIs = model.events.length;
  assert.deepEqual(violated(checked(model.end())), []);
  const untold = model.events.filter(
    (event, i) => i > asIs || event.type !== 'degraded' || event.client !== 1,
  );
  assert.deepEqual(violated(checked(untold)), ['I15']);
});

test('an outage of one server must be announced to the clients of that server only', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.publish('a', 'p.0', 'fail');
  model.wait();
  model.publish('a', 'p.0', 'fail');
  const events = model.end();
  const outageOf = (/** @type {number} */ server) =>
    events.map((event) =>
      event.type === 'invoke' && event.value.startsWith('a:') ? { ...event, server } : event,
    );
  assert.deepEqual(violated(checked(outageOf(0))), ['I15']);
  assert.deepEqual(violated(checked(outageOf(1))), []);
});

test('one refusal, followed by no publish to that server for a while, is not an outage', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.publish('a', 'p.0', 'fail');
  model.wait();
  assert.deepEqual(violated(checked(model.end())), []);
});

test('a record that no run can produce is refused, not judged', () => {
  const of = (/** @type {Event[]} */ ...events) =>
    assert.throws(() => checked(events), /the record is wrong/);
  of({ t: 1, type: 'ok', value: 'a:1:p.0' });
  of({ t: 1, type: 'invoke', value: 'a:1:p.0' }, { t: 2, type: 'invoke', value: 'a:1:p.0' });
  of({ t: 2, type: 'connect', client: 1 }, { t: 1, type: 'connect', client: 2 });
  of(
    { t: 1, type: 'run', history: ['h.0'], plain: [] },
    { t: 2, type: 'subscribe', client: 1, room: 'h.0', since: { epoch: 'e', offset: 1 } },
  );
});

test('a truncated record is not reported as clean', () => {
  const events = new Model().end();
  const end = events.findIndex(({ type }) => type === 'end');
  const report = checked(events.slice(0, end));
  assert.deepEqual(violated(report), []);
  assert.equal(report.isComplete, false);
  assert.equal(report.isClean, false);
});

test('the figures have the length of the interruption and the time of the recovery', () => {
  const model = new Model();
  accepted(model, 'h.0', 1);
  model.close(0);
  model.t += 2_000_000;
  accepted(model, 'h.0', 1);
  model.open(0, 0);
  const figures = new Map(checked(model.end()).figures.rows());
  assert.match(String(figures.get('no publish accepted')), /^2,0\d\d ms at the longest/);
  assert.match(String(figures.get('close to caught up')), /p99 20\d\d\.\d ms/);
  assert.match(String(figures.get('recovered')), /^2 true, 0 false; 0 resync/);
});

test('in plain rooms, publications that members did not get are counted as lost', () => {
  const model = new Model();
  accepted(model, 'p.0', 9);
  model.workers[1].isMute = true;
  accepted(model, 'p.0', 1);
  model.workers[1].isMute = false;
  const figures = new Map(checked(model.end()).figures.rows());
  // Two of four clients, one message; two markers go to all four.
  assert.equal(figures.get('plain rooms lost'), '2 of 48 (4.167 %)');
});

test('the command checks a record that was written and read back', (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'record.jsonl');
  const recorder = new Recorder(path);
  const events = new Model().end();
  for (const { t: _, ...what } of events)
    recorder.write(/** @type {import('../checker/record.js').What} */ (what));
  recorder.close();
  recorder.write({ type: 'end' });
  const back = [...readRecord(path)];
  assert.deepEqual(
    back.map(({ t: _, ...what }) => what),
    events.map(({ t: _, ...what }) => what),
  );
  assert.ok(checkRecord(path).isClean);
  assert.match(
    execFileSync(process.execPath, [CHECK, path], { encoding: 'utf8' }),
    /ok: 0 violations/,
  );

  appendFileSync(path, '{"t":1,"type":"connect","client":1}\n');
  assert.throws(() => execFileSync(process.execPath, [CHECK, path], { stdio: 'pipe' }), {
    status: 1,
  });
  appendFileSync(path, 'x\n');
  assert.throws(() => [...readRecord(path)], /is no JSON: x/);
});
