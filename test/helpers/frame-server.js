// frame-server.js: the WebSocket transport over real sockets, with a hub that only records its
// calls; and frames for it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { setImmediate as turn } from 'node:timers/promises';
import { RateLimiter } from '../../src/admission/rate-limit.js';
import { loadConfig } from '../../src/config/config.js';
import { createNativeDoor } from '../../src/doors/native/native-door.js';
import { createCounters } from '../../src/observability/counters.js';
import { leaveToWs } from '../../src/transport/accepted-socket.js';
import { WebSockets } from '../../src/transport/websocket.js';
import { Turn } from '../../src/worker/turn.js';
import { accepted } from './accepted.js';
import { handshake, RawClient } from './raw-http.js';

export const MAX_MESSAGE_BYTES = 40_000;

/**
 * @typedef {{first: number, body: Buffer, mask: number, isMasked?: boolean, long?: boolean}} Frame
 */

/** A server's end of it: it records and answers messages, and closes if a message asks for it. */
export class FrameServer {
  /** @type {string[]} its calls, in order */
  told = [];
  /** Messages that the reader handled. */
  direct = 0;
  /** @type {import('node:net').Socket|undefined} the last one */
  socket;

  counters = createCounters();
  /** The server's ends of all connections so far. @type {any[]} */
  opened = [];
  /** The clock of the rate of frames. */
  nowMs = 0;
  /** Is called for each message, too. @type {(text: string) => void} */
  onText = () => {};

  /** @param {boolean} hasReader @param {Record<string, string>} [env] */
  constructor(hasReader, env = { FANFARE_LIMITS: 'off' }) {
    const { config } = loadConfig({ FANFARE_MAX_MESSAGE_BYTES: String(MAX_MESSAGE_BYTES), ...env });
    assert.ok(config);
    const limiter = new RateLimiter(config, this.counters);
    const hub = /** @type {any} */ ({
      addConnection: (/** @type {any} */ connection) => this.opened.push(connection.transport),
      removeConnection: () => this.told.push('removed'),
      slowConsumers: { queue: () => true },
    });
    const door = createNativeDoor({
      identities: { enterSession: hub.addConnection, leave: hub.removeConnection },
      receive: (/** @type {any} */ connection, /** @type {Buffer} */ data) => {
        const text = data.toString();
        this.told.push(`text ${text}`);
        this.onText(text);
        if (text === 'close') connection.close({ code: 4000, reason: 'asked' });
        else if (text === 'terminate') connection.transport.terminate();
        else connection.send(`got ${data.length}`);
      },
    });
    const websockets = (this.websockets = new WebSockets({
      config,
      hub,
      door,
      heartbeat: /** @type {any} */ ({ watchConnection() {}, unwatchConnection() {} }),
      admitFrame:
        config.framesPerMinuteMode === 'off'
          ? null
          : (allowance) => limiter.admitFrame(allowance, this.nowMs),
      counters: this.counters,
      turn: new Turn(),
    }));
    if (!hasReader) {
      // ws reads the socket itself.
      websockets.reader.attach = () => {};
      websockets.upgrade = (request, socket, head, address) => {
        leaveToWs(socket);
        websockets.address = address;
        websockets.socket = socket;
        websockets.server.handleUpgrade(request, socket, head, websockets.websocketOnUpgrade);
      };
    } else {
      const { onText } = websockets.reader;
      websockets.reader.onText = (websocket, text) => {
        this.direct++;
        onText(websocket, text);
      };
    }
    this.server = http.createServer();
    this.server.on('upgrade', (request, socket, head) => {
      this.socket = /** @type {import('node:net').Socket} */ (socket);
      websockets.upgrade(request, accepted(this.socket), head, '127.0.0.1');
    });
  }

  async start() {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return this;
  }

  /** From now on every walk over a read is over after two frames, and so is every turn. */
  endTurnsEarly() {
    const { reader } = this.websockets;
    let nowMs = 0;
    reader.turn.clock = () => {
      nowMs += 10;
      return nowMs;
    };
    reader.unitsPerClock = 1;
  }

  get port() {
    return /** @type {import('node:net').AddressInfo} */ (this.server.address()).port;
  }

  /**
   * Sends chunks, each read by the server before the next is sent, then hangs up.
   * @param {readonly Buffer[]} chunks
   * @param {Buffer} head sent with the handshake
   * @returns {Promise<{told: string[], bytes: string}>}
   */
  async converse(chunks, head = Buffer.alloc(0)) {
    this.told = [];
    const tasks = /** @type {(() => unknown)[]} */ ([]);
    const client = await RawClient.connect(
      /** @type {any} */ ({ after: (/** @type {() => unknown} */ task) => tasks.push(task) }),
      {
        port: this.port,
      },
    );
    try {
      const request = Buffer.from(handshake());
      client.write(Buffer.concat([request, head]));
      while (client.bytes.indexOf('\r\n\r\n') < 0) await turn();
      const socket = /** @type {import('node:net').Socket} */ (this.socket);
      let sent = request.length + head.length;
      for (const chunk of chunks) {
        client.write(chunk);
        sent += chunk.length;
        while (socket.bytesRead < sent && !socket.destroyed && !client.isClosed) await turn();
        await turn(); // ws's errors come a turn later
      }
      client.socket.end();
      while (!client.isClosed || !this.told.includes('removed')) await turn();
      return {
        told: this.told,
        bytes: client.bytes.toString('latin1').slice(client.bytes.indexOf('\r\n\r\n') + 4),
      };
    } finally {
      for (const task of tasks) task();
    }
  }
}

/** @param {Frame} frame @returns {Buffer} */
export function frameBytes({ first, body, mask, isMasked = true, long = false }) {
  const { length } = body;
  const header =
    length < 126 && !long
      ? Buffer.from([first, length])
      : length < 65_536
        ? Buffer.from([first, 126, length >> 8, length & 0xff])
        : Buffer.concat([Buffer.from([first, 127, 0, 0, 0, 0]), uint32(length)]);
  if (!isMasked) return Buffer.concat([header, body]);
  header[1] |= 0x80;
  const key = uint32(mask);
  return Buffer.concat([header, key, body.map((byte, i) => byte ^ key[i & 3])]);
}

/** @param {number} n */
function uint32(n) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(n >>> 0);
  return bytes;
}
