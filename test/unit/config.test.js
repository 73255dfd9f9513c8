import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { API_RIGHTS } from '../../src/config/api-keys.js';
import {
  changedFixed,
  describeConfig,
  loadConfig,
  parseConfigFile,
} from '../../src/config/config.js';
import { receivedConfig } from '../../src/config/handover.js';
import { listenFault } from '../../src/config/listen-fault.js';
import { oldNamesOf, RATES } from '../../src/config/rates.js';
import { LIMIT_MODES, SETTINGS } from '../../src/config/settings.js';
import { readFrom } from '../../src/config/texts.js';
import { configOf, faultOf } from '../helpers/config.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** Settings whose value depends on others. */
const RESOLVED = new Set(['FANFARE_CLIENT_BROADCAST', 'FANFARE_AUTH']);

test('an empty environment gives every default', () => {
  const config = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (configOf()));
  for (const setting of SETTINGS) {
    if (setting.part !== undefined || RESOLVED.has(setting.env)) continue;
    if (setting.type === 'rate') {
      const rate = `${config[setting.key]}/min burst ${config[setting.burst ?? '']}`;
      assert.equal(rate, setting.default, setting.env);
      continue;
    }
    const expected = typeof setting.default === 'function' ? setting.default() : setting.default;
    assert.deepEqual(config[setting.key], expected, setting.env);
  }
  for (const { key } of LIMIT_MODES) assert.equal(config[key], 'enforce', key);
  assert.deepEqual([config.clientBroadcast, config.auth, config.tokens], ['everyone', 'off', null]);
});

test('an empty or blank value counts as absent', () => {
  const config = configOf({
    PORT: '',
    WORKERS: '  ',
    FANFARE_LIMITS: '',
    REDIS_URL: '',
    API_KEYS: '',
    TRUST_PROXY: ' ',
  });
  assert.equal(config.port, 3000);
  assert.equal(config.redis, null);
});

test('the configuration and its lists are frozen', () => {
  const config = configOf({ ALLOWED_ORIGINS: 'https://a.example' });
  assert.ok(Object.isFrozen(config));
  assert.ok(Object.isFrozen(config.allowedOrigins));
  assert.ok(Object.isFrozen(configOf().allowedOrigins));
});

test('integers are read strictly', () => {
  assert.equal(configOf({ PORT: '0' }).port, 0);
  assert.equal(configOf({ PORT: ' 8080 ' }).port, 8080);
  for (const text of [
    '12abc',
    '1e3',
    '0x10',
    '3.0',
    '+5',
    '-1',
    '65536',
    'NaN',
    'Infinity',
    '1_000',
    '３',
    '99999999999999999999',
  ]) {
    assert.match(faultOf({ PORT: text }), /^PORT: ".*" is not an integer from 0 to 65535$/, text);
  }
});

test('if a value is not in its closed set, the fault names the allowed values', () => {
  assert.equal(
    faultOf({ LOG_LEVEL: 'verbose' }),
    'LOG_LEVEL: "verbose" is not one of trace, debug, info, warn, error, fatal, silent',
  );
  assert.equal(
    faultOf({ FANFARE_LIMITS: 'on' }),
    'FANFARE_LIMITS: "on" is not one of off, observe, enforce',
  );
});

test('FANFARE_LIMITS has a mode for all limits, and modes for single ones', () => {
  const config = configOf({ FANFARE_LIMITS: 'observe, frames=off,rooms=enforce' });
  assert.equal(config.framesPerMinuteMode, 'off');
  assert.equal(config.maxRoomsPerConnectionMode, 'enforce');
  assert.equal(config.overloadMode, 'observe');
  assert.equal(configOf({ FANFARE_LIMITS: 'frames=off' }).overloadMode, 'enforce');
  const names = LIMIT_MODES.map(({ limit }) => limit).join(', ');
  for (const [text, why] of [
    ['frame=off', 'names no limit; did you mean frames?'],
    ['bandwidth=off', `names no limit; the limits are ${names}`],
    ['frames=on', 'is not one of off, observe, enforce'],
    ['frames=off=off', 'is not one of off, observe, enforce'],
    ['=off', 'is not one of off, observe, enforce'],
    ['frames', 'is not one of off, observe, enforce'],
  ])
    assert.equal(faultOf({ FANFARE_LIMITS: text }), `FANFARE_LIMITS: "${text}" ${why}`);
  assert.match(
    faultOf({ FANFARE_LIMITS: 'off,observe' }),
    /"observe" is a second mode of all limits$/,
  );
  assert.match(faultOf({ FANFARE_LIMITS: 'rooms=off,rooms=off' }), /"rooms=off" is set twice$/);
});

