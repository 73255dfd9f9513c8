// openapi.test.js: docs/openapi.yaml is true of the running server: its routes, methods, statuses,
// error codes, and the schemas of real answers.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import { API_ERRORS } from '../../src/protocol/codes.js';
import { routesOf } from '../../src/transport/http-api/routes.js';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { SECRET, token } from '../helpers/tokens.js';

const root = new URL('../../', import.meta.url);
const read = (/** @type {string} */ path) => readFileSync(new URL(path, root), 'utf8');
const openapi = parse(read('docs/openapi.yaml'));
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

/** @type {[path: string, method: string, operation: any][]} */
const operations = Object.entries(openapi.paths).flatMap(([path, item]) =>
  METHODS.filter((method) => method in item).map(
    (method) => /** @type {[string, string, any]} */ ([path, method, item[method]]),
  ),
);

const ajv = new Ajv2020({ strict: false, allErrors: true });
ajv.addSchema({ $id: 'openapi', components: openapi.components });

/** @param {any} schema with references into the document */
function validatorOf(schema) {
  return ajv.compile(
    JSON.parse(JSON.stringify(schema).replaceAll('"#/components/', '"openapi#/components/')),
  );
}

/** Follows a reference of the document. @param {any} value */
function resolve(value) {
  if (value?.$ref === undefined) return value;
  return value.$ref
    .slice(2)
    .split('/')
    .reduce((/** @type {any} */ node, /** @type {string} */ name) => node[name], openapi);
}

test('the document has the routes of the server, and no others', () => {
  const config = { maxMessageBytes: 1 };
  const routes = routesOf(/** @type {any} */ ({ config, publisher: { rules: {} } }));
  assert.deepEqual(
    operations.map(([path, method]) => `${method} ${path}`).sort(),
    routes.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`).sort(),
  );
  for (const { method, path, right } of routes) {
    const operation = openapi.paths[path.replace(/:(\w+)/g, '{$1}')][method];
    assert.match(operation.description, new RegExp(`Needs the right \`${right}\``), path);
  }
});

test('the document has the error codes of the server, each under its status', () => {
  const codes = openapi.components.schemas.ErrorCode.enum.filter((/** @type {string} */ code) =>
    /^[A-Z_]+$/.test(code),
  );
  assert.deepEqual([...codes].sort(), Object.keys(API_ERRORS).sort());
  for (const [code, { status }] of Object.entries(API_ERRORS)) {
    const { description } = openapi.components.responses[`Error${status}`];
    assert.ok(description.includes(code), `${code} under ${status}`);
  }
  for (const [path, , operation] of operations)
    for (const status of Object.keys(operation.responses))
      if (status !== '200')
        assert.equal(
          operation.responses[status].$ref,
          `#/components/responses/Error${status}`,
          path,
        );
});

test('the version of the document is that of the package', () => {
  assert.equal(openapi.info.version, JSON.parse(read('package.json')).version);
});

test('the limits of the document are those of the server', async (t) => {
  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `main ${secret} all`,
  });
  const api = apiOf(server, secret);
  const { schemas } = openapi.components;
  const names = (/** @type {number} */ count) => Array.from({ length: count }, (_, i) => `r${i}`);
  const most = schemas.RoomNames.maxItems;
  const publish = async (/** @type {number} */ count) =>
    (await api('/publish', { body: { rooms: names(count), payload: 1 } })).status;
  assert.deepEqual([await publish(most), await publish(most + 1)], [200, 422]);
  const batch = async (/** @type {number} */ count) => {
    const messages = names(count).map((room) => ({ room, payload: 1 }));
    return (await api('/publish/batch', { body: { messages } })).status;
  };
  const mostMessages = schemas.Batch.properties.messages.maxItems;
  assert.deepEqual([await batch(mostMessages), await batch(mostMessages + 1)], [200, 422]);
  const { maximum } = openapi.components.parameters.Limit.schema;
  const limit = async (/** @type {number} */ count) => (await api(`/rooms?limit=${count}`)).status;
  assert.deepEqual([await limit(maximum), await limit(maximum + 1)], [200, 400]);
});

