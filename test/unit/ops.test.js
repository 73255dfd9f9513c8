// ops.test.js: the files of ops/ agree with the code, with each other, and with the tools that read
// them. Tests with a real Prometheus, HAProxy and nginx are in test/e2e; those of the kernel
// settings are in tune.test.js.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SETTINGS } from '../../src/config/settings.js';
import { createCounters, REFUSALS, TOKEN_REFUSALS } from '../../src/observability/counters.js';
import {
  COURIER_METRICS,
  METRICS,
  PRIMARY_METRICS,
  WORKER_METRICS,
} from '../../src/observability/metrics.js';
import { createMetrics } from '../../src/observability/registry.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const ops = fileURLToPath(new URL('../../ops/', import.meta.url));
/** @param {string} path from ops/ */
const read = (path) => readFileSync(ops + path, 'utf8');

const rules = read('prometheus/alerts.rules.yml');
const recordings = read('prometheus/recording.rules.yml');
const dashboard = JSON.parse(read('grafana/fanfare.json'));
/** Each alert with the text of its rule. */
const alerts = new Map(
  rules
    .split(/^ {6}- alert: /m)
    .slice(1)
    .map((text) => [text.slice(0, text.indexOf('\n')), text]),
);

/** @param {string} command @param {string[]} args */
function run(command, args) {
  const { error, status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  return { isMissing: error !== undefined, status, said: `${stdout}${stderr}` };
}

test('the alerts and the entries of the runbook correspond, in the same order', () => {
  assert.ok(alerts.size >= 25);
  const runbook = read('prometheus/RUNBOOK.md');
  const entries = runbook.split(/^## /m).slice(1);
  assert.deepEqual(
    entries.map((entry) => entry.slice(0, entry.indexOf('\n'))),
    [...alerts.keys()],
  );
  for (const entry of entries) {
    const name = entry.slice(0, entry.indexOf('\n'));
    const rule = String(alerts.get(name));
    const [, runbook = ''] = /runbook_url: '(.*)'/.exec(rule) ?? [];
    assert.match(
      runbook,
      /^\{\{ or \$externalLabels\.fanfare_runbook "https:[^"]+RUNBOOK\.md" \}\}#/,
    );
    assert.ok(runbook.endsWith(`#${name.toLowerCase()}`), `${name} has a wrong link`);
    assert.match(
      rule,
      /dashboard: '\{\{ or \$externalLabels\.fanfare_dashboard "\/d\/fanfare\/fanfare" \}\}/,
    );
    const [, severity] = /severity: (\w+)/.exec(rule) ?? [];
    assert.match(entry, new RegExp(`^\\*\\*${severity}\\.\\*\\* `, 'im'), `${name} is ${severity}`);
    assert.match(entry, /^- Do: |^- Look and do: |\| do \|/m, `${name} does not say what to do`);
    for (const [other] of entry.matchAll(/\b(?:Fanfare|Redis|Host)[A-Z][a-z]\w+/g)) {
      assert.ok(alerts.has(other), `${name} speaks of ${other}`);
    }
  }
});

test('the runbook explains every reason for which connections and tokens are refused', () => {
  const explained = (/** @type {string} */ alert) => {
    const [, entry] = read('prometheus/RUNBOOK.md').split(`## ${alert}\n`);
    const cells = entry.split('\n## ')[0].match(/^\| `[^|]+/gm) ?? [];
    return cells
      .flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, reason]) => reason))
      .sort();
  };
  const refusals = REFUSALS.filter((reason) => reason !== 'draining'); // the rule leaves it out
  assert.deepEqual(explained('FanfareRefusalsRising'), refusals.sort());
  assert.deepEqual(explained('FanfareTokensRefused'), [...TOKEN_REFUSALS].sort());
});

test('README.md has the right number of alerts', () => {
  const readme = read('README.md');
  for (const [, number] of readme.matchAll(/(\d+) alerts/g))
    assert.equal(Number(number), alerts.size);
  // Those of the other exporters stand last.
  assert.match(readme, /the last four\s+alerts are empty/);
  const others = [...alerts.keys()].filter((name) => /^(Redis|Host)/.test(name));
  assert.deepEqual([...alerts.keys()].slice(-4), others);
});

test('every alert has a case in which it fires and one in which it is silent', () => {
  const cases = read('prometheus/alerts.test.yml');
  for (const name of alerts.keys()) {
    assert.match(cases, new RegExp(`alertname: ${name}, exp_alerts: \\[\\]`), name);
    assert.match(cases, new RegExp(`alertname: ${name}\\n +exp_alerts:\\n +- exp_labels`), name);
  }
});

test('promtool accepts the rules, and their test cases pass', (t) => {
  const config = run('promtool', ['check', 'config', `${ops}prometheus/prometheus.yml`]);
  if (config.isMissing) return t.skip('no promtool here');
  assert.equal(config.status, 0, config.said);
  const tested = run('promtool', ['test', 'rules', `${ops}prometheus/alerts.test.yml`]);
  assert.equal(tested.status, 0, tested.said);
});

test('rules and dashboard use existing metrics only, and the dashboard uses all of Fanfare’s', async () => {
  const worker = createMetrics(createCounters(), { worker: 0 });
  const rows = [...METRICS, ...WORKER_METRICS, ...PRIMARY_METRICS, ...COURIER_METRICS];
  /** Names as they are exported, with prom-client's own. @type {Set<string>} */
  const known = new Set();
  for (const { name, type } of [...worker.snapshot().flatMap(({ form }) => form ?? []), ...rows]) {
    for (const suffix of String(type) === 'histogram' ? ['_bucket', '_sum', '_count'] : [''])
      known.add(name + suffix);
  }
  const expressions = [rules, recordings, ...targets().map(({ expr }) => expr)];
  const used = new Set(
    expressions.flatMap(
      (text) =>
        text.match(
          /(?<![\w:.])(?:fanfare|websocket|redis_publish|message|nodejs|process)_\w+(?!\w|:)/g,
        ) ?? [],
    ),
  );
  assert.ok(used.size > 30, `${used.size} names`);
  assert.deepEqual(
    [...used].filter((name) => !known.has(name)),
    [],
  );
  const shown = targets()
    .map(({ expr }) => expr)
    .join('\n');
  for (const { name, help } of rows)
    assert.equal(shown.includes(name), !help.startsWith('Deprecated'), name);
});

test('each panel of the dashboard has a row, a unit, a description and a source, and none overlap', () => {
  const panels = allPanels();
  const titles = panels.filter(({ type }) => type === 'row').map(({ title }) => title);
  for (const row of ['Business', 'Performance', 'Infrastructure']) {
    assert.ok(
      titles.some((title) => title.startsWith(row)),
      row,
    );
  }
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  // Panels of a collapsed row have places of their own, below it, for when it is opened.
  for (const { panels: inner = [], gridPos } of dashboard.panels) assertApart(inner, gridPos.y + 1);
  assertApart(dashboard.panels, 0);
  for (const { title, type, description, fieldConfig, targets, datasource } of panels) {
    if (type === 'row') continue;
    assert.ok(description.length > 10, `${title} has no description`);
    assert.ok(fieldConfig.defaults.unit, `${title} has no unit`);
    // The first variable: whichever Prometheus the reader chooses.
    assert.deepEqual(datasource, { type: 'prometheus', uid: '$'.concat('{datasource}') });
    assert.ok(targets.length > 0);
    assert.equal(
      new Set(targets.map((/** @type {any} */ { refId }) => refId)).size,
      targets.length,
    );
  }
  const variables = dashboard.templating.list.map((/** @type {any} */ { name }) => name);
  for (const { expr } of targets()) {
    for (const [, name] of expr.matchAll(/\$(\w+)/g))
      assert.ok([...variables, '__rate_interval'].includes(name), expr);
  }
  // If the provisioned source has another name, Grafana shows nothing.
  assert.match(read('grafana/provisioning/datasources/prometheus.yml'), /^ {4}type: prometheus$/m);
});

test('systemd accepts the unit and rates its exposure as low', (t) => {
  const folder = temporaryFolder(t);
  const unit = join(folder, 'fanfare.service');
  // Node may not be at the path of the unit, and verify checks the path.
  writeFileSync(unit, read('systemd/fanfare.service').replace('/usr/bin/node', process.execPath));
  const verified = run('systemd-analyze', ['verify', unit]);
  if (verified.isMissing) return t.skip('no systemd-analyze here');
  assert.equal(verified.said.trim(), '');
  assert.equal(verified.status, 0);
  const security = run('systemd-analyze', [
    'security',
    '--offline=true',
    '--threshold=20',
    '--no-pager',
    unit,
  ]);
  assert.equal(security.status, 0, security.said);
});

test('every setting and every file that the folder names exists', () => {
  const names = new Set(SETTINGS.map(({ env }) => env));
  const paths = readdirSync(ops, { recursive: true }).map(String);
  for (const path of paths.filter((name) => /\.\w+$/.test(name))) {
    for (const [name] of read(path).matchAll(/\bFANFARE_[A-Z]\w+/g))
      assert.ok(names.has(name), `${path}: ${name}`);
  }
  const readme = read('README.md');
  for (const entry of readdirSync(ops, { withFileTypes: true })) {
    if (entry.isDirectory())
      assert.ok(readme.includes(`](${entry.name}/`), `README.md does not name ${entry.name}/`);
  }
  for (const path of [...paths, '../docker/README.md'].filter((name) => name.endsWith('.md'))) {
    for (const [, target] of read(path).matchAll(/\]\(((?!http|#)[\w./-]+)\)/g)) {
      assert.doesNotThrow(
        () => readdirOrFile(new URL(target, `file://${ops}${path}`)),
        `${path}: ${target}`,
      );
    }
  }
});

/** @param {URL} url throws where there is nothing */
function readdirOrFile(url) {
  return url.pathname.endsWith('/') ? readdirSync(url) : readFileSync(url);
}

test('only the first three rows of the dashboard are open, and its links can be set', () => {
  /** @type {any[]} */
  const rows = dashboard.panels.filter((/** @type {any} */ { type }) => type === 'row');
  assert.deepEqual(
    rows.map(({ collapsed }) => collapsed),
    rows.map((_, i) => i >= 3),
  );
  for (const { collapsed, panels, title } of rows)
    assert.equal(
      panels.length > 0,
      collapsed,
      `${title}: Grafana finds panels only in closed rows`,
    );
  const links = Object.fromEntries(
    dashboard.links.map((/** @type {any} */ { title, url }) => [title, url]),
  );
  assert.deepEqual(links, { Runbook: '$'.concat('{runbook}'), Console: '$'.concat('{console}') });
  const variables = new Map(
    dashboard.templating.list.map((/** @type {any} */ one) => [one.name, one.current.value]),
  );
  assert.match(variables.get('runbook'), /RUNBOOK\.md$/);
  assert.match(variables.get('console'), /:9090\/$/);
  // A line of one server leads to the console of that server.
  const byServer = allPanels().filter(({ fieldConfig }) => fieldConfig?.defaults.links);
  assert.ok(byServer.length > 20);
});

/** Those of closed rows, too. @returns {any[]} */
function allPanels() {
  return dashboard.panels.flatMap((/** @type {any} */ panel) => [panel, ...(panel.panels ?? [])]);
}

/** @param {any[]} panels @param {number} top the first line that they may take */
function assertApart(panels, top) {
  const taken = new Set();
  for (const { title, gridPos } of panels) {
    assert.ok(gridPos.y >= top, `${title} is above its row`);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      assert.ok(x < 24, `${title} is too far to the right`);
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        assert.ok(!taken.has(`${x},${y}`), `${title} lies on another panel`);
        taken.add(`${x},${y}`);
      }
    }
  }
}

/** @returns {{expr: string}[]} */
function targets() {
  return allPanels().flatMap(({ targets: found = [] }) => found);
}
