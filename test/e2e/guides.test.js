// guides.test.js: follows README.md, docs/getting-started.md, docs/authentication.md with a rotation
// of keys, docs/hooks.md and the start of docs/tutorial.md to the letter, in a fresh clone of the
// commit that is checked out.
//
// The commands are those of the pages, on their ports, in a network of their own. Only the steps
// that need the npm registry run outside of it. e2e/tutorial follows the rest of the tutorial, and
// e2e/docs-client runs the rest of docs/client.md.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { until } from '../harness/server.js';
import { codeWith } from '../helpers/doc-code.js';
import { canBePrivate } from '../helpers/private-network.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { bash, START_MS, UserShell } from '../helpers/user-shell.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const WELCOME = '{"type":"hello","id":0}';

const skip =
  (!existsSync(join(root, '.git')) && 'this is not a clone') ||
  (!canBePrivate() && 'needs root, unshare, ip and iptables');

test('each guide works to the letter in a fresh clone', { timeout: 280_000, skip }, async (t) => {
  const parent = temporaryFolder(t);
  const clone = join(parent, 'fanfare');
  bash(parent, `git clone --quiet --depth 1 file://${root} fanfare`);

  const user = await UserShell.start(t, clone);
  const shell = (/** @type {string} */ code) => user.run(code);
  const program = (/** @type {string} */ code) => user.program(code);

  await t.test('README.md and getting-started: install, start, hello', async (t) => {
    const code = codeWith('README.md', 'npm ci --omit=dev');
    assert.equal(codeWith('docs/getting-started.md', 'npm ci --omit=dev'), code);
    const [install, run] = code.trim().split(' && ');
    bash(clone, install);
    assert.equal(existsSync(join(clone, 'node_modules/typescript')), false);
    const server = await user.start(t, run);
    const said = shell(codeWith('docs/getting-started.md', 'npm run hello'));
    assert.match(said, /Hello from process/);
    assert.match(said, /"status":"ready"/);
    // The package is in place, without development dependencies: the first code of docs/client.md.
    const snippet = codeWith('docs/client.md', 'room.presence.on');
    const state = program(`
      const fetch = async () => ({ ok: true, text: async () => '' });
      const [loadStateFromMyApi, show, append, list] = [() => [], () => {}, () => {}, () => {}];
      ${snippet.replace('wss://chat.example', 'ws://localhost:3000')}
      console.log(fanfare.state);`);
    assert.equal(state, 'closed');
    await server.stop();
  });

  await t.test('getting-started: history, presence, a second server', async (t) => {
    const page = 'docs/getting-started.md';
    let server = await user.start(t, codeWith(page, 'FANFARE_HISTORY='));
    const recovered = program(`
      let socket;
      const send = (command) => socket.send(JSON.stringify(command));
      ${codeWith(page, 'let since')}
      socket = await open();
      join();
      await next(socket, 'joined');
      send({ type: 'message', room: 'chat.1', text: 'one' });
      onMessage(await next(socket, 'message'));
      socket.close();
      socket = await open();
      send({ type: 'message', room: 'chat.1', text: 'two', id: 1 });
      await next(socket, 'ack');
      join();
      const { recovered } = await next(socket, 'joined');
      console.log(recovered, (await next(socket, 'message')).payload);
      socket.close();`);
    assert.equal(recovered, 'true two');
    await server.stop();

    server = await user.start(t, codeWith(page, 'FANFARE_PRESENCE='));
    const listed = program(`
      const socket = await open();
      const send = (command) => socket.send(JSON.stringify(command));
      ${codeWith(page, 'colour')}
      // The event of ann's own join may come before the list.
      let members;
      while (members === undefined) ({ members } = await next(socket, 'presence'));
      console.log(JSON.stringify(members));
      socket.close();`);
    assert.match(listed, /"user":"ann","info":\{"colour":"red"\}/);
    await server.stop();

    await user.startOther(t, "redis-server --save '' --port 6379", 6379);
    const commands = codeWith(page, 'SERVER_ID=second').trim().split('\n');
    assert.equal(commands.length, 2);
    const servers = [];
    for (const command of commands) servers.push(await user.start(t, command));
    const shared = program(`
      const [one, two] = [await open(), await open('ws://localhost:3001')];
      const send = (socket, command) => socket.send(JSON.stringify(command));
      send(two, { type: 'join', room: 'a' });
      await next(two, 'joined');
      send(one, { type: 'message', room: 'a', text: 'over Redis' });
      console.log((await next(two, 'message')).payload);
      for (const socket of [one, two]) socket.close();`);
    assert.equal(shared, 'over Redis');
    for (const each of servers) await each.stop();
  });

  const AUTH = 'docs/authentication.md';
  const PRINT = "npm run token -- --user ann --rooms 'chat.*'";
  /** A token as the page prints it. @param {string} secret command that prints the secret */
  const tokenBy = (secret) =>
    shell(`export JWT_SECRET=$(${secret})\n${PRINT}`).trim().split('\n').at(-1) ?? '';
  /** Connects as the page does. @param {string} token @param {string} more code behind it */
  const connected = (token, more) =>
    program(`
      const fetch = async () => ({ text: async () => '${token}' });
      ${codeWith(AUTH, "new WebSocket('wss:").replace('wss://chat.example', 'ws://localhost:3000')}
      const opened = listen(socket).then(() => true, () => false);
      ${more}
      socket.terminate();`);
  const ENTER = `
    socket.on('close', () => {
      console.log('refused');
      process.exit();
    });
    if (await opened) socket.send('${WELCOME}');
    console.log((await next(socket, 'welcome')).userId);
    process.exit();`;

  await t.test('authentication: a token, and its renewal', async (t) => {
    const [secret, run, print] = codeWith(AUTH, 'export JWT_SECRET').trim().split('\n');
    assert.ok(print.startsWith(PRINT));
    const server = await user.start(
      t,
      `${secret}\necho $JWT_SECRET > secret-of-terminal-1\n${run}`,
    );
    const token = tokenBy('cat secret-of-terminal-1');
    assert.equal(connected(token, ENTER), 'ann');
    assert.equal(connected('x', ENTER), 'refused');
    const renewed = connected(
      token,
      `await opened;
      ${codeWith(AUTH, 'renewBeforeItEnds')}
      renewBeforeItEnds(socket, Date.now());
      console.log((await next(socket, 'authenticated')).userId);`,
    );
    assert.equal(renewed, 'ann');
    await server.stop();
  });

  await t.test(
    'authentication: the keys are rotated, and nobody is refused meanwhile',
    async (t) => {
      const server = await user.start(t, codeWith(AUTH, 'umask 077'));
      const old = tokenBy('head -n 1 jwt-secret');
      assert.equal(connected(old, ENTER), 'ann');
      const withPid = (/** @type {string} */ text) =>
        codeWith(AUTH, text).replaceAll('PID', String(server.pid));
      shell(withPid('cat jwt-secret; }'));
      const token = tokenBy('head -n 1 jwt-secret');
      await until(() => connected(token, ENTER) === 'ann', START_MS);
      assert.equal(connected(old, ENTER), 'ann');
      shell(withPid('head -n 1 jwt-secret'));
      await until(() => connected(old, ENTER) === 'refused', START_MS);
      assert.equal(connected(token, ENTER), 'ann');
      await server.stop();
    },
  );

  await t.test('hooks: in two minutes', async (t) => {
    const page = 'docs/hooks.md';
    writeFileSync(join(clone, 'hooks.js'), codeWith(page, "includes('spam')"));
    const server = await user.start(t, codeWith(page, 'FANFARE_HOOKS=./hooks.js npm start'));
    const [command, answer] = codeWith(page, 'buy spam').trim().split('\n');
    assert.ok(command.startsWith('> ') && answer.startsWith('< '));
    const said = program(`
      const socket = await open();
      socket.send(${JSON.stringify(command.slice(2))});
      console.log(JSON.stringify({ ...(await next(socket, 'error')), timestamp: 0 }));
      socket.close();`);
    assert.deepEqual(JSON.parse(said), { ...JSON.parse(answer.slice(2)), timestamp: 0 });
    await server.stop();
  });

  await t.test(
    'tutorial: the package, after an install without development dependencies',
    async (t) => {
      const page = 'docs/tutorial.md';
      bash(parent, codeWith(page, 'npm run package'));
      bash(parent, codeWith(page, 'mkdir chat'));
      const chat = join(parent, 'chat');
      assert.match(readFileSync(join(chat, 'public/index.html'), 'utf8'), /<title>Chat/);
      const server = await user.start(t, 'npx fanfare', chat);
      assert.match(shell('curl -s 127.0.0.1:9090/readyz'), /"status":"ready"/);
      await server.stop();
    },
  );
});
