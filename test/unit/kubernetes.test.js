// kubernetes.test.js: checks ops/kubernetes/ without a cluster: with its script, and against the
// server's settings and paths.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { loadConfig, parseConfigFile } from '../../src/config/config.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = `${root}ops/kubernetes/`;
const read = (/** @type {string} */ name) => readFileSync(folder + name, 'utf8');
/** @type {Record<string, any>} */
const objects = Object.fromEntries(
  readdirSync(folder)
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => [name.replace('.yaml', ''), parse(read(name))]),
);
const pod = objects.deployment.spec.template.spec;
const [container] = pod.containers;
const { env: shipped } = parseConfigFile(read('fanfare.env'));
const LABELS = { 'app.kubernetes.io/name': 'fanfare' };

/** @param {string} script */
const check = (script) => spawnSync(script, { encoding: 'utf8' });

test('the manifests are valid', (t) => {
  const { status, stdout, stderr } = check(`${folder}check.sh`);
  assert.equal(status, 0, stdout + stderr);
  if (!stdout.includes('valid for Kubernetes')) t.diagnostic(stdout);
});

test('the check finds an unknown field', (t) => {
  const copy = join(temporaryFolder(t), 'ops', 'kubernetes');
  cpSync(folder, copy, { recursive: true });
  symlinkSync(`${root}node_modules`, join(copy, '../../node_modules'));
  const broken = read('service.yaml').replace('targetPort', 'tragetPort');
  writeFileSync(join(copy, 'service.yaml'), broken);
  const { status, stdout, stderr } = check(join(copy, 'check.sh'));
  if (/not checked|not validated/.test(stdout)) return t.skip(stdout);
  assert.equal(status, 1);
  assert.match(stdout + stderr, /tragetPort/);
});

test('kustomization.yaml lists each manifest', () => {
  const { resources } = objects.kustomization;
  const names = Object.keys(objects).filter((name) => !['kustomization', 'values'].includes(name));
  assert.deepEqual([...resources].sort(), names.map((name) => `${name}.yaml`).sort());
});

/**
 * The settings of a pod: filled in, and with the files of its Secret.
 * @param {import('node:test').TestContext} t
 */
function filledIn(t) {
  const secrets = temporaryFolder(t);
  writeFileSync(join(secrets, 'REDIS_URL'), 'redis://redis.example:6379');
  writeFileSync(join(secrets, 'JWT_SECRET'), 'x'.repeat(32));
  writeFileSync(join(secrets, 'API_KEYS'), `web ${'k'.repeat(32)} publish`);
  const { mountPath } = container.volumeMounts.find(
    (/** @type {{name: string}} */ { name }) => name === 'secrets',
  );
  const entries = Object.entries({ ...shipped, TRUST_PROXY: '1' });
  return Object.fromEntries(
    entries.map(([name, value]) => [name, value.replace(mountPath, secrets)]),
  );
}

test('the settings are valid, and the pod has time for a whole drain', (t) => {
  const { config, faults } = loadConfig(filledIn(t));
  assert.deepEqual(faults, []);
  assert.ok(config);
  assert.equal(config.auth, 'required');
  assert.ok(config.redis);
  assert.equal(config.apiKeys.length, 1);
  const drainMs = config.drainDelayMs + config.reconnectWindowMs;
  assert.ok(config.shutdownTimeoutMs > drainMs);
  const [pauseMs] = /\d+(?=\))/.exec(container.lifecycle.preStop.exec.command.at(-1)) ?? [];
  const longestMs = Number(pauseMs) + config.shutdownTimeoutMs;
  assert.ok(pod.terminationGracePeriodSeconds * 1000 > longestMs, `${longestMs} ms`);
});

test('the pods do not start before TRUST_PROXY is filled in', (t) => {
  const { faults } = loadConfig({ ...filledIn(t), TRUST_PROXY: shipped.TRUST_PROXY });
  assert.equal(faults.length, 1);
  assert.match(faults[0], /^TRUST_PROXY: /);
});

test('only the ingress controller reaches the public port, and only Prometheus the other', () => {
  for (const { from, ports } of objects.networkpolicy.spec.ingress) {
    assert.equal(from.length, 1, JSON.stringify(ports));
    assert.ok(from[0].namespaceSelector.matchLabels['kubernetes.io/metadata.name']);
  }
});

test('probes, ports and the user are those of the server and its image', (t) => {
  const ports = Object.fromEntries(
    container.ports.map((/** @type {any} */ port) => [port.name, port.containerPort]),
  );
  const { config } = loadConfig(filledIn(t));
  assert.deepEqual(ports, { public: config?.port, operations: config?.metricsPort });
  for (const [probe, path] of [
    ['startupProbe', '/livez'],
    ['livenessProbe', '/livez'],
    ['readinessProbe', '/readyz'],
  ])
    assert.deepEqual(container[probe].httpGet, { path, port: 'operations' });
  const user = /^USER (\d+):(\d+)$/m.exec(readFileSync(`${root}docker/Dockerfile`, 'utf8'));
  assert.deepEqual([pod.securityContext.runAsUser, pod.securityContext.runAsGroup].map(String), [
    user?.[1],
    user?.[2],
  ]);
});

test('every selector finds the pods', () => {
  assert.deepEqual(objects.deployment.spec.template.metadata.labels, LABELS);
  for (const selector of [
    objects.deployment.spec.selector.matchLabels,
    objects.poddisruptionbudget.spec.selector.matchLabels,
    objects.networkpolicy.spec.podSelector.matchLabels,
    pod.topologySpreadConstraints[0].labelSelector.matchLabels,
    objects.service.spec.selector,
    objects['metrics-service'].spec.selector,
  ])
    assert.deepEqual(selector, LABELS);
  assert.equal(objects.horizontalpodautoscaler.spec.scaleTargetRef.name, 'fanfare');
});
