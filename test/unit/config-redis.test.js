// config-redis.test.js: the settings of Redis, the options for ioredis, and the text for people.

import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/config.js';
import { describeRedis, fixedRedis, redisOptions, redisSecrets } from '../../src/config/redis.js';
import { aclRule } from '../helpers/redis-topologies.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @param {Record<string, string>} env */
function read(env) {
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.ok(config?.redis);
  return config.redis;
}

/**
 * @param {Record<string, string>} env
 * @returns {string} the only fault
 */
function fault(env) {
  const { faults } = loadConfig(env);
  assert.equal(faults.length, 1, faults.join('\n'));
  return faults[0];
}

test('one server is configured by URL or by host', () => {
  assert.deepEqual(read({ REDIS_URL: 'redis://cache' }), {
    kind: 'server',
    addresses: [{ host: 'cache', port: 6379 }],
    name: '',
    database: 0,
    username: '',
    password: '',
    sentinelUsername: '',
    sentinelPassword: '',
    tls: null,
  });
  const { addresses, username, password, database, tls } = read({
    REDIS_URL: 'rediss://user:p%40ss@[::1]:6380/2',
  });
  assert.deepEqual(addresses, [{ host: '::1', port: 6380 }]);
  assert.deepEqual([username, password, database], ['user', 'p@ss', 2]);
  assert.deepEqual(tls, { caFile: '', certFile: '', keyFile: '', servername: '' });
  for (const [host, text] of [
    ['cache', 'cache'],
    ['::1', '::1'],
    ['[::1]', '::1'],
  ]) {
    assert.deepEqual(read({ REDIS_HOST: host, REDIS_PORT: '7000' }).addresses, [
      { host: text, port: 7000 },
    ]);
  }
  // A password may come from a secret store, beside a URL that is not secret.
  assert.equal(read({ REDIS_URL: 'redis://cache', REDIS_PASSWORD: 'hunter2' }).password, 'hunter2');
});

test('Sentinels and nodes of a cluster are lists', () => {
  const sentinel = read({
    REDIS_SENTINELS: 'a, b:1, [::1]:2',
    REDIS_SENTINEL_NAME: 'main',
    REDIS_TLS: 'on',
  });
  assert.equal(sentinel.kind, 'sentinel');
  assert.deepEqual(sentinel.addresses, [
    { host: 'a', port: 26_379 },
    { host: 'b', port: 1 },
    { host: '::1', port: 2 },
  ]);
  assert.equal(
    describeRedis(sentinel),
    'Redis primary main through Sentinel (a:26379, b:1, [::1]:2, TLS)',
  );
  const cluster = read({ REDIS_CLUSTER: 'a,b:1', REDIS_USERNAME: 'u', REDIS_PASSWORD: 'p' });
  assert.equal(cluster.kind, 'cluster');
  assert.equal(describeRedis(cluster), 'Redis Cluster (a:6379, b:1)');
  for (const list of [',', 'a:0', 'a:65536', 'a:b', 'redis://a', 'user:hunter2@a', 'a b']) {
    assert.match(fault({ REDIS_CLUSTER: list }), /^REDIS_CLUSTER: its value is not a list/, list);
  }
});

