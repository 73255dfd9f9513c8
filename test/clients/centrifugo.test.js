// centrifugo.test.js: SDKs of Centrifugo's protocol, unchanged, by their own tests against a real
// server: `node test/run.js clients`. e2e/centrifuge-js has the dev dependency.
//
// Their tests name `localhost:8000` and the secret `secret`. They get the address of the server under
// test instead, and tokens with the same claims, signed with a secret as long as Fanfare demands.
// The tests of centrifuge-python and centrifuge-go come with their packages. Those of centrifuge-js
// are in its repository only: FANFARE_TEST_CENTRIFUGE_JS names a checkout of it.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';
import { endings } from '../../src/doors/centrifugo/codec/codes.js';
import { API_KEY, API_PATH, startOpenDoor } from '../helpers/centrifugo-sdk.js';
import { startClosingServer } from '../helpers/closing-server.js';
import { rawToken, SECRET } from '../helpers/tokens.js';

const INSTALL_TIMEOUT_MS = 300_000;
const SUITE_TIMEOUT_MS = 300_000;
/** Their Centrifugo's channels: everything has history and presence, some keep only two messages. */
const CHANNELS = Object.freeze({
  FANFARE_HISTORY: 'smallhistory*=2/300s,*=100/300s',
  FANFARE_PRESENCE: '*',
});

/** The commit of centrifuge-js 5.7.1 whose tests run. */
const CENTRIFUGE_JS_COMMIT = 'c9e867858f703ef7e0b4c68e77004b36b3490214';
/**
 * Test files of centrifuge-js at that commit: which of their tests run, how many there are, how many
 * others the pattern leaves out, and the SHA-256 of the file.
 */
const SUITES = Object.freeze([
  {
    name: 'centrifuge',
    tests: 62,
    others: 0,
    sha256: '589c3487105ccba062c1d77dbebbcf6291dbcb7c5d2ae88a001120286e0e0a24',
  },
  {
    name: 'centrifuge.protobuf',
    tests: 8,
    others: 0,
    sha256: '5810ca27b1204aee158f467b7be27947f473c118ab701b03f901e59172c79fb5',
  },
  {
    name: 'recovery',
    pattern: '^stream:',
    tests: 3,
    others: 1,
    sha256: '33e91eefdab4de0ee01a4ff15dd512957f7681350ca5d1908eb6bab1b2fbbcf2',
  },
  {
    name: 'getstate',
    tests: 7,
    others: 0,
    sha256: 'f29eb8e0f6a534bd27f37be7e825e1af8c9ce119a50a1f6e575e9d2bea706b8c',
  },
]);

const here = fileURLToPath(new URL('./centrifugo/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'fanfare-centrifugo-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/**
 * @param {string} command
 * @param {string[]} args
 * @param {{timeout?: number, env?: Record<string, string>, cwd?: string}} [options]
 * @returns {Promise<{code: number|null, output: string}>}
 */
async function run(command, args, { timeout = SUITE_TIMEOUT_MS, env = {}, cwd = folder } = {}) {
  const child = spawn(command, args, { cwd, timeout, env: { ...process.env, ...env } });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      output += text;
    });
  const [code] = await once(child, 'close');
  return { code, output };
}

/** The same for a command that must succeed. @param {Parameters<typeof run>} call */
async function done(...call) {
  const { code, output } = await run(...call);
  assert.equal(code, 0, `${call[0]} ${call[1].join(' ')}\n${output}`);
  return output;
}

/**
 * A test of an SDK with the address, the key and the secret of our server.
 * @param {string} source @param {number} port
 */
function addressed(source, port) {
  return source
    .replaceAll('localhost:8000/api', `127.0.0.1:${port}${API_PATH}`)
    .replaceAll('localhost:8000', `127.0.0.1:${port}`)
    .replaceAll('test-api-key', API_KEY)
    .replaceAll('hmac_secret = "secret"', `hmac_secret = "${SECRET}"`)
    .replace(/\beyJ[\w-]+\.([\w-]+)\.[\w-]+/g, (_, claims) =>
      rawToken('{"alg":"HS256","typ":"JWT"}', Buffer.from(claims, 'base64url').toString()),
    );
}

/** The same of a file. @param {string} path @param {number} port */
const readdress = (path, port) => writeFileSync(path, addressed(readFileSync(path, 'utf8'), port));

/**
 * Builds a test file of centrifuge-js, which imports the package's sources, for its npm package.
 * @param {{name: string, sha256: string, checkout: string, port: number}} suite
 */
async function buildSuite({ name, sha256, checkout, port }) {
  const text = readFileSync(join(checkout, `src/${name}.test.ts`), 'utf8');
  const hash = createHash('sha256').update(text).digest('hex');
  assert.equal(hash, sha256, `${name}.test.ts is not that of ${CENTRIFUGE_JS_COMMIT}`);
  const source = addressed(text, port)
    .replace("from './protobuf'", "from 'centrifuge/build/protobuf'")
    .replaceAll(/from '\.\/(centrifuge|types|codes)'/g, "from 'centrifuge'");
  const { code } = await esbuild.transform(source, { loader: 'ts', format: 'cjs' });
  writeFileSync(join(folder, `${name}.test.js`), code);
}

const { FANFARE_TEST_CENTRIFUGE_JS: checkout = '' } = process.env;
const skip =
  checkout === '' && `set FANFARE_TEST_CENTRIFUGE_JS to a checkout of ${CENTRIFUGE_JS_COMMIT}`;

