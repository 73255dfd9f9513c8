// redis-history.js: publishes and reads in rooms with history, on workers with a real Redis.

import { parseHistoryRules } from '../../src/config/room-patterns.js';

/** @typedef {import('../helpers/redis-worker.js').Worker} Worker */
/** @typedef {import('../../src/backend/broker.js').Position} Position */

export const TIMEOUT_MS = 30_000;
export const { rules: history } = parseHistoryRules([
  'kept*=100/300s',
  'deep=5000/300s',
  'short=10/2s',
]);
export const ALL = Object.freeze({ after: 0, limit: 1000 });

/**
 * @param {Worker} worker
 * @param {string} room
 * @param {string[]} texts
 * @param {string} [idempotencyKey]
 * @returns {Promise<Position[]>}
 */
export async function publish({ broker }, room, texts, idempotencyKey) {
  const published = texts.map((text) =>
    broker.publish(room, Buffer.from(text), { idempotencyKey }),
  );
  return /** @type {Position[]} */ (await Promise.all(published));
}

/** @param {Worker} worker @param {string} room @param {{after: number, limit: number}} [from] */
export async function read({ broker }, room, from = ALL) {
  const { epoch, offset, publications } = await broker.history(room, from);
  return { epoch, offset, texts: publications.map(String) };
}

/** @param {string} prefix @param {number} count */
export function numbered(prefix, count) {
  return Array.from({ length: count }, (_, i) => `${prefix}${i + 1}`);
}
