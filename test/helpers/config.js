// config.js: configurations for tests.

import assert from 'node:assert/strict';
import { loadConfig } from '../../src/config/config.js';

/**
 * @param {Record<string, string>} [env]
 * @returns {import('../../src/config/settings.js').Config} fails the test if a setting is faulty
 */
export function configOf(env = {}) {
  const { config, faults } = loadConfig(env);
  assert.ok(config, faults.join('\n'));
  return config;
}

/** For a server in the process of the test. @param {Record<string, string>} [env] */
export function serverConfigOf(env) {
  return configOf({ PORT: '0', METRICS_PORT: '0', HOST: '127.0.0.1', ...env });
}
