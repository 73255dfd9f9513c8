// client-size.test.js: the sizes of the client library, minified as in the package and gzipped.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';
import { clientScripts } from '../helpers/client-script.js';

/** docs/client.md names these sizes, rounded up. A change that needs more says why. */
const MAX_BYTES = {
  'fanfare.min.js': 5.8 * 1024,
  'fanfare-shared.min.js': 9.7 * 1024,
  'fanfare-sse.min.js': 2.5 * 1024,
};

const scripts = clientScripts();

test('each script has a limit', () => {
  assert.deepEqual([...scripts.keys()].sort(), Object.keys(MAX_BYTES).sort());
});

for (const [name, maxBytes] of Object.entries(MAX_BYTES)) {
  test(`dist/${name} has at most ${maxBytes} bytes, gzipped, and imports nothing`, (t) => {
    const text = String(scripts.get(name));
    const bytes = gzipSync(text, { level: 9 }).length;
    t.diagnostic(`${bytes} bytes`);
    assert.ok(bytes > 1000 && bytes <= maxBytes, `${bytes} bytes`);
    assert.doesNotMatch(text, /\bimport\b|\brequire\b/);
  });
}

/** What a bundler adds for a hook alone, and for all. docs/react.md and its neighbours name both. */
const MAX_HOOK_BYTES = 1.1 * 1024;
const MAX_BINDING_BYTES = 1.7 * 1024;
const HOOKS = ['useRoom', 'useMessages', 'useRoomState', 'usePresence', 'useConnection'];
const PROVIDERS = { react: 'FanfareProvider', vue: 'fanfareKey', svelte: 'setFanfare' };

/** @param {string} framework @param {string} names @returns {number} bytes beside the client */
function bytesOf(framework, names) {
  const { outputFiles } = buildSync({
    stdin: {
      contents: `export ${names} from './${framework}/index.js'`,
      resolveDir: fileURLToPath(new URL('../../src/client', import.meta.url)),
    },
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    target: 'es2022',
    external: ['react', 'vue', 'svelte', 'svelte/*'],
  });
  return gzipSync(outputFiles[0].text, { level: 9 }).length;
}

for (const [framework, provider] of Object.entries(PROVIDERS)) {
  test(`${framework}: a hook has at most ${MAX_HOOK_BYTES} bytes, gzipped, and all ${MAX_BINDING_BYTES}`, (t) => {
    for (const hook of HOOKS) {
      const bytes = bytesOf(framework, `{ ${hook}, ${provider} }`);
      t.diagnostic(`${hook}: ${bytes} bytes`);
      assert.ok(bytes > 300 && bytes <= MAX_HOOK_BYTES, `${hook}: ${bytes} bytes`);
    }
    const all = bytesOf(framework, '*');
    t.diagnostic(`all: ${all} bytes`);
    assert.ok(all <= MAX_BINDING_BYTES, `all: ${all} bytes`);
  });
}

test('the pages name these sizes', () => {
  const page = (/** @type {string} */ name) =>
    readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), 'utf8');
  const kb = (/** @type {number} */ bytes) => `${(bytes / 1024).toFixed(1)} KB`;
  const client = page('client');
  for (const bytes of Object.values(MAX_BYTES)) assert.ok(client.includes(kb(bytes)), kb(bytes));
  for (const framework of Object.keys(PROVIDERS)) {
    const [, hook, all] =
      /costs at most ([\d.]+ KB) gzipped beside the client, and all together ([\d.]+) KB/.exec(
        page(framework),
      ) ?? [];
    assert.equal(hook, kb(MAX_HOOK_BYTES), framework);
    assert.ok(Number(all) * 1024 <= MAX_BINDING_BYTES, framework);
  }
});
