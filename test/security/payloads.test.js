// payloads.test.js: what a payload may contain, by each way that a message gets into a room. The
// server does not make objects of payloads, so their keys are not its concern; only depth is limited.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connectRaw } from '../helpers/centrifugo.js';
import { KEY as CENTRIFUGO_KEY } from '../helpers/centrifugo-api.js';
import { connect } from '../helpers/clients.js';
import { entryOf, pusherOf, writeApps } from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const OPTIONS = { timeout: 60_000 };
/** The same room for all doors: the app is shared. */
const ROOM = 'private-x';
const STATE_ROOM = 'private-state';
const SECRET = newSecret();
const HOOKS = `export default {
  onPublish: (_connection, room, payload) =>
    payload?.change === undefined ? true : { payload: JSON.parse(payload.change) },
};`;

const start = shared(async (owner) => {
  const hooks = join(temporaryFolder(owner), 'hooks.js');
  writeFileSync(hooks, HOOKS);
  return startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `main ${SECRET} all`,
    FANFARE_STATE_MAX_VALUE_BYTES: '65536',
    FANFARE_STATE: `${STATE_ROOM}=10/1h`,
    FANFARE_CLIENT_BROADCAST: 'on',
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_ALLOW: 'publish:*',
    FANFARE_CENTRIFUGO_API_KEY: CENTRIFUGO_KEY,
    FANFARE_HOOKS: hooks,
    FANFARE_PUSHER_APPS: writeApps(owner, [
      entryOf({ shared: true, clientEventData: 'asSent', maxEventBytes: 60_000 }),
    ]),
  });
});

/** Payloads, as they are written. */
const rows = Array.from({ length: 500 }, (_, id) => ({ id, name: `item ${id}`, price: id * 1.5 }));
const ACCEPTED = {
  'a list of 500 rows': JSON.stringify(rows),
  '3,000 different keys': `{${Array.from({ length: 3000 }, (_, i) => `"k${i}":1`)}}`,
  'names of Object.prototype':
    '{"constructor":"Ferrari","prototype":1,"a":[{"__proto__":{"b":1}}]}',
  'an escaped name': '{"__pr\\u006fto__":1}',
  'numbers that JavaScript cannot hold': '[1e400,12345678901234567890,1.10]',
};
const TOO_DEEP = `${'['.repeat(33)}${']'.repeat(33)}`;

/**
 * A way into the room: sends the payload, and returns what the sender is told.
 * @typedef {(server: {port: number}, t: import('node:test').TestContext, json: string) => Promise<unknown>} Way
 */

/** @param {string} command with a place for the payload @param {string} reply @returns {Way} */
function byCommand(command, reply) {
  return async ({ port }, t, json) => {
    const client = await connect(t, port);
    client.send(command.replace('@', () => json));
    const { type, error } = await client.next((one) => [reply, 'error'].includes(one.type));
    return error ?? type;
  };
}

/** @param {string} path @param {string} body @returns {Way} */
function byApi(path, body) {
  return async (server, _t, json) => {
    const { status } = await apiOf(server, SECRET)(path, { body: body.replace('@', () => json) });
    return status;
  };
}

/** @param {string} body @returns {Way} */
function byCentrifugoApi(body) {
  return async ({ port }, _t, json) => {
    const encoded = Buffer.from(json).toString('base64');
    const response = await fetch(`http://127.0.0.1:${port}/centrifugo/api/publish`, {
      method: 'POST',
      headers: { 'X-API-Key': CENTRIFUGO_KEY },
      body: body.replace('@', () => json).replace('#', encoded),
    });
    const { error } = /** @type {any} */ (await response.json());
    return error === undefined ? response.status : 400;
  };
}

/** @type {Way} */
async function byCentrifugoCommand({ port }, t, json) {
  const client = await connectRaw(t, port);
  client.send(`{"id":9,"publish":{"channel":"${ROOM}","data":${json}}}`);
  const isOver = () => client.close !== null || client.all((m) => m.id === 9).length > 0;
  await client.until(isOver, 10_000, 'a reply or a close');
  const [reply] = client.all((m) => m.id === 9);
  return reply?.publish === undefined ? 'refused' : 'publish';
}

/** @type {Way} */
async function byClientEvent(server, t, json) {
  const client = await pusherOf(t, server).connect();
  await client.subscribe(ROOM);
  client.send(`{"event":"client-x","channel":"${ROOM}","data":${json}}`);
  await client.pong();
  return client.all(({ event }) => event === 'pusher:error').length === 0 ? 'sent' : 'refused';
}