test('a rate is one value: what a minute refills, and the burst', () => {
  const rate = (/** @type {string} */ text) => {
    const { apiMessagesPerMinute, apiMessagesBurst } = configOf({
      FANFARE_API_MESSAGES_RATE: text,
    });
    return [apiMessagesPerMinute, apiMessagesBurst];
  };
  assert.deepEqual(rate('300/min burst 20'), [300, 20]);
  assert.deepEqual(rate(' 300 / min  burst 20 '), [300, 20]);
  assert.deepEqual(rate('300/min'), [300, 10_000], 'the default burst');
  assert.deepEqual(rate(''), [60_000, 10_000]);
  for (const text of ['300', '300/s', '0/min', '300/min burst 0', '300/min 20', '2000000000/min'])
    assert.match(
      faultOf({ FANFARE_MESSAGES_RATE: text }),
      /^FANFARE_MESSAGES_RATE: "[^"]+" is not a rate/,
    );
});

test('the old names of rate and burst are read, with a warning that names the new one', () => {
  for (const { env, key, burst = '' } of RATES) {
    const [perMinute, atOnce] = oldNamesOf(env);
    const { config, warnings } = loadConfig({ [perMinute]: '7', [atOnce]: '9' });
    const values = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (config));
    assert.deepEqual([values[key], values[burst]], [7, 9], env);
    assert.deepEqual(warnings, [
      `${perMinute} and ${atOnce} are old names: set ${env}=7/min burst 9`,
    ]);
  }
  const { warnings } = loadConfig({ FANFARE_FRAMES_BURST: '5' });
  assert.deepEqual(warnings, [
    'FANFARE_FRAMES_BURST is an old name: set FANFARE_FRAMES_RATE=600/min burst 5',
  ]);
  assert.deepEqual(loadConfig({ FANFARE_FRAMES_RATE: '1/min' }).warnings, []);
  assert.equal(
    faultOf({ FANFARE_FRAMES_BURST: '5', FANFARE_FRAMES_RATE: '1/min' }),
    'FANFARE_FRAMES_BURST: FANFARE_FRAMES_RATE is set, too; set one of them',
  );
  assert.match(
    faultOf({ FANFARE_FRAMES_PER_MINUTE: '0' }),
    /^FANFARE_FRAMES_PER_MINUTE: "0" is not an/,
  );
});

test('each old name of a mode is read, with a warning that names the new one', () => {
  for (const { old, key, limit } of LIMIT_MODES) {
    const { config, warnings } = loadConfig({ [old]: 'observe' });
    assert.equal(config?.[key], 'observe');
    assert.deepEqual(warnings, [`${old} is an old name: set FANFARE_LIMITS=…,${limit}=observe`]);
    assert.equal(faultOf({ [old]: 'on' }), `${old}: "on" is not one of off, observe, enforce`);
    assert.equal(
      faultOf({ [old]: 'off', FANFARE_LIMITS: `${limit}=off` }),
      `${old}: FANFARE_LIMITS has a mode for ${limit}, too; set one of them`,
    );
  }
  assert.deepEqual(loadConfig({ FANFARE_LIMITS: 'frames=off' }).warnings, []);
});

test('a limit without its own mode follows FANFARE_LIMITS', () => {
  const config = configOf({
    FANFARE_LIMITS: 'off',
    FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'observe',
  });
  assert.equal(config.maxConnectionsPerIpMode, 'observe');
  assert.equal(config.messagesPerMinuteMode, 'off');
  assert.equal(config.overloadMode, 'off');
});

test('every fault is reported at once', () => {
  const { faults } = loadConfig({
    PORT: 'x',
    METRICS_PORT: 'y',
    LOG_LEVEL: 'z',
    FANFARE_NONSENSE: '1',
    TRUST_PROXY: 'all',
    JWT_SECRET: 's',
  });
  assert.deepEqual(faults.map((line) => line.split(':')[0]).sort(), [
    'FANFARE_NONSENSE',
    'JWT_SECRET',
    'LOG_LEVEL',
    'METRICS_PORT',
    'PORT',
    'TRUST_PROXY',
  ]);
});

test('the settings of Redis are one frozen entry, and a change is reported as REDIS_*', () => {
  const config = configOf({ REDIS_HOST: 'cache', REDIS_PASSWORD: 'hunter2' });
  assert.ok(Object.isFrozen(config.redis));
  assert.ok(
    !Object.keys(config).some((key) => /^redis(?!$|Prefix$|TimeoutMs$|Subscriptions$)/.test(key)),
  );
  assert.deepEqual(
    changedFixed(config, configOf({ REDIS_HOST: 'cache', REDIS_PASSWORD: 'hunter2' })),
    [],
  );
  assert.deepEqual(
    changedFixed(config, configOf({ REDIS_HOST: 'cache', REDIS_PASSWORD: 'hunter3' })),
    ['REDIS_*'],
  );
});

