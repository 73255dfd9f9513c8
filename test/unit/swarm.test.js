// The swarm's plan: the connections that a client machine can open, its first limit, and the side to
// which the limit of an error belongs.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chartFigure, niceTicks } from '../../loadtest/swarm/chart.js';
import { classify, Failures, failureKey } from '../../loadtest/swarm/failures.js';
import { help, parseOptions, sourcesOf } from '../../loadtest/swarm/options.js';
import { ranked } from '../../loadtest/swarm/phases.js';
import { plan, planText, readLimits, sourceFaults } from '../../loadtest/swarm/plan.js';
import { Ways } from '../../loadtest/swarm/ports.js';
import { verdict, verdictText } from '../../loadtest/swarm/verdict.js';
import { SETTINGS } from '../../src/config/settings.js';
import { Latency } from '../harness/latency.js';
import { UsageError } from '../harness/options.js';
import { HandshakeError } from '../harness/ws-client.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** A Linux machine as it comes: the default port range, 16 GiB, 20,000 files a process. */
const FILES = Object.freeze({
  '/proc/sys/net/ipv4/ip_local_port_range': '32768\t60999\n',
  '/proc/sys/net/ipv4/ip_local_reserved_ports': '\n',
  '/proc/self/limits':
    'Limit  Soft  Hard\nMax open files            1024                 20000                files     \n',
  '/proc/sys/fs/file-nr': '2000\t0\t1000000\n',
  '/proc/meminfo': 'MemTotal:       16777216 kB\nMemAvailable:   15000000 kB\n',
});
const LOCAL = [{ address: '127.0.0.1', port: 3000 }];
const REMOTE = [{ address: '192.0.2.7', port: 3000 }];

/** @param {Record<string, string>} [changed] */
function limits(changed = {}) {
  /** @type {Record<string, string>} */
  const files = { ...FILES, ...changed };
  return readLimits((path) => files[path] ?? '');
}

/** @param {Partial<Parameters<typeof plan>[1]>} wanted @param {Record<string, string>} [changed] */
function planned(wanted, changed) {
  return plan(limits(changed), {
    connections: 40_000,
    sources: ['127.0.0.1'],
    targets: LOCAL,
    processes: 0,
    ...wanted,
  });
}

test('one source address and the default port range permit 28,232 connections, and the plan has the reason and the fix', () => {
  const result = planned({});
  assert.equal(result.most, 28_232);
  assert.equal(result.first.limit, 'client ports');
  assert.equal(result.fits, false);
  const text = planText(result);
  assert.match(
    text,
    /40,000 connections were asked for; this client machine can open at most 28,232\./,
  );
  assert.match(
    text,
    /28,232 ports \(net\.ipv4\.ip_local_port_range = 32768 60999\) × 1 source address/,
  );
  assert.match(text, /each connection to a target takes a port of a source address for itself/);
  assert.match(text, /--source 127\.0\.0\.2-127\.0\.0\.3 /);
  assert.match(text, /ip_local_port_range="1024 65535"/);
});

test('the number of ports is multiplied by source addresses and targets', () => {
  const two = [...LOCAL, { address: '127.0.0.1', port: 3001 }];
  assert.equal(planned({ sources: ['127.0.0.2', '127.0.0.3'] }).most, 2 * 28_232);
  assert.equal(planned({ sources: ['127.0.0.2', '127.0.0.3'], targets: two }).most, 4 * 28_232);
  assert.equal(planned({ sources: [], targets: two }).most, 2 * 28_232);
  assert.equal(planned({ sources: [] }).most, 28_232);
  assert.match(
    planText(planned({ connections: 80_000, targets: two })),
    /× 1 source address × 2 targets\n[\s\S]*--source 127\.0\.0\.2-127\.0\.0\.3 /,
  );
});

