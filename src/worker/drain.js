// drain.js: closes a worker's connections in steps.
//
// 1. Each connection is served until its turn, if its client returns as soon as it is closed: any,
//    if others accept it (a reload's new workers, other servers), else that of a door without a
//    notice. The turns are in random order. Those without a notice are spread over their share of
//    the window. The others get theirs 300 ms before the close, and share the rest, which is
//    shorter for fewer than FULL: RETURNS_PER_SECOND harm no server. A connection that waits for a
//    join or hook is closed in step 4, and so are those whose turn comes LATE_MS too late, because
//    the worker is busy.
// 2. If nobody else accepts them, clients that know the notice are told at once, each with its own
//    reconnectAfterMs: the n-th of N the n-th part of the same rest. The server may then be back.
//    Webhooks wait for the whole window before they report who left.
// 3. New publishes are refused (UNAVAILABLE: another worker accepts them). Publishes and joins
//    under way get their answers, and accepted publications have SETTLE_MS to reach all receivers.
// 4. The rest is closed with 1012 in batches (10,000 in 2 s), each after a flush. Until then they
//    receive publications.
// 5. Peers have CLOSE_WAIT_MS for their close frames. Then the remaining sockets are terminated.

import { setTimeout as delay } from 'node:timers/promises';
import { RETURNS_PER_SECOND } from '../config/system-limits.js';
import { CLOSES } from '../protocol/codes.js';

/** Connections of a worker that use the whole window: fewer use their share of it. */
const FULL = 10_000;
const BATCH = 500;
const BATCH_INTERVAL_MS = 100;
/** Time that steps 2 to 5 need for 10,000 connections. */
const REST_MS = 9000;
const LATE_MS = 2000;
const CLOSE_WAIT_MS = 5000;
const ANSWER_WAIT_MS = 2000;
/** A round trip through the broker, and some time for workers that begin to drain later. */
const SETTLE_MS = 250;
const POLL_MS = 20;
/** Steps between the notice and the close of a client in its turn. */
const NOTICE_STEPS = 3;
const COUNT_WAIT_MS = 1000;

/** @import { Connection } from '../hub/connection.js' */

/**
 * Does another server accept clients? If the broker cannot tell, none does.
 * @param {Pick<import('../backend/broker.js').Broker, 'countWorkers'>} broker
 * @param {number} own workers of this server
 * @returns {Promise<boolean>}
 */
export async function hasOtherServers(broker, own) {
  const counted = broker.countWorkers().catch(() => 0);
  return (await Promise.race([counted, delay(COUNT_WAIT_MS, 0, { ref: false })])) > own;
}

/**
 * @param {object} parts @param {import('../hub/hub.js').Hub} parts.hub
 * @param {import('../hub/outbox.js').Outbox} parts.outbox
 * @param {import('../doors/native/index.js').Commands} parts.commands
 * @param {Pick<import('../operations/lane.js').Lane, 'isWaiting'>} parts.lane
 * @param {{readonly isSettled: boolean}} parts.scheduler
 * @param {import('./phase.js').Phase} parts.phase
 * @param {boolean} parts.othersAccept new workers of this server, or other servers
 * @param {number} parts.windowMs the most time over which clients reconnect
 * @param {number} parts.deadlineMs the end of the drain, on the clock of performance.now()
 * @returns {Promise<{told: number, spread: number, terminated: number}>} connections that got the
 *   notice, that were served until their turn (step 1), that did not close in time
 */
export async function drain(parts) {
  const { hub, outbox, commands, lane, scheduler, phase } = parts;
  const { othersAccept, windowMs, deadlineMs } = parts;
  const silent = hub.connections.filter((connection) => !knowsNotice(connection));
  const shareMs = (windowMs * silent.length) / Math.max(1, hub.connections.length);
  const over = (/** @type {number} */ ms) => within(ms, deadlineMs);
  const closing = await closeOver(shuffled(silent), over(shareMs), outbox, lane);
  let spread = silent.length - closing.length;
  const told = shuffled(hub.connections.filter(knowsNotice));
  const returnsMs = told.length * Math.max(1000 / RETURNS_PER_SECOND, windowMs / FULL);
  const restMs = Math.min(windowMs - shareMs, returnsMs);
  if (othersAccept) {
    const waiting = await closeOver(told, over(restMs), outbox, lane);
    closing.push(...waiting);
    spread += told.length - waiting.length;
  } else {
    for (let i = 0; i < told.length; i++) {
      told[i].announceShutdown(Math.floor(((i + Math.random()) / told.length) * restMs));
      if (i % BATCH === BATCH - 1) await delay(0);
    }
    closing.push(...told);
  }
  phase.advance('settling');
  const isSettled = () => commands.isSettled() && scheduler.isSettled;
  await until(isSettled, Math.min(deadlineMs, performance.now() + ANSWER_WAIT_MS));
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
  return { told: told.length, spread, terminated: left.length };
}

/** @param {Connection} connection */
function knowsNotice({ transport }) {
  return transport.door.encodeShutdown(0) !== null;
}

/**
 * @param {number} ms @param {number} deadlineMs
 * @returns {{windowMs: number, endMs: number}} `windowMs`: less if the time is short; `endMs`: of a
 *   busy worker, on the clock of performance.now()
 */
function within(ms, deadlineMs) {
  const nowMs = performance.now();
  const leftMs = Math.max(0, deadlineMs - nowMs);
  const windowMs = Math.min(ms, Math.max(leftMs - REST_MS, leftMs / 2));
  return { windowMs, endMs: nowMs + Math.max(leftMs - REST_MS + LATE_MS, leftMs * 0.75) };
}

/**
 * @param {readonly Connection[]} connections in the order of their closes. All know the notice,
 *   or none.
 * @param {ReturnType<typeof within>} over @param {{flush(): void}} outbox
 * @param {Pick<import('../operations/lane.js').Lane, 'isWaiting'>} lane
 * @returns {Promise<Connection[]>} those that are still open
 */
async function closeOver(connections, { windowMs, endMs }, outbox, lane) {
  /** @type {Connection[]} */
  const waiting = [];
  const total = connections.length;
  const steps = Math.max(1, Math.ceil(windowMs / BATCH_INTERVAL_MS));
  const isTold = total > 0 && knowsNotice(connections[0]);
  const lead = isTold ? NOTICE_STEPS : 0;
  const due = (/** @type {number} */ step) =>
    Math.min(total, Math.ceil(((step + 1) / steps) * total));
  for (let step = 0, told = 0, at = 0; at < total; step++) {
    if (step > 0) await delay(isTold ? BATCH_INTERVAL_MS : windowMs / steps);
    const isLate = performance.now() > endMs;
    // What is closed together returns spread over the time until the next step.
    const returnsMs = isLate ? windowMs : BATCH_INTERVAL_MS;
    for (; isTold && told < (isLate ? total : due(step)); told++)
      connections[told].announceShutdown(Math.floor(Math.random() * returnsMs));
    if (isLate) return [...waiting, ...connections.slice(at)];
    outbox.flush();
    for (; at < due(step - lead); at++) {
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