test('secrets of Redis from files may change with a reload, what they stand beside may not', (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'secret');
  const of = (/** @type {Record<string, string>} */ env, /** @type {string} */ text) => {
    writeFileSync(path, text);
    return configOf(env);
  };
  const host = { REDIS_HOST: 'cache', REDIS_USERNAME: 'fanfare' };
  const password = { ...host, REDIS_PASSWORD_FILE: path };
  assert.deepEqual(changedFixed(of(password, 'a'), of(password, 'b')), []);
  const other = { ...password, REDIS_USERNAME: 'other' };
  assert.deepEqual(changedFixed(of(password, 'a'), of(other, 'a')), ['REDIS_*']);
  const plain = { ...host, REDIS_PASSWORD: 'a' };
  assert.deepEqual(changedFixed(of(password, 'a'), of(plain, 'a')), ['REDIS_*']);
  const url = { REDIS_URL_FILE: path };
  const [a, b] = ['redis://u:a@cache', 'redis://v:b@cache'];
  assert.deepEqual(changedFixed(of(url, a), of(url, b)), []);
  assert.deepEqual(changedFixed(of(url, a), of(url, 'redis://u:a@other')), ['REDIS_*']);
});

test('settings that contradict each other are faults', () => {
  assert.match(faultOf({ PORT: '9090' }), /^METRICS_PORT: 9090 is also PORT/);
  configOf({ PORT: '0', METRICS_PORT: '0' });
  assert.match(faultOf({ FANFARE_STATE_DIR: '/proc/state' }), /^FANFARE_STATE_DIR: .* \/proc/);
  assert.match(
    faultOf({ FANFARE_HOOKS: fileURLToPath(import.meta.url), FANFARE_HOOK_TIMEOUT_MS: '8000' }),
    /^FANFARE_HOOK_TIMEOUT_MS: 8000 must be less than FANFARE_HANDSHAKE_TIMEOUT_MS/,
  );
  assert.match(faultOf({ FANFARE_HOOKS: '/no/such.js' }), /^FANFARE_HOOKS: cannot read .*ENOENT$/);
  assert.match(
    faultOf({ FANFARE_PING_INTERVAL_MS: '1000', FANFARE_PONG_TIMEOUT_MS: '1000' }),
    /^FANFARE_PONG_TIMEOUT_MS/,
  );
  assert.match(
    faultOf({ FANFARE_DRAIN_DELAY_MS: '5000', FANFARE_SHUTDOWN_TIMEOUT_MS: '5000' }),
    /^FANFARE_DRAIN_DELAY_MS/,
  );
  assert.match(faultOf({ FANFARE_MAX_UNSENT_BYTES: '20000' }), /^FANFARE_MAX_UNSENT_BYTES/);
  assert.match(
    faultOf({ FANFARE_REBALANCE_SKEW_PERCENT: '109' }),
    /^FANFARE_REBALANCE_SKEW_PERCENT: 109 is neither 0 nor at least 110/,
  );
  configOf({ FANFARE_REBALANCE_SKEW_PERCENT: '110' });
});

test('TRUST_PROXY is a hop count or a list of networks', () => {
  for (const text of [
    '',
    '0',
    '1',
    '2',
    '127.0.0.1/32',
    '10.0.0.0/8, ::1',
    'fd00::/8',
    'loopback,10.1.2.3',
  ])
    assert.equal(configOf({ TRUST_PROXY: text }).trustProxy, text);
  for (const text of [
    'true',
    'all',
    '*',
    '-1',
    '33',
    '1.5',
    '10/8',
    '10.0.0.0/33',
    '0.0.0.0/0',
    '010.0.0.1',
    'proxy.example',
    '10.0.0.1,',
    ',',
  ]) {
    if (text === '10.0.0.1,') configOf({ TRUST_PROXY: text });
    else
      assert.match(faultOf({ TRUST_PROXY: text }), /^TRUST_PROXY: .*; allowed: a hop count/, text);
  }
  assert.match(
    faultOf({ TRUST_PROXY: 'yes' }),
    /^TRUST_PROXY: "yes" is neither a hop count nor a CIDR;/,
  );
});

