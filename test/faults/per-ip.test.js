// per-ip.test.js: the cap of connections per address, exact over four workers, and whose address it is
// behind a proxy.
//
// The second test needs root, ip and haproxy, and is skipped without them.
//
//   host                                     namespaces
//   server 127.0.0.1 <- HAProxy 0.0.0.0 <--- veth --- fanfare-<pid>-1: 10.203.1.2
//                                       <--- veth --- fanfare-<pid>-2: 10.203.2.2   forges another address each time
//                                       <--- veth --- fanfare-<pid>-3: 10.203.3.2   forges 10.203.1.2

import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePort } from '../harness/redis.js';
import { scrape, startServer, until, urlOf } from '../harness/server.js';
import { closeAll } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';
import { startDaemon } from '../helpers/daemon.js';
import { dial } from '../helpers/dial.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const DIALLED = 300;
const CAP = 100;
const REFUSED = DIALLED - CAP;
const DIAL = fileURLToPath(new URL('../helpers/dial.js', import.meta.url));
const NETWORK = '10.203';
const STEP_MS = 10_000;
/**
 * Limits as they come, but for the one that answers 503 while the event loop lags: 900 handshakes
 * at once on a busy machine.
 */
const SETTINGS = Object.freeze({ WORKERS: '4', FANFARE_OVERLOAD_MODE: 'off' });
const command = promisify(execFile);

/** @typedef {import('../helpers/checks.js').Checks} Run */
/**
 * @typedef {{name: string, address: string, host: string}} Namespace its name, its own address, and
 *   the host's at the other end
 */

