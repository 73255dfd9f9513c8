// pusher-presence.test.js: members of a presence channel under random joins, leaves, lost events and
// flushes that stop half way: what each client knows is what the store has.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { BrokerError } from '../../src/backend/errors.js';
import { loadConfig } from '../../src/config/config.js';
import {
  membersData,
  PusherFrames,
  ROSTER_TEXTS,
  subscribedText,
} from '../../src/doors/pusher/codec/frames.js';
import { Connection } from '../../src/hub/connection.js';
import { RosterJoins } from '../../src/operations/roster-joins.js';
import { NATIVE_TEXTS } from '../../src/protocol/door-texts.js';
import { encodeMember } from '../../src/protocol/encode.js';
import { FORMAT, registerFormat } from '../../src/protocol/format.js';
import { frameEnd, readHeader } from '../../src/protocol/frame.js';
import { ANNOUNCEMENTS } from '../../src/protocol/publication.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub } from '../helpers/hub.js';

const ROOM = '~1:presence-a';
/** More members than a flush writes to before it reads the clock. */
const CROWD = 33;
const frames = new PusherFrames();
registerFormat(FORMAT.PUSHER, {
  encode: frames.encode.bind(frames),
  endOf: frameEnd,
  encodeResync: () => Buffer.alloc(0),
});

/** A store with two workers: this one, and another. Its answers and events wait to be delivered. */
class Store {
  isUp = true;
  /** @type {Map<string, Set<'here'|'there'>>} */
  owners = new Map();
  /** What this worker has asked for, in order. @type {(() => void)[]} */
  asked = [];
  /** Events on their way to this worker. @type {Buffer[]} */
  events = [];
  /** Answers on their way to this worker. @type {(() => void)[]} */
  answers = [];

  /** @param {string} user @param {'here'|'there'} owner */
  enter(user, owner) {
    const owners = this.owners.get(user);
    if (owners !== undefined) return void owners.add(owner);
    this.owners.set(user, new Set([owner]));
    this.#announce('join', user);
  }

  /** @param {string} user @param {'here'|'there'} owner */
  exit(user, owner) {
    const owners = this.owners.get(user);
    if (!owners?.delete(owner) || owners.size > 0) return;
    this.owners.delete(user);
    this.#announce('leave', user);
  }

  /** @param {'join'|'leave'} event @param {string} user */
  #announce(event, user) {
    if (this.isUp)
      this.events.push(Buffer.concat([ANNOUNCEMENTS[event], encodeMember(user, null)]));
  }

  /** Each of its messages is a publication of its own. */
  get presence() {
    /** @template T @param {() => T} read @returns {Promise<T>} */
    const ask = (read) =>
      new Promise((resolve, reject) => {
        this.asked.push(() => {
          const result = this.isUp ? read() : null;
          this.answers.push(() =>
            result === null ? reject(new BrokerError('UNAVAILABLE', 'down')) : resolve(result),
          );
        });
      });
    return {
      join: (/** @type {string} */ _room, /** @type {string} */ key) =>
        void this.asked.push(() => this.enter(JSON.parse(key), 'here')),
      leave: (/** @type {string} */ _room, /** @type {string} */ key) =>
        void this.asked.push(() => this.exit(JSON.parse(key), 'here')),
      recorded: async () => void (await ask(() => ({}))),
      read: () =>
        ask(() => {
          const members = [...this.owners.keys()].map((user) => encodeMember(user, null));
          return { count: members.length, members };
        }),
    };
  }
}

/** A client that keeps the list as pusher-js does, and is strict about each change. */
class Client {
  transport = new FakeTransport();
  connection = new Connection(this.transport, '');
  isAnswered = false;

  /** @param {string} user */
  constructor(user) {
    this.user = user;
    this.transport.format = FORMAT.PUSHER;
    this.transport.door = { ...NATIVE_TEXTS, roster: ROSTER_TEXTS, encodeDegraded: () => null };
  }

