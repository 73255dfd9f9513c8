// fleet.js: this worker in the fleet of workers on one Redis. They exchange messages over pub/sub,
// and report:
//   connections      of each worker, to count those of all (connection-count.js)
//   knows, rules     rules for rooms with history and with state (shared-rules.js)
//
// A worker that carries its server's reports for limits over all servers also reads those of others
// (embedded/fleet-places.js). They have a channel of their own, because only carriers read them.

import { BrokerError } from '../errors.js';
import { decodeEnvelope, WorkerMembership } from '../membership.js';
import { ConnectionCount } from './connection-count.js';
import { CHANNEL_KIND } from './keys.js';
import { encodeOldReport, OLD_HEARTBEAT_MS, OldWorkers, renewOldReport } from './old-workers.js';
import { SharedRules } from './shared-rules.js';

const MAX_REPORT_BYTES = 128 * 1024;

/** @typedef {{connections: number, knows: unknown, isOld: boolean}} Facts of another worker */

/**
 * The channels of Redis. Messages are best effort.
 * @typedef {object} Bus
 * @property {(channel: string, message: Buffer) => void} send
 * @property {(channel: string) => void} subscribe
 * @property {(channel: string) => void} unsubscribe
 * @property {() => string} tag of this worker's probe channel; empty without a cluster
 */

export class RedisFleet {
  #isLive = false;
  /** Null: this worker does not carry reports. @type {((report: Buffer) => void)|null} */
  #onReport = null;

  /**
   * @param {object} parts @param {string} parts.id of this worker, unique in the fleet
   * @param {Bus} parts.bus @param {import('./keys.js').Keys} parts.keys
   * @param {{nowMs: number}} parts.clock skips stalls of this process
   * @param {ConstructorParameters<typeof SharedRules>[0]['rules']} parts.rules
   * @param {ConstructorParameters<typeof SharedRules>[0]['onAdopted']} parts.onAdopted
   * @param {(fault: 'malformed'|'unknown_version', channel: string) => void} parts.onFault
   */
  constructor({ id, bus, keys, clock, rules, onAdopted, onFault }) {
    this.bus = bus;
    this.keys = keys;
    this.onFault = onFault;
    this.connections = new ConnectionCount();
    this.rules = new SharedRules({ rules, onAdopted });
    /** @type {WorkerMembership<Facts>} */
    this.membership = new WorkerMembership({
      id,
      clock,
      onFault: (fault) => onFault(fault, 'workers'),
      wire: {
        sendToAll: (message) => this.#sendToAll(message),
        sendTo: (message, worker, tag) => bus.send(keys.probeChannelOf(worker, tag), message),
        tag: bus.tag,
      },
      reports: {
        toTell: (sinceMs) => ({
          connections: this.connections.own,
          ...this.rules.toTell(sinceMs, this.#known()),
        }),
        read: (fields, before) => this.#readFacts(fields, before),
        onGone: (facts) => this.#onGone(facts),
        maxHeartbeatMs: () => (this.old.count > 0 ? OLD_HEARTBEAT_MS : Number.POSITIVE_INFINITY),
      },
    });
    this.old = new OldWorkers({
      id,
      send: (text) => bus.send(keys.oldFleetChannel, Buffer.from(text)),
      rules: this.rules,
      fleet: {
        heard: (worker, connections, leaseMs) => this.#heardOld(worker, connections, leaseMs),
        left: (worker) => this.membership.others.endLease(worker),
      },
    });
  }

  /** Before Redis is available: subscribes as soon as it is. */
  open() {
    this.bus.subscribe(this.keys.fleetChannel);
    this.bus.subscribe(this.keys.oldFleetChannel);
  }

  /** @param {boolean} isLive is the fleet's channel available? */
  setLive(isLive) {
    if (isLive === this.#isLive) return;
    this.#isLive = isLive;
    if (isLive) {
      this.membership.join();
      this.old.join();
    } else this.#pause();
  }

  leave() {
    this.membership.leave();
    this.old.leave();
    this.#pause();
  }

  #pause() {
    this.membership.pause();
    this.old.pause();
  }

  /** @param {number} connections of this worker */
  reportConnections(connections) {
    if (this.connections.setOwn(connections)) this.membership.changed();
  }

  countConnections() {
    return this.connections.count(this.membership);
  }

  /** Includes this one. If it has just joined, it waits for the others. */
  async countWorkers() {
    await this.membership.awaitAnswers();
    if (!this.membership.isLive) throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
    return this.membership.size;
  }

  /** @param {((report: Buffer) => void)|null} onReport valid in the call; null: stops carrying */
  receiveReports(onReport) {
    const isChanged = (onReport === null) !== (this.#onReport === null);
    this.#onReport = onReport;
    if (!isChanged) return;
    const change = onReport === null ? this.bus.unsubscribe : this.bus.subscribe;
    for (const channel of [this.keys.reportsChannel, this.keys.oldReportsChannel]) change(channel);
  }

  /** @param {Buffer} report of this server */
  sendReport(report) {
    this.bus.send(this.keys.reportsChannel, report);
    if (this.old.count === 0) return;
    const envelope = decodeEnvelope(report, MAX_REPORT_BYTES);
    if (typeof envelope === 'string') return;
    const places = /** @type {Record<string, number>} */ (envelope.fields.places);
    this.bus.send(this.keys.oldReportsChannel, encodeOldReport(envelope.from, places));
  }

  /** @param {number} kind of the channel @param {Buffer} message */
  receive(kind, message) {
    switch (kind) {
      // On a worker's probe channel others answer it.
      case CHANNEL_KIND.PROBE:
      case CHANNEL_KIND.FLEET:
        this.membership.receive(message);
        break;
      case CHANNEL_KIND.OLD_FLEET:
        if (!this.old.receive(message, this.connections.own)) this.onFault('malformed', 'census');
        break;
      case CHANNEL_KIND.REPORTS:
        this.#onReport?.(message);
        break;
      case CHANNEL_KIND.OLD_REPORTS:
        this.#onReport?.(renewOldReport(message) ?? message);
        break;
    }
  }

  /** @param {Buffer} message */
  #sendToAll(message) {
    this.bus.send(this.keys.fleetChannel, message);
    this.old.tell(this.connections.own);
  }

  /** @returns {Iterable<unknown>} what the others know */
  *#known() {
    for (const { facts } of this.membership.others.members.values())
      if (!facts.isOld) yield facts.knows;
  }

  /**
   * @param {import('../membership.js').Fields} fields of another worker
   * @param {Facts|undefined} before @returns {Facts|null} null if they are malformed
   */
  #readFacts({ connections, knows, rules }, before) {
    // The worker is a member all the same.
    if (rules !== undefined && !this.rules.read(rules)) this.onFault('malformed', 'workers');
    if (!this.connections.read(connections, before?.connections ?? 0)) return null;
    return { connections: Number(connections), knows, isOld: false };
  }

  /** @param {Facts} facts */
  #onGone({ connections, isOld }) {
    this.connections.forget(connections);
    if (isOld) this.old.onGone();
  }

  /** @param {string} worker of v0.2.0 @param {number} connections @param {number} leaseMs */
  #heardOld(worker, connections, leaseMs) {
    const before = this.membership.others.factsOf(worker);
    this.connections.read(connections, before?.connections ?? 0);
    if (before === undefined) this.old.onNew();
    this.membership.heard(worker, { connections, knows: null, isOld: true }, leaseMs);
  }
}
