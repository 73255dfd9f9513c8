// every-door-publishes.test.js: each rule of a publish, at each door and HTTP API.

import assert from 'node:assert/strict';
import { withAudience } from '../../src/protocol/publication.js';
import { publishWordsOf } from '../helpers/door-clients.js';
import { countedBy, HOOKS, membersOf, testAtEveryDoor, until } from '../helpers/every-door.js';
import { decided } from '../helpers/hooks/decided.js';

/** @import { Asked, Rule } from '../helpers/every-door.js' */
/** @import { TestedWorker } from '../helpers/whole-worker.js' */

const CLIENT = /** @type {const} */ (['publish']);
const FROM_A_USER = /** @type {const} */ (['publish', 'user']);
const PUSHER = 'Pusher';
const OF_NO_APP = [
  ...['native', 'HTTP API', "Centrifugo's server API", 'Centrifugo, JSON'],
  ...['Centrifugo, protobuf', 'Centrifugo, stream of lines', 'Centrifugo, server-sent events'],
];

/**
 * A client that may publish to the room: Pusher's clients have to be in it.
 * @param {Asked} asked @param {string} room @param {import('../helpers/door-clients.js').Who} [who]
 */
async function publisherIn({ door, open }, room, who) {
  const client = await open(who);
  if (door.without.join === undefined) assert.deepEqual(await client.join([room]), ['ok']);
  return client;
}

/** Payloads that the broker accepts. @param {import('node:test').TestContext} t @param {TestedWorker} at */
function acceptedBy(t, { delivery }) {
  /** @type {Buffer[]} */
  const accepted = [];
  const { broker } = delivery.backend;
  const publish = broker.publish.bind(broker);
  t.mock.method(broker, 'publish', (/** @type {any} */ ...args) => {
    accepted.push(args[1]);
    return publish(.../** @type {[string, Buffer]} */ (args));
  });
  return accepted;
}

/** The next publishes fail. @param {import('node:test').TestContext} t @param {TestedWorker} at @param {string} code */
function failWith(t, { delivery }, code) {
  const fail = async () => {
    throw Object.assign(new Error(code), { code, name: 'BrokerError' });
  };
  t.mock.method(delivery.backend.broker, 'publish', fail);
}

