// hooks.js: puts the hooks together, for a worker whose configuration has any.

import { setTimeout as delay } from 'node:timers/promises';
import { HookEntrance } from '../hooks/entrance.js';
import { Hooks } from '../hooks/hooks.js';
import { loadHooks } from '../hooks/load.js';

const POLL_MS = 20;

/**
 * @param {import('../config/hooks.js').HookSettings} settings `config.hooks`
 * @returns {Promise<(parts: WorkerHooksParts) => WorkerHooks>}
 * @throws {Error} with a text for the operator
 */
export async function prepareHooks(settings) {
  if (settings.path !== '') {
    const functions = await loadHooks(settings.path);
    return (parts) => new WorkerHooks(functions, parts);
  }
  const { backendHooks } = await import('../hooks/backends.js');
  return (parts) => {
    const { config, counters, log } = parts;
    const functions = backendHooks(settings, {
      maxPayloadBytes: config.maxMessageBytes,
      timeoutMs: config.hookTimeoutMs,
      counters: counters.hooks,
      log,
    });
    return new WorkerHooks(functions, parts);
  };
}

/**
 * @typedef {object} WorkerHooksParts
 * @property {import('../config/settings.js').Config} config
 * @property {import('../hub/hub.js').Hub} hub
 * @property {import('../auth/sessions.js').Sessions} sessions
 * @property {import('../auth/user-places.js').UserPlaces} userPlaces
 * @property {import('../auth/authentication.js').Authentication|null} authentication null if no
 *   tokens are configured
 * @property {import('../observability/counters.js').Counters} counters
 * @property {Readonly<Record<string, {observe(seconds: number): void}>>} seconds by hook
 * @property {import('./turn.js').Turn} turn @property {import('pino').Logger} log
 */

class WorkerHooks {
  /** @param {import('../hooks/types.js').Hooks} functions @param {WorkerHooksParts} parts */
  constructor(functions, parts) {
    const { config, hub, sessions, userPlaces, authentication, counters, seconds } = parts;
    const { turn, log } = parts;
    this.hooks = new Hooks({
      functions,
      timeoutMs: config.hookTimeoutMs,
      concurrency: config.hookCalls,
      maxPayloadBytes: config.maxMessageBytes,
      counters: counters.hooks,
      observe: (hook, value) => seconds[hook].observe(value),
      turn,
      log,
    });
    this.namesUsers = this.hooks.has('onConnect');
    this.entrance = new HookEntrance({
      hooks: this.hooks,
      authentication,
      sessions,
      userPlaces,
      hub,
    });
    if (this.namesUsers) authentication?.confirmBy(this.entrance.confirm.bind(this.entrance));
  }

  /** Waits for onDisconnect. @param {number} endMs performance.now() */
  async drain(endMs) {
    while (!this.hooks.isIdle && performance.now() < endMs) await delay(POLL_MS);
  }
}
