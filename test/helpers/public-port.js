// public-port.js: the public port on a free port, with real admission and real `ws`, for unit tests.

import assert from 'node:assert/strict';
import { WebSocketServer } from 'ws';
import { Admission } from '../../src/admission/admission.js';
import { OWN_DESCRIPTORS } from '../../src/config/system-limits.js';
import { createCounters } from '../../src/observability/counters.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { serverConfigOf } from './config.js';
import { RawClient } from './raw-http.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../../src/backend/places.js').Places} Addresses */

export const limit = { timeout: 10_000 };

/**
 * A server on a free port with real admission and real `ws`, and addresses counted in memory.
 * @param {TestContext} t
 * @param {object} [parts]
 * @param {Record<string, string>} [parts.env]
 * @param {Partial<Addresses>} [parts.addresses]
 * @param {number} [parts.descriptors] that the process may open
 * @param
 *   {(request: import('node:http').IncomingMessage, socket: import('node:net').Socket, head: Buffer) => void}
 *   [parts.onUpgrade]
 * @param {import('../../src/transport/route.js').Api|null} [parts.api]
 * @param {readonly import('../../src/transport/route.js').LoadedDoor[]} [parts.doors]
 */
export async function start(
  t,
  { env = {}, addresses = {}, descriptors = 20_000, onUpgrade, api = null, doors = [] } = {},
) {
  const config = serverConfigOf(env);
  const counters = createCounters();
  /** @type {Map<string, number>} */
  const held = new Map();
  /** @type {Addresses} */
  const counter = {
    async acquire(address, cap, force) {
      const connections = held.get(address) ?? 0;
      if (connections >= cap && !force) return { admitted: false, connections };
      held.set(address, connections + 1);
      return { admitted: true, connections: connections + 1 };
    },
    release(address) {
      held.set(address, (held.get(address) ?? 0) - 1);
    },
    ...addresses,
  };
  const health = {
    lag: 0,
    lagMs: () => health.lag,
    heapPercent: () => 0,
    openDescriptors: () => counters.sockets + OWN_DESCRIPTORS,
    descriptorLimit: descriptors,
  };
  const admission = new Admission({
    config,
    addresses: counter,
    health,
    counters,
    now: () => performance.now(),
  });
  const websockets = new WebSocketServer({ noServer: true });
  /** @type {{reason: string|null}} */
  const ready = { reason: null };
  /** @type {string[]} */
  const errors = [];
  const log = {
    debug() {},
    error: (/** @type {object} */ _fields, /** @type {string} */ text) => void errors.push(text),
  };
  const phase = new Phase();
  const server = new HttpServer({
    config,
    admission,
    onUpgrade:
      onUpgrade ??
      ((request, socket, head) =>
        websockets.handleUpgrade(request, socket, head, (ws) => ws.on('error', () => {}))),
    api,
    doors,
    readiness: () => ready.reason,
    phase,
    log,
    counters,
    turn: new Turn(),
  });
  const { port } = await server.listen();
  t.after(async () => {
    for (const ws of websockets.clients) ws.terminate();
    // Accepting ended long ago, so it does not wait for clients that have sent nothing.
    await server.close(Number.NEGATIVE_INFINITY);
  });
  const connect = (/** @type {string|void} */ localAddress) =>
    RawClient.connect(t, { port, localAddress: localAddress || undefined });
  return { server, phase, counters, held, health, ready, websockets, errors, connect };
}

/** @param {() => boolean} condition @param {number} [withinMs] */
export async function until(condition, withinMs = 3000) {
  const end = performance.now() + withinMs;
  while (!condition()) {
    assert.ok(performance.now() < end, `not within ${withinMs} ms: ${condition}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