/** @type {readonly Rule[]} */
const RULES = [
  {
    name: 'a message for an audience that the client does not hold does not reach it',
    needs: CLIENT,
    async run(asked) {
      const { t, at, roomNamed, door } = asked;
      if (door.without.echo !== undefined) return;
      const room = roomNamed('private-a');
      const { broker } = at.delivery.backend;
      const publish = broker.publish.bind(broker);
      /** @type {[string, Buffer][]} */
      const accepted = [];
      t.mock.method(broker, 'publish', (/** @type {any} */ ...args) => {
        accepted.push([args[0], Buffer.from(args[1])]);
        return publish(.../** @type {[string, Buffer]} */ (args));
      });
      const client = await publisherIn(asked, room);
      assert.equal(await client.publish(room, { n: 1 }), 'ok');
      await until(() => client.received(room).length > 0, 'its own message');
      const [[name, publication]] = accepted;
      await broker.publish(name, withAudience(publication, 'staff'));
      await broker.publish(name, Buffer.from(publication));
      await until(() => client.received(room).length > 1, 'the message for all');
      assert.deepEqual(client.received(room), [{ n: 1 }, { n: 1 }]);
    },
  },
  {
    name: 'a message reaches the members, and is counted once',
    needs: CLIENT,
    hasApis: true,
    async run(asked) {
      const { t, at, roomNamed, door } = asked;
      const room = roomNamed('private-a');
      const accepted = acceptedBy(t, at);
      const client = await publisherIn(asked, room);
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, { n: 1 }), 'ok');
      });
      assert.equal(accepted.length, 1);
      assert.deepEqual(counted, { publications: 1 });
      if (door.without.echo !== undefined) return;
      await until(() => client.received(room).length > 0, 'its own message');
      assert.deepEqual(client.received(room), [{ n: 1 }]);
    },
  },
  {
    name: 'a payload over the limit is refused, counted, and not published',
    env: { FANFARE_MAX_INLINE_BYTES: '1024', FANFARE_STATE_MAX_VALUE_BYTES: '1024' },
    needs: CLIENT,
    hasApis: true,
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      const accepted = acceptedBy(t, at);
      const client = await publisherIn(asked, room);
      const counted = await countedBy(at, async () => {
        assert.equal(
          await client.publish(room, 'x'.repeat(2000)),
          publishWordsOf(door, 'MESSAGE_TOO_LARGE'),
        );
      });
      assert.equal(accepted.length, 0);
      const isClient = door.without.user === undefined;
      assert.deepEqual(counted, isClient ? { 'errors.MESSAGE_TOO_LARGE': 1 } : {});
    },
  },
  {
    name: 'an event over the limit of its app is refused, counted, and not published',
    needs: CLIENT,
    hasApis: true,
    none: Object.fromEntries(OF_NO_APP.map((name) => [name, 'its rooms belong to no app'])),
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      const accepted = acceptedBy(t, at);
      const client = await publisherIn(asked, room);
      const counted = await countedBy(at, async () => {
        assert.equal(
          await client.publish(room, 'x'.repeat(70_000)),
          publishWordsOf(door, 'MESSAGE_TOO_LARGE'),
        );
      });
      assert.equal(accepted.length, 0);
      const isClient = door.without.user === undefined;
      assert.deepEqual(counted, isClient ? { 'errors.MESSAGE_TOO_LARGE': 1 } : {});
    },
  },
  {
    name: 'a message over the rate is refused, counted, and not published',
    env: { FANFARE_LIMITS: 'enforce' },
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      const client = await publisherIn(asked, room);
      const accepted = acceptedBy(t, at);
      t.mock.method(at.entry.limiter, 'admitMessage', () => 3);
      const counted = await countedBy(at, async () => {
        const answer = await client.publish(room, 'x');
        assert.equal(answer, publishWordsOf(door, 'RATE_LIMIT_EXCEEDED'));
      });
      assert.equal(accepted.length, 0);
      assert.deepEqual(counted, { 'errors.RATE_LIMIT_EXCEEDED': 1 });
    },
  },
  {
    name: 'a client that is over the rate too often is closed, and counted',
    env: { FANFARE_LIMITS: 'enforce' },
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, roomNamed } = asked;
      const room = roomNamed('private-a');
      const client = await publisherIn(asked, room);
      t.mock.method(at.entry.limiter, 'admitMessage', () => -1);
      const counted = await countedBy(at, async () => {
        client.publish(room, 'x').catch(() => {});
        await until(() => client.closeCode() !== null, 'a close');
      });
      assert.ok([4005, 4100, 3013].includes(Number(client.closeCode())), `${client.closeCode()}`);
      assert.deepEqual(counted, { rateLimitCloses: 1 });
    },
  },
  {
    name: 'the members of a large room count against the rate of the sender',
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, roomNamed } = asked;
      const room = roomNamed('private-a');
      const client = await publisherIn(asked, room);
      /** @type {number[]} */
      const charged = [];
      const charge = (/** @type {unknown} */ _, /** @type {number} */ members) =>
        void charged.push(members);
      t.mock.method(at.delivery.publisher.charges, 'chargeMembers', charge);
      assert.equal(await client.publish(room, 'x'), 'ok');
      assert.deepEqual(charged, [1]);
    },
  },
  {
    name: 'a room in which the token does not permit to publish is refused, and counted',
    env: HOOKS,
    needs: [...FROM_A_USER, 'rights'],
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      decided.join = () => undefined;
      decided.publish = () => assert.fail('asked before the right was checked');
      const client = await publisherIn(asked, room, { user: 'ann', rooms: { join: ['*'] } });
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, 'x'), publishWordsOf(door, 'PERMISSION_DENIED'));
      });
      assert.equal(accepted.length, 0);
      assert.deepEqual(counted, { 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: 'onPublish is asked, and may change the payload',
    env: HOOKS,
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      decided.join = () => undefined;
      /** @type {unknown[]} */
      const calls = [];
      decided.publish = async (user, name, payload) => {
        calls.push([user, name, JSON.stringify(payload).includes('"n":1')]);
        return { payload: door.name === PUSHER ? { data: { n: 2 } } : { n: 2 } };
      };
      const client = await publisherIn(asked, room, { user: 'ann' });
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, { n: 1 }), 'ok');
        await until(() => accepted.length > 0, 'a publication');
      });
      assert.deepEqual(calls, [['ann', room, true]]);
      assert.match(String(accepted[0]), /\\?"n\\?":2/);
      assert.deepEqual(counted, { publications: 1 });
    },
  },
  {
    name: 'a message that onPublish denies is refused, counted, and not published',
    env: HOOKS,
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      decided.join = () => undefined;
      decided.publish = () => ({ deny: 'not this' });
      const client = await publisherIn(asked, room, { user: 'ann' });
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, 'x'), publishWordsOf(door, 'PERMISSION_DENIED'));
      });
      assert.equal(accepted.length, 0);
      assert.deepEqual(counted, { 'hooks.denied.onPublish': 1, 'errors.PERMISSION_DENIED': 1 });
    },
  },
  {
    name: 'a message is unavailable if onPublish fails, and counted',
    env: HOOKS,
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      decided.join = () => undefined;
      decided.publish = () => {
        throw new Error('the database is away');
      };
      const client = await publisherIn(asked, room, { user: 'ann' });
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        assert.notEqual(await client.publish(room, 'x'), publishWordsOf(door, 'PERMISSION_DENIED'));
      });
      assert.equal(accepted.length, 0);
      assert.deepEqual(counted, { 'hooks.failures.onPublish,throw': 1, 'errors.UNAVAILABLE': 1 });
    },
  },
  {
    name: 'a message is published although its sender closes while onPublish runs',
    env: HOOKS,
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, roomNamed } = asked;
      const room = roomNamed('private-a');
      decided.join = () => undefined;
      /** @type {(answer: undefined) => void} */
      let answer = () => {};
      let isAsked = false;
      decided.publish = () => {
        isAsked = true;
        return new Promise((resolve) => {
          answer = resolve;
        });
      };
      const client = await publisherIn(asked, room, { user: 'ann' });
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        client.publish(room, 'x').catch(() => {});
        await until(() => isAsked, 'the hook');
        client.end();
        await until(() => membersOf(at, room) === 0, 'the end of the connection');
        answer(undefined);
        await until(() => at.worker.commands.isSettled(), 'the end of the call');
      });
      assert.equal(accepted.length, 1);
      assert.deepEqual(counted, { publications: 1 });
    },
  },
  ...['UNAVAILABLE', 'OUTCOME_UNKNOWN'].map((code) => ({
    name: `a message that the broker answers with ${code} is refused so, and counted`,
    needs: CLIENT,
    hasApis: true,
    /** @type {Rule['run']} */
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      const client = await publisherIn(asked, room);
      failWith(t, at, code);
      const refused = publishWordsOf(door, /** @type {'UNAVAILABLE'} */ (code));
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, 'x'), refused);
      });
      const isClient = door.without.user === undefined;
      const errors = isClient ? { [`errors.${code}`]: 1 } : {};
      assert.deepEqual(counted, { ...errors, publications: 1 });
    },
  })),
  {
    name: 'while the worker settles a message is unavailable, and counted',
    needs: FROM_A_USER,
    async run(asked) {
      const { t, at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      const client = await publisherIn(asked, room);
      t.mock.getter(at.phase, 'isSettling', () => true);
      const counted = await countedBy(at, async () => {
        assert.equal(await client.publish(room, 'x'), publishWordsOf(door, 'UNAVAILABLE'));
      });
      assert.deepEqual(counted, { 'errors.UNAVAILABLE': 1 });
    },
  },
  {
    name: 'a repeated message with the same key is published once, and another one conflicts',
    needs: ['publish', 'idempotency'],
    hasApis: true,
    async run(asked) {
      const { at, door, roomNamed } = asked;
      const room = roomNamed('private-log');
      const client = await publisherIn(asked, room);
      const once = { idempotencyKey: 'k' };
      assert.equal(await client.publish(room, 'x', once), 'ok');
      assert.equal(await client.publish(room, 'x', once), 'ok');
      const conflict = await client.publish(room, 'y', once);
      assert.equal(conflict, publishWordsOf(door, 'IDEMPOTENCY_CONFLICT'));
      const { offset } = await at.delivery.backend.broker.history(room, { after: 0, limit: 0 });
      assert.equal(offset, 1);
    },
  },
  {
    name: 'a message without a key does not reach a room with state, nor its hook',
    env: HOOKS,
    needs: CLIENT,
    hasApis: true,
    none: {
      [PUSHER]: 'its clients publish to rooms that they are in, and cannot join one with state',
    },
    async run(asked) {
      const { t, at, open, roomNamed } = asked;
      const room = roomNamed('state');
      decided.publish = () => assert.fail('asked before the key was checked');
      const client = await open({ user: 'ann' });
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        assert.notEqual(await client.publish(room, 'x'), 'ok');
      });
      assert.equal(accepted.length, 0);
      const isClient = asked.door.without.user === undefined;
      assert.deepEqual(counted, isClient ? { 'errors.INVALID_MESSAGE_FORMAT': 1 } : {});
    },
  },
  {
    name: 'a message of a client is recorded for webhooks when the broker has accepted it',
    needs: CLIENT,
    hasApis: true,
    async run(asked) {
      const { at, door, roomNamed } = asked;
      const room = roomNamed('private-a');
      const client = await publisherIn(asked, room);
      const of = () => at.recorded.filter((one) => one.room === room).length;
      assert.equal(await client.publish(room, 'x'), 'ok');
      assert.equal(of(), door.without.user === undefined ? 1 : 0);
    },
  },
  {
    name: 'a name that no room has is refused, and counted',
    needs: CLIENT,
    hasApis: true,
    async run({ t, at, door, open }) {
      const client = await open();
      const accepted = acceptedBy(t, at);
      const counted = await countedBy(at, async () => {
        const answer = await client.publish(`private-${'x'.repeat(300)}`, 'x');
        assert.equal(answer, publishWordsOf(door, 'INVALID_ROOM'));
      });
      assert.equal(accepted.length, 0);
      const isClient = door.without.user === undefined;
      assert.deepEqual(counted, isClient ? { 'errors.INVALID_ROOM': 1 } : {});
    },
  },
];

testAtEveryDoor(RULES);