test('each route answers as its schemas say', async (t) => {
  const [secret, poor] = [newSecret(), newSecret()];
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '2',
    FANFARE_HISTORY: 'h.*=10/60s',
    FANFARE_STATE: 's.*=10/60s',
    FANFARE_PRESENCE: 'p.*',
    FANFARE_AUTH: 'optional',
    JWT_SECRET: SECRET,
    // An announcement does not reach the bucket.
    FANFARE_BLOB_URL: 'http://127.0.0.1:9/bucket',
    AWS_ACCESS_KEY_ID: 'key',
    AWS_SECRET_ACCESS_KEY: 'secret',
    API_KEYS: `main ${secret} all; poor ${poor} history rooms=none`,
  });
  const rooms = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
  const client = await connect(t, `ws://127.0.0.1:${server.port}/ws?token=${token({ rooms })}`);
  for (const room of ['p.1', 'h.1']) await client.join(room);
  const { connectionId } = await client.ask({ type: 'hello' }, 'welcome');
  /** Requests that succeed, and their paths in the document. */
  const calls = /** @type {[string, string, string, object?][]} */ ([
    ['/api/publish', 'post', '/publish', { room: 'a', payload: null }],
    ['/api/publish', 'post', '/publish', { room: 'h.1', payload: { a: [1, 'x'] } }],
    ['/api/publish', 'post', '/publish', { rooms: ['h.1', 'a'], payload: 'x' }],
    ['/api/publish', 'post', '/publish', { room: 's.1', key: 'k', payload: 1 }],
    ['/api/publish/batch', 'post', '/publish/batch', { messages: [{ room: 'h.1', payload: 1 }] }],
    ['/api/uploads', 'post', '/uploads', { bytes: 5, sha256: 'a'.repeat(64) }],
    ['/api/broadcast', 'post', '/broadcast', { payload: 1 }],
    ['/api/rooms', 'get', '/rooms'],
    ['/api/rooms/{room}', 'get', '/rooms/h.1'],
    ['/api/rooms/{room}', 'get', '/rooms/p.1'],
    ['/api/rooms/{room}/history', 'get', '/rooms/h.1/history'],
    ['/api/rooms/{room}/state', 'get', '/rooms/s.1/state'],
    ['/api/rooms/{room}/state', 'get', '/rooms/s.1/state?key=k&key=l'],
    ['/api/rooms/{room}/presence', 'get', '/rooms/p.1/presence'],
    ['/api/presence', 'post', '/presence', { rooms: ['p.1', 'a'] }],
    ['/api/presence', 'post', '/presence', { users: ['alice', 'bob'] }],
    ['/api/users/{user}/join', 'post', '/users/alice/join', { rooms: ['b'] }],
    ['/api/users/{user}/leave', 'post', '/users/alice/leave', { rooms: ['b'] }],
    ['/api/connections', 'get', '/connections?room=p.1'],
    ['/api/servers', 'get', '/servers'],
    ['/api/connections/{connectionId}', 'get', `/connections/${connectionId}`],
    ['/api/rooms/{room}/history', 'delete', '/rooms/h.1/history'],
    ['/api/disconnect', 'post', '/disconnect', { user: 'bob' }],
    ['/api/revoke', 'post', '/revoke', { user: 'alice' }],
  ]);
  assert.equal(
    new Set(calls.map(([path, method]) => `${method} ${path}`)).size,
    operations.length,
    'a call for each operation',
  );
  const api = apiOf(server, secret);
  for (const [path, method, url, body] of calls) {
    const operation = openapi.paths[path][method];
    const schemaOf = (/** @type {number} */ status) =>
      resolve(operation.responses[status])?.content['application/json'].schema;
    const check = (/** @type {import('../helpers/api.js').ApiAnswer} */ answer) => {
      const schema = schemaOf(answer.status);
      assert.ok(schema, `${method} ${path} answered ${answer.status}`);
      const validate = validatorOf(schema);
      assert.ok(
        validate(answer.body),
        `${method} ${path}: ${answer.text} ${JSON.stringify(validate.errors)}`,
      );
      assert.equal(answer.headers.get('content-type'), 'application/json');
      return answer.status;
    };
    if (body !== undefined) {
      const wanted = operation.requestBody.content['application/json'].schema;
      assert.ok(validatorOf(wanted)(body), `the body of ${method} ${path}`);
    }
    assert.equal(check(await api(url, { method: method.toUpperCase(), body })), 200, url);
    const refused = [
      await apiOf(server, '')(url, { method: method.toUpperCase(), body }),
      await apiOf(server, poor)(url, { method: method.toUpperCase(), body }),
      await api(url, { method: 'PUT', body: {} }),
      ...(body === undefined
        ? []
        : [
            await api(url, { method: 'POST', body: '{' }),
            await api(url, { method: 'POST', body: { x: 1 } }),
            await api(url, { method: 'POST', body: 'x', headers: { 'Content-Type': 'a/b' } }),
            await api(url, { method: 'POST', body: 'x'.repeat(1_048_577) }),
          ]),
    ];
    const statuses = refused.map(check);
    const expected = [401, 403, 405, 400, 422, 415, 413];
    assert.deepEqual(statuses, expected.slice(0, statuses.length), url);
  }
});
