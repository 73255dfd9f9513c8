// hook-answers.test.js: what hooks may answer. One table for both kinds, functions and backends, and for
// docs/hooks.schema.json.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import Ajv from 'ajv/dist/2020.js';
import { backendHooks } from '../../src/hooks/backends.js';
import { Hooks } from '../../src/hooks/hooks.js';
import { createHookCounters } from '../../src/observability/counters.js';
import { Turn } from '../../src/worker/turn.js';
import { HOOKS_SECRET, hookBackend } from '../helpers/hooks/backend.js';
import { shared } from '../helpers/shared.js';

const MAX_PAYLOAD = 100;
/** @typedef {import('../../src/hooks/hooks.js').HookName} HookName */

/** @param {import('../../src/hooks/types.js').Hooks} functions */
function build(functions, counters = createHookCounters()) {
  const hooks = new Hooks({
    functions,
    timeoutMs: 60_000,
    concurrency: 10,
    maxPayloadBytes: MAX_PAYLOAD,
    counters,
    observe: () => {},
    turn: new Turn(),
    log: { warn: () => {} },
  });
  return { hooks, counters };
}

/** What the hooks of the backend answer. @type {any} */
let answered;
const NAMES = /** @type {const} */ (['onConnect', 'onJoin', 'onPublish', 'onRpc', 'onSend']);
/** @param {() => unknown} answer */
const functionsOf = (answer) =>
  /** @type {import('../../src/hooks/types.js').Hooks} */ (
    Object.fromEntries(NAMES.map((name) => [name, answer]))
  );
const backend = shared((t) =>
  hookBackend(
    t,
    functionsOf(() => answered),
  ),
);

/** Hooks that give this answer, of each kind. @type {Record<string, (answer: any) => Promise<ReturnType<typeof build>>>} */
const KINDS = {
  'a function': async (answer) => build(functionsOf(() => answer)),
  'a backend': async (answer) => {
    answered = answer;
    const { url } = await backend();
    const counters = createHookCounters();
    const settings = { url, hooks: NAMES, secrets: [HOOKS_SECRET], headers: [] };
    const log = { info: () => {}, error: () => {} };
    const parts = { maxPayloadBytes: MAX_PAYLOAD, timeoutMs: 60_000, counters, log };
    return build(backendHooks({ backends: [settings], publicOnly: false }, parts), counters);
  },
};

const CONNECTION = { id: 'c', user: null, address: '::1', transport: 'websocket' };
/** @type {Record<typeof NAMES[number], unknown[]>} */
const ARGUMENTS = {
  onConnect: [{ ...CONNECTION, headers: {}, query: new URLSearchParams(), token: null }],
  onJoin: [CONNECTION, 'room'],
  onPublish: [CONNECTION, 'room', 1],
  onRpc: [CONNECTION, 'method', 1],
  onSend: [CONNECTION, 1],
};

const levels = (/** @type {number} */ depth) =>
  JSON.parse(`${'['.repeat(depth)}${']'.repeat(depth)}`);
/** What each hook may answer. @type {Record<typeof NAMES[number], unknown[]>} */
const ALLOWED = {
  onConnect: [{ user: 'ann' }, { user: 'ann', info: 1 }, { data: null }, { user: 'a', data: [] }],
  onJoin: [],
  onPublish: [{ payload: 0 }, { payload: null }, { payload: levels(31) }],
  onRpc: [{ data: null }, { data: { sum: 3 } }],
  onSend: [],
};
/** Answers that no hook may give, in JSON. */
const NEVER = [
  ...[null, 0, 1, '', 'deny', 'true', [], [true], {}, { allow: true }, { deny: true }],
  ...[{ deny: null }, { deny: 'no', payload: 1 }, { deny: 'no', data: 1 }, { status: 200 }],
];
/** @type {Record<typeof NAMES[number], unknown[]>} */
const FAULTS = {
  onConnect: [
    ...[{ user: '' }, { user: 7 }, { user: null }, { user: 'x'.repeat(129) }, { info: {} }],
    ...[{ payload: 1 }, { user: 'ann', rights: 1 }],
  ],
  onJoin: [{ user: 'ann' }, { payload: 1 }, { data: 1 }],
  onPublish: [{ user: 'ann' }, { data: 1 }],
  onRpc: [{ payload: 1 }, { user: 'ann' }],
  onSend: [{ data: 1 }, { payload: 1 }],
};
/** Faults that the schema cannot describe. @type {Partial<Record<HookName, unknown[]>>} */
const BEYOND_SCHEMA = {
  onConnect: [{ user: 'ann', info: 'x'.repeat(2048) }],
  onPublish: [{ payload: levels(32) }],
};

