// client-bindings.test.js: `fanfare-client/react`, `/vue` and `/svelte` in Chromium, against one real
// server. The three applications below show the same page, so they pass the same tests.

import assert from 'node:assert/strict';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { bundleApp, loadApp } from '../helpers/client-bindings.js';
import { filesOf } from '../helpers/doc-code.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** What each application has on its page: `#a .messages`, `#b .messages`, `.state`, … */
const APPS = {
  react: {
    'app.jsx': `
      import { memo, StrictMode, useEffect, useState } from 'react';
      import { createRoot } from 'react-dom/client';
      import {
        FanfareProvider, useConnection, useMessages, usePresence, useRoom, useRoomState,
      } from 'fanfare-client/react';
      import { client, counts, heard, saw } from './page.js';

      const Messages = memo(function Messages({ name, id }) {
        const { messages, hasOlder, loadOlder } = useMessages(name, { last: 2 });
        const texts = messages.map(({ payload }) => payload);
        saw('messages ' + id, name, texts);
        if (id === 'a') window.loadOlder = loadOlder;
        return <p id={id} title={name ?? 'none'} data-older={hasOlder}>{texts.join(' ')}</p>;
      });
      const State = memo(function State({ name }) {
        const state = useRoomState(name);
        const texts = state && [...state].map(([key, value]) => key + '=' + value).sort();
        saw('state', name, texts ?? []);
        return <p id="state" title={name}>{texts ? texts.join(' ') : 'loading'}</p>;
      });
      const One = memo(function One({ name }) {
        const value = useRoomState(name, { select: (state) => state.get('x') });
        useEffect(() => void counts.one++);
        return <p id="one" title={name}>{value}</p>;
      });
      const Users = memo(function Users({ name }) {
        const { members, count } = usePresence(name);
        useEffect(() => void counts.users++);
        return <p id="users" title={name}>{count + ': ' + members.map(({ user }) => user).sort()}</p>;
      });
      const Connection = memo(function Connection() {
        const { state } = useConnection();
        return <p id="connection">{state}</p>;
      });
      const Listener = memo(function Listener({ name, label }) {
        const room = useRoom(name, {
          presence: { user: 'ann' },
          onMessage: (payload, { from }) => heard.push([label, name, payload, typeof from]),
        });
        window.publish = room.publish;
        window.pageOf = room.history;
        counts.listener++;
        return null;
      });
      function App() {
        const [suffix, setSuffix] = useState('a');
        const [isTwice, setTwice] = useState(false);
        const [label, setLabel] = useState('one');
        Object.assign(window, { go: setSuffix, twice: setTwice, label: setLabel });
        const chat = suffix && 'chat.' + suffix;
        return <>
          <Messages name={chat} id="a" />{isTwice && <Messages name={chat} id="b" />}
          <Listener name={chat} label={label} /><Users name={chat} />
          <State name={'price.' + suffix} /><One name={'price.' + suffix} /><Connection />
        </>;
      }
      const root = createRoot(document.getElementById('root'));
      window.end = () => root.unmount();
      root.render(
        <StrictMode><FanfareProvider client={client}><App /></FanfareProvider></StrictMode>,
      );`,
  },
  vue: {
    'app.js': `
      import { createApp, h, onUpdated, ref } from 'vue';
      import {
        fanfareKey, useConnection, useMessages, usePresence, useRoom, useRoomState,
      } from 'fanfare-client/vue';
      import { client, counts, heard, saw } from './page.js';

      const text = (id, title, content, more) => h('p', { id, title, ...more }, content);
      const Messages = {
        props: ['name', 'id'],
        setup(props) {
          const shown = useMessages(() => props.name, { last: 2 });
          return () => {
            const texts = shown.value.messages.map(({ payload }) => payload);
            saw('messages ' + props.id, props.name, texts);
            if (props.id === 'a') window.loadOlder = shown.value.loadOlder;
            const more = { 'data-older': shown.value.hasOlder };
            return text(props.id, props.name ?? 'none', texts.join(' '), more);
          };
        },
      };
      const State = {
        props: ['name'],
        setup(props) {
          const state = useRoomState(() => props.name);
          return () => {
            const texts = state.value && [...state.value].map(([key, one]) => key + '=' + one).sort();
            saw('state', props.name, texts ?? []);
            return text('state', props.name, texts ? texts.join(' ') : 'loading');
          };
        },
      };
      const One = {
        props: ['name'],
        setup(props) {
          const state = useRoomState(() => props.name);
          const value = computed(() => state.value?.get('x'));
          return () => (counts.one++, text('one', props.name, value.value));
        },
      };
      const Users = {
        props: ['name'],
        setup(props) {
          const users = usePresence(() => props.name);
          return () => {
            counts.users++;
            const { members, count } = users.value;
            return text('users', props.name, count + ': ' + members.map(({ user }) => user).sort());
          };
        },
      };
      const Connection = {
        setup() {
          const connection = useConnection();
          return () => text('connection', '', connection.value.state);
        },
      };
      const Listener = {
        props: ['name', 'label'],
        setup(props) {
          const room = useRoom(() => props.name, {
            presence: { user: 'ann' },
            onMessage: (payload, { from }) =>
              heard.push([props.label, props.name, payload, typeof from]),
          });
          window.publish = room.publish;
          window.pageOf = room.history;
          return () => (counts.listener++, null);
        },
      };
      const suffix = ref('a');
      const isTwice = ref(false);
      const label = ref('one');
      window.go = (next) => { suffix.value = next; };
      window.twice = (next) => { isTwice.value = next; };
      window.label = (next) => { label.value = next; };
      const app = createApp(() => {
        const chat = suffix.value && 'chat.' + suffix.value;
        const price = 'price.' + suffix.value;
        return [
          h(Messages, { name: chat, id: 'a' }),
          isTwice.value ? h(Messages, { name: chat, id: 'b' }) : null,
          h(Listener, { name: chat, label: label.value }), h(Users, { name: chat }),
          h(State, { name: price }), h(One, { name: price }), h(Connection),
        ];
      });
      app.provide(fanfareKey, client);
      window.end = () => app.unmount();
      app.mount('#root');`.replace('createApp, h,', 'computed, createApp, h,'),
  },
  svelte: {
    'Messages.svelte': `
      <script>
        import { useMessages } from 'fanfare-client/svelte';
        import { saw } from './page.js';
        const { name, id } = $props();
        const shown = useMessages(() => name, { last: 2 });
        const texts = $derived(shown.current.messages.map(({ payload }) => payload));
        $effect.pre(() => {
          saw('messages ' + id, name, texts);
          if (id === 'a') window.loadOlder = shown.current.loadOlder;
        });
      </script>
      <p {id} title={name ?? 'none'} data-older={shown.current.hasOlder}>{texts.join(' ')}</p>`,
    'State.svelte': `
      <script>
        import { useRoomState } from 'fanfare-client/svelte';
        import { counts, saw } from './page.js';
        const { name } = $props();
        const state = useRoomState(() => name);
        const texts = $derived(
          state.current && [...state.current].map(([key, value]) => key + '=' + value).sort(),
        );
        const x = $derived(state.current?.get('x'));
        const count = (value) => (counts.one++, value);
        $effect.pre(() => saw('state', name, texts ?? []));
      </script>
      <p id="state" title={name}>{texts ? texts.join(' ') : 'loading'}</p>
      <p id="one" title={name}>{count(x)}</p>`,
    'Room.svelte': `
      <script>
        import { useConnection, usePresence, useRoom } from 'fanfare-client/svelte';
        import { counts, heard } from './page.js';
        const { name, label } = $props();
        const connection = useConnection();
        const users = usePresence(() => name);
        const room = useRoom(() => name, {
          presence: { user: 'ann' },
          onMessage: (payload, { from }) => heard.push([label, name, payload, typeof from]),
        });
        window.publish = room.publish;
        window.pageOf = room.history;
        const count = (value) => (counts.users++, value);
      </script>
      <p id="users" title={name}>
        {count(users.current).count}: {users.current.members.map(({ user }) => user).sort().join()}
      </p>
      <p id="connection">{connection.current.state}</p>`,
    'App.svelte': `
      <script>
        import { setFanfare } from 'fanfare-client/svelte';
        import { client } from './page.js';
        import Messages from './Messages.svelte';
        import Room from './Room.svelte';
        import State from './State.svelte';
        setFanfare(client);
        let suffix = $state('a');
        let isTwice = $state(false);
        let label = $state('one');
        window.go = (next) => { suffix = next; };
        window.twice = (next) => { isTwice = next; };
        window.label = (next) => { label = next; };
        const chat = $derived(suffix && 'chat.' + suffix);
      </script>
      <Messages name={chat} id="a" />
      {#if isTwice}<Messages name={chat} id="b" />{/if}
      <Room name={chat} {label} />
      <State name={'price.' + suffix} />`,
    'app.js': `
      import { mount, unmount } from 'svelte';
      import App from './App.svelte';
      const app = mount(App, { target: document.getElementById('root') });
      window.end = () => unmount(app);`,
  },
};