test('reserved ports and ports in use are left out', () => {
  const reserved = {
    '/proc/sys/net/ipv4/ip_local_reserved_ports': '1000-32769,40000,60990-61010\n',
  };
  assert.equal(planned({}, reserved).most, 28_232 - 2 - 1 - 10);
  assert.deepEqual(planned({}, reserved).ports.slice(0, 2), [32_770, 32_771]);
  // In TIME_WAIT, to the target; its other end; from another address to another target; a listener
  // on all addresses.
  const sockets = {
    '/proc/self/net/tcp': [
      '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode',
      '   0: 0100007F:9C41 0100007F:0BB8 06 00000000:00000000 03:00000E7B 00000000     0        0 0 3',
      '   1: 0100007F:0BB8 0100007F:9C41 01 00000000:00000000 00:00000000 00000000     0        0 1 1',
      '   2: 0200007F:9C42 0100007F:0BB9 01 00000000:00000000 00:00000000 00000000     0        0 1 1',
      '   3: 00000000:9C43 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1',
    ].join('\n'),
  };
  const bound = planned({}, sockets);
  assert.equal(bound.most, 28_232 - 2);
  assert.match(planText(bound), /less 2 that are taken now/);
  assert.equal(planned({ sources: ['127.0.0.2'] }, sockets).most, 28_232 - 1);
  assert.equal(
    planned({ sources: ['127.0.0.2'], targets: [{ address: '127.0.0.1', port: 3001 }] }, sockets)
      .most,
    28_232 - 2,
  );
  assert.equal(planned({ sources: [] }, sockets).most, 28_232 - 2);
});

test('each pair of source and target uses each port once, and reuses a free port only if no other is left', () => {
  const targets = ['ws://a/', 'ws://b/'].map((url) => ({
    url: new URL(url),
    address: '127.0.0.1',
  }));
  const ways = new Ways(targets, ['127.0.0.2', '127.0.0.3'], [1, 2, 3]);
  const taken = Array.from({ length: 12 }, () => ways.take());
  assert.equal(
    new Set(taken.map(({ way, port }) => `${way.target.url} ${way.source} ${port}`)).size,
    12,
  );
  assert.deepEqual(new Set(taken.slice(0, 4).map(({ port }) => port)), new Set([1]));
  assert.equal(ways.hasMore, false);
  assert.ok([1, 2, 3].includes(Number(ways.take().port)), 'in use: the kernel will refuse it');
  ways.release(taken[7].way, taken[7].port);
  assert.equal(ways.hasMore, true);
  assert.deepEqual(ways.take(), taken[7]);
  const free = new Ways(targets, [], [1, 2, 3]);
  const [first, second] = [free.take(), free.take()];
  assert.deepEqual(
    [first.port, second.port, free.hasMore],
    [undefined, undefined, false],
    'the kernel chooses',
  );
  assert.notEqual(first.way.target, second.way.target);
});

test('a process holds at most 19,000 connections, or fewer by its descriptors, and the plan has enough processes', () => {
  const many = { sources: sourcesOf('127.0.0.2-127.0.0.9'), connections: 50_000 };
  assert.deepEqual([planned(many).processes, planned(many).fits], [3, true]);
  const few = {
    '/proc/self/limits':
      'Max open files            1024                 1024                files     \n',
  };
  assert.deepEqual([planned(many, few).processes, planned(many, few).fits], [53, true]);
  const given = planned({ ...many, processes: 2 });
  assert.deepEqual(
    [given.most, given.first.limit],
    [38_000, 'file descriptors of the client processes'],
  );
  assert.match(planText(given), /--processes 3, or leave it out/);
});

test("descriptors and memory count twice if the server runs on the same machine, and a container's limit counts", () => {
  const files = { '/proc/sys/fs/file-nr': '2000\t0\t32000\n' };
  assert.deepEqual(
    [planned({}, files).most, planned({}, files).first.limit],
    [15_000, 'file descriptors of this machine'],
  );
  const far = planned({ targets: REMOTE, sources: ['10.0.0.1', '10.0.0.2'] }, files);
  assert.deepEqual([far.most, far.first.limit], [30_000, 'file descriptors of this machine']);
  const container = {
    '/sys/fs/cgroup/memory.max': String(2 ** 29),
    '/sys/fs/cgroup/memory.current': '0\n',
  };
  const small = planned({ sources: sourcesOf('127.0.0.2-127.0.0.9') }, container);
  assert.equal(small.first.limit, 'memory');
  assert.equal(
    planned({ sources: sourcesOf('127.0.0.2-127.0.0.9') }, { '/sys/fs/cgroup/memory.max': 'max\n' })
      .fits,
    true,
  );
});

