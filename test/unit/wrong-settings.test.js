// wrong-settings.test.js: mistakes in the configuration, each with all lines that the server prints.
// A person has read them: a line names the setting, what is wrong, and what is allowed.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadConfig, parseConfigFile } from '../../src/config/config.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const LONG = 'a'.repeat(38);

/** @type {[env: Record<string, string>, ...faults: string[]][]} */
const WRONG = [
  [{ PORT: 'abc' }, 'PORT: "abc" is not an integer from 0 to 65535'],
  [{ PORT: '70000' }, 'PORT: "70000" is not an integer from 0 to 65535'],
  [
    { PORT: '24100', METRICS_PORT: '24100' },
    'METRICS_PORT: 24100 is also PORT; the public and the operations port must differ',
  ],
  [{ WORKERS: '-1' }, 'WORKERS: "-1" is not an integer from 1 to 1024'],
  [{ WORKERS: '1.5' }, 'WORKERS: "1.5" is not an integer from 1 to 1024'],
  [
    { LOG_LEVEL: 'verbose' },
    'LOG_LEVEL: "verbose" is not one of trace, debug, info, warn, error, fatal, silent',
  ],
  [
    { REDIS_URL: 'localhost:6379' },
    'REDIS_URL: its value is not redis://[user:password@]host[:port][/database], or rediss:// for TLS',
  ],
  [
    { REDIS_URL: 'http://localhost:6379' },
    'REDIS_URL: its value is not redis://[user:password@]host[:port][/database], or rediss:// for TLS',
  ],
  [
    { REDIS_URL: 'redis://127.0.0.1:7349', REDIS_HOST: 'x' },
    'REDIS_HOST: conflicts with REDIS_URL; set only one of them',
  ],
  [
    { JWT_SECRET: 'short' },
    'JWT_SECRET: its value is 5 bytes long; a secret needs at least 32 (openssl rand -hex 32)',
  ],
  [{ JWT_SECERT: LONG }, 'JWT_SECERT: unknown setting; did you mean JWT_SECRET?'],
  [
    { JWT_JWKS_URL: 'not-a-url' },
    'JWT_JWKS_URL: its value is not an https:// URL; http:// only to this machine',
  ],
  [{ API_KEY: LONG }, 'API_KEY: unknown setting; did you mean API_KEYS?'],
  [
    { API_KEYS: LONG },
    'API_KEYS, key 1: not "name secret right,right", perhaps with "rooms=pattern,pattern" and "app=id" after it',
  ],
  [
    { API_KEYS: `web ${LONG} publsh` },
    'API_KEYS, key 1: right 1 is not one of all, publish, broadcast, rooms, history, delete, presence, disconnect, join, revoke, console',
  ],
  [
    { API_KEYS: 'web short all' },
    'API_KEYS, key 1: its secret is not 32 to 256 characters of A-Z a-z 0-9 _ . ~ + / = -',
  ],
  [
    { API_KEYS: `web ${LONG} all app=x` },
    'API_KEYS, key 1: app= is not the id of an app: a number, or a name of 2 to 64 letters, digits and dashes, as app-id is',
  ],
  [
    { API_KEYS: `web ${LONG} publish app=app-id` },
    'API_KEYS: the key web names an app that FANFARE_PUSHER_APPS lacks',
  ],
  [
    { ALLOWED_ORIGINS: 'chat.example' },
    'ALLOWED_ORIGINS: "chat.example" is not an origin: scheme://host[:port], or scheme://*.host[:port] for one label; no path (leave it empty for all)',
  ],
  [
    { ALLOWED_ORIGINS: 'https://chat.example/' },
    'ALLOWED_ORIGINS: "https://chat.example/" is not an origin: scheme://host[:port], or scheme://*.host[:port] for one label; no path (leave it empty for all)',
  ],
  [
    { TRUST_PROXY: 'yes' },
    'TRUST_PROXY: "yes" is neither a hop count nor a CIDR; allowed: a hop count (1), or CIDRs separated by commas (10.0.4.11/32,127.0.0.1/32)',
  ],
  [
    { TRUST_PROXY: 'true' },
    'TRUST_PROXY: "true" is neither a hop count nor a CIDR; allowed: a hop count (1), or CIDRs separated by commas (10.0.4.11/32,127.0.0.1/32)',
  ],
  [
    { FANFARE_HISTORY: 'chat.*' },
    'FANFARE_HISTORY: "chat.*" is not pattern=size/time, as in chat.*=100/300s (or m, h, d)',
  ],
  [
    { FANFARE_HISTORY: 'chat.*=100' },
    'FANFARE_HISTORY: "chat.*=100" is not pattern=size/time, as in chat.*=100/300s (or m, h, d)',
  ],
  [
    { FANFARE_HISTORY: 'chat.*:100/5m' },
    'FANFARE_HISTORY: "chat.*:100/5m" is not pattern=size/time, as in chat.*=100/300s (or m, h, d)',
  ],
  [
    { FANFARE_HISTORY: 'chat.*=100/30d' },
    'FANFARE_HISTORY: "chat.*=100/30d": the time must be 1s to 7d',
  ],
  [
    { FANFARE_STATE: 'price.*=100' },
    'FANFARE_STATE: "price.*=100" is not pattern=keys/time or pattern=keys/time every interval, as in price.*=1000/1h every 100ms',
  ],
  [
    { FANFARE_PRESENCE: 'chat*.[a]' },
    'FANFARE_PRESENCE: "chat*.[a]" is not a pattern of room names, as chat.* is',
  ],
  [{ FANFARE_LIMITS: 'on' }, 'FANFARE_LIMITS: "on" is not one of off, observe, enforce'],
  [
    { FANFARE_LIMITS: 'enforce,frame=off' },
    'FANFARE_LIMITS: "frame=off" names no limit; did you mean frames?',
  ],
  [
    { FANFARE_LIMITS: 'enforce,bandwidth=off' },
    'FANFARE_LIMITS: "bandwidth=off" names no limit; the limits are connections_per_ip, connections_per_user, fleet, messages, messages_per_ip, messages_per_user, broadcasts_per_ip, frames, handshakes, handshakes_per_ip, rooms, overload, api_messages',
  ],
  [
    { FANFARE_MESSAGES_RATE: '100' },
    'FANFARE_MESSAGES_RATE: "100" is not a rate: 100/min, or 100/min burst 20, from 1 to 1000000000',
  ],
  [
    { FANFARE_MESSAGES_RATE: '100/sec' },
    'FANFARE_MESSAGES_RATE: "100/sec" is not a rate: 100/min, or 100/min burst 20, from 1 to 1000000000',
  ],
  [{ FANFARE_CENTRIFUGO: 'yes' }, 'FANFARE_CENTRIFUGO: "yes" is not one of off, on'],
  [
    { FANFARE_PUSHER_APP_ID: '1' },
    'FANFARE_PUSHER_APP_ID, _KEY and _SECRET: set all of them, or none',
  ],
  [
    { FANFARE_HISTROY: 'chat.*=1/1s' },
    'FANFARE_HISTROY: unknown setting; did you mean FANFARE_HISTORY?',
  ],
  [
    { FANFARE_CONSOLE: 'on', METRICS_HOST: '0.0.0.0' },
    'FANFARE_CONSOLE: on, but no API key has the right "console" and METRICS_HOST 0.0.0.0 is not a loopback address',
  ],
  [{ TLS_CERT_FILE: '/nope.pem' }, 'TLS_KEY_FILE: required with TLS_CERT_FILE'],
  [{ FANFARE_HOOKS: '/nope.js' }, 'FANFARE_HOOKS: cannot read /nope.js: ENOENT'],
  [{ FANFARE_WEBHOOKS: '/nope.json' }, 'FANFARE_WEBHOOKS: /nope.json: cannot be read: ENOENT'],
  [
    { PORT: 'x', WORKERS: '-1', FANFARE_NOPE: '1' },
    'PORT: "x" is not an integer from 0 to 65535',
    'WORKERS: "-1" is not an integer from 1 to 1024',
    'FANFARE_NOPE: unknown setting',
  ],
];