/** What the applications share. @param {number} port */
const pageJs = (port) => `
  import { Fanfare } from 'fanfare-client';
  class Socket extends WebSocket {
    constructor(...args) {
      super(...args);
      window.socket = this;
    }
  }
  const options = { WebSocket: Socket, firstDelayMs: 50, maxDelayMs: 100 };
  export const client = new Fanfare('ws://127.0.0.1:${port}', options);
  export const counts = { one: 0, users: 0, listener: 0 };
  export const heard = [];
  const renders = [];
  export const saw = (what, name, texts) => void renders.push([what, name, ...texts]);
  Object.assign(window, { counts, heard, renders });`;

const setUp = shared(async (owner) => {
  const secret = newSecret();
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'chat.*=100/300s',
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_STATE: 'price.*=100/1h',
    API_KEYS: `main ${secret} all`,
  });
  const browser = await openBrowser(owner);
  return { server, browser, api: apiOf(server, secret) };
});

/**
 * An application in a page of its own, with rooms of its own.
 * @param {import('node:test').TestContext} t @param {keyof typeof APPS} name
 */
async function openApp(t, name) {
  const { server, browser, api } = await setUp();
  const script = await bundleApp({ ...APPS[name], 'page.js': pageJs(server.port) });
  const publish = async (/** @type {object} */ body) =>
    assert.equal((await api('/publish', { body })).status, 200);
  for (const suffix of ['a', 'b']) {
    await api(`/rooms/chat.${suffix}/history`, { method: 'DELETE' });
    for (const number of [1, 2, 3])
      await publish({ room: `chat.${suffix}`, payload: `${suffix}${number}` });
    for (const key of ['x', 'y'])
      await publish({ room: `price.${suffix}`, key, payload: `${suffix}1` });
  }
  const { page, sent, errors } = await loadApp(t, browser, server.port, script);
  /** @param {Record<string, string>} wanted texts by the id of their element */
  const show = async (wanted) => {
    const ids = Object.keys(wanted);
    const shown = () =>
      page.evaluate(
        `Object.fromEntries(${JSON.stringify(ids)}.map((id) => [id,
          document.getElementById(id)?.textContent.replace(/\\s+/g, ' ').trim()]))`,
      );
    const isEqual = async () => JSON.stringify(await shown()) === JSON.stringify(wanted);
    await until(isEqual).catch(async () => assert.deepEqual(await shown(), wanted));
  };
  const members = async (/** @type {string} */ room) =>
    (await api(`/rooms/${room}`)).body.connections;
  return { page, sent, errors, show, publish, members, counts: () => page.evaluate('counts') };
}

