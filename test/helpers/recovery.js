// recovery.js: a hub in which rooms named h… have history, its members and its clock, for unit tests.

import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { Connection } from '../../src/hub/connection.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { configOf } from './config.js';
import { FakeTransport } from './fake-transport.js';
import { buildHub, receive } from './hub.js';
import { StreamBroker } from './stream-broker.js';

/** @typedef {ReturnType<typeof build>} Built */

/** Ten seconds, in ticks of the wheel. */
export const TEN_SECONDS = 40;

/** A hub in which rooms named h… have history. */
export function build({
  env = {},
  size = 100,
  ttlMs = 60_000,
  isManual = false,
  maxBufferBytes = 1e9,
  covers = /** @type {(room: string) => boolean} */ (() => false),
  hooks = /** @type {import('../../src/operations/hook-gate.js').HookCalls|null} */ (null),
} = {}) {
  const config = configOf(env);
  const broker = new StreamBroker({ size, isManual });
  const clock = { now: 1000 };
  const historyOf = (/** @type {string} */ room) => (room.startsWith('h') ? { size, ttlMs } : null);
  /** @type {[Connection, number][]} */
  const charged = [];
  const parts = buildHub({
    config,
    broker,
    historyOf,
    clock: () => clock.now,
    maxBufferBytes,
    presence: {
      join() {},
      leave() {},
      async recorded() {},
      read: async () => ({ count: 0, members: [] }),
    },
    covers,
    hooks,
    charge: (connection, bytes) => void charged.push([connection, bytes]),
  });
  parts.turn.clock = () => clock.now;
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    parts.hub.addConnection(connection);
    const say = (/** @type {object} */ message) => receive(parts.commands, connection, message);
    return {
      connection,
      transport,
      say,
      of: (/** @type {string} */ type) => ofType(transport, type),
    };
  };
  /** @param {number} count @param {string} [room] */
  const publish = (count, room = 'h') => {
    for (let i = 0; i < count; i++)
      broker.accept(room, publication(broker.stream(room).offset + 1));
  };
  const tick = async (/** @type {number} */ count) => {
    for (let i = 0; i < count; i++) {
      clock.now += 250;
      parts.scheduler.wheel.tick();
      await settle();
    }
  };
  return { ...parts, config, broker, clock, charged, connect, publish, tick };
}

export const publication = (
  /** @type {unknown} */ payload,
  /** @type {string} */ except = '',
  acceptedMs = 1_760_000_000_000,
) => {
  const json = Buffer.from(JSON.stringify(payload));
  return encodePublication(KIND.MESSAGE, acceptedMs, 0, 'me', json, 0, json.length, except);
};

/** @param {FakeTransport} transport @param {string} type */
export const ofType = (transport, type) =>
  transport.messages().filter((message) => message.type === type);

/** Waits until promises and flushes have run. */
export async function settle() {
  await turn();
  await turn();
}

/** @param {number} from @param {number} to */
export const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

export const offsets = (/** @type {FakeTransport} */ transport) =>
  ofType(transport, 'message').map(({ offset }) => offset);

/** A member that has received `count` publications. @param {Built} built @param {number} count */
export async function memberWith(built, count) {
  const member = built.connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  built.publish(count);
  built.broker.deliver();
  await settle();
  assert.deepEqual(offsets(member.transport), range(1, count));
  return member;
}

/**
 * A member that has joined after `count` publications; the replay buffer has none of them.
 * @param {Built} built @param {number} count
 */
export async function memberBehind(built, count) {
  built.publish(count);
  built.broker.announcements = [];
  const member = built.connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  return member;
}
