// worker.js: a worker's parts: builds them in order, and closes them in reverse.
//   delivery (backend, hub, recovery) -> entry (tokens, hooks, limits) -> commands, fleet -> doors

import { describeFastPaths } from '../config/fast-paths.js';
import { loadDoors } from '../doors/index.js';
import { Upstreams } from '../hub/upstreams.js';
import { createMeters } from './api.js';
import { createBasics } from './basics.js';
import { BEAT_INTERVAL_MS } from './control-messages.js';
import { createDelivery } from './delivery.js';
import { Doors } from './doors.js';
import { drain, hasOtherServers } from './drain.js';
import { createEntry } from './entry.js';
import { ExcessConnections } from './excess-connections.js';
import { createFleet } from './fleet.js';
import { commandsOf, operationsOf } from './operations.js';
import { Readiness } from './readiness.js';
import { Relocations } from './relocation.js';

/** Part of a drain's time that requests of the HTTP API leave for the steps after them. */
const API_RESERVE_MS = 1000;

/** @import { Certificate } from '../config/certificate.js' */
/** @import { Basics } from './basics.js' */

/**
 * @typedef {object} Place
 * @property {number} slot this worker's number among those of its server, from 0
 * @property {(beat: import('./control-messages.js').Beat) => void} onBeat sends a heartbeat
 * @property {() => Certificate|null} [certificate] for the public port; null: plain HTTP
 * @property {() => void} onOrphaned called when the link to the primary's relay ends
 */

/**
 * @param {Pick<Basics, 'config'|'log'|'phase'> & Place & {relayPath: string}} parts `relayPath`: the
 *   socket of the primary's relay
 */
export async function createWorker({ config, log, phase, relayPath, ...place }) {
  const basics = createBasics({ config, log, phase, slot: place.slot });
  const delivery = await createDelivery(basics, relayPath);
  const createDoors = await loadDoors(config);
  const entry = await createEntry(basics, delivery);
  // express is loaded only if there are API keys.
  const HttpApi =
    config.apiKeys.length === 0
      ? null
      : (await import('../transport/http-api/http-api.js')).HttpApi;
  return new Worker(place, basics, { delivery, entry, HttpApi, createDoors });
}

export class Worker {
  /** All that happens once a second. @type {NodeJS.Timeout|undefined} */
  #timer = undefined;
  /** Carries out requests of the console. @type {Promise<import('./operator.js').Operator>|null} */
  #operator = null;

