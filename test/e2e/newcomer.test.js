// newcomer.test.js: how far does somebody come who has only the site, and a clone? The site is built
// in a fresh clone without `npm ci`. Then the commands are those of its Markdown pages: a server, a
// message, presence, a token, and two servers behind HAProxy. It takes two minutes.
//
// The pages are those of docs/getting-started.md, docs/authentication.md and docs/deployment.md.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parse } from '../helpers/doc-code.js';
import { canBePrivate } from '../helpers/private-network.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { bash, UserShell } from '../helpers/user-shell.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const SITE_URL = 'https://fanfare.github.io/fanfare/';
const skip =
  (!existsSync(join(root, '.git')) && 'this is not a clone') ||
  (!canBePrivate() && 'needs root, unshare, ip and iptables');

test('a newcomer with the built site reaches two servers behind HAProxy', {
  timeout: 280_000,
  skip,
}, async (t) => {
  const parent = temporaryFolder(t);
  const clone = join(parent, 'fanfare');
  const site = join(parent, 'site');
  bash(parent, `git clone --quiet --depth 1 file://${root} fanfare`);

  let begun = performance.now();
  /** How long a step took. @param {string} what */
  const took = (what) => {
    t.diagnostic(`${what}: ${((performance.now() - begun) / 60_000).toFixed(2)} minutes`);
    begun = performance.now();
  };
  /** The only block of a page of the site that has a text. @param {string} name @param {string} text */
  const codeOf = (name, text) => {
    const blocks = parse(readFileSync(join(site, name), 'utf8'));
    const found = blocks.filter(({ code }) => code.includes(text));
    assert.equal(found.length, 1, `${name} has ${found.length} blocks with ${text}`);
    return found[0].code;
  };
  const user = await UserShell.start(t, clone);

  await t.test('npm run site in a fresh clone, for an address with a path', () => {
    bash(clone, `SITE_URL=${SITE_URL} npm run -s site`);
    renameSync(join(clone, 'site'), site);
    const start = readFileSync(join(site, 'index.html'), 'utf8');
    assert.match(start, /href="\/fanfare\/getting-started\.html"/);
    assert.doesNotMatch(start, /(?:href|src)="\/(?!fanfare\/)/);
    assert.ok(start.includes(`<link rel="canonical" href="${SITE_URL}">`));
    for (const name of ['sitemap.xml', 'llms.txt'])
      assert.ok(
        readFileSync(join(site, name), 'utf8').includes(`${SITE_URL}getting-started.`),
        name,
      );
    assert.equal(bash(clone, 'git status --porcelain'), '');
    took('the site, in a clone without node_modules');
  });

  await t.test('a running server, and a message seen', async (t) => {
    const [install, run] = codeOf('getting-started.md', 'npm ci --omit=dev').trim().split(' && ');
    bash(clone, install);
    const server = await user.start(t, run);
    took('a running server');
    const said = user.run(codeOf('getting-started.md', 'npm run hello'));
    assert.match(said, /Hello from process/);
    assert.match(said, /"status":"ready"/);
    await server.stop();
    took('a message seen');
  });

  await t.test('presence', async (t) => {
    const server = await user.start(t, codeOf('getting-started.md', 'FANFARE_PRESENCE='));
    const listed = user.program(`
      const socket = await open();
      const send = (command) => socket.send(JSON.stringify(command));
      ${codeOf('getting-started.md', 'colour')}
      let members;
      while (members === undefined) ({ members } = await next(socket, 'presence'));
      console.log(JSON.stringify(members));
      socket.close();`);
    assert.match(listed, /"user":"ann"/);
    await server.stop();
    took('presence');
  });

  await t.test('a token', async (t) => {
    const [secret, run, print] = codeOf('authentication.md', 'export JWT_SECRET')
      .trim()
      .split('\n');
    const server = await user.start(t, `${secret}\necho $JWT_SECRET > secret\n${run}`);
    const lines = user.run(`export JWT_SECRET=$(cat secret)\n${print}`).trim().split('\n');
    const code = codeOf('authentication.md', "new WebSocket('wss:");
    const name = user.program(`
      const fetch = async () => ({ text: async () => '${lines.at(-1)}' });
      ${code.replace('wss://chat.example', 'ws://localhost:3000')}
      await listen(socket);
      socket.send('{"type":"hello","id":0}');
      console.log((await next(socket, 'welcome')).userId);
      socket.terminate();`);
    assert.equal(name, 'ann');
    await server.stop();
    took('a token');
  });

  await t.test('two servers behind HAProxy', async (t) => {
    await user.startOther(t, codeOf('deployment.md', 'redis-server --port'), 6379);
    const one = await user.start(t, codeOf('deployment.md', 'SERVER_ID=one npm start'));
    const two = await user.start(t, codeOf('deployment.md', 'SERVER_ID=two npm start'));
    await user.startOther(t, codeOf('deployment.md', 'haproxy -db -f'), 3000);
    // HAProxy chooses the server with the fewest connections: two sockets are at two servers.
    const met = user.program(`
      const [a, b] = [await open(), await open()];
      const send = (socket, command) => socket.send(JSON.stringify(command));
      for (const socket of [a, b]) send(socket, { type: 'hello', id: 0 });
      const servers = [(await next(a, 'welcome')).serverId, (await next(b, 'welcome')).serverId];
      for (const socket of [a, b]) send(socket, { type: 'join', room: 'news' });
      for (const socket of [a, b]) await next(socket, 'joined');
      send(a, { type: 'message', room: 'news', payload: 'through HAProxy' });
      console.log(servers.sort().join(), (await next(b, 'message')).payload);
      for (const socket of [a, b]) socket.close();`);
    assert.equal(met, 'one,two through HAProxy');
    await one.stop();
    assert.match(user.run('npm run hello'), /Hello from process/);
    await two.stop();
    took('two servers behind HAProxy, one of them stopped');
  });
});
