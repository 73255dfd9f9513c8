// tcp.js: the model behind a port, in real time: what stands in for redis-server when the contract
// suites and the differential fuzz test the model.
//
//   node test/simulation/redis/tcp.js --port 6379 [--dir FOLDER --appendonly yes]
//
// With --appendonly, SIGTERM leaves the keys in FOLDER, and the next start finds them.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { RedisServer } from './server.js';
import { Session } from './session.js';
import { decodeSnapshot, encodeSnapshot } from './snapshot-file.js';

const { values } = parseArgs({
  args: process.argv.slice(2),
  strict: false,
  options: {
    port: { type: 'string', default: '6379' },
    dir: { type: 'string', default: '.' },
    appendonly: { type: 'string', default: 'no' },
    requirepass: { type: 'string' },
    version: { type: 'boolean' },
  },
});
if (values.version) {
  console.log('Redis server v=7.0.15, a model');
  process.exit(0);
}
const port = Number(values.port);
const file = join(String(values.dir), 'model.json');
const server = new RedisServer(
  { now: Date.now, random: Math.random },
  { address: { host: '127.0.0.1', port } },
);
if (typeof values.requirepass === 'string')
  server.users.get('default')?.apply(`>${values.requirepass}`);
if (values.appendonly === 'yes') {
  if (existsSync(file)) server.restart(decodeSnapshot(readFileSync(file, 'utf8')), false);
  process.on('SIGTERM', () => {
    writeFileSync(file, encodeSnapshot(server.keys.snapshot()));
    process.exit(0);
  });
}

createServer((socket) => {
  socket.setEncoding('latin1');
  socket.setNoDelay(true);
  const session = new Session(server, {
    write: (text) => void socket.write(text, 'latin1'),
    close: () => void socket.end(),
  });
  socket.on('data', (text) => session.receive(String(text)));
  socket.on('error', () => socket.destroy());
  socket.on('close', () => session.end());
}).listen(port, '127.0.0.1');
