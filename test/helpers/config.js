// config.js: configurations for tests.

import assert from 'node:assert/strict';
import { loadConfig } from '../../src/config/config.js';

/**
 * @param {Record<string, string>} [env]
 * @returns {import('../../src/config/settings.js').Config} fails the test if a setting is faulty
 */
export function configOf(env = {}) {
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.ok(config);
  return config;
}

/** @param {Record<string, string>} env with one faulty setting @returns {string} the fault */
export function faultOf(env) {
  const { config, faults } = loadConfig(env);
  assert.equal(config, null);
  assert.equal(faults.length, 1, faults.join('\n'));
  return faults[0];
}

/** For a server in the process of the test. @param {Record<string, string>} [env] */
export function serverConfigOf(env) {
  return configOf({ PORT: '0', METRICS_PORT: '0', HOST: '127.0.0.1', ...env });
}