test('parameters of REDIS_URL have no effect, and a warning names them', () => {
  const { config, warnings } = loadConfig({
    REDIS_URL: 'rediss://:secret@cache.example:6380/1?family=0&ssl_cert_reqs=hunter2',
  });
  assert.deepEqual(config?.redis?.addresses, [{ host: 'cache.example', port: 6380 }]);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /^REDIS_URL: its parameters have no effect: family, ssl_cert_reqs\./);
  assert.deepEqual(loadConfig({ REDIS_URL: 'redis://cache.example/1' }).warnings, []);
});

test('origins are normalized to the form that browsers send', () => {
  const text =
    'https://App.Example:443, http://localhost:8080 ,https://bücher.example,capacitor://localhost,https://app.example';
  assert.deepEqual(configOf({ ALLOWED_ORIGINS: text }).allowedOrigins, [
    'https://app.example',
    'http://localhost:8080',
    'https://xn--bcher-kva.example',
    'capacitor://localhost',
  ]);
  const starred = 'https://*.App.Example:443,http://*.localhost:8080,https://*.bücher.example:8443';
  assert.deepEqual(configOf({ ALLOWED_ORIGINS: starred }).allowedOrigins, [
    'https://*.app.example',
    'http://*.localhost:8080',
    'https://*.xn--bcher-kva.example:8443',
  ]);
  for (const entry of [
    'https://a.example/',
    'https://a.example/path',
    'a.example',
    '*',
    'https://*',
    'https://*.com',
    'https://*.com:8443',
    'https://a.*.example',
    'https://*a.example',
    'https://*.*.example',
    'https://*.a.example/',
    'https://*.a.example:x',
    'https://*.1.2.3',
    'https://*.[::1]',
    '*.a.example',
    '*://*.a.example',
    'null',
    'https://u@a.example',
    'https://a.example:99999',
    'file://',
    'https://a.example?q',
    'https://a example',
  ]) {
    assert.match(
      faultOf({ ALLOWED_ORIGINS: entry }),
      /^ALLOWED_ORIGINS: ".*" is not an origin/,
      entry,
    );
  }
});

test('a setting of another version is refused, and its value is not shown', () => {
  const line = faultOf({ JWKS_URL: 'hunter2' });
  assert.match(line, /^JWKS_URL: /);
  assert.doesNotMatch(line, /hunter2/);
});

const JWT_SECRET = 'hunter2-hunter2-hunter2-hunter2-';

test('tokens are required if a key is configured, unless FANFARE_AUTH has another value', () => {
  assert.equal(configOf({ JWT_SECRET }).auth, 'required');
  assert.equal(configOf({ JWT_JWKS_URL: 'https://id.example/jwks.json' }).auth, 'required');
  assert.equal(configOf({ JWT_SECRET, FANFARE_AUTH: 'optional' }).auth, 'optional');
  const off = configOf({ JWT_SECRET, FANFARE_AUTH: 'off' });
  assert.deepEqual([off.auth, off.tokens], ['off', null]);
  for (const mode of ['required', 'optional'])
    assert.match(faultOf({ FANFARE_AUTH: mode }), /^FANFARE_AUTH: .* needs JWT_SECRET/);
});

test('two secrets, two public keys and a JWKS may be configured at once', () => {
  const pem = () =>
    generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }).toString();
  const { tokens } = configOf({
    JWT_SECRET: `${JWT_SECRET}\n${JWT_SECRET}2`,
    JWT_PUBLIC_KEY: `${pem()}${pem()}`.replaceAll('\n', '\\n'),
    JWT_JWKS_URL: 'http://localhost:1/jwks.json',
    JWT_AUDIENCE: 'a, b',
  });
  assert.ok(tokens);
  assert.deepEqual([tokens.secrets.length, tokens.publicKeys.length], [2, 2]);
  assert.deepEqual(tokens.audience, ['a', 'b']);
});

test('the old names of second keys are read, with a warning that names the new one', () => {
  const key = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' });
  const { config, warnings } = loadConfig({
    JWT_SECRET,
    JWT_SECRET_PREVIOUS: `${JWT_SECRET}2`,
    JWT_PUBLIC_KEY_PREVIOUS: String(key),
  });
  assert.deepEqual(config?.tokens?.secrets, [JWT_SECRET, `${JWT_SECRET}2`]);
  assert.equal(config?.tokens?.publicKeys.length, 1);
  assert.deepEqual(warnings, [
    'JWT_SECRET_PREVIOUS is an old name: add it to JWT_SECRET, on a line of its own',
    'JWT_PUBLIC_KEY_PREVIOUS is an old name: add the key to those of JWT_PUBLIC_KEY',
  ]);
});

