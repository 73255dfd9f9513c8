// index.js: the Redis backend: many machines, over one Redis, a group with Sentinels, or a cluster.

import { fleetRulesOf } from '../places.js';
import { RedisBroker } from './broker.js';
import { MemberStore } from './member-store.js';
import { RedisPresence } from './presence.js';
import { RedisRevocations } from './revocations.js';

/** @import { BackendParts } from '../backend.js' */
/** @typedef {{heartbeatMs?: number, ttlMs?: number, settleMs?: number}} PresenceTimes */

/**
 * @typedef {object} RedisOptions
 * @property {typeof import('./event-store.js')|null} [recorder] null: nothing is recorded for webhooks
 * @property {PresenceTimes} [presenceTimes] for tests
 * @property {number} [maxEntries] of a partition, for tests
 */

/** @param {BackendParts} parts @param {RedisOptions} [options] */
export function createBackend(parts, { recorder = null, presenceTimes, maxEntries } = {}) {
  const { config, log, counters, workerId, historyRules, announcements, machine, events } = parts;
  /** @type {RedisPresence|null} */
  let presence = null;
  /** @type {import('./event-store.js').RedisEventStore|null} */
  let eventStore = null;
  const broker = new RedisBroker({
    config,
    log,
    counters,
    workerId,
    historyOf: (room) => historyRules.ruleFor(room),
    historyRules,
    onPublishLag: events.onPublishLag,
    onRoundTrip: events.onRoundTrip,
    onUp: (isUp) => {
      presence?.setUp(isUp);
      eventStore?.setUp(isUp);
      // A worker that has never reached Redis cannot carry reports.
      if (isUp) volunteer(parts);
    },
  });
  carryReports(parts, broker);
  const { webhooks, redisPrefix: prefix } = config;
  const { connection } = broker;
  const covers = webhooks?.covers.bind(webhooks) ?? (() => false);
  const counts = webhooks?.counts.bind(webhooks) ?? (() => false);
  const channelOf = (/** @type {string} */ room) => broker.keys.channelOf(room);
  const isSharded = config.redis?.kind === 'cluster';
  const publishCommand = isSharded ? 'SPUBLISH' : 'PUBLISH';
  const recording =
    recorder &&
    new recorder.RedisRecording({ connection, prefix, isSharded, covers, counts, maxEntries });
  const names = sessionNames((name) => machine.nameSession(name));
  const common = { connection, prefix, workerId, log, ...presenceTimes };
  if (config.presence.length > 0) {
    const store = new MemberStore({
      connection,
      prefix,
      channelOf,
      publishCommand,
      maxMembers: config.presenceMaxMembers,
      announcements,
      counters,
      recording,
    });
    presence = new RedisPresence({ ...common, store, onName: names.presence, counters });
  }
  if (recorder !== null && recording !== null)
    eventStore = new recorder.RedisEventStore({
      ...common,
      recording,
      announce: { channelOf, command: publishCommand, head: announcements.count },
      onName: names.events,
    });
  // The relay notices a death at once; a heartbeat that is missed takes up to 30 s.
  if (presence !== null || eventStore !== null)
    machine.listen({
      onSessionLost: (gone) => {
        for (const name of gone.split(' ')) {
          presence?.died(name);
          eventStore?.died(name);
        }
      },
    });
  return {
    broker,
    presence,
    eventStore,
    revocations: new RedisRevocations({ connection, prefix }),
    close: async () => {
      await presence?.close();
      await eventStore?.close();
      await broker.close();
    },
  };
}

/** Offers to carry reports if any limit covers all servers. @param {BackendParts} parts */
function volunteer({ config, machine }) {
  const rules = fleetRulesOf(config);
  if (Object.values(rules).some(({ mode }) => mode !== 'off')) machine.volunteer(rules);
}

/** @param {BackendParts} parts @param {RedisBroker} broker */
function carryReports({ machine }, broker) {
  const passReport = machine.passReport.bind(machine);
  machine.listen({
    onCarry: (isCarrier) => broker.receiveReports(isCarrier ? passReport : null),
    onReport: (report) => broker.sendReport(report),
  });
}

/** Names of a worker's sessions; none has a space. @param {(name: string) => void} onName */
function sessionNames(onName) {
  const names = { presence: '', events: '' };
  const tell = () => onName(`${names.presence} ${names.events}`.trim());
  return {
    presence: (/** @type {string} */ name) => {
      names.presence = name;
      tell();
    },
    events: (/** @type {string} */ name) => {
      names.events = name;
      tell();
    },
  };
}
