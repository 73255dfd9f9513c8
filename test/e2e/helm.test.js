// helm.test.js: what the chart of ops/helm/ renders, with the real helm, against the server.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/config.js';
import { CHART, helm, noHelm, render } from '../helpers/chart.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const CASES = readdirSync(`${CHART}/ci`);
const skip = noHelm;
const OK = ['--set', 'trustProxy=1'];

/** @param {any[]} objects @param {string} kind @returns {any} */
const objectOf = (objects, kind) => objects.find((one) => one.kind === kind);
/** @param {any[]} objects */
const podOf = (objects) => objectOf(objects, 'Deployment').spec.template.spec;

test('the chart passes helm lint, renders valid objects, and ops/kubernetes is what it renders', {
  skip,
  timeout: 240_000,
}, (t) => {
  const { status, stdout, stderr } = spawnSync(`${root}ops/helm/check.sh`, { encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, /^ops\/kubernetes: what the chart renders$/m);
  if (!stdout.includes('valid for Kubernetes 1.37')) t.diagnostic(stdout);
});

for (const name of CASES)
  test(`${name}: the server accepts the settings, and the pod has time for a whole drain`, {
    skip,
  }, (t) => {
    const { objects, error } = render('--values', `${CHART}/ci/${name}`);
    assert.ok(objects.length > 0, error);
    const pod = podOf(objects);
    const [container] = pod.containers;
    const { data } = objectOf(objects, 'ConfigMap');
    const secrets = temporaryFolder(t);
    const texts = /** @type {Record<string, string>} */ ({
      REDIS_URL: 'redis://redis.example:6379',
      API_KEYS: `web ${'k'.repeat(32)} publish`,
      FANFARE_HOOKS_SECRET: `whsec_${Buffer.alloc(32).toString('base64')}`,
    });
    const sources =
      pod.volumes.find((/** @type {any} */ one) => one.name === 'secrets')?.projected.sources ?? [];
    for (const { secret } of sources)
      for (const { path } of secret.items)
        writeFileSync(join(secrets, path), texts[path] ?? 'x'.repeat(32));
    const endpoint = { url: 'https://hook.example', secret: texts.FANFARE_HOOKS_SECRET };
    writeFileSync(join(secrets, 'webhooks.json'), JSON.stringify([endpoint]));
    const env = Object.fromEntries(
      Object.entries(data).map(([key, value]) => [
        key,
        String(value).replace(/^\/(run\/secrets|etc)\/fanfare/, secrets),
      ]),
    );
    const { config, faults } = loadConfig(env);
    assert.deepEqual(faults, []);
    assert.ok(config);
    assert.equal(config.auth, 'required');
    assert.equal(config.redis !== null, name !== '02-one-pod-values.yaml');
    const ports = container.ports.map((/** @type {any} */ port) => port.containerPort);
    assert.deepEqual(ports, [config.port, config.metricsPort]);
    const { command } = container.lifecycle.preStop.exec;
    const [pauseMs] = /\d+(?=\)$)/.exec(command.at(-1)) ?? [];
    const drainMs = config.drainDelayMs + config.reconnectWindowMs;
    assert.ok(config.shutdownTimeoutMs >= drainMs + 9000, 'the other steps of a drain');
    const longestMs = Number(pauseMs) + config.shutdownTimeoutMs;
    assert.ok(pod.terminationGracePeriodSeconds * 1000 > longestMs, `${longestMs} ms`);
  });

test('every selector finds the pods of its release, and none of another one', { skip }, () => {
  const { objects } = render('--values', `${CHART}/ci/08-everything-values.yaml`);
  const { labels } = objectOf(objects, 'Deployment').spec.template.metadata;
  const selectors = [
    ...objects.filter(({ kind }) => kind === 'Service').map(({ spec }) => spec.selector),
    objectOf(objects, 'Deployment').spec.selector.matchLabels,
    objectOf(objects, 'PodDisruptionBudget').spec.selector.matchLabels,
    objectOf(objects, 'NetworkPolicy').spec.podSelector.matchLabels,
    podOf(objects).topologySpreadConstraints[0].labelSelector.matchLabels,
  ];
  assert.equal(selectors.length, 6);
  for (const selector of selectors) {
    assert.equal(selector['app.kubernetes.io/instance'], 'fanfare');
    for (const [key, value] of Object.entries(selector)) assert.equal(labels[key], value, key);
  }
  const names = ['Deployment', 'ConfigMap', 'HorizontalPodAutoscaler', 'Ingress', 'HTTPRoute'];
  for (const kind of names) assert.equal(objectOf(objects, kind).metadata.name, 'fanfare', kind);
  assert.equal(objectOf(objects, 'HorizontalPodAutoscaler').spec.scaleTargetRef.name, 'fanfare');
});

