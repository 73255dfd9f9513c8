// sse-server.js: a server of event streams on a free port, for unit tests.

import assert from 'node:assert/strict';
import { Admission } from '../../src/admission/admission.js';
import { OWN_DESCRIPTORS } from '../../src/config/system-limits.js';
import { EventStreams } from '../../src/doors/native/sse.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { serverConfigOf } from './config.js';
import { EventClient } from './event-stream.js';
import { buildHub } from './hub.js';
import { RawClient } from './raw-http.js';
import { StreamBroker } from './stream-broker.js';

export const limit = { timeout: 20_000 };
const silent = { debug() {}, error() {} };

/**
 * A worker's public port; rooms `chat.*` have history.
 * @param {import('node:test').TestContext} t @param {Record<string, string>} [env]
 */
export async function serve(t, env = {}) {
  const config = serverConfigOf(env);
  const broker = new StreamBroker();
  const parts = buildHub({
    config,
    broker,
    historyOf: (room) => (room.startsWith('chat.') ? { size: 100, ttlMs: 60_000 } : null),
  });
  const { hub, operations, counters, outbox, slowConsumers } = parts;
  broker.onPublication = (...publication) => hub.broadcast(...publication);
  const heartbeat = new Heartbeat({
    intervalMs: config.pingIntervalMs,
    timeoutMs: config.pongTimeoutMs,
    counters,
  });
  const health = {
    lag: 0,
    lagMs: () => health.lag,
    heapPercent: () => 0,
    openDescriptors: () => counters.sockets + OWN_DESCRIPTORS,
    descriptorLimit: 20_000,
  };
  const addresses = {
    acquire: async () => ({ admitted: true, connections: 1 }),
    release() {},
  };
  const admission = new Admission({
    config,
    addresses,
    health,
    counters,
    now: () => performance.now(),
  });
  const streams = new EventStreams({ config, hub, operations, heartbeat, counters });
  const phase = new Phase();
  const server = new HttpServer({
    config,
    admission,
    onUpgrade: (_request, socket) => socket.destroy(),
    streams: config.sse === 'on' ? streams : null,
    readiness: () => null,
    phase,
    log: silent,
    counters,
    turn: new Turn(),
  });
  const { port } = await server.listen();
  t.after(async () => {
    for (const { transport } of [...hub.connections]) transport.terminate();
    await server.close();
  });
  /** @param {string} room @param {unknown} payload */
  const publish = (room, payload) => {
    const source = Buffer.from(JSON.stringify(payload));
    const publication = encodePublication(KIND.MESSAGE, 1, 0, 'ann', source, 0, source.length);
    if (!room.startsWith('chat.')) return hub.broadcast(room, publication);
    broker.accept(room, publication);
    broker.deliver();
  };
  const open = (/** @type {string} */ query, /** @type {Record<string, string>} */ headers = {}) =>
    EventClient.open(t, port, query, headers);
  const raw = () => RawClient.connect(t, { port });
  return {
    ...{ port, server, phase, streams, hub, broker, counters, outbox, slowConsumers },
    ...{ heartbeat, health, publish, open, raw },
  };
}

/** @param {() => boolean} condition */
export async function until(condition) {
  const end = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < end, `${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
