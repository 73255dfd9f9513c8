// fleet-deliver.test.js: messages of a client on their way to the worker with its stream
// (worker/fleet.js): what is asked, whom, and how many questions wait.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Upstreams } from '../../src/hub/upstreams.js';
import { createCounters } from '../../src/observability/counters.js';
import { readNotice } from '../../src/protocol/publication.js';
import { Fleet } from '../../src/worker/fleet.js';
import { decodeRequest } from '../../src/worker/fleet-wire.js';

/** A worker that nobody answers. */
function lonely() {
  /** @type {{room: string, text: string}[]} */
  const published = [];
  const broker = {
    subscribe: async () => {},
    publish: async (/** @type {string} */ room, /** @type {Buffer} */ publication) =>
      void published.push({ room, text: readNotice(publication) }),
    countWorkers: async () => 1,
  };
  const upstreams = new Upstreams();
  const counters = createCounters();
  const fleet = new Fleet(
    /** @type {any} */ ({
      hub: { listenForNotices() {} },
      broker,
      member: { deliver: upstreams.deliver.bind(upstreams) },
      counters,
      deadlineMs: 20_000,
    }),
  );
  return { fleet, upstreams, published, counters };
}

const OTHER = 'A'.repeat(16);
const SESSION = 'B'.repeat(22);

test('messages for a stream of this worker go to it, and nobody is asked', async () => {
  const { fleet, upstreams, published } = lonely();
  /** @type {string[]} */
  const received = [];
  const connection = /** @type {any} */ ({ isOpen: true, markAlive() {} });
  const session = upstreams.openSession(
    connection,
    (_connection, messages) => void received.push(String(messages)),
  );
  assert.equal(await fleet.deliver(fleet.name, session, Buffer.from('1')), true);
  assert.equal(await fleet.deliver(fleet.name, SESSION, Buffer.from('2')), false);
  upstreams.closeSession(connection);
  assert.equal(await fleet.deliver(fleet.name, session, Buffer.from('3')), false);
  assert.deepEqual([received, published, upstreams.size], [['1'], [], 0]);
});

test('one other worker is asked, in its own room, with bytes as they are', async () => {
  const { fleet, published } = lonely();
  const bytes = Buffer.from([0, 255, 10, 34]);
  const delivered = fleet.deliver(OTHER, SESSION, bytes);
  await new Promise(setImmediate);
  const [{ room, text }] = published;
  assert.equal(room, `*${OTHER}`);
  const request = decodeRequest(text);
  assert.deepEqual(request?.args, { session: SESSION, messages: bytes.toString('base64') });
  fleet.close();
  assert.equal(await delivered, false);
});

test('names that no worker has are not published to', async () => {
  const { fleet, published } = lonely();
  for (const name of ['', '*', 'news', `*${OTHER}`, `${OTHER}A`])
    assert.equal(await fleet.deliver(name, SESSION, Buffer.from('1')), false, name);
  for (const session of ['', 'B', `${SESSION}B`, '../'.repeat(9)])
    assert.equal(await fleet.deliver(OTHER, session, Buffer.from('1')), false, session);
  assert.equal(await fleet.deliver(OTHER, SESSION, Buffer.alloc(100_000)), false);
  assert.deepEqual(published, []);
});

test('500 questions may wait, and surveys do not wait for them', async () => {
  const { fleet, counters } = lonely();
  const waiting = Array.from({ length: 500 }, () =>
    fleet.deliver(OTHER, SESSION, Buffer.from('1')),
  );
  await assert.rejects(fleet.deliver(OTHER, SESSION, Buffer.from('1')), { code: 'UNAVAILABLE' });
  const survey = fleet.workers();
  fleet.close();
  assert.deepEqual(await Promise.all(waiting), Array(500).fill(false));
  assert.equal((await survey).isPartial, true);
  assert.deepEqual(counters.surveys, { complete: 0, partial: 1, failed: 0, refused: 0 });
});