  /** The members that it knows; null: it has no list. @returns {string[]|null} */
  known() {
    /** @type {Set<string>|null} */
    let members = null;
    for (const { event, data } of this.messages()) {
      if (event === 'pusher_internal:subscription_succeeded') {
        assert.equal(members, null, 'one list');
        members = new Set(JSON.parse(data).presence.ids);
        assert.ok(members.has(this.user), 'the list has its own user');
        continue;
      }
      assert.ok(members, 'no event comes before the list');
      const { user_id: user } = JSON.parse(data);
      const isJoin = event === 'pusher_internal:member_added';
      assert.equal(members.has(user), !isJoin, `${event} ${user} changes the list`);
      assert.notEqual(user, this.user, 'nobody hears of their own user');
      if (isJoin) members.add(user);
      else members.delete(user);
    }
    return members && [...members].sort();
  }

  *messages() {
    const bytes = Buffer.concat(this.transport.writes);
    for (let at = 0; at < bytes.length; at = frameEnd(bytes, at)) {
      const { start, length } = readHeader(bytes, at);
      if (length > 0) yield JSON.parse(bytes.toString('utf8', start, start + length));
    }
  }
}

/** A worker whose flushes, answers and events each wait for a step of the test. */
class Worker {
  store = new Store();
  /** @type {Client[]} */
  clients = [];
  /** @type {(() => void)[]} */
  line = [];
  isFull = false;
  #nowMs = 0;
  refusesRooms = false;
  #broker = {
    state: 'up',
    subscribe: async () => {
      if (this.refusesRooms) throw new BrokerError('UNAVAILABLE', 'down');
    },
    unsubscribe() {},
    reportConnections() {},
  };

  constructor() {
    const { config } = loadConfig({});
    assert.ok(config);
    const { presence } = this.store;
    const parts = buildHub({ config, broker: this.#broker, presence });
    const { outbox, hub, outageNotice } = parts;
    this.hub = hub;
    this.outbox = outbox;
    this.outageNotice = outageNotice;
    const isFull = outbox.isFull.bind(outbox);
    outbox.isFull = (room) => this.isFull || isFull(room);
    outbox.slot.wake = () => {}; // the test flushes
    outbox.slot.wakeAt = () => {};
    outbox.turn.clock = () => (this.#nowMs += 2); // each piece of a flush is over at its first look
    const presenceLine = { push: (/** @type {() => void} */ item) => void this.line.push(item) };
    const rosterParts = { hub, broker: this.#broker, presenceLine };
    this.rosters = new RosterJoins(/** @type {any} */ (rosterParts));
  }

  /** @param {string} user */
  subscribe(user) {
    const client = new Client(user);
    const { connection } = client;
    this.hub.addConnection(connection);
    this.clients.push(client);
    const listed = { user, info: null, member: encodeMember(user, null), max: 1000 };
    this.rosters.joinWithList(connection, ROOM, listed, {
      ...{ since: null, last: 0, hasOwn: true },
      onJoined: (_joined, users = []) => {
        client.isAnswered = true;
        connection.send(subscribedText('presence-a', membersData(users)));
      },
      onRefused: () => this.close(client),
    });
  }

  /** Unsubscribes if the client is a member, or ends the connection. @param {Client} client */
  close(client) {
    const { connection } = client;
    const room = this.hub.rooms.get(ROOM);
    this.clients.splice(this.clients.indexOf(client), 1);
    if (client.isAnswered && room?.has(connection)) this.hub.leave(connection, room);
    this.hub.removeConnection(connection);
  }

  /** The store does what it was asked next. */
  answer() {
    this.store.asked.shift()?.();
  }

  /** The next event arrives. */
  deliver() {
    const event = this.store.events.shift();
    if (event !== undefined) this.hub.broadcast(ROOM, event);
  }

  /** The next event is lost, and the broker notices. */
  lose() {
    this.store.events.shift();
    this.outageNotice.onLost([ROOM]);
  }

  /** The next event finds the outbox full. */
  overflow() {
    this.isFull = true;
    this.deliver();
    this.isFull = false;
  }

  /** @param {boolean} isUp */
  setUp(isUp) {
    this.store.isUp = isUp;
    if (!isUp) this.store.events = [];
    const state = isUp ? 'up' : 'degraded';
    if (this.#broker.state === state) return;
    this.#broker.state = state;
    this.outageNotice.onState(state);
  }

  /** Part of a flush. */
  piece() {
    this.outbox.slot.begin(this.#nowMs, 1);
    this.outbox.run();
  }

  sweep() {
    this.rosters.sweep((this.#nowMs += 1000));
  }

  /** Until all is quiet: two sweeps find nothing more to read. */
  async settle() {
    this.isFull = false;
    this.setUp(true);
    for (let quiet = 0; quiet < 2; ) {
      this.sweep();
      for (quiet++; this.hasWork; quiet = 0) {
        for (const item of this.line.splice(0)) item();
        while (this.store.asked.length > 0) this.answer();
        for (const reply of this.store.answers.splice(0)) reply();
        while (this.store.events.length > 0) this.deliver();
        this.outbox.flush();
        await turn();
      }
      await turn();
    }
  }

  get hasWork() {
    const { asked, answers, events } = this.store;
    return (
      asked.length + answers.length + events.length + this.line.length > 0 || this.outbox.bytes > 0
    );
  }
}

const users = fc.constantFrom('ann', 'ben', 'cat');
const steps = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.constant('subscribe'), users) },
  { weight: 3, arbitrary: fc.tuple(fc.constant('close'), fc.nat(CROWD + 6)) },
  { weight: 3, arbitrary: fc.tuple(fc.constantFrom('enter', 'exit'), users) },
  {
    weight: 15,
    arbitrary: fc.tuple(fc.constantFrom('answer', 'reply', 'deliver', 'line', 'piece'), fc.nat(3)),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.constantFrom('sweep', 'overflow', 'lose', 'down', 'up'), fc.nat(0)),
  },
);

const size = { minLength: 10, maxLength: 80, size: /** @type {const} */ ('max') };

/** @param {Worker} worker @param {string} what @param {string|number} which */
function step(worker, what, which) {
  const { store, clients } = worker;
  const times = Number(which) + 1;
  if (what === 'subscribe') worker.subscribe(String(which));
  else if (what === 'close') {
    const client = clients[clients.length - 1 - Number(which)]; // mostly of the latest
    if (client !== undefined) worker.close(client);
  } else if (what === 'enter') store.enter(String(which), 'there');
  else if (what === 'exit') store.exit(String(which), 'there');
  else if (what === 'sweep') worker.sweep();
  else if (what === 'down' || what === 'up') worker.setUp(what === 'up');
  else if (what === 'lose') worker.lose();
  else if (what === 'overflow') worker.overflow();
  else
    for (let i = 0; i < times; i++) {
      if (what === 'answer') worker.answer();
      else if (what === 'reply') worker.store.answers.shift()?.();
      else if (what === 'deliver') worker.deliver();
      else if (what === 'piece') worker.piece();
      else worker.line.shift()?.();
    }
}

test('each client gets every change of its list once, and its list ends as the store has it', async () => {
  await fc.assert(
    fc.asyncProperty(fc.boolean(), fc.array(steps, size), async (isFirst, drawn) => {
      const worker = new Worker();
      for (let i = 0; i < CROWD; i++) worker.subscribe('crowd');
      if (!isFirst) await worker.settle();
      for (const [what, which] of drawn) {
        step(worker, what, which);
        await null;
        await turn();
      }
      await worker.settle();
      const present = [...worker.store.owners.keys()].sort();
      for (const client of worker.clients) {
        assert.deepEqual(client.transport.failures, []);
        assert.deepEqual(client.known(), present);
      }
    }),
    { numRuns: 150 },
  );
});

test('a correction does not overtake an event that waits in the outbox', async () => {
  const worker = new Worker();
  worker.subscribe('ann');
  await worker.settle();
  worker.store.enter('ben', 'there');
  worker.deliver();
  worker.store.exit('ben', 'there');
  worker.lose();
  worker.sweep();
  worker.answer();
  for (const reply of worker.store.answers.splice(0)) reply();
  await turn();
  await worker.settle();
  assert.deepEqual(worker.clients[0].known(), ['ann']);
});

test('a room closes with its last member, also with one that has no answer yet', async () => {
  const worker = new Worker();
  worker.subscribe('ann');
  worker.close(worker.clients[0]);
  assert.equal(worker.hub.rooms.has(ROOM), false);
  worker.subscribe('ann');
  await worker.settle();
  assert.equal(worker.clients[0].isAnswered, true);
  worker.close(worker.clients[0]);
  assert.equal(worker.hub.rooms.has(ROOM), false);
});

test('every client is refused if the broker refuses the room', async () => {
  const worker = new Worker();
  worker.refusesRooms = true;
  worker.subscribe('ann');
  worker.subscribe('ben');
  await turn();
  assert.deepEqual([worker.clients, worker.hub.rooms.has(ROOM)], [[], false]);
});
