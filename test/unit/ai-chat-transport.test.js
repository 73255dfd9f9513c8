// ai-chat-transport.test.js: the transport of useChat (src/ai/chat-transport.js): its requests, and
// what ends a run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { FanfareChatTransport } from '../../src/ai/index.js';

/** A client whose rooms the test feeds. */
class FakeClient {
  /** @type {{room: string, payload: unknown}[]} */
  published = [];
  /** Listeners of messages, by room. @type {Map<string, Set<(payload: unknown, meta: object) => void>>} */
  rooms = new Map();

  /** @param {string} room @param {unknown} payload */
  async publish(room, payload) {
    this.published.push({ room, payload });
  }

  /** @param {string} name */
  join(name) {
    const listeners = this.rooms.get(name) ?? new Set();
    this.rooms.set(name, listeners);
    /** @type {((payload: unknown, meta: object) => void)|undefined} */
    let own;
    return {
      on(/** @type {string} */ event, /** @type {any} */ listener) {
        if (event !== 'message') return () => {};
        own = listener;
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      leave: () => listeners.delete(/** @type {any} */ (own)),
    };
  }

  /** @param {string} room @param {object} part */
  push(room, part) {
    for (const listener of this.rooms.get(room) ?? [])
      listener(part, { epoch: 'e'.repeat(16), offset: 1 });
  }
}

/**
 * A transport whose backend answers as the test says.
 * @param {(url: string, request: RequestInit) => Response} answer
 * @param {object} [options]
 */
function build(answer, options) {
  const fanfare = new FakeClient();
  /** @type {{url: string, request: RequestInit}[]} */
  const requests = [];
  const fetch = async (/** @type {any} */ url, /** @type {any} */ request) => {
    requests.push({ url, request });
    return answer(url, request);
  };
  const transport = new FanfareChatTransport({ fanfare, fetch, ...options });
  return { transport, fanfare, requests };
}

const SENT = { chatId: 'c 1', messages: [{ id: 'm' }], trigger: 'submit-message' };
const ofRun = () => Response.json({ run: 'run.1' });

test('a message is posted as the AI SDK does, and its run is the answer', async () => {
  const { transport, fanfare, requests } = build(ofRun, {
    api: '/chat',
    headers: () => ({ 'x-a': '1', 'x-b': '1' }),
    body: async () => ({ model: 'm1' }),
  });
  const chunks = await transport.sendMessages({
    ...{ ...SENT, messageId: undefined, headers: { 'x-b': '2' }, body: { tool: 't' } },
  });
  const [{ url, request }] = requests;
  const { headers, method, body } =
    /** @type {{headers: Headers, method: string, body: string}} */ (request);
  assert.deepEqual([url, method], ['/chat', 'POST']);
  assert.deepEqual(Object.fromEntries(headers), {
    'content-type': 'application/json',
    'x-a': '1',
    'x-b': '2',
  });
  const { chatId: id, ...rest } = SENT;
  assert.deepEqual(JSON.parse(body), { id, ...rest, model: 'm1', tool: 't' });
  const reader = chunks.getReader();
  const first = reader.read();
  await turn();
  fanfare.push('run.1', { at: 0, chunks: [{ type: 'start' }, { type: 'finish' }], end: 'done' });
  assert.deepEqual((await first).value, { type: 'start' });
  assert.deepEqual((await reader.read()).value, { type: 'finish' });
  assert.equal((await reader.read()).done, true);
  assert.deepEqual(fanfare.published, []);
  assert.equal(fanfare.rooms.get('run.1')?.size, 0);
});

test('stop ends the run, and the reading', async () => {
  const { transport, fanfare } = build(ofRun);
  const control = new AbortController();
  const chunks = await transport.sendMessages({ ...SENT, abortSignal: control.signal });
  const first = chunks.getReader().read();
  await turn();
  control.abort();
  await assert.rejects(first, { name: 'AbortError' });
  assert.deepEqual(fanfare.published, [{ room: 'run.1/stop', payload: { stop: true } }]);
  assert.equal(fanfare.rooms.get('run.1')?.size, 0);
});

test('stop before the backend has answered stops the run that it answers', async () => {
  /** @type {(answer: Response) => void} */
  let answer = () => {};
  const answered = new Promise((resolve) => {
    answer = resolve;
  });
  const { transport, fanfare, requests } = build(() => /** @type {any} */ (answered));
  const control = new AbortController();
  const sent = transport.sendMessages({ ...SENT, abortSignal: control.signal });
  await turn();
  control.abort();
  await assert.rejects(sent, { name: 'AbortError' });
  assert.deepEqual([requests.length, fanfare.published], [1, []]);
  answer(ofRun());
  await turn();
  assert.deepEqual(fanfare.published, [{ room: 'run.1/stop', payload: { stop: true } }]);
  await assert.rejects(transport.sendMessages({ ...SENT, abortSignal: control.signal }));
  assert.equal(requests.length, 1, 'what is stopped already is not sent');
});

test('a chat that resumes twice, as under StrictMode, does not stop its run; stop does', async () => {
  const { transport, fanfare, requests } = build(ofRun);
  const [one, two] = [new AbortController(), new AbortController()];
  const first = await transport.reconnectToStream({ chatId: 'c/1', abortSignal: one.signal });
  assert.equal(requests[0].url, '/api/chat/c%2F1/stream');
  // What useChat does when it resumes again.
  one.abort();
  const second = transport.reconnectToStream({ chatId: 'c/1', abortSignal: two.signal });
  await assert.rejects(async () => first?.getReader().read(), { name: 'AbortError' });
  await second;
  assert.deepEqual(fanfare.published, []);
  two.abort();
  await turn();
  assert.equal(fanfare.published.length, 1);
});

test('a run that has ended is not stopped, and a cancelled stream only leaves its room', async () => {
  const { transport, fanfare } = build(ofRun);
  const control = new AbortController();
  const chunks = await transport.sendMessages({ ...SENT, abortSignal: control.signal });
  const reading = chunks.getReader().read();
  await turn();
  fanfare.push('run.1', { at: 0, chunks: [], end: 'stopped' });
  assert.equal((await reading).done, true);
  control.abort();
  const other = await transport.sendMessages(SENT);
  await turn();
  await other.cancel();
  await turn();
  assert.deepEqual([fanfare.published, fanfare.rooms.get('run.1')?.size], [[], 0]);
});

test('nothing to resume is null, and what the backend refuses is an error with its words', async () => {
  const nothing = build(() => new Response(null, { status: 204 }));
  assert.equal(await nothing.transport.reconnectToStream({ chatId: 'c' }), null);
  const refused = build(() => new Response('Too many questions.', { status: 429 }));
  await assert.rejects(refused.transport.sendMessages(SENT), { message: 'Too many questions.' });
  const silent = build(() => new Response('', { status: 500 }));
  await assert.rejects(silent.transport.sendMessages(SENT), { message: 'POST /api/chat: 500' });
});

test('an error mark is the error of the stream', async () => {
  const { transport, fanfare } = build(ofRun);
  const reader = (await transport.sendMessages(SENT)).getReader();
  const first = reader.read();
  await turn();
  fanfare.push('run.1', { at: 0, chunks: ['a'], end: 'failed', message: 'overloaded' });
  assert.equal((await first).value, 'a');
  await assert.rejects(reader.read(), { code: 'FAILED', message: 'overloaded' });
});
