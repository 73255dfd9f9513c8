// hooks.js: asks every backend of hooks over HTTP, from this machine: with the right signature, and
// with a wrong one, which it has to refuse.

import { HookError, readAnswer } from '../hooks/answer.js';
import { backendHooks } from '../hooks/backends.js';
import { createHookCounters } from '../observability/counters.js';

const WRONG_SECRET = `whsec_${Buffer.alloc(32).toString('base64')}`;
/** A visitor and a request, for whatever hook. Nobody connects, joins or publishes. */
const VISITOR = Object.freeze({
  ...{ id: 'doctor', user: null, info: undefined, data: undefined, token: null },
  ...{ address: '127.0.0.1', transport: /** @type {const} */ ('websocket') },
  ...{ headers: {}, query: new URLSearchParams() },
});

/** What each hook gets after it. @type {Record<HookName, readonly unknown[]>} */
const ARGUMENTS = {
  onConnect: [],
  onJoin: ['doctor'],
  onPublish: ['doctor', null],
  onRpc: ['doctor', null],
  onSend: [null],
  onDisconnect: [],
};

/** @import { Config } from '../config/settings.js' */
/** @import { HookBackendSettings } from '../config/hooks.js' */
/** @import { HookName } from '../observability/counters.js' */

/**
 * @param {Config} config @param {boolean} asJson
 * @returns {Promise<{text: string, isOk: boolean}>} without secrets: of a URL, its origin only
 */
export async function testBackends(config, asJson) {
  const { hooks } = config;
  if (!hooks?.backends.length)
    return { text: 'No hooks over HTTP are configured: set FANFARE_HOOKS.\n', isOk: false };
  const results = await Promise.all(
    hooks.backends.map(async (backend) => {
      const [hook] = backend.hooks;
      const beganMs = performance.now();
      const { answer, error } = await ask(config, backend);
      const ms = Math.round(performance.now() - beganMs);
      const forged = await ask(config, { ...backend, secrets: [WRONG_SECRET] });
      const fault = forged.answer && 'it does not check the signature: it answers a wrong one';
      const origin = new URL(backend.url).origin;
      return { origin, hook, outcome: error ?? fault ?? answer, isOk: !error && !fault, ms };
    }),
  );
  const lines = results.map(
    ({ origin, hook, outcome, isOk, ms }) =>
      `${isOk ? 'ok    ' : 'failed'}  ${origin} ${hook}: ${outcome}, ${ms} ms`,
  );
  return {
    text: `${asJson ? JSON.stringify(results, null, 2) : lines.join('\n')}\n`,
    isOk: results.every(({ isOk }) => isOk),
  };
}

/**
 * Asks the first hook of a backend.
 * @param {Config} config @param {HookBackendSettings} backend
 * @returns {Promise<{answer?: 'allowed'|'denied', error?: string}>}
 */
async function ask({ hooks, hookTimeoutMs, maxMessageBytes }, backend) {
  const [hook] = backend.hooks;
  const log = { info: () => {}, error: () => {} };
  const parts = {
    ...{ maxPayloadBytes: maxMessageBytes, timeoutMs: hookTimeoutMs },
    ...{ counters: createHookCounters(), log },
  };
  const settings = { publicOnly: hooks?.publicOnly ?? false, backends: [backend] };
  const call = /** @type {(...args: unknown[]) => unknown} */ (backendHooks(settings, parts)[hook]);
  try {
    const answer = await call(VISITOR, ...ARGUMENTS[hook], {
      signal: AbortSignal.timeout(hookTimeoutMs),
    });
    const { deny } = readAnswer(hook, answer, maxMessageBytes);
    return { answer: deny === null ? 'allowed' : 'denied' };
  } catch (error) {
    if (!(error instanceof HookError)) throw error;
    return { error: error.message };
  }
}
