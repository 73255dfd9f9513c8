// ws-client.js: a light WebSocket client on a raw socket, for many thousands a process.
//
// It reads the frames that a server may send without extensions (RFC 6455: unmasked, unfragmented),
// counts them, and passes texts to one callback. All connections share one read buffer: a text is
// decoded before the next read, and only a frame cut in two is kept. What a server must not send
// ends the connection with an error, so that it can't go unseen.

import { connect } from 'node:net';

/** The handshake of the example in RFC 6455 1.3, so that the right answer to it is known. */
const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
const ACCEPT = 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=';
const NO_BYTES = Buffer.alloc(0);
const READ_BYTES = 65_536;
const MAX_HEAD_BYTES = 16_384;
const OPEN_TIMEOUT_MS = 15_000;
const REPLY_TIMEOUT_MS = 10_000;

const OP = { TEXT: 0x1, CLOSE: 0x8, PING: 0x9, PONG: 0xa };

/** @typedef {Record<string, any>} Message a server's JSON text, parsed */

/** The server answered the handshake, but not with 101. */
export class HandshakeError extends Error {
  /** @param {number} status 0: it closed without an answer */
  constructor(status) {
    super(status === 0 ? 'closed during the handshake' : `handshake refused with ${status}`);
    this.status = status;
  }
}

export class WsClient {
  /**
   * @param {string|URL} url ws://host:port/path; parse it once if you open many
   * @param {object} [options]
   * @param {string} [options.localAddress] source address, 127.0.0.2 for one; the kernel chooses
   *   without
   * @param {number} [options.localPort] of that address; the kernel chooses without
   * @param {string} [options.address] where to connect; without, the URL's host is looked up, each
   *   time
   * @param {Record<string, string>} [options.headers] more of the handshake
   * @param {(text: string, client: WsClient) => void} [options.onText] not called for replies that
   *   `request` awaits
   * @param {(client: WsClient) => void} [options.onClose] once, when a connection that was open is
   *   gone
   */
  constructor(url, { localAddress, localPort, address, headers = {}, onText, onClose } = {}) {
    this.url = typeof url === 'string' ? new URL(url) : url;
    this.localAddress = localAddress;
    this.localPort = localPort;
    this.address = address;
    this.headers = headers;
    this.onText = onText;
    this.onClose = onClose;
    this.isOpen = false;
    /** Our close frame is sent. */
    this.isClosing = false;
    /** 0 while open; 1006 if no close frame came. */
    this.closeCode = 0;
    /** When the close frame came, or without one the end; on the clock of performance.now(). */
    this.closedMs = 0;
    /** The turn of the event loop in which that was read: see currentTurn. */
    this.closedTurn = 0;
    /** The reason of its end, if the server or the network ended it. @type {Error|null} */
    this.error = null;
    /** @type {Map<number, (reply: Message) => void>|null} */
    this.pending = null;
    this.lastId = 0;
    this.rest = NO_BYTES;
    /** @type {import('node:net').Socket} */
    // @ts-expect-error: open() makes it, and nothing may be sent before
    this.socket = undefined;
    /** @type {Promise<void>} */
    this.closed = new Promise((resolve) => {
      this.resolveClosed = resolve;
    });
  }

  /**
   * Connects and shakes hands.
   * @param {number} [timeoutMs]
   * @returns {Promise<this>} rejects with a HandshakeError if the server refuses
   */
  open(timeoutMs = OPEN_TIMEOUT_MS) {
    return new Promise((resolve, reject) => {
      const { hostname, port } = this.url;
      const timer = setTimeout(() => {
        const late = new Error(`no handshake within ${timeoutMs} ms`);
        this.socket.destroy(Object.assign(late, { code: 'ETIMEDOUT' }));
      }, timeoutMs);
      /** @param {Error|null} error */
      this.onHandshake = (error) => {
        clearTimeout(timer);
        this.onHandshake = null;
        if (error === null) {
          this.isOpen = true;
          resolve(this);
        } else {
          this.socket.destroy();
          reject(error);
        }
      };
      this.socket = connect({
        host: this.address ?? hostname.replace(/^\[|\]$/g, ''),
        port: Number(port || 80),
        localAddress: this.localAddress,
        localPort: this.localPort,
        onread: {
          buffer: READ_BUFFER,
          callback: (length, buffer) => {
            this.read(/** @type {Buffer} */ (buffer), length);
            return true;
          },
        },
      });
      this.socket.setNoDelay(true);
      this.socket.on('connect', () => this.socket.write(this.#handshake()));
      this.socket.on('error', (error) => {
        this.error = error;
      });
      this.socket.on('close', () => this.#ended());
    });
  }

  /** @param {string} text */
  send(text) {
    this.socket.write(frame(OP.TEXT, Buffer.from(text)));
  }

  /**
   * Several messages in one write: "at once" as a client can do it.
   * @param {readonly string[]} texts
   */
  sendAll(texts) {
    this.socket.write(Buffer.concat(texts.map((text) => frame(OP.TEXT, Buffer.from(text)))));
  }

  /**
   * Sends a command and awaits its reply, or an error reply.
   * @param {Message} command gets an `id`
   * @param {number} [timeoutMs]
   * @returns {Promise<Message>} rejects if the connection ends first or no answer comes
   */
  request(command, timeoutMs = REPLY_TIMEOUT_MS) {
    const id = ++this.lastId;
    this.pending ??= new Map();
    const { pending } = this;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => settle(new Error(`no reply to ${command.type} within ${timeoutMs} ms`)),
        timeoutMs,
      );
      /** @param {Message|Error} reply */
      const settle = (reply) => {
        clearTimeout(timer);
        pending.delete(id);
        if (reply instanceof Error) reject(reply);
        else resolve(reply);
      };
      pending.set(id, settle);
      this.send(JSON.stringify({ ...command, id }));
    });
  }

