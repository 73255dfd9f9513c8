// whole-worker.js: a worker with all its doors in the process of the test, on a real port, so that
// clients of every door speak to it and a test reads what the worker has counted and charged.
//
// Only its surroundings are not real: the broker is in memory, and nobody counts connections over
// several workers.

import { randomUUID } from 'node:crypto';
import pino from 'pino';
import { RoomRules, streamRulesOf } from '../../src/config/room-patterns.js';
import { loadDoors } from '../../src/doors/index.js';
import { ANNOUNCEMENTS } from '../../src/protocol/publication.js';
import { HttpApi } from '../../src/transport/http-api/http-api.js';
import { WorkerAuth } from '../../src/worker/auth.js';
import { createBasics } from '../../src/worker/basics.js';
import { WorkerDelivery } from '../../src/worker/delivery.js';
import { Entry } from '../../src/worker/entry.js';
import { prepareHooks } from '../../src/worker/hooks.js';
import { Phase } from '../../src/worker/phase.js';
import { Worker } from '../../src/worker/worker.js';
import { serverConfigOf } from './config.js';
import { createBackend } from './memory-backend/index.js';

/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {import('../../src/operations/publisher.js').Recorder} Recorder */
/** @typedef {Awaited<ReturnType<typeof startWorker>>} TestedWorker */

const places = {
  acquire: async () => ({ admitted: true, connections: 1 }),
  release() {},
  resign() {},
};

/** @param {Owner} t the worker ends with it @param {Record<string, string>} env */
export async function startWorker(t, env) {
  const config = serverConfigOf({ SERVER_ID: randomUUID(), ...env });
  const phase = new Phase();
  const basics = createBasics({ config, log: pino({ level: 'silent' }), phase, slot: 0 });
  const historyRules = new RoomRules(streamRulesOf(config));
  const parts = /** @type {any} */ ({ config, historyRules, announcements: ANNOUNCEMENTS });
  const memory = createBackend(parts);
  /** Messages for webhooks. @type {{room: string, payload: string}[]} */
  const recorded = [];
  /** @type {Recorder} */
  const recorder = {
    coversMessages: () => true,
    publish: (room, { payload }) => void recorded.push({ room, payload }),
  };
  const backend = /** @type {any} */ ({
    ...{ ...memory, addresses: places, reporter: null, occupancy: null },
    open: async () => {},
    beat() {},
    close: () => memory.close(),
  });
  const delivery = new WorkerDelivery(basics, { backend, blobs: null, historyRules });
  delivery.publisher.recorder = recorder;
  const createHooks = config.hooks === null ? null : await prepareHooks(config.hooks);
  const auth = config.tokens === null ? null : WorkerAuth;
  const entry = new Entry(basics, delivery, auth, createHooks);
  const createDoors = await loadDoors(config);
  const api = config.apiKeys.length === 0 ? null : HttpApi;
  const place = { slot: 0, onBeat() {}, onOrphaned() {} };
  const worker = new Worker(place, basics, { delivery, entry, HttpApi: api, createDoors });
  const { port } = await worker.start();
  t.after(async () => {
    for (const { transport } of [...delivery.hub.connections]) transport.terminate();
    await worker.drain(0);
  });
  return { worker, port, config, phase, delivery, entry, counters: basics.counters, recorded };
}