/** Dials from within a namespace, and holds the connections until the test is over. */
class Caller {
  /** @param {Run} test @param {Namespace} space @param {number} port @param {string} forged */
  static async start(test, space, port, forged) {
    const child = spawn(
      'ip',
      [
        'netns',
        'exec',
        space.name,
        process.execPath,
        DIAL,
        `ws://${space.host}:${port}/ws`,
        String(DIALLED),
        forged,
      ],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    test.after(async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const { value } = await lines.next();
    if (value === undefined) throw new Error(`nobody could dial from ${space.name}`);
    return new Caller(child, lines, JSON.parse(value));
  }

  /**
   * @param
   *   {import('node:child_process').ChildProcessByStdio<import('node:stream').Writable, import('node:stream').Readable, null>}
   *   child
   * @param {AsyncIterator<string>} lines @param {Record<string, number>} answers
   */
  constructor(child, lines, answers) {
    this.child = child;
    this.lines = lines;
    this.answers = answers;
  }

  /** @returns {Promise<number>} connections still open */
  async open() {
    this.child.stdin.write('\n');
    return Number((await this.lines.next()).value);
  }
}

checkedTest(
  'an address has 100 connections over 4 workers, whatever X-Forwarded-For it forges',
  direct,
);

checkedTest(
  'behind HAProxy each client address has 100 connections, forged headers or not',
  async (test, t) => {
    const hindrance = noNamespaces();
    if (hindrance) return t.skip(hindrance);
    await behindProxy(test);
  },
);

/** @param {Run} test */
async function direct(test) {
  const server = await startServer(test, { ...SETTINGS });
  for (const forged of ['none', 'random', '127.0.0.1']) {
    const { clients, answers } = await dial(urlOf(server), DIALLED, forged);
    const name =
      forged === 'none'
        ? 'direct'
        : `direct, X-Forwarded-For ${forged === 'random' ? 'newly forged each time' : `forged: ${forged}`}`;
    test.check(
      `${name}: of ${DIALLED}`,
      `${CAP} admitted, ${REFUSED} refused with 429`,
      words(answers),
      isCap(answers),
    );
    test.check(
      `${name}: connections counted`,
      CAP,
      (await scrape(server.metricsPort)).values.get('websocket_connections_total'),
    );
    // No place may stay taken: the next round has the whole cap again.
    await closeAll(clients);
    await until(
      async () =>
        (await scrape(server.metricsPort)).values.get('websocket_connections_total') === 0,
      STEP_MS,
      'the end of all connections',
    );
  }
  server.kill('SIGKILL');
}

/** @param {Run} test */
async function behindProxy(test) {
  const server = await startServer(test, { ...SETTINGS, TRUST_PROXY: '127.0.0.1/32' });
  const proxyPort = await startHaproxy(test, server.port);
  /** @type {Namespace[]} */
  const spaces = [];
  for (const i of [1, 2, 3]) spaces.push(await addNamespace(test, i));
  const callers = await Promise.all(
    [
      { name: 'itself', forged: 'none' },
      { name: 'forging a new one each time', forged: 'random' },
      { name: `forging ${spaces[0].address}`, forged: spaces[0].address },
    ].map(async ({ name, forged }, i) => ({
      name,
      space: spaces[i],
      caller: await Caller.start(test, spaces[i], proxyPort, forged),
    })),
  );
  for (const { name, space, caller } of callers) {
    test.check(
      `HAProxy, ${space.address} ${name}: of ${DIALLED}`,
      `${CAP} admitted, ${REFUSED} refused with 429`,
      words(caller.answers),
      isCap(caller.answers),
    );
  }
  const { values } = await scrape(server.metricsPort);
  const refusals = [...values].filter(
    ([name, value]) => name.startsWith('fanfare_admissions_refused_total') && value > 0,
  );
  test.note(
    'refusals as the server counts them',
    refusals.map(([name, value]) => `${/"(.*)"/.exec(name)?.[1]} ${value}`).join(', '),
  );
  for (const { space, caller } of callers)
    test.check(`HAProxy, ${space.address}: still open`, CAP, await caller.open());
  test.check(
    'HAProxy: connections counted',
    3 * CAP,
    (await scrape(server.metricsPort)).values.get('websocket_connections_total'),
  );
}

/** @returns {string} why there are no network namespaces; '' if there are */
function noNamespaces() {
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  const name = `fanfare-${process.pid}-try`;
  const { status, stderr, error } = spawnSync('ip', ['netns', 'add', name], { encoding: 'utf8' });
  if (status !== 0) return error?.message ?? stderr.trim();
  spawnSync('ip', ['netns', 'delete', name]);
  return '';
}

/** @param {Record<string, number>} answers */
function isCap(answers) {
  return answers['101'] === CAP && answers['429'] === REFUSED;
}

/** @param {Record<string, number>} answers */
function words(answers) {
  return Object.entries(answers)
    .map(([status, n]) =>
      status === '101' ? `${n} admitted` : `${n} ${status === '429' ? 'refused with 429' : status}`,
    )
    .join(', ');
}

/**
 * @param {Run} test
 * @param {number} serverPort
 * @returns {Promise<number>} its port, on all addresses
 */
async function startHaproxy(test, serverPort) {
  const folder = temporaryFolder(test);
  const port = await freePort();
  const file = join(folder, 'haproxy.cfg');
  await writeFile(
    file,
    `global
  maxconn 4096
defaults
  mode http
  option forwardfor
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout tunnel 1h
frontend public
  bind 0.0.0.0:${port}
  default_backend fanfare
backend fanfare
  server one 127.0.0.1:${serverPort}
`,
  );
  // In the foreground (-db), so that the test can stop it.
  await startDaemon(test, 'haproxy', ['-db', '-f', file], port);
  return port;
}

/** @param {Run} test @param {number} i @returns {Promise<Namespace>} */
async function addNamespace(test, i) {
  const name = `fanfare-${process.pid}-${i}`;
  // Names of interfaces have at most 15 characters.
  const [outer, inner] = [`ff${process.pid}h${i}`, `ff${process.pid}n${i}`];
  const [host, address] = [`${NETWORK}.${i}.1`, `${NETWORK}.${i}.2`];
  await ip('netns', 'add', name);
  test.after(() => ip('netns', 'delete', name));
  await ip('link', 'add', outer, 'type', 'veth', 'peer', 'name', inner, 'netns', name);
  // Would go with the namespace, but a moment later.
  test.after(() => ip('link', 'delete', outer));
  await ip('address', 'add', `${host}/24`, 'dev', outer);
  await ip('link', 'set', outer, 'up');
  await ip('-n', name, 'address', 'add', `${address}/24`, 'dev', inner);
  await ip('-n', name, 'link', 'set', inner, 'up');
  await ip('-n', name, 'link', 'set', 'lo', 'up');
  return { name, address, host };
}

/** @param {...string} words */
async function ip(...words) {
  await command('ip', words, { timeout: STEP_MS });
}
