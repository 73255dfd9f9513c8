// ai-writer.test.js: what the writer of a run publishes, and when (src/ai/writer.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { RunError, stream } from '../../src/ai/index.js';

/** @typedef {{at: number, chunks: any[], end?: string, message?: string}} Part */

const ROOM = 'run.1';

/** One room of a server, which compares positions as Fanfare does. */
class FakeServer {
  epoch = 'a'.repeat(16);
  /** @type {Part[]} */
  parts = [];
  /** Publishes wait for it. @type {Promise<unknown>} */
  gate = Promise.resolve();
  /** @type {Error|null} */
  failure = null;

  async history() {
    const last = this.parts.at(-1);
    const messages = last === undefined ? [] : [{ payload: last }];
    return { messages, epoch: this.epoch, offset: this.parts.length };
  }

  /** @param {string} room @param {Part} part @param {{expect: {epoch?: string, offset: number}}} options */
  async publish(room, part, { expect }) {
    assert.equal(room, ROOM);
    await this.gate;
    if (this.failure !== null) throw this.failure;
    const position = { epoch: this.epoch, offset: this.parts.length };
    if (expect.offset !== position.offset || (expect.epoch ?? this.epoch) !== this.epoch)
      throw Object.assign(new Error('conflict'), { code: 'CONFLICT', position });
    this.parts.push(JSON.parse(JSON.stringify(part)));
    return { epoch: this.epoch, offset: this.parts.length };
  }

  /** As a restart of the embedded backend does. */
  lose() {
    this.epoch = String(Number.parseInt(this.epoch, 16) % 9).repeat(16);
    this.parts = [];
  }

  get chunks() {
    return this.parts.flatMap(({ chunks }) => chunks);
  }
}

/** @param {import('node:test').TestContext} t */
function mockTime(t) {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  return async (/** @type {number} */ ms) => {
    t.mock.timers.tick(ms);
    for (let i = 0; i < 5; i++) await turn();
  };
}

test('the chunks of 40 ms leave as one part, and 4 KB leave at once', async (t) => {
  const pass = mockTime(t);
  const server = new FakeServer();
  const run = await stream(server, ROOM);
  for (const text of ['a', 'b']) await run.write(text);
  await pass(39);
  await run.write('c');
  assert.deepEqual(server.parts, []);
  await pass(1);
  assert.deepEqual(server.parts, [{ at: 0, chunks: ['a', 'b', 'c'] }]);
  await run.write('d'.repeat(4096));
  await pass(0);
  assert.deepEqual(server.parts[1], { at: 3, chunks: ['d'.repeat(4096)] });
  await run.write({ type: 'finish' });
  await run.end();
  assert.deepEqual(server.parts[2], { at: 4, chunks: [{ type: 'finish' }], end: 'done' });
  assert.deepEqual([run.written, run.position?.offset], [5, 3]);
});

test('everyMs is the time for which chunks collect', async (t) => {
  const pass = mockTime(t);
  const server = new FakeServer();
  const run = await stream(server, ROOM, { everyMs: 160 });
  await run.write('a');
  await pass(159);
  assert.deepEqual(server.parts, []);
  await pass(1);
  assert.deepEqual(server.chunks, ['a']);
  await run.end();
});

test('chunks collect while a part is under way, and a part is bounded', async () => {
  const server = new FakeServer();
  const run = await stream(server, ROOM);
  /** @type {(value?: unknown) => void} */
  let open = () => {};
  server.gate = new Promise((resolve) => {
    open = resolve;
  });
  const chunk = 'x'.repeat(8000);
  let written = 0;
  const writing = (async () => {
    for (; written < 60; written++) await run.write(chunk);
  })();
  await turn();
  assert.ok(
    written > 30 && written < 40,
    `${written} of 8 KB fit into the bound, then write waits`,
  );
  open();
  await writing;
  await run.end();
  assert.equal(server.chunks.length, 60);
  for (const { chunks } of server.parts) assert.ok(JSON.stringify(chunks).length <= 33_000);
  assert.equal(server.parts.at(-1)?.end, 'done');
});

test('of two producers of a run, the older one is refused and stops', async () => {
  const server = new FakeServer();
  const older = await stream(server, ROOM);
  await older.write('1');
  await older.write('x'.repeat(4096));
  await turn();
  const newer = await stream(server, ROOM, { resume: true });
  assert.equal(newer.written, 2);
  await newer.write('y'.repeat(4096));
  await turn();
  await older.write('z'.repeat(4096));
  await turn();
  assert.equal(older.signal.aborted, true);
  for (const act of [() => older.write('late'), () => older.end(), () => older.pipe(['late'])])
    await assert.rejects(act, { name: 'RunError', code: 'CONFLICT' });
  await newer.end();
  assert.deepEqual(
    server.chunks.map((chunk) => chunk[0]),
    ['1', 'x', 'y'],
  );
});