test('a public key may be in a file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-test-'));
  const path = join(folder, 'key.pem');
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  writeFileSync(path, publicKey.export({ type: 'spki', format: 'pem' }));
  assert.equal(configOf({ JWT_PUBLIC_KEY: path }).tokens?.publicKeys.length, 1);
  rmSync(folder, { recursive: true });
});

for (const [name, env] of /** @type {[string, Record<string, string>][]} */ ([
  ['JWT_SECRET', { JWT_SECRET: 'hunter2' }],
  ['JWT_SECRET_PREVIOUS', { JWT_SECRET, JWT_SECRET_PREVIOUS: 'hunter2' }],
  ['JWT_SECRET_PREVIOUS', { JWT_SECRET_PREVIOUS: JWT_SECRET }],
  ['JWT_PUBLIC_KEY', { JWT_PUBLIC_KEY: '/hunter2/no/such/file' }],
  ['JWT_PUBLIC_KEY', { JWT_PUBLIC_KEY: '-----BEGIN PUBLIC KEY----- hunter2' }],
  ['JWT_JWKS_URL', { JWT_JWKS_URL: 'http://hunter2.example/jwks.json' }],
  ['JWT_JWKS_URL', { JWT_JWKS_URL: 'https://user:hunter2@id.example/' }],
  ['JWT_JWKS_URL', { JWT_JWKS_URL: 'hunter2' }],
  ['JWT_ALGORITHMS', { JWT_SECRET, JWT_ALGORITHMS: 'none' }],
  ['JWT_ALGORITHMS', { JWT_SECRET, JWT_ALGORITHMS: 'RS256' }],
])) {
  test(`${JSON.stringify(env)} is a fault of ${name} that shows no value`, () => {
    const line = faultOf(env);
    assert.ok(line.startsWith(`${name}: `), line);
    assert.doesNotMatch(line, /hunter2/);
  });
}

const API_SECRET = 'hunter2-hunter2-hunter2-hunter2-';
const sha256 = (/** @type {string} */ text) => createHash('sha256').update(text).digest('hex');

test('API keys have a name, a secret or its hash, rights and perhaps rooms', () => {
  const hash = sha256('another secret');
  const { apiKeys } = configOf({
    API_KEYS: `web ${API_SECRET} publish,history rooms=chat.*,news; ops sha256:${hash.toUpperCase()} all`,
  });
  assert.deepEqual(apiKeys, [
    {
      name: 'web',
      hash: sha256(API_SECRET),
      rights: ['publish', 'history'],
      rooms: ['chat.*', 'news'],
      app: null,
    },
    { name: 'ops', hash, rights: API_RIGHTS, rooms: null, app: null },
  ]);
});

const APP = {
  FANFARE_PUSHER_APP_ID: '7',
  FANFARE_PUSHER_APP_KEY: 'k',
  FANFARE_PUSHER_APP_SECRET: 'a-secret-of-32-or-more-characters',
};

test('an API key of an app has no right that is about all apps', () => {
  const { apiKeys } = configOf({
    ...APP,
    API_KEYS: `a ${API_SECRET} all app=7; b ${API_SECRET}2 publish app=7 rooms=chat.*`,
  });
  const [all, limited] = apiKeys;
  assert.deepEqual(
    all.rights,
    API_RIGHTS.filter((right) => right !== 'broadcast' && right !== 'console'),
  );
  assert.deepEqual([all.app, all.rooms], ['7', null]);
  assert.deepEqual([limited.app, limited.rooms], ['7', ['chat.*']]);
});

test('an API key of an app that there is not is a fault', () => {
  const text = `API_KEYS: the key a names an app that FANFARE_PUSHER_APPS lacks`;
  assert.equal(faultOf({ ...APP, API_KEYS: `a ${API_SECRET} all app=8` }), text);
  assert.match(faultOf({ API_KEYS: `a ${API_SECRET} all app=8` }), /lacks/);
});

test('API keys may be in a file with comments, beside those of the environment', () => {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-test-'));
  const path = join(folder, 'keys');
  writeFileSync(
    path,
    `# keys\n\nweb\t${API_SECRET}\tpublish # old\r\nweb ${API_SECRET}2 publish\n`,
  );
  const { apiKeys } = configOf({ API_KEYS_FILE: path, API_KEYS: `ops ${API_SECRET}3 all` });
  assert.deepEqual(
    apiKeys.map(({ name }) => name),
    ['ops', 'web', 'web'],
  );
  rmSync(folder, { recursive: true });
});