/** @type {Way} */
async function byPusherApi(server, t, json) {
  const body = `{"name":"x","channel":"${ROOM}","data":${JSON.stringify(json)}}`;
  return (await pusherOf(t, server).api('/events', body)).status;
}

/** @type {Way} */
async function byCli({ port }, _t, json) {
  const args = ['src/main.js', 'publish', ROOM, json, '--url', `http://127.0.0.1:${port}`];
  const options = { env: { ...process.env, FANFARE_API_KEY: SECRET } };
  return promisify(execFile)(process.execPath, args, options).then(
    () => 'sent',
    (error) => error.stderr,
  );
}

/**
 * What a receiver parses, if it is not the payload itself, and the answer to a payload that is too
 * deep; undefined: the way carries texts, so there is no depth.
 * @type {Record<string, {way: Way, accepted: unknown, refused?: unknown, payloadOf?: (payload: any) => unknown, room?: string}>}
 */
const WAYS = {
  'the command message': {
    way: byCommand(`{"type":"message","room":"${ROOM}","id":1,"payload":@}`, 'ack'),
    accepted: 'ack',
    refused: 'INVALID_MESSAGE_FORMAT',
  },
  'the command message of a room with state': {
    way: byCommand(`{"type":"message","room":"${STATE_ROOM}","key":"a","id":1,"payload":@}`, 'ack'),
    accepted: 'ack',
    refused: 'INVALID_MESSAGE_FORMAT',
    room: STATE_ROOM,
  },
  'the command broadcast': {
    way: byCommand('{"type":"broadcast","id":1,"payload":@}', 'broadcastResult'),
    accepted: 'broadcastResult',
    refused: 'INVALID_MESSAGE_FORMAT',
  },
  'POST /api/publish': {
    way: byApi('/publish', `{"room":"${ROOM}","payload":@}`),
    accepted: 200,
    refused: 400,
  },
  'POST /api/publish/batch': {
    way: byApi('/publish/batch', `{"messages":[{"room":"${ROOM}","payload":@}]}`),
    accepted: 200,
    refused: 400,
  },
  'POST /api/broadcast': { way: byApi('/broadcast', '{"payload":@}'), accepted: 200, refused: 400 },
  "Centrifugo's command publish": {
    way: byCentrifugoCommand,
    accepted: 'publish',
    refused: 'refused',
  },
  "Centrifugo's server API": {
    way: byCentrifugoApi(`{"channel":"${ROOM}","data":@}`),
    accepted: 200,
    refused: 400,
  },
  "Centrifugo's server API, in base64": {
    way: byCentrifugoApi(`{"channel":"${ROOM}","b64data":"#"}`),
    accepted: 200,
    refused: 400,
  },
  "Pusher's client events, as sent": {
    way: byClientEvent,
    accepted: 'sent',
    refused: 'refused',
    payloadOf: ({ data }) => data,
  },
  "Pusher's HTTP API": {
    way: byPusherApi,
    accepted: 200,
    payloadOf: ({ data }) => JSON.parse(data),
  },
  'a payload changed by a hook': {
    way: (server, t, json) =>
      byCommand(`{"type":"message","room":"${ROOM}","id":1,"payload":{"change":@}}`, 'ack')(
        server,
        t,
        JSON.stringify(json),
      ),
    accepted: 'ack',
    refused: 'UNAVAILABLE',
  },
  'fanfare publish': { way: byCli, accepted: 'sent' },
};

/** A hook's payload passes through JavaScript, so numbers change. @param {string} json */
const parsed = (json) => JSON.stringify(JSON.parse(json));

for (const [name, { way, accepted, refused, payloadOf, room = ROOM }] of Object.entries(WAYS))
  test(
    `${name}: payloads may have any keys, and ${refused ? 'are refused if too deep' : 'are texts'}`,
    OPTIONS,
    async (t) => {
      const server = await start();
      const member = await connect(t, server.port);
      await member.join(room);
      for (const [what, json] of Object.entries(ACCEPTED)) {
        assert.equal(await way(server, t, json), accepted, what);
        const { payload } = await member.next((one) => one.payload !== undefined);
        assert.equal(JSON.stringify(payloadOf?.(payload) ?? payload), parsed(json), what);
      }
      if (refused !== undefined) assert.equal(await way(server, t, TOO_DEEP), refused);
    },
  );
