// ai-event-store.test.js: the rooms of an MCP server's streams (src/ai/event-store.js). e2e/ai-mcp has
// the rest.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FanfareEventStore } from '../../src/ai/index.js';

test('ids with dots lead to rooms of their own', async () => {
  /** @type {string[]} */
  const rooms = [];
  const server = /** @type {any} */ ({
    async publish(/** @type {string} */ room) {
      return { epoch: 'a'.repeat(16), offset: rooms.push(room) };
    },
  });
  const store = (/** @type {string} */ session) => new FanfareEventStore(server, session);
  const id = await store('a.b').storeEvent('c', {});
  await store('a').storeEvent('b.c', {});
  assert.equal(new Set(rooms).size, 2);
  for (const room of rooms) assert.match(room, /^mcp\./);
  assert.equal(await store('a.b').getStreamIdForEventId(id), 'c');
  for (const wrong of ['', 'a/b', 'a b', 'x'.repeat(101)]) assert.throws(() => store(wrong));
});
