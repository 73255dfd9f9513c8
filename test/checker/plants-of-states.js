// plants-of-states.js: faults that the checker must find in records of rooms with state.

import { STATE_MEMBERS, STATE_ROOM } from './state-model.js';
import { sizeOf } from './states.js';

const [ANN, BOB] = STATE_MEMBERS;

/** @typedef {import('./model.js').Model} Model */

/** Calm, and all maps are compared with the backend's. @param {Model} model */
function surveyed(model) {
  model.wait();
  model.states.survey();
}

/**
 * The backend has values of a and b, and c was removed. A member is out.
 * @param {Model} model @returns {import('./state-model.js').StateModel}
 */
function without(model, client = ANN) {
  const { states } = model;
  for (const key of ['a', 'b', 'c']) states.put(key);
  states.put('c', { removes: true });
  states.close(client);
  // Its next join is that of a new client.
  states.forget(states.member(client));
  return states;
}

/**
 * A member joins, and gets these changes.
 * @param {import('./state-model.js').StateModel} states
 * @param {(change: {key: string, entry: import('./state-model.js').Entry}) => boolean} gets
 */
function join(states, gets, recovered = false) {
  states.emit({ what: 'joined', client: ANN, ...states.position, recovered });
  states.member(ANN).isOpen = true;
  for (const change of states.changes) if (gets(change)) states.hand(ANN, change.key, change.entry);
  states.emit({ what: 'synced', client: ANN, ...states.position });
  states.member(ANN).offset = states.top;
}

/** @param {import('./state-model.js').StateModel} states @param {string} key */
const newest = (states, key) =>
  /** @type {import('./state-model.js').Entry} */ (states.log.get(key));

/** @param {import('./state-model.js').StateModel} states @param {string} key @param {string|null} value @param {number} offset */
function change(states, key, value, offset, client = ANN) {
  const { room, epoch } = states.position;
  states.emit({ what: 'change', client, room, key, value, epoch, offset });
}

