// package.test.js: the package as npm packs it, installed in another folder.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { install, manifest, root, run, startInstalled } from '../helpers/packed.js';

const TIMEOUT_MS = 120_000;

const CONSUMER = `
import { Fanfare as Whole } from 'fanfare';
import { Fanfare, FanfareError, type Room } from 'fanfare/client';
import { Fanfare as SharedFanfare } from 'fanfare/client/shared';
import { Fanfare as Listener } from 'fanfare/client/sse';
import { ERRORS, type ErrorCode } from 'fanfare/codes';
import { loadConfig, parseConfigFile, type Config } from 'fanfare/config';
import type { Hooks } from 'fanfare/hooks';

const code: ErrorCode = 'NOT_IN_ROOM';
export const text: string = ERRORS[code].message;
const { config, faults } = loadConfig(parseConfigFile('PORT=3001').env);
export const port: number = config === null ? faults.length : config.port;
export const policy = (config: Config): 'close' | 'drop' => config.slowConsumer;
// @ts-expect-error: a port is a number
export const wrong = (config: Config): string => config.port;
// @ts-expect-error: there is no such code
export const unknown: ErrorCode = 'NO_SUCH_CODE';

type Chat = { text: string };
const fanfare: Whole = new Fanfare('wss://chat.example', { token: async () => 'token', offline: 'queue' });
const room: Room<Chat> = fanfare.join<Chat>('chat.1', { last: 5, recoverFailed: async () => [] });
room.on('message', (payload, { from, offset }) => {
  const text: string = payload.text;
  return [text, from, offset];
});
// @ts-expect-error: a payload has no such field
room.on('message', (payload) => payload.nothing);
// @ts-expect-error: there is no such event
room.on('massage', () => {});
// @ts-expect-error: a payload has a text
room.publish({ words: 'hi' });
room.presence.on('change', (members) => members.map(({ user }) => user));
export async function read(): Promise<string[]> {
  const texts: string[] = [];
  for await (const { payload } of room) texts.push(payload.text);
  return texts;
}
const shared = new SharedFanfare('wss://chat.example', { name: 'ann' });
shared.join<Chat>('chat.1').on('message', (payload) => payload.text);
const listener = new Listener('https://chat.example/sse', { heartbeatMs: 10_000 });
listener.join<Chat>('chat.1').on('message', (payload) => payload.text);
// @ts-expect-error: a stream only listens
listener.join<Chat>('chat.1').publish({ text: 'hi' });
export const retryable = (error: FanfareError): boolean => error.retryable;
export const isOffline = ({ code }: FanfareError) => code === 'OFFLINE' || code === 'ROOM_LIMIT';
// @ts-expect-error: there is no such code
export const isMistyped = ({ code }: FanfareError) => code === 'OFLINE';
fanfare.on('welcome', ({ connectionId, limits }) => {
  const rooms: number | undefined = limits.maxRooms;
  return [connectionId.length, rooms];
});
// @ts-expect-error: a welcome has no such field
fanfare.on('welcome', ({ conectionId }) => conectionId);
listener.on('error', ({ code }) => code === 'REFUSED');
// @ts-expect-error: there is no such code
listener.on('error', ({ code }) => code === 'REFUSD');
export const connected: Promise<void> = fanfare.connect();
export const hooks = {
  async onConnect({ headers, query }) {
    if (headers.cookie === undefined) return { deny: 'Please log in.' };
    return { user: query.get('user') ?? 'ann', data: { role: 'admin' } };
  },
  onJoin: (connection, room) => room !== 'staff' || connection.data.role === 'admin',
  async onPublish({ user }, room, payload, { signal }) {
    await fetch('https://example.org', { signal });
    return { payload: { ...payload, user, room } };
  },
} satisfies Hooks;
// @ts-expect-error: there is no such answer
export const typo: Hooks = { onJoin: () => ({ denied: 'no' }) };
// @ts-expect-error: the hub is not exported
import { Hub } from 'fanfare/src/hub/hub.js';
export { Hub };
`;