for (const [name, env] of /** @type {[string, Record<string, string>][]} */ ([
  ['API_KEYS, key 1', { API_KEYS: API_SECRET }],
  ['API_KEYS, key 1', { API_KEYS: 'web hunter2 all' }],
  ['API_KEYS, key 1', { API_KEYS: `${API_SECRET}! ${API_SECRET} all` }],
  ['API_KEYS, key 2', { API_KEYS: `a ${API_SECRET} all; b ${API_SECRET}2 publish,hunter2` }],
  ['API_KEYS, key 1', { API_KEYS: `a ${API_SECRET} all hunter2` }],
  ['API_KEYS, key 1', { API_KEYS: `a ${API_SECRET} all rooms=hunter2!` }],
  ['API_KEYS, key 1', { API_KEYS: `a ${API_SECRET} all rooms=` }],
  ['API_KEYS, key 1', { ...APP, API_KEYS: `a ${API_SECRET} all app=hunter2:` }],
  ['API_KEYS, key 1', { ...APP, API_KEYS: `a ${API_SECRET} all app=7 app=7` }],
  ['API_KEYS, key 1', { ...APP, API_KEYS: `a ${API_SECRET} broadcast app=7` }],
  ['API_KEYS, key 1', { ...APP, API_KEYS: `a ${API_SECRET} publish,console app=7` }],
  ['API_KEYS', { API_KEYS: `a ${API_SECRET} all; b ${API_SECRET} all` }],
  ['API_KEYS_FILE', { API_KEYS_FILE: '/hunter2/no/such/file' }],
  [
    'FANFARE_API_MAX_BODY_BYTES',
    { API_KEYS: `a ${API_SECRET} all`, FANFARE_API_MAX_BODY_BYTES: '1024' },
  ],
])) {
  test(`${JSON.stringify(env)} is a fault of ${name} that shows no value`, () => {
    const line = faultOf(env);
    assert.ok(line.startsWith(`${name}: `), line);
    assert.doesNotMatch(line, /hunter2/);
  });
}

test('the banner says whether there is an HTTP API, and shows no key', () => {
  assert.equal(describeConfig(configOf()).api, 'off: no API_KEYS are configured');
  assert.equal(describeConfig(configOf({ API_KEYS: `a ${API_SECRET} all` })).api, '/api, 1 key');
  assert.equal(describeConfig(configOf()).pusher, '');
  const app = {
    FANFARE_PUSHER_APP_ID: '7',
    FANFARE_PUSHER_APP_KEY: 'k',
    FANFARE_PUSHER_PATH: '/ws',
  };
  const shown = describeConfig(configOf({ ...app, FANFARE_PUSHER_APP_SECRET: API_SECRET })).pusher;
  assert.equal(shown, '/ws/app, /apps: app 7');
});

test('clients may broadcast if no tokens are configured; otherwise their tokens decide', () => {
  assert.equal(configOf({ JWT_SECRET }).clientBroadcast, 'granted');
  assert.equal(
    configOf({ JWT_SECRET, FANFARE_CLIENT_BROADCAST: 'on' }).clientBroadcast,
    'everyone',
  );
  assert.equal(configOf({ FANFARE_CLIENT_BROADCAST: 'off' }).clientBroadcast, 'none');
});

test('changed settings that a reload cannot apply are found', () => {
  const old = configOf({ REDIS_HOST: 'a' });
  assert.deepEqual(changedFixed(old, configOf({ REDIS_HOST: 'a', LOG_LEVEL: 'warn' })), []);
  assert.deepEqual(changedFixed(old, configOf({ REDIS_HOST: 'b', PORT: '4000' })), [
    'PORT',
    'REDIS_*',
  ]);
});

test('a configuration file is lines of NAME=value', () => {
  const { env, faults } = parseConfigFile(
    '\uFEFF# comment\r\n\r\nPORT = 4000\r\nFANFARE_LIMITS="off"\nREDIS_URL=redis://u:a=b@h\n',
  );
  assert.deepEqual(faults, []);
  assert.deepEqual(
    { ...env },
    { PORT: '4000', FANFARE_LIMITS: 'off', REDIS_URL: 'redis://u:a=b@h' },
  );
});

test('a configuration file reports its faults by line, without values', () => {
  const { faults } = parseConfigFile(
    'hunter2\nPORTT=1\nPORT=1\nPORT=2\nFANFARE_CONFIG_FILE=x\n__proto__=hunter2\nFOO=1',
  );
  assert.deepEqual(faults, [
    'FANFARE_CONFIG_FILE, line 1: not NAME=value',
    'FANFARE_CONFIG_FILE, line 2: unknown setting PORTT; did you mean PORT?',
    'FANFARE_CONFIG_FILE, line 4: PORT is set twice',
    'FANFARE_CONFIG_FILE, line 5: a configuration file cannot name another one',
    'FANFARE_CONFIG_FILE, line 6: unknown setting __proto__',
    // PORT has half of its letters, so it is no likely meaning.
    'FANFARE_CONFIG_FILE, line 7: unknown setting FOO',
  ]);
});

