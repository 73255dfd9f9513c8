// raw.js: a server that does almost nothing, which shows how much the measuring client can take.
//
// One process on `node:net`: the handshake with the one key that the client sends, no rooms (all
// are in one), the publications of a tick joined into one Buffer and written once to each member,
// or, with RAW_JOIN=off, one write each. RAW_FAULT=drop, repeat or alter makes it lose, repeat or
// change about one delivery in a hundred, for the test of the client's checks; RAW_FAULT=refuse
// makes it refuse each tenth publication with an error, and =swallow without one; RAW_FAULT=join
// makes it refuse each third join. It speaks the messages of plain-ws.js by looking at their first
// bytes. Not a WebSocket server for anything else.

import { createServer } from 'node:net';

const joins = process.env.RAW_JOIN !== 'off';
const fault = process.env.RAW_FAULT ?? '';
let deliveries = 0;
let publications = 0;
let attempts = 0;
const UPGRADED =
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
  'Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n';
const JOINED = frameOf(Buffer.from('{"type":"joined"}'));
const REFUSED = frameOf(Buffer.from('{"type":"error"}'));

/** @type {Set<import('node:net').Socket>} */
const members = new Set();
/** @type {Buffer[]} */
let waiting = [];

const server = createServer({ noDelay: true }, (socket) => {
  let upgraded = false;
  let echoes = false;
  /** @type {Buffer} */
  let held = Buffer.alloc(0);

  socket.on('data', (chunk) => {
    held = held.length > 0 ? Buffer.concat([held, chunk]) : chunk;
    if (!upgraded) {
      const end = held.indexOf('\r\n\r\n');
      if (end < 0) return;
      echoes = held.toString('latin1', 0, 9) === 'GET /echo';
      held = held.subarray(end + 4);
      upgraded = true;
      socket.write(UPGRADED);
    }
    while (held.length >= 6) {
      let length = held[1] & 127;
      let start = 6;
      if (length === 126) {
        if (held.length < 8) break;
        length = held.readUInt16BE(2);
        start = 8;
      }
      if (held.length < start + length) break;
      const body = Buffer.allocUnsafe(length);
      for (let i = 0; i < length; i++) body[i] = held[start + i] ^ held[start - 4 + (i & 3)];
      const opcode = held[0] & 15;
      held = held.subarray(start + length);
      if (opcode === 8) socket.destroy();
      else if (echoes) socket.write(frameOf(body));
      else if (body[9] === 0x6a) {
        // {"type":"join"…
        if (fault === 'join' && ++attempts % 3 === 0) socket.write(REFUSED);
        else {
          members.add(socket);
          socket.write(JOINED);
        }
      } else if (isRefused()) {
        if (fault === 'refuse') socket.write(REFUSED);
      } else if (joins) {
        if (waiting.push(frameOf(body)) === 1) setImmediate(flush);
      } else {
        const frame = frameOf(body);
        for (const member of members) deliver(member, frame);
      }
    }
  });
  socket.on('error', () => socket.destroy());
  socket.on('close', () => members.delete(socket));
});

function isRefused() {
  return (fault === 'refuse' || fault === 'swallow') && ++publications % 10 === 0;
}

function flush() {
  const joined = Buffer.concat(waiting);
  waiting = [];
  for (const member of members) member.write(joined);
}

/** @param {import('node:net').Socket} member @param {Buffer} frame */
function deliver(member, frame) {
  if (fault !== '' && ++deliveries % 100 === 0) {
    if (fault === 'drop') return;
    if (fault === 'repeat') member.write(frame);
    if (fault === 'alter') {
      // A larger sequence number: the count is right, the sum is not. It is always larger, because
      // changes in both directions may cancel out.
      const other = Buffer.from(frame);
      other[other.indexOf('#T') + 20] ^= 1;
      member.write(other);
      return;
    }
  }
  member.write(frame);
}

/** @param {Buffer} body */
function frameOf(body) {
  const header =
    body.length < 126
      ? Buffer.from([0x81, body.length])
      : Buffer.from([0x81, 126, body.length >> 8, body.length & 255]);
  return Buffer.concat([header, body]);
}

process.on('SIGTERM', () => process.exit(0));
server.listen({ port: Number(process.env.PORT ?? 3000), backlog: 4096 });
