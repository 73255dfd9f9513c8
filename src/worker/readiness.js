// readiness.js: is a worker ready for load balancers, and steady enough to take more clients?

import { privateBytes } from '../config/system-memory.js';
import { VERSION } from '../config/version.js';

export class Readiness {
  /**
   * @param {import('./basics.js').Basics} basics @param {import('./delivery.js').WorkerDelivery} delivery
   * @param {import('./entry.js').Entry} entry
   */
  constructor({ config, phase, counters }, delivery, { health, admission }) {
    this.config = config;
    this.phase = phase;
    this.counters = counters;
    this.delivery = delivery;
    this.health = health;
    this.admission = admission;
  }

  /** @returns {string|null} why this worker is not ready, or null */
  fault() {
    if (this.phase.isLeaving) return 'draining';
    // Only if configured: otherwise an outage of a shared broker would make all servers unready.
    if (this.config.readiness !== 'alone' && this.delivery.isAway) return 'degraded';
    if (this.health.lagMs() > this.config.maxLoopLagMs) return 'event loop lag';
    return null;
  }

  /** Would this worker admit clients, and could they join their rooms? */
  get isSteady() {
    return !this.phase.isLeaving && !this.delivery.isAway && this.admission.overload() === null;
  }

  /** @param {number} slot @returns {import('./fleet-wire.js').WorkerInfo} */
  describeWorker(slot) {
    const { config, counters } = this;
    return {
      server: config.serverId,
      version: VERSION,
      slot,
      pid: process.pid,
      state: this.fault() ?? 'ready',
      connections: counters.connections,
      rooms: counters.rooms,
      lagMs: Math.round(this.health.lagMs()),
      memoryBytes: privateBytes(),
      uptimeS: Math.round(process.uptime()),
      messages: counters.messages,
      deliveries: counters.deliveries,
      refused: sumOf(counters.refused),
      errors: sumOf(counters.errors),
    };
  }
}

/** @param {Readonly<Record<string, number>>} counters by label */
function sumOf(counters) {
  return Object.values(counters).reduce((sum, count) => sum + count, 0);
}
