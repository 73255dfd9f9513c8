// hooks.test.js: calls of hooks, without a server: deadlines, places, the line, files of hooks.
// hook-answers.test.js has the answers.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { deferred } from '../../src/backend/deferred.js';
import { Hooks } from '../../src/hooks/hooks.js';
import { loadHooks } from '../../src/hooks/load.js';
import { createHookCounters } from '../../src/observability/counters.js';
import { SHARES, Turn } from '../../src/worker/turn.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @typedef {import('../../src/hooks/hooks.js').HookName} HookName */

/**
 * @param {import('../../src/hooks/types.js').Hooks} functions
 * @param {{timeoutMs?: number, concurrency?: number}} [bounds]
 */
function build(functions, { timeoutMs = 60_000, concurrency = 10 } = {}) {
  const counters = createHookCounters();
  /** @type {object[]} */
  const lines = [];
  /** @type {HookName[]} */
  const observed = [];
  const turn = new Turn();
  const hooks = new Hooks({
    functions,
    timeoutMs,
    concurrency,
    maxPayloadBytes: 100,
    counters,
    observe: (hook) => observed.push(hook),
    turn,
    log: { warn: (fields) => void lines.push(fields) },
  });
  /** @param {unknown[]} args */
  const publish = (...args) => hooks.call('onPublish', args);
  return { hooks, turn, publish, counters, lines, observed };
}

/** Deadlines alone do not keep a process alive. @param {import('node:test').TestContext} t */
function stayAlive(t) {
  const timer = setInterval(() => {}, 1000);
  t.after(() => clearInterval(timer));
}

/** @param {unknown} answer */
const answering = (answer) => build({ onPublish: () => /** @type {any} */ (answer) }).publish();

/** @param {unknown} verdict */
const codeOf = (verdict) =>
  /** @type {import('../../src/hooks/hooks.js').Verdict} */ (verdict).refusal?.code ?? 'allowed';

test('a hook that throws, at once or later, costs its own call', async () => {
  let calls = 0;
  const { publish, counters, lines } = build({
    onPublish: (_connection, how) => {
      calls++;
      if (how === 'now') throw new Error('now');
      return how === 'later' ? Promise.reject(new Error('later')) : Promise.resolve(true);
    },
  });
  assert.equal(codeOf(publish(null, 'now')), 'HOOK_FAILED');
  assert.deepEqual(
    (await Promise.all([publish(null, 'later'), publish(null, 'not')])).map(codeOf),
    ['HOOK_FAILED', 'allowed'],
  );
  assert.deepEqual([calls, counters.failures['onPublish,throw'], counters.running], [3, 2, 0]);
  assert.equal(lines.length, 1); // one a minute
});

/** Thenables, by their `then`. @type {[string, (resolve: (answer: unknown) => void) => void][]} */
const THENS = [
  [
    'throws',
    () => {
      throw new Error('then');
    },
  ],
  ['calls back twice', (resolve) => [resolve(true), resolve(false)]],
];
for (const [name, then] of THENS)
  test(`a foreign promise whose then ${name} has one answer`, async () => {
    const verdict = await answering(Object.fromEntries([['then', then]]));
    assert.equal(codeOf(verdict), name === 'throws' ? 'HOOK_FAILED' : 'allowed');
  });

test('a call past its deadline fails, its signal aborts, and its late answer is ignored', async (t) => {
  stayAlive(t);
  const late = deferred();
  /** @type {AbortSignal|undefined} */
  let signal;
  const { hooks, publish, counters, observed } = build(
    {
      onPublish: (_connection, _room, _payload, context) => {
        signal = context.signal;
        return late.promise;
      },
    },
    { timeoutMs: 10 },
  );
  const verdict = publish(null, 'room', 1);
  assert.equal(signal?.aborted, false);
  assert.equal(codeOf(await verdict), 'HOOK_FAILED');
  assert.equal(signal?.aborted, true);
  assert.deepEqual([counters.failures['onPublish,timeout'], counters.running], [1, 1]);
  assert.equal(hooks.isIdle, true);
  late.resolve({ deny: 'too late' });
  await late.promise;
  await undefined; // its reader
  assert.deepEqual([counters.running, counters.denied.onPublish, observed.length], [0, 0, 1]);
});

