// client-size.test.js: the size of `fanfare/client`, minified as in the package and gzipped.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { clientScript } from '../helpers/client-script.js';

const MAX_BYTES = 5 * 1024;

test(`dist/fanfare.min.js has at most ${MAX_BYTES} bytes, gzipped, and imports nothing`, (t) => {
  const text = clientScript();
  const bytes = gzipSync(text, { level: 9 }).length;
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes > 1000 && bytes <= MAX_BYTES, `${bytes} bytes`);
  assert.doesNotMatch(text, /\bimport\b|\brequire\b/);
});
