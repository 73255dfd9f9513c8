// every-door-drains.test.js: what clients of each door see of a worker that drains.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DOORS, wordsOf } from '../helpers/door-clients.js';
import {
  countedBy,
  HOOKS,
  membersOf,
  startOwnWorker,
  testAtEveryDoor,
  until,
} from '../helpers/every-door.js';
import { decided } from '../helpers/hooks/decided.js';

/** @import { Rule } from '../helpers/every-door.js' */

/** The codes with which doors tell a client to return. @type {Record<string, number>} */
const RETURN = { native: 1012, 'server-sent events': 1012, Pusher: 4200, Centrifugo: 3001 };
const IN_CONNECT = 'Centrifugo, by the token of connect';

/** @param {string} name of a row */
const doorOf = (name) => name.replace(/,.*$/, '');

/** @type {readonly Rule[]} */
const RULES = [
  {
    name: 'a client of a worker that drains may join until it is closed',
    async run({ t, at, open, roomNamed }) {
      const rooms = ['a', 'log'].map(roomNamed);
      const client = await open();
      t.mock.getter(at.phase, 'isSettling', () => true);
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join(rooms), ['ok', 'ok']);
      });
      assert.deepEqual(
        rooms.map((room) => membersOf(at, room)),
        [1, 1],
      );
      assert.deepEqual(counted, {});
    },
  },
  {
    name: 'a worker that drains takes no new connection, and counts it',
    async run({ t, at, open, roomNamed }) {
      const room = roomNamed('a');
      t.mock.getter(at.phase, 'isRetired', () => true);
      const counted = await countedBy(at, async () => {
        const joined = open().then((client) => client.join([room]));
        const [answer] = await joined.catch((error) => [error.message]);
        assert.notEqual(answer, 'ok');
      });
      assert.equal(membersOf(at, room), 0);
      assert.deepEqual(counted, { 'refused.draining': 1 });
    },
  },
  {
    name: 'a worker that drains takes no request of an application, and counts it',
    needs: ['publish'],
    hasApis: true,
    none: Object.fromEntries(DOORS.map(({ name }) => [name, 'its clients are told and closed'])),
    async run({ t, at, door, open, roomNamed }) {
      const room = roomNamed('private-a');
      const client = await open();
      assert.equal(await client.publish(room, 'x'), 'ok');
      t.mock.getter(at.phase, 'isDraining', () => true);
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, 'x'), wordsOf(door, 'UNAVAILABLE'));
      });
      assert.deepEqual(counted, { 'api.refused.draining': 1 });
    },
  },
  {
    name: 'a drain waits for a join while onJoin decides about it',
    env: HOOKS,
    async run({ at, open, roomNamed }) {
      const { asked, answer } = decideLater();
      const client = await open({ user: 'ann' });
      const joined = client.join([roomNamed('a')]);
      await until(() => asked.length > 0, 'the hook');
      assert.equal(at.worker.commands.isSettled(), false);
      answer();
      assert.deepEqual(await joined, ['ok']);
      await until(() => at.worker.commands.isSettled(), 'the end of the join');
    },
  },
];

testAtEveryDoor(RULES);

/** The hook onJoin gets its answer later. */
function decideLater() {
  /** @type {string[]} */
  const asked = [];
  let answer = () => {};
  const decision = new Promise((resolve) => {
    answer = () => resolve(undefined);
  });
  decided.join = (_user, room) => {
    asked.push(room);
    return decision;
  };
  return { asked, answer };
}

test('a join under way is answered before a drain closes the connection', async (t) => {
  const at = await startOwnWorker(t, { ...HOOKS, FANFARE_RECONNECT_WINDOW_MS: '0' });
  const { asked, answer } = decideLater();
  // The clients of one door ask for a room in `connect`, and connect to another worker.
  const doors = DOORS.filter(({ name }) => name !== IN_CONNECT);
  /** @type {{door: typeof DOORS[0], client: import('../helpers/door-clients.js').DoorClient, joined: Promise<string[]>}[]} */
  const joining = [];
  for (const door of doors) {
    const client = await door.open(t, at.port, { user: 'ann' });
    const joined = client.join([`room-${joining.length}`]).catch(({ message }) => [message]);
    joining.push({ door, client, joined });
    await until(() => asked.length === joining.length, door.name);
  }
  const drained = at.worker.drain(30_000);
  await until(() => at.phase.isSettling, 'the end of the notices');
  answer();
  for (const { door, client, joined } of joining)
    await t.test(door.name, async () => {
      assert.deepEqual(await joined, ['ok']);
      await drained;
      await until(() => client.closeCode() !== null, 'a close');
      assert.equal(client.closeCode(), RETURN[doorOf(door.name)]);
    });
});
