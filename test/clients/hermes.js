// hermes.js: the client in Hermes, the engine of React Native: `node test/run.js hermes`.
//
// The newest Hermes that npm has as a program for Linux is 0.12, the one of React Native 0.70: newer
// packages have its compiler only. It has no classes and no async functions, so Babel translates
// them with the preset of React Native, as Metro does in an app.
//
// Both come from the npm registry into node_modules/.cache/hermes/: half a minute and 140 MB.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const PACKAGES = ['hermes-engine-cli@0.12.0', '@babel/core@7', '@react-native/babel-preset@0.86.3'];
const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = join(root, 'node_modules/.cache/hermes');
const hermes = join(folder, 'node_modules/hermes-engine-cli/linux64-bin/hermes');

if (!existsSync(hermes)) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"private":true}\n');
  const options = ['--no-audit', '--no-fund', '--ignore-scripts', '--prefix', folder];
  const { status } = spawnSync('npm', ['install', ...options, ...PACKAGES], { stdio: 'inherit' });
  assert.equal(status, 0, 'npm install');
}
const { outputFiles } = await build({
  entryPoints: [join(root, 'test/clients/phone/hermes-app.js')],
  bundle: true,
  write: false,
  format: 'iife',
});
const require = createRequire(join(folder, 'package.json'));
const { code } = require('@babel/core').transformSync(outputFiles[0].text, {
  babelrc: false,
  configFile: false,
  compact: false,
  filename: join(folder, 'app.js'),
  presets: [[require.resolve('@react-native/babel-preset'), { enableBabelRuntime: false }]],
});
const program = join(folder, 'app.js');
writeFileSync(program, code);
const { stdout, stderr } = spawnSync(hermes, ['-O', program], {
  encoding: 'utf8',
  timeout: 60_000,
});
const line = stdout.trim().split('\n').at(-1) ?? '';
const { lacks, seen, dialled, error } = JSON.parse(line.startsWith('{') ? line : '{}');
if (!seen) console.error(stdout, stderr, error);
assert.deepEqual(seen, {
  received: ['one', 'two', 'three'],
  reasons: ['The network connection was lost.'],
  inBackground: 'sleeping',
  offset: 1,
  tooLarge: 'MESSAGE_TOO_LARGE',
  states: ['connecting', 'connected', 'waiting', 'sleeping', 'closed'],
});
assert.deepEqual(dialled, [{ 'x-phone': 'yes' }, { 'x-phone': 'yes' }, { 'x-phone': 'yes' }, {}]);
console.log(`Hermes 0.12 lacks ${lacks.join(', ')}. The client misses none of them.`);
