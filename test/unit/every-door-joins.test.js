// every-door-joins.test.js: each rule of a join, at each door: all of them answer alike in their own
// words, count alike and charge alike.

import assert from 'node:assert/strict';
import { wordsOf } from '../helpers/door-clients.js';
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
/** @import { TestedWorker } from '../helpers/whole-worker.js' */

const LIMITED = { FANFARE_MAX_ROOMS_PER_CONNECTION: '2' };
const NAMES = Object.freeze({
  URL: 'native, by the token of its URL',
  HELLO: 'native, by the token of hello',
  SSE: 'server-sent events',
  SSE_TOKEN: 'server-sent events, by token',
  PUSHER: 'Pusher',
  CONNECT: 'Centrifugo, by the token of connect',
  REFRESH: 'Centrifugo, by a refreshed token',
});
const OF_TOKENS = 'its client has a token, and so a user';

/** Three rooms, where two are allowed. @param {Asked} asked */
const three = ({ roomNamed }) => ['a', 'b', 'c'].map(roomNamed);

/** The positions before the first message. @param {TestedWorker} at @param {string[]} rooms */
async function startOf({ delivery }, rooms) {
  const { broker } = delivery.backend;
  const pages = rooms.map(async (room) => {
    const { epoch } = await broker.history(room, { after: 0, limit: 0 });
    return /** @type {const} */ ([room, { epoch, offset: 0 }]);
  });
  return new Map(await Promise.all(pages));
}

/** @param {TestedWorker} at @param {string} room what presence shows */
async function usersIn({ delivery }, room) {
  const { members } = await delivery.tracker.read(room);
  return (members ?? []).map((member) => JSON.parse(member.toString()));
}

/** @param {Asked} asked @returns {Promise<string>} the room, whose read has to wait */
async function joinWhileReadsWait({ at, door, open, roomNamed }) {
  const room = roomNamed('log');
  const { scheduler } = at.delivery;
  const before = at.counters.readsRefused;
  Object.defineProperty(scheduler, 'isOverloaded', { configurable: true, get: () => true });
  const client = await open();
  const joining = client.join([room]);
  if (door.postpones !== true) {
    assert.deepEqual(await joining, [wordsOf(door, 'UNAVAILABLE')]);
    Reflect.deleteProperty(scheduler, 'isOverloaded');
    return room;
  }
  await until(() => at.counters.readsRefused > before, 'a refused read');
  await client.sync();
  Reflect.deleteProperty(scheduler, 'isOverloaded');
  assert.equal(membersOf(at, room), 0);
  at.worker.doors.sweep(performance.now() + 20_000);
  assert.deepEqual(await joining, ['ok']);
  await client.leave(room);
  return room;
}