test('a value that cannot be read limits nothing, and the plan reports it', () => {
  const result = plan(
    readLimits(() => ''),
    { connections: 2_000_000, sources: [], targets: LOCAL, processes: 0 },
  );
  assert.equal(result.first.limit, 'file descriptors of the client processes');
  assert.match(planText(result), /ip_local_port_range could not be read/);
});

test('an address that this machine does not have is found before the start', async () => {
  assert.deepEqual(await sourceFaults(['127.0.0.2']), []);
  const [fault] = await sourceFaults(['192.0.2.1', '127.0.0.3']);
  assert.match(
    fault,
    /192\.0\.2\.1 is no address of this machine; add it: ip addr add 192\.0\.2\.1\/24/,
  );
});

test('source addresses are single ones, ranges and lists', () => {
  assert.deepEqual(sourcesOf('127.0.0.254-127.0.1.1, 10.0.0.1'), [
    '127.0.0.254',
    '127.0.0.255',
    '127.0.1.0',
    '127.0.1.1',
    '10.0.0.1',
  ]);
  assert.deepEqual(sourcesOf('::1'), ['::1']);
  for (const wrong of [
    '',
    '127.0.0',
    '127.0.0.9-127.0.0.2',
    '10.0.0.0-10.9.0.0',
    '1.1.1.1-1.1.1.2-1.1.1.3',
    'a.b',
  ])
    assert.throws(() => sourcesOf(wrong), UsageError, wrong);
});

test('options are checked, and the message names the invalid one', () => {
  const options = parseOptions([
    '--connections',
    '50000',
    '--limit-rtt',
    '100',
    '--endurance',
    '0.5',
    '--report',
    'x/y.html',
  ]);
  assert.equal(options?.connections, 50_000);
  assert.equal(options?.limitRttMs, 100);
  assert.equal(options?.enduranceMs, 500);
  assert.equal(options?.rate, 5000);
  assert.equal(options?.report, 'x/y');
  /** @type {[string[], RegExp][]} */
  const wrong = [
    [['--connections', '0'], /--connections/],
    [['--connections', '1.5'], /--connections is a whole number/],
    [['--conections', '1'], /conections/],
    [['--target', 'http://x'], /ws:/],
    [['--target', 'wss://x'], /TLS/],
    [['x'], /not a URL that begins with ws:\/\/: x/],
    [['--metrics', 'x'], /http:/],
    [['--phases', 'burst'], /connect/],
    [['--phases', 'connect,boost'], /boost/],
    [['--profile', 'other'], /--profile is fanfare, echo, chat/],
    [['--profile', '/no/such.json'], /no such file/],
    [['--profile', 'echo', '--phases', 'connect,broadcast'], /has no broadcast/],
  ];
  for (const [args, message] of wrong) {
    assert.throws(
      () => parseOptions(args),
      (error) => error instanceof UsageError && message.test(error.message),
      args.join(' '),
    );
  }
  const targets = (/** @type {string[]} */ ...args) => parseOptions(args)?.targets.map(String);
  assert.deepEqual(targets('ws://a/'), ['ws://a/']);
  assert.deepEqual(targets('--target', 'ws://a/', 'ws://b/'), ['ws://a/', 'ws://b/']);
  assert.equal(parseOptions(['--help']), null);
  assert.match(help(), /--limit-percentile P +broadcast: .*\[95\]/);
});

test('a profile leaves out phases that its server does not support, and may be a file', (t) => {
  assert.deepEqual(parseOptions(['--profile', 'echo'])?.phases, ['connect', 'burst', 'endurance']);
  assert.deepEqual(parseOptions(['--profile', 'chat'])?.phases, ['connect', 'broadcast']);
  for (const name of ['pusher', 'centrifugo'])
    assert.deepEqual(parseOptions(['--profile', name])?.phases, ['connect']);
  const folder = temporaryFolder(t);
  const file = join(folder, 'mine.json');
  writeFileSync(file, '{"echo":{"before":"e ","after":""},"broadcast":{"before":"b ","after":""}}');
  assert.deepEqual(parseOptions(['--profile', file])?.profile.broadcast, {
    before: 'b ',
    after: '',
    result: null,
  });
  writeFileSync(file, '{"echo":{"before":1}}');
  assert.throws(
    () => parseOptions(['--profile', file]),
    /echo is null or has "before" and "after"/,
  );
});

