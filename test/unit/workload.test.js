// workload.test.js: the end of a run with faults is bounded, and says who is missing.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '../checker/random.js';
import { Workload } from '../checker/workload.js';

const OPTIONS = { timeout: 10_000 };
const WITHIN_MS = 100;

/** @param {object} marker publishes the markers @param {object[]} [clients] */
function workloadWith(marker, clients = []) {
  const load = {
    ...{ clients: 0, rooms: 2, hasHistory: true, roomsPerClient: 1, publishers: 0, rate: 0 },
  };
  /** @type {any[]} */
  const events = [];
  const recorder = /** @type {any} */ ({ write: (/** @type {any} */ event) => events.push(event) });
  const workload = new Workload(load, [], recorder, new Random(1));
  Object.assign(workload, { marker: { stop: async () => {}, ...marker }, clients });
  return { workload, hasEnded: () => events.some(({ type }) => type === 'end') };
}

test('a run in which no marker can be sent to a room fails', OPTIONS, async () => {
  const { workload, hasEnded } = workloadWith({ publish: () => '' });
  await assert.rejects(workload.mark(WITHIN_MS), /no server took a marker to 2 rooms, like h\.0/);
  assert.equal(hasEnded(), false);
});

test('markers are tried again only until they would be late', OPTIONS, async () => {
  let tries = 0;
  const { workload, hasEnded } = workloadWith({
    publish(/** @type {string} */ room, /** @type {any} */ { settled }) {
      tries++;
      settled('info');
      return room;
    },
  });
  await workload.mark(WITHIN_MS);
  assert.ok(tries <= 2 * workload.rooms.length, `${tries}`);
  assert.ok(hasEnded());
});

test('clients that do not close are named', OPTIONS, async () => {
  const stuck = { id: 7, places: new Map(), stop: () => new Promise(() => {}) };
  const { workload } = workloadWith({}, [{ ...stuck, id: 3, stop: async () => {} }, stuck]);
  await assert.rejects(workload.stop(WITHIN_MS), /^Error: these clients did not close: 7$/);
});
