// every-door-reads.test.js: each rule of a read of history or presence, at each door.

import assert from 'node:assert/strict';
import { wordsOf } from '../helpers/door-clients.js';
import {
  countedBy,
  HOOKS,
  paidWhile,
  publish,
  testAtEveryDoor,
  until,
} from '../helpers/every-door.js';
import { decided } from '../helpers/hooks/decided.js';

/** @import { Asked, Rule } from '../helpers/every-door.js' */
/** @import { Who } from '../helpers/door-clients.js' */

const KINDS = /** @type {const} */ (['history', 'presence']);

/**
 * A client that reads a room with history and presence, which it is not in.
 * @param {Asked} asked @param {'history'|'presence'} kind @param {Who} [who]
 */
async function readerOf({ open, roomNamed }, kind, who = { user: 'ann' }) {
  const room = roomNamed('presence-log');
  const client = await open(who);
  return { room, read: () => client[kind](room), client };
}

/** @param {'history'|'presence'} kind @returns {readonly Rule[]} */
const rulesOf = (kind) => [
  {
    name: `${kind} is read, and paid`,
    needs: [kind],
    async run(asked) {
      const { at } = asked;
      const { read, room } = await readerOf(asked, kind);
      await publish(at, room);
      const member = await asked.open({ user: 'bob' });
      assert.deepEqual(await member.join([room]), ['ok']);
      await member.sync();
      const paid = await paidWhile(at, async () => {
        const counted = await countedBy(at, async () => assert.equal(await read(), 'ok'));
        assert.deepEqual(counted, {});
      });
      assert.ok(paid.bytes > (kind === 'history' ? 8000 : 0), `${paid.bytes}`);
    },
  },
  {
    name: `${kind} of a room that the token does not name is refused, and counted`,
    needs: [kind],
    async run(asked) {
      const { at, door } = asked;
      const who = { user: 'ann', rooms: { join: ['*'] } };
      const { read } = await readerOf(asked, kind, who);
      const counted = await countedBy(at, async () => {
        assert.equal(await read(), wordsOf(door, 'PERMISSION_DENIED'));
      });
      assert.deepEqual(counted, { 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: `${kind} of a room that onJoin denies is refused, and counted`,
    env: HOOKS,
    needs: [kind],
    async run(asked) {
      const { at, door } = asked;
      decided.join = async () => ({ deny: 'not you' });
      const { read } = await readerOf(asked, kind);
      const counted = await countedBy(at, async () => {
        assert.equal(await read(), wordsOf(door, 'PERMISSION_DENIED'));
      });
      assert.deepEqual(counted, { 'hooks.denied.onJoin': 1, 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: `${kind} is unavailable while too many reads wait, and counted`,
    needs: [kind],
    async run(asked) {
      const { t, at, door } = asked;
      const { read } = await readerOf(asked, kind);
      t.mock.getter(at.worker.operations.reads, 'isFull', () => true);
      const counted = await countedBy(at, async () => {
        assert.equal(await read(), wordsOf(door, 'UNAVAILABLE'));
      });
      assert.deepEqual(counted, { 'errors.UNAVAILABLE': 1, readsRefused: 1 });
    },
  },
  {
    name: `${kind} is unavailable if the broker is, and counted`,
    needs: [kind],
    async run(asked) {
      const { t, at, door } = asked;
      const { read } = await readerOf(asked, kind);
      const { broker, presence } = at.delivery.backend;
      const fail = async () => {
        throw Object.assign(new Error('away'), { code: 'UNAVAILABLE', name: 'BrokerError' });
      };
      if (kind === 'history') t.mock.method(broker, 'history', fail);
      else t.mock.method(/** @type {any} */ (presence), 'read', fail);
      const counted = await countedBy(at, async () => {
        assert.equal(await read(), wordsOf(door, 'UNAVAILABLE'));
      });
      assert.deepEqual(counted, { 'errors.UNAVAILABLE': 1 });
    },
  },
  {
    name: `a client that closes while ${kind} is read costs nothing more`,
    needs: [kind],
    async run(asked) {
      const { t, at } = asked;
      const { read, client } = await readerOf(asked, kind);
      const { broker, presence } = at.delivery.backend;
      const store = /** @type {any} */ (kind === 'history' ? broker : presence);
      const method = kind === 'history' ? 'history' : 'read';
      const original = store[method].bind(store);
      /** @type {() => void} */
      let go = () => {};
      const gate = new Promise((resolve) => {
        go = () => resolve(undefined);
      });
      let isAsked = false;
      t.mock.method(store, method, async (/** @type {any[]} */ ...args) => {
        isAsked = true;
        await gate;
        return original(...args);
      });
      const paid = await paidWhile(at, async () => {
        const counted = await countedBy(at, async () => {
          read().catch(() => {});
          await until(() => isAsked, 'the read');
          const { sockets } = at.counters;
          client.end();
          await until(() => at.counters.sockets < sockets, 'the end of the socket');
          go();
          await new Promise(setImmediate);
          await new Promise(setImmediate);
        });
        assert.deepEqual(counted, {});
      });
      assert.equal(paid.bytes, 0);
    },
  },
  {
    name: `${kind} of a name that no room has is refused, and counted`,
    needs: [kind],
    async run(asked) {
      const { at, door, open } = asked;
      const client = await open({ user: 'ann' });
      const counted = await countedBy(at, async () => {
        assert.equal(await client[kind]('x'.repeat(300)), wordsOf(door, 'INVALID_ROOM'));
      });
      assert.deepEqual(counted, { 'errors.INVALID_ROOM': 1 });
    },
  },
];

/** @type {Rule} */
const OF_HALF_THE_UNSENT_BYTES = {
  name: 'an answer with history has at most half of the bytes that may wait for a connection',
  env: { FANFARE_MAX_UNSENT_BYTES: '200000' },
  needs: ['history'],
  async run(asked) {
    const { at } = asked;
    const { read, room } = await readerOf(asked, 'history');
    for (let i = 0; i < 8; i++) await publish(at, room, { bytes: 30_000 });
    const paid = await paidWhile(at, async () => assert.equal(await read(), 'ok'));
    assert.ok(paid.bytes > 90_000 && paid.bytes < 100_000, `${paid.bytes}`);
  },
};

/** @type {Rule} */
const BY_THE_RIGHTS_AT_THE_END = {
  name: 'an answer has no message that its client may not see any more',
  needs: ['history'],
  async run(asked) {
    const { t, at } = asked;
    const { read, room } = await readerOf(asked, 'history');
    const { historyReader, hub } = at.delivery;
    const connection = /** @type {import('../../src/hub/connection.js').Connection} */ (
      hub.connections.at(-1)
    );
    const page = historyReader.page.bind(historyReader);
    let pages = 0;
    for (const isTaken of [false, true]) {
      connection.giveAudiences(room, ['staff']);
      t.mock.method(
        historyReader,
        'page',
        async (/** @type {Parameters<typeof page>} */ ...args) => {
          const part = await page(...args);
          if (Number(part?.rows.length) > 0 && ++pages && isTaken)
            connection.giveAudiences(room, []);
          return part;
        },
      );
      if (!isTaken) await publish(at, room, { audience: 'staff' });
      const paid = await paidWhile(at, async () => assert.equal(await read(), 'ok'));
      assert.equal(paid.bytes > 8000, !isTaken, `${paid.bytes}`);
    }
    assert.ok(pages > 1);
  },
};

testAtEveryDoor([...KINDS.flatMap(rulesOf), OF_HALF_THE_UNSENT_BYTES, BY_THE_RIGHTS_AT_THE_END]);