test('calls beyond the places wait in line, in order', async () => {
  /** @type {ReturnType<typeof deferred>[]} */
  const running = [];
  const started = /** @type {number[]} */ ([]);
  const { publish } = build(
    {
      onPublish: (_connection, n) => {
        started.push(Number(n));
        const call = deferred();
        running.push(call);
        return call.promise;
      },
    },
    { concurrency: 2 },
  );
  const verdicts = [1, 2, 3, 4].map((n) => publish(null, n));
  assert.deepEqual(started, [1, 2]);
  /** The next one starts in a later turn if this one is used up. @param {number} n */
  const startedBy = async (n) => {
    for (let turns = 0; turns < 100 && started.length < n; turns++) await immediate();
  };
  running[1].resolve(true);
  await verdicts[1];
  await startedBy(3);
  assert.deepEqual(started, [1, 2, 3]);
  running[0].resolve(true);
  await verdicts[0];
  await startedBy(4);
  assert.deepEqual(started, [1, 2, 3, 4]);
  for (const call of running) call.resolve(true);
  assert.deepEqual((await Promise.all(verdicts)).map(codeOf), Array(4).fill('allowed'));
});

test('hooks that hang lose their places, and the line goes on', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.mock.method(performance, 'now', () => Date.now());
  let isHanging = true;
  const { publish, counters } = build(
    { onPublish: () => (isHanging ? new Promise(() => {}) : true) },
    { timeoutMs: 20, concurrency: 1 },
  );
  const [first, second] = [publish(), publish()];
  isHanging = false;
  t.mock.timers.tick(20);
  assert.equal(codeOf(await first), 'HOOK_FAILED');
  // Its deadline passed in line, at the same time.
  assert.equal(codeOf(await second), 'HOOK_FAILED');
  assert.deepEqual(
    [counters.failures['onPublish,timeout'], counters.failures['onPublish,busy']],
    [1, 1],
  );
  assert.equal(codeOf(await publish()), 'allowed');
});

test('10,000 calls wait in line, and one more is refused at once', async () => {
  const blocker = deferred();
  const { publish, counters } = build(
    { onPublish: () => blocker.promise.then(() => {}) },
    { concurrency: 1 },
  );
  const verdicts = Array.from({ length: 10_001 }, () => publish());
  assert.equal(counters.failures['onPublish,busy'], 0);
  assert.equal(codeOf(publish()), 'HOOK_FAILED');
  assert.equal(counters.failures['onPublish,busy'], 1);
  blocker.resolve(undefined);
  assert.ok((await Promise.all(verdicts)).every((verdict) => codeOf(verdict) === 'allowed'));
});

test('calls of onDisconnect wait behind the checks, without a deadline', async () => {
  const blocker = deferred();
  const order = /** @type {string[]} */ ([]);
  const { hooks, publish } = build(
    {
      onPublish: (_connection, n) => {
        order.push(`publish ${n}`);
        return n === '1' ? blocker.promise.then(() => {}) : undefined;
      },
      onDisconnect: () => void order.push('disconnect'),
    },
    { concurrency: 1 },
  );
  const first = publish(null, '1');
  hooks.disconnected([]);
  const second = publish(null, '2');
  assert.equal(hooks.isIdle, false);
  blocker.resolve(undefined);
  await Promise.all([first, second]);
  assert.deepEqual(order, ['publish 1', 'publish 2', 'disconnect']);
  assert.equal(hooks.isIdle, true);
});

