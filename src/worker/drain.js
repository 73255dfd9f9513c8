// drain.js: closes a worker's connections in steps.
//
// 0. Clients of some doors know no notice, and return as soon as they are closed. So their closes
//    are spread over their share of the window, or over the time that is left. A connection that
//    waits for a join or hook is closed in step 3.
// 1. Each other connection gets SERVER_SHUTDOWN with its own reconnectAfterMs: the n-th of N, in
//    random order, the n-th part of the rest of the window. So all clients return evenly over it.
//    That rest is shorter if fewer than FULL clients are told: RETURNS_PER_SECOND harm no server,
//    and unlike the clients of step 0 these wait without a connection. Webhooks wait for the whole
//    window before they report who left.
// 2. New publishes are refused (UNAVAILABLE: another worker accepts them). Publishes and joins
//    under way get their answers, and accepted publications have SETTLE_MS to reach all receivers.
// 3. Connections are closed with 1012 in batches (10,000 in 2 s), each after a flush. Until then
//    they receive publications.
// 4. Peers have CLOSE_WAIT_MS for their close frames. Then the remaining sockets are terminated.

import { setTimeout as delay } from 'node:timers/promises';
import { RETURNS_PER_SECOND } from '../config/system-limits.js';
import { CLOSES } from '../protocol/codes.js';

/** Connections of a worker that use the whole window: fewer use their share of it. */
const FULL = 10_000;
const BATCH = 500;
const BATCH_INTERVAL_MS = 100;
/** Time that steps 1 to 4 need for 10,000 connections. */
const REST_MS = 9000;
const CLOSE_WAIT_MS = 5000;
const ANSWER_WAIT_MS = 2000;
/** A round trip through the broker, and some time for workers that begin to drain later. */
const SETTLE_MS = 250;
const POLL_MS = 20;

/** @import { Connection } from '../hub/connection.js' */

/**
 * @param {object} parts @param {import('../hub/hub.js').Hub} parts.hub
 * @param {import('../hub/outbox.js').Outbox} parts.outbox
 * @param {import('../doors/native/index.js').Commands} parts.commands
 * @param {Pick<import('../operations/lane.js').Lane, 'isWaiting'>} parts.lane
 * @param {{readonly isSettled: boolean}} parts.scheduler
 * @param {import('./phase.js').Phase} parts.phase
 * @param {number} parts.windowMs the most time over which clients reconnect
 * @param {number} parts.deadlineMs the end of the drain, on the clock of performance.now()
 * @returns {Promise<{told: number, spread: number, terminated: number}>} connections that got the
 *   notice, that were closed over the window (step 0), that did not close in time
 */
export async function drain(parts) {
  const { hub, outbox, commands, lane, scheduler, phase, windowMs, deadlineMs } = parts;
  const silent = shuffled(hub.connections.filter((connection) => !knowsNotice(connection)));
  const leftMs = deadlineMs - performance.now();
  const shareMs = (windowMs * silent.length) / Math.max(1, hub.connections.length);
  const spreadMs = Math.min(shareMs, Math.max(leftMs - REST_MS, leftMs / 2, 0));
  const waiting = await closeOver(silent, spreadMs, outbox, lane);
  const told = shuffled(hub.connections.filter(knowsNotice));
  const returnsMs = told.length * Math.max(1000 / RETURNS_PER_SECOND, windowMs / FULL);
  const restMs = Math.min(windowMs - shareMs, returnsMs);
  for (let i = 0; i < told.length; i++) {
    told[i].announceShutdown(Math.floor(((i + Math.random()) / told.length) * restMs));
    if (i % BATCH === BATCH - 1) await delay(0);
  }
  phase.advance('settling');
  const isSettled = () => commands.isSettled() && scheduler.isSettled;
  await until(isSettled, Math.min(deadlineMs, performance.now() + ANSWER_WAIT_MS));
  const closing = [...told, ...waiting];
  const total = closing.length;
  if (total > 0) await delay(SETTLE_MS);
  // All batches share the remaining time equally, and the interval is at most BATCH_INTERVAL_MS.
  const closingMs = Math.max(0, deadlineMs - CLOSE_WAIT_MS - performance.now()) / 2;
  const intervalMs = Math.min(BATCH_INTERVAL_MS, closingMs / Math.max(1, Math.ceil(total / BATCH)));
  for (let from = 0; from < total; from += BATCH) {
    outbox.flush();
    for (const connection of closing.slice(from, from + BATCH)) connection.close(CLOSES.DRAIN);
    if (from + BATCH < total) await delay(intervalMs);
  }
  // Connections that opened during the drain: their handshake was under way when accepting stopped.
  for (const connection of [...hub.connections]) connection.close(CLOSES.DRAIN);
  await until(
    () => hub.connections.length === 0,
    Math.min(deadlineMs, performance.now() + CLOSE_WAIT_MS),
  );
  const left = [...hub.connections];
  for (const connection of left) connection.transport.terminate();
  const spread = silent.length - waiting.length;
  return { told: told.length, spread, terminated: left.length };
}

/** @param {Connection} connection */
function knowsNotice({ transport }) {
  return transport.door.encodeShutdown(0) !== null;
}

/**
 * @param {readonly Connection[]} connections in the order of their closes
 * @param {number} windowMs @param {{flush(): void}} outbox
 * @param {Pick<import('../operations/lane.js').Lane, 'isWaiting'>} lane
 * @returns {Promise<Connection[]>} those that wait for an answer, and are still open
 */
async function closeOver(connections, windowMs, outbox, lane) {
  /** @type {Connection[]} */
  const waiting = [];
  const total = connections.length;
  const steps = Math.max(1, Math.ceil(windowMs / BATCH_INTERVAL_MS));
  for (let step = 0, at = 0; at < total; step++) {
    if (step > 0) await delay(windowMs / steps);
    const end = Math.min(total, Math.ceil(((step + 1) / steps) * total));
    outbox.flush();
    for (; at < end; at++) {
      if (lane.isWaiting(connections[at])) waiting.push(connections[at]);
      else connections[at].close(CLOSES.DRAIN);
    }
  }
  return waiting;
}

/** @param {() => boolean} condition @param {number} deadlineMs */
async function until(condition, deadlineMs) {
  while (!condition() && performance.now() < deadlineMs) await delay(POLL_MS);
}

/** Shuffles an array (Fisher-Yates). @template T @param {readonly T[]} list @returns {T[]} */
function shuffled(list) {
  const result = [...list];
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
}