test('the banner describes how tokens are checked, and shows no key', () => {
  const { access } = describeConfig(
    configOf({ JWT_SECRET, JWT_JWKS_URL: 'https://id.example/hunter2' }),
  );
  assert.match(access, /^tokens required, .*: 1 secret, a JWKS of id\.example$/);
});

test('the description of a configuration shows no secret', () => {
  const shown = describeConfig(
    configOf({ REDIS_URL: 'rediss://user:hunter2@cache:6380/2', FANFARE_LIMITS: 'observe' }),
  );
  assert.equal(shown.broker, 'Redis at rediss://cache:6380/2');
  assert.match(shown.limits, /^100 connections per address \(observe\), .*, 100 KiB per message$/);
  assert.match(shown.rates, /^1800 messages per minute per connection \(observe\), /);
  assert.match(shown.access, /open to everyone/);
});

test('a bucket for large messages needs credentials and a plain URL, and no fault quotes one', () => {
  const bucket = {
    FANFARE_BLOB_URL: 'https://s3.example.com/bucket/fanfare/',
    AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
    AWS_SECRET_ACCESS_KEY: 'secret-key',
  };
  const { config } = loadConfig(bucket);
  assert.equal(config?.blobs?.url, 'https://s3.example.com/bucket/fanfare');
  assert.equal(config?.blobs?.publicUrl, config?.blobs?.url);
  assert.equal(loadConfig({ AWS_ACCESS_KEY_ID: 'x' }).config?.blobs, null);
  const faultsOf = (/** @type {Record<string, string>} */ env) => loadConfig(env).faults.join('\n');
  assert.match(
    faultsOf({ ...bucket, AWS_SECRET_ACCESS_KEY: '' }),
    /^AWS_SECRET_ACCESS_KEY: required/,
  );
  for (const url of [
    's3://bucket',
    'https://a:b@host/x',
    'https://host/x?y=1',
    'https://host/a b',
  ]) {
    const text = faultsOf({ ...bucket, FANFARE_BLOB_URL: url });
    assert.match(text, /^FANFARE_BLOB_URL: its value is not http/);
    assert.ok(!text.includes(url) && !text.includes('secret-key'));
  }
  assert.match(faultsOf({ FANFARE_BLOB_PUBLIC_URL: bucket.FANFARE_BLOB_URL }), /has no effect/);
  const history = { FANFARE_HISTORY: 'a=5/7d', FANFARE_BLOB_TTL_DAYS: '7' };
  assert.match(faultsOf({ ...bucket, ...history }), /^FANFARE_BLOB_TTL_DAYS: 7 is less/);
  assert.equal(faultsOf(history), '');
  const unsent = { FANFARE_MAX_UNSENT_BYTES: '200000' };
  assert.match(faultsOf({ ...bucket, ...unsent }), /^FANFARE_MAX_INLINE_BYTES: /);
});

