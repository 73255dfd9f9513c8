// operations.js: builds what clients may do, and the commands of the native door.

import { IDEMPOTENCY_MS } from '../backend/broker.js';
import { createCommands } from '../doors/native/index.js';
import { createOperations } from '../operations/index.js';
import { FairQueue } from '../transport/fair-queue.js';

/** @import { Basics } from './basics.js' */

/**
 * @param {Basics} basics @param {import('./delivery.js').WorkerDelivery} delivery
 * @param {import('./entry.js').Entry} entry
 */
export function operationsOf({ config, log, counters, turn }, { hub, publisher, backend }, entry) {
  return createOperations({
    config,
    hub,
    broker: backend.broker,
    publisher,
    hooks: entry.hooks?.entrance ?? null,
    entrance: entry.entrance,
    sessions: entry.userSessions,
    userPlaces: entry.userPlaces,
    verifier: entry.authentication?.verifier ?? null,
    ...entry.rates,
    counters,
    presenceLine: turn.line('presence', (answer) => answer(), new FairQueue()),
    log,
  });
}

/**
 * @param {Basics} basics @param {import('./delivery.js').WorkerDelivery} delivery
 * @param {import('./entry.js').Entry} entry
 * @param {import('../operations/index.js').Operations} operations
 */
export function commandsOf({ config, counters, metrics }, delivery, entry, operations) {
  return createCommands({
    config,
    hub: delivery.hub,
    operations,
    broker: delivery.backend.broker,
    idempotencyMs: IDEMPOTENCY_MS,
    historyReader: delivery.historyReader,
    outageNotice: delivery.outageNotice,
    authenticator: entry.authentication,
    admitBroadcast: entry.admitBroadcast,
    counters,
    messageDuration: metrics.messageDuration,
  });
}
