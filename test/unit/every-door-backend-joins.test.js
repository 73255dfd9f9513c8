// every-door-backend-joins.test.js: a backend moves clients of each door in and out of rooms.

import assert from 'node:assert/strict';
import { apiOf } from '../helpers/api.js';
import { API_SECRET } from '../helpers/door-clients.js';
import {
  countedBy,
  HOOKS,
  membersOf,
  paidWhile,
  publish,
  testAtEveryDoor,
  until,
} from '../helpers/every-door.js';
import { decided } from '../helpers/hooks/decided.js';

/** @import { Asked, Rule } from '../helpers/every-door.js' */

const LIMITED = { ...HOOKS, FANFARE_MAX_ROOMS_PER_CONNECTION: '2' };
const NEEDS = /** @type {const} */ (['moves']);
/** The door whose clients would not know: its `backendJoins` is `none`. */
const PUSHER = 'Pusher';
const NOT_MOVED = { [PUSHER]: 'its clients are not moved' };

/** A user, and how the backend moves it. @param {Asked} asked */
function userOf({ at, roomNamed }) {
  const user = roomNamed('user');
  const api = apiOf(at, API_SECRET);
  const move = async (/** @type {'join'|'leave'} */ verb, /** @type {string[]} */ ...rooms) =>
    (await api(`/users/${user}/${verb}`, { body: { rooms } })).body.connections;
  return { user, move };
}

/**
 * A client with a user, in its first room.
 * @param {Asked} asked @param {import('../helpers/door-clients.js').Who} [who]
 */
async function memberOf(asked, who) {
  const { open, roomNamed } = asked;
  const { user, move } = userOf(asked);
  decided.join = () => undefined;
  const client = await open({ user, ...who });
  assert.deepEqual(await client.join([roomNamed('first')]), ['ok']);
  await client.sync();
  decided.join = () => assert.fail('asked about what the backend has decided');
  return { client, user, move };
}

/** A client whose join the broker has not confirmed. @param {Asked} asked */
async function joiningOf(asked) {
  const { at, open, roomNamed } = asked;
  const { user, move } = userOf(asked);
  const room = roomNamed('a');
  decided.join = () => undefined;
  const client = await open({ user });
  const confirm = holdSubscription(at, room);
  const joining = client.join([room]);
  await until(() => confirm.isAsked(), 'the subscription');
  return { room, client, move, joining, confirm };
}

/**
 * The broker confirms a room when the test says so.
 * @param {import('../helpers/whole-worker.js').TestedWorker} at @param {string} room
 */
function holdSubscription({ delivery }, room) {
  const { broker } = delivery.hub;
  const own = /** @type {any} */ (broker);
  let isAsked = false;
  let release = () => {};
  const held = new Promise((resolve) => {
    release = () => resolve(undefined);
  });
  own.subscribe = async (/** @type {string} */ name) => {
    await Object.getPrototypeOf(broker).subscribe.call(broker, name);
    if (name !== room) return;
    isAsked = true;
    delete own.subscribe;
    await held;
  };
  return { isAsked: () => isAsked, release };
}

/** In a stream the answer to a join looks like a push. @param {string[]} moves */
function besidesTheAnswer([first, ...others]) {
  return first === 'joined' || first === undefined ? others : [first, ...others];
}