test('each secret can be read from a file, whose end of line does not count', (t) => {
  const folder = temporaryFolder(t);
  const file = (/** @type {string} */ name, /** @type {string} */ text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const config = configOf({
    JWT_SECRET_FILE: file('jwt', `${'n'.repeat(32)}\n${'o'.repeat(32)}\r\n`),
    REDIS_HOST: 'r',
    REDIS_PASSWORD_FILE: file('redis', 'hush\n'),
  });
  assert.deepEqual(config.tokens?.secrets, ['n'.repeat(32), 'o'.repeat(32)]);
  assert.equal(config.redis?.password, 'hush');
  const docs = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
  const secrets = SETTINGS.filter(
    ({ env, secret, old }) => secret && env !== 'API_KEYS' && old === undefined,
  );
  for (const { env } of secrets) assert.ok(docs.includes(`\`${env}_FILE\``), `${env} in the docs`);
  for (const { env } of secrets)
    assert.match(
      faultOf({ [`${env}_FILE`]: join(folder, 'none') }),
      new RegExp(`^${env}_FILE: the file cannot be read \\(ENOENT\\)$`),
    );
});

test('a file without a secret, or beside the setting itself, is a fault that quotes nothing', (t) => {
  const path = join(temporaryFolder(t), 'empty');
  writeFileSync(path, '\n');
  // If it counted as absent, a reload in the middle of a write would open the server.
  assert.equal(faultOf({ JWT_SECRET_FILE: path }), 'JWT_SECRET_FILE: the file is empty');
  assert.equal(
    faultOf({ JWT_SECRET: 's'.repeat(32), JWT_SECRET_FILE: path }),
    'JWT_SECRET_FILE: JWT_SECRET is set, too; set one of them',
  );
  writeFileSync(path, `${'s'.repeat(32)}\nshort\n`);
  assert.doesNotMatch(faultOf({ JWT_SECRET_FILE: path }), /short|sss/);
});

test('several secrets of JWT_SECRET are accepted, and the first one signs', () => {
  const [one, two, three] = ['1', '2', '3'].map((digit) => digit.repeat(32));
  const { tokens } = configOf({ JWT_SECRET: `${one}\n ${two}\n`, JWT_SECRET_PREVIOUS: three });
  assert.deepEqual(tokens?.secrets, [one, two, three]);
  assert.match(
    faultOf({ JWT_SECRET: Array.from({ length: 5 }, (_, i) => `${i}`.repeat(32)).join('\n') }),
    /^JWT_SECRET: its value has 5 lines, at most 4$/,
  );
});

test('a port or a temporary folder that cannot be used is named, other faults are not', () => {
  const error = (/** @type {string} */ code, /** @type {string} */ syscall) =>
    Object.assign(new Error(), { code, syscall });
  const wanted = /** @type {const} */ ({ name: 'PORT', port: 80, host: '' });
  assert.match(listenFault(error('EACCES', 'bind'), wanted), /^port 80 \(PORT\) is not permitted/);
  assert.match(
    listenFault({ ...error('EROFS', 'mkdtemp'), path: '/tmp/fanfare-abc' }, wanted),
    /^cannot write to the temporary folder \/tmp \(EROFS\)/,
  );
  assert.equal(listenFault(error('EACCES', 'mkdir'), wanted), '');
  assert.equal(listenFault(error('EMFILE', 'listen'), wanted), '');
});

test('a worker gets the configuration of the primary, and reads no files', (t) => {
  const folder = temporaryFolder(t);
  const paths = ['jwt', 'keys', 'webhooks', 'apps'].map((name) => join(folder, name));
  const [jwt, keys, webhooks, apps] = paths;
  writeFileSync(jwt, 'x'.repeat(32));
  writeFileSync(keys, `web ${'2b'.repeat(16)} all`);
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  writeFileSync(webhooks, JSON.stringify([{ name: 'one', url: 'https://example.com/', secret }]));
  writeFileSync(
    apps,
    JSON.stringify([
      {
        ...{ id: '1', key: 'k'.repeat(20), secrets: ['s'.repeat(20)], cacheTtl: 60 },
        ...{ subscriptionCount: true, history: ['a*=1/1h'], presence: ['b'] },
        webhooks: [{ url: 'https://example.com/', events: ['member_added'] }],
      },
    ]),
  );
  const env = {
    ...{ JWT_SECRET_FILE: jwt, API_KEYS_FILE: keys },
    ...{ FANFARE_WEBHOOKS: webhooks, FANFARE_PUSHER_APPS: apps, FANFARE_HISTORY: 'x=1/1h' },
    ...{ REDIS_URL: 'rediss://u:p@cache:6380/1', REDIS_SENTINEL_PASSWORD: '', REDIS_PREFIX: 'a' },
    ...{ FANFARE_CENTRIFUGO: 'on', FANFARE_CENTRIFUGO_ALLOW: 'subscribe:news:*' },
    ...{ FANFARE_BLOB_URL: 'https://bucket.example/b', AWS_ACCESS_KEY_ID: 'a' },
    ...{ AWS_SECRET_ACCESS_KEY: 'b', FANFARE_STATE: 's=1/1h', FANFARE_MESSAGES_RATE: '9/min' },
  };
  const texts = Object.fromEntries(paths.map((path) => [path, readFileSync(path, 'utf8')]));
  const first = loadConfig(env);
  assert.deepEqual(first.faults, []);
  for (const path of paths) rmSync(path);
  const received = receivedConfig(JSON.parse(JSON.stringify(first.config)));
  assert.deepEqual(received, first.config);
  assert.ok(received.pusher?.byId.get('1') === received.pusher?.apps[0]);
  assert.ok(received.webhooks?.covers('room.occupied', 'a') && received.webhooks.counts('~1:a'));
  assert.ok(Object.isFrozen(received.pusher?.apps[0].history[0].value));
  assert.deepEqual(loadConfig(env, readFrom(texts)), first, 'a primary of 0.2 sends texts');
});
