// The swarm at a small size, against real servers: that what holds is said to hold, that each fault
// is found and blamed on the right side, and that its report is drawn.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { WebSocketServer } from 'ws';
import { freePort } from '../harness/redis.js';
import { startServer } from '../harness/server.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const SWARM = fileURLToPath(new URL('../../loadtest/swarm.js', import.meta.url));
const LIMIT_MS = 60_000;
const CHROMIUM = spawnSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).stdout.trim();
/** Quiet, and nothing over the network. */
const CHROMIUM_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** For clients that do no harm. */
const shared = startServer(/** @type {any} */ ({ after }), { FANFARE_LIMITS: 'off' });

/** Two at a time: most of it is waiting. */
describe('the swarm', { concurrency: 2 }, () => {
  test('a run over all phases holds, agrees with the server, and its report is drawn', {
    timeout: LIMIT_MS,
  }, async (t) => {
    const server = await startServer(t, { FANFARE_LIMITS: 'off' });
    const metrics = `http://127.0.0.1:${server.metricsPort}/metrics`;
    const phases = [
      '--endurance',
      '1',
      '--rate',
      '600',
      '--step-size',
      '100',
      '--sample-size',
      '8',
    ];
    const { code, said, report, html } = await swarm(t, [
      ...target(server),
      ...[
        '--connections',
        '300',
        '--source',
        '127.0.0.2-127.0.0.3',
        '--processes',
        '2',
        '--metrics',
        metrics,
        // Whether it is quick is for a machine without other tests.
        '--limit-rtt',
        '2000',
        ...phases,
      ],
    ]);
    assert.equal(code, 0, said);
    const { results, verdict, failures, connections, metrics: scrapes, samples } = report();
    assert.equal(verdict.headline, 'held: 300 connections, every phase, no failure');
    assert.deepEqual(failures, []);
    assert.deepEqual(connections, { asked: 300, peak: 300 });
    assert.equal(results.connect.opened, 300);
    assert.equal(results.burst.replies, 300 * 15);
    assert.equal(results.endurance.sent, 600);
    assert.equal(results.endurance.replies, 600);
    assert.ok(results.endurance.held, said);
    assert.equal(
      Math.round(results.endurance.perSecond),
      Math.round(600 / results.endurance.seconds),
    );
    assert.deepEqual(
      results.broadcast.steps.map((/** @type {any} */ step) => [
        step.connections,
        step.broadcasts,
        step.deliveries,
      ]),
      [100, 200, 300].map((size) => [size, 8, 8 * size]),
    );
    assert.equal(results.broadcast.held, 300);
    assert.ok(samples.some((/** @type {any} */ { open }) => open === 300));
    // Echoes, broadcasts and nothing else; as the server counts them, up to its last scrape.
    const last = scrapes.at(-1).values;
    assert.ok(
      last.websocket_messages_total >= 4500 + 600 &&
        last.websocket_messages_total <= 4500 + 600 + 24,
    );
    assert.ok(
      scrapes.some((/** @type {any} */ { values }) => values.websocket_connections_total === 300),
    );

    if (CHROMIUM === '')
      return t.diagnostic('the report was not drawn: there is no chromium; npm run test:setup');
    await t.test('in Chromium, without network, errors or empty charts', () => drawn(t, html));
  });

  test('the swarm reports the cap of connections per address as the limit of the server, and errors end the run', {
    timeout: LIMIT_MS,
  }, async (t) => {
    const server = await startServer(t, { FANFARE_MAX_CONNECTIONS_PER_IP: '50' });
    const { code, said, report } = await swarm(t, [
      ...target(server),
      ...[
        '--connections',
        '1000',
        '--phases',
        'connect,burst',
        '--batch-size',
        '10',
        '--max-errors',
        '100',
      ],
    ]);
    assert.equal(code, 1, said);
    assert.match(
      said,
      /verdict: the server was the limit: connections per address; 50 of 1,000 connections/,
    );
    assert.match(
      said,
      /first limit hit: connections per address \(the server\): \d+ × HTTP 429, .* with 50 connections open/,
    );
    const { failures, verdict, results } = report();
    assert.equal(failures.length, 1);
    // A batch under way when the count is full is the most there can be more.
    assert.ok(failures[0].count >= 100 && failures[0].count <= 110, String(failures[0].count));
    assert.match(verdict.headline, /stopped after 1\d\d errors/);
    assert.equal(results.burst, undefined);
  });

  test('a missing server ends the run at once', { timeout: LIMIT_MS }, async (t) => {
    const port = await freePort();
    const { code, said, report } = await swarm(t, [
      '--target',
      `ws://127.0.0.1:${port}/`,
      '--connections',
      '20',
    ]);
    assert.equal(code, 1, said);
    assert.match(
      said,
      /verdict: nothing listens at the target: start the server \(.*npm start\), or name another with --target/,
    );
    assert.deepEqual(Object.keys(report().results), ['connect']);
  });

  test('the swarm counts the connections of a server that dies, and reports the figures so far', {
    timeout: LIMIT_MS,
  }, async (t) => {
    const server = await startServer(t, { FANFARE_LIMITS: 'off' });
    let killed = false;
    const { code, said, report } = await swarm(
      t,
      [
        ...target(server),
        '--connections',
        '100',
        '--phases',
        'connect,endurance',
        '--endurance',
        '600',
        '--rate',
        '50',
      ],
      {
        onOutput: (text) => {
          if (killed || !text.includes('100 of 100 opened')) return;
          killed = true;
          for (const pid of server.workerPids()) process.kill(pid, 'SIGKILL');
          server.kill('SIGKILL');
        },
      },
    );
    assert.equal(code, 1, said);
    const { failures, results, phases } = report();
    // Each connection once, and not the messages that could not be sent on it as well.
    assert.deepEqual(
      failures.map((/** @type {any} */ { key, count, side }) => [key, count, side]),
      [['closed 1006', 100, 'server']],
    );
    assert.deepEqual([results.endurance.lost, results.endurance.held], [100, false]);
    lasted(results.endurance.seconds, phases.at(-1));
  });

  test('Ctrl-C ends a run in order, with a report', { timeout: LIMIT_MS }, async (t) => {
    const server = await shared;
    let interrupted = false;
    const { code, said, report } = await swarm(
      t,
      [
        ...target(server),
        '--connections',
        '50',
        '--phases',
        'connect,endurance',
        '--endurance',
        '60',
      ],
      {
        onOutput: (text, child) => {
          if (interrupted || !text.includes('50 of 50 opened')) return;
          interrupted = true;
          child.kill('SIGINT');
        },
      },
    );
    assert.equal(code, 1, said);
    assert.match(said, /verdict: not finished: interrupted by SIGINT/);
    const { connections, results, phases } = report();
    assert.equal(connections.peak, 50);
    lasted(results.endurance.seconds, phases.at(-1));
  });

  test('a message that the server refuses is one failure', { timeout: LIMIT_MS }, async (t) => {
    let n = 0;
    const refusing = await otherServer(t, (text, sender) =>
      sender.send(
        text.includes('echo') && ++n % 10 !== 0
          ? text
          : '{"type":"error","error":"PERMISSION_DENIED"}',
      ),
    );
    const args = [
      '--connections',
      '20',
      '--step-size',
      '20',
      '--sample-size',
      '8',
      '--endurance',
      '1',
      '--rate',
      '100',
    ];
    const { code, said, report } = await swarm(t, [...refusing, ...args]);
    assert.equal(code, 1, said);
    const { failures, results } = report();
    // Of 300 echoes in the burst and 100 in endurance every tenth; and all 8 broadcasts.
    assert.deepEqual(
      failures.map((/** @type {any} */ { key, count }) => [key, count]),
      [['error PERMISSION_DENIED', 48]],
    );
    assert.deepEqual([results.burst.replies, results.endurance.replies], [270, 90]);
    const [step] = results.broadcast.steps;
    assert.deepEqual([step.refused, step.expected, results.broadcast.ended], [8, 0, 'refused']);
    assert.match(said, /with 20 connections 8 broadcasts were refused/);
  });

  test('another server that echoes holds; one that loses, repeats or mixes up echoes does not', {
    timeout: LIMIT_MS,
  }, async (t) => {
    let n = 0;
    /** @type {import('ws').WebSocket|null} */
    let other = null;
    const phases = [
      '--profile',
      'echo',
      '--connections',
      '20',
      '--phases',
      'connect,burst',
      '--reply-timeout',
      '3',
    ];
    const [plain, losing, repeating, mixing] = await Promise.all([
      otherServer(t, (text, sender) => sender.send(text)),
      otherServer(t, (text, sender) => ++n % 100 !== 0 && sender.send(text)),
      otherServer(t, (text, sender) => {
        sender.send(text);
        if (text.includes(':7:')) sender.send(text);
      }),
      otherServer(t, (text, sender) => {
        other ??= sender;
        (other.readyState === other.OPEN ? other : sender).send(text);
      }),
    ]);
    const [held, lost, repeated, mixed] = await Promise.all(
      [plain, losing, repeating, mixing].map((aim) => swarm(t, [...aim, ...phases])),
    );
    assert.equal(held.code, 0, held.said);
    assert.equal(held.report().results.burst.replies, 300);
    assert.equal(lost.code, 1, lost.said);
    assert.match(lost.said, /first limit hit: replies \(the server\): 3 × no reply/);
    assert.equal(repeated.code, 1, repeated.said);
    assert.match(repeated.said, /× not understood/);
    assert.equal(mixed.code, 1, mixed.said);
    assert.match(mixed.said, /285 × not understood/);
  });

  test('another server that sends to all holds; one that leaves out a client does not', {
    timeout: LIMIT_MS,
  }, async (t) => {
    const phases = [
      '--profile',
      'chat',
      '--connections',
      '20',
      '--step-size',
      '10',
      '--sample-size',
      '5',
      '--reply-timeout',
      '1',
    ];
    const everyone = await otherServer(t, (text, _sender, all) => {
      for (const socket of all) socket.send(text);
    });
    const someone = await otherServer(t, (text, sender, all) => {
      for (const socket of all)
        if (socket === sender || socket !== [...all].at(-1)) socket.send(text);
    });
    const [held, missing] = await Promise.all(
      [everyone, someone].map((aim) => swarm(t, [...aim, ...phases])),
    );
    assert.equal(held.code, 0, held.said);
    assert.deepEqual(
      held.report().results.broadcast.steps.map((/** @type {any} */ step) => step.deliveries),
      [50, 100],
    );
    assert.equal(missing.code, 1, missing.said);
    assert.match(missing.said, /first limit hit: deliveries \(the server\)/);
  });

  test('missing file descriptors of the client are reported before the start, and found when forced', {
    timeout: LIMIT_MS,
  }, async (t) => {
    const server = await shared;
    const within = ['bash', '-c', 'ulimit -n 200; exec "$@"', 'bash'];
    const args = [
      ...target(server),
      '--connections',
      '300',
      '--processes',
      '1',
      '--phases',
      'connect',
    ];
    const refused = await swarm(t, args, { within });
    assert.equal(refused.code, 2, refused.said);
    assert.match(refused.said, /this client machine can open at most 136\./);
    assert.match(refused.said, /file descriptors of the client processes: .*\n.*ulimit -Hn/);
    const forced = await swarm(t, [...args, '--force'], { within });
    assert.equal(forced.code, 1, forced.said);
    assert.match(
      forced.said,
      /first limit hit: file descriptors of a client process \(this client\): \d+ × EMFILE/,
    );
  });

  test('missing ports of the client are reported before the start, and found when forced', {
    timeout: LIMIT_MS,
  }, async (t) => {
    if (process.getuid?.() !== 0) return t.skip('network namespaces need root');
    const name = `fanfare-${process.pid}-swarm`;
    execFileSync('ip', ['netns', 'add', name]);
    t.after(() => execFileSync('ip', ['netns', 'delete', name]));
    const within = ['ip', 'netns', 'exec', name];
    /** @param {string[]} command */
    const inside = (...command) => execFileSync(within[0], [...within.slice(1), ...command]);
    inside('ip', 'link', 'set', 'lo', 'up');
    inside('sysctl', '-qw', 'net.ipv4.ip_local_port_range=40000 40099');
    const server = await startServer(
      t,
      { FANFARE_LIMITS: 'off', HOST: '0.0.0.0', PORT: '3000', METRICS_PORT: '9090' },
      { prefix: within },
    );
    const args = [...target(server), '--connections', '150', '--phases', 'connect'];

    const refused = await swarm(t, args, { within });
    assert.equal(refused.code, 2, refused.said);
    assert.match(
      refused.said,
      /150 connections were asked for; this client machine can open at most 100\./,
    );
    assert.match(
      refused.said,
      /100 ports \(net\.ipv4\.ip_local_port_range = 40000 40099\) × 1 source address/,
    );
    assert.throws(
      () => readFileSync(refused.html),
      'nothing was opened, so there is nothing to report',
    );

    // As the plan says: an address has each port once for each target; and a run leaves no port
    // behind it.
    for (const source of [[], ['--source', '127.0.0.2']]) {
      const forced = await swarm(t, [...args, ...source, '--force'], { within });
      assert.equal(forced.code, 1, forced.said);
      assert.match(
        forced.said,
        /verdict: this client was the limit, not the server: client ports; 100 of 150 connections/,
      );
      assert.match(forced.said, /50 × EADDRNOTAVAIL, .* with 100 connections open/);
    }
    const more = [
      ['--source', '127.0.0.2-127.0.0.3'],
      ['--source', '127.0.0.2', '--target', 'ws://127.0.0.9:3000/ws'],
    ];
    for (const way of more) {
      const held = await swarm(t, [...args, ...way], { within });
      assert.equal(held.code, 0, held.said);
    }
  });

  test('netns.sh connects isolated networks to one server, and leaves nothing behind', {
    timeout: LIMIT_MS,
  }, async (t) => {
    if (process.getuid?.() !== 0) return t.skip('network namespaces need root');
    const script = fileURLToPath(new URL('../../loadtest/netns.sh', import.meta.url));
    const args = [
      '--networks',
      '2',
      '--connections',
      '40',
      '--seconds',
      '1',
      '--port-range',
      '40000 40049',
      '--workers',
      '1',
    ];
    // An earlier run that was killed has left these: no process has its pid now.
    const { pid: dead } = spawnSync('true');
    execFileSync('ip', ['netns', 'add', `fanfare-${dead}-1`]);
    execFileSync('ip', ['addr', 'add', '10.219.0.1/32', 'dev', 'lo', 'label', `lo:${dead}`]);

    const child = spawn(script, [
      ...args,
      '--results',
      temporaryFolder(t),
      '--',
      '--connect-timeout',
      '30',
    ]);
    t.after(() => child.kill('SIGTERM'));
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
    const [code] = await once(child, 'exit');
    assert.equal(code, 0, said);
    // 80 connections with 50 ports: each network has its own.
    assert.match(said, /can open 50 connections \(first limit: client ports\)/);
    assert.match(
      said,
      /netns: 80 of 80 connections opened, 0 failures, in 2 of 2 networks\nnetns: 80 at once, as the server counts/,
    );
    const namespaces = execFileSync('ip', ['netns'], { encoding: 'utf8' });
    const addresses = execFileSync('ip', ['-o', 'addr'], { encoding: 'utf8' });
    for (const pid of [child.pid, dead]) {
      assert.doesNotMatch(namespaces, new RegExp(`fanfare-${pid}-`));
      assert.doesNotMatch(addresses, new RegExp(`lo:${pid}\\b`));
    }
  });
});