test('the package installs elsewhere, starts, carries a message and type-checks', {
  timeout: 3 * TIMEOUT_MS,
}, async (t) => {
  const { home, files } = install(t);

  await t.test('it has the source, types and operations files, and no tests', () => {
    for (const path of ['LICENSE', 'README.md', 'src/main.js', 'types/config/config.d.ts']) {
      assert.ok(files.includes(path), path);
    }
    assert.ok(files.includes('ops/systemd/fanfare.service'));
    assert.ok(files.includes('docs/protocol.md'));
    assert.ok(files.includes('SECURITY.md'));
    // Pictures of the documentation: half of the tarball, and npm's page takes them from GitHub.
    assert.deepEqual(
      files.filter((path) => path.endsWith('.png')),
      [],
    );
    for (const name of ['fanfare', 'fanfare-shared', 'fanfare-sse'])
      assert.ok(files.includes(`dist/${name}.min.js`), name);
    assert.deepEqual(
      files.filter((path) => /^(test|loadtest|node_modules)\/|\.test\./.test(path)),
      [],
    );
  });

  await t.test('its documents link to files of ops/, docker/ and examples/ that it has', () => {
    /** @type {string[]} */
    const missing = [];
    let links = 0;
    for (const path of files.filter((each) => each.endsWith('.md'))) {
      const text = readFileSync(join(home, 'node_modules/fanfare', path), 'utf8');
      for (const [, link] of text.matchAll(/\]\(([\w./-]+)[)#]/g)) {
        const target = posix.join(posix.dirname(path), link);
        if (!/^(ops|docker|examples)\//.test(target)) continue;
        links++;
        const isThere = files.some((file) => file === target || file.startsWith(target));
        if (!isThere && !manifest.files.includes(`!${target}`)) missing.push(`${path}: ${link}`);
      }
    }
    assert.deepEqual(missing, []);
    assert.ok(links > 30, `${links} links`);
  });

  await t.test('npx fanfare prints its version, its help and unknown arguments', () => {
    const version = run(home, 'npx', '--no-install', 'fanfare', '--version');
    assert.equal(version.stdout.trim(), manifest.version, version.stderr);
    const help = run(home, 'npx', '--no-install', 'fanfare', '--help');
    assert.match(help.stdout, /^Usage: fanfare \[command\]/);
    const unknown = run(home, 'npx', '--no-install', 'fanfare', '--prot', '3000');
    assert.equal(unknown.status, 64);
    assert.match(unknown.stderr, /unknown argument: --prot[\s\S]*Usage: fanfare/);
  });

  await t.test(
    'npx fanfare starts a server that delivers a message and stops on SIGTERM',
    async (t) => {
      const server = await startInstalled(t, home);
      const [publisher, member] = [await open(t, server.port), await open(t, server.port)];
      for (const socket of [publisher, member]) await joined(socket);
      publisher.send('{"type":"message","room":"lobby","payload":"hello"}');
      assert.equal((await received(member, 'message')).payload, 'hello');
      for (const path of ['', 'console/main.js', 'console/uplot.js', 'console/uplot.css']) {
        const { status } = await fetch(`http://127.0.0.1:${server.metricsPort}/${path}`);
        assert.equal(status, 200, `the console: /${path}`);
      }
      process.kill(server.pid, 'SIGTERM');
      const [code] = await server.exited;
      assert.equal(code, 0);
    },
  );

  await t.test('fanfare/client connects to it', async (t) => {
    const server = await startInstalled(t, home);
    const script = `
      import { Fanfare } from 'fanfare/client';
      const fanfare = new Fanfare('ws://127.0.0.1:${server.port}');
      const room = fanfare.join('lobby');
      room.on('joined', () => room.publish('hello'));
      for await (const { payload } of room) {
        console.log(payload);
        await fanfare.close();
      }`;
    const { stdout, stderr } = run(home, process.execPath, '--input-type=module', '-e', script);
    assert.equal(stdout, 'hello\n', stderr);
  });

  await t.test('a TypeScript file that imports it type-checks', () => {
    writeFileSync(join(home, 'consumer.ts'), CONSUMER);
    const tsc = join(root, 'node_modules/typescript/bin/tsc');
    const options = [
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--module',
      'nodenext',
      '--target',
      'es2022',
    ];
    const typeRoots = ['--typeRoots', join(root, 'node_modules/@types'), '--types', 'node'];
    const checked = run(home, process.execPath, tsc, ...options, ...typeRoots, 'consumer.ts');
    assert.equal(checked.stdout, '');
    assert.equal(checked.status, 0);
  });
});

/**
 * @param {import('node:test').TestContext} t
 * @param {number} port
 */
async function open(t, port) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
  t.after(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

/**
 * @param {WebSocket} socket
 * @param {string} type
 * @returns {Promise<Record<string, any>>}
 */
function received(socket, type) {
  return new Promise((resolve) => {
    socket.on('message', (data) => {
      const message = JSON.parse(String(data));
      if (message.type === type) resolve(message);
    });
  });
}

/** @param {WebSocket} socket */
function joined(socket) {
  const reply = received(socket, 'joined');
  socket.send('{"type":"join","room":"lobby"}');
  return reply;
}
