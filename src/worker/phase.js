// phase.js: how far a worker is with leaving. The process owns it, and its parts ask it.
//   serving -> leaving -> retired -> draining -> settling
//   leaving   the worker is not ready, so that load balancers turn away; it serves as before
//   retired   no new connections: another worker takes over
//   draining  no new requests to the HTTP API; connections are told, and closed
//   settling  each client has its SERVER_SHUTDOWN: publishes are refused

const PHASES = /** @type {const} */ (['serving', 'leaving', 'retired', 'draining', 'settling']);
const [, LEAVING, RETIRED, DRAINING, SETTLING] = PHASES.keys();

export class Phase {
  #at = 0;

  /** Only goes forward. @param {typeof PHASES[number]} phase */
  advance(phase) {
    this.#at = Math.max(this.#at, PHASES.indexOf(phase));
  }

  get isLeaving() {
    return this.#at >= LEAVING;
  }

  get isRetired() {
    return this.#at >= RETIRED;
  }

  get isDraining() {
    return this.#at >= DRAINING;
  }

  get isSettling() {
    return this.#at >= SETTLING;
  }
}