for (const [env, ...faults] of WRONG)
  test(
    Object.entries(env)
      .map((pair) => pair.join('='))
      .join(' '),
    () => {
      assert.deepEqual(loadConfig(env).faults, faults);
    },
  );

/** Files that settings name. @type {[setting: string, content: string, ...faults: string[]][]} */
const FILES = [
  [
    'FANFARE_PUSHER_APPS',
    '[{"id":"a_b","key":"k","secret":"s","clientEvent":true}]',
    'FANFARE_PUSHER_APPS: FILE: apps[0]: unknown field "clientEvent"; did you mean clientEvents?',
    'FANFARE_PUSHER_APPS: FILE: apps[0].id: not a number, or a name of 2 to 64 letters, digits and dashes, as app-id is',
  ],
  [
    'FANFARE_PUSHER_APPS',
    '[{"id":"one","key":"k","secret":"s","colour":"red"}]',
    'FANFARE_PUSHER_APPS: FILE: apps[0]: unknown field "colour"; there are id, key, secret, secrets, preset, origins, clientEventData, history, presence, publicRooms, webhooks, enabled, shared, tlsOnly, clientEvents, subscriptionCount, extraChannelInfo, maxConnections, quotaCode, activityTimeout, clientEventsPerSecond, authorizeWithinMs, maxEventBytes, maxChannelsPerEvent, maxBatch, maxChannelLength, maxEventNameLength, maxPresenceMembers, maxMemberBytes, cacheTtl',
  ],
  [
    'FANFARE_PUSHER_APPS',
    '{"apps":[]}',
    'FANFARE_PUSHER_APPS: FILE: an object, not a JSON array of apps',
  ],
  ['FANFARE_PUSHER_APPS', '[]', 'FANFARE_PUSHER_APPS: FILE: has no apps'],
  ['FANFARE_PUSHER_APPS', '[\n{"id":"one",}]', 'FANFARE_PUSHER_APPS: FILE: not JSON: line 2'],
  ['FANFARE_PUSHER_APPS', '[{"id":"one"', 'FANFARE_PUSHER_APPS: FILE: not JSON: line 1'],
  [
    'FANFARE_WEBHOOKS',
    '{"endpoints":[{"url":"https://x.example/hook"}]}',
    'FANFARE_WEBHOOKS: FILE: an object, not a JSON array of endpoints',
  ],
  [
    'FANFARE_WEBHOOKS',
    '[{"url":"http://127.0.0.1:1/x","secrt":"a"}]',
    'FANFARE_WEBHOOKS: FILE: endpoints[0]: unknown field "secrt"; did you mean secret?',
    'FANFARE_WEBHOOKS: FILE: endpoints[0].secret: not "whsec_" and 24 to 64 random bytes in Base64, or an array of two while they rotate',
  ],
  [
    'FANFARE_WEBHOOKS',
    '[{"url":"x.example","secret":"whsec_x"}]',
    'FANFARE_WEBHOOKS: FILE: endpoints[0].url: not a URL',
    'FANFARE_WEBHOOKS: FILE: endpoints[0].secret: not "whsec_" and 24 to 64 random bytes in Base64, or an array of two while they rotate',
  ],
  [
    'FANFARE_PUSHER_APPS',
    '[{"id":"1","key":"k","secret":"a-secret-of-twenty-c"},{"id":"2","key":"l","secrets":["s","a b"],"webhooks":[{"url":"x","events":["x"],"batchMs":1.5}],"history":["a"],"maxBatch":0}]',
    'FANFARE_PUSHER_APPS: FILE: apps[1].secrets[1]: not 1 to 256 printable characters without a space',
    'FANFARE_PUSHER_APPS: FILE: apps[1].history[0]: not pattern=size/time, as in chat.*=100/300s (or m, h, d)',
    'FANFARE_PUSHER_APPS: FILE: apps[1].webhooks[0].url: not a URL',
    'FANFARE_PUSHER_APPS: FILE: apps[1].webhooks[0].events[0]: not one of channel_occupied, channel_vacated, member_added, member_removed, client_event, cache_miss, subscription_count',
    'FANFARE_PUSHER_APPS: FILE: apps[1].webhooks[0].batchMs: not an integer from 0 to 10000',
    'FANFARE_PUSHER_APPS: FILE: apps[1].maxBatch: not an integer from 1 to 1000',
  ],
];

for (const [setting, content, ...faults] of FILES)
  test(`${setting}: ${content}`, (t) => {
    const path = join(temporaryFolder(t), 'file');
    writeFileSync(path, content);
    const lines = loadConfig({ [setting]: path }).faults.map((line) => line.replace(path, 'FILE'));
    assert.deepEqual(lines, faults);
  });

test('lines of FANFARE_CONFIG_FILE', () => {
  const { faults } = parseConfigFile('PORT=24100\nFANFARE_HISTORY chat.*=1/1s\nFOO=1\nPROT=1');
  assert.deepEqual(faults, [
    'FANFARE_CONFIG_FILE, line 2: not NAME=value',
    'FANFARE_CONFIG_FILE, line 3: unknown setting FOO',
    'FANFARE_CONFIG_FILE, line 4: unknown setting PROT; did you mean PORT?',
  ]);
});
