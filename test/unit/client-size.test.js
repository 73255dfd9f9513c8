// client-size.test.js: the sizes of the client library, minified as in the package and gzipped.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { clientScripts } from '../helpers/client-script.js';

/** docs/client.md names these sizes, rounded up. A change that needs more says why. */
const MAX_BYTES = {
  'fanfare.min.js': 5.8 * 1024,
  'fanfare-shared.min.js': 9.5 * 1024,
  'fanfare-sse.min.js': 2.4 * 1024,
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