/** @type {readonly Rule[]} */
const RULES = [
  {
    name: 'a room above the limit is refused, and counted',
    env: { ...LIMITED, FANFARE_LIMITS: 'off,rooms=enforce' },
    async run(asked) {
      const { at, door, open } = asked;
      const rooms = three(asked);
      const refused = wordsOf(door, 'ROOM_LIMIT');
      /** @type {string[]} */
      let answers = [];
      const counted = await countedBy(at, async () => {
        answers = await (await open()).join(rooms);
      });
      assert.deepEqual(
        answers.sort(),
        (door.isWhole ? [refused, refused, refused] : ['ok', 'ok', refused]).sort(),
      );
      assert.equal(membersOf(at, rooms[2]), 0);
      assert.deepEqual(counted, { 'errors.ROOM_LIMIT': 1 });
    },
  },
  {
    name: 'rooms=observe counts a room above the limit, and lets the client in',
    env: { ...LIMITED, FANFARE_LIMITS: 'off,rooms=observe' },
    async run(asked) {
      const { at, open } = asked;
      const rooms = three(asked);
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await (await open()).join(rooms), ['ok', 'ok', 'ok']);
      });
      assert.deepEqual(
        rooms.map((room) => membersOf(at, room)),
        [1, 1, 1],
      );
      assert.deepEqual(counted, { 'observed.rooms': 1 });
    },
  },
  {
    name: 'a client that goes on after as many refusals as rooms is closed',
    env: { ...LIMITED, FANFARE_LIMITS: 'off,rooms=enforce' },
    needs: ['rejoin'],
    async run({ at, door, open, roomNamed }) {
      const client = await open();
      const rooms = ['a', 'b', 'c', 'd', 'e'].map(roomNamed);
      const counted = await countedBy(at, () => client.join(rooms));
      await until(() => client.closeCode() !== null, 'a close');
      const codes = { native: 4505, Pusher: 4100 };
      assert.equal(client.closeCode(), /** @type {any} */ (codes)[door.name] ?? 3505);
      assert.deepEqual(counted, { 'errors.ROOM_LIMIT': 3 });
    },
  },
  {
    name: 'while too many reads wait, a join of a room with history is not accepted, and counted',
    async run(asked) {
      const { at, door } = asked;
      let room = '';
      const counted = await countedBy(at, async () => {
        room = await joinWhileReadsWait(asked);
      });
      assert.equal(membersOf(at, room), 0);
      const answered = door.postpones ? {} : { 'errors.UNAVAILABLE': 1 };
      assert.deepEqual(counted, { ...answered, readsRefused: 1 });
    },
  },
  {
    name: 'a room with state takes only clients that know keys',
    async run({ at, door, open, roomNamed }) {
      const room = roomNamed('state');
      const isKnown = door.without.state === undefined;
      const refused = wordsOf(door, 'PERMISSION_DENIED');
      const client = await open();
      const counted = await countedBy(at, async () => {
        const [answer] = await client.join([room]);
        assert.equal(answer, isKnown ? 'ok' : refused);
      });
      assert.equal(membersOf(at, room), isKnown ? 1 : 0);
      assert.deepEqual(counted, isKnown ? {} : { 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: 'onJoin is asked once about a user and a room',
    env: HOOKS,
    async run({ at, open, roomNamed }) {
      const room = roomNamed('a');
      /** @type {unknown[]} */
      const asked = [];
      decided.join = (user, name) => void asked.push([user, name]);
      const client = await open({ user: 'ann' });
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join([room]), ['ok']);
      });
      assert.deepEqual(asked, [['ann', room]]);
      assert.deepEqual(counted, {});
    },
  },
  {
    name: 'a client that onJoin denies does not enter, and is told',
    env: HOOKS,
    async run({ at, door, open, roomNamed }) {
      const room = roomNamed('a');
      decided.join = async () => ({ deny: 'not you' });
      const client = await open({ user: 'ann' });
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join([room]), [wordsOf(door, 'PERMISSION_DENIED')]);
      });
      assert.equal(membersOf(at, room), 0);
      assert.deepEqual(counted, { 'hooks.denied.onJoin': 1, 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: 'a client that closes while onJoin runs does not enter',
    env: HOOKS,
    async run({ at, open, roomNamed }) {
      const room = roomNamed('a');
      /** @type {(answer: undefined) => void} */
      let answer = () => {};
      let isAsked = false;
      decided.join = () => {
        isAsked = true;
        return new Promise((resolve) => {
          answer = resolve;
        });
      };
      const { connections } = at.delivery.hub;
      const client = await open({ user: 'ann' });
      const counted = await countedBy(at, async () => {
        client.join([room]).catch(() => {});
        await until(() => isAsked, 'the hook');
        const sockets = at.counters.sockets;
        client.end();
        await until(() => at.counters.sockets < sockets, 'the end of the socket');
        answer(undefined);
        await until(() => at.worker.commands.isSettled(), 'the end of the call');
        await new Promise(setImmediate);
      });
      assert.equal(membersOf(at, room), 0);
      assert.ok(connections.every((one) => one.isOpen));
      assert.deepEqual(counted, {});
    },
  },
  {
    name: 'a replay within the resume window is free, once for each room',
    needs: ['recover'],
    async run({ at, door, open, roomNamed }) {
      const rooms = ['log-a', 'log-b'].map(roomNamed);
      const since = await startOf(at, rooms);
      for (const room of rooms) await publish(at, room);
      const client = await open();
      const paid = await paidWhile(at, async () => {
        assert.deepEqual(await client.join(rooms, since), ['ok', 'ok']);
        await client.sync();
      });
      for (const room of rooms) assert.equal(client.received(room).length, 1);
      assert.equal(paid.bytes, 0);
      if (door.without.rejoin !== undefined) return;
      await client.leave(rooms[0]);
      const again = await paidWhile(at, () => client.join([rooms[0]], since));
      assert.ok(again.bytes >= 8000, 'a second read is paid');
    },
  },
  {
    name: 'a replay of older messages is paid',
    needs: ['recover'],
    async run({ at, open, roomNamed }) {
      const room = roomNamed('log');
      const since = await startOf(at, [room]);
      await publish(at, room, { ageMs: 3_600_000 });
      const client = await open();
      const paid = await paidWhile(at, async () => {
        assert.deepEqual(await client.join([room], since), ['ok']);
        await client.sync();
      });
      assert.equal(client.received(room).length, 1);
      assert.ok(paid.bytes >= 8000);
    },
  },
  {
    name: 'a replay is paid if the address has used up what it may read for free',
    needs: ['recover'],
    async run({ t, at, open, roomNamed }) {
      const room = roomNamed('log');
      const since = await startOf(at, [room]);
      await publish(at, room);
      t.mock.method(at.entry.limiter, 'takeFreeRead', () => false);
      const client = await open();
      const paid = await paidWhile(at, async () => {
        assert.deepEqual(await client.join([room], since), ['ok']);
        await client.sync();
      });
      assert.ok(paid.bytes >= 8000);
    },
  },
  {
    name: 'a position in a room without history counts as one that is not enough',
    needs: ['recover'],
    none: {
      [NAMES.SSE]: 'its positions are those of rooms with history',
      [NAMES.SSE_TOKEN]: 'its positions are those of rooms with history',
    },
    async run({ at, open, roomNamed }) {
      const room = roomNamed('a');
      const since = new Map([[room, { epoch: 'e', offset: 1 }]]);
      const client = await open();
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join([room], since), ['ok']);
      });
      assert.deepEqual(counted, { 'recoveries.insufficient': 1 });
    },
  },
  {
    name: 'a client that may not read history gets no older messages by a position',
    needs: ['recover', 'rights'],
    async run({ at, open, roomNamed }) {
      const room = roomNamed('log');
      const since = await startOf(at, [room]);
      await publish(at, room, { ageMs: 3_600_000 });
      await publish(at, room);
      const client = await open({ user: 'ann', rooms: { join: ['*'] } });
      assert.deepEqual(await client.join([room], since), ['ok']);
      await client.sync();
      assert.deepEqual(client.received(room).length, 0);
    },
  },
  {
    name: 'presence shows the user and the info of the token',
    none: { [NAMES.PUSHER]: 'the application signs who is listed, and as whom' },
    async run({ at, open, roomNamed }) {
      const room = roomNamed('presence');
      const client = await open({ user: 'ann', info: { colour: 'red' } });
      assert.deepEqual(await client.join([room]), ['ok']);
      await client.sync();
      assert.deepEqual(await usersIn(at, room), [{ user: 'ann', info: { colour: 'red' } }]);
    },
  },
  {
    name: 'presence shows a client without a user under its own id',
    none: {
      [NAMES.URL]: OF_TOKENS,
      [NAMES.HELLO]: OF_TOKENS,
      [NAMES.SSE_TOKEN]: OF_TOKENS,
      [NAMES.CONNECT]: OF_TOKENS,
      [NAMES.REFRESH]: OF_TOKENS,
      [NAMES.PUSHER]: 'the application signs who is listed, and as whom',
    },
    async run({ at, open, roomNamed }) {
      const room = roomNamed('presence');
      const client = await open();
      assert.deepEqual(await client.join([room]), ['ok']);
      await client.sync();
      const ids = at.delivery.hub.rooms.get(room)?.members.map(({ id }) => id);
      assert.deepEqual(
        (await usersIn(at, room)).map(({ user }) => user),
        ids,
      );
    },
  },
  {
    name: 'a second join of a room is refused, and counted',
    needs: ['rejoin'],
    async run({ at, door, open, roomNamed }) {
      const room = roomNamed('a');
      const client = await open();
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join([room, room]), ['ok', wordsOf(door, 'ALREADY_JOINED')]);
      });
      assert.equal(membersOf(at, room), 1);
      assert.deepEqual(counted, { 'errors.ALREADY_JOINED': 1 });
    },
  },
  {
    name: 'a room that the token does not name is refused, and counted',
    needs: ['rights'],
    none: {
      [NAMES.URL]: 'the rooms that a token names it permits',
      [NAMES.HELLO]: 'the rooms that a token names it permits',
      [NAMES.SSE_TOKEN]: 'the rooms that a token names it permits',
      [NAMES.CONNECT]: 'the channels that a token names it permits',
      [NAMES.REFRESH]: 'the channels that a token names it permits',
    },
    async run({ at, door, open, roomNamed }) {
      const room = roomNamed('a');
      const client = await open({ user: 'ann', rooms: { join: ['other'] } });
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join([room]), [wordsOf(door, 'PERMISSION_DENIED')]);
      });
      assert.equal(membersOf(at, room), 0);
      assert.deepEqual(counted, { 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: 'while the broker is unavailable a join is refused, and counted',
    async run({ at, door, open, roomNamed }) {
      const room = roomNamed('a');
      const { broker } = at.delivery.backend;
      const client = await open();
      Object.assign(broker, { state: 'degraded' });
      const counted = await countedBy(at, async () => {
        assert.deepEqual(await client.join([room]), [wordsOf(door, 'UNAVAILABLE')]);
      });
      Object.assign(broker, { state: 'up' });
      assert.equal(membersOf(at, room), 0);
      assert.deepEqual(counted, { 'errors.UNAVAILABLE': 1 });
    },
  },
  {
    name: 'a client whose user is revoked is closed, and counted',
    needs: ['rights'],
    async run({ at, open, roomNamed }) {
      const room = roomNamed('a');
      const user = roomNamed('user');
      const client = await open({ user });
      assert.deepEqual(await client.join([room]), ['ok']);
      const counted = await countedBy(at, async () => {
        await at.entry.auth?.revoke(/** @type {any} */ ({ user }));
        await until(() => client.closeCode() !== null, 'a close');
      });
      await until(() => membersOf(at, room) === 0, 'the end of the membership');
      assert.ok([4503, 3503].includes(Number(client.closeCode())), `${client.closeCode()}`);
      assert.deepEqual(counted, { 'auth.closes.revoked': 1 });
    },
  },
];

testAtEveryDoor(RULES);