test('settings that contradict each other or have no effect are faults, and all are reported', () => {
  assert.match(
    fault({ REDIS_URL: 'redis://a', REDIS_HOST: 'b' }),
    /^REDIS_HOST: conflicts with REDIS_URL/,
  );
  assert.match(
    fault({ REDIS_URL: 'redis://a', REDIS_CLUSTER: 'b' }),
    /^REDIS_CLUSTER: conflicts with REDIS_URL/,
  );
  assert.match(
    fault({ REDIS_URL: 'redis://a', REDIS_PORT: '7000' }),
    /^REDIS_PORT: conflicts with REDIS_URL/,
  );
  assert.match(fault({ REDIS_PORT: '7000' }), /^REDIS_PORT: has no effect without REDIS_HOST/);
  assert.match(fault({ REDIS_SENTINELS: 'a' }), /^REDIS_SENTINEL_NAME: required/);
  assert.match(
    fault({ REDIS_HOST: 'a', REDIS_SENTINEL_NAME: 'b' }),
    /^REDIS_SENTINEL_NAME: has no effect/,
  );
  assert.match(fault({ REDIS_PASSWORD: 'hunter2' }), /^REDIS_PASSWORD: has no effect/);
  assert.match(fault({ REDIS_TLS: 'on' }), /^REDIS_TLS: has no effect/);
  assert.match(
    fault({ REDIS_URL: 'redis://a', REDIS_TLS: 'on' }),
    /^REDIS_TLS: conflicts with REDIS_URL/,
  );
  assert.match(
    fault({ REDIS_URL: 'rediss://a', REDIS_TLS: 'off' }),
    /^REDIS_TLS: conflicts with REDIS_URL/,
  );
  assert.match(
    fault({ REDIS_HOST: 'a', REDIS_USERNAME: 'b' }),
    /^REDIS_USERNAME: has no effect without REDIS_PASSWORD/,
  );
  assert.match(
    fault({ REDIS_URL: 'redis://:x@a', REDIS_PASSWORD: 'y' }),
    /^REDIS_PASSWORD: conflicts with REDIS_URL/,
  );
  assert.match(
    fault({ REDIS_HOST: 'a', REDIS_TLS_SERVERNAME: 'b' }),
    /^REDIS_TLS_SERVERNAME: has no effect/,
  );
  assert.match(
    fault({ REDIS_URL: 'rediss://a', REDIS_TLS_CA_FILE: '/none' }),
    /^REDIS_TLS_CA_FILE: cannot read \/none: ENOENT/,
  );
  assert.match(
    fault({ REDIS_URL: 'rediss://a', REDIS_TLS_CERT_FILE: import.meta.filename }),
    /^REDIS_TLS_KEY_FILE: required/,
  );
  assert.equal(
    loadConfig({ REDIS_PASSWORD: 'x', REDIS_SENTINELS: 'a', REDIS_TLS_KEY_FILE: '/none' }).faults
      .length,
    4,
  );
});