/**
 * A phase that was cut short lasted as long as it did.
 * @param {number} seconds as its result says
 * @param {{from: number, to: number}} span as the clock says
 */
function lasted(seconds, { from, to }) {
  assert.ok(seconds > 0 && seconds <= to - from, `${seconds} s of ${to - from} s`);
}

/**
 * Runs the swarm.
 * @param {import('node:test').TestContext} t
 * @param {string[]} args
 * @param {object} [how]
 * @param {string[]} [how.within] a command that becomes what follows it
 * @param {(line: string, child: import('node:child_process').ChildProcess) => void} [how.onOutput]
 */
async function swarm(t, args, { within = [], onOutput } = {}) {
  const path = join(temporaryFolder(t), 'report');
  const patient = ['--connect-timeout', '30']; // how quick the machine is, is not the question
  const [command, ...rest] = [
    ...within,
    process.execPath,
    SWARM,
    ...patient,
    ...args,
    '--report',
    path,
  ];
  const child = spawn(command, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (data) => {
      said += data;
      onOutput?.(said, child);
    });
  const [code] = await once(child, 'exit');
  /** @returns {any} */
  const report = () => JSON.parse(readFileSync(`${path}.json`, 'utf8'));
  return { code, said, report, html: `${path}.html` };
}

/** @param {import('../harness/server.js').Server} server */
function target({ port }) {
  return ['--target', `ws://127.0.0.1:${port}/ws`];
}

