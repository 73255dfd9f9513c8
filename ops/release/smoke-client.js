// smoke-client.js: uses the installed packages against a running server. smoke.js copies it into
// the folder where they are installed, so their types are not known here.

// @ts-nocheck

import assert from 'node:assert/strict';
import { read, stream } from 'fanfare-ai';
import { Fanfare } from 'fanfare-client/node';
import { createServer } from 'fanfare-server';

const { SERVER_URL, API_KEY, TOKEN } = process.env;
const server = createServer({ url: String(SERVER_URL), apiKey: String(API_KEY) });
const fanfare = new Fanfare(String(SERVER_URL), { token: TOKEN });

const room = fanfare.join('chat.1');
const received = new Promise((resolve, reject) => {
  room.on('message', resolve);
  room.on('error', reject);
});
await new Promise((resolve) => room.on('joined', resolve));
await server.publish('chat.1', { text: 'hello' });
assert.deepEqual(await received, { text: 'hello' });
console.log('fanfare-server published, fanfare-client received');

const { messages } = await server.history('chat.1', { limit: 10 });
assert.equal(messages.length, 1);

const run = await stream(server, 'run.1');
for (const word of ['one ', 'two ', 'three']) await run.write(word);
await run.end();
let text = '';
for await (const chunk of read(fanfare, 'run.1')) text += chunk;
assert.equal(text, 'one two three');
console.log('fanfare-ai wrote a run and read it');
fanfare.close();
