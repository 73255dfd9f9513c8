#!/usr/bin/env node
// client-run.js: `fanfare/client` in Node and in Chromium under random disturbances, one after
// another, with a numbered stream in a room with history.
//
// Two judges look at the applications' messages. The stream's own requires that each message came
// once and in order, or that a new state came before it. The checker compares the record of the
// run with its invariants (invariants.js). As root on Linux the script restarts itself in a network
// namespace, because some disturbances are firewall rules.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Fanfare } from '../../src/client/node.js';
import { readOptions } from '../harness/options.js';
import { freePort, startRedis } from '../harness/redis.js';
import { pause, print, run } from '../harness/run.js';
import { startServer, until } from '../harness/server.js';
import { openTabs, withoutChromium } from '../helpers/browser.js';
import { NumberedStream } from '../helpers/numbered-stream.js';
import { becomePrivate, canBePrivate, Firewall, isPrivate } from '../helpers/private-network.js';
import { SECRET, token } from '../helpers/tokens.js';
import { Checker } from './checker.js';
import { Random } from './random.js';
import { Recorder, readRecord } from './record.js';
import { printReport } from './report.js';

/** @typedef {import('../helpers/numbered-stream.js').Sight} Sight */
/** @typedef {Record<string, any>} Told */

const { values: options, given } = readOptions(
  `The client library in Node and in Chromium under random disturbances, one after another.

  node test/run.js client
  node test/run.js client --disturbances 10 --seed 7`,
  `disturbances N | whole 1..10000 | 100 | how many
  seed S | whole 0.. | | draws them
  keep FILE | | ${join(tmpdir(), `fanfare-client-${process.pid}.jsonl`)} | the record of the run`,
);
const ROOM = 'chat.1';
const INTERVAL_MS = 10;
const VIEWERS = 3;
const DELAYS = { firstDelayMs: 100, maxDelayMs: 1500 };
const TOKEN_LIFE_S = 20;
const QUIET_MS = /** @type {const} */ ([200, 1500]);
const HOLD_MS = /** @type {const} */ ([500, 2500]);
const SETTLE_MS = 30_000;
const LIMIT_MS = 1_800_000;

if (!isPrivate && canBePrivate())
  await becomePrivate(fileURLToPath(import.meta.url), process.argv.slice(2));

const seed = given.has('seed') ? options.seed : Math.floor(Math.random() * 2 ** 32);
await run(`${options.disturbances} disturbances of clients, seed ${seed}`, trial, LIMIT_MS);

