// package.test.js: the package as npm packs it, installed in another folder.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { buildSync } from 'esbuild';
import { publint } from 'publint';
import { WebSocket } from 'ws';
import { filesOf } from '../helpers/doc-code.js';
import {
  install,
  installAlone,
  manifest,
  PACKAGES,
  root,
  run,
  startInstalled,
} from '../helpers/packed.js';

const TIMEOUT_MS = 120_000;

const CONSUMER = `
import { Fanfare as Whole } from 'fanfare';
import { Fanfare, FanfareError, type Room } from 'fanfare/client';
import { Fanfare as SharedFanfare } from 'fanfare/client/shared';
import { Fanfare as Listener } from 'fanfare/client/sse';
import { ERRORS, type ErrorCode } from 'fanfare/codes';
import { loadConfig, parseConfigFile, type Config } from 'fanfare/config';
import type { Hooks } from 'fanfare/hooks';
import type { Change, Code, HistoryOptions, HistoryPage, JoinOptions, Member, Meta, Options, Position, PublishOptions, RoomMessage, State, StateDetail, Welcome } from 'fanfare/client';
import type * as OfTabs from 'fanfare/client/shared';
import type * as OfListener from 'fanfare/client/sse';

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
export const undeclared: Room<{ a: 1 }> = fanfare.join('chat.1');
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
export const older = async () => {
  const { messages: [first] } = await room.history({ limit: 1 });
  return room.history({ before: first });
};
export const standard = new Fanfare('wss://chat.example', { WebSocket });
declare const user: { name?: string };
const { name } = user;
const shared = new SharedFanfare('wss://chat.example', { name });
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
export class Chats {
  options: Options = { offline: 'queue' };
  joinOptions: JoinOptions = { last: 5 };
  publishOptions: PublishOptions = { echo: false };
  messages: RoomMessage<Chat>[] = [];
  members: Member[] = [];
  position: Position | undefined = room.position;
  code: Code | undefined;
  onState = (state: State, { delayMs }: StateDetail): string => state + delayMs;
  onWelcome = ({ connectionId }: Welcome): string => connectionId;
  onMessage = ({ text }: Chat, { from }: Meta): string => from + text;
  onChange = ({ key, previous }: Change<Chat>) => [key, previous?.text];
  older = (options: HistoryOptions): Promise<HistoryPage<Chat>> => room.history(options);
  meta: OfTabs.Meta & OfListener.Meta = { from: 'ann', timestamp: 0 };
  ofTabs: OfTabs.Options = { name: 'ann' };
  ofListener: OfListener.Options & OfListener.JoinOptions = { heartbeatMs: 10_000 };
  // @ts-expect-error: an offset is a number
  wrong: OfListener.Position | OfTabs.Position = { epoch: '', offset: '1' };
}
fanfare.on('state', new Chats().onState);
room.on('message', new Chats().onMessage);
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

const CLIENT_CONSUMER = `
import { Fanfare, FanfareError, type Room, type RoomPayload } from 'fanfare-client';
import { Fanfare as NodeFanfare, type Meta } from 'fanfare-client/node';
import { Fanfare as SharedFanfare } from 'fanfare-client/shared';
import { Fanfare as Listener } from 'fanfare-client/sse';
import { followAppState } from 'fanfare-client/mobile';
import * as react from 'fanfare-client/react';
import * as svelte from 'fanfare-client/svelte';
import * as vue from 'fanfare-client/vue';
import type { App } from 'vue';

const room = new Fanfare('wss://chat.example').join<{ text: string }>('chat.1');
room.on('message', ({ text }, meta: Meta) => text.length + meta.timestamp);
// @ts-expect-error: a payload has a text
room.publish({ words: 'hi' });

