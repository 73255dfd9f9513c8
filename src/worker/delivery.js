// delivery.js: the parts of a worker that carry publications.
//   commands, HTTP API -> publisher -> broker -> hub (-> recovery) -> outbox -> connections

import { getHeapStatistics } from 'node:v8';
import { createBackend } from '../backend/index.js';
import { RoomRules, streamRulesOf } from '../config/room-patterns.js';
import { EVERYONE, Hub } from '../hub/hub.js';
import { Outbox } from '../hub/outbox.js';
import { NO_PRESENCE, PresenceTracker } from '../hub/room-users.js';
import { SlowConsumers } from '../hub/slow-consumers.js';
import { RareLog } from '../observability/rare-log.js';
import { Publisher } from '../operations/publisher.js';
import { ANNOUNCEMENTS } from '../protocol/publication.js';
import { HistoryReader } from '../recovery/history-reader.js';
import { OutageNotice } from '../recovery/outage-notice.js';
import { SyncScheduler } from '../recovery/scheduler.js';
import { StateReader } from '../recovery/state-reader.js';

/** @import { Basics } from './basics.js' */

/** @param {Basics} basics @param {string} relayPath the socket of the primary's relay */
export async function createDelivery(basics, relayPath) {
  const { config, log, counters, metrics } = basics;
  const historyRules = new RoomRules(streamRulesOf(config));
  const backend = await createBackend({
    config,
    log,
    counters,
    relayPath,
    workerId: `${config.serverId}:${process.pid}`,
    historyRules,
    announcements: ANNOUNCEMENTS,
    events: {
      onPublishLag: (ms) => metrics.publishLag.observe(ms),
      onRoundTrip: (seconds) => metrics.busRoundTrip.observe(seconds),
    },
  });
  const blobs =
    config.blobs === null
      ? null
      : (await import('../blobs/index.js')).createBlobs({
          config,
          settings: config.blobs,
          counters: counters.blobs,
          requestSeconds: metrics.blobSeconds,
          log,
        });
  return new WorkerDelivery(basics, { backend, blobs, historyRules });
}

export class WorkerDelivery {
  /**
   * @param {Basics} basics @param {object} parts
   * @param {Awaited<ReturnType<typeof createBackend>>} parts.backend
   * @param {ReturnType<typeof import('../blobs/index.js').createBlobs>|null} parts.blobs null if
   *   there is no bucket
   * @param {RoomRules<import('../config/room-patterns.js').HistoryRule>} parts.historyRules
   */
  constructor(basics, { backend, blobs, historyRules }) {
    const { config, phase, counters, metrics, log, turn, closeAll } = basics;
    const { broker, presence } = backend;
    const { maxUnsentBytes } = config;
    const references = blobs?.references;
    this.counters = counters;
    this.closeAll = closeAll;
    this.log = log;
    this.rareLog = new RareLog(log);
    this.backend = backend;
    this.blobs = blobs?.uploads ?? null;
    /** The rule of a room with history or state. @type {import('../backend/broker.js').HistoryOf} */
    this.streamOf = (room) => historyRules.ruleFor(room);
    /** The rule of a room with state. @type {import('../backend/broker.js').HistoryOf} */
    this.stateOf = (room) => {
      const rule = historyRules.ruleFor(room);
      return rule?.state === undefined ? null : rule;
    };
    /** The rule of a room with history. @type {import('../backend/broker.js').HistoryOf} */
    this.historyOf = (room) => {
      const rule = historyRules.ruleFor(room);
      return rule?.state === undefined ? rule : null;
    };
    const presenceRules = new RoomRules(config.presence);
    const covers = (/** @type {string} */ room) => presenceRules.ruleFor(room) !== null;
    const tracker = (this.tracker =
      presence === null ? NO_PRESENCE : new PresenceTracker({ presence, covers, counters }));
    turn.sendFirst(() => broker.flush?.());
    const slowConsumers = (this.slowConsumers = new SlowConsumers({
      config,
      counters,
      budgetBytes: unsentBudget(basics),
    }));
    const outbox = (this.outbox = new Outbox({
      slowConsumers,
      counters,
      maxUnsentBytes,
      reloadWindowMs: config.reconnectWindowMs,
      fanout: metrics.fanout,
      turn,
    }));
    const { streamOf: historyOf } = this;
    const scheduler = (this.scheduler = new SyncScheduler({
      broker,
      historyOf,
      counters,
      references,
      maxUnsentBytes,
      turn,
    }));
    const hub = (this.hub = new Hub({
      broker,
      outbox,
      slowConsumers,
      scheduler,
      tracker,
      references,
      reporter: backend.reporter,
      counters,
      log,
    }));
    this.outageNotice = new OutageNotice({ hub, scheduler, turn });
    this.historyReader = new HistoryReader({ scheduler, counters });
    this.stateReader = new StateReader(scheduler);
    this.publisher = new Publisher({
      ...{ config, broker, hub, phase, counters, log },
      historyOf,
      recorder: backend.reporter?.hasMessages ? backend.reporter : null,
    });
  }

