// areas.js: which tests should find a planted bug, the cheap ones first.

/** @typedef {keyof typeof AREAS} Area */

const MIXED = Object.freeze({
  ...{ clients: 10, rooms: 6, hasHistory: true, roomsPerClient: 3, publishers: 4, rate: 10 },
  ...{ isMixed: true, hasCentrifugo: false },
});

/** `plan`: what a simulated run needs to meet such a bug. */
export const AREAS = Object.freeze({
  state: {
    unit: ['state-sync', 'histories', 'history-reader', 'protocol', 'redis-scripts'],
    contract: ['state', 'redis-promises', 'history'],
    plan: { load: MIXED, hasWebhooks: false, hasPusher: false },
  },
  webhooks: {
    unit: [
      'webhook-retries',
      'webhook-delivery',
      'webhook-handover',
      'webhook-periods',
      'webhook-recording',
      'webhook-pusher',
      'courier-interleavings',
      'redis-scripts',
    ],
    contract: ['webhook-queue', 'webhook-transitions', 'webhook-transitions-redis', 'occupancy'],
    plan: { load: MIXED, hasWebhooks: true, hasPusher: false },
  },
  doors: {
    unit: [
      'centrifugo-resync',
      'centrifugo-connections',
      'sse-recovery',
      'sse',
      'lagging-members',
      'stream-interleavings',
      'every-door-joins',
      'every-door-reads',
    ],
    contract: [],
    plan: { load: { ...MIXED, hasCentrifugo: true }, hasWebhooks: false, hasPusher: true },
  },
  recovery: {
    unit: [
      'room-joins',
      'room-sync',
      'lagging-members',
      'outage-notice',
      'recovery-model',
      'sse-recovery',
      'hub',
      'stream-interleavings',
    ],
    contract: ['history'],
  },
  redis: {
    unit: ['redis-publisher', 'redis-broker', 'redis-identity', 'data-loss'],
    contract: ['redis-promises', 'broker', 'history'],
  },
  relay: {
    unit: ['relay', 'relay-overload', 'histories'],
    contract: ['broker', 'state'],
    plan: { topology: 'embedded', load: MIXED, hasWebhooks: false },
  },
  presence: {
    unit: ['presence-churn', 'room-users', 'pusher-presence', 'presence-interleavings'],
    contract: ['presence', 'presence-redis'],
    plan: { topology: 'redis', load: MIXED, hasWebhooks: false, hasPusher: true },
  },
  operations: {
    unit: [
      'lane',
      'hook-order',
      'commands',
      'revocations',
      'command-interleavings',
      'every-door-joins',
    ],
    contract: ['revocations'],
  },
});
