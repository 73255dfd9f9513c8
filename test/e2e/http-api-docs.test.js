// http-api-docs.test.js: the code of docs/http-api.md, run against a real server.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { NO_LIMITS, startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

const page = readFileSync(new URL('../../docs/http-api.md', import.meta.url), 'utf8');

/**
 * The first block of a language that has a text.
 * @param {string} language
 * @param {string} text
 * @param {number} port of the server that it shall use
 */
function codeWith(language, text, port) {
  const blocks = [...page.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, 'g'))];
  const code = blocks.map(([, block]) => block).find((block) => block.includes(text)) ?? '';
  assert.ok(code.includes('http://localhost:3000'), `${language}: ${text}`);
  return code.replaceAll('http://localhost:3000', `http://127.0.0.1:${port}`);
}

/** @type {[name: string, language: string, text: string, file: string, command: string, more?: string][]} */
const EXAMPLES = [
  ['curl', 'sh', 'curl ', 'x.sh', 'bash'],
  ['Node', 'js', 'from Node', 'x.mjs', process.execPath],
  ['Python', 'python', 'from Python', 'x.py', 'python3'],
  [
    'a publish that is repeated',
    'js',
    'async function publish',
    'y.mjs',
    process.execPath,
    "\nawait publish('chat.42', { text: 'from a publish that is repeated' });\n",
  ],
  [
    'a producer that nobody else interrupts',
    'js',
    'async function append',
    'z.mjs',
    process.execPath,
    `
const message = { text: 'from a producer that nobody else interrupts' };
const first = await append('chat.42', message, { offset: 0 });
await append('chat.42', 'second', first);
const late = await append('chat.42', 'late', first).catch((error) => error);
if (late.message !== 'another producer is at 2') throw late;
`,
  ],
];

test('the example of curl finds the connections of a user', {
  skip: spawnSync('curl', ['--version']).error !== undefined && 'curl is not here',
}, async (t) => {
  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    JWT_SECRET: SECRET,
    API_KEYS: `web ${secret} all`,
  });
  await connect(t, `ws://127.0.0.1:${server.port}/?token=${token({ sub: 'ann' })}`);
  const { stdout } = spawnSync('bash', ['-c', codeWith('sh', '/connections', server.port)], {
    env: { PATH: process.env.PATH, API_KEY: secret },
  });
  const { count, connections } = JSON.parse(String(stdout));
  assert.deepEqual([count, connections[0].user], [1, 'ann']);
});

for (const [name, language, text, file, command, more = ''] of EXAMPLES) {
  const isMissing = spawnSync(command, ['--version']).error !== undefined;
  test(`the example of ${name} publishes`, {
    skip: isMissing && `${command} is not here`,
  }, async (t) => {
    const secret = newSecret();
    const server = await startServer(t, {
      ...NO_LIMITS,
      WORKERS: '1',
      FANFARE_HISTORY: 'chat.*=10/60s',
      API_KEYS: `web ${secret} all`,
    });
    const member = await connect(t, server.port);
    await member.join('chat.42');
    const path = join(temporaryFolder(t), file);
    writeFileSync(path, codeWith(language, text, server.port) + more);
    const child = spawn(command, [path], {
      env: { PATH: process.env.PATH, API_KEY: secret },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => (said += String(data)));
    const [code] = await once(child, 'close');
    assert.equal(code, 0, said);
    assert.equal((await member.next('message')).payload.text, `from ${name}`);
  });
}
