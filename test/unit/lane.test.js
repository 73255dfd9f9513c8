// lane.test.js: which commands wait for which, and how many may wait.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { deferred } from '../../src/backend/deferred.js';
import { Connection } from '../../src/hub/connection.js';
import { createCounters } from '../../src/observability/counters.js';
import { Lane } from '../../src/operations/lane.js';
import { decode } from '../../src/protocol/decode.js';
import { FakeTransport } from '../helpers/fake-transport.js';

const PER_CONNECTION = 256 * 1024;
const PER_WORKER = 32 * 1024 * 1024;
const COMMAND_BYTES = 512;

/** A lane, and commands that write their `id` to `handled`. */
function build({ maxSteps = 16 } = {}) {
  const counters = createCounters();
  const errors = /** @type {unknown[]} */ ([]);
  const handled = /** @type {unknown[]} */ ([]);
  const replies = /** @type {any} */ ({
    error: (
      /** @type {Connection} */ _connection,
      /** @type {string} */ code,
      /** @type {any} */ id,
    ) => errors.push(`${code} ${id}`),
  });
  const lane = new Lane({ maxSteps, replies, counters });
  /** @type {(connection: Connection, command: import('../../src/protocol/decode.js').Command) => void} */
  let act = (_connection, { id }) => void handled.push(id);
  const kinds = /** @type {const} */ ({
    join: 'join',
    message: 'message',
    ping: 'passing',
    echo: 'passing',
  });
  /** @type {import('../../src/operations/lane.js').Resume} */
  const resume = (connection, data) => {
    const command = decode(data);
    assert.ok(command);
    act(connection, command);
  };
  /** @param {Connection} connection @param {object} fields */
  const send = (connection, fields) => {
    const data = Buffer.from(JSON.stringify(fields));
    const command = decode(data);
    assert.ok(command);
    const kind = kinds[/** @type {keyof typeof kinds} */ (command.type)];
    if (!lane.holds(connection, kind, command, resume)) act(connection, command);
    data.fill('?'); // the next read
  };
  return {
    ...{ lane, counters, errors, handled, send },
    /** @param {typeof act} handle */
    handleBy: (handle) => void (act = handle),
  };
}

const connect = () => new Connection(new FakeTransport(), '');

test('commands after a token wait for it in their order, ping included until it is accepted', async () => {
  const { lane, handled, send } = build();
  const connection = connect();
  connection.hold();
  const { promise, resolve } = deferred();
  lane.after(connection, 'token', 0, promise, () => {
    connection.letGo();
    handled.push('token');
  });
  for (const [id, type] of ['message', 'ping', 'join', 'echo'].entries())
    send(connection, { type, id });
  assert.deepEqual(handled, []);
  resolve(undefined);
  await turn();
  assert.deepEqual(handled, ['token', 0, 1, 2, 3]);
  assert.deepEqual([lane.queuedBytes, lane.isEmpty], [0, true]);
  // A renewal: ping and echo pass.
  lane.after(connection, 'token', 0, new Promise(() => {}), () => {});
  for (const [id, type] of ['message', 'ping', 'auth', 'echo'].entries())
    send(connection, { type, id });
  assert.deepEqual(handled.slice(5), [1, 3]);
});

test('above 256 KiB of a connection a command is refused and counted; a larger one may wait alone', async () => {
  const { lane, counters, errors, handled, send } = build();
  const connection = connect();
  const { promise, resolve } = deferred();
  lane.awaitJoin(connection, promise);
  send(connection, { type: 'message', id: 1, payload: 'x'.repeat(PER_CONNECTION) });
  send(connection, { type: 'message', id: 2, payload: 1 });
  assert.deepEqual([errors, counters.readsRefused], [['UNAVAILABLE 2'], 1]);
  // Another connection has its own bound.
  lane.awaitJoin(connect(), promise);
  const other = connect();
  lane.awaitJoin(other, promise);
  const payload = 'x'.repeat(1000);
  for (let id = 10; id < 300; id++) send(other, { type: 'message', id, payload });
  const bytes = JSON.stringify({ type: 'message', id: 10, payload }).length + COMMAND_BYTES;
  const fit = Math.floor(PER_CONNECTION / bytes);
  assert.ok(Math.abs(290 - fit - (counters.readsRefused - 1)) <= 1, `${counters.readsRefused}`);
  resolve(undefined);
  await turn();
  assert.equal(handled.length, 292 - counters.readsRefused);
  assert.deepEqual([lane.queuedBytes, lane.isEmpty], [0, true]);
});

test('connections that have not authenticated fill half of the 32 MiB of a worker', async () => {
  const { lane, counters, handled, send } = build();
  const { promise, resolve } = deferred();
  const payload = 'x'.repeat(200_000);
  const fill = (/** @type {boolean} */ isHeld) => {
    for (let i = 0; i < 200; i++) {
      const connection = connect();
      if (isHeld) connection.hold();
      lane.after(connection, 'token', 0, promise, () => {});
      send(connection, { type: 'message', payload });
    }
    return lane.queuedBytes;
  };
  const half = fill(true);
  assert.ok(half <= PER_WORKER / 2 + 200 * COMMAND_BYTES && half > PER_WORKER / 2 - 201_000);
  assert.equal(lane.isFull, false);
  const all = fill(false);
  assert.ok(all <= PER_WORKER + 200 * COMMAND_BYTES && all > PER_WORKER - 201_000, `${all}`);
  assert.equal(handled.length, 0);
  resolve(undefined);
  await turn();
  assert.equal(handled.length, 400 - counters.readsRefused);
  assert.deepEqual([lane.queuedBytes, lane.isEmpty], [0, true]);
});

