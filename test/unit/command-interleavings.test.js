// command-interleavings.test.js: whatever the order in which hooks, the broker, the backend and the
// network act, commands of a connection take effect in the order of sending, and a closed one is
// nowhere.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Connection } from '../../src/hub/connection.js';
import { payloadText } from '../../src/protocol/publication.js';
import { refusal } from '../../src/protocol/refusal.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport, messagesOf } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { inAllOrders, inOrder, Pipe } from '../helpers/interleavings.js';
import { away, StreamBroker } from '../helpers/stream-broker.js';

const RUNS = 250;
const CLIENTS = 2;
/** `log` has history. */
const ROOMS = /** @type {const} */ (['a', 'log']);

/** @typedef {import('../helpers/interleavings.js').Scheduler} Scheduler */
/** @typedef {{type: 'join'|'leave'|'message'|'ping', room: string}} Command */
/** @typedef {{next: () => {value?: number}}} Draws */

/** @typedef {{id: number, type: Command['type'], room: string, effect: string|null}} Sent */

const command = fc.record({
  type: fc.constantFrom('join', 'join', 'message', 'message', 'leave', 'ping'),
  room: fc.constantFrom(...ROOMS),
});
const backendStep = fc.record({
  isJoin: fc.boolean(),
  client: fc.nat(CLIENTS - 1),
  room: fc.constantFrom(...ROOMS),
});

/** A client, which knows its rooms from what it is sent. */
class Client {
  /** @param {number} index */
  constructor(index) {
    this.index = index;
    this.transport = new FakeTransport();
    this.connection = new Connection(this.transport, '');
    /** @type {Sent[]} */
    this.sent = [];
    /** The position at which it joined. @type {Map<string, number>} */
    this.rooms = new Map();
    /** Messages by room, as sender and id. @type {Map<string, string[]>} */
    this.received = new Map(ROOMS.map((room) => [room, []]));
    /** The same, of messages that came while it was a member. @type {Map<string, string[]>} */
    this.expected = new Map(ROOMS.map((room) => [room, []]));
    this.denied = 0;
    this.isClosed = false;
    const write = this.transport.write.bind(this.transport);
    this.transport.write = (frames) => {
      write(frames);
      for (const message of messagesOf(frames)) this.hear(message);
    };
  }

  /** @param {Record<string, any>} message */
  hear({ type, id, room, payload, error, offset = 0 }) {
    if (id !== undefined) this.took(id, error ?? type);
    if (type === 'joined') this.rooms.set(room, offset);
    else if (type === 'left') this.rooms.delete(room);
    else if (type === 'message') {
      assert.ok(this.rooms.has(room), `client ${this.index} hears ${room}, which it is not in`);
      this.received.get(room)?.push(payload);
    }
  }

  /**
   * A command has had its effect: those before it have had theirs, except that joins overlap.
   * @param {number} id @param {string} effect
   */
  took(id, effect) {
    const one = this.sent[id];
    // A message has its effect when the broker gets it; its answer comes later.
    if (one.type === 'message' && one.effect === 'published') return;
    assert.equal(one.effect, null, `client ${this.index} is answered twice: ${id}`);
    one.effect = effect;
    if (one.type === 'ping') return;
    for (const before of this.sent.slice(0, id)) {
      if (before.effect !== null || before.type === 'ping') continue;
      assert.ok(
        before.type === 'join' && one.type === 'join',
        `client ${this.index}: ${one.type} ${id} overtook ${before.type} ${before.id}`,
      );
    }
  }
}

/** A worker whose hooks and broker answer when the scheduler says. */
class Scene {
  /** @param {Scheduler} s @param {Draws} fates of the answers */
  constructor(s, fates) {
    this.s = s;
    this.fates = fates;
    this.clients = Array.from({ length: CLIENTS }, (_, index) => new Client(index));
    this.broker = new StreamBroker();
    /** Rooms of the broker that the hub has subscribed to. @type {Map<string, number>} */
    this.subscribed = new Map();
    /** @type {Map<string, Pipe>} */
    this.pipes = new Map(ROOMS.map((room) => [room, new Pipe(s, `${room} is delivered`)]));
    /** Rooms and users in presence. @type {Set<string>} */
    this.present = new Set();
    const { broker, present } = this;
    const parts = buildHub({
      config: configOf({}),
      broker: Object.assign(Object.create(broker), this.#broker()),
      historyOf: (room) => (room === 'log' ? { size: 100, ttlMs: 60_000 } : null),
      hooks: {
        has: (hook) => hook === 'onJoin' || hook === 'onPublish',
        callFor: (hook, connection, [room, payload]) =>
          this.#ask(hook, connection, String(room), payload),
      },
      presence: {
        join: (room, user) => void present.add(`${room} ${user}`),
        leave: (room, user) => void present.delete(`${room} ${user}`),
        recorded: async () => {},
        read: async () => ({ count: 0, members: [] }),
      },
      clock: () => 0,
    });
    this.parts = parts;
    for (const { connection } of this.clients) parts.hub.addConnection(connection);
  }

  /** @param {number} below */
  #draw(below) {
    return Number(this.fates.next().value) % below;
  }