  /**
   * Begins the closing handshake. The server ends the connection (RFC 6455 7.1.1), so that its end
   * lingers in TIME_WAIT and the port here is free for the next run.
   * @param {number} [code]
   * @returns {Promise<void>} when the connection is gone
   */
  close(code = 1000) {
    if (this.isOpen && !this.isClosing) {
      this.isClosing = true;
      const body = Buffer.alloc(2);
      body.writeUInt16BE(code);
      this.socket.write(frame(OP.CLOSE, body));
    }
    return this.closed;
  }

  /** Ends it without a word. */
  destroy() {
    this.socket.destroy();
  }

  /** Ends it with a reset, so that its port is free at once. */
  reset() {
    this.socket.resetAndDestroy();
  }

  /** Stops reading, as a slow consumer does. */
  pause() {
    this.socket.pause();
  }

  #handshake() {
    const lines = [`GET ${this.url.pathname}${this.url.search} HTTP/1.1`, `Host: ${this.url.host}`];
    lines.push(
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${KEY}`,
    );
    for (const [name, value] of Object.entries(this.headers)) lines.push(`${name}: ${value}`);
    return `${lines.join('\r\n')}\r\n\r\n`;
  }

  /**
   * Bytes have arrived. A subclass may count them.
   * @param {Buffer} buffer the shared one: overwritten by the next read
   * @param {number} length
   */
  read(buffer, length) {
    let data = buffer;
    let end = length;
    if (this.rest.length > 0) {
      data = Buffer.concat([this.rest, buffer.subarray(0, length)]);
      end = data.length;
    }
    let at = 0;
    if (!this.isOpen && this.onHandshake) {
      at = this.#answer(data, end);
      if (at < 0) return;
    }
    at = this.#frames(data, at, end);
    // Copied, because the next read overwrites the buffer.
    this.rest = at === end ? NO_BYTES : Buffer.from(data.subarray(at, end));
  }

  /**
   * Reads the answer to the handshake.
   * @param {Buffer} data
   * @param {number} end
   * @returns {number} its length, or -1 if it is refused or incomplete
   */
  #answer(data, end) {
    const head = data.toString('latin1', 0, end).split('\r\n\r\n', 1)[0];
    if (head.length === end) {
      if (end > MAX_HEAD_BYTES) this.socket.destroy(new Error('a head without end'));
      this.rest = Buffer.from(data.subarray(0, end));
      return -1;
    }
    const status = Number(head.slice(9, 12));
    if (status !== 101) this.onHandshake?.(new HandshakeError(status));
    else if (!head.includes(ACCEPT)) this.onHandshake?.(new Error('a wrong Sec-WebSocket-Accept'));
    else this.onHandshake?.(null);
    return this.isOpen ? head.length + 4 : -1;
  }

  /**
   * @param {Buffer} data
   * @param {number} at
   * @param {number} dataEnd
   * @returns {number} the end of the last whole frame
   */
  #frames(data, at, dataEnd) {
    while (dataEnd - at >= 2) {
      let length = data[at + 1];
      let from = at + 2;
      if (length === 126) {
        if (dataEnd - at < 4) break;
        length = data.readUInt16BE(from);
        from += 2;
      } else if (length === 127) {
        if (dataEnd - at < 10) break;
        length = Number(data.readBigUInt64BE(from));
        from += 8;
      } else if (length > 127) {
        this.socket.destroy(new Error('a masked frame from a server'));
        return dataEnd;
      }
      const end = from + length;
      if (end > dataEnd) break;
      this.#frame(data[at], data, from, end);
      at = end;
    }
    return at;
  }

  /** @param {number} head @param {Buffer} data @param {number} from @param {number} end */
  #frame(head, data, from, end) {
    // Nothing may follow a close frame (RFC 6455 5.5.1).
    if (this.closeCode !== 0) this.error ??= new Error('a frame after the close frame');
    switch (head) {
      case 0x80 | OP.TEXT:
        this.receive(data, from, end);
        break;
      case 0x80 | OP.PING:
        this.socket.write(frame(OP.PONG, data.subarray(from, end)));
        break;
      case 0x80 | OP.PONG:
        break;
      case 0x80 | OP.CLOSE:
        this.closedMs = performance.now();
        this.closedTurn = currentTurn();
        this.closeCode = end - from >= 2 ? data.readUInt16BE(from) : 1005;
        if (!this.isClosing && this.socket.writable)
          this.socket.end(frame(OP.CLOSE, data.subarray(from, Math.min(end, from + 2))));
        break;
      default:
        this.socket.destroy(new Error(`a frame that was not asked for: 0x${head.toString(16)}`));
    }
  }

  /**
   * A text has arrived. A subclass may read it without decoding it.
   * @param {Buffer} data @param {number} from @param {number} end
   */
  receive(data, from, end) {
    const { pending } = this;
    if (pending !== null && pending.size > 0) {
      const text = data.toString('utf8', from, end);
      const reply = text.includes('"id":') ? JSON.parse(text) : undefined;
      const settle = pending.get(reply?.id);
      if (settle) settle(reply);
      else this.onText?.(text, this);
    } else if (this.onText !== undefined) {
      this.onText(data.toString('utf8', from, end), this);
    }
  }

  #ended() {
    const wasOpen = this.isOpen;
    this.isOpen = false;
    if (this.closeCode === 0) {
      this.closeCode = 1006;
      this.closedMs = performance.now();
      this.closedTurn = currentTurn();
    }
    this.onHandshake?.(this.error ?? new HandshakeError(0));
    for (const settle of [...(this.pending?.values() ?? [])])
      settle(/** @type {any} */ (new Error(`closed with ${this.closeCode}`)));
    this.resolveClosed?.();
    if (wasOpen) this.onClose?.(this);
  }

  /** @type {((error: Error|null) => void)|null} */
  onHandshake = null;
}

let turn = 0;
let isTurning = false;

/**
 * Numbers the turns of the event loop. Bytes that are read from two sockets in one turn had arrived
 * when it began, in an unknown order. Bytes that are read in a later turn arrived later.
 */
export function currentTurn() {
  if (!isTurning) {
    isTurning = true;
    setImmediate(() => {
      turn++;
      isTurning = false;
    });
  }
  return turn;
}

/** One for all: its bytes are used or copied before the next read. */
const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BYTES);

/**
 * A masked frame (RFC 6455 5.3). The mask need not be unguessable here, as there is no proxy to
 * protect; it is not zero, so that the server has a real client's work with it.
 * @param {number} opcode @param {Buffer} body
 */
function frame(opcode, body) {
  const { length } = body;
  const headBytes = length < 126 ? 2 : length < 65_536 ? 4 : 10;
  const out = Buffer.allocUnsafe(headBytes + 4 + length);
  out[0] = 0x80 | opcode;
  if (headBytes === 2) {
    out[1] = 0x80 | length;
  } else if (headBytes === 4) {
    out[1] = 0x80 | 126;
    out.writeUInt16BE(length, 2);
  } else {
    out[1] = 0x80 | 127;
    out.writeBigUInt64BE(BigInt(length), 2);
  }
  const from = headBytes + 4;
  out.writeUInt32BE((Math.random() * 0xffff_ffff) >>> 0, headBytes);
  for (let i = 0; i < length; i++) out[from + i] = body[i] ^ out[headBytes + (i & 3)];
  return out;
}

/**
 * Opens many, some at a time.
 * @param {number} count
 * @param {(index: number) => WsClient} make not opened yet
 * @param {number} [concurrency] handshakes under way at once
 * @returns {Promise<WsClient[]>} rejects when the first one fails
 */
export async function openMany(count, make, concurrency = 100) {
  /** @type {WsClient[]} */
  const clients = new Array(count);
  await each(count, concurrency, async (i) => {
    clients[i] = await make(i).open();
  });
  return clients;
}

/**
 * Runs something for 0 … count-1, at most `concurrency` at once.
 * @param {number} count
 * @param {number} concurrency
 * @param {(index: number) => Promise<unknown>} act
 */
export async function each(count, concurrency, act) {
  let next = 0;
  const lane = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, count) }, lane));
}

/**
 * The error of a join that was refused; else nothing.
 * @param {readonly WsClient[]} clients
 * @param {(index: number) => string} roomOf
 * @param {number} [concurrency]
 */
export async function joinAll(clients, roomOf, concurrency = 200) {
  await each(clients.length, concurrency, async (i) => {
    const reply = await clients[i].request({ type: 'join', room: roomOf(i) });
    if (reply.type !== 'joined') throw new Error(`join was answered with ${JSON.stringify(reply)}`);
  });
}

/**
 * Ends all of them, with a close handshake, and waits.
 * @param {readonly WsClient[]} clients @param {number} [withinMs]
 */
export async function closeAll(clients, withinMs = 5000) {
  const timer = setTimeout(() => {
    for (const client of clients) client.destroy();
  }, withinMs);
  await Promise.all(clients.map((client) => client.close()));
  clearTimeout(timer);
}
