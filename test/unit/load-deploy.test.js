// load-deploy.test.js: the figures of the comparison of deployments.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { withDeployments } from '../../loadtest/deploy/document.js';
import { peakOf } from '../../loadtest/deploy/haproxy.js';
import { tableOf } from '../../loadtest/deploy/report.js';

test('the peak is the largest increase of one server within the window', () => {
  const samples = [
    { atMs: 0, accepted: [100, 0] },
    { atMs: 500, accepted: [110, 20] },
    { atMs: 1000, accepted: [110, 60] },
    { atMs: 1600, accepted: [115, 90] },
    { atMs: 3000, accepted: [190, 95] },
  ];
  // Between 1,000 and 1,600 ms the second server took 30, and 60 in the second before.
  assert.equal(peakOf(samples, 1000), 60);
  assert.equal(peakOf([], 1000), 0);
});

test('the table has the median and the range of the rounds', () => {
  const one = {
    ...{ name: 'a', title: 'A', clients: 100, away: 0, disconnects: 150, failedJoins: 1 },
    ...{ refusedHandshakes: 2, lost: 0, twice: 0, peakHandshakesPerSecond: 10 },
    ...{ downP50Seconds: 1, downP99Seconds: 2, stopSeconds: [4, 5] },
  };
  const [, , row] = tableOf([
    one,
    { ...one, lost: 30, downP50Seconds: 1.5 },
    { ...one, lost: 4, downP50Seconds: 9 },
  ]);
  assert.equal(row, '| A | 1.5 (1.0–9.0) | 2.0 | 1.50 | 3 | 4 (0–30) | 0 | 10 | 5 |');
});

test('the page on deployments has the table of the newest report', () => {
  const page = readFileSync(new URL('../../docs/deploy-comparison.md', import.meta.url), 'utf8');
  assert.equal(page, withDeployments(page));
  assert.notEqual(withDeployments(page.replace(/\d\.\d/, '99')), page.replace(/\d\.\d/, '99'));
});
