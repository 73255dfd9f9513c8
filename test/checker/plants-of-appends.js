// plants-of-appends.js: faults that the checker must find in records of publishers that expect a
// position.

import { HISTORY_ROOMS } from './model.js';
import { accepted } from './story.js';

const [ROOM] = HISTORY_ROOMS;

/** @typedef {import('./model.js').Model} Model */
/** @typedef {Extract<import('./record.js').Event, {position?: unknown}>} Refusal */

/** A producer that is behind is refused. @param {Model} model */
function refused(model) {
  accepted(model, ROOM, 3);
  model.append('b', ROOM, 1);
}

/** @param {import('./record.js').Event[]} events @param {(position: import('./record.js').Position) => void} edit */
function editConflict(events, edit) {
  const refusal = events.findLast((event) => event.type === 'fail' && event.reason === 'CONFLICT');
  edit(/** @type {any} */ (refusal).position);
}

/** @type {readonly import('./story.js').Plant[]} */
export const PLANTS_OF_APPENDS = [
  {
    fault: 'two producers that expect the same position are both accepted',
    expected: ['I27'],
    act: (model) => {
      accepted(model, ROOM, 1);
      model.faults.ignoresExpectations = true;
      model.append('a', ROOM);
      model.append('b', ROOM, 1);
      model.faults.ignoresExpectations = false;
      model.settle();
    },
  },
  {
    fault: 'the same, and the second one gets no answer',
    expected: ['I27'],
    act: (model) => {
      accepted(model, ROOM, 2);
      model.faults.ignoresExpectations = true;
      model.append('a', ROOM, 1);
      model.faults.ignoresExpectations = false;
      model.settle();
    },
    edit: (events) => {
      const { value } = /** @type {any} */ (
        events.findLast((event) => event.type === 'invoke' && event.expect !== undefined)
      );
      const at = events.findIndex((event) => event.type === 'ok' && event.value === value);
      events[at] = { t: events[at].t, type: 'info', value, reason: 'closed' };
    },
  },
  {
    fault: 'a producer that knows the position is refused',
    expected: ['I27'],
    act: (model) => {
      const [{ epoch = '' }] = accepted(model, ROOM, 1);
      const expect = { epoch, offset: Number(model.store.get(ROOM)?.top) };
      const { value } = model.invoke('a', ROOM, false, undefined, expect);
      model.emit({ type: 'fail', value, reason: 'CONFLICT', position: expect });
    },
  },
  {
    fault: 'a CONFLICT names a position that the room had passed',
    expected: ['I27'],
    act: refused,
    edit: (events) =>
      editConflict(events, (position) => {
        position.offset -= 2;
      }),
  },
  {
    fault: 'a CONFLICT names a position that the room has not reached',
    expected: ['I27'],
    act: refused,
    edit: (events) =>
      editConflict(events, (position) => {
        position.offset += 1000;
      }),
  },
  {
    fault: 'a CONFLICT names an epoch that ended long ago',
    expected: ['I27'],
    act: (model) => {
      accepted(model, ROOM, 1);
      const ended = { ...model.store.get(ROOM) };
      model.crash(1);
      model.settle();
      accepted(model, ROOM, 1);
      model.wait();
      accepted(model, ROOM, 1);
      model.wait();
      const { value } = model.invoke('a', ROOM, false, undefined, { offset: 0 });
      const position = { epoch: String(ended.epoch), offset: Number(ended.top) };
      model.emit({ type: 'fail', value, reason: 'CONFLICT', position });
    },
  },
  {
    fault: 'a CONFLICT without a position',
    expected: ['I27'],
    act: refused,
    edit: (events) => {
      const refusal = events.findLast(({ type }) => type === 'fail');
      delete (/** @type {any} */ (refusal).position);
    },
  },
];
