// config-names.test.js: unknown and misspelt names of settings (src/config/names.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig, parseConfigFile } from '../../src/config/config.js';
import { configOf, faultOf } from '../helpers/config.js';

test('an unknown FANFARE_ name is refused with the nearest known name, whatever its case', () => {
  const cases = {
    FANFARE_LIMIT: 'FANFARE_LIMITS',
    FANFARE_MAX_CONECTIONS_PER_IP: 'FANFARE_MAX_CONNECTIONS_PER_IP',
    FANFARE_PING_INTERVAL: 'FANFARE_PING_INTERVAL_MS',
    FANFARE_PORT: 'PORT',
    FANFARE_REDIS_URL: 'REDIS_URL',
    fanfare_limits: 'FANFARE_LIMITS',
  };
  for (const [name, nearest] of Object.entries(cases))
    assert.equal(faultOf({ [name]: '1' }), `${name}: unknown setting; did you mean ${nearest}?`);
  assert.equal(faultOf({ FANFARE_QQQQQQQQQ: '1' }), 'FANFARE_QQQQQQQQQ: unknown setting');
});

test('the variables of the commands for a running server are no settings, and no typing errors', () => {
  configOf({ FANFARE_URL: 'http://localhost:3000', FANFARE_API_KEY: 'x', FANFARE_TOKEN: 'y' });
  assert.match(faultOf({ FANFARE_TOKENS: 'y' }), /^FANFARE_TOKENS: unknown setting/);
  const { faults } = parseConfigFile('FANFARE_TOKEN=y');
  assert.match(faults[0], /^FANFARE_CONFIG_FILE, line 1: unknown setting FANFARE_TOKEN/);
});

test('a misspelt name of a setting that protects the server is refused', () => {
  const cases = {
    JWT_SECERT: 'JWT_SECRET',
    JTW_SECRET: 'JWT_SECRET',
    jwt_secret: 'JWT_SECRET',
    JWT_JWKS_URI: 'JWT_JWKS_URL',
    JWT_AUDIENCES: 'JWT_AUDIENCE',
    JWT_SECRET_PREVIUOS: 'JWT_SECRET_PREVIOUS',
    JWT_SECRET_FIEL: 'JWT_SECRET_FILE',
    API_KEY: 'API_KEYS',
    API_KEYS_FILES: 'API_KEYS_FILE',
    TLS_CERT: 'TLS_CERT_FILE',
    TLS_KEY: 'TLS_KEY_FILE',
    TLS_CERTFILE: 'TLS_CERT_FILE',
    REDIS_URI: 'REDIS_URL',
    REDIS_SENTINEL: 'REDIS_SENTINELS',
    REDIS_PASWORD: 'REDIS_PASSWORD',
    ALLOWED_ORIGIN: 'ALLOWED_ORIGINS',
    ALLOW_ORIGINS: 'ALLOWED_ORIGINS',
    TRUSTPROXY: 'TRUST_PROXY',
  };
  for (const [name, meant] of Object.entries(cases)) {
    const why = faultOf({ [name]: 'x'.repeat(40) });
    assert.equal(why, `${name}: unknown setting; did you mean ${meant}?`);
  }
  assert.equal(faultOf({ JWT_EXPIRES_IN: '1h' }), 'JWT_EXPIRES_IN: unknown setting');
  configOf({ JWT_SECERT: '', API_KEY: ' ' });
});

test('a name near to a setting that is set is of another program', () => {
  configOf({ API_KEYS: `web ${'k'.repeat(32)} publish`, API_KEY: 'of another program' });
});

