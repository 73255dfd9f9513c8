// image.test.js: docker/by-hand.sh, which builds and runs the server's image without an engine.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(new URL('../../docker/check.sh', import.meta.url));
const NEEDS_ROOT = 77;

test('the image runs read-only, without shell, root and capabilities, and drains', {
  timeout: 180_000,
}, (t) => {
  const { status, stdout, stderr } = spawnSync(script, ['--by-hand'], { encoding: 'utf8' });
  if (status === NEEDS_ROOT) return t.skip(stderr.trim());
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, /livez answers 200\n/);
  assert.match(stdout, /drained, exit code 0, no file of the image has changed\n$/);
});