  /**
   * @param {Place} place @param {Basics} basics
   * @param {object} built @param {import('./delivery.js').WorkerDelivery} built.delivery
   * @param {import('./entry.js').Entry} built.entry
   * @param {typeof import('../transport/http-api/http-api.js').HttpApi|null} built.HttpApi null: no
   *   API keys
   * @param {readonly import('../doors/contract.js').CreateDoor[]} built.createDoors without the
   *   native one
   */
  constructor(place, basics, { delivery, entry, HttpApi, createDoors }) {
    const { config, log, phase, counters, metrics, turn, closeAll } = basics;
    const { hub, tracker, historyOf, historyReader, publisher } = delivery;
    const { stateOf, stateReader } = delivery;
    this.basics = basics;
    this.place = place;
    this.beatMs = Math.min(BEAT_INTERVAL_MS, config.workerTimeoutMs / 4);
    this.delivery = delivery;
    this.entry = entry;
    const operations = (this.operations = operationsOf(basics, delivery, entry));
    this.commands = commandsOf(basics, delivery, entry, operations);
    publisher.limitBy(entry);
    entry.hooks?.entrance.listen(this.commands.refuse);
    const surveys = turn.line('surveys', (/** @type {() => void} */ act) => act());
    const upstreams = (this.upstreams = new Upstreams());
    const readiness = (this.readiness = new Readiness(basics, delivery, entry));
    const describe = () => readiness.describeWorker(place.slot);
    this.fleet = createFleet(basics, delivery, entry, {
      joins: operations.joins,
      ...{ upstreams, surveys, describe },
    });
    const isSteady = () => readiness.isSteady;
    this.relocations = new Relocations({ hub, isSteady, counters });
    const { lobby } = entry;
    this.excess = new ExcessConnections({ hub, lobby, surveys, closeAll, counters });
    /** What the HTTP APIs and the console call. */
    this.services = {
      config,
      broker: delivery.backend.broker,
      publisher,
      historyOf,
      historyReader,
      stateOf,
      stateReader,
      tracker,
      fleet: this.fleet,
      phase,
      revoke: entry.auth?.revoke.bind(entry.auth) ?? null,
      blobs: delivery.blobs,
      counters,
      log,
    };
    const meters = createMeters(basics, metrics.apiSeconds);
    this.doors = new Doors(basics, {
      hub,
      entry,
      commands: this.commands,
      operations,
      relocations: this.relocations,
      api: HttpApi && new HttpApi({ ...this.services, ...meters }),
      others: createDoors.map((create) => create(this.#doorServices(meters))),
      certificate: place.certificate?.() ?? null,
      readiness: () => readiness.fault(),
    });
  }

  /**
   * @param {import('../transport/http-api/call.js').Meters} meters
   * @returns {import('../doors/contract.js').DoorServices}
   */
  #doorServices(meters) {
    const { basics, delivery, operations, services, upstreams, entry } = this;
    const { config, phase, counters, closeAll } = basics;
    const { hub, backend } = delivery;
    const { broker, reporter } = backend;
    const { appPlaces } = entry;
    const readiness = () => this.readiness.fault();
    return {
      ...{
        config,
        operations,
        hub,
        broker,
        upstreams,
        appPlaces,
        reporter,
        phase,
        counters,
        closeAll,
      },
      api: { ...services, meters, readiness },
    };
  }

  /** @returns {Promise<{port: number, address: string, isBrokerUp: boolean}>} where it listens */
  async start() {
    const { delivery, entry, doors } = this;
    const { log, counters } = this.basics;
    await delivery.start({
      onLost: () => {
        log.error('lost the relay: draining');
        this.place.onOrphaned();
      },
      onKeep: (key, connections) => this.excess.keepConnections(key, connections),
      onNoticesLost: () => entry.auth?.onNoticesLost(),
    });
    await entry.start();
    await delivery.subscribe();
    entry.health.start(this.beatMs);
    this.#timer = setInterval(() => this.#beat(performance.now()), this.beatMs);
    // All workers of a server decide the same.
    const level = this.place.slot === 0 ? 'info' : 'debug';
    log[level](describeFastPaths(counters.fastPaths), 'fast paths');
    return { ...(await doors.open()), isBrokerUp: delivery.isBrokerUp };
  }

  /** @param {number} nowMs */
  #beat(nowMs) {
    this.entry.health.beat(this.beatMs);
    this.basics.metrics.sampleRates(nowMs);
    this.delivery.sweep(nowMs);
    this.commands.sweep();
    this.operations.sweep(nowMs);
    this.entry.sweep(nowMs);
    this.doors.sweep(nowMs);
    this.place.onBeat({
      connections: this.basics.counters.connections - this.relocations.pending.size,
      lagMs: Math.round(this.entry.health.lagMs()),
      isSteady: this.readiness.isSteady,
    });
  }

  /** Uses the certificate for new handshakes. @param {Certificate} certificate */
  replaceCertificate(certificate) {
    this.doors.http.replaceCertificate(certificate);
    this.basics.log.debug({ expires: new Date(certificate.expiresMs) }, 'new TLS certificate');
  }

  /**
   * Handles a request from the console. The first one loads the operator.
   * @param {import('./operator.js').Message} message
   * @param {(message: import('./control-messages.js').ToPrimary) => void} send
   */
  async operate(message, send) {
    this.#operator ??= import('./operator.js').then(
      ({ Operator }) => new Operator({ services: this.services, hub: this.delivery.hub, send }),
    );
    (await this.#operator).receive(message);
  }

  /** Accepts no more connections. Open ones stay until the drain. */
  retire() {
    this.doors.http.stopAccepting();
  }

  /**
   * Drains the connections and closes all parts.
   * @param {number} deadlineMs from now
   * @param {number} [waitMs] longest wait for last requests on kept-alive sockets; 0: no new worker
   *   has taken its place
   */
  async drain(deadlineMs, waitMs = 0) {
    const { delivery, entry, doors, commands } = this;
    const { config, phase, log } = this.basics;
    const end = performance.now() + deadlineMs;
    doors.http.stopAccepting();
    // So no request to the HTTP API fails in a reload: clients continue with the new workers.
    await doors.http.endKeptAlive(Math.min(waitMs, deadlineMs / 2));
    phase.advance('draining');
    const startMs = performance.now();
    this.relocations.close();
    delivery.backend.addresses.resign();
    entry.auth?.drain();
    (await this.#operator)?.close();
    const apiDrained = doors.drainApis(Math.max(0, end - startMs - API_RESERVE_MS));
    const drained = await drain({
      hub: delivery.hub,
      outbox: delivery.outbox,
      commands,
      lane: this.operations.lane,
      scheduler: delivery.scheduler,
      phase,
      othersAccept: waitMs > 0 || (await hasOtherServers(delivery.backend.broker, config.workers)),
      windowMs: config.reconnectWindowMs,
      deadlineMs: end,
    });
    await apiDrained;
    clearInterval(this.#timer);
    doors.close();
    entry.health.close();
    delivery.close();
    entry.auth?.close();
    this.fleet.close();
    await doors.http.close(startMs);
    await entry.hooks?.drain(end);
    await delivery.backend.close();
    log.info(drained, 'drained');
  }
}
