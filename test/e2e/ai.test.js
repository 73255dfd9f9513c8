// ai.test.js: runs of fanfare-ai, written and read by the libraries over real servers that end.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { read, stream } from '../../src/ai/index.js';
import { Fanfare } from '../../src/client/node.js';
import { createServer } from '../../src/sdk/index.js';
import { freePort, startRedis } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { shared } from '../helpers/shared.js';

/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {import('../../src/ai/part.js').Position} Position */

const OPTIONS = { timeout: 60_000 };
const QUICK = { firstDelayMs: 50, maxDelayMs: 300 };
const API_KEY = newSecret();
const WORDS = 'Once upon a time there was a lighthouse ☁️ 了解 🌊 '.split(/(?= )/);

/** @param {Owner} t @param {Record<string, string>} [env] */
async function startFanfare(t, env = {}) {
  const settings = {
    ...NO_LIMITS,
    WORKERS: '1',
    PORT: String(await freePort()),
    API_KEYS: `ai ${API_KEY} all`,
    FANFARE_HISTORY: 'run.*=2000/60s, short.*=2/60s, brief.*=10/1s',
    FANFARE_RECONNECT_WINDOW_MS: '200',
    ...env,
  };
  const start = () => startServer(t, settings);
  const server = await start();
  const url = `http://127.0.0.1:${server.port}`;
  return { url, server, start, backend: createServer({ url, apiKey: API_KEY }) };
}

const running = shared((owner) => startFanfare(owner));

/** @param {Owner} t @param {string} url */
function connect(t, url) {
  const fanfare = new Fanfare(url, QUICK);
  t.after(() => fanfare.close());
  return fanfare;
}

/** A model whose words the test lets out. */
class Model {
  /** @type {string[]} */
  said = [];
  #count = 0;
  #wake = () => {};
  isEnded = false;

  /** @param {number} words */
  say(words) {
    this.#count += words;
    this.#wake();
  }

  end() {
    this.isEnded = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.said.length < this.#count) {
        const word = `${WORDS[this.said.length % WORDS.length]}${this.said.length}`;
        this.said.push(word);
        yield word;
      }
      if (this.isEnded) return;
      await new Promise((resolve) => {
        this.#wake = () => resolve(undefined);
      });
    }
  }
}

/** Reads a run to its end. @param {import('../../src/ai/index.js').RunReader} run */
function follow(run) {
  /** @type {string[]} */
  const words = [];
  const ended = (async () => {
    for await (const word of run) words.push(word);
  })();
  ended.catch(() => {});
  return { words, ended, run };
}