/** @type {readonly Rule[]} */
const RULES = [
  {
    name: 'a backend joins a client to rooms, whatever its token permits, and the client is told',
    env: HOOKS,
    needs: NEEDS,
    async run(asked) {
      const { at, door, roomNamed } = asked;
      const rooms = ['a', 'log'].map(roomNamed);
      const { client, move } = await memberOf(asked, { rooms: { join: [roomNamed('first')] } });
      await publish(at, rooms[1]);
      const isMoved = door.name !== PUSHER;
      const counted = await countedBy(at, async () => {
        const paid = await paidWhile(at, async () => {
          assert.equal(await move('join', ...rooms), isMoved ? 1 : 0);
          await until(() => !isMoved || client.moves(rooms[1]).length > 0, 'the second push');
        });
        assert.deepEqual(paid, { messages: 0, bytes: 0 });
      });
      for (const room of rooms) {
        assert.equal(membersOf(at, room), isMoved ? 1 : 0);
        assert.deepEqual(client.moves(room), isMoved ? ['joined'] : []);
        assert.deepEqual(client.received(room), []);
      }
      assert.deepEqual(counted, {});
    },
  },
  {
    name: 'a client that the backend takes out of a room is told',
    env: HOOKS,
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { at, roomNamed } = asked;
      const room = roomNamed('a');
      const { client, move } = await memberOf(asked);
      assert.equal(await move('leave', room), 0);
      assert.equal(await move('join', room), 1);
      assert.equal(await move('join', room), 1, 'it is in the room');
      assert.equal(await move('leave', room), 1);
      assert.equal(membersOf(at, room), 0);
      await until(() => client.moves(room).length > 1, 'the push');
      assert.deepEqual(client.moves(room), ['joined', 'left']);
    },
  },
  {
    name: 'a client that the backend takes out before its join is answered gets the answer, then is told',
    env: HOOKS,
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { room, client, move, joining, confirm } = await joiningOf(asked);
      assert.equal(await move('leave', room), 1);
      confirm.release();
      assert.equal((await joining)[0], 'ok');
      await until(() => client.moves(room).includes('left'), 'the push');
      assert.deepEqual(besidesTheAnswer(client.moves(room)), ['left']);
      assert.equal(membersOf(asked.at, room), 0);
    },
  },
  {
    name: 'what a backend says last about a client whose join is not answered yet holds',
    env: HOOKS,
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { room, client, move, joining, confirm } = await joiningOf(asked);
      for (const verb of /** @type {const} */ (['leave', 'join']))
        assert.equal(await move(verb, room), 1);
      confirm.release();
      assert.deepEqual(await joining, ['ok']);
      await client.sync();
      assert.deepEqual(besidesTheAnswer(client.moves(room)), []);
      assert.equal(membersOf(asked.at, room), 1);
    },
  },
  {
    name: 'a backend cannot join a client to a room above its limit',
    env: { ...LIMITED, FANFARE_LIMITS: 'off,rooms=enforce' },
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { at, roomNamed } = asked;
      const rooms = ['a', 'b'].map(roomNamed);
      const { client, move } = await memberOf(asked);
      const counted = await countedBy(at, async () => {
        assert.equal(await move('join', rooms[0]), 1);
        assert.equal(await move('join', rooms[1]), 0);
      });
      assert.equal(membersOf(at, rooms[1]), 0);
      assert.deepEqual(client.moves(rooms[1]), []);
      assert.deepEqual(counted, {});
    },
  },
  {
    name: 'rooms=observe counts a room above the limit that a backend joins',
    env: { ...LIMITED, FANFARE_LIMITS: 'off,rooms=observe' },
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { at, roomNamed } = asked;
      const { move } = await memberOf(asked);
      const counted = await countedBy(at, async () => {
        assert.equal(await move('join', roomNamed('a'), roomNamed('b')), 1);
      });
      assert.equal(membersOf(at, roomNamed('b')), 1);
      assert.deepEqual(counted, { 'observed.rooms': 1 });
    },
  },
  {
    name: 'a backend joins only clients that know keys to a room with state',
    env: HOOKS,
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { at, door, roomNamed } = asked;
      const room = roomNamed('state');
      const isKnown = door.without.state === undefined;
      const { move } = await memberOf(asked);
      const counted = await countedBy(at, async () => {
        assert.equal(await move('join', room), isKnown ? 1 : 0);
      });
      assert.equal(membersOf(at, room), isKnown ? 1 : 0);
      assert.deepEqual(counted, {});
    },
  },
  {
    name: 'while too many reads wait a backend joins no room with history, which is counted',
    env: HOOKS,
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { t, at, roomNamed } = asked;
      const room = roomNamed('log');
      const { move } = await memberOf(asked);
      t.mock.getter(at.delivery.scheduler, 'isOverloaded', () => true);
      const counted = await countedBy(at, async () => {
        assert.equal(await move('join', room), 0);
      });
      assert.equal(membersOf(at, room), 0);
      assert.deepEqual(counted, { readsRefused: 1 });
    },
  },
  {
    name: 'presence shows the user whom a backend has joined, and the info of the token',
    env: HOOKS,
    needs: NEEDS,
    none: NOT_MOVED,
    async run(asked) {
      const { at, roomNamed } = asked;
      const room = roomNamed('presence');
      const { client, user, move } = await memberOf(asked, { info: { colour: 'red' } });
      assert.equal(await move('join', room), 1);
      await client.sync();
      const { members } = await at.delivery.tracker.read(room);
      const listed = (members ?? []).map((member) => JSON.parse(member.toString()));
      assert.deepEqual(listed, [{ user, info: { colour: 'red' } }]);
    },
  },
];

testAtEveryDoor(RULES);
