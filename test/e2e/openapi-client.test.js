// openapi-client.test.js: the generated client of docs/http-api.md: openapi-typescript reads
// docs/openapi.yaml, tsc checks the code of the page, and the code publishes to a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { run } from '../helpers/packed.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const page = readFileSync(join(root, 'docs/http-api.md'), 'utf8');
const code = /^```ts\n(.*?)^```$/ms.exec(page)?.[1] ?? '';

/** Payloads of every type, and calls that must not compile. */
const MORE = `
export const payloads = () =>
  [{ a: 1 }, { a: { b: [null] } }, [1, 'x'], 'text', 1, true, null].map((payload) =>
    api.POST('/api/publish', { body: { room: 'chat.42', payload } }),
  );
export const several = () =>
  api.POST('/api/publish/batch', { body: { messages: [{ room: 'a', payload: { a: 1 } }] } });
export const broadcast = () => api.POST('/api/broadcast', { body: { payload: { a: 1 } } });
export const read = async () => {
  const { data } = await api.GET('/api/rooms/{room}/history', { params: { path: { room: 'a' } } });
  return data?.messages.map(({ offset }): number => offset);
};
// @ts-expect-error: a message has a payload
export const empty = () => api.POST('/api/publish', { body: { room: 'chat.42' } });
// @ts-expect-error: there is no such path
export const wrong = () => api.POST('/api/publsh', { body: { room: 'chat.42', payload: 1 } });
`;

test('a generated client compiles with payloads of any type, and publishes', {
  timeout: 60_000,
}, async (t) => {
  assert.match(code, /openapi-fetch/);
  const folder = temporaryFolder(t);
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}\n');
  const generate = join(root, 'node_modules/openapi-typescript/bin/cli.js');
  const openapi = join(root, 'docs/openapi.yaml');
  const generated = run(folder, process.execPath, generate, openapi, '-o', 'fanfare-api.d.ts');
  assert.equal(generated.status, 0, generated.stderr);

  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `web ${secret} all`,
  });
  const source = code.replace('http://localhost:3000', `http://127.0.0.1:${server.port}`) + MORE;
  writeFileSync(join(folder, 'client.ts'), source);
  const tsc = join(root, 'node_modules/typescript-7/bin/tsc');
  const options = ['--strict', '--noEmit', '--module', 'nodenext', '--target', 'es2022'];
  const checked = run(folder, process.execPath, tsc, ...options, '--types', 'node', 'client.ts');
  assert.equal(checked.stdout, '');
  assert.equal(checked.status, 0);

  const member = await connect(t, server.port);
  await member.join('chat.42');
  const { outputText } = ts.transpileModule(source, {
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 },
  });
  writeFileSync(join(folder, 'client.js'), outputText);
  const child = spawn(process.execPath, ['client.js'], {
    cwd: folder,
    env: { PATH: process.env.PATH, API_KEY: secret },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  assert.deepEqual(await once(child, 'close'), [0, null]);
  assert.deepEqual((await member.next('message')).payload, { text: 'typed' });
});
