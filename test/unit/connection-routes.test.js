// connection-routes.test.js: the routes of the HTTP API that look at connections, without workers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConnectionRoutes } from '../../src/transport/http-api/connections.js';
import { Key } from '../../src/transport/http-api/keys.js';

const ROW = { id: 'a', transport: 'websocket', roomCount: 0, rooms: [], user: '', address: '' };
const HASH = '0'.repeat(64);

/**
 * @param {object} parts
 * @param {object[]} [parts.listed]
 * @param {boolean} [parts.isPartial]
 * @param {string[]|null} [parts.rooms] of the key
 */
function routesWith({ listed = [], isPartial = false, rooms = null }) {
  /** @type {unknown[][]} */
  const asked = [];
  const fleet = /** @type {any} */ ({
    connections: async (/** @type {unknown[]} */ ...args) => {
      asked.push(args);
      return { count: listed.length, listed, isPartial };
    },
  });
  const key = new Key({ name: 'test', hash: HASH, rights: ['presence'], rooms, app: null });
  /** @param {Record<string, string>} query @param {Record<string, string>} [params] */
  const callOf = (query, params = {}) =>
    /** @type {any} */ ({ key, params, readQuery: () => query });
  return { routes: new ConnectionRoutes({ fleet }), callOf, asked };
}

test('a connection that no worker has is 404 only if all workers have answered', async () => {
  const whole = routesWith({});
  const call = whole.callOf({}, { connectionId: 'a' });
  await assert.rejects(whole.routes.one(call), { code: 'NO_CONNECTION' });
  const partial = routesWith({ isPartial: true });
  await assert.rejects(partial.routes.one(call), { code: 'UNAVAILABLE' });
  const found = routesWith({ isPartial: true, listed: [ROW] });
  assert.equal(/** @type {any} */ (await found.routes.one(call)).id, 'a');
});

test('a list passes the limit on, and says that a worker has not answered', async () => {
  const { routes, callOf, asked } = routesWith({ listed: [ROW], isPartial: true });
  const answer = await routes.list(callOf({ address: '2001:db8::1', limit: '7' }));
  assert.deepEqual(asked, [[{ address: '2001:db8::1' }, 7]]);
  assert.deepEqual(JSON.parse(JSON.stringify(answer)), {
    count: 1,
    connections: [{ id: 'a', transport: 'websocket', roomCount: 0, rooms: [] }],
    partial: true,
  });
});

test('a key for some rooms sees no connections, because they have other rooms', async () => {
  const { routes, callOf, asked } = routesWith({ rooms: ['news'], listed: [ROW] });
  await assert.rejects(routes.list(callOf({ room: 'news' })), { code: 'PERMISSION_DENIED' });
  const one = routes.one(callOf({}, { connectionId: 'a' }));
  await assert.rejects(one, { code: 'PERMISSION_DENIED' });
  assert.deepEqual(asked, []);
});
