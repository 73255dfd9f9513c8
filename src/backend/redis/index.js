// index.js: the Redis backend: many machines, over one Redis, a group with Sentinels, or a cluster.

import { fleetRulesOf } from '../places.js';
import { RedisBroker } from './broker.js';
import { RedisPresence } from './presence.js';
import { RedisRevocations } from './revocations.js';

/** @import { BackendParts } from '../backend.js' */
/** @typedef {{heartbeatMs?: number, ttlMs?: number, settleMs?: number}} PresenceTimes */

/** @param {BackendParts} parts @param {{presenceTimes?: PresenceTimes}} [options] for tests */
export function createBackend(parts, { presenceTimes } = {}) {
  const { config, log, counters, workerId, historyRules, announcements, machine, events } = parts;
  /** @type {RedisPresence|null} */
  let presence = null;
  const broker = new RedisBroker({
    config,
    log,
    counters,
    workerId,
    historyOf: (room) => historyRules.of(room),
    historyRules,
    onPublishLag: events.onPublishLag,
    onRoundTrip: events.onRoundTrip,
    onUp: (isUp) => {
      presence?.setUp(isUp);
      if (isUp) volunteer();
    },
  });
  const rules = fleetRulesOf(config);
  const hasFleetLimits = rules.address.mode !== 'off' || rules.user.mode !== 'off';
  // A worker that has never reached Redis cannot carry the reports of its server.
  const volunteer = () => {
    if (hasFleetLimits) machine.volunteer(rules);
  };
  const passReport = machine.passReport.bind(machine);
  machine.listen({
    onCarry: (isCarrier) => broker.receiveReports(isCarrier ? passReport : null),
    onReport: (report) => broker.sendReport(report),
  });
  if (config.presence.length > 0) {
    presence = new RedisPresence({
      connection: broker.connection,
      publishCommand: config.redis?.kind === 'cluster' ? 'SPUBLISH' : 'PUBLISH',
      prefix: config.redisPrefix,
      channelOf: (room) => broker.keys.channelOf(room),
      maxMembers: config.presenceMaxMembers,
      announcements,
      workerId,
      onName: (name) => machine.nameSession(name),
      counters,
      log,
      ...presenceTimes,
    });
    // The relay notices a death at once; a heartbeat that is missed takes up to 30 s.
    machine.listen({ onSessionLost: (name) => presence?.died(name) });
  }
  return {
    broker,
    presence,
    revocations: new RedisRevocations({
      connection: broker.connection,
      prefix: config.redisPrefix,
    }),
    close: async () => {
      await presence?.close();
      await broker.close();
    },
  };
}