describe('runs', () => {
  test(
    'readers get each chunk once: from the beginning, late, and from a position',
    OPTIONS,
    async (t) => {
      const { url, backend } = await running();
      const model = new Model();
      const run = await stream(backend, 'run.read');
      const written = run.pipe(model);
      const early = follow(read(connect(t, url), 'run.read'));
      model.say(50);
      await until(() => early.words.length === 50);
      const half = early.run.position;
      model.say(50);
      await until(() => early.words.length === 100);
      const late = follow(read(connect(t, url), 'run.read'));
      const rest = follow(read(connect(t, url), 'run.read', { since: half }));
      model.end();
      await written;
      await Promise.all([early.ended, late.ended, rest.ended]);
      assert.equal(model.said.length, 100);
      assert.deepEqual(early.words, model.said);
      assert.deepEqual(late.words, model.said);
      assert.deepEqual(rest.words, model.said.slice(50));
      const after = follow(read(connect(t, url), 'run.read'));
      await after.ended;
      assert.deepEqual([after.words, after.run.end], [model.said, 'done']);
    },
  );

  test('a reader stops the run, whichever process writes it', OPTIONS, async (t) => {
    const { url, backend } = await running();
    const model = new Model();
    const run = await stream(backend, 'run.stop', { stop: connect(t, url) });
    const aborted = once(run.signal, 'abort');
    const written = run.pipe(model);
    const [one, other] = [0, 1].map(() => follow(read(connect(t, url), 'run.stop')));
    model.say(10);
    await until(() => one.words.length === 10 && other.words.length === 10);
    await one.run.stop();
    await aborted;
    await written;
    await Promise.all([one.ended, other.ended]);
    assert.deepEqual([one.run.end, other.run.end], ['stopped', 'stopped']);
    // A producer that begins later hears it, too.
    const late = await stream(backend, 'run.stopped', { stop: connect(t, url) });
    await read(connect(t, url), 'run.stopped').stop();
    await until(() => late.signal.aborted);
    await late.end();
  });

  test('an error mark, missing chunks and silence are errors of their own', OPTIONS, async (t) => {
    const { url, backend } = await running();
    const failed = await stream(backend, 'run.failed');
    await failed.write('first');
    await failed.fail('out of tokens');
    const reader = follow(read(connect(t, url), 'run.failed'));
    await assert.rejects(reader.ended, { code: 'FAILED', message: 'out of tokens' });
    assert.deepEqual(reader.words, ['first']);

    const short = await stream(backend, 'short.1');
    for (const word of ['a', 'b', 'c']) {
      const { offset = 0 } = short.position ?? {};
      await short.write(word.repeat(5000));
      await until(() => short.position?.offset === offset + 1);
    }
    const incomplete = follow(read(connect(t, url), 'short.1'));
    await assert.rejects(incomplete.ended, { code: 'INCOMPLETE' });

    // More than the server replays in one answer.
    const large = await stream(backend, 'run.large');
    for (let i = 0; i < 40; i++) await large.write(String(i).padEnd(30_000));
    await large.end();
    const whole = follow(read(connect(t, url), 'run.large'));
    await whole.ended;
    assert.deepEqual(whole.words.map(Number), [...Array(40).keys()]);

    // Nothing is left that would say so, and nothing more arrives.
    const brief = await stream(backend, 'brief.1');
    await brief.pipe(['a']);
    const seen = { .../** @type {Position} */ (brief.position), offset: 0, next: 0 };
    await until(async () => (await backend.history('brief.1')).messages.length === 0);
    for (const options of [{}, { since: seen }]) {
      const late = follow(read(connect(t, url), 'brief.1', options));
      await assert.rejects(late.ended, { code: 'INCOMPLETE' });
    }

    const silent = follow(read(connect(t, url), 'run.silent', { silenceMs: 50 }));
    await assert.rejects(silent.ended, { code: 'SILENT' });
    const closed = connect(t, url);
    const reading = follow(read(closed, 'run.silent'));
    await closed.close();
    for (const one of [reading, follow(read(closed, 'run.silent'))])
      await assert.rejects(one.ended, { code: 'CLOSED' });
    const signal = AbortSignal.abort(new Error('closed the page'));
    const aborted = follow(read(connect(t, url), 'run.silent', { signal }));
    await assert.rejects(aborted.ended, { message: 'closed the page' });
  });

  test(
    'two producers of one run: readers see one, and the other is refused',
    OPTIONS,
    async (t) => {
      const { url, backend } = await running();
      const [older, newer] = [new Model(), new Model()];
      const first = (await stream(backend, 'run.two')).pipe(older);
      first.catch(() => {});
      const reader = follow(read(connect(t, url), 'run.two'));
      older.say(5);
      await until(() => reader.words.length === 5);
      const second = (await stream(backend, 'run.two', { resume: true })).pipe(newer);
      newer.say(3);
      await until(() => reader.words.length === 8);
      older.say(1);
      await assert.rejects(first, { code: 'CONFLICT' });
      newer.end();
      await second;
      await reader.ended;
      assert.deepEqual(reader.words, [...older.said.slice(0, 5), ...newer.said]);
    },
  );
});

for (const kind of ['Redis', 'embedded'])
  test(
    `${kind}: the server is killed twice in mid-run, and readers miss and repeat nothing`,
    OPTIONS,
    async (t) => {
      const redis = kind === 'Redis' ? await startRedis(t) : null;
      const fanfare = await startFanfare(t, redis === null ? {} : { REDIS_URL: redis.url });
      const { url, backend, start } = fanfare;
      let { server } = fanfare;
      const model = new Model();
      const run = await stream(backend, 'run.killed');
      const written = run.pipe(model);
      const early = follow(read(connect(t, url), 'run.killed'));
      for (const signal of /** @type {const} */ (['SIGKILL', 'SIGTERM'])) {
        model.say(40);
        await until(() => early.words.length === model.said.length && model.said.length > 0);
        server.kill(signal);
        model.say(40);
        await server.exited;
        server = await start();
        model.say(40);
        await until(() => early.words.length === model.said.length, 20_000);
      }
      const late = follow(read(connect(t, url), 'run.killed'));
      model.end();
      await written;
      await Promise.all([early.ended, late.ended]);
      assert.equal(model.said.length, 240);
      assert.deepEqual(early.words, model.said);
      assert.deepEqual(late.words, model.said);
    },
  );