/** @type {readonly import('./story.js').Plant[]} */
export const PLANTS_OF_STATES = [
  {
    fault: 'a member of a room with state does not get the last change',
    expected: ['I21'],
    act: (model) => {
      model.states.deaf = ANN;
      model.states.put('a');
      surveyed(model);
    },
  },
  {
    fault: 'a member keeps a removed key',
    expected: ['I21'],
    act: (model) => {
      model.states.put('a');
      model.states.deaf = ANN;
      model.states.put('a', { removes: true });
      model.states.deaf = undefined;
      model.states.put('b');
      surveyed(model);
    },
  },
  {
    fault: 'a client shows a key that it has removed',
    expected: ['I21'],
    act: (model) => {
      const value = model.states.put('a');
      model.states.put('a', { removes: true });
      model.states.member(ANN).map.set('a', value);
      surveyed(model);
    },
  },
  {
    fault: 'a member never gets `synced`',
    expected: ['I21'],
    act: (model) => {
      const states = without(model);
      states.emit({ what: 'joined', client: ANN, ...states.position, recovered: false });
      states.member(ANN).isOpen = true;
      for (const [key, entry] of states.log) if (entry.value) states.hand(ANN, key, entry);
      surveyed(model);
    },
  },
  {
    fault: 'a member stays in an epoch that has ended',
    expected: ['I21'],
    act: (model) => {
      model.states.put('a');
      model.states.pause(ANN);
      model.states.crash(3);
      surveyed(model);
    },
  },
  {
    fault: 'a change comes twice',
    expected: ['I22'],
    act: ({ states }) => {
      const value = states.put('a');
      change(states, 'a', value, states.top);
    },
  },
  {
    fault: 'an older value of a key comes after a newer one',
    expected: ['I22'],
    act: ({ states }) => {
      states.deaf = ANN;
      const value = states.put('a');
      states.deaf = undefined;
      states.put('a');
      change(states, 'a', value, states.top - 1);
    },
  },
  {
    fault: 'a removed key returns without a publish',
    expected: ['I22'],
    act: ({ states }) => {
      states.deaf = ANN;
      const value = states.put('a');
      states.deaf = undefined;
      states.put('a', { removes: true });
      change(states, 'a', value, states.top - 1);
    },
  },
  {
    fault: 'a change of a new epoch comes without a reset',
    expected: ['I22'],
    act: ({ states }) => {
      states.pause(ANN);
      states.crash(3);
      states.put('a');
      states.hand(ANN, 'a', newest(states, 'a'));
    },
  },
  {
    fault: '`synced` names a position before the last change',
    expected: ['I22'],
    act: ({ states }) => {
      states.put('a');
      const { room, epoch, offset } = states.position;
      states.emit({ what: 'synced', client: ANN, room, epoch, offset: offset - 1 });
    },
  },
  {
    fault: 'a join brings a replaced value, and then the newest one',
    expected: ['I23'],
    act: (model) => {
      const states = without(model);
      states.put('a');
      join(states, ({ key, entry }) => key !== 'c' && entry.offset > 0);
    },
  },
  {
    fault: 'a join brings a removed key back',
    expected: ['I23', 'I24'],
    act: (model) => {
      const states = without(model);
      join(states, ({ key, entry }) => entry === newest(states, key) || entry.value !== null);
      // The removal is the newest change of `c`. Without it the key is back.
      states.close(ANN);
      states.forget(states.member(ANN));
      join(
        states,
        ({ key, entry }) => (entry === newest(states, key) || key === 'c') && entry.value !== null,
      );
    },
  },
  {
    fault: 'a join brings all keys but one',
    expected: ['I24'],
    act: (model) => {
      const states = without(model);
      join(states, ({ key, entry }) => key === 'a' && entry === newest(states, key));
    },
  },
  {
    fault: 'a member that lagged is not told of one change',
    expected: ['I24'],
    act: ({ states }) => {
      states.pause(ANN);
      states.put('a');
      states.put('b');
      states.member(ANN).isPaused = false;
      states.hand(ANN, 'b', newest(states, 'b'));
      states.emit({ what: 'synced', client: ANN, ...states.position });
    },
  },
  {
    fault: 'a join with `since` does not bring a removal',
    expected: ['I24'],
    act: ({ states }) => {
      states.put('a');
      states.close(ANN);
      states.put('a', { removes: true });
      join(states, () => false, true);
    },
  },
  {
    fault: 'a change that nobody published',
    expected: ['I25'],
    act: ({ states }) => change(states, 'a', `z:1:${STATE_ROOM}`, states.top + 1),
  },
  {
    fault: 'a value of another key',
    expected: ['I25'],
    act: ({ states }) => {
      const value = states.put('a', { outcome: 'lost' });
      change(states, 'b', value, states.top + 1);
    },
  },
  {
    fault: 'a value of another room',
    expected: ['I25'],
    act: ({ states }) => {
      const value = 'k:0:k.1';
      states.emit({ what: 'put', value, room: 'k.1', key: 'a' });
      states.emit({ what: 'info', value, reason: 'closed' });
      change(states, 'a', value, states.top + 1);
    },
  },
  {
    fault: 'a refused value is delivered',
    expected: ['I25'],
    act: ({ states }) => {
      const value = states.put('a', { outcome: 'fail' });
      change(states, 'a', value, states.top + 1);
    },
  },
  {
    fault: 'a removal that nobody asked for',
    expected: ['I25'],
    act: ({ states }) => change(states, 'd', null, states.top + 1),
  },
  {
    fault: 'a value that was published once comes at two offsets',
    expected: ['I25'],
    act: ({ states }) => {
      const value = states.put('a');
      change(states, 'a', value, states.top + 1);
    },
  },
  {
    fault: 'a value that outlives its epoch has another offset in the next one',
    expected: ['I25'],
    act: ({ states }) => {
      const value = states.put('a');
      states.crash(0);
      change(states, 'a', value, states.top + 1);
    },
  },
  {
    fault: 'two members get different values at an offset',
    expected: ['I25'],
    act: ({ states }) => {
      const value = states.put('a', { outcome: 'lost' });
      states.deaf = BOB;
      states.put('a');
      change(states, 'a', value, states.top, BOB);
    },
  },
  {
    fault: 'an accepted value is not in the backend',
    expected: ['I26'],
    act: (model) => {
      // A removal of unknown outcome may have taken another key.
      model.states.isForgetful = true;
      model.states.put('d');
      model.states.isForgetful = false;
      model.states.put('b');
      surveyed(model);
    },
  },
  {
    fault: 'an accepted removal is not in the backend',
    expected: ['I26'],
    act: (model) => {
      model.states.put('a');
      model.states.isForgetful = true;
      model.states.put('a', { removes: true });
      model.states.isForgetful = false;
      model.states.put('b');
      surveyed(model);
    },
  },
  {
    fault: 'a member is synced before it has all that was there when it joined',
    expected: ['I24'],
    act: ({ states }) => {
      states.close(ANN);
      states.forget(states.member(ANN));
      const { room, epoch } = states.position;
      const first = states.put('a');
      states.put('b');
      states.emit({ what: 'joined', client: ANN, ...states.position, recovered: false });
      states.member(ANN).isOpen = true;
      change(states, 'a', first, states.top - 1);
      states.emit({ what: 'synced', client: ANN, room, epoch, offset: states.top - 1 });
      change(states, 'b', states.log.get('b')?.value ?? '', states.top);
    },
  },
  {
    fault: 'a member that lacks nothing has to begin again',
    expected: ['I32'],
    act: ({ states }) => {
      for (const key of ['a', 'b', 'c']) states.put(key);
      states.put('c', { removes: true });
      states.reset(ANN);
    },
  },
  {
    fault: 'a member is recovered from before a removal that is forgotten',
    expected: ['I33'],
    act: ({ states }) => {
      states.put('a');
      states.close(ANN);
      for (let i = 0; i <= sizeOf(STATE_ROOM); i++) {
        states.put(`b${i}`);
        states.put(`b${i}`, { removes: true });
      }
      states.open(ANN);
    },
  },
];