for (const name of /** @type {(keyof typeof APPS)[]} */ (Object.keys(APPS))) {
  test(`${name}: components of a room share one membership`, {
    timeout: 90_000,
    skip: withoutChromium,
  }, async (t) => {
    const { page, sent, errors, show, publish, members } = await openApp(t, name);
    await show({ a: 'a2 a3', state: 'x=a1 y=a1', one: 'a1', users: '1: ann' });
    await show({ connection: 'connected' });
    // StrictMode mounts, unmounts and mounts each component.
    assert.deepEqual([...sent].sort(), [
      ['join', 'chat.a'],
      ['join', 'price.a'],
    ]);
    await publish({ room: 'chat.a', payload: 'a4' });
    await show({ a: 'a2 a3 a4' });
    // The second list has what the first one shows, at once and without a request.
    await page.evaluate('renders.length = 0; twice(true)');
    await show({ a: 'a2 a3 a4', b: 'a2 a3 a4' });
    const renders = /** @type {string[][]} */ (await page.evaluate('renders'));
    assert.deepEqual(
      renders.filter(([what, , ...texts]) => what === 'messages b' && texts.length !== 3),
      [],
    );
    assert.equal(await members('chat.a'), 1);
    await page.evaluate('twice(false)');
    await publish({ room: 'chat.a', payload: 'a5' });
    await show({ a: 'a2 a3 a4 a5' });
    assert.equal(sent.length, 2);
    await page.evaluate('end()');
    await until(async () => (await members('chat.a')) + (await members('price.a')) === 0);
    assert.deepEqual(sent.slice(2).sort(), [
      ['leave', 'chat.a'],
      ['leave', 'price.a'],
    ]);
    assert.deepEqual(errors, []);
  });

  test(`${name}: no render shows one room below the name of another`, {
    timeout: 90_000,
    skip: withoutChromium,
  }, async (t) => {
    const { page, errors, show, members } = await openApp(t, name);
    await show({ a: 'a2 a3', state: 'x=a1 y=a1' });
    await page.evaluate(`go('b')`);
    await show({ a: 'b2 b3', state: 'x=b1 y=b1', one: 'b1', users: '1: ann' });
    await page.evaluate(`publish('b4')`);
    await show({ a: 'b2 b3 b4' });
    for (let i = 0; i < 5; i++) for (const room of ['a', 'b']) await page.evaluate(`go('${room}')`);
    await page.evaluate(`go('a'); go('b')`);
    await show({ a: 'b3 b4', state: 'x=b1 y=b1' });
    await until(async () => (await members('chat.a')) + (await members('price.a')) === 0);
    assert.equal(await members('chat.b'), 1);
    const renders = /** @type {string[][]} */ (await page.evaluate('renders'));
    assert.ok(renders.length > 10);
    const mixed = renders.filter(([, room, ...texts]) =>
      texts.some((each) => !each.replace(/.=/, '').startsWith(room.at(-1) ?? '')),
    );
    assert.deepEqual(mixed, []);
    // Without a name there is no room.
    await page.evaluate('go(null)');
    await show({ a: '', users: '0:' });
    await until(async () => (await members('chat.b')) === 0);
    assert.deepEqual(errors, []);
  });

  test(`${name}: what did not change is not rendered again`, {
    timeout: 90_000,
    skip: withoutChromium,
  }, async (t) => {
    const { page, errors, show, publish, counts } = await openApp(t, name);
    await show({ a: 'a2 a3', state: 'x=a1 y=a1', one: 'a1', users: '1: ann' });
    await page.evaluate('renders.length = 0');
    const before = await counts();
    // Another key, and messages.
    for (const payload of ['a2', 'a3']) await publish({ room: 'price.a', key: 'y', payload });
    for (const payload of ['a4', 'a5']) await publish({ room: 'chat.a', payload });
    await show({ a: 'a2 a3 a4 a5', state: 'x=a1 y=a3' });
    // The new connection recovers. Neither the list nor the state nor the users differ.
    await page.evaluate('renders.length = 0; former = socket; socket.close()');
    await until(() => page.evaluate('socket !== former && socket.readyState === 1'));
    await show({ connection: 'connected' });
    await publish({ room: 'price.a', key: 'y', payload: 'a4' });
    await publish({ room: 'chat.a', payload: 'a6' });
    await show({ a: 'a2 a3 a4 a5 a6', state: 'x=a1 y=a4', users: '1: ann' });
    const { one, users, listener } = await counts();
    assert.deepEqual(
      { one, listener },
      { one: before.one, listener: before.listener },
      'a selected value, and a room with listeners only',
    );
    // The connection was gone from the list, and came back.
    assert.ok(users - before.users <= 4, `${users - before.users} renders of the users`);
    const renders = /** @type {string[][]} */ (await page.evaluate('renders'));
    const isStrict = name === 'react' ? 2 : 1;
    assert.equal(renders.filter(([what]) => what === 'messages a').length, isStrict);
    assert.equal(renders.filter(([what]) => what === 'state').length, isStrict);
    assert.deepEqual(errors, []);
  });

  test(`${name}: listeners, older messages and gaps`, {
    timeout: 90_000,
    skip: withoutChromium,
  }, async (t) => {
    const { page, errors, show, publish } = await openApp(t, name);
    await show({ a: 'a2 a3', users: '1: ann' });
    await page.evaluate('loadOlder(1)');
    await show({ a: 'a1 a2 a3' });
    const hasOlder = () => page.getAttribute('#a', 'data-older');
    assert.equal(await hasOlder(), 'false');
    const { offset } = await page.evaluate(`publish('a4')`);
    assert.equal(typeof offset, 'number');
    await show({ a: 'a1 a2 a3 a4' });
    const { messages } = await page.evaluate(`pageOf({ limit: 1 })`);
    assert.equal(messages[0].payload, 'a4');
    await page.evaluate(`label('two')`);
    await publish({ room: 'chat.a', payload: 'a5' });
    await show({ a: 'a1 a2 a3 a4 a5' });
    assert.deepEqual(await page.evaluate('heard'), [
      ['one', 'chat.a', 'a4', 'string'],
      ['two', 'chat.a', 'a5', 'string'],
    ]);
    // The history is gone, so what the page has cannot be continued. It loads what there is.
    const { api } = await setUp();
    await api('/rooms/chat.a/history', { method: 'DELETE' });
    await publish({ room: 'chat.a', payload: 'a6' });
    await show({ a: 'a6' });
    assert.deepEqual(errors, []);
  });
}

