// machine.js: a worker's end of a relay, with its places.

import pino from 'pino';
import { RelayClient } from '../../src/backend/embedded/relay-client.js';
import { WorkerPlaces } from '../../src/backend/embedded/worker-places.js';

const log = pino({ level: 'silent' });

/**
 * @param {string} path of the relay's socket
 * @param {Partial<ConstructorParameters<typeof RelayClient>[0]>} [options]
 * @returns {WorkerPlaces} its `link` is not open yet
 */
export function machineAt(path, options) {
  return new WorkerPlaces(new RelayClient({ path, log, ...options }));
}

/**
 * @param {import('node:test').TestContext} t it closes the link at its end
 * @param {string} path @param {Parameters<typeof machineAt>[1]} [options]
 */
export async function openMachine(t, path, options) {
  const machine = machineAt(path, options);
  await machine.link.open();
  t.after(() => machine.link.close());
  return machine;
}
