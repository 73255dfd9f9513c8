// centrifugo-settings.test.js: FANFARE_CENTRIFUGO and related settings.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { describeConfig, loadConfig } from '../../src/config/config.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const KEY = 'hunter2-hunter2-hunter2-hunter2-1';
const OTHER_KEY = 'hunter2-hunter2-hunter2-hunter2-2';
const ON = { FANFARE_CENTRIFUGO: 'on' };

/** @param {Record<string, string>} env */
function valid(env) {
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.ok(config);
  return config;
}

/** @param {string} key */
function hashOf(key) {
  return createHash('sha256').update(key).digest('hex');
}

test('the door is off by default, and has no server API and no rules when it is on', () => {
  assert.equal(valid({}).centrifugo, null);
  assert.equal(describeConfig(valid({})).centrifugo, '');
  const config = valid(ON);
  assert.deepEqual(config.centrifugo, {
    isLenient: false,
    pathPrefix: '',
    allow: [],
    personal: '',
    apiPath: '/centrifugo/api',
    apiKeyHashes: [],
  });
  assert.equal(describeConfig(config).centrifugo, '/connection, no server API');
});

test('all settings of the door', (t) => {
  const path = join(temporaryFolder(t), 'keys');
  writeFileSync(path, `${KEY}\n${OTHER_KEY}\n`);
  const config = valid({
    ...ON,
    FANFARE_CENTRIFUGO_TOKENS: 'lenient',
    FANFARE_CENTRIFUGO_PERSONAL: 'personal:#',
    FANFARE_CENTRIFUGO_PATH: '/rt/',
    FANFARE_CENTRIFUGO_ALLOW: 'subscribe:news:*, history:*',
    FANFARE_CENTRIFUGO_API_PATH: '/rt/api',
    FANFARE_CENTRIFUGO_API_KEY_FILE: path,
  });
  assert.deepEqual(config.centrifugo, {
    isLenient: true,
    pathPrefix: '/rt',
    allow: [
      { right: 'subscribe', pattern: 'news:*' },
      { right: 'history', pattern: '*' },
    ],
    personal: 'personal:#',
    apiPath: '/rt/api',
    apiKeyHashes: [hashOf(KEY), hashOf(OTHER_KEY)],
  });
  assert.equal(
    describeConfig(config).centrifugo,
    '/rt/connection, /rt/api, 2 keys, lenient tokens',
  );
});

test('the server API may have the path of the native one if there are no API_KEYS', () => {
  const own = { ...ON, FANFARE_CENTRIFUGO_API_KEY: KEY, FANFARE_CENTRIFUGO_API_PATH: '/api' };
  assert.equal(valid(own).centrifugo?.apiPath, '/api');
  const { faults } = loadConfig({ ...own, API_KEYS: `web ${OTHER_KEY} all` });
  assert.deepEqual(faults, [
    'FANFARE_CENTRIFUGO_API_PATH: /api is the path of the HTTP API, which API_KEYS turns on',
  ]);
});

for (const [name, env] of /** @type {[string, Record<string, string>][]} */ ([
  ['FANFARE_CENTRIFUGO', { FANFARE_CENTRIFUGO: 'hunter2' }],
  ['FANFARE_CENTRIFUGO_API_KEY', { ...ON, FANFARE_CENTRIFUGO_API_KEY: 'hunter2' }],
  ['FANFARE_CENTRIFUGO_API_KEY', { FANFARE_CENTRIFUGO_API_KEY: KEY }],
  [
    'FANFARE_CENTRIFUGO_API_KEY',
    { ...ON, FANFARE_CENTRIFUGO_API_KEY: [1, 2, 3, 4, 5].map((i) => KEY + i).join('\n') },
  ],
  ['FANFARE_CENTRIFUGO_ALLOW', { ...ON, FANFARE_CENTRIFUGO_ALLOW: 'subscribe' }],
  ['FANFARE_CENTRIFUGO_ALLOW', { ...ON, FANFARE_CENTRIFUGO_ALLOW: 'listen:news' }],
  ['FANFARE_CENTRIFUGO_ALLOW', { FANFARE_CENTRIFUGO_ALLOW: 'subscribe:news' }],
  ['FANFARE_CENTRIFUGO_PERSONAL', { ...ON, FANFARE_CENTRIFUGO_PERSONAL: 'personal' }],
  ['FANFARE_CENTRIFUGO_PERSONAL', { ...ON, FANFARE_CENTRIFUGO_PERSONAL: 'a:b:#' }],
  ['FANFARE_CENTRIFUGO_PERSONAL', { FANFARE_CENTRIFUGO_PERSONAL: '#' }],
  ['FANFARE_CENTRIFUGO_PATH', { ...ON, FANFARE_CENTRIFUGO_PATH: 'rt' }],
  ['FANFARE_CENTRIFUGO_API_PATH', { ...ON, FANFARE_CENTRIFUGO_API_PATH: '/' }],
])) {
  test(`${JSON.stringify(env)} is a fault of ${name}`, () => {
    const { config, faults } = loadConfig(env);
    assert.equal(config, null);
    assert.equal(faults.length, 1, faults.join('\n'));
    assert.ok(faults[0].startsWith(`${name}: `), faults[0]);
    if (name.endsWith('_KEY')) assert.doesNotMatch(faults[0], /hunter2/);
  });
}
