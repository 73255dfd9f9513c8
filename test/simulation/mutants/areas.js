// areas.js: which tests should find a planted bug, the cheap ones first.

/** @typedef {keyof typeof AREAS} Area */

export const AREAS = Object.freeze({
  state: {
    unit: ['state-sync', 'histories', 'history-reader', 'protocol', 'redis-scripts'],
    contract: ['state', 'redis-promises', 'history'],
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
  relay: { unit: ['relay', 'relay-overload', 'histories'], contract: ['broker', 'state'] },
  presence: {
    unit: ['presence-churn', 'room-users', 'pusher-presence', 'presence-interleavings'],
    contract: ['presence', 'presence-redis'],
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
