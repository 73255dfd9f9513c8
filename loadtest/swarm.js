#!/usr/bin/env node
// swarm.js: opens many connections to a server, sends messages on them, and reports which limit was
// hit.
//
//   npm run swarm -- --target ws://127.0.0.1:3000/ws --connections 50000 --source 127.0.0.2-127.0.0.9      --help lists the options
//
//   plan       how many connections can this client machine open? Too few: exit code 2, or --force
//   phases     connect, burst, endurance, broadcast: swarm/phases.js, by client processes: swarm/client.js
//   verdict    did all hold? If not: which limit was hit first, whose, and the setting to change
//   report     PATH.json and PATH.html

import { lookup } from 'node:dns/promises';
import { mkdirSync } from 'node:fs';
import { isIP } from 'node:net';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { endUnused, NOT_RUN, UsageError } from '../test/harness/options.js';
import { count, print } from '../test/harness/run.js';
import { Failures } from './swarm/failures.js';
import { ClientLost, Fleet } from './swarm/fleet.js';
import { help, parseOptions } from './swarm/options.js';
import { PHASE } from './swarm/phases.js';
import { plan, planText, readLimits, sourceFaults } from './swarm/plan.js';
import { Progress } from './swarm/progress.js';
import { METRIC_NAMES, writeReport } from './swarm/report.js';
import { Timeline } from './swarm/timeline.js';
import { verdict, verdictText } from './swarm/verdict.js';

const EXIT = Object.freeze({ HELD: 0, FAILED: 1, REFUSED: NOT_RUN, INTERRUPTED: 130 });
const SAMPLE_MS = 500;

process.exit(await main(process.argv.slice(2)));

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
async function main(args) {
  try {
    const options = parseOptions(args);
    if (options === null) {
      process.stdout.write(help());
      return EXIT.HELD;
    }
    return await swarm(options, args);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    endUnused(error.message);
  }
}

/**
 * @param {import('./swarm/options.js').Options} options
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
async function swarm(options, args) {
  const startedAt = new Date();
  const { connections, sources } = options;
  const targets = await Promise.all(options.targets.map((url) => locate(url, sources)));
  const planned = plan(readLimits(), {
    connections,
    sources,
    targets,
    processes: options.processes,
  });
  const faults = await sourceFaults(sources);
  print(
    `swarm: ${count(connections)} connections to ${options.targets.map(String).join(', ')}, ${options.phases.join(', ')}`,
  );
  print(planText(planned));
  for (const fault of faults) print(fault);
  if (!planned.fits || faults.length > 0) {
    if (!options.force) {
      print('\nNothing was opened. --force goes on all the same, and reports each failure.');
      return EXIT.REFUSED;
    }
    print('\nForced: going on all the same.');
  }

  const progress = new Progress();
  const failures = new Failures();
  let stopped = '';
  /** @param {string} why */
  const stop = (why) => {
    if (stopped !== '') return;
    stopped = why;
    fleet.stop();
  };
  /** @param {string} key @param {number} times */
  const fail = (key, times) => {
    failures.add(key, times, { seconds: timeline.seconds, open: timeline.open });
    if (failures.total >= options.maxErrors)
      stop(`stopped after ${count(failures.total)} errors (--max-errors ${options.maxErrors})`);
  };
  const timeline = new Timeline({
    processes: planned.processes,
    sampleMs: SAMPLE_MS,
    metrics: options.metrics,
    names: METRIC_NAMES,
    fail,
    errors: () => failures.total,
  });
  const fleet = new Fleet({
    size: planned.processes,
    setup: {
      targets,
      sources,
      ports: planned.ports,
      profile: options.profile,
      payloadBytes: options.payloadBytes,
      replyTimeoutMs: options.replyTimeoutMs,
    },
    onTick: (process, tick) => timeline.add(process, tick),
  });
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.on(signal, () => {
      if (stopped !== '') process.exit(EXIT.INTERRUPTED);
      stop(`interrupted by ${signal}`);
    });
  }

  /** @type {import('./swarm/phases.js').Results} */
  const results = {};
  const say = () =>
    verdict({
      results,
      failures: failures.list(),
      stopped,
      asked: connections,
      peak: timeline.peak,
      spans: timeline.spans,
      addresses: Math.max(1, sources.length || targets.length),
    });
  try {
    await fleet.start();
    timeline.start();
    const context = {
      options,
      fleet,
      timeline,
      fail,
      isStopped: () => stopped !== '',
      progress: (
        /** @type {number} */ done,
        /** @type {number} */ total,
        /** @type {string} */ text,
      ) => progress.update(done, total, text, failures.total),
      indices: { next: 0 },
    };
    for (const name of /** @type {(keyof typeof results)[]} */ (options.phases)) {
      if (stopped !== '') break;
      progress.begin(name);
      await timeline.span(name, async () => {
        results[name] = await PHASE[name](context);
      });
      progress.end();
      print(say().phases.at(-1) ?? '');
      if (results.connect?.opened === 0) stop('no connection could be opened');
    }
  } catch (error) {
    if (!(error instanceof ClientLost)) throw error;
    stop(error.message);
  } finally {
    progress.end();
    timeline.close();
    await fleet.close();
  }

  const said = say();
  print(`\n${verdictText(said)}`);
  if (timeline.scrapeFault !== '') print(`note: ${options.metrics}: ${timeline.scrapeFault}`);
  const path = options.report || defaultReport(startedAt);
  mkdirSync(dirname(path), { recursive: true });
  writeReport(path, {
    startedAt,
    args,
    options,
    plan: planned,
    results,
    failures: failures.list(),
    timeline,
    verdict: said,
  });
  print(`\nreport: ${path}.html`);
  return said.held ? EXIT.HELD : EXIT.FAILED;
}

/**
 * Looks the host up once, not for each connection.
 * @param {URL} url
 * @param {string[]} sources decide between IPv4 and IPv6
 * @throws {UsageError} if it has no address
 */
async function locate(url, sources) {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const family = sources.length > 0 ? isIP(sources[0]) : 0;
  try {
    const { address } = await lookup(host, { family });
    return { url: url.href, address, port: Number(url.port || 80) };
  } catch (error) {
    throw new UsageError(`--target ${url}: ${/** @type {Error} */ (error).message}`);
  }
}

/** @param {Date} startedAt */
function defaultReport(startedAt) {
  const time = startedAt.toISOString().slice(0, 19).replaceAll(':', '');
  return fileURLToPath(new URL(`./results/swarm-${time}`, import.meta.url));
}
