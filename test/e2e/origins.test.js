// origins.test.js: every way in, from pages of every kind of origin. ALLOWED_ORIGINS decides for all
// of them, and the list of a Pusher app only narrows it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { entryOf, PusherClient, writeApps } from '../helpers/pusher.js';
import { handshake, RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 60_000 };
const GOOD = 'https://good.example';
const OTHER = 'https://other.example';
const EVIL = 'https://evil.example';

const started = shared((owner) =>
  startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    ALLOWED_ORIGINS: `${GOOD},${OTHER},https://*.preview.example`,
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_PUSHER_APPS: writeApps(owner, [
      entryOf(),
      entryOf({ id: '2', key: 'narrow', origins: [GOOD] }),
      entryOf({ id: '3', key: 'wide', origins: [GOOD, EVIL] }),
      entryOf({ id: '4', key: 'shared', shared: true }),
      entryOf({ id: '5', key: 'previews', origins: ['https://*.preview.example'] }),
    ]),
  }),
);

/** What a request has in `Origin`. A list: several headers. */
const ORIGINS = Object.freeze({
  good: GOOD,
  other: OTHER,
  preview: 'https://pr-17.preview.example',
  none: undefined,
  evil: EVIL,
  null: 'null',
  two: [GOOD, EVIL],
  'two, the good one last': [EVIL, GOOD],
  suffix: `${GOOD}.evil`,
  port: `${GOOD}:444`,
  scheme: 'http://good.example',
  path: `${GOOD}/`,
  empty: '',
  'no label': 'https://preview.example',
  'two labels': 'https://a.b.preview.example',
  'a label and a port': 'https://a.preview.example:8443',
  'a label before a suffix': 'https://a.preview.example.evil',
});
/** @typedef {keyof typeof ORIGINS} Kind */
/** @type {readonly Kind[]} */
const ADMITTED = ['good', 'other', 'preview', 'none'];

const BODY = '{"id":1,"connect":{}}';
const COMMANDS = '{"session":"s","node":"n","data":"{}"}';
/** @param {string} body */
const post = (body) => ({
  method: 'POST',
  body,
  headers: { 'Content-Type': 'text/plain', 'Content-Length': String(body.length) },
});
const PLAIN = { Connection: 'close', Upgrade: undefined };

/**
 * @type {Record<string, {target: string, method?: string, body?: string,
 *   headers?: Record<string, string|undefined>, isPusher?: boolean, kinds?: readonly Kind[]}>}
 */
const WAYS = {
  'native WebSocket': { target: '/ws' },
  'native stream of events': { target: '/sse?room=a', headers: PLAIN },
  'Centrifugo WebSocket': { target: '/connection/websocket' },
  'Centrifugo sse': {
    target: `/connection/sse?cf_connect=${encodeURIComponent(BODY)}`,
    headers: PLAIN,
  },
  'Centrifugo http_stream': { target: '/connection/http_stream', ...post(BODY) },
  'Centrifugo emulation': { target: '/emulation', ...post(COMMANDS) },
  'Pusher app': { target: '/app/app-key', isPusher: true },
  'Pusher app, shared': { target: '/app/shared', isPusher: true },
  'Pusher app with fewer origins': {
    target: '/app/narrow',
    isPusher: true,
    kinds: ['good', 'none'],
  },
  'Pusher app for previews': {
    target: '/app/previews',
    isPusher: true,
    kinds: ['preview', 'none'],
  },
  'Pusher app that lists a foreign origin': {
    target: '/app/wide',
    isPusher: true,
    kinds: ['good', 'none'],
  },
};

for (const [name, { isPusher = false, kinds = ADMITTED, ...way }] of Object.entries(WAYS))
  test(`${name}: pages of foreign origins are refused`, OPTIONS, async (t) => {
    const { port } = await started();
    /** @type {Record<string, boolean>} */
    const admitted = {};
    for (const [kind, origin] of Object.entries(ORIGINS)) {
      const client = await RawClient.connect(t, { port });
      const headers = { ...(way.method === 'POST' ? PLAIN : {}), ...way.headers, Origin: origin };
      client.write(handshake({ ...way, headers }));
      const { status, headers: answer } = await client.response();
      const readers = answer['access-control-allow-origin'];
      if (!kinds.includes(/** @type {Kind} */ (kind))) assert.equal(readers, undefined, kind);
      admitted[kind] = isPusher ? await isEstablished(client) : status !== 403;
      client.socket.destroy();
    }
    const expected = Object.keys(ORIGINS).map((kind) => [
      kind,
      kinds.includes(/** @type {Kind} */ (kind)),
    ]);
    assert.deepEqual(admitted, Object.fromEntries(expected));
  });

/** Pusher's clients are refused inside the WebSocket. @param {RawClient} client */
async function isEstablished(client) {
  const text = () => client.bytes.toString('latin1');
  const isAnswered = () => /connection_established|pusher:error/.test(text());
  while (!isAnswered() && !client.isClosed)
    await new Promise((resolve) => client.socket.once('data', resolve).once('close', resolve));
  return text().includes('connection_established');
}

test('a Pusher client from a foreign origin is told, and never returns', OPTIONS, async (t) => {
  const { port } = await started();
  const app = { id: '1234', key: 'app-key', secret: 'app-secret' };
  const client = new PusherClient(`ws://127.0.0.1:${port}/app/app-key?protocol=7`, app, {
    origin: EVIL,
  });
  t.after(() => client.socket.terminate());
  const { data } = await client.next(({ event }) => event === 'pusher:error');
  assert.deepEqual(data, { code: 4009, message: 'This origin is not allowed.' });
  assert.equal((await client.closed()).code, 4009);
});
