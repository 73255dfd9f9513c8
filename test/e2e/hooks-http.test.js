// hooks-http.test.js: hooks of a backend on real servers; the examples of docs/hooks-http.md in each
// language.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import Ajv from 'ajv/dist/2020.js';
import { loadConfig } from '../../src/config/config.js';
import { freePort } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { blocksOf } from '../helpers/doc-code.js';
import hooks from '../helpers/hooks/all.js';
import { HOOKS_SECRET, hookBackend } from '../helpers/hooks/backend.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { testHooks } from './hooks-suite.js';

const limit = { timeout: 30_000 };
const root = fileURLToPath(new URL('../../', import.meta.url));
const blocks = blocksOf('docs/hooks-http.md');
/** @param {string} heading @param {string} language @returns {string[]} */
const codeOf = (heading, language) =>
  blocks
    .filter((one) => one.heading === heading && one.language === language)
    .map(({ code }) => code);
const schema = JSON.parse(readFileSync(join(root, 'docs/hooks.schema.json'), 'utf8'));
const isQuestion = new Ajv.default().compile(schema);

/** The questions of all tests. @type {import('../helpers/hooks/backend.js').Asked[]} */
const asked = [];

testHooks({
  name: 'a backend',
  async start(t, env) {
    const { url } = await hookBackend(t, hooks, { onAsked: (question) => asked.push(question) });
    const secret = { FANFARE_HOOKS: url, FANFARE_HOOKS_SECRET: HOOKS_SECRET };
    const timeout = {
      FANFARE_HOOK_TIMEOUT_MS:
        env.FANFARE_HOOK_TIMEOUT_MS === '300' ? '1000' : env.FANFARE_HOOK_TIMEOUT_MS,
    };
    return startServer(t, { ...env, ...secret, ...timeout });
  },
  left: (_server, user) =>
    until(() =>
      asked.some(({ hook, connection }) => hook === 'onDisconnect' && connection.user === user),
    ),
  thrown: 'status',
});

test('each question is as the schema describes it', () => {
  assert.ok(asked.length > 100);
  for (const question of asked)
    assert.ok(isQuestion(question), `${JSON.stringify([question, isQuestion.errors])}`);
});

test('the questions and the settings of the page are valid, and so is a secret that it makes', (t) => {
  for (const code of codeOf('Questions', 'json'))
    assert.ok(isQuestion(JSON.parse(code)), JSON.stringify(isQuestion.errors));
  const [script] = codeOf('In two minutes', 'sh');
  const secret = execFileSync('sh', ['-c', script], { encoding: 'utf8' }).trim();
  const path = join(temporaryFolder(t), 'hooks.json');
  writeFileSync(path, codeOf('In two minutes', 'json')[0]);
  const { config, faults } = loadConfig({ FANFARE_HOOKS: path, FANFARE_HOOKS_SECRET: secret });
  assert.deepEqual(faults, []);
  assert.equal(config?.hooks?.backends[0].secrets[0], secret);
});

/** One server, whose backend is one example after the other. */
const oneServer = shared(async (t) => {
  const port = String(await freePort());
  const env = {
    FANFARE_HOOKS: `http://127.0.0.1:${port}/fanfare`,
    FANFARE_HOOKS_SECRET: HOOKS_SECRET,
  };
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HOOK_TIMEOUT_MS: '7000',
    ...env,
  });
  return { port, server, env };
});

/** @type {Record<string, (port: string) => [string, string[]]>} */
const PROGRAMS = {
  'backend.js': () => [process.execPath, ['backend.js']],
  'backend.py': () => ['python3', ['backend.py']],
  'backend.php': (port) => ['php', ['-S', `127.0.0.1:${port}`, 'backend.php']],
};
for (const [name, commandOf] of Object.entries(PROGRAMS)) {
  const [program] = commandOf('');
  const skip = spawnSync(program, ['--version']).status !== 0 && `${program} is not installed`;
  test(`the example ${name} names users, guards teams and changes messages`, {
    ...limit,
    skip,
  }, async (t) => {
    const { port, server, env } = await oneServer();
    const child = spawn(...commandOf(port), {
      cwd: join(root, 'examples/hooks-http'),
      env: { PATH: process.env.PATH, FANFARE_HOOKS_SECRET: HOOKS_SECRET, PORT: port },
      stdio: 'ignore',
    });
    t.after(async () => {
      if (child.exitCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    await until(() => isListening(Number(port)));
    const forged = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      headers: {
        'webhook-id': 'x',
        'webhook-timestamp': String(Math.floor(Date.now() / 1000)),
        'webhook-signature': 'v1,AAAA',
      },
      body: '{"hook":"onDisconnect"}',
    });
    assert.equal(forged.status, 401);
    const doctor = spawnSync(process.execPath, [join(root, 'src/main.js'), 'doctor', '--hooks'], {
      env: { PATH: process.env.PATH, ...env },
      encoding: 'utf8',
    });
    const [shown] = codeOf('Operate', 'text');
    const plain = (/** @type {string} */ text) => text.replace(/:\d+|\d+ ms/g, 'N');
    assert.equal(plain(doctor.stdout), plain(shown), doctor.stderr);
    const open = (/** @type {string} */ cookie) =>
      connect(t, `ws://127.0.0.1:${server.port}/ws`, { headers: { cookie } });
    const nobody = await open('a=1');
    assert.equal((await nobody.next('error')).message, 'Please log in.');
    const [ann, bob] = [await open('session=s1'), await open('a=1; session=s2')];
    assert.equal((await ann.ask({ type: 'hello' }, 'welcome')).userId, 'ann');
    for (const client of [ann, ann])
      await client.ask({ type: 'join', room: `team.1`, id: 1 }, 'joined');
    const refused = await bob.ask({ type: 'join', room: 'team.1', id: 1 }, 'joined');
    assert.equal(refused.error, 'PERMISSION_DENIED');
    const text = `Gr\u00fc\u00dfe ${'x'.repeat(600)}`;
    ann.send({ type: 'message', room: 'team.1', payload: { text } });
    assert.deepEqual((await ann.next('message')).payload, { text: text.slice(0, 500), by: 'Ann' });
    const mute = await bob.ask({ type: 'message', room: 'news', payload: 1, id: 2 }, 'ack');
    assert.equal(mute.message, 'A message has a text.');
    const loud = await bob.ask(
      { type: 'broadcast', payload: { text: 'hi' }, id: 3 },
      'broadcastResult',
    );
    assert.equal(loud.error, 'PERMISSION_DENIED');
  });
}

/** @param {number} port @returns {Promise<boolean>} */
function isListening(port) {
  return new Promise((resolve) => {
    const socket = connectTcp(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
