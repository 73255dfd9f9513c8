// admission.js: decides whether a request may become a connection.
//
//   0. connection rate of the address, before any byte is read            429
//   1. load of this worker: event-loop lag, memory, descriptors           503
//   2. origin of the page: Origin                                         403
//   3. connections of the address, over all workers and servers           429
//
// If the peer is a trusted proxy, only the request contains the client's address. Step 0 then comes
// between steps 2 and 3.
//
// The cheapest checks come first, those that ask another process last. A refused request leaves no
// state, and a limit that is off costs nothing.

import { usableDescriptors } from '../config/system-limits.js';
import { errorOf, refusal, spread } from '../protocol/refusal.js';
import { createAddressResolver, createPeerResolver } from './address.js';
import { HandshakeRate } from './handshake-rate.js';
import { createOriginCheck } from './origin.js';
import { Refused } from './refused.js';

/** @typedef {typeof import('../observability/counters.js').REFUSALS[number]} Reason */
/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Places } from '../backend/places.js' */
/** @import { RefusalCode } from '../protocol/codes.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */

/**
 * @typedef {object} HealthSource
 * @property {() => number} lagMs @property {() => number} heapPercent
 * @property {() => number} openDescriptors an estimate: read per handshake, so no system call
 * @property {number} descriptorLimit
 */

/**
 * What admission needs to know of a door. If it does not use tokens, `ALLOWED_ORIGINS` does not
 * apply either: its own credentials, and the origins that they name, decide.
 * @typedef {{readonly name: string, readonly usesTokens: boolean, readonly asksLater?: boolean}} DoorRules
 */

/** @type {DoorRules} */
const NATIVE = Object.freeze({ name: 'native', usesTokens: true });

/**
 * Checks the token of a request, and asks the hook.
 * @typedef {object} Authenticator
 * @property {(request: IncomingMessage, address: string, door: DoorRules) => Credentials|Promise<Credentials>|null}
 *   check null: there is no token; the promise never rejects
 */

/** The places of one admitted request. They are held until its connection is closed. */
export class AdmissionLease {
  /** @param {string} address @param {Places|null} holder null: no limit counts it */
  constructor(address, holder) {
    /** The address as limits count it; empty if no limit counts by address. */
    this.address = address;
    this.holder = holder;
    /** From the handshake's token; null if it has none. @type {Credentials|null} */
    this.credentials = null;
  }

  /** Gives back the places of the address and of the user. May be called again. */
  release() {
    const { holder } = this;
    this.holder = null;
    holder?.release(this.address);
    this.credentials?.lease?.release();
  }
}

export class Admission {
  #addressOf;
  #originAllowed;

  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config @param {Places} parts.addresses
   * @param {HealthSource} parts.health
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {() => number} parts.now a clock in ms that never goes back
   * @param {Authenticator|null} [parts.authenticator] null: neither tokens nor hooks are configured
   * @param {Refused} [parts.refused]
   * @param {() => number} [parts.random] for the jitter of Retry-After
   */
  constructor({
    config,
    addresses,
    health,
    counters,
    now,
    authenticator = null,
    refused = new Refused(),
    random = Math.random,
  }) {
    this.config = config;
    this.authenticator = authenticator;
    this.addresses = addresses;
    this.health = health;
    this.counters = counters;
    this.now = now;
    this.refused = refused;
    this.random = random;
    // If no limit counts by address, it is not read: a system call less (10 of 250 us).
    const countsPeers =
      config.handshakesPerMinutePerIpMode !== 'off' || config.maxHandshakesMode !== 'off';
    const countsAddresses =
      config.maxConnectionsPerIpMode !== 'off' ||
      config.messagesPerMinutePerIpMode !== 'off' ||
      config.handshakesPerMinutePerIpMode !== 'off' ||
      config.hooks !== null ||
      (config.clientBroadcast && config.broadcastsPerMinutePerIpMode !== 'off');
    this.#addressOf = countsAddresses ? createAddressResolver(config.trustProxy) : () => '';
    /** Where an unfinished handshake counts; null: a trusted proxy, or no limit by address. */
    this.peerOf = countsPeers ? createPeerResolver(config.trustProxy) : () => null;
    this.handshakeRate = new HandshakeRate(
      config.handshakesPerMinutePerIp,
      config.handshakesBurstPerIp,
      counters,
    );
    this.#originAllowed = createOriginCheck(config.allowedOrigins);
    this.maxDescriptors = usableDescriptors(health.descriptorLimit);
  }