/** @param {import('node:test').TestContext} t @param {string} html */
async function drawn(t, html) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS });
  t.after(() => browser.close());
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  /** @type {string[]} */
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => complaints.push(message.text()));
  page.on('request', (request) => {
    if (!request.url().startsWith('file:')) complaints.push(request.url());
  });
  await page.goto(pathToFileURL(html).href);
  const titles = await page.locator('.chart strong').allTextContents();
  for (const title of [
    'Connections open',
    'Connections opened',
    'Latency',
    'Messages received',
    'Resident memory',
  ])
    assert.ok(titles.includes(title), `${title} of ${titles.join(', ')}`);
  assert.ok(titles.some((title) => title.startsWith('Round trip of a broadcast')));

  const charts = page.locator('.chart svg');
  const lines = page.locator('.chart path.line');
  for (let i = 0; i < (await lines.count()); i++) {
    const line = await lines.nth(i).evaluate((path) => {
      const own = /** @type {any} */ (path).getBoundingClientRect();
      const frame = /** @type {any} */ (path).closest('svg').getBoundingClientRect();
      const isInside =
        own.left >= frame.left &&
        own.right <= frame.right &&
        own.top >= frame.top &&
        own.bottom <= frame.bottom;
      return { isInside, width: own.width };
    });
    assert.ok(line.isInside && line.width > 50, `line ${i}: ${JSON.stringify(line)}`);
  }
  for (let i = 0; i < (await charts.count()); i++) {
    const picture = (await charts.nth(i).screenshot()).toString('base64');
    assert.ok((await colouredPixels(page, picture)) > 100, `${titles[i]} has a line to be seen`);
  }
  await charts.first().hover();
  assert.match(await page.locator('.tip:visible').innerText(), /open: \d+/);
  assert.deepEqual(complaints, []);
}

/**
 * Pixels of a picture that are neither grey nor nearly so: text, grid and shades are.
 * @param {import('playwright-core').Page} page
 * @param {string} png base64
 * @returns {Promise<number>}
 */
function colouredPixels(page, png) {
  return page.evaluate(async (data) => {
    const { Image, OffscreenCanvas } = /** @type {any} */ (globalThis); // the page's
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    const { data: bytes } = context.getImageData(0, 0, image.width, image.height);
    let coloured = 0;
    for (let i = 0; i < bytes.length; i += 4) {
      const [red, green, blue] = bytes.slice(i, i + 3);
      if (Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured++;
    }
    return coloured;
  }, png);
}

/**
 * A server that sends every text through `answer`.
 * @param {import('node:test').TestContext} t
 * @param {(text: string, sender: import('ws').WebSocket, all: Set<import('ws').WebSocket>) => void}
 *   answer
 * @returns {Promise<string[]>} how to aim at it
 */
async function otherServer(t, answer) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', path: '/other' });
  await once(server, 'listening');
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  server.on('connection', (socket) =>
    socket.on('message', (data) => answer(String(data), socket, server.clients)),
  );
  return [
    '--target',
    `ws://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}/other`,
  ];
}
