// readiness.js: is a worker ready for load balancers, and steady enough to take more clients?

export class Readiness {
  /**
   * @param {import('./basics.js').Basics} basics @param {import('./delivery.js').Delivery} delivery
   * @param {import('./entry.js').Entry} entry
   */
  constructor({ config, phase }, delivery, { health, admission }) {
    this.config = config;
    this.phase = phase;
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
}
