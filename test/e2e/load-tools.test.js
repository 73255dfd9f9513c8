// The load tools as a user meets them: after `npm ci --omit=dev`, with a wrong command line, with a
// question.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';
import { freePort } from '../harness/redis.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
/** Of README.md and package.json, for people. */
const TOOLS = Object.freeze([
  'loadtest/hello.js',
  'loadtest/hooks.js',
  'loadtest/verify.js',
  'loadtest/swarm.js',
  'loadtest/capacity.js',
  'loadtest/fleet/fleet.js',
  'loadtest/deploy/compare.js',
  'loadtest/artillery/all.js',
]);

/** Those that measure the server for its own developers. */
const BENCH = Object.freeze(
  [
    ...['run', 'slow', 'churn', 'scale', 'loop', 'history', 'streams', 'deflate', 'tls', 'tokens'],
    ...['pusher', 'centrifugo'],
  ].map((name) => `loadtest/bench/${name}.js`),
);

/** A tree like that of `npm ci --omit=dev`. */
const bare = bareTree();
after(() => rmSync(bare, { recursive: true }));

describe('the load tools', { concurrency: 2 }, () => {
  for (const tool of [...TOOLS, ...BENCH, 'loadtest/netns.sh', 'loadtest/wire.sh']) {
    test(`${tool} --help prints its options, and needs no development dependencies for that`, async (t) => {
      const { code, out, err } = await run(t, [tool, '--help']);
      assert.deepEqual([code, err], [0, '']);
      assert.match(
        out,
        tool.endsWith('.js') ? /^ {2}--help +prints this$/m : /^wire\.sh|--networks/m,
      );
    });

    test(`${tool} answers an unknown option with one line and exit code 2`, async (t) => {
      const { code, out, err } = await run(t, [tool, '--nonsense', '1']);
      assert.deepEqual([code, out], [2, ''], err);
      assert.match(
        err,
        /^((netns|wire)\.sh: )?unknown option: --nonsense \(--help lists the options\)\n$/,
      );
    });
  }

  for (const tool of ['hello.js', 'swarm.js', 'artillery/all.js']) {
    test(`${tool} looks for the server at PORT`, async (t) => {
      const { out } = await run(t, [`loadtest/${tool}`, '--help'], { PORT: '3999' });
      assert.match(out, /^ {2}--target URL +.*\[ws:\/\/[\w.]+:3999(\/ws)?\]$/m);
    });
  }

  test('hello says at which port nothing listens, and what to do', async (t) => {
    const PORT = String(await freePort());
    const said = `nothing listens at ws://127.0.0.1:${PORT}/ws: is the server started (npm start)?\n`;
    for (const args of [[], ['--target', `ws://127.0.0.1:${PORT}/ws`]]) {
      const { code, err } = await run(t, ['loadtest/hello.js', ...args], { PORT });
      assert.deepEqual([code, err], [1, said]);
    }
  });

  /** @type {[string[], RegExp][]} */
  const wrong = [
    [
      ['loadtest/hello.js', 'localhost'],
      /not a URL that begins with ws:\/\/ or wss:\/\/: localhost/,
    ],
    [['loadtest/hello.js', 'ws://a/', 'ws://b/'], /unexpected argument: ws:\/\/b\//],
    [
      ['loadtest/verify.js', '--clients', 'many'],
      /--clients is a number from 1 to 100000, not many/,
    ],
    [['loadtest/hooks.js', '--hook', 'slow'], /--hook is a number of ms, sync or none/],
    [['loadtest/verify.js', '--clients'], /--clients needs a value/],
    [['loadtest/verify.js', '--servers', '2'], /several servers need --redis/],
    [['loadtest/verify.js', '--messages', '1.5'], /--messages is a whole number, not 1\.5/],
    [
      ['loadtest/verify.js', '--url', 'http://a/'],
      /--url is a URL that begins with ws:\/\/, not http:\/\/a\//,
    ],
    [['loadtest/capacity.js', '--sizes', '10,5'], /--sizes is a number of at least 10, not 5/],
    [['loadtest/bench/loop.js', '--rates', 'a'], /--rates is a number from 0\.1 to 100000, not a/],
    [['loadtest/swarm.js', '--rate', '-5'], /--rate is a number from 0 to 10000000, not -5/],
    [
      ['loadtest/artillery/all.js', '--only', 'smoke,smoking'],
      /--only is a list of smoke, .*, not smoke,smoking/,
    ],
    [['loadtest/artillery/all.js', '--overrides', '{'], /--overrides is not JSON: /],
    [
      ['loadtest/bench/run.js', '--only', 'nothing'],
      /--only is a list of none, fanfare, .*, not nothing/,
    ],
    [['loadtest/netns.sh', '--networks', '0'], /0 is not a whole number above 0/],
  ];
  test('a tool that needs the C client names the missing compiler before it starts anything', async (t) => {
    for (const tool of ['capacity.js', 'bench/run.js', 'bench/slow.js']) {
      const { code, out, err } = await run(t, [`loadtest/${tool}`], { PATH: '' });
      assert.deepEqual([code, out], [2, ''], err);
      assert.match(err, /^the load client is a C program: install a C compiler named cc.*\n$/);
    }
  });

  for (const [args, message] of wrong) {
    test(`a wrong command line is answered with one line and exit code 2: ${args.join(' ')}`, async (t) => {
      const { code, out, err } = await run(t, args);
      assert.deepEqual([code, out], [2, ''], err);
      assert.match(err, message);
      assert.equal(err.split('\n').length, 2, err);
    });
  }

  for (const tool of ['loadtest/artillery/artillery.js', 'loadtest/artillery/all.js']) {
    test(`without Artillery ${tool} names in one line what to install`, async (t) => {
      const { code, out, err } = await run(t, [tool]);
      assert.deepEqual([code, out], [2, '']);
      assert.match(err, /^Artillery is not installed: run `npm ci`.*\n$/);
    });

    test(`without a server ${tool} shows in one line how to start one`, async (t) => {
      const target = `ws://127.0.0.1:${await freePort()}`;
      const { code, out, err } = await run(t, [join(root, tool), '--target', target]);
      assert.deepEqual([code, out], [2, '']);
      assert.equal(
        err,
        `nothing listens at ${target}: start a server with FANFARE_LIMITS=off npm start\n`,
      );
    });
  }

  test('npm run loadtest and npm run loadtest:all run these tools', () => {
    const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    assert.equal(scripts.loadtest, 'node loadtest/artillery/artillery.js');
    assert.equal(scripts['loadtest:all'], 'node loadtest/artillery/all.js');
  });

  test('the fleet simulator reports what its workers and rooms cost Redis', async (t) => {
    const { code, out, err } = await run(t, [
      'loadtest/fleet/fleet.js',
      ...['--workers', '2', '--processes', '1', '--rooms', '4'],
      ...['--phases', 'idle,rooms', '--settle', '0', '--seconds', '2'],
    ]);
    assert.equal(code, 0, out + err);
    assert.match(
      out,
      /^A worker: [\d.,]+ µs of Redis CPU a second, [\d.]+ bytes of AOF a second\.$/m,
    );
    assert.match(out, /^\| publish \| [\d.]+ × [\d.]+ \| [\d.]+ × [\d.]+ \|$/m);
  });

  test('the fleet simulator moves slots and restarts servers on a cluster, and every room hears', async (t) => {
    const { code, out, err } = await run(t, [
      'loadtest/fleet/fleet.js',
      ...['--cluster', '--workers', '4', '--per-server', '2', '--processes', '1', '--rooms', '200'],
      ...['--phases', 'slots,restart', '--slots', '2', '--settle', '0', '--seconds', '1'],
    ]);
    assert.equal(code, 0, out + err);
    assert.match(out, /^- slots: 2 slots moved in [\d.]+ s, .* later all rooms heard\.$/m);
    assert.match(out, /^- restart: 2 servers of 2 workers restarted one by one /m);
    assert.match(out, /^\| spublish \| [\d.,]+ × [\d.]+ \|/m);
  });

  test('the swarm runs without the development dependencies, on a terminal and off it', async (t) => {
    const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
    await once(server, 'listening');
    t.after(() => {
      for (const client of server.clients) client.terminate();
      server.close();
    });
    server.on('connection', (socket) => socket.on('message', (data) => socket.send(String(data))));
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    const { code, out, err } = await run(t, [
      'loadtest/swarm.js',
      ...[
        '--target',
        `ws://127.0.0.1:${port}/`,
        '--profile',
        'echo',
        '--connections',
        '10',
        '--phases',
        'connect,burst',
      ],
    ]);
    assert.equal(code, 0, out + err);
    assert.match(out, /verdict: held: 10 connections, every phase, no failure/);
    // A terminal is where the bar would be.
    const onTerminal = `
      import { Progress } from './loadtest/swarm/progress.js';
      const progress = new Progress({ isTTY: true });
      progress.begin('connect');
      progress.update(1, 2, '', 0);
      progress.end();`;
    const drawn = await run(t, ['--input-type=module', '--eval', onTerminal]);
    assert.deepEqual([drawn.code, drawn.err], [0, '']);
  });
});

/**
 * Runs a tool in the bare tree.
 * @param {import('node:test').TestContext} t
 * @param {string[]} args
 * @param {Record<string, string>} [env]
 */
async function run(t, args, env) {
  const [command, ...rest] = args[0].endsWith('.sh')
    ? ['bash', ...args]
    : [process.execPath, ...args];
  const child = spawn(command, rest, {
    cwd: bare,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  const said = { out: '', err: '' };
  child.stdout.on('data', (data) => (said.out += data));
  child.stderr.on('data', (data) => (said.err += data));
  const [code] = await once(child, 'close');
  return { code, ...said };
}

/** @returns {string} a copy of the sources, beside the production dependencies alone */
function bareTree() {
  const tree = mkdtempSync(join(tmpdir(), 'fanfare-bare-'));
  for (const path of ['src', 'loadtest', 'test/harness', 'package.json'])
    cpSync(join(root, path), join(tree, path), {
      recursive: true,
      filter: (from) => !['node_modules', 'results'].includes(basename(from)),
    });
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  for (const [path, { dev, devOptional }] of Object.entries(packages)) {
    if (!/^node_modules\/(@[^/]+\/)?[^/]+$/.test(path) || dev || devOptional) continue;
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    symlinkSync(join(root, path), join(tree, path));
  }
  return tree;
}