/** @param {import('../harness/run.js').Run} test */
async function trial(test) {
  const random = new Random(seed);
  const redis = await startRedis(test);
  const port = await freePort();
  const env = {
    FANFARE_LIMITS: 'off',
    FANFARE_HISTORY: 'chat.*=1000/300s',
    FANFARE_RECONNECT_WINDOW_MS: '1000',
    FANFARE_PING_INTERVAL_MS: '1500',
    FANFARE_PONG_TIMEOUT_MS: '1000',
    JWT_SECRET: SECRET,
    REDIS_URL: redis.url,
    PORT: String(port),
  };
  let server = await startServer(test, env);
  const url = `ws://127.0.0.1:${port}/ws`;
  let areTokensRefused = false;
  const getToken = () => {
    if (areTokensRefused) throw new Error('no tokens now');
    const iat = Math.floor(Date.now() / 1000);
    return token({ rooms: { join: ['*'], publish: ['*'] }, iat, exp: iat + TOKEN_LIFE_S });
  };

  const recorder = new Recorder(options.keep);
  test.after(() => recorder.close());
  recorder.write({ type: 'run', history: [ROOM], plain: [], seed });
  const publisher = new Fanfare(url, { ...DELAYS, token: getToken });
  publisher.on('error', () => {});
  publisher.connect();
  const stream = new NumberedStream(publisher, ROOM, INTERVAL_MS);
  stream.recorder = recorder;

  /** @type {Sight[][]} */
  const views = [];
  /** @param {number} client @returns {(told: Told) => void} takes what a viewer tells */
  const viewer = (client) => {
    const sights = /** @type {Sight[]} */ ([]);
    views[client] = sights;
    let isOpen = false;
    return ({ type, ...about }) => {
      const of = { client, room: ROOM };
      if (type === 'opened') {
        isOpen = true;
        recorder.write({ type: 'connect', client });
      } else if (type === 'closed') {
        if (isOpen) recorder.write({ type: 'close', client, code: about.code ?? 1006 });
        isOpen = false;
      } else if (type === 'joined') {
        recorder.write({ type: 'subscribe', ...of, since: about.since });
        recorder.write({ type: 'reply', ...of, ...about.position, recovered: about.recovered });
      } else if (type === 'resync') {
        recorder.write({ type: 'resync', ...of, .../** @type {any} */ (about.position) });
      } else if (type === 'state') {
        sights.push(/** @type {Sight} */ ({ type, ...about }));
      } else {
        const { payload, epoch, offset } = about;
        sights.push({ type: 'message', payload, epoch, offset });
        recorder.write({ type: 'deliver', ...of, value: stream.valueOf(payload), epoch, offset });
      }
    };
  };

  for (let client = 0; client < VIEWERS; client++) {
    const fanfare = new Fanfare(url, { ...DELAYS, token: getToken });
    watch(fanfare, ROOM, viewer(client));
    test.after(() => fanfare.close());
  }
  const page = withoutChromium ? null : await openPage(test, url, getToken, viewer(VIEWERS));

  /** @type {Record<string, (holdMs: number) => Promise<void>>} */
  const disturbances = {
    workerKilled: async () => {
      const [pid] = random.shuffled(server.workerPids());
      if (pid !== undefined) process.kill(pid, 'SIGKILL');
    },
    workerFrozen: async (holdMs) => {
      const [pid] = random.shuffled(server.workerPids());
      process.kill(pid, 'SIGSTOP');
      await pause(holdMs);
      try {
        process.kill(pid, 'SIGCONT');
      } catch {
        // The primary has replaced it.
      }
    },
    reloaded: async () => {
      server.kill('SIGHUP');
      await pause(1000);
    },
    serverRestarted: async () => {
      server.kill('SIGTERM');
      await server.exited;
      server = await startServer(test, env);
    },
    redisRestarted: async (holdMs) => {
      await redis.kill();
      await pause(holdMs / 4);
      await redis.restart();
    },
    tokensExpired: async () => {
      areTokensRefused = true;
      await pause(TOKEN_LIFE_S * 300);
      areTokensRefused = false;
    },
  };
  if (isPrivate) {
    const firewall = new Firewall([['-p', 'tcp', '--dport', String(port)]]);
    disturbances.networkDropped = async (holdMs) => {
      await firewall.add();
      await pause(2 * holdMs);
      await firewall.remove();
    };
  }
  if (page !== null) {
    disturbances.tabFrozen = async (holdMs) => {
      await page.lifecycle('frozen');
      await pause(holdMs);
      await page.lifecycle('active');
    };
    disturbances.clockStopped = async (holdMs) => {
      await page.stopClock(holdMs);
    };
    disturbances.pageHidden = async (holdMs) => {
      await page.event('pagehide');
      await pause(holdMs);
      await page.event('pageshow');
    };
  }

  await until(() => views.every((sights) => sights !== undefined), 10_000, 'viewers');
  stream.start();
  await until(() => views.every(({ length }) => length > 10), 20_000, 'the first messages');
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (let i = 0; i < options.disturbances; i++) {
    const name = random.pick(Object.keys(disturbances));
    counts.set(name, (counts.get(name) ?? 0) + 1);
    print(`     ${i + 1}: ${name}`);
    recorder.write({ type: 'start', name });
    await disturbances[name](random.between(...HOLD_MS));
    recorder.write({ type: 'stop', name });
    await pause(random.between(...QUIET_MS));
  }
  const { epoch, offset } = await stream.end();
  const isThere = (/** @type {Sight[]} */ view) => {
    const last = view.at(-1);
    return last?.epoch === epoch && last.offset === offset;
  };
  await until(() => views.every(isThere), SETTLE_MS, 'the last message everywhere').catch(print);
  recorder.write({ type: 'end' });
  recorder.close();

  const checker = new Checker();
  for (const event of readRecord(options.keep)) checker.see(event);
  const report = checker.report();
  printReport(report);
  for (const { id, anomaly, violations } of report.findings)
    test.check(`${id}, ${anomaly}`, 0, violations);
  test.check('viewers that have the last message', views.length, views.filter(isThere).length);
  for (const [client, view] of views.entries()) {
    const faults = stream.judge(view);
    test.check(
      `viewer ${client}${client === VIEWERS ? ' (Chromium)' : ''}: faults`,
      0,
      faults.length,
    );
    for (const fault of faults.slice(0, 5)) print(`     ${fault}`);
    const states = view.filter(({ type }) => type === 'state').length;
    test.note(`viewer ${client}: messages, new states`, `${view.length - states}, ${states}`);
  }
  test.note('accepted messages', stream.accepted.size);
  test.note('disturbances', [...counts].map(([name, count]) => `${name} ${count}`).join(', '));
  await publisher.close();
}