const schema = JSON.parse(
  readFileSync(new URL('../../docs/hooks.schema.json', import.meta.url), 'utf8'),
);
const ajv = new Ajv.default().addSchema(schema, 'hooks');

for (const [kind, hooksWith] of Object.entries(KINDS)) {
  for (const hook of NAMES) {
    /** @param {unknown} answer */
    const ask = async (answer) => {
      const { hooks, counters } = await hooksWith(answer);
      const { refusal } = await hooks.call(hook, ARGUMENTS[hook]);
      return { code: refusal?.code ?? 'allowed', message: refusal?.message, counters };
    };

    test(`${kind}: answers that allow ${hook}`, async () => {
      for (const answer of [undefined, true, ...ALLOWED[hook]])
        assert.equal((await ask(answer)).code, 'allowed', JSON.stringify(answer));
    });

    test(`${kind}: answers that deny ${hook}`, async () => {
      for (const answer of [false, { deny: '' }, { deny: 'no' }])
        assert.equal((await ask(answer)).code, 'DENIED', JSON.stringify(answer));
      const { message } = await ask({ deny: 'n'.repeat(1000) });
      assert.equal(message?.length, 200, 'the text for the client is cut');
    });

    test(`${kind}: answers that are faults of ${hook}`, async () => {
      for (const answer of [...NEVER, ...FAULTS[hook], ...(BEYOND_SCHEMA[hook] ?? [])]) {
        const { code, counters } = await ask(answer);
        assert.equal(code, 'HOOK_FAILED', JSON.stringify(answer));
        assert.equal(counters.failures[`${hook},answer`], 1, JSON.stringify(answer));
      }
    });
  }

  for (const [hook, field] of /** @type {const} */ ([
    ['onPublish', 'payload'],
    ['onRpc', 'data'],
  ]))
    test(`${kind}: what ${hook} returns may be as large as a message, and no larger`, async () => {
      for (const [length, expected] of /** @type {const} */ ([
        [MAX_PAYLOAD - 2, undefined],
        [MAX_PAYLOAD - 1, 'MESSAGE_TOO_LARGE'],
      ])) {
        const { hooks } = await hooksWith({ [field]: 'x'.repeat(length) });
        const { refusal } = await hooks.call(hook, ARGUMENTS[hook]);
        assert.equal(refusal?.code, expected);
      }
    });

  test(`${kind}: the answer is what a later hook sees`, async () => {
    const { hooks } = await hooksWith({ user: 'ann', info: { a: 1 }, data: { b: [2] } });
    const { answer } = await hooks.call('onConnect', ARGUMENTS.onConnect);
    assert.deepEqual(
      [answer.user, String(answer.info), answer.data],
      ['ann', '{"a":1}', { b: [2] }],
    );
  });
}

for (const hook of NAMES)
  test(`the schema allows and refuses the same answers of ${hook}`, () => {
    const check = ajv.compile({ $ref: `hooks#/$defs/${hook}` });
    for (const answer of [true, false, { deny: '' }, { deny: 'no' }, ...ALLOWED[hook]])
      assert.ok(check(answer), JSON.stringify(answer));
    for (const answer of [...NEVER, ...FAULTS[hook]])
      assert.ok(!check(answer), JSON.stringify(answer));
  });

const CYCLE = /** @type {any} */ ({});
CYCLE.payload = CYCLE;
/** Answers that only a function can give. */
const NOT_JSON = {
  'a payload that is undefined': { payload: undefined },
  'a payload that is a function': { payload: () => {} },
  'a payload with a BigInt': { payload: 1n },
  'a payload with a cycle': CYCLE,
};
for (const [name, answer] of Object.entries(NOT_JSON))
  test(`${name} refuses`, async () => {
    const { hooks, counters } = await KINDS['a function'](answer);
    const { refusal } = await hooks.call('onPublish', ARGUMENTS.onPublish);
    assert.equal(refusal?.code, 'HOOK_FAILED');
    assert.equal(counters.failures['onPublish,answer'], 1);
  });