test('the PrometheusRule has the rules of ops/prometheus, and the ServiceMonitor their job', {
  skip,
}, () => {
  const { objects } = render('--values', `${CHART}/ci/05-prometheus-operator-values.yaml`);
  const files = ['recording.rules.yml', 'alerts.rules.yml'].flatMap(
    (name) => parse(readFileSync(`${root}ops/prometheus/${name}`, 'utf8')).groups,
  );
  assert.deepEqual(objectOf(objects, 'PrometheusRule').spec.groups, files);
  const { selector, endpoints } = objectOf(objects, 'ServiceMonitor').spec;
  assert.deepEqual(endpoints[0].relabelings, [{ targetLabel: 'job', replacement: 'fanfare' }]);
  const services = objects.filter(({ kind }) => kind === 'Service');
  const found = services.filter(({ metadata }) =>
    Object.entries(selector.matchLabels).every(([key, value]) => metadata.labels[key] === value),
  );
  assert.deepEqual(
    found.map(({ metadata }) => metadata.name),
    ['fanfare-metrics'],
  );
  assert.equal(found[0].spec.ports[0].name, endpoints[0].port);
});

test('numbers and `on` in a file of values are settings as the server reads them', {
  skip,
}, (t) => {
  const file = join(temporaryFolder(t), 'values.yaml');
  const lines = ['FANFARE_MAX_UNSENT_BYTES: 16777216', 'FANFARE_COMPRESSION: on', 'REDIS_TLS: off'];
  writeFileSync(
    file,
    ['trustProxy: 1', 'settings:', ...lines.map((line) => `  ${line}`)].join('\n'),
  );
  const { data } = objectOf(render('--values', file).objects, 'ConfigMap');
  assert.equal(data.FANFARE_MAX_UNSENT_BYTES, '16777216');
  assert.deepEqual([data.FANFARE_COMPRESSION, data.REDIS_TLS], ['on', 'off']);
});

test('a change of settings replaces the pods', { skip }, () => {
  const hashOf = (/** @type {string[]} */ ...args) =>
    objectOf(render(...OK, ...args).objects, 'Deployment').spec.template.metadata.annotations[
      'checksum/settings'
    ];
  assert.equal(hashOf(), hashOf());
  assert.notEqual(hashOf('--set', 'settings.LOG_LEVEL=debug'), hashOf());
});

test('the chart refuses values that would make a wrong server, and says why', { skip }, () => {
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [[], /trustProxy is required/],
    [[...OK, '--set', 'secrets.REDIS_URL=null'], /more than one pod needs Redis/],
    [[...OK, '--set', 'settings.JWT_SECRET=x'], /settings\.JWT_SECRET is a secret/],
    [[...OK, '--set', 'settings.JWT_JWKS_URL=https://a:b@c'], /JWT_JWKS_URL is a secret/],
    [[...OK, '--set', 'settings.REDIS_URL=redis://r'], /secrets\.REDIS_URL says where it is/],
    [[...OK, '--set', 'settings.API_KEYS_FILE=/a'], /secrets\.API_KEYS says where it is/],
    [[...OK, '--set', 'settings.WORKERS=3'], /settings\.WORKERS: the chart sets it/],
    [[...OK, '--set', 'secrets.JWT_SECERT.name=a'], /no secret setting of this name/],
    [[...OK, '--set', 'ingress.enabled=true'], /ingress\.host is required/],
    [[...OK, '--set', 'gateway.enabled=true'], /gateway\.parentRefs is required/],
    [[...OK, '--set', 'replica=3'], /replica/],
    [[...OK, '--kube-version', '1.28.0'], /kubeVersion/],
  ])) {
    const { status, error } = render(...args);
    assert.equal(status, 1, args.join(' '));
    assert.match(error, message);
  }
  const plain = render(...OK, '--set', 'settings.JWT_JWKS_URL=https://c/keys');
  assert.equal(plain.status, 0, plain.error);
});

test('the packed chart has the rules and not the cases, and renders the same', { skip }, (t) => {
  const folder = temporaryFolder(t);
  const { status, stderr } = helm('package', CHART, '--destination', folder);
  assert.equal(status, 0, stderr);
  const [file] = readdirSync(folder);
  const list = spawnSync('tar', ['-tzf', join(folder, file)], { encoding: 'utf8' }).stdout;
  assert.match(list, /^fanfare\/rules\/alerts\.rules\.yml$/m);
  assert.doesNotMatch(list, /\/ci\//);
  const values = ['--values', `${CHART}/ci/08-everything-values.yaml`];
  const options = ['--namespace', 'fanfare', '--kube-version', '1.30.0', ...values];
  const [packed, source] = [join(folder, file), CHART].map(
    (chart) => helm('template', 'fanfare', chart, ...options).stdout,
  );
  assert.equal(packed, source);
});