  /** Resolves or rejects in a step of its own. @template T @param {string} label @param {() => T} answer */
  #later(label, answer) {
    return this.s.schedule(Promise.resolve(), label).then(answer);
  }

  #broker() {
    const { broker } = this;
    return {
      subscribe: (/** @type {string} */ room) => {
        this.subscribed.set(room, (this.subscribed.get(room) ?? 0) + 1);
        if (room.startsWith('*')) return Promise.resolve();
        const isRefused = this.#draw(6) === 0;
        return this.#later(`${isRefused ? 'refuses' : 'confirms'} ${room}`, () => {
          if (isRefused) throw away();
        });
      },
      unsubscribe: (/** @type {string} */ room) => {
        this.subscribed.set(room, (this.subscribed.get(room) ?? 0) - 1);
      },
      history: (/** @type {string} */ room, /** @type {any} */ from) => {
        const isRefused = this.#draw(8) === 0;
        return this.#later(`${isRefused ? 'fails' : 'answers'} a read of ${room}`, () => {
          if (isRefused) throw away();
          return broker.look(room, from);
        });
      },
      publish: (/** @type {string} */ room, /** @type {Buffer} */ publication) =>
        this.#publish(room, publication),
    };
  }

  /** @param {string} room @param {Buffer} publication */
  #publish(room, publication) {
    const name = JSON.parse(payloadText(publication));
    const [client, id] = name.split(':').map(Number);
    this.clients[client].took(id, 'published');
    const position = room === 'log' ? this.broker.accept(room, publication) : undefined;
    this.broker.announcements = [];
    this.pipes.get(room)?.push(() => {
      const { offset = 1, epoch } = position ?? {};
      for (const { rooms, expected, isClosed } of this.clients)
        if (!isClosed && offset > (rooms.get(room) ?? offset)) expected.get(room)?.push(name);
      this.parts.hub.broadcast(room, publication, position && offset, epoch);
    });
    return this.#later(`answers the publication ${name}`, () => position);
  }

  /**
   * @param {string} hook @param {Connection} connection @param {string} room @param {unknown} payload
   * @returns {any}
   */
  #ask(hook, connection, room, payload) {
    const client = /** @type {Client} */ (
      this.clients.find((one) => one.connection === connection)
    );
    assert.equal(client.isClosed, false, `${hook} is asked for a closed connection`);
    const isDenied = this.#draw(4) === 0;
    const verdict = {
      refusal: isDenied ? refusal('DENIED', 'no') : null,
      answer: { payload: null, audience: '', audiences: [] },
    };
    if (isDenied) client.denied++;
    if (this.#draw(4) === 0) return verdict;
    const what = `${hook} ${isDenied ? 'denies' : 'allows'} ${room} ${payload ?? ''}`;
    return this.#later(`client ${client.index}: ${what}`, () => verdict);
  }

  /** @param {Client} client @param {Command} command */
  send(client, { type, room }) {
    if (client.isClosed) return;
    const { index, sent, connection } = client;
    const id = sent.length;
    sent.push({ id, type, room, effect: null });
    receive(this.parts.commands, connection, { type, room, id, payload: `${index}:${id}` });
  }

  /** @param {Client} client */
  close(client) {
    client.isClosed = true;
    this.parts.operations.identities.leave(client.connection);
    client.transport.write = () => {};
  }

  /** Everything has happened: what must be true of the worker now? */
  check() {
    const { hub, operations } = this.parts;
    const { lane } = operations;
    assert.deepEqual([lane.isEmpty, lane.queuedBytes], [true, 0], 'the lane is empty');
    for (const client of this.clients) {
      for (const room of ROOMS) {
        const isMember = hub.rooms.get(room)?.has(client.connection) ?? false;
        assert.equal(
          isMember,
          !client.isClosed && client.rooms.has(room),
          `${client.index} ${room}`,
        );
        const user = JSON.stringify(client.connection.id);
        assert.equal(this.present.has(`${room} ${user}`), isMember, `presence of ${client.index}`);
        assert.deepEqual(client.received.get(room), client.expected.get(room));
      }
      if (client.isClosed) continue;
      for (const { id, type, effect } of client.sent)
        assert.notEqual(effect, null, `client ${client.index} hears nothing of ${type} ${id}`);
      const denied = client.sent.filter(({ effect }) => effect === 'PERMISSION_DENIED').length;
      assert.equal(denied, client.denied, 'each refusal of a hook is answered');
    }
    for (const room of ROOMS) {
      const isOpen = hub.rooms.has(room);
      assert.equal(isOpen, (hub.rooms.get(room)?.members.length ?? 0) > 0, `${room} stays open`);
      assert.equal(this.subscribed.get(room) ?? 0, isOpen ? 1 : 0, `subscriptions to ${room}`);
    }
  }
}

const commands = fc.array(/** @type {fc.Arbitrary<Command>} */ (command), { maxLength: 8 });
const each = { minLength: CLIENTS, maxLength: CLIENTS };

test('commands take effect in order, and each is answered once, whatever is slow', () =>
  inAllOrders(
    [
      fc.infiniteStream(fc.nat(23)),
      fc.array(commands, each),
      fc.array(backendStep, { maxLength: 3 }),
      fc.array(fc.boolean(), each),
    ],
    async (s, fates, commands, backend, closes) => {
      const scene = new Scene(s, fates);
      const { clients } = scene;
      const { joins } = scene.parts.operations;
      for (const [i, client] of clients.entries()) {
        inOrder(
          s,
          commands[i].map((one) => [
            `client ${i}: ${one.type} ${one.room}`,
            () => scene.send(client, one),
          ]),
        );
        if (closes[i]) inOrder(s, [[`client ${i}: closes`, () => scene.close(client)]]);
      }
      for (const { isJoin, client, room } of backend) {
        const { connection } = clients[client];
        const act = () =>
          isJoin ? joins.joinAs(connection, room, '') : joins.remove(connection, room);
        inOrder(s, [[`backend: ${isJoin ? 'joins' : 'removes'} ${client}, ${room}`, act]]);
      }
      await s.waitIdle();
      scene.check();
    },
    RUNS,
  ));