/** Files that a server does not start with. @type {[string, string, RegExp][]} */
const FILES = [
  ['does not parse', '// 1\n\nexport function onPublish( {\n', /hooks\.mjs:\d: SyntaxError: /],
  [
    'has a bracket too few',
    `${'// \n'.repeat(21)}export function onPublish(c, room, p) { if (p.x { return } }\n//\n`,
    /hooks\.mjs:22: SyntaxError: Unexpected token '\{'$/,
  ],
  ['throws', '\nthrow new Error("no database");', /failed to load: \/.*:2: Error: no database$/],
  ['throws no error', 'throw "no database";', /failed to load: \/.*hooks\.mjs threw no database$/],
  ['reads broken JSON', '\n\nJSON.parse("{");', /failed to load: \/.*:3: SyntaxError: /],
  ['imports what is not there', '\nimport "./rules.mjs";', /hooks\.mjs: Error: Cannot find module/],
  [
    'imports a name that is not there',
    '\nimport { none } from "node:fs";',
    /hooks\.mjs:2: SyntaxError: .*'none'/,
  ],
  ['exports no hook', 'export const x = 1;', /exports none of onConnect/],
  [
    'exports another name',
    'export const onMessage = () => {};',
    /onMessage is not one of onConnect/,
  ],
  [
    'writes a hook in lower case',
    'export function onpublish() {}',
    /onpublish is not one of onConnect/,
  ],
  ['exports a hook that is no function', 'export const onJoin = 1;', /onJoin is not a function/],
];
for (const [name, text, fault] of FILES)
  test(`a file that ${name} is refused`, async (t) => {
    const path = join(temporaryFolder(t), 'hooks.mjs');
    writeFileSync(path, text);
    await assert.rejects(loadHooks(path), { message: fault });
  });

test('a file that gets broken JSON runs once, and may load at the next start', async (t) => {
  const path = join(temporaryFolder(t), 'hooks.mjs');
  const marks = `${path}.marks`;
  const lines = [
    'import { appendFileSync } from "node:fs";',
    `appendFileSync(${JSON.stringify(marks)}, "ran ");`,
    'export const rules = await new Response("<html>").json();',
    'export const onJoin = () => rules;',
  ];
  writeFileSync(path, lines.join('\n'));
  await assert.rejects(loadHooks(path), ({ message, isInvalidSetting = false }) => {
    assert.match(message, /SyntaxError: .*JSON/);
    assert.equal(isInvalidSetting, false, 'a supervisor starts it again');
    return true;
  });
  assert.equal(readFileSync(marks, 'utf8'), 'ran ');
});

test('a syntax error is found in another file, and in CommonJS', async (t) => {
  const folder = temporaryFolder(t);
  const write = (/** @type {string} */ name, /** @type {string} */ text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  write('rules.mjs', '// one\n// two\nexport const rules = {{};\n');
  const hooks = write(
    'hooks.mjs',
    'import { rules } from "./rules.mjs"; export const onJoin = rules;',
  );
  await assert.rejects(loadHooks(hooks), { message: /rules\.mjs:3: SyntaxError: / });
  const old = write('hooks.cjs', 'module.exports = {\n  onJoin() { return {{ },\n};\n');
  await assert.rejects(loadHooks(old), { message: /hooks\.cjs:2: SyntaxError: / });
});

for (const [name, file, text] of [
  ['names', 'hooks.mjs', 'export function once() {} export function onJoin() {}'],
  ['a default object', 'hooks.mjs', 'export default { onJoin() {} };'],
  ['CommonJS', 'hooks.cjs', 'module.exports = { onJoin() {} };'],
])
  test(`hooks are exported by ${name}`, async (t) => {
    const path = join(temporaryFolder(t), file);
    writeFileSync(path, text);
    assert.deepEqual(Object.keys(await loadHooks(path)), ['onJoin']);
  });

test('a turn of the event loop starts calls in line while their share lasts', async () => {
  const first = deferred();
  const clock = { now: 0 };
  let calls = 0;
  const { hooks, turn, publish } = build(
    {
      onPublish: () => first.promise,
      onDisconnect() {
        calls++;
        clock.now += 1;
      },
    },
    { concurrency: 1 },
  );
  turn.clock = () => clock.now;
  const { ms } = SHARES.hooks;
  const published = publish();
  for (let i = 0; i < 2.5 * ms; i++) hooks.disconnected([]);
  first.resolve(true);
  await published;
  for (const started of [1, 2, 2.5]) {
    assert.equal(calls, started * ms);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(hooks.isIdle);
});
