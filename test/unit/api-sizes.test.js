// api-sizes.test.js: which payloads the HTTP API publishes, with a bucket for large ones and without.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { API_RIGHTS } from '../../src/config/api-keys.js';
import { MessageRules } from '../../src/operations/message.js';
import { Call } from '../../src/transport/http-api/call.js';
import { ApiFault } from '../../src/transport/http-api/fault.js';
import { Key } from '../../src/transport/http-api/keys.js';
import { PublishRoutes } from '../../src/transport/http-api/publish.js';

const MAX_MESSAGE_BYTES = 100;
const MAX_INLINE_BYTES = 200;
const MAX_EVENT_BYTES = 100;
const APPS = /** @type {any} */ (
  new Map([['7', { id: '7', isEnabled: true, isShared: true, maxEventBytes: MAX_EVENT_BYTES }]])
);

/**
 * @param {'publish'|'batch'|'broadcast'} route
 * @param {{bytes: number, hasBucket?: boolean, isOfApp?: boolean}} request
 * @returns {Promise<string>} where the payload went, or the text of the fault
 */
async function send(route, { bytes, hasBucket = false, isOfApp = false }) {
  let went = 'nowhere';
  const store = async () => {
    went = 'bucket';
    return { name: 'n', bytes, sha256: 'A'.repeat(43), contentType: 'application/json' };
  };
  const services = /** @type {any} */ ({
    publisher: {
      rules: new MessageRules(
        {
          maxInlineBytes: MAX_INLINE_BYTES,
          maxMessageBytes: MAX_MESSAGE_BYTES,
          stateMaxValueBytes: 16,
        },
        () => null,
      ),
      publish: async () => {
        if (went === 'nowhere') went = 'inline';
      },
    },
    broker: { countConnections: async () => 1 },
    counters: { api: { messages: 0 }, apps: { events: { '7,api': 0 } } },
    blobs: hasBucket ? { store } : null,
  });
  const settings = { name: 'k', hash: '0'.repeat(64), rights: API_RIGHTS, rooms: null };
  const key = new Key({ ...settings, app: isOfApp ? '7' : null }, APPS);
  const meters = /** @type {any} */ ({ take: () => 0, observe() {}, addressOf: () => '' });
  const call = new Call(meters, { headers: {}, url: '/' }, key);
  call.routed('publish', {});
  const message = { room: 'a', payload: 'x'.repeat(bytes - 2) };
  const bodies = {
    publish: message,
    batch: { messages: [message] },
    broadcast: { payload: message.payload },
  };
  call.received(Buffer.from(JSON.stringify(bodies[route])));
  try {
    await new PublishRoutes(services)[route](call);
  } catch (error) {
    if (error instanceof ApiFault) return error.message;
    throw error;
  }
  return went;
}

/** @param {number} bytes @param {number} max @param {string} setting */
const over = (bytes, max, setting) =>
  `The payload has ${bytes} bytes, over the limit of ${max} bytes (${setting}).`;

for (const route of /** @type {const} */ (['publish', 'batch'])) {
  test(`${route}: a message bounds payloads, and with a bucket the broker does`, async () => {
    assert.equal(await send(route, { bytes: 100 }), 'inline');
    const refused = over(101, MAX_MESSAGE_BYTES, 'FANFARE_MAX_MESSAGE_BYTES');
    assert.equal(await send(route, { bytes: 101 }), refused);
    assert.equal(await send(route, { bytes: 200, hasBucket: true }), 'inline');
    assert.equal(await send(route, { bytes: 201, hasBucket: true }), 'bucket');
  });

  test(`${route}: an app bounds its events, also with a bucket`, async () => {
    const refused = over(101, MAX_EVENT_BYTES, '"maxEventBytes" of the app');
    for (const bytes of [101, 201]) {
      const text = refused.replace('101', `${bytes}`);
      assert.equal(await send(route, { bytes, hasBucket: true, isOfApp: true }), text);
    }
    assert.equal(await send(route, { bytes: 100, hasBucket: true, isOfApp: true }), 'inline');
  });
}

test('a broadcast is as large as a message of the broker, and never in the bucket', async () => {
  const refused = over(101, MAX_MESSAGE_BYTES, 'FANFARE_MAX_MESSAGE_BYTES');
  assert.equal(await send('broadcast', { bytes: 101 }), refused);
  assert.equal(await send('broadcast', { bytes: 200, hasBucket: true }), 'inline');
  const large = over(201, MAX_INLINE_BYTES, 'FANFARE_MAX_INLINE_BYTES');
  assert.equal(await send('broadcast', { bytes: 201, hasBucket: true }), large);
});