/**
 * Reports everything that an application gets. It also runs in the page.
 * @param {Fanfare} fanfare @param {string} name @param {(told: Told) => void} tell
 */
function watch(fanfare, name, tell) {
  fanfare.on('error', () => {});
  fanfare.on('state', (state, { code }) => {
    if (state === 'connected') tell({ type: 'opened' });
    else if (state !== 'connecting') tell({ type: 'closed', code });
  });
  const room = fanfare.join(name, { recoverFailed: (position) => position });
  room.on('joined', (about) => tell({ type: 'joined', ...about }));
  room.on('resync', (position) => tell({ type: 'resync', position }));
  room.on('reset', (position) => tell({ type: 'state', ...position }));
  room.on('message', (payload, { epoch, offset }) =>
    tell({ type: 'message', payload, epoch, offset }),
  );
}

/**
 * @param {import('../harness/run.js').Run} test
 * @param {string} url
 * @param {() => string} getToken
 * @param {(told: Told) => void} tell
 */
async function openPage(test, url, getToken, tell) {
  const files = createServer(({ url: path }, response) => {
    if (/^\/client\/[\w-]+\.js$/.test(String(path))) {
      response.setHeader('content-type', 'text/javascript');
      response.end(readFileSync(new URL(`../../src${path}`, import.meta.url)));
    } else {
      response.setHeader('content-type', 'text/html');
      response.end(`<!doctype html><script type="module">
        import { Fanfare } from '/client/index.js';
        ${watch}
        const options = { ...${JSON.stringify(DELAYS)}, token: () => getToken() };
        window.fanfare = new Fanfare('${url}', options);
        watch(fanfare, '${ROOM}', (told) => tell(told));
      </script>`);
    }
  }).listen(0, '127.0.0.1');
  test.after(() => files.close());
  await once(files, 'listening');
  // In a page of Playwright's own a tab cannot be frozen.
  const tabs = await openTabs(test);
  const other = await tabs.newPage();
  const page = await tabs.newPage();
  await page.exposeFunction('tell', tell);
  await page.exposeFunction('getToken', getToken);
  const { port } = /** @type {import('node:net').AddressInfo} */ (files.address());
  await page.goto(`http://127.0.0.1:${port}/`);
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Debugger.enable');
  return {
    /** @param {'frozen'|'active'} state */
    async lifecycle(state) {
      await devtools.send('Page.setWebLifecycleState', { state });
      if (state === 'frozen') return;
      // Chromium has hidden the tab, and shows it when the user comes back from another.
      await other.bringToFront();
      await page.bringToFront();
    },
    /** @param {'pagehide'|'pageshow'} name */
    event: (name) =>
      page.evaluate(`dispatchEvent(new PageTransitionEvent('${name}', { persisted: true }))`),
    /** The script stands still, timers and sockets too. @param {number} ms */
    async stopClock(ms) {
      const paused = new Promise((resolve) => devtools.once('Debugger.paused', resolve));
      await devtools.send('Debugger.pause');
      page.evaluate('0').catch(() => {});
      await Promise.race([paused, pause(1000)]);
      await pause(ms);
      await devtools.send('Debugger.resume').catch(() => {});
    },
  };
}