/** An error of Node's. @param {string} code @param {string} [syscall] */
function nodeError(code, syscall = 'connect') {
  return Object.assign(new Error(`${syscall} ${code}`), { code, syscall });
}

/**
 * @type {[string, unknown, string, RegExp, RegExp][]} event, its error, side of the limit, the limit,
 *   the setting
 */
const CLASSES = [
  [
    'no port left, address bound',
    nodeError('EADDRINUSE'),
    'client',
    /client ports/,
    /--source.*ip_local_port_range/,
  ],
  [
    'no port left',
    nodeError('EADDRNOTAVAIL'),
    'client',
    /client ports/,
    /--source.*ip_local_port_range/,
  ],
  [
    "a source address that is nobody's",
    nodeError('EADDRNOTAVAIL', 'bind'),
    'client',
    /source address/,
    /ip addr add/,
  ],
  [
    'no descriptor left in the process',
    nodeError('EMFILE'),
    'client',
    /descriptors of a client process/,
    /ulimit/,
  ],
  [
    'no descriptor left on the machine',
    nodeError('ENFILE'),
    'client',
    /descriptors of the client machine/,
    /fs\.file-max/,
  ],
  ['refused', nodeError('ECONNREFUSED'), 'server', /does not listen/, /PORT/],
  ['timed out', nodeError('ETIMEDOUT'), 'server', /too late/, /somaxconn/],
  ['reset', nodeError('ECONNRESET', 'read'), 'server', /hangs up/, /nofile/],
  ['closed unanswered', new HandshakeError(0), 'server', /hangs up/, /nofile/],
  [
    '429',
    new HandshakeError(429),
    'server',
    /connections per address/,
    /MAX_CONNECTIONS_PER_IP.*HANDSHAKES_RATE/,
  ],
  [
    '503',
    new HandshakeError(503),
    'server',
    /overloaded or full/,
    /WORKERS.*FANFARE_HANDSHAKE_TIMEOUT_MS/,
  ],
  ['502', new HandshakeError(502), 'between', /proxy/, /ports/],
  ['404', new HandshakeError(404), 'server', /refuses/, /path/],
  ['something else', nodeError('EWHATEVER'), 'between', /not known/, /^$/],
];

for (const [name, error, side, limit, fix] of CLASSES) {
  test(`the limit belongs to the right side: ${name}`, () => {
    const row = classify(failureKey(error));
    assert.equal(row.side, side);
    assert.match(row.limit, limit);
    assert.match(row.fix, fix);
  });
}

test('every setting that the load tests name exists', () => {
  const names = new Set(SETTINGS.map(({ env }) => env));
  const folder = fileURLToPath(new URL('../../loadtest/', import.meta.url));
  for (const path of ['README.md', 'swarm/failures.js', 'swarm/options.js']) {
    const used = [...readFileSync(folder + path, 'utf8').matchAll(/\bFANFARE_[A-Z_]+[A-Z]\b/g)].map(
      ([name]) => name,
    );
    assert.ok(used.length > 0, path);
    for (const name of used) assert.ok(names.has(name), `${path}: ${name}`);
  }
});

test('the first limit is the one that began first, however often others occurred', () => {
  const failures = new Failures();
  failures.add('EADDRINUSE', 1, { seconds: 12.34, open: 28_232 });
  failures.add('ETIMEDOUT', 400, { seconds: 13, open: 28_000 });
  failures.add('EADDRINUSE', 100, { seconds: 14, open: 28_000 });
  const said = verdict({ ...RUN, failures: failures.list(), peak: 28_232 });
  assert.equal(failures.total, 501);
  assert.equal(said.held, false);
  assert.match(
    said.headline,
    /this client was the limit, not the server: client ports; 28,232 of 40,000 connections/,
  );
  const text = verdictText(said);
  assert.match(
    text,
    /first limit hit: client ports \(this client\): 101 × EADDRINUSE, from 12\.3 s on, with 28,232 connections open/,
  );
  assert.match(text, /then: the server answers too late \(the server\): 400 × ETIMEDOUT/);
});

const RUN = Object.freeze({
  results: {},
  failures: [],
  stopped: '',
  asked: 40_000,
  peak: 40_000,
  spans: [],
  addresses: 1,
});