declare module 'fanfare-client' {
  interface Rooms {
    'typed.*': { text: string };
    'typed.staff.*': { secret: string };
    '*.log': boolean;
    news: number;
  }
}
type Exactly<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type Is<Name extends string, Payload> = Exactly<RoomPayload<Name>, Payload>;
export const payloads: [
  Is<'typed.1', { text: string }>,
  Is<\`typed.\${number}\`, { text: string }>,
  Is<'typed.staff.1', { secret: string }>,
  Is<'news', number>,
  Is<'news' | 'typed.2', number | { text: string }>,
  Is<'a.log', boolean>,
  Is<'typed.log', boolean | { text: string }>,
  Is<'new', unknown>,
  Is<string, unknown>,
] = [true, true, true, true, true, true, true, true, true];
const client = new Fanfare('wss://chat.example');
const id: string = 'x';
client.join(\`typed.\${id}\`).on('message', ({ text }) => text.length);
new Listener('https://chat.example/sse').join('typed.1').on('message', ({ text }) => text.length);
// @ts-expect-error: a payload has no such field
new SharedFanfare('wss://chat.example').join('typed.1').on('message', ({ txt }) => txt);
// @ts-expect-error: news are numbers
client.publish('news', 'none');
export const given: Room<{ a: 1 }> = client.join<{ a: 1 }>('typed.1');

export function inReact() {
  const room = react.useRoom('typed.1', { onMessage: ({ text }, { from }) => text + from });
  const { messages, loadOlder } = react.useMessages('typed.1', { last: 5, max: 100 });
  const texts: string[] = messages.map(({ payload }) => payload.text);
  const length: number | undefined = react.useRoomState('typed.1', { select: ({ size }) => size });
  const state: ReadonlyMap<string, { n: 1 }> | undefined = react.useRoomState<{ n: 1 }>('other');
  const { members, count } = react.usePresence('typed.1', { presence: false });
  const isConnected = react.useConnection().state === 'connected';
  // @ts-expect-error: a payload has a text
  room.publish({ words: 'hi' });
  // @ts-expect-error: there is no such event
  react.useRoom('typed.1', { onMassage() {} });
  // @ts-expect-error: there is no such state
  react.useConnection().state === 'conected';
  react.useMessages(null);
  return [loadOlder(), texts, length, state, members[0]?.user, count, isConnected];
}
export function inVue(name: () => \`typed.\${number}\`, app: App) {
  app.provide(vue.fanfareKey, client);
  const text: string = vue.useMessages(name).value.messages[0].payload.text;
  const one = vue.useRoomState<{ n: 1 }>('other').value?.get('x')?.n;
  // @ts-expect-error: a payload has no such field
  vue.useRoom(name, { onMessage: ({ words }) => words });
  return [text, one, vue.usePresence(name).value.count, vue.useConnection().value.delayMs];
}
export function inSvelte(name: () => \`typed.\${number}\`) {
  svelte.setFanfare(client);
  const text: string = svelte.useMessages(name).current.messages[0].payload.text;
  const one = svelte.useRoomState<{ n: 1 }>('other').current?.get('x')?.n;
  // @ts-expect-error: a payload has no such field
  svelte.useRoom(name, { onMessage: ({ words }) => words });
  return [text, one, svelte.usePresence(name).current.count, svelte.useConnection().current.reason];
}
type ReactNative = {
  currentState: 'active' | 'background' | 'inactive';
  addEventListener(type: 'change', listener: (state: ReactNative['currentState']) => void): { remove(): void };
};
export const follow = (AppState: ReactNative): (() => void) =>
  followAppState(client, AppState, { sleepAfterMs: 1000 });
export const provided = react.FanfareProvider({ client, children: [null, 'text'] });
export const all = [NodeFanfare, SharedFanfare, Listener];
export const retryable = (error: FanfareError): boolean => error.retryable;
`;

const SERVER_CONSUMER = `
import { createServer, type Claims, type Code, FanfareApiError, type FanfareServer, sign, verifyWebhook } from 'fanfare-server';

type Chat = { text: string };
const server = createServer<{ 'chat.*': Chat; news: string }>({ url: 'http://localhost', apiKey: process.env.API_KEY });
export const published = () => server.publish('chat.42', { text: 'hi' });
// @ts-expect-error: a message of a chat has a text
export const wrong = () => server.publish('chat.42', { words: 'hi' });
// @ts-expect-error: no pattern matches
export const unknown = () => server.publish('caht.42', { text: 'hi' });
export const texts = async () => (await server.history('chat.42')).messages.map(({ payload }) => payload.text);
export const anything: FanfareServer = createServer({ url: 'http://localhost', apiKey: '' });
export const all = () => anything.publish('any', { words: 'hi' }, { signal: AbortSignal.timeout(1) });
export const token = (claims: Claims) => sign(claims, process.env.JWT_SECRET, { expiresInS: 60 });
export const user = async (request: Request) => {
  const event = await verifyWebhook(request, 'whsec_');
  return event.type === 'member.joined' ? event.data.user : undefined;
};
export const code = (error: FanfareApiError): Code => error.code;
// @ts-expect-error: there is no such code
export const isMistyped = ({ code }: FanfareApiError) => code === 'UNAVAILBLE';
`;

const AI_CONSUMER = `
import { FanfareChatTransport, FanfareDurability, FanfareEventStore, read, type RunError, type RunPosition, stream } from 'fanfare-ai';
import { Fanfare } from 'fanfare-client';
import { createServer } from 'fanfare-server';

const server = createServer({ url: 'http://localhost', apiKey: '' });
const fanfare = new Fanfare('http://localhost');
export const write = async (model: AsyncIterable<string>) => {
  const run = await stream(server, 'run.42', { stop: fanfare, resume: true });
  await run.pipe(model, { errorText: (error) => String(error) });
  return run.written;
};
export const length = async (since?: RunPosition) => {
  let length = 0;
  const run = read<string>(fanfare, 'run.42', { since });
  for await (const text of run) length += text.length;
  return [length, run.position?.next];
};
export const transport = new FanfareChatTransport({ fanfare, api: '/chat' });
export const events = new FanfareEventStore(server, 'session');
export const log = new FanfareDurability(new Request('http://localhost/'), { server, fanfare });
// @ts-expect-error: there is no such code
export const isMistyped = ({ code }: RunError) => code === 'CONFLIKT';
`;

/** Without types of Node, as on edge runtimes. */
const WEB_CONSUMER = `
import { createServer, sign, verifyWebhook } from 'fanfare-server';
const server = createServer({ url: 'http://localhost', apiKey: 'key' });
export const run = async (request: Request, key: CryptoKey) => {
  const event = await verifyWebhook(request, ['whsec_']);
  await server.publishFile('chat.1', new Blob([event.id]), { signal: request.signal });
  return sign({ user: 'ann' }, key);
};
`;

const LIBRARIES = /** @type {const} */ (['fanfare-client', 'fanfare-server', 'fanfare-ai']);

for (const name of LIBRARIES)
  test(`${name} has the version and license of the package, and asks for Node 20.12`, () => {
    const text = readFileSync(join(root, PACKAGES[name], 'package.json'), 'utf8');
    const { version, license, engines, peerDependencies = {}, dependencies } = JSON.parse(text);
    assert.deepEqual([version, license], [manifest.version, manifest.license]);
    // The lines that we recommend are for servers. Yarn 1 would refuse a page's build on others.
    assert.deepEqual(engines, { node: '>=20.12' });
    assert.equal(dependencies, undefined);
    const { ws = manifest.dependencies.ws } = peerDependencies;
    assert.equal(ws.split('.')[0], manifest.dependencies.ws.split('.')[0]);
  });

test('the package installs elsewhere, starts, carries a message and type-checks', {
  timeout: 3 * TIMEOUT_MS,
}, async (t) => {
  const { home, files, tarball } = install(t);

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
    assert.match(unknown.stderr, /^fanfare: unknown option --prot\nSee fanfare --help\n$/);
  });

  await t.test(
    'npx fanfare starts a server that delivers a message and stops on SIGTERM',
    async (t) => {
      const server = await startInstalled(t, home);
      const [publisher, member] = [await open(t, server.port), await open(t, server.port)];
      for (const socket of [publisher, member]) await joined(socket);
      publisher.send('{"type":"message","room":"lobby","payload":"hello"}');
      assert.equal((await received(member, 'message')).payload, 'hello');
      const files = ['main.js', 'preact.js', 'htm.js', 'uplot.js', 'uplot.css'];
      for (const path of ['', ...files.map((name) => `console/${name}`)]) {
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

  await t.test('fanfare-client, installed alone, connects to it and type-checks', async (t) => {
    const server = await startInstalled(t, home);
    const client = installAlone(t, 'fanfare-client');
    assert.deepEqual(
      client.files.filter((path) => /server|hub|worker|\.test\./.test(path)),
      [],
    );
    for (const path of ['LICENSE', 'README.md', 'index.js', 'sse/index.js', 'dist/fanfare.min.js'])
      assert.ok(client.files.includes(path), path);
    // A global WebSocket came with Node 22; `ws` stands for it here.
    symlinkSync(join(root, 'node_modules/ws'), join(client.home, 'node_modules/ws'));
    for (const [from, options] of [
      ['fanfare-client', '{ WebSocket }'],
      ['fanfare-client/node', '{}'],
    ]) {
      const script = `
        import { WebSocket } from 'ws';
        import { Fanfare } from '${from}';
        import 'fanfare-client/shared';
        import 'fanfare-client/sse';
        const fanfare = new Fanfare('ws://127.0.0.1:${server.port}', ${options});
        const room = fanfare.join('lobby');
        room.on('joined', () => room.publish('hello'));
        for await (const { payload } of room) {
          console.log(payload);
          await fanfare.close();
        }`;
      const { stdout, stderr } = run(
        client.home,
        process.execPath,
        '--input-type=module',
        '-e',
        script,
      );
      assert.equal(stdout, 'hello\n', stderr);
    }
    for (const name of ['react', 'react-dom', 'vue', 'svelte', '@types'])
      symlinkSync(join(root, 'node_modules', name), join(client.home, 'node_modules', name));
    typeCheck(client.home, CLIENT_CONSUMER, 'typescript-7');
    const app = filesOf('docs/react.md');
    for (const [name, text] of Object.entries(app)) writeFileSync(join(client.home, name), text);
    const vite = '--jsx react-jsx --module esnext --moduleResolution bundler --lib es2022,dom';
    const tsc = join(root, 'node_modules/typescript-7/bin/tsc');
    const options = ['--noEmit', '--strict', '--skipLibCheck', ...vite.split(' ')];
    const compiled = run(client.home, process.execPath, tsc, ...options, ...Object.keys(app));
    assert.equal(compiled.stdout, '', 'docs/react.md, followed in an empty folder');
    buildSync({ entryPoints: [join(client.home, 'app.tsx')], bundle: true, write: false });
    await assertSound(client.tarball);
  });

  await t.test('fanfare-server, installed alone, publishes to it and type-checks', async (t) => {
    const API_KEYS = `test ${'k'.repeat(32)} all`;
    const server = await startInstalled(t, home, { env: { API_KEYS } });
    const library = installAlone(t, 'fanfare-server');
    const paths = library.files.filter((path) => /^(?!types\/).*\//.test(path));
    assert.deepEqual(paths, [], 'no folder but its types');
    for (const path of ['LICENSE', 'README.md', 'index.js', 'types/sdk/index.d.ts'])
      assert.ok(library.files.includes(path), path);
    const member = await open(t, server.port);
    await joined(member);
    for (const [folder, from] of [
      [library.home, 'fanfare-server'],
      [home, 'fanfare/server'],
    ]) {
      const script = `
        import { createServer } from '${from}';
        const options = { url: 'http://127.0.0.1:${server.port}', apiKey: '${'k'.repeat(32)}' };
        await createServer(options).publish('lobby', '${from}');`;
      const got = received(member, 'message');
      const { stderr } = run(folder, process.execPath, '--input-type=module', '-e', script);
      assert.equal((await got).payload, from, stderr);
    }
    typeCheck(library.home, SERVER_CONSUMER, 'typescript-7');
    typeCheck(home, SERVER_CONSUMER.replaceAll('fanfare-server', 'fanfare/server'), 'typescript');
    const web = ['--lib', 'es2022,dom,dom.iterable', '--typeRoots', join(library.home, 'none')];
    typeCheck(library.home, WEB_CONSUMER, 'typescript', web);
    await assertSound(library.tarball);
  });

  await t.test(
    'fanfare-ai, installed alone, loads and type-checks beside the others',
    async (t) => {
      const library = installAlone(t, 'fanfare-ai');
      const paths = library.files.filter((path) => /^(?!types\/).*\//.test(path));
      assert.deepEqual(paths, [], 'no folder but its types');
      for (const path of ['LICENSE', 'README.md', 'index.js', 'types/ai/index.d.ts'])
        assert.ok(library.files.includes(path), path);
      const script = `import('fanfare-ai').then((all) => console.log(Object.keys(all).join()));`;
      const { stdout, stderr } = run(library.home, process.execPath, '-e', script);
      const exported =
        'FanfareChatTransport,FanfareDurability,FanfareEventStore,RunError,read,stream';
      assert.equal(stdout.trim(), exported, stderr);
      const nested = AI_CONSUMER.replaceAll(/'fanfare-(ai|client|server)'/g, "'fanfare/$1'");
      typeCheck(home, nested, 'typescript-7');
      await assertSound(library.tarball);
    },
  );

  await t.test('publint and "are the types wrong" find nothing', () => assertSound(tarball));

  await t.test('a TypeScript file that imports it type-checks', () =>
    typeCheck(home, CONSUMER, 'typescript'),
  );
});

/**
 * Do the files and types of a package fit its exports? All packages are for `import` only, which
 * TypeScript knows as node16 and bundler.
 * @param {string} tarball its path
 */
async function assertSound(tarball) {
  const bytes = readFileSync(tarball);
  const { messages } = await publint({ pack: { tarball: Uint8Array.from(bytes).buffer } });
  // Bundlers read `sideEffects` of the libraries in the server's package.
  const isNested = (/** @type {any} */ { args }) => /^\.\/src\//.test(args?.filePath);
  assert.deepEqual(
    messages.filter((message) => !isNested(message)),
    [],
  );
  const analysis = await checkPackage(createPackageFromTarballData(Uint8Array.from(bytes)));
  assert.ok('problems' in analysis, 'it has types');
  const problems = /** @type {{kind: string, resolutionKind?: string}[]} */ (analysis.problems);
  assert.deepEqual(
    problems.filter(({ resolutionKind }) => !/^node(10|16-cjs)$/.test(resolutionKind ?? '')),
    [],
  );
}

const NODE_TYPES = ['--typeRoots', join(root, 'node_modules/@types'), '--types', 'node'];

/**
 * @param {string} home @param {string} text @param {'typescript'|'typescript-7'} compiler
 * @param {readonly string[]} [types] options: what the runtime has
 */
function typeCheck(home, text, compiler, types = NODE_TYPES) {
  writeFileSync(join(home, 'consumer.ts'), text);
  const tsc = join(root, 'node_modules', compiler, 'bin/tsc');
  const options = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--skipLibCheck'];
  const { status, stdout } = run(
    home,
    process.execPath,
    tsc,
    ...options,
    '--module',
    'nodenext',
    '--target',
    'es2022',
    ...types,
    'consumer.ts',
  );
  assert.equal(stdout, '');
  assert.equal(status, 0);
}

/** @param {import('node:test').TestContext} t @param {number} port */
async function open(t, port) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
  t.after(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

/** @param {WebSocket} socket @param {string} type @returns {Promise<Record<string, any>>} */
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