  /**
   * @param {object} events
   * @param {() => void} events.onLost called when the link to the primary's relay ends
   * @param {(key: string, connections: number) => void} events.onKeep closes the newest connections
   *   of an address or user, so that this many stay
   * @param {() => void} events.onNoticesLost called when notices to all workers may have been lost:
   *   the broker is available again, or has moved their subscription
   */
  async start({ onLost, onKeep, onNoticesLost }) {
    const { backend, hub, outageNotice, counters, log } = this;
    await backend.open({ onLost, onKeep });
    await backend.broker.start({
      // Bound, not wrapped: a closure would add one frame for each publication.
      onPublication: hub.broadcast.bind(hub),
      onLost: (rooms) => {
        outageNotice.onLost(rooms);
        if (rooms.includes(EVERYONE)) onNoticesLost();
      },
      onState: (state) => {
        counters.brokerUp = state === 'up' ? 1 : 0;
        outageNotice.onState(state);
        if (state === 'up') onNoticesLost();
        // The state is `down` only at the end of a drain, when this worker closes the broker.
        const level = /** @type {const} */ ({ up: 'info', degraded: 'warn', down: 'debug' })[state];
        log[level]({ state }, `broker is ${state}`);
      },
    });
    counters.brokerUp = this.isBrokerUp ? 1 : 0;
    await backend.presence?.start();
    await backend.reporter?.start();
  }

  /** Subscribes to broadcasts. If the broker is unavailable, the worker starts degraded. */
  async subscribe() {
    if (!this.isBrokerUp) this.outageNotice.startAway();
    // If it fails, the broker subscribes this room, as all others, when it is available again.
    await this.hub
      .start()
      .catch((error) => this.log.warn({ err: error }, 'broker unavailable: starting degraded'));
  }

  get isBrokerUp() {
    return this.backend.broker.state === 'up';
  }

  /** Are clients unable to join or publish now? */
  get isAway() {
    return this.outageNotice.isOn || !this.isBrokerUp;
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.backend.beat();
    this.slowConsumers.sweep();
    this.hub.sweep(nowMs);
    const room = this.scheduler.shedState(this.closeAll);
    if (room !== null)
      this.rareLog.warn({ room }, 'copies of states are too large: closed the members of the room');
  }

  /** Ends recovery. The backend closes last. */
  close() {
    this.scheduler.close();
    this.outageNotice.close();
  }
}

/** Unsent bytes of all connections together. @param {Basics} basics */
function unsentBudget({ config, memoryBytes }) {
  const heapBytes = Math.min(memoryBytes, getHeapStatistics().heap_size_limit);
  return (heapBytes * config.maxUnsentHeapPercent) / 100;
}
