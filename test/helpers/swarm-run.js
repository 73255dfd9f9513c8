// swarm-run.js: a finished run of the swarm, made up: phases from 0.2 s to a minute, each kind of
// chart, long failures.

import { Failures } from '../../loadtest/swarm/failures.js';
import { parseOptions } from '../../loadtest/swarm/options.js';
import { plan, readLimits } from '../../loadtest/swarm/plan.js';
import { METRIC_NAMES } from '../../loadtest/swarm/report.js';
import { Timeline } from '../../loadtest/swarm/timeline.js';
import { verdict } from '../../loadtest/swarm/verdict.js';

/** Seconds at which each phase begins and ends. */
const SPANS = Object.freeze([
  ['connect', 0, 0.2],
  ['burst', 0.2, 0.7],
  ['endurance', 0.7, 60.7],
  ['broadcast', 60.7, 62.2],
]);
const LATENCY = Object.freeze({ p50: 1.2, p95: 12.5, p99: 240, maxMs: 900 });

/** @returns {import('../../loadtest/swarm/report.js').Run} */
export function finishedRun() {
  const args = [
    '--connections',
    '12000',
    '--metrics',
    'http://127.0.0.1:9090/metrics',
    '--source',
    '127.0.0.2-127.0.0.9',
  ];
  const options = /** @type {import('../../loadtest/swarm/options.js').Options} */ (
    parseOptions(args)
  );
  const failures = new Failures();
  for (const [key, count, seconds] of /** @type {[string, number, number][]} */ ([
    ['HTTP 503', 1200, 0.1],
    ['ETIMEDOUT', 12, 0.2],
    ['error RATE_LIMIT_EXCEEDED', 123_456, 3],
    ['closed 4003', 77, 12],
  ]))
    failures.add(key, count, { seconds, open: 10_800 });
  const timeline = new Timeline({
    processes: 2,
    sampleMs: 500,
    metrics: options.metrics,
    names: METRIC_NAMES,
    fail: () => {},
    errors: () => 0,
  });
  timeline.peak = 12_000;
  timeline.spans = SPANS.map(([name, from, to]) => ({
    name: String(name),
    from: Number(from),
    to: Number(to),
    clientCpu: 0.5,
  }));
  for (let t = 0; t <= 62.5; t += 0.5) {
    const wave = 1 + Math.sin(t / 4) / 3;
    timeline.samples.push({
      t,
      open: Math.min(12_000, t * 30_000),
      openedPerSecond: t === 0.5 ? 24_000 : 0,
      repliesPerSecond: 1200 * wave,
      deliveriesPerSecond: t > 60.7 ? 480_000 : 0,
      errors: Math.round(2000 * t),
      p50: wave,
      p95: 10 * wave,
      p99: 100 * wave,
      clientCpu: 0.4 * wave,
      residentMb: 210 + t,
    });
    timeline.scrapes.push({
      t,
      values: Object.fromEntries(
        METRIC_NAMES.map((name, i) => [name, (i + 1) * 1000 * (t + wave)]),
      ),
    });
  }
  const results = {
    connect: {
      asked: 12_000,
      opened: 10_800,
      failed: 1200,
      seconds: 0.2,
      perSecond: 54_000,
      handshake: LATENCY,
    },
    burst: {
      asked: 162_000,
      sent: 162_000,
      replies: 161_000,
      seconds: 0.5,
      perSecond: 322_000,
      roundTrip: LATENCY,
    },
    endurance: {
      ...{
        seconds: 60,
        asked: 1200,
        perSecond: 1100,
        sent: 72_000,
        replies: 66_000,
        held: false,
        lost: 77,
      },
      ...{ behindMs: 2, roundTrip: LATENCY },
    },
    broadcast: {
      ...{ percentile: 95, limitMs: 250, held: 10_000, ended: /** @type {const} */ ('limit') },
      steps: Array.from({ length: 11 }, (_, i) => ({
        ...{
          connections: (i + 1) * 1000,
          p50: 20 * i,
          pLimit: 25 * (i + 1),
          maxMs: 30 * (i + 1),
          broadcasts: 40,
          refused: 0,
        },
        ...{
          deliveries: 40_000 * (i + 1),
          expected: 40_000 * (i + 1),
          delivery: LATENCY,
          within: i < 10,
        },
      })),
    },
  };
  return {
    startedAt: new Date('2026-01-02T03:04:05Z'),
    args,
    options,
    plan: plan(
      readLimits(() => ''),
      {
        connections: 12_000,
        sources: options.sources,
        targets: [{ address: '127.0.0.1', port: 3000 }],
        processes: 0,
      },
    ),
    results,
    failures: failures.list(),
    timeline,
    verdict: verdict({
      ...{
        results,
        failures: failures.list(),
        stopped: '',
        asked: 12_000,
        peak: 12_000,
        spans: timeline.spans,
      },
      addresses: 8,
    }),
  };
}
