// systems.js: what is compared: how a server of each system starts, which client its users have, and
// how a backend publishes.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { pathOf } from '../bench/compile.js';
import { API_KEY, APP } from './settings.js';

/** HAProxy's two checks a second apart, and some: docs/deployment.md, "Load balancer". */
const DRAIN_DELAY_MS = '4000';

/**
 * @typedef {object} Place
 * @property {number} port
 * @property {string} redisUrl
 * @property {number} redisPort
 * @property {string} apps file of Pusher apps
 */
/**
 * @typedef {object} System
 * @property {string} title
 * @property {string} client a file of clients/
 * @property {'fanfare'|'pusher'|'centrifugo'|'fanfareCentrifugo'|'plain'} publisher of publisher.js
 * @property {string} readyPath what the load balancer asks
 * @property {readonly string[]} command
 * @property {(place: Place) => Record<string, string>} env
 */

const here = (/** @type {string} */ path) => fileURLToPath(new URL(path, import.meta.url));
const FANFARE = Object.freeze({
  readyPath: '/readyz',
  command: [process.execPath, here('../../src/main.js')],
});
/** @param {Place} place @returns {Record<string, string>} */
const fanfareEnv = ({ port, redisUrl }) => ({
  PORT: String(port),
  METRICS_PORT: '0',
  HOST: '127.0.0.1',
  WORKERS: '1',
  REDIS_URL: redisUrl,
  TRUST_PROXY: '127.0.0.1/32',
  // All clients have one address.
  FANFARE_LIMITS: 'off',
  FANFARE_DRAIN_DELAY_MS: DRAIN_DELAY_MS,
  FANFARE_HISTORY: 'deploy.*=1000/300s',
  LOG_LEVEL: 'warn',
});
const OTHERS = Object.freeze({ readyPath: '/readyz', publisher: /** @type {const} */ ('plain') });
/** @param {Place} place @returns {Record<string, string>} */
const otherEnv = ({ port, redisUrl }) => ({ PORT: String(port), REDIS_URL: redisUrl });

/** @type {Readonly<Record<string, System>>} */
export const SYSTEMS = Object.freeze({
  fanfare: {
    ...FANFARE,
    title: 'Fanfare',
    client: 'fanfare',
    publisher: 'fanfare',
    env: (place) => ({ ...fanfareEnv(place), API_KEYS: `deploy ${API_KEY} all` }),
  },
  'fanfare-centrifuge': {
    ...FANFARE,
    title: 'Fanfare, centrifuge-js',
    client: 'centrifuge',
    publisher: 'fanfareCentrifugo',
    env: (place) => ({
      ...fanfareEnv(place),
      FANFARE_CENTRIFUGO: 'on',
      FANFARE_CENTRIFUGO_API_KEY: API_KEY,
      FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*',
    }),
  },
  'fanfare-pusher': {
    ...FANFARE,
    title: 'Fanfare, pusher-js',
    client: 'pusher',
    publisher: 'pusher',
    env: (place) => ({ ...fanfareEnv(place), FANFARE_PUSHER_APPS: place.apps }),
  },
  centrifugo: {
    title: 'Centrifugo',
    client: 'centrifuge',
    publisher: 'centrifugo',
    readyPath: '/health',
    command: [pathOf('centrifugo')],
    env: ({ port, redisUrl }) => ({
      CENTRIFUGO_HTTP_SERVER_ADDRESS: '127.0.0.1',
      CENTRIFUGO_HTTP_SERVER_PORT: String(port),
      CENTRIFUGO_HTTP_API_KEY: API_KEY,
      CENTRIFUGO_HEALTH_ENABLED: 'true',
      CENTRIFUGO_ENGINE_TYPE: 'redis',
      CENTRIFUGO_ENGINE_REDIS_ADDRESS: redisUrl,
      CENTRIFUGO_CLIENT_ALLOW_ANONYMOUS_CONNECT_WITHOUT_TOKEN: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_ALLOW_SUBSCRIBE_FOR_CLIENT: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_ALLOW_SUBSCRIBE_FOR_ANONYMOUS: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_HISTORY_SIZE: '1000',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_HISTORY_TTL: '300s',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_FORCE_RECOVERY: 'true',
      CENTRIFUGO_LOG_LEVEL: 'error',
    }),
  },
  soketi: {
    title: 'soketi',
    client: 'pusher',
    publisher: 'pusher',
    readyPath: '/ready',
    command: [process.execPath, here('node_modules/@soketi/soketi/bin/server.js'), 'start'],
    env: ({ port, redisPort }) => ({
      SOKETI_HOST: '127.0.0.1',
      SOKETI_PORT: String(port),
      SOKETI_METRICS_ENABLED: 'false',
      SOKETI_ADAPTER_DRIVER: 'redis',
      SOKETI_DB_REDIS_HOST: '127.0.0.1',
      SOKETI_DB_REDIS_PORT: String(redisPort),
      SOKETI_DEFAULT_APP_ID: APP.id,
      SOKETI_DEFAULT_APP_KEY: APP.key,
      SOKETI_DEFAULT_APP_SECRET: APP.secret,
    }),
  },
  'socket-io': {
    ...OTHERS,
    title: 'Socket.IO, Redis adapter',
    client: 'socket-io',
    command: [process.execPath, here('servers/socket-io.js')],
    env: otherEnv,
  },
  'socket-io-recovery': {
    ...OTHERS,
    title: 'Socket.IO, state recovery',
    client: 'socket-io',
    command: [process.execPath, here('servers/socket-io.js')],
    env: (place) => ({ ...otherEnv(place), RECOVERY: 'on' }),
  },
  'plain-ws': {
    ...OTHERS,
    title: 'plain `ws`, Redis',
    client: 'plain-ws',
    command: [process.execPath, here('servers/plain-ws.js')],
    env: otherEnv,
  },
});

/** Packages of the others. @type {Readonly<Record<string, string>>} */
const PACKAGES = Object.freeze({
  soketi: '@soketi/soketi',
  'socket-io': 'socket.io',
  'socket-io-recovery': '@socket.io/redis-streams-adapter',
  'plain-ws': 'reconnecting-websocket',
});

/** @param {string} name @returns {boolean} whether it can be measured here */
export function isPresent(name) {
  if (name === 'centrifugo') return pathOf('centrifugo') !== '';
  const needed = PACKAGES[name];
  return needed === undefined || existsSync(here(`node_modules/${needed}/package.json`));
}