test('names of platforms and of other programs are no misspelt settings', () => {
  const names = [
    // Node, npm, shells, containers, continuous integration
    'NODE_ENV NODE_OPTIONS NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED NODE_UNIQUE_ID',
    'npm_config_user_agent npm_package_json npm_lifecycle_event npm_command npm_config_cache',
    'HOME HOSTNAME HOSTS USER PWD PATH TERM TZ LANG LC_ALL PS1 SHLVL SHELL LOGNAME MAIL EDITOR _',
    'SSL_CERT_FILE SSL_CERT_DIR SSL_KEY_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE https_proxy no_proxy',
    'container KUBERNETES_SERVICE_HOST KUBERNETES_PORT INVOCATION_ID JOURNAL_STREAM MAINPID',
    'CREDENTIALS_DIRECTORY RUNTIME_DIRECTORY NOTIFY_SOCKET LISTEN_FDS SYSTEMD_EXEC_PID pm_id',
    'CI GITHUB_TOKEN ACTIONS_ID_TOKEN_REQUEST_URL CI_JOB_JWT CI_JOB_JWT_V2 GITLAB_CI',
    // hosts
    'AWS_DEFAULT_REGION AWS_PROFILE AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_ACCESS_KEY',
    'AWS_SECRET_KEY ECS_CONTAINER_METADATA_URI DYNO HEROKU_APP_NAME REDIS_TLS_URL REDISCLOUD_URL',
    'REDISHOST REDISPORT REDISUSER REDISPASSWORD REDIS_PUBLIC_URL RAILWAY_TCP_PROXY_PORT',
    'RENDER_SERVICE_ID FLY_REDIS_CACHE_URL UPSTASH_REDIS_REST_URL UPSTASH_REDIS_REST_TOKEN',
    'WEBSITE_HOSTNAME K_SERVICE GOOGLE_APPLICATION_CREDENTIALS VCAP_SERVICES CF_INSTANCE_CERT',
    // other programs of the same env file
    'APP_KEYS APP_KEY API_TOKEN_SALT API_URL API_HOST ADMIN_JWT_SECRET TRUSTED_PROXIES',
    'ALLOWED_HOSTS CORS_ORIGIN DATABASE_URL SESSION_SECRET SECRET_KEY REDIS_DB REDIS_TTL REDIS_SSL',
    'WORKER WEB_CONCURRENCY LOGLEVEL SERVER_NAME SERVER_PORT METRICS PORTS HOST_IP',
    // Docker's links, and images that are built on one of Redis
    'REDIS_NAME REDIS_ENV_REDIS_VERSION REDIS_VERSION REDIS_DOWNLOAD_URL REDIS_PORT_6379_TCP',
    // Kubernetes' links to services named jwt, jwt-auth, api-keys, tls, redis-cluster, trust-proxy
    'JWT_SERVICE_HOST JWT_SERVICE_PORT_HTTP JWT_AUTH_PORT_80_TCP_ADDR API_KEYS_SERVICE_HOST',
    'TLS_SERVICE_PORT REDIS_CLUSTER_SERVICE_HOST REDIS_SENTINEL_SERVICE_PORT TRUST_PROXY_SERVICE_PORT',
  ].flatMap((line) => line.split(' '));
  for (const name of names) assert.deepEqual(loadConfig({ [name]: 'value' }).faults, [], name);
  for (const name of ['JWT', 'JWT_AUTH', 'API_KEYS', 'TLS', 'REDIS', 'REDIS_CLUSTER'])
    configOf({ [`${name}_PORT`]: 'tcp://10.0.0.3:80' });
});

test('variables that Kubernetes sets for services named fanfare and redis are not typing errors', () => {
  configOf({
    FANFARE_SERVICE_HOST: '10.0.0.1',
    FANFARE_SERVICE_PORT: '3000',
    FANFARE_SERVICE_PORT_HTTP: '3000',
    FANFARE_PORT: 'tcp://10.0.0.1:3000',
    FANFARE_PORT_3000_TCP: 'tcp://10.0.0.1:3000',
    FANFARE_PORT_3000_TCP_ADDR: '10.0.0.1',
    FANFARE_METRICS_SERVICE_HOST: '10.0.0.2',
    FANFARE_METRICS_PORT: 'tcp://10.0.0.2:9090',
    REDIS_PORT: 'tcp://10.0.0.3:6379',
    REDIS_SERVICE_HOST: '10.0.0.3',
  });
  assert.deepEqual(
    configOf({ REDIS_URL: 'redis://r', REDIS_PORT: 'tcp://10.0.0.3:6379' }).redis?.addresses,
    [{ host: 'r', port: 6379 }],
  );
  assert.match(
    faultOf({ REDIS_HOST: 'r', REDIS_PORT: 'tcp://10.0.0.3:6379' }),
    /^REDIS_PORT: .*not an integer/,
  );
});

test('a hint names a setting at most two steps away, or one with its prefix or unit', () => {
  const cases = {
    FANFARE_PING_INTERVALL_MS: '; did you mean FANFARE_PING_INTERVAL_MS?',
    FANFARE_SHUTDOWN_TIMEOUT: '; did you mean FANFARE_SHUTDOWN_TIMEOUT_MS?',
    FANFARE_ALLOWED_ORIGINS: '; did you mean ALLOWED_ORIGINS?',
    // Three steps and more: the nearest name would be a guess.
    FANFARE_PINGS_INTERVALS: '',
    FANFARE_MAX_CLIENTS_PER_IP: '',
    FANFARE_HISTORIAN_SIZE: '',
  };
  for (const [name, hint] of Object.entries(cases))
    assert.equal(faultOf({ [name]: '1' }), `${name}: unknown setting${hint}`);
});
