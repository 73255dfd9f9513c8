// ai-size.test.js: fanfare/ai as one script: what it needs of a runtime, and its size.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';

/** docs/ai.md names these sizes. A change that needs more says why. */
const MAX_BYTES = { read: 1.4 * 1024, FanfareChatTransport: 2.2 * 1024, '*': 4.8 * 1024 };

for (const [name, maxBytes] of Object.entries(MAX_BYTES))
  test(`${name} of fanfare/ai has at most ${maxBytes} bytes, gzipped, and imports nothing`, (t) => {
    const contents = `export ${name === '*' ? name : `{ ${name} }`} from './src/ai/index.js'`;
    const { outputFiles } = buildSync({
      stdin: { contents, resolveDir: new URL('../../', import.meta.url).pathname },
      ...{ bundle: true, minify: true, write: false, platform: 'browser', target: 'es2022' },
      ...{ tsconfigRaw: '{}', format: 'esm' },
    });
    const [{ text }] = /** @type {import('esbuild').OutputFile[]} */ (outputFiles);
    const bytes = gzipSync(text, { level: 9 }).length;
    t.diagnostic(`${bytes} bytes`);
    assert.ok(bytes > 500 && bytes <= maxBytes, `${bytes} bytes`);
    assert.doesNotMatch(text, /\bimport\b|\brequire\b|\bprocess\b|\bBuffer\b/);
  });

test('docs/ai.md names the three sizes', () => {
  const page = readFileSync(new URL('../../docs/ai.md', import.meta.url), 'utf8');
  const named =
    /`read` ([\d.]+) KB, `FanfareChatTransport` with it ([\d.]+) KB, everything ([\d.]+) KB/;
  const [, ...sizes] = named.exec(page) ?? [];
  assert.deepEqual(
    sizes.map((size) => Number(size) * 1024),
    Object.values(MAX_BYTES),
  );
});
