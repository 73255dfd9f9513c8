// basics.js: what all parts of a worker share.

import { readPart } from '../config/system-memory.js';
import { createCounters } from '../observability/counters.js';
import { createMetrics } from '../observability/registry.js';
import { createCloseAll } from './close-all.js';
import { Turn } from './turn.js';

/**
 * @param {object} parts @param {import('../config/settings.js').Config} parts.config
 * @param {import('pino').Logger} parts.log @param {import('./phase.js').Phase} parts.phase
 * @param {number} parts.slot this worker's number among those of its server, from 0
 */
export function createBasics({ config, log, phase, slot }) {
  const counters = createCounters(
    config.pusher?.apps.map(({ id }) => id),
    config.centrifugo === null ? [] : ['centrifugo'],
  );
  const memoryBytes = readPart(config.workers);
  const metrics = createMetrics(counters, { worker: slot, memoryBytes });
  const turn = new Turn({ seconds: metrics.turnSeconds });
  const closeAll = createCloseAll(turn);
  return { config, log, phase, counters, metrics, memoryBytes, turn, closeAll };
}

/** @typedef {ReturnType<typeof createBasics>} Basics */
