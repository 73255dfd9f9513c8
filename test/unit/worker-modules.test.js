// worker-modules.test.js: what a worker loads if only the defaults are configured. A module that
// it need not have costs memory in each of them.

import assert from 'node:assert/strict';
import { execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { EXIT } from '../../src/config/exit-codes.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Packages that it loads, with what they need themselves. */
const PACKAGES = new Set([
  ...['pino', 'atomic-sleep', 'fast-redact', 'on-exit-leak-free', 'pino-std-serializers'],
  ...['quick-format-unescaped', 'safe-stable-stringify', 'sonic-boom', 'thread-stream'],
  ...['@pinojs/redact', 'proxy-addr', 'forwarded', 'ipaddr.js', 'ws'],
]);
/** Large parts of Node that only an import of `node:http` asks for: transport/node-http.js. */
const NEVER = /undici|internal\/http2|internal\/webstreams\/(?:transformstream|compression)/;

/** Builds a worker of the embedded backend without starting it, and reports what is loaded. */
const SCRIPT = `
  import { createRequire } from 'node:module';
  import { loadConfig } from './src/config/config.js';
  import { createLog } from './src/observability/log.js';
  await import('./src/worker/process.js');
  const { createWorker } = await import('./src/worker/worker.js');
  const { Phase } = await import('./src/worker/phase.js');
  const log = createLog({ level: 'silent', name: 'test' });
  const { config } = loadConfig({});
  const phase = new Phase();
  await createWorker({ config, log, phase, slot: 0, relayPath: '/nowhere', onBeat() {}, onOrphaned() {} });
  const { cache } = createRequire(import.meta.url);
  console.log(JSON.stringify({ files: Object.keys(cache), parts: process.moduleLoadList }));
  process.exit(0);
`;

test('a worker with the default settings loads only the packages that it uses', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', SCRIPT],
    { cwd: ROOT },
  );
  /** @type {{files: string[], parts: string[]}} */
  const { files, parts } = JSON.parse(stdout);
  const packages = files.map(
    (file) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? file,
  );
  assert.deepEqual(
    [...new Set(packages)].filter((name) => !PACKAGES.has(name)),
    [],
  );
  assert.ok(packages.includes('ws') && packages.includes('pino'), packages.join(' '));
  assert.deepEqual(
    parts.filter((part) => NEVER.test(part)),
    [],
  );
});

/**
 * The files that importing one loads, by `import` and `import()`.
 * @param {string} path below src/ @param {Set<string>} files gets them @param {RegExp} imports
 */
function follow(path, files, imports) {
  if (files.has(path)) return files;
  files.add(path);
  const text = readFileSync(join(ROOT, 'src', path), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
  for (const [, name] of text.matchAll(imports))
    if (name.startsWith('.')) follow(join(dirname(path), name), files, imports);
    else files.add(name);
  return files;
}

test('workers and the courier load no readers of settings', () => {
  const fixed = /^(?:import|export)\b[^;]*?'([^']+)';/gm;
  const files = follow('main.js', new Set(), fixed);
  for (const path of ['worker/process.js', 'webhooks/courier.js'])
    follow(path, files, /(?:^(?:import|export)\b[^;]*?|\bimport\()'([^']+)'/gm);
  assert.ok(files.has('config/handover.js') && files.has('ws'));
  for (const name of ['config/config.js', 'config/json-list.js']) assert.ok(!files.has(name), name);
  assert.ok(
    follow('config/config.js', new Set(), fixed).has('config/json-list.js'),
    'the primary does',
  );
});

test('a worker of a primary of 0.2 reads the settings, with the texts of the primary', async () => {
  const env = { ...process.env, FANFARE_PUSHER_APPS: '/of/the/primary', NODE_UNIQUE_ID: '1' };
  const worker = fork('src/main.js', ['worker'], { cwd: ROOT, env, silent: true });
  let text = '';
  worker.stderr?.on('data', (chunk) => (text += chunk));
  const exited = once(worker, 'close');
  await new Promise((resolve) =>
    worker.on('message', (/** @type {any} */ { type }) => type === 'loaded' && resolve(undefined)),
  );
  const texts = { '/of/the/primary': '{}' };
  worker.send({ type: 'start', slot: 0, relayPath: '', certificate: null, texts });
  assert.deepEqual(await exited, [EXIT.config, null]);
  assert.match(
    text,
    /FANFARE_PUSHER_APPS: \/of\/the\/primary: an object, not a JSON array of apps/,
  );
});