describe('centrifuge-js 5.7.1', { skip }, () => {
  before(async () => {
    copyFileSync(join(here, 'package.json'), join(folder, 'package.json'));
    const flags = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];
    await done('npm', ['install', ...flags], { timeout: INSTALL_TIMEOUT_MS });
  });

  for (const { name, pattern = '', tests, others, sha256 } of SUITES)
    test(`its own ${name}.test.ts`, { timeout: SUITE_TIMEOUT_MS }, async (t) => {
      const { port } = await startOpenDoor(t, CHANNELS);
      await buildSuite({ name, sha256, checkout, port });
      const file = join(folder, `${name}.json`);
      const jest = join(folder, 'node_modules/.bin/jest');
      const { output } = await run(jest, [
        `${name}.test.js`,
        ...['--rootDir', folder, '--json', '--outputFile', file, '--transform', '{}'],
        ...(pattern === '' ? [] : ['-t', pattern]),
      ]);
      const { testResults } = JSON.parse(readFileSync(file, 'utf8'));
      /** @type {{status: string, fullName: string}[]} */
      const results = testResults.flatMap((/** @type {any} */ suite) => suite.assertionResults);
      const failed = results.filter(({ status }) => status === 'failed');
      const names = failed.map(({ fullName }) => fullName);
      assert.deepEqual(names, [], output);
      const passed = results.filter(({ status }) => status === 'passed').length;
      // Node 22 has a WebSocket, so one test of the first file does not apply there.
      assert.ok(passed === tests || passed === tests - 1, `${passed} passed`);
      assert.ok(results.length - passed <= others + 1, output);
    });
});

describe('centrifuge-python 0.7.0', () => {
  const venv = join(folder, 'python');
  const python = join(venv, 'bin/python');
  const sources = join(folder, 'python-sources');
  /** Of tests/test_client.py. Why: docs/compatibility.md. */
  const NOT_APPLICABLE = ['TestJoinLeave', 'TestPresenceTwoClients'];

  before(async () => {
    if (spawnSync('python3', ['--version']).error)
      throw new Error('there is no python3 here: install Python 3.9 or later');
    await done('python3', ['-m', 'venv', venv], { timeout: INSTALL_TIMEOUT_MS });
    const pip = ['-m', 'pip', '--quiet', '--disable-pip-version-check'];
    const requirements = ['-r', join(here, 'requirements.txt')];
    await done(python, [...pip, 'install', ...requirements], { timeout: INSTALL_TIMEOUT_MS });
    // The source distribution has the tests.
    const download = ['download', '--no-deps', '--no-binary', 'centrifuge-python'];
    await done(python, [...pip, ...download, '-d', folder, 'centrifuge-python==0.7.0'], {
      timeout: INSTALL_TIMEOUT_MS,
    });
    mkdirSync(sources);
    const archive = readdirSync(folder).find((name) => /^centrifuge_python.*\.tar\.gz$/.test(name));
    await done('tar', ['xzf', String(archive), '-C', sources, '--strip-components=1']);
  });

  test('its own tests/test_client.py, JSON and protobuf', {
    timeout: SUITE_TIMEOUT_MS,
  }, async (t) => {
    const { port } = await startOpenDoor(t, { ...CHANNELS, FANFARE_CENTRIFUGO_PERSONAL: '#' });
    for (const name of ['centrifugo.py', 'test_client.py'])
      readdress(join(sources, 'tests', name), port);
    const source = readFileSync(join(sources, 'tests/test_client.py'), 'utf8');
    const classes = [...source.matchAll(/^class (Test\w+)/gm)]
      .map(([, name]) => name)
      .filter((name) => !NOT_APPLICABLE.includes(name));
    const names = classes.map((name) => `tests.test_client.${name}`);
    await done(python, ['-m', 'unittest', ...names], { cwd: sources });
  });

  test('it returns after the closes that docs/centrifugo.md names, and after no others', {
    timeout: SUITE_TIMEOUT_MS,
  }, async (t) => {
    const server = await startClosingServer();
    t.after(server.close);
    const rows = endings().map(({ code, clients }) => [String(code), /^return/.test(clients)]);
    const promised = Object.fromEntries(rows);
    const url = `ws://127.0.0.1:${server.port}/centrifugo`;
    const output = await done(python, [join(here, 'returns.py'), url, ...Object.keys(promised)]);
    assert.deepEqual(JSON.parse(output), promised);
  });
});

test('centrifuge-go v0.12.1: its own tests', { timeout: INSTALL_TIMEOUT_MS }, async (t) => {
  if (spawnSync('go', ['version']).error) return t.skip('there is no Go here');
  const module = 'github.com/centrifugal/centrifuge-go@v0.12.1';
  const { status, stdout, stderr } = spawnSync('go', ['mod', 'download', '-json', module], {
    cwd: folder,
    encoding: 'utf8',
  });
  if (status !== 0) return t.skip(`the module is not to be had: ${stdout}${stderr}`);
  const sources = join(folder, 'go');
  cpSync(JSON.parse(stdout).Dir, sources, { recursive: true });
  await done('chmod', ['-R', 'u+w', sources]);
  // Their Centrifugo has no presence.
  const { port } = await startOpenDoor(t, { ...CHANNELS, FANFARE_PRESENCE: '' });
  for (const name of readdirSync(sources))
    if (name.endsWith('_test.go')) readdress(join(sources, name), port);
  /** Why: docs/compatibility.md. */
  const skip = '^(TestPublishProtobuf|TestSubscribeError|TestHandlePublishFossil)$';
  const args = ['test', '-count=1', '-skip', skip, '.'];
  await done('go', args, { cwd: sources, timeout: INSTALL_TIMEOUT_MS });
});