/** The page that a server renders with each framework: what a component shows before it is mounted. */
const ON_A_SERVER = {
  react: {
    'app.jsx': `
      import { renderToString } from 'react-dom/server';
      import { Fanfare } from 'fanfare-client';
      import {
        FanfareProvider, useConnection, useMessages, usePresence, useRoom, useRoomState,
      } from 'fanfare-client/react';
      function All() {
        useRoom('chat.a', { onMessage() {} });
        const { messages } = useMessages('chat.a');
        const state = useRoomState('price.a', { select: ({ size }) => size });
        return <p>{[messages.length, String(state), usePresence('chat.a').count,
          useConnection().state].join(' ')}</p>;
      }
      export const render = async (WebSocket) => {
        const client = new Fanfare('/ws', { WebSocket });
        return renderToString(<FanfareProvider client={client}><All /></FanfareProvider>);
      };
      export const without = async () => renderToString(<All />);`,
  },
  vue: {
    'app.js': `
      import { createSSRApp, h } from 'vue';
      import { renderToString } from 'vue/server-renderer';
      import { Fanfare } from 'fanfare-client';
      import {
        fanfareKey, useConnection, useMessages, usePresence, useRoom, useRoomState,
      } from 'fanfare-client/vue';
      const All = {
        setup() {
          useRoom('chat.a', { onMessage() {} });
          const all = [useMessages('chat.a'), useRoomState('price.a'), usePresence('chat.a'),
            useConnection()];
          return () => {
            const [{ messages }, state, { count }, connection] = all.map(({ value }) => value);
            return h('p', [messages.length, String(state), count, connection.state].join(' '));
          };
        },
      };
      export const render = (WebSocket) => {
        const app = createSSRApp(All);
        app.provide(fanfareKey, new Fanfare('/ws', { WebSocket }));
        return renderToString(app);
      };
      export const without = () => {
        const app = createSSRApp(All);
        app.config.warnHandler = () => {};
        return renderToString(app);
      };`,
  },
  svelte: {
    'All.svelte': `
      <script>
        import { useConnection, useMessages, usePresence, useRoom, useRoomState }
          from 'fanfare-client/svelte';
        useRoom('chat.a', { onMessage() {} });
        const messages = useMessages('chat.a');
        const state = useRoomState('price.a');
        const users = usePresence('chat.a');
        const connection = useConnection();
      </script>
      <p>{[messages.current.messages.length, String(state.current), users.current.count,
        connection.current.state].join(' ')}</p>`,
    'App.svelte': `
      <script>
        import { Fanfare } from 'fanfare-client';
        import { setFanfare } from 'fanfare-client/svelte';
        import All from './All.svelte';
        const { WebSocket } = $props();
        setFanfare(new Fanfare('/ws', { WebSocket }));
      </script>
      <All />`,
    'app.js': `
      import { render as renderPage } from 'svelte/server';
      import All from './All.svelte';
      import App from './App.svelte';
      export const render = async (WebSocket) => renderPage(App, { props: { WebSocket } }).body;
      export const without = async () => renderPage(All).body;`,
  },
};

