// api-outage.test.js: what the routes of the HTTP API say while the broker is unavailable.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BrokerError } from '../../src/backend/errors.js';
import { API_RIGHTS } from '../../src/config/api-keys.js';
import { Call } from '../../src/transport/http-api/call.js';
import { faultOf } from '../../src/transport/http-api/fault.js';
import { Key } from '../../src/transport/http-api/keys.js';
import { routesOf } from '../../src/transport/http-api/routes.js';

/** Every part of it is unavailable. */
const away = async () => {
  throw new BrokerError('UNAVAILABLE', 'the broker is unavailable');
};
const services = /** @type {any} */ ({
  config: { maxMessageBytes: 1000, maxPayloadBytes: 1000 },
  publisher: { rules: {} },
  fleet: new Proxy({}, { get: () => away }),
  historyReader: { read: away },
  stateReader: { read: away },
  tracker: { covers: () => true, read: away },
  historyOf: () => ({}),
  stateOf: () => null,
  counters: { api: {} },
});

/** By name of the route. @type {Record<string, {params?: object, query?: string, body?: object}>} */
const CALLS = {
  rooms: {},
  room: { params: { room: 'a' } },
  history: { params: { room: 'a' } },
  state: { params: { room: 'a' } },
  presence: { params: { room: 'a' } },
  query_presence: { body: { users: ['ann'] } },
  connections: { query: '?user=ann' },
  connection: { params: { connectionId: 'A'.repeat(11) } },
  servers: {},
  delete_history: { params: { room: 'a' } },
  disconnect: { body: { user: 'ann' } },
  join: { params: { user: 'ann' }, body: { rooms: ['a'] } },
  leave: { params: { user: 'ann' }, body: { rooms: ['a'] } },
};
const CHANGES = ['delete_history', 'disconnect', 'join', 'leave'];

test('while the broker is unavailable, a read is "Not known", and a change "Not accepted"', async () => {
  const routes = routesOf(services).filter(({ name }) => Object.hasOwn(CALLS, name));
  assert.equal(routes.length, Object.keys(CALLS).length);
  for (const { name, handle } of routes) {
    const { params = {}, query = '', body } = CALLS[name];
    const key = new Key({
      name: 'k',
      hash: '0'.repeat(64),
      rights: API_RIGHTS,
      rooms: null,
      app: null,
    });
    const meters = /** @type {any} */ ({
      take: () => 0,
      observe() {},
      addressOf: () => '',
      counters: { api: {} },
    });
    const call = new Call(meters, { headers: {}, url: `/${query}` }, key);
    call.routed(/** @type {any} */ (name), /** @type {any} */ (params));
    if (body !== undefined) call.received(Buffer.from(JSON.stringify(body)));
    const error = await handle(call).then(
      () => assert.fail(`${name} succeeded`),
      (reason) => faultOf(reason, { error: () => assert.fail(`${name} is a surprise`) }),
    );
    assert.equal(error.code, 'UNAVAILABLE', `${name}: ${error.message}`);
    const says = CHANGES.includes(name) ? /^Not accepted: / : /^Not known: /;
    assert.match(error.message, says, name);
  }
});
