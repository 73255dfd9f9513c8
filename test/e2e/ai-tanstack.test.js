// ai-tanstack.test.js: the stock packages @tanstack/ai and @tanstack/ai-client with the handlers of
// docs/ai.md, at two replicas that share nothing but Fanfare.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import * as tanstack from '@tanstack/ai';
import { fetchServerSentEvents } from '@tanstack/ai-client';
import { FanfareDurability } from '../../src/ai/index.js';
import { Fanfare } from '../../src/client/node.js';
import { createServer } from '../../src/sdk/index.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { codeWith, runCode } from '../helpers/doc-code.js';
import { shared } from '../helpers/shared.js';

/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {(request: Request) => Promise<Response>|Response} Handler */

const OPTIONS = { timeout: 60_000 };
const WORDS = Array.from({ length: 100 }, (_, i) => `word ${i}, `);

/** A model of TanStack AI whose words the test lets out. */
class Model {
  kind = 'text';
  name = 'told';
  model = 'told';
  calls = 0;
  #count = 0;
  #wake = () => {};

  /** @param {number} words */
  say(words) {
    this.#count += words;
    this.#wake();
  }

  /** @param {{runId?: string, threadId?: string}} options @returns {AsyncGenerator<any>} */
  async *chatStream({ runId, threadId }) {
    this.calls++;
    const about = { runId, threadId, model: this.model, timestamp: Date.now() };
    const messageId = `message-${runId}`;
    yield { type: 'RUN_STARTED', ...about };
    yield { type: 'TEXT_MESSAGE_START', messageId, role: 'assistant', ...about };
    for (let i = 0; i < WORDS.length; ) {
      if (i < this.#count)
        yield { type: 'TEXT_MESSAGE_CONTENT', messageId, delta: WORDS[i++], ...about };
      else
        await new Promise((resolve) => {
          this.#wake = () => resolve(undefined);
        });
    }
    yield { type: 'TEXT_MESSAGE_END', messageId, ...about };
    yield { type: 'RUN_FINISHED', finishReason: 'stop', ...about };
  }
}

/** @param {Owner} t @param {Record<string, Handler>} handlers by method */
async function serve(t, handlers) {
  const server = createHttpServer(async (incoming, outgoing) => {
    const { method = 'GET', headers, url } = incoming;
    const body = method === 'POST' ? Readable.toWeb(incoming) : undefined;
    const request = new Request(`http://${headers.host}${url}`, {
      ...{ method, headers: /** @type {any} */ (headers), body },
      ...{ duplex: 'half' },
    });
    const response = await handlers[method](request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    Readable.fromWeb(/** @type {any} */ (response.body))
      .on('error', () => {})
      .pipe(outgoing);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}/api/chat`, cut: () => server.closeAllConnections() };
}

const running = shared(async (owner) => {
  const apiKey = newSecret();
  const fanfare = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `ai ${apiKey} all`,
    FANFARE_HISTORY: 'run.*=1000/60s, short.*=2/60s',
  });
  const url = `http://127.0.0.1:${fanfare.port}`;
  return { url, apiKey };
});

/** A process of the application. @param {Owner} t @param {Model} model */
async function startReplica(t, model) {
  const { url, apiKey } = await running();
  const names = { ...tanstack, FanfareDurability, Fanfare, createServer, url, apiKey, model };
  const code = codeWith('docs/ai.md', 'new FanfareDurability(request, log)');
  const { POST, GET, log } = await runCode(code, names, ['POST', 'GET', 'log']);
  t.after(() => log.fanfare.close());
  return { ...(await serve(t, { POST, GET })), log };
}

/** Reads the words of a run. @param {AsyncIterable<any>} chunks */
function follow(chunks) {
  const read = { text: '', types: new Set(), ended: Promise.resolve() };
  read.ended = (async () => {
    for await (const { type, delta } of chunks) {
      read.types.add(type);
      if (type === 'TEXT_MESSAGE_CONTENT') read.text += delta;
    }
  })();
  read.ended.catch(() => {});
  return read;
}

const message = { id: '1', role: 'user', parts: [{ type: 'text', content: 'Why?' }] };

test('a broken response goes on at another replica, and viewers join there', OPTIONS, async (t) => {
  const model = new Model();
  const [first, second] = [await startReplica(t, model), await startReplica(t, model)];
  /** @type {string[]} */
  const asked = [];
  const connection = fetchServerSentEvents(first.url, {
    fetchClient: (_, init) => {
      // The load balancer sends the second request to the other replica.
      const url = asked.length === 0 ? first.url : second.url;
      asked.push(url);
      return fetch(url, init);
    },
  });
  const about = { threadId: 'thread-1', runId: 'run-1' };
  const author = follow(
    connection.connect(/** @type {any} */ ([message]), {}, undefined, /** @type {any} */ (about)),
  );
  model.say(40);
  // Core stores 32 chunks at once.
  await until(() => author.text.includes('word 28,'));
  first.cut();
  const viewer = follow(fetchServerSentEvents(second.url).joinRun('run-1'));
  await until(() => asked.length === 2);
  model.say(60);
  await Promise.all([author.ended, viewer.ended]);
  assert.equal(author.text, WORDS.join(''));
  assert.equal(viewer.text, WORDS.join(''));
  for (const { types } of [author, viewer]) assert.ok(types.has('RUN_FINISHED'));
  assert.equal(model.calls, 1, 'the model was asked once');

  /** @type {import('@tanstack/ai').StreamDurability} */
  const log = new FanfareDurability({ runId: 'run-1', offset: 'now' }, second.log);
  const all = await log.snapshot();
  const text = all.map(({ chunk }) => /** @type {any} */ (chunk).delta ?? '').join('');
  assert.equal(text, WORDS.join(''));
  // Each offset leads to the chunk after it.
  for (const i of [0, 1, 31, 32, 60, all.length - 2]) {
    const rest = [];
    for await (const { offset, chunk } of log.read(all[i].offset)) rest.push({ offset, chunk });
    assert.deepEqual(rest, all.slice(i + 1));
  }
  for await (const _ of log.read('now')) assert.fail('the run has ended');
});

test('of two producers of a run, the second is refused, unless it resumes', OPTIONS, async (t) => {
  const { log } = await startReplica(t, new Model());
  const chunk = (/** @type {number} */ i) => ({ type: 'CUSTOM', name: 'n', value: i });
  const older = new FanfareDurability({ runId: 'two' }, log);
  const [offset] = await older.append([chunk(1)]);
  const refused = new FanfareDurability({ runId: 'two' }, log);
  await assert.rejects(refused.append([chunk(2)]), { code: 'CONFLICT' });
  const newer = new FanfareDurability({ runId: 'two' }, { ...log, resume: true });
  const [next] = await newer.append([chunk(2)]);
  await assert.rejects(older.append([chunk(3)]), { code: 'CONFLICT' });
  const reader = new FanfareDurability({ runId: 'two', offset }, log);
  const reading = reader.read(offset);
  assert.deepEqual((await reading.next()).value, { offset: next, chunk: chunk(2) });
  await newer.close();
  assert.deepEqual(await reading.next(), { value: undefined, done: true });
});

test('a reader ends when it is told to, and if the run is none', OPTIONS, async (t) => {
  const { log } = await startReplica(t, new Model());
  const unknown = new FanfareDurability({ runId: 'none', offset: '-1' }, { ...log, waitMs: 100 });
  assert.deepEqual(await unknown.snapshot(), []);
  await assert.rejects(unknown.read('-1').next(), { code: 'SILENT' });
  const control = new AbortController();
  const aborted = unknown.read('-1', control.signal).next();
  control.abort();
  assert.equal((await aborted).done, true);
  for (const url of ['?runId=a/b', '?runId=a&offset=5', '?offset=a:b:c:d'])
    assert.throws(
      () => new FanfareDurability(new Request(`http://localhost/${url}`), log),
      TypeError,
    );
  const short = { ...log, prefix: 'short' };
  const cut = new FanfareDurability({ runId: 'cut' }, short);
  for (let i = 0; i < 4; i++) await cut.append([{ i }]);
  await assert.rejects(cut.snapshot(), { code: 'INCOMPLETE' });
  await assert.rejects(cut.read('-1').next(), { code: 'INCOMPLETE' });
});
