// client-recipes.test.js: the code of docs/client.md and docs/react.md compiles in a project that
// `npm create vite` makes for TypeScript, against the types of the client.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { blocksOf, filesOf } from '../helpers/doc-code.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const client = join(root, 'src/client/');

/** tsconfig.app.json of create-vite 8, templates vanilla-ts, react-ts and vue-ts. */
const VITE = Object.freeze({
  target: 'ES2022',
  lib: ['ES2022', 'DOM', 'DOM.Iterable'],
  module: 'ESNext',
  skipLibCheck: true,
  moduleResolution: 'bundler',
  allowImportingTsExtensions: true,
  verbatimModuleSyntax: true,
  moduleDetection: 'force',
  noEmit: true,
  jsx: 'react-jsx',
  strict: true,
  noUnusedLocals: true,
  noUnusedParameters: true,
  erasableSyntaxOnly: true,
  noFallthroughCasesInSwitch: true,
  noUncheckedSideEffectImports: true,
});

/** What the code of docs/client.md takes for granted. */
const AROUND = `
declare const fanfare: import('fanfare/client').Fanfare;
declare const process: { env: Record<string, string | undefined> };
declare const userId: string;
declare function getToken(): Promise<string>;
declare function loadStateFromMyApi(): Promise<unknown>;
declare function insert(row: object): Promise<void>;
declare function publish(room: string, payload: unknown): Promise<void>;
declare function loadPosition(): Promise<{ epoch: string; offset: number } | undefined>;
declare function savePosition(position: object): Promise<void>;
declare function handle(payload: unknown): Promise<void>;
declare function show(state: unknown): void;
declare function append(payload: unknown): void;
declare function list(members: readonly { user: string }[]): void;
declare function flash(key: string, payload: unknown, previous: unknown): void;
`;

/** @param {string} folder @param {object} options @param {string[]} files */
function compile(folder, options, files) {
  const path = join(folder, `tsconfig.${files.length}.json`);
  writeFileSync(
    path,
    JSON.stringify({ compilerOptions: options, files: ['around.d.ts', ...files] }),
  );
  const tsc = join(root, 'node_modules/typescript-7/bin/tsc');
  const { stdout, status } = spawnSync(process.execPath, [tsc, '-p', path, '--singleThreaded'], {
    cwd: folder,
    encoding: 'utf8',
  });
  return status === 0 ? '' : stdout;
}

test('each block of docs/client.md compiles with the settings of Vite', {
  timeout: 120_000,
}, (t) => {
  const folder = temporaryFolder(t);
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'around.d.ts'), AROUND);
  const own =
    "import { Fanfare } from 'fanfare/client';\nexport const fanfare = new Fanfare('/ws');\n";
  writeFileSync(join(folder, 'fanfare.ts'), own);
  /** @type {Record<'recipes'|'snippets'|'declarations', string[]>} */
  const names = { recipes: [], snippets: [], declarations: [] };
  for (const { language, code, line } of blocksOf('docs/client.md')) {
    if (!/^[jt]sx?$/.test(language)) continue;
    const name = `line-${line}.ts`;
    // A snippet is part of a larger program, which uses what it declares.
    const kind = /^export /m.test(code) ? 'recipes' : 'snippets';
    names[code.startsWith('declare ') ? 'declarations' : kind].push(name);
    writeFileSync(join(folder, name), `${code}export {};\n`);
  }
  assert.deepEqual([names.recipes.length, names.declarations.length], [2, 1]);
  const options = {
    ...VITE,
    types: [],
    allowJs: true,
    paths: {
      'fanfare/client': [`${client}index.js`],
      'fanfare/client/shared': [`${client}shared/index.js`],
      'fanfare/client/sse': [`${client}sse/index.js`],
      'fanfare-client': [`${client}index.js`],
      'fanfare/server': [join(root, 'src/sdk/index.js')],
    },
  };
  assert.equal(compile(folder, options, names.recipes), '');
  const part = { ...options, noUnusedLocals: false, noUnusedParameters: false };
  assert.equal(compile(folder, part, names.snippets), '');
  const use = `
    import { Fanfare } from 'fanfare-client';
    const text = new Fanfare('/ws').join('chat.42');
    text.on('message', (payload) => payload.text.length);
    // @ts-expect-error: news are texts
    text.publish(1);`;
  writeFileSync(join(folder, 'use.ts'), use);
  assert.equal(compile(folder, part, [...names.declarations, 'use.ts']), '');
});

test('the application of docs/react.md compiles with the settings of Vite', {
  timeout: 120_000,
}, (t) => {
  const folder = temporaryFolder(t);
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  const files = filesOf('docs/react.md');
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  writeFileSync(join(folder, 'around.d.ts'), '');
  const paths = {
    'fanfare-client': [`${client}index.js`],
    'fanfare-client/react': [`${client}react/index.js`],
  };
  const options = { ...VITE, types: [], allowJs: true, paths };
  assert.equal(Object.keys(files).length, 5);
  assert.equal(compile(folder, options, Object.keys(files)), '');
});