test('replicas to hear from are a URL or a list, with the access of the primary unless they have their own', (t) => {
  const primary = { REDIS_URL: 'redis://user:hush@cache/2' };
  const one = read({ ...primary, REDIS_SUBSCRIBE_URL: 'redis://near' });
  assert.equal(one.subscribe?.kind, 'server');
  assert.deepEqual(redisOptions(/** @type {any} */ (one.subscribe)), {
    ...{ username: 'user', password: 'hush', tls: undefined, host: 'near', port: 6379, db: 0 },
  });
  assert.equal(
    describeRedis(one),
    'Redis at redis://cache:6379/2, heard through redis://near:6379',
  );
  const two = read({
    ...{ REDIS_SENTINELS: 'a,b', REDIS_SENTINEL_NAME: 'main', REDIS_SENTINEL_PASSWORD: 'guard' },
    REDIS_SUBSCRIBE_URL: 'rediss://:a,b@near:1 , rediss://:a,b@next:2',
    REDIS_TLS_SERVERNAME: 'name',
  });
  assert.deepEqual(two.subscribe?.addresses, [
    { host: 'near', port: 1 },
    { host: 'next', port: 2 },
  ]);
  assert.equal(two.tls, null);
  assert.deepEqual(redisOptions(/** @type {any} */ (two.subscribe)), {
    ...{ username: undefined, password: 'a,b', tls: { servername: 'name' } },
    ...{ host: 'near', port: 1, db: 0 },
  });
  assert.doesNotMatch(describeRedis(two), /a,b@|guard/);
  for (const [env, expected] of /** @type {[Record<string, string>, RegExp][]} */ ([
    [{ REDIS_SUBSCRIBE_URL: 'redis://near' }, /has no effect without REDIS_URL/],
    [{ REDIS_CLUSTER: 'a', REDIS_SUBSCRIBE_URL: 'redis://near' }, /conflicts with REDIS_CLUSTER/],
    [{ ...primary, REDIS_SUBSCRIBE_URL: 'near:6379?p=hunter2' }, /its value is not redis:/],
    [{ ...primary, REDIS_SUBSCRIBE_URL: 'redis://:hunter2@a,b' }, /its value is not redis:/],
    [
      { ...primary, REDIS_SUBSCRIBE_URL: 'redis://:hunter2@a,redis://b' },
      /its URLs differ in more than the host and the port/,
    ],
  ])) {
    const line = fault(env);
    assert.match(line, /^REDIS_SUBSCRIBE_URL: /);
    assert.match(line, expected);
    assert.doesNotMatch(line, /hunter2/);
  }
  // Passwords of files are read again before each attempt to connect.
  const folder = temporaryFolder(t);
  const file = (/** @type {string} */ name, /** @type {string} */ text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const ofPrimary = read({
    ...{ REDIS_HOST: 'cache', REDIS_SUBSCRIBE_URL: 'redis://near' },
    REDIS_PASSWORD_FILE: file('password', 'old'),
  });
  file('password', 'new');
  assert.equal(redisOptions(/** @type {any} */ (ofPrimary.subscribe)).password, 'new');
  const own = read({
    REDIS_HOST: 'cache',
    REDIS_PASSWORD_FILE: join(folder, 'password'),
    REDIS_SUBSCRIBE_URL_FILE: file('url', 'redis://u:old@near,redis://u:old@next'),
  });
  file('url', 'redis://u:new@near,redis://u:new@next');
  assert.equal(redisOptions(/** @type {any} */ (own.subscribe)).password, 'new');
  file('password', 'of the primary');
  assert.equal(redisOptions(own).password, 'of the primary');
  const reloaded = read({
    REDIS_HOST: 'cache',
    REDIS_PASSWORD_FILE: join(folder, 'password'),
    REDIS_SUBSCRIBE_URL_FILE: join(folder, 'url'),
  });
  assert.deepEqual(fixedRedis(own), fixedRedis(reloaded));
});

test('a secret is never shown', () => {
  for (const url of [
    'http://hunter2@cache',
    'cache:6379?p=hunter2',
    'redis://',
    'redis://:hunter2@',
    'hunter2',
    'redis://a/hunter2',
    'redis://hunter2:70000',
    'redis://a\nhunter2',
    'redis://:hunter2%@a',
  ]) {
    const line = fault({ REDIS_URL: url });
    assert.match(line, /^REDIS_URL: /);
    assert.doesNotMatch(line, /hunter2/);
  }
  assert.doesNotMatch(fault({ REDIS_HOST: 'user:hunter2@cache' }), /hunter2/);
  assert.doesNotMatch(fault({ REDIS_CLUSTER: 'redis://:hunter2@cache' }), /hunter2/);
  const settings = read({ REDIS_URL: 'redis://user:p%40ss@cache' });
  assert.deepEqual(redisSecrets(settings), ['p@ss', 'p%40ss']);
  assert.equal(describeRedis(settings), 'Redis at redis://cache:6379');
});

test('certificates are read when a connection is made', (t) => {
  const folder = temporaryFolder(t);
  const caFile = join(folder, 'ca.pem');
  writeFileSync(caFile, 'old');
  const settings = read({
    REDIS_HOST: 'a',
    REDIS_TLS: 'on',
    REDIS_TLS_CA_FILE: caFile,
    REDIS_TLS_SERVERNAME: 'name',
  });
  writeFileSync(caFile, 'new');
  assert.deepEqual(redisOptions(settings).tls, { ca: Buffer.from('new'), servername: 'name' });
  rmSync(caFile);
  assert.throws(() => redisOptions(settings), /ENOENT/);
});

test('docs/deployment.md names the ACL rights that the contract tests use', () => {
  const readme = readFileSync(new URL('../../docs/deployment.md', import.meta.url), 'utf8');
  assert.ok(readme.includes(`ACL SETUSER fanfare on >SECRET ${aclRule('fanfare:')}\n`));
});

test('a prefix with braces is a fault, because braces select the slot of a name in a cluster', () => {
  for (const prefix of ['{app}:', 'app{', 'app}:'])
    assert.deepEqual(loadConfig({ FANFARE_REDIS_PREFIX: prefix }).faults, [
      'FANFARE_REDIS_PREFIX: braces are not allowed',
    ]);
  assert.deepEqual(loadConfig({ FANFARE_REDIS_PREFIX: 'app:1' }).faults, []);
});

test('REDIS_SUBSCRIPTIONS is accepted, with and without Redis', () => {
  for (const env of [{ REDIS_URL: 'redis://cache' }, { REDIS_CLUSTER: 'one' }, {}])
    for (const value of ['worker', 'server'])
      assert.deepEqual(loadConfig({ ...env, REDIS_SUBSCRIPTIONS: value }).faults, []);
});
