// drain.js: sending a worker's connections away in an orderly manner.
//
//   1. everything that waits is flushed
//   2. each connection is told SERVER_SHUTDOWN with its own reconnectAfterMs: the n-th of N in random order gets the
//      n-th part of the window, so that the delays are even over it and the clients' return is no storm
//   3. connections are closed with 1012 in batches (10,000 in 2 s); one whose publish the broker has not answered yet
//      is closed last, so that it hears the answer
//   4. the peers have CLOSE_WAIT_MS for their close frames; then what is left is terminated
//
// Messages go on being delivered to those not yet closed, and each batch is flushed before it is closed.

import { setTimeout as delay } from 'node:timers/promises';
import { CLOSES } from '../codes.js';
import { encodeShutdown } from '../protocol/codec.js';

const BATCH = 500;
const BATCH_INTERVAL_MS = 100;
const CLOSE_WAIT_MS = 5000;
const ANSWER_WAIT_MS = 2000;
const POLL_MS = 20;

/** @typedef {import('../hub/connection.js').Connection} Connection */

/**
 * @param {object} parts
 * @param {import('../hub/hub.js').Hub} parts.hub
 * @param {import('../hub/outbox.js').Outbox} parts.outbox
 * @param {number} parts.windowMs over which the clients are told to come back
 * @param {number} parts.deadlineMs when all must be over, on the clock of performance.now()
 * @returns {Promise<{told: number, terminated: number}>}
 */
export async function drain({ hub, outbox, windowMs, deadlineMs }) {
  const connections = shuffled(hub.connections);
  const startedMs = performance.now();
  const total = connections.length;
  outbox.flush();
  for (let i = 0; i < total; i++) {
    connections[i].send(encodeShutdown(Math.floor(((i + Math.random()) / total) * windowMs)));
    if (i % BATCH === BATCH - 1) await delay(0);
  }
  // Each batch has an equal share of the time there is, and never more than BATCH_INTERVAL_MS.
  const batches = Math.ceil(total / BATCH);
  const closingMs = Math.max(0, deadlineMs - CLOSE_WAIT_MS - startedMs) / 2;
  const intervalMs = Math.min(BATCH_INTERVAL_MS, closingMs / Math.max(1, batches));
  /** @type {Connection[]} */
  const waiting = [];
  for (let from = 0; from < total; from += BATCH) {
    outbox.flush();
    for (const connection of connections.slice(from, from + BATCH)) {
      if (connection.unanswered > 0) waiting.push(connection);
      else connection.close(CLOSES.DRAIN);
    }
    if (from + BATCH < total) await delay(intervalMs);
  }
  const answersMs = Math.min(deadlineMs, performance.now() + ANSWER_WAIT_MS);
  await until(() => waiting.every((connection) => connection.unanswered === 0), answersMs);
  outbox.flush();
  for (const connection of waiting) connection.close(CLOSES.DRAIN);
  // Those that came while we were at it: their handshake was under way when accepting stopped.
  for (const connection of [...hub.connections]) connection.close(CLOSES.DRAIN);
  await until(() => hub.connections.length === 0, Math.min(deadlineMs, performance.now() + CLOSE_WAIT_MS));
  const left = [...hub.connections];
  for (const connection of left) connection.transport.terminate();
  return { told: total, terminated: left.length };
}

/** @param {() => boolean} condition @param {number} deadlineMs */
async function until(condition, deadlineMs) {
  while (!condition() && performance.now() < deadlineMs) await delay(POLL_MS);
}

/** Fisher-Yates. @template T @param {readonly T[]} list @returns {T[]} */
function shuffled(list) {
  const result = [...list];
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
}