test('the waiting commands of a closed connection are dropped', async () => {
  for (const isForgotten of [true, false]) {
    const { lane, handled, send } = build();
    const connection = connect();
    const { promise, resolve } = deferred();
    lane.after(connection, 'message', 100, promise, () => handled.push('hook'));
    for (let id = 0; id < 9; id++) send(connection, { type: 'leave', id });
    const before = lane.queuedBytes;
    connection.markClosed();
    if (isForgotten) {
      lane.forget(connection);
      assert.equal(lane.queuedBytes, 100 + COMMAND_BYTES);
    } else assert.ok(before > 9 * COMMAND_BYTES);
    resolve(undefined);
    await turn();
    assert.deepEqual(handled, ['hook']); // it was called before the close
    assert.deepEqual([lane.queuedBytes, lane.isEmpty], [0, true]);
    lane.forget(connection);
  }
});

test('a join by the HTTP API does not let messages or joins pass that wait for a message', async () => {
  const { lane, handled, send } = build();
  const connection = connect();
  const [hook, join] = [deferred(), deferred()];
  lane.after(connection, 'message', 0, hook.promise, () => handled.push('hook'));
  lane.awaitJoin(connection, /** @type {Promise<any>} */ (join.promise));
  send(connection, { type: 'join', id: 1 });
  send(connection, { type: 'message', id: 2 });
  hook.resolve(undefined);
  await turn();
  assert.deepEqual(handled, ['hook']);
  join.reject(new Error('refused'));
  await turn();
  assert.deepEqual(handled, ['hook', 1, 2]);
});

test('an answer that fails, or cannot be acted on, closes its connection and no other', async () => {
  const { lane, handled } = build();
  const [a, b] = [connect(), connect()];
  const { promise, resolve } = deferred();
  lane.after(a, 'message', 0, promise, () => handled.push('a'));
  lane.after(b, 'message', 0, Promise.resolve(), () => {
    throw new Error('act');
  });
  lane.after(b, 'message', 0, Promise.resolve(), () => handled.push('b'));
  await turn();
  assert.deepEqual([a.isOpen, b.isOpen, handled], [true, false, ['b']]);
  resolve(undefined);
  await turn();
  assert.deepEqual([a.isOpen, handled], [true, ['b', 'a']]);
  const c = connect();
  lane.after(c, 'token', 0, Promise.reject(new Error('verify')), () => handled.push('c'));
  await turn();
  assert.deepEqual([c.isOpen, handled.length, lane.isEmpty, lane.queuedBytes], [false, 2, true, 0]);
});

test('random commands of some connections take effect in the order of sending', async () => {
  for (let seed = 1; seed <= 60; seed++) {
    let state = seed;
    const below = (/** @type {number} */ n) => {
      state = (state * 48_271) % 2_147_483_647;
      return (state >> 8) % n;
    };
    const maxSteps = 1 + below(4);
    const { lane, counters, handleBy, send } = build({ maxSteps });
    const open =
      /** @type {{connection: Connection, kind: string, isAsked: boolean, end: () => void}[]} */ ([]);
    const effects = /** @type {Map<Connection, number[]>} */ (new Map());
    const of = (/** @type {Connection} */ connection) =>
      open.filter((one) => one.connection === connection);
    /** @param {Connection} connection @param {string} kind @param {boolean} isAsked */
    const awaitOne = (connection, kind, isAsked) => {
      const { promise, resolve } =
        /** @type {import('../../src/backend/deferred.js').Deferred<void>} */ (deferred());
      const one = {
        ...{ connection, kind, isAsked },
        end: () => {
          open.splice(open.indexOf(one), 1);
          resolve();
        },
      };
      open.push(one);
      return promise;
    };
    handleBy((connection, { type, id }) => {
      const act = () => {
        effects.get(connection)?.push(Number(id));
        if (type === 'join' && below(2) === 0)
          lane.awaitJoin(connection, awaitOne(connection, 'join', false));
      };
      const kind =
        type === 'auth'
          ? 'token'
          : type === 'leave'
            ? null
            : /** @type {'join'|'message'} */ (type);
      // Nothing else is awaited, or only its like, and not too much.
      for (const one of of(connection)) assert.equal(one.kind, kind, `seed ${seed}`);
      if (kind === 'token') assert.equal(of(connection).length, 0);
      assert.ok(of(connection).filter(({ isAsked }) => isAsked).length < maxSteps);
      if (kind === null || below(3) === 0)
        return kind === null ? act() : lane.after(connection, kind, 0, undefined, act);
      lane.after(connection, kind, below(100), awaitOne(connection, kind, true), act);
    });
    const connections = [connect(), connect(), connect()];
    for (const connection of connections) effects.set(connection, []);
    for (let id = 0; id < 200; id++) {
      const type = ['message', 'message', 'join', 'join', 'leave', 'auth'][below(6)];
      send(connections[below(3)], { type, id });
      while (open.length > 0 && below(2) === 0) open[below(open.length)].end();
      if (below(3) === 0) await turn();
    }
    for (let i = 0; i < 1000 && !lane.isEmpty; i++) {
      while (open.length > 0) open[below(open.length)].end();
      await turn();
    }
    assert.deepEqual(
      [lane.queuedBytes, lane.isEmpty, counters.readsRefused],
      [0, true, 0],
      `seed ${seed}`,
    );
    const all = connections.flatMap((connection) => effects.get(connection) ?? []);
    assert.equal(all.length, 200);
    for (const ids of effects.values())
      assert.deepEqual(
        ids,
        ids.toSorted((a, b) => a - b),
      );
  }
});
