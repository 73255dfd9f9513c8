// admission.js: decides whether a request may become a connection.
//
//   0. connection rate of the address, before any byte is read            429
//   1. load of this worker: event-loop lag, memory, descriptors           503
//   2. origin of the page: Origin                                         403
//   3. connections of the address, over all workers and servers           429
//
// If the peer is a trusted proxy, only the request has the client's address. Step 0 then follows
// step 2. The cheapest checks come first, and the one that asks another process last. A refused
// request leaves no state, and a limit that is off costs nothing.

import { usableDescriptors } from '../config/system-limits.js';
import { errorOf, refusal, spread } from '../protocol/refusal.js';
import { createAddressResolver, createPeerResolver } from './address.js';
import { HandshakeRate } from './handshake-rate.js';
import { createOriginCheck } from './origin.js';
import { Rate } from './rate.js';
import { RefusedNames } from './refused.js';

/** @typedef {typeof import('../observability/counters.js').REFUSALS[number]} Reason */
/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Places } from '../backend/places.js' */
/** @import { RefusalCode } from '../protocol/codes.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */

/**
 * @typedef {object} HealthSource
 * @property {() => number} lagMs @property {() => number} heapPercent
 * @property {() => number} openDescriptors an estimate, because a system call would cost too much
 * @property {number} descriptorLimit
 */

/**
 * A door, as admission knows it: only the token depends on it.
 * @typedef {{readonly name: string, readonly usesTokens: boolean, readonly asksLater?: boolean}} DoorRules
 */

/** @type {DoorRules} */
const NATIVE = Object.freeze({ name: 'native', usesTokens: true });

/**
 * Checks a request's token, and asks the hook.
 * @typedef {object} Authenticator
 * @property {(request: IncomingMessage, address: string, door: DoorRules) => Credentials|Promise<Credentials>|null}
 *   checkToken null: there is no token; the promise never rejects
 */

/** The places of an admitted request, until its connection is closed. */
export class AdmissionLease {
  /** @param {string} address @param {Places|null} holder null: no limit counts it */
  constructor(address, holder) {
    /** The address as limits count it; empty if no limit counts by address. */
    this.address = address;
    this.holder = holder;
    /** Null: the handshake has no token. @type {Credentials|null} */
    this.credentials = null;
  }

  /** Frees the places of the address and of the user. May be called again. */
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
   * @param {() => number} parts.now ms, monotonic
   * @param {Authenticator|null} [parts.authenticator] null: neither tokens nor hooks are configured
   * @param {RefusedNames} [parts.refused]
   * @param {() => number} [parts.random] for the jitter of Retry-After
   */
  constructor({
    config,
    addresses,
    health,
    counters,
    now,
    authenticator = null,
    refused = new RefusedNames(),
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
    // If no limit counts by address, it is not read, which saves a system call (10 of 250 us).
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
    this.texts = textsOf(config);
    this.maxDescriptors = usableDescriptors(health.descriptorLimit);
  }

  /**
   * Takes a token of the address for a connection, or for another request on it.
   * @param {string|null} address @returns {Refusal|null}
   */
  admitPeer(address) {
    const mode = this.config.handshakesPerMinutePerIpMode;
    if (address === null || mode === 'off') return null;
    const waitS = this.handshakeRate.takeHandshake(address, this.now());
    if (waitS === 0) return null;
    if (mode === 'enforce') {
      this.refused.countRefusal('connections', address);
      return this.#refuseRequest('handshakes_per_ip', waitS, this.texts.handshakes_per_ip);
    }
    this.counters.observed.handshakes_per_ip++;
    return null;
  }

  /** Is the reserve of descriptors in use? */
  get isShortOfDescriptors() {
    return this.health.openDescriptors() > this.maxDescriptors;
  }

  /**
   * @param {IncomingMessage} request well-formed, because the HTTP server has checked it
   * @param {DoorRules} [door]
   * @returns {Refusal | AdmissionLease | Promise<Refusal | AdmissionLease>} a promise only if
   *   tokens, hooks or the limit of connections per address are on; it never rejects
   */
  admitHandshake(request, door = NATIVE) {
    const { config, counters } = this;
    const overload = config.overloadMode === 'off' ? null : this.overload();
    if (overload !== null) {
      if (config.overloadMode === 'enforce') return this.#refuseRequest(overload);
      counters.observed[overload]++;
    }
    // The answer does not repeat the value: an error page must not contain text from a stranger.
    if (!this.#originAllowed(request.headers.origin)) return this.#refuseRequest('origin');
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

  /** @returns {'loop_lag'|'memory'|'descriptors'|null} why this worker refuses new connections */
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
      // The primary is gone: nothing counts connections, and this worker will exit soon. `observe`
      // must not refuse a request; `enforce` must not admit one that it cannot count.
      if (isObserved) return new AdmissionLease(address, null);
      return this.#refuseRequest('uncounted');
    }
    this.refused.countRefusal('connections', address);
    return this.#refuseRequest('per_ip', undefined, this.texts.per_ip);
  }

  /**
   * @param {IncomingMessage} request @param {DoorRules} door
   * @param {Refusal|AdmissionLease} decision
   * @returns {Refusal|AdmissionLease|Promise<Refusal|AdmissionLease>}
   */
  #checkToken(request, door, decision) {
    if (!(decision instanceof AdmissionLease)) return decision;
    const checked = this.authenticator?.checkToken(request, decision.address, door) ?? null;
    return checked instanceof Promise
      ? checked.then((credentials) => this.#withCredentials(decision, credentials))
      : this.#withCredentials(decision, checked);
  }

  /**
   * Admits also a request with an invalid token: the transport answers it.
   * @param {AdmissionLease} admitted @param {Credentials|null} credentials
   * @returns {Refusal|AdmissionLease}
   */
  #withCredentials(admitted, credentials) {
    const refused = credentials?.refusal ?? null;
    if (refused !== null && errorOf(refused) === 'UNAVAILABLE') {
      admitted.release();
      return this.#refuseRequest(
        refused.code === 'HOOK_FAILED' ? 'hooks' : 'tokens',
        refused.retryAfterS,
      );
    }
    admitted.credentials = credentials;
    return admitted;
  }

  /**
   * @param {RefusalCode} code @param {number} [retryS] @param {string} [text] with the limit
   * @returns {Refusal}
   */
  #refuseRequest(code, retryS, text) {
    this.counters.refused[/** @type {Reason} */ (errorOf({ code }))]++;
    return spread(refusal(code, text, retryS), this.random);
  }
}

/** Refusals that name their limit. @param {import('../config/settings.js').Config} config */
function textsOf({ maxConnectionsPerIp, handshakesPerMinutePerIp, handshakesBurstPerIp }) {
  const rate = new Rate(handshakesPerMinutePerIp, handshakesBurstPerIp).text;
  return {
    per_ip: `Too many connections from this address: ${maxConnectionsPerIp} (FANFARE_MAX_CONNECTIONS_PER_IP).`,
    handshakes_per_ip: `Too many new connections from this address: ${rate} (FANFARE_HANDSHAKES_RATE_PER_IP).`,
  };
}