  /**
   * Takes a token of the address for a connection, or for a further request on one.
   * @param {string|null} address @returns {Refusal|null} null: the limit admits it
   */
  admitPeer(address) {
    const mode = this.config.handshakesPerMinutePerIpMode;
    if (address === null || mode === 'off') return null;
    const waitS = this.handshakeRate.take(address, this.now());
    if (waitS === 0) return null;
    if (mode === 'enforce') {
      this.refused.add('connections', address);
      return this.#refuse('handshakes_per_ip', waitS);
    }
    this.counters.observed.handshakes_per_ip++;
    return null;
  }

  /** Is the reserve of descriptors in use? Then new WebSockets are refused. */
  get isShortOfDescriptors() {
    return this.health.openDescriptors() > this.maxDescriptors;
  }

  /**
   * @param {IncomingMessage} request well-formed, because the HTTP server has checked it
   * @param {DoorRules} [door] that its path names
   * @returns {Refusal | AdmissionLease | Promise<Refusal | AdmissionLease>} a promise, which never
   *   rejects, only if tokens or hooks are configured, or if the cap per address is not off
   */
  admit(request, door = NATIVE) {
    const { config, counters } = this;
    const overload = config.overloadMode === 'off' ? null : this.overload();
    if (overload !== null) {
      if (config.overloadMode === 'enforce') return this.#refuse(overload);
      counters.observed[overload]++;
    }
    // The answer does not echo the value: an error page must not contain text from a stranger.
    if (door.usesTokens && !this.#originAllowed(request.headers.origin))
      return this.#refuse('origin');
    const address = this.#addressOf(request);
    if (config.trustProxy !== '' && this.peerOf(request.socket) === null) {
      const refused = this.admitPeer(address);
      if (refused !== null) return refused;
    }
    const place =
      config.maxConnectionsPerIpMode === 'off'
        ? new AdmissionLease(address, null)
        : this.#acquire(address);
    if (this.authenticator === null) return place;
    return place instanceof Promise
      ? place.then((decision) => this.#checkToken(request, door, decision))
      : this.#checkToken(request, door, place);
  }

  /** @returns {'loop_lag'|'memory'|'descriptors'|null} the overload for which this worker refuses
   *   new connections, or null */
  overload() {
    const { health, config } = this;
    if (health.lagMs() > config.maxLoopLagMs) return 'loop_lag';
    if (health.heapPercent() > config.maxHeapPercent) return 'memory';
    if (this.isShortOfDescriptors) return 'descriptors';
    return null;
  }

  /** @param {string} address @returns {Promise<Refusal|AdmissionLease>} */
  async #acquire(address) {
    const { maxConnectionsPerIp: cap, maxConnectionsPerIpMode: mode } = this.config;
    const isObserved = mode === 'observe';
    try {
      const { admitted, connections } = await this.addresses.acquire(address, cap, isObserved);
      if (isObserved && connections > cap) this.counters.observed.connections_per_ip++;
      if (admitted) return new AdmissionLease(address, this.addresses);
    } catch {
      // The primary is gone, so connections cannot be counted, and this worker is about to leave.
      // `observe` must not refuse the request; `enforce` must not admit what it cannot count.
      if (isObserved) return new AdmissionLease(address, null);
      return this.#refuse('uncounted');
    }
    this.refused.add('connections', address);
    return this.#refuse('per_ip');
  }

  /**
   * @param {IncomingMessage} request @param {DoorRules} door
   * @param {Refusal|AdmissionLease} decision
   * @returns {Refusal|AdmissionLease|Promise<Refusal|AdmissionLease>}
   */
  #checkToken(request, door, decision) {
    if (!(decision instanceof AdmissionLease)) return decision;
    const checked = this.authenticator?.check(request, decision.address, door) ?? null;
    return checked instanceof Promise
      ? checked.then((credentials) => this.#withCredentials(decision, credentials))
      : this.#withCredentials(decision, checked);
  }

  /**
   * The transport answers a request with an invalid token.
   * @param {AdmissionLease} admitted @param {Credentials|null} credentials
   * @returns {Refusal|AdmissionLease}
   */
  #withCredentials(admitted, credentials) {
    const refused = credentials?.refusal ?? null;
    if (refused !== null && errorOf(refused) === 'UNAVAILABLE') {
      admitted.release();
      return this.#refuse(refused.code === 'HOOK_FAILED' ? 'hooks' : 'tokens', refused.retryAfterS);
    }
    admitted.credentials = credentials;
    return admitted;
  }

  /** @param {RefusalCode} code @param {number} [retryS] @returns {Refusal} */
  #refuse(code, retryS) {
    this.counters.refused[/** @type {Reason} */ (errorOf({ code }))]++;
    return spread(refusal(code, undefined, retryS), this.random);
  }
}