for (const [name, files] of Object.entries(ON_A_SERVER)) {
  test(`${name}: a server renders the page, and connects to nothing`, async (t) => {
    const folder = temporaryFolder(t);
    symlinkSync(`${root}node_modules`, join(folder, 'node_modules'));
    const path = join(folder, 'page.mjs');
    writeFileSync(path, await bundleApp(files, { server: true }));
    const { render, without } = await import(pathToFileURL(path).href);
    let sockets = 0;
    const Socket = class {
      constructor() {
        sockets++;
      }
    };
    const html = await render(Socket);
    assert.match(html.replace(/<!--.*?-->/g, ''), /<p>0 undefined 0 idle<\/p>/);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(sockets, 0);
    await assert.rejects(without, /There is no /);
  });
}

const SVELTE_APP = `
  import { mount } from 'svelte';
  import Page from './Page.svelte';
  mount(Page, { target: document.getElementById('root') });`;

for (const path of ['docs/react.md', 'docs/vue.md', 'docs/svelte.md']) {
  test(`${path}: its blocks are an application`, {
    timeout: 90_000,
    skip: withoutChromium,
  }, async (t) => {
    const { server, browser, api } = await setUp();
    const files = filesOf(path);
    // SvelteKit mounts the page; the others have a program of their own.
    const script = await bundleApp(
      path === 'docs/svelte.md' ? { ...files, 'app.js': SVELTE_APP } : files,
    );
    await api('/rooms/chat.42/history', { method: 'DELETE' });
    for (const text of ['one', 'two', 'three'])
      await api('/publish', { body: { room: 'chat.42', payload: { text } } });
    const price = (/** @type {string} */ key, /** @type {number} */ payload) =>
      api('/publish', { body: { room: 'price.eur', key, payload } });
    await price('CHF', 0.93);
    await price('USD', 1.08);
    const { page, errors } = await loadApp(t, browser, server.port, script);
    const texts = () =>
      page.$$eval('p, h2, li, td', (found) => found.map(({ textContent }) => textContent?.trim()));
    const show = async (/** @type {string[]} */ ...wanted) =>
      until(async () => wanted.join() === [...((await texts()) ?? [])].sort().join()).catch(
        async () => assert.deepEqual((await texts()).sort(), wanted),
      );
    const around = ['chat.42, 1 here', 'connected'];
    await show('0.93', '1.08', ...around, 'three', 'two');
    await page.click('button');
    await show('0.93', '1.08', ...around, 'one', 'three', 'two');
    assert.equal(await page.$('button'), null);
    await page.fill('input', 'zero');
    await page.press('input', 'Enter');
    await price('CHF', 0.94);
    await show('0.94', '1.08', ...around, 'one', 'three', 'two', 'zero');
    await until(async () => /^[^:]+: zero$/.test((await page.textContent('output')) ?? ''));
    assert.deepEqual(errors, []);
  });
}

test('docs/react.md: the provider for Next.js renders on a server, and marks client components', async (t) => {
  const { 'providers.tsx': providers } = filesOf('docs/react.md');
  assert.match(providers, /^\/\/ .*\n'use client';\n/);
  const own = readFileSync(`${root}src/client/react/index.js`, 'utf8');
  assert.match(own, /^(\/\/.*\n|\n)*'use client';\n/);
  const app = `
    import { renderToString } from 'react-dom/server';
    import { useMessages } from 'fanfare-client/react';
    import { Providers } from './providers';
    const Count = () => <b>{useMessages('chat.42').messages.length}</b>;
    export const html = renderToString(<Providers><Count /></Providers>);`;
  const folder = temporaryFolder(t);
  symlinkSync(`${root}node_modules`, join(folder, 'node_modules'));
  const path = join(folder, 'page.mjs');
  const files = { 'providers.tsx': providers, 'app.jsx': app };
  writeFileSync(path, await bundleApp(files, { server: true }));
  assert.equal((await import(pathToFileURL(path).href)).html, '<b>0</b>');
});