test('a run that has chunks is continued on purpose only, and never after its end', async () => {
  const server = new FakeServer();
  const run = await stream(server, ROOM);
  await run.write('1');
  // A second producer of a run that has not begun is noticed at its first part.
  const second = await stream(server, ROOM);
  await second.pipe(['2']);
  await assert.rejects(run.end(), { code: 'CONFLICT' });
  await assert.rejects(stream(server, ROOM), { code: 'ENDED' });
  await assert.rejects(stream(server, ROOM, { resume: true }), { code: 'ENDED' });
  delete server.parts[0].end;
  await assert.rejects(stream(server, ROOM), { code: 'CONFLICT' });
  await (await stream(server, ROOM, { resume: true })).pipe(['3']);
  assert.deepEqual(server.parts.at(-1), { at: 1, chunks: ['3'], end: 'done' });
  server.parts.push(/** @type {any} */ ({ text: 'of somebody else' }));
  await assert.rejects(stream(server, ROOM, { resume: true }), { code: 'CONFLICT' });
});

test('a run that the store has lost is written again from its first chunk, while it is kept', async () => {
  for (const [keepBytes, isKept] of /** @type {const} */ ([
    [100_000, true],
    [10, false],
  ])) {
    const server = new FakeServer();
    const run = await stream(server, ROOM, { keepBytes });
    for (const letter of 'abc') {
      await run.write(letter.repeat(5000));
      await turn();
    }
    server.lose();
    const ended = run.pipe(['d']);
    if (isKept) {
      await ended;
      assert.deepEqual(
        server.chunks.map((chunk) => chunk[0]),
        ['a', 'b', 'c', 'd'],
      );
      assert.deepEqual([server.parts[0].at, server.parts.at(-1)?.end], [0, 'done']);
      assert.equal(run.written, 4);
    } else {
      await assert.rejects(ended, { code: 'CONFLICT' });
      assert.deepEqual(server.parts, []);
    }
  }
});

test('a publish that fails for good ends the writing, with its error', async () => {
  const server = new FakeServer();
  const run = await stream(server, ROOM);
  server.failure = Object.assign(new Error('away'), { code: 'UNAVAILABLE' });
  await run.write('x'.repeat(5000));
  await turn();
  assert.equal(run.signal.reason, server.failure);
  await assert.rejects(run.write('y'), { code: 'UNAVAILABLE' });
});

/** A client with one room. */
function fakeStopRoom() {
  /** @type {Record<string, (page?: object) => void>} */
  const listeners = {};
  const about = { joined: '', hasLeft: false };
  const room = {
    on(/** @type {string} */ event, /** @type {(page?: object) => void} */ listener) {
      listeners[event] = listener;
    },
    history: async () => ({ messages: [] }),
    leave() {
      about.hasLeft = true;
    },
  };
  const client = {
    join(/** @type {string} */ name) {
      about.joined = name;
      return room;
    },
  };
  return { listeners, about, client };
}

test('a reader that stops the run ends the model, and the mark says so', async () => {
  const server = new FakeServer();
  const { listeners, about, client } = fakeStopRoom();
  const run = await stream(server, ROOM, { stop: client });
  assert.equal(about.joined, 'run.1/stop');
  let isReturned = false;
  async function* model() {
    try {
      yield 'first';
      listeners.message();
      await new Promise((resolve) => setTimeout(resolve, 1));
      yield 'late';
    } finally {
      isReturned = true;
    }
  }
  await run.pipe(model());
  assert.deepEqual(server.parts.at(-1), { at: 0, chunks: ['first'], end: 'stopped' });
  assert.equal(about.hasLeft, true);
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(isReturned, true);
  await assert.rejects(run.write('x'), { code: 'STOPPED' });
});

test('a run stopped during an outage has all its chunks, or fails', async () => {
  for (const isStored of [false, true]) {
    const server = new FakeServer();
    const { listeners, client } = fakeStopRoom();
    const run = await stream(server, ROOM, { stop: client });
    /** @type {() => void} */
    let open = () => {};
    server.gate = new Promise((resolve) => {
      open = () => resolve(undefined);
    });
    const first = 'x'.repeat(5000);
    await run.write(first);
    await run.write('y');
    listeners.message();
    server.failure = Object.assign(new Error('no answer'), { code: 'OUTCOME_UNKNOWN' });
    open();
    await turn();
    if (isStored) server.parts.push({ at: 0, chunks: [first] });
    server.failure = null;
    const ended = run.end();
    if (isStored) await assert.rejects(ended, { code: 'CONFLICT' });
    else await ended.then(() => assert.deepEqual(server.chunks, [first, 'y']));
  }
});

test('a stop is heard that was sent while the client was away', async () => {
  const { listeners, client } = fakeStopRoom();
  const run = await stream(new FakeServer(), ROOM, { stop: client });
  listeners.reset({ messages: [] });
  assert.equal(run.signal.aborted, false);
  listeners.reset({ messages: [{ payload: { stop: true } }] });
  assert.equal(run.signal.reason.code, 'STOPPED');
});

test('a model that fails leaves an error mark without its words', async () => {
  const server = new FakeServer();
  const run = await stream(server, ROOM);
  async function* model() {
    yield 'first';
    throw new Error('key sk-123 is not valid');
  }
  await assert.rejects(run.pipe(model()), /sk-123/);
  const mark = { at: 0, chunks: ['first'], end: 'failed', message: 'The run has failed.' };
  assert.deepEqual(server.parts, [mark]);
  await assert.rejects(run.write('x'), (error) => error instanceof RunError);
});

test('what is no JSON is no chunk', async () => {
  const run = await stream(new FakeServer(), ROOM);
  for (const chunk of [undefined, () => {}]) await assert.rejects(run.write(chunk), TypeError);
});
