// ai-mcp.test.js: an MCP server of two replicas behind HAProxy, with the event store of docs/ai.md and
// the stock SDK on both sides. The client resumes a call at the one that does not run it; that one is
// killed in mid-call, and the client resumes at the other.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { FanfareEventStore } from '../../src/ai/index.js';
import { createServer } from '../../src/sdk/index.js';
import { freePort } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { startDaemon } from '../helpers/daemon.js';
import { codeWith, runCode } from '../helpers/doc-code.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const REPLICA = fileURLToPath(new URL('../helpers/mcp-replica.js', import.meta.url));
const noHaproxy = spawnSync('haproxy', ['-v']).error !== undefined && 'there is no haproxy';
const QUICK = { initialReconnectionDelay: 100, maxReconnectionDelay: 500 };
const RECONNECTION = { ...QUICK, reconnectionDelayGrowFactor: 1.5, maxRetries: 100 };

/** @param {import('node:test').TestContext} t */
async function startFanfare(t) {
  const apiKey = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `mcp ${apiKey} all`,
    FANFARE_HISTORY: 'mcp.*=1000/60s, short.*=2/60s',
  });
  return { url: `http://127.0.0.1:${server.port}`, apiKey };
}

/** @param {import('node:test').TestContext} t @param {string[]} args of mcp-replica.js */
async function startReplica(t, ...args) {
  const child = spawn(process.execPath, [REPLICA, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  /** @type {string[]} */
  const lines = [];
  createInterface({ input: child.stdout }).on('line', (line) => void lines.push(line));
  await until(() => lines.includes('ready'), 30_000, 'a replica');
  return { child, lines };
}

/**
 * New connections go to the first replica while it is up. Without `timeout check`, one that answers a
 * check after more than 100 ms would count as down.
 * @param {number} port @param {readonly string[]} ports
 */
const CONFIGURATION = (port, ports) => `
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  timeout check 10s
  option httpchk GET /alive
listen mcp
  bind 127.0.0.1:${port}
  option redispatch
  server first 127.0.0.1:${ports[0]} check inter 100ms fall 1 rise 1
  server second 127.0.0.1:${ports[1]} check inter 100ms fall 1 rise 1 backup
`;

test('two replicas behind HAProxy: a call is resumed at the other one, also after a kill', {
  timeout: 115_000,
  skip: noHaproxy,
}, async (t) => {
  const { url, apiKey } = await startFanfare(t);
  const ports = [String(await freePort()), String(await freePort())];
  const port = await freePort();
  const file = join(temporaryFolder(t), 'haproxy.cfg');
  writeFileSync(file, CONFIGURATION(port, ports));
  const second = await startReplica(t, url, apiKey, ports[1]);
  await startDaemon(t, 'haproxy', ['-db', '-f', file], port);
  const address = `http://127.0.0.1:${port}`;
  const pidBehind = async () => (await fetch(`${address}/alive`)).text().catch(() => '');
  await until(async () => (await pidBehind()) === String(second.child.pid), 20_000, 'HAProxy');

  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`${address}/mcp`), {
    reconnectionOptions: RECONNECTION,
  });
  t.after(() => client.close());
  await client.connect(/** @type {any} */ (transport));
  // The session is one of the second replica. From now on, the first one gets new connections.
  const first = await startReplica(t, url, apiKey, ports[0]);
  /** @type {number[]} */
  const progress = [];
  const calling = client.callTool({ name: 'work', arguments: {} }, undefined, {
    timeout: 100_000,
    onprogress: ({ progress: step }) => void progress.push(step),
  });
  calling.catch(() => {});
  await until(() => first.lines.includes('resumes'), 30_000, 'the client at the first replica');
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  await until(() => progress.length === 5, 30_000, 'all progress, from the second replica');
  await fetch(`http://127.0.0.1:${ports[1]}/release`);
  const { content } = /** @type {any} */ (await calling);
  assert.deepEqual(content, [{ type: 'text', text: `done by ${second.child.pid}` }]);
  assert.deepEqual(progress, [1, 2, 3, 4, 5]);
});

test('the event store of docs/ai.md: what follows an event, of one stream of one session', async (t) => {
  const { url, apiKey } = await startFanfare(t);
  const { transportOf, resumingTransportOf } = await runCode(
    codeWith('docs/ai.md', 'function transportOf'),
    { createServer, FanfareEventStore, StreamableHTTPServerTransport, url, apiKey },
    ['transportOf', 'resumingTransportOf'],
  );
  for (const create of [transportOf, resumingTransportOf])
    assert.ok(create('session') instanceof StreamableHTTPServerTransport);

  const server = createServer({ url, apiKey });
  const [one, other] = ['s1', 's2'].map((id) => new FanfareEventStore(server, id));
  const note = (/** @type {number} */ n) => ({ jsonrpc: '2.0', method: 'n', params: { n } });
  const primed = await one.storeEvent('a', {});
  const ids = [];
  for (let n = 1; n <= 3; n++) ids.push(await one.storeEvent('a', note(n)));
  await one.storeEvent('b', note(7));
  await other.storeEvent('a', note(8));
  const replayed = async (/** @type {FanfareEventStore} */ store, /** @type {string} */ id) => {
    /** @type {unknown[]} */
    const sent = [];
    const streamId = await store.replayEventsAfter(id, {
      send: async (eventId, message) => void sent.push([eventId, message.params?.n ?? message.id]),
    });
    return [streamId, sent];
  };
  assert.deepEqual(await replayed(one, primed), ['a', ids.map((id, i) => [id, i + 1])]);
  assert.deepEqual(await replayed(one, ids[2]), ['a', []]);
  assert.equal(await one.getStreamIdForEventId(ids[0]), 'a');
  assert.equal(await one.getStreamIdForEventId('nonsense'), undefined);
  // Another session has no such event.
  await assert.rejects(replayed(other, ids[0]), /gone/);
  const short = new FanfareEventStore(server, 's1', { prefix: 'short' });
  const old = await short.storeEvent('a', note(1));
  for (let n = 2; n <= 4; n++) await short.storeEvent('a', note(n));
  await assert.rejects(replayed(short, old), /gone/);
  assert.throws(() => new FanfareEventStore(server, 'a/b'), TypeError);

  const waiting = new FanfareEventStore(server, 's1', { waitMs: 60_000 });
  const answered = replayed(waiting, ids[1]);
  const last = await one.storeEvent('a', { jsonrpc: '2.0', id: 5, result: {} });
  assert.deepEqual(await answered, [
    'a',
    [
      [ids[2], 3],
      [last, 5],
    ],
  ]);
});