test('a ceiling at a well-known number of ports is named, if the errors do not name it', () => {
  const failures = new Failures();
  failures.add('ETIMEDOUT', 10, { seconds: 1, open: 64_500 });
  const said = verdict({ ...RUN, failures: failures.list(), asked: 100_000, peak: 64_511 });
  assert.match(said.notes.join(), /64,512 ports from 1024 to 65535/);
  assert.deepEqual(
    verdict({ ...RUN, failures: failures.list(), asked: 100_000, peak: 50_000 }).notes,
    [],
  );
  const four = verdict({
    ...RUN,
    failures: failures.list(),
    asked: 200_000,
    peak: 4 * 28_232,
    addresses: 4,
  });
  assert.match(four.notes.join(), /4 × the 28,232 ports/);
});

test('a run passes only without failures, to its end, and at the requested rate', () => {
  assert.equal(verdict(RUN).held, true);
  assert.equal(verdict({ ...RUN, stopped: 'interrupted by SIGINT' }).held, false);
  const endurance = /** @type {any} */ ({
    seconds: 60,
    asked: 5000,
    perSecond: 3000,
    sent: 1,
    replies: 1,
    held: false,
    lost: 0,
    roundTrip: { p50: null },
  });
  const slow = verdict({ ...RUN, results: { endurance } });
  assert.equal(slow.held, false);
  assert.match(slow.headline, /not held: 3,000 of 5,000 messages\/s/);
  const busy = verdict({ ...RUN, spans: [{ name: 'burst', from: 0, to: 3, clientCpu: 0.97 }] });
  const short = verdict({ ...RUN, spans: [{ name: 'burst', from: 0, to: 1, clientCpu: 0.97 }] });
  assert.deepEqual(short.notes, []);
  assert.match(busy.notes.join(), /burst: a client process used 97 % of a core/);
});

test('percentiles are the nearest rank of samples, and null without samples', () => {
  assert.equal(ranked([1, 2, 3, 4], 50), 2);
  assert.equal(ranked([1, 2, 3, 4], 95), 4);
  assert.equal(ranked([1, 2, Number.POSITIVE_INFINITY], 95), Number.POSITIVE_INFINITY);
  assert.equal(ranked([], 95), Number.POSITIVE_INFINITY);
  const one = new Latency();
  assert.equal(one.percentile(95), null);
  for (let ms = 1; ms <= 100; ms++) one.add(ms);
  const other = new Latency();
  other.addDrained(one.drain());
  assert.equal(one.count, 0);
  assert.equal(other.count, 100);
  assert.ok(Math.abs(/** @type {number} */ (other.percentile(95)) - 96) < 1.6);
  assert.equal(other.maxMs, 100);
});

test('ticks are round and reach to the end', () => {
  assert.deepEqual(niceTicks(0, 50_000, 5), [0, 10_000, 20_000, 30_000, 40_000, 50_000]);
  assert.deepEqual(niceTicks(0, 0.7, 5), [0, 0.2, 0.4, 0.6, 0.8]);
  assert.deepEqual(niceTicks(0, 0, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
});

test('a chart has a gap where a value is missing, stays within its frame, and lets no markup in', () => {
  const points = /** @type {[number, number|null][]} */ ([
    [0, 1],
    [1, null],
    [2, 1e6],
    [3, 0],
  ]);
  for (const log of [false, true]) {
    const html = chartFigure({
      title: '<b>',
      unit: ' ms',
      xUnit: ' s',
      log,
      series: [{ name: '</script>', tone: 0, points }],
    });
    assert.ok(html.includes('&#60;b&#62;'));
    assert.equal(html.match(/<\/script>/g)?.length, 1);
    const path = /<path class="line tone0" d="([^"]+)"/.exec(html)?.[1] ?? '';
    assert.equal(path.match(/M/g)?.length, 2);
    for (const [, x, y] of path.matchAll(/[ML]([\d.-]+) ([\d.-]+)/g))
      assert.ok(
        Number(x) >= 0 && Number(x) <= 640 && Number(y) >= 0 && Number(y) <= 230,
        `${x} ${y}`,
      );
  }
  assert.equal(
    chartFigure({
      title: '',
      unit: '',
      xUnit: '',
      series: [{ name: '', tone: 0, points: [[0, null]] }],
    }),
    '',
  );
});
