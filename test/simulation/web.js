// web.js: HTTP and WebSocket clients, and plain HTTP servers, on simulated sockets.
//
// The wire is no subject of a simulation, so this is the least that programs of both ends need: one
// request for each connection, bodies with a length or up to the end. The public port of a server is
// public-port.js.

import { EventEmitter } from 'node:events';
import { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { StringDecoder } from 'node:string_decoder';
import { SimulatedServer } from './network.js';
import { SimulatedSocket, socketError } from './sockets.js';

const HEAD_END = '\r\n\r\n';
/** @type {Buffer} */
const EMPTY = Buffer.alloc(0);
const MAX_HEAD_BYTES = 65_536;
/** Frames of clients are masked, with a key that changes no byte. */
const MASK_BYTES = 4;
const MASKED = 0x80;

/** @import { SimulatedProcess } from './simulated-process.js' */
/** @typedef {{first: string, headers: Record<string, string>, raw: string[], rest: Buffer}} Head */

/** @param {Buffer} bytes @returns {Head|null} null: not all of it has come */
export function readHead(bytes) {
  const end = bytes.indexOf(HEAD_END);
  if (end === -1) {
    if (bytes.length > MAX_HEAD_BYTES) throw new Error('a head without an end');
    return null;
  }
  const [first, ...lines] = bytes.toString('latin1', 0, end).split('\r\n');
  /** @type {Record<string, string>} */
  const headers = {};
  /** @type {string[]} */
  const raw = [];
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).trim();
    raw.push(name, value);
    const key = name.toLowerCase();
    headers[key] = headers[key] === undefined ? value : `${headers[key]}, ${value}`;
  }
  return { first, headers, raw, rest: bytes.subarray(end + HEAD_END.length) };
}

/**
 * Reads one message of HTTP from a socket.
 * @param {SimulatedSocket} socket
 * @param {(head: Head) => IncomingMessage|null} onHead null: the rest is no message
 */
export function readMessage(socket, onHead) {
  let waiting = EMPTY;
  /** @type {IncomingMessage|null} */
  let message = null;
  /** Bytes of the body that are still to come. */
  let left = Number.POSITIVE_INFINITY;
  let isChunked = false;
  let isHandedOver = false;
  const finish = () => {
    if (message === null || message.complete) return;
    message.complete = true;
    message.push(null);
  };
  const onBody = (/** @type {Buffer} */ bytes) => {
    if (message === null || message.complete) return;
    if (isChunked) {
      waiting = waiting.length === 0 ? bytes : Buffer.concat([waiting, bytes]);
      for (;;) {
        const line = waiting.indexOf('\r\n');
        if (line === -1) return;
        const size = Number.parseInt(waiting.toString('latin1', 0, line), 16);
        if (waiting.length < line + size + 4) return;
        if (size === 0) return finish();
        message.push(waiting.subarray(line + 2, line + 2 + size));
        waiting = waiting.subarray(line + size + 4);
      }
    }
    const part = bytes.length > left ? bytes.subarray(0, left) : bytes;
    left -= part.length;
    if (part.length > 0) message.push(part);
    if (left === 0) finish();
  };
  const onData = (/** @type {Buffer} */ bytes) => {
    if (message !== null) return onBody(bytes);
    waiting = waiting.length === 0 ? bytes : Buffer.concat([waiting, bytes]);
    const head = readHead(waiting);
    if (head === null) return;
    waiting = EMPTY;
    socket.removeListener('data', onData);
    message = onHead(head);
    isHandedOver = message === null;
    if (message === null) return;
    socket.on('data', onData);
    const { 'content-length': length, 'transfer-encoding': encoding } = head.headers;
    isChunked = encoding === 'chunked';
    const isRequest = message.method !== null && message.method !== undefined;
    if (length !== undefined) left = Number(length);
    else if (isRequest && !isChunked) left = 0;
    const { statusCode } = message;
    if (statusCode === 204 || statusCode === 304) left = 0;
    onBody(head.rest);
  };
  socket.on('data', onData);
  socket.on('end', () => {
    if (message !== null && left === Number.POSITIVE_INFINITY && !isChunked) finish();
    // The other side, a process that died, say, will not send the rest.
    if (!isHandedOver && message?.complete !== true) socket.destroy();
  });
  socket.on('close', () => {
    if (message === null || message.complete) return;
    message.aborted = true;
    message.emit('aborted');
    message.destroy(Object.assign(new Error('aborted'), { code: 'ECONNRESET' }));
  });
}

/** @param {SimulatedSocket} socket @param {Head} head */
export function requestFrom(socket, { first, headers, raw }) {
  const request = new IncomingMessage(/** @type {any} */ (socket));
  const [method, url] = first.split(' ');
  Object.assign(request, { method, url, headers, rawHeaders: raw });
  request.httpVersion = '1.1';
  request.httpVersionMajor = 1;
  request.httpVersionMinor = 1;
  return request;
}

/** @param {IncomingMessage} request @param {SimulatedSocket} socket */
export function responseTo(request, socket) {
  const response = new ServerResponse(request);
  response.sendDate = false;
  response.shouldKeepAlive = false;
  response.assignSocket(/** @type {any} */ (socket));
  response.on('finish', () => socket.end());
  return response;
}

/** @param {SimulatedProcess} owner the members of node:http that are replaced */
export function httpModule(owner) {
  const request = (/** @type {any[]} */ ...args) => new ClientRequest(owner, args);
  class Agent extends EventEmitter {
    destroy() {}
  }
  return {
    request,
    get: (/** @type {any[]} */ ...args) => request(...args).end(),
    Agent,
    globalAgent: new Agent(),
    createServer: (/** @type {any} */ options, /** @type {any} */ listener) => {
      const onRequest = typeof options === 'function' ? options : listener;
      const server = new SimulatedServer(owner.machine.network, owner, { allowHalfOpen: true });
      server.on('connection', (/** @type {SimulatedSocket} */ socket) => {
        socket.on('error', () => socket.destroy());
        readMessage(socket, (head) => {
          const received = requestFrom(socket, head);
          onRequest?.(received, responseTo(received, socket));
          return received;
        });
      });
      return server;
    },
  };
}

/** A request, with the interface of http.ClientRequest. */
class ClientRequest extends EventEmitter {
  destroyed = false;
  writableFinished = false;
  writableEnded = false;
  reusedSocket = false;
  aborted = false;
  /** @type {SimulatedSocket|null} */
  socket = null;
  /** @type {IncomingMessage|null} */
  res = null;
  /** @type {Buffer[]} */
  #body = [];
  #isSent = false;
  #target;
  #method;
  /** @type {Record<string, string>} */
  #headers = {};

  /** @param {SimulatedProcess} owner @param {any[]} args as of http.request */
  constructor(owner, args) {
    super();
    this.owner = owner;
    const [first] = args;
    const isUrl = typeof first === 'string' || first instanceof URL;
    const url = isUrl ? new URL(first) : null;
    const options = (isUrl ? args[1] : first) ?? {};
    const onResponse = args.find((one) => typeof one === 'function');
    if (onResponse) this.once('response', onResponse);
    const given = typeof options === 'function' ? {} : options;
    this.#method = given.method ?? 'GET';
    this.#target = {
      host: url?.hostname ?? given.hostname ?? given.host ?? '127.0.0.1',
      port: Number(url?.port || given.port || 80),
      path: given.path ?? `${url?.pathname}${url?.search}`,
    };
    for (const [name, value] of Object.entries(given.headers ?? {}))
      this.#headers[name.toLowerCase()] = String(value);
    const { signal } = given;
    signal?.addEventListener('abort', () =>
      this.destroy(
        Object.assign(new Error('The operation was aborted'), {
          name: 'AbortError',
          code: 'ABORT_ERR',
        }),
      ),
    );
    const go = (/** @type {string} */ address) => this.#connect(address, given.localAddress);
    const { host } = this.#target;
    if (isIP(host) !== 0 || given.lookup === undefined)
      process.nextTick(() => go(owner.machine.fleet.addressOf(host) ?? host));
    else
      given.lookup(
        host,
        { all: true },
        (/** @type {Error|null} */ error, /** @type {any} */ found) => {
          if (error) this.destroy(error);
          else go(Array.isArray(found) ? found[0].address : found);
        },
      );
  }

  /** @param {string} address @param {string|undefined} localAddress */
  #connect(address, localAddress) {
    if (this.destroyed) return;
    const { network } = this.owner.machine;
    const socket = new SimulatedSocket(network, this.owner, { allowHalfOpen: true });
    this.socket = socket;
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.#closed());
    this.emit('socket', socket);
    socket.once('connect', () => this.#flush());
    readMessage(socket, (head) => this.#respond(head));
    network.connect(socket, { host: address, port: this.#target.port, localAddress });
  }

  #closed() {
    if (!this.destroyed && this.res === null) this.destroy(socketError('ECONNRESET'));
    this.destroyed = true;
    this.emit('close');
  }

  /** @param {Head} head */
  #respond(head) {
    const response = new IncomingMessage(/** @type {any} */ (this.socket));
    const [, status, ...words] = head.first.split(' ');
    const members = { headers: head.headers, rawHeaders: head.raw, statusMessage: words.join(' ') };
    Object.assign(response, members);
    response.statusCode = Number(status);
    response.method = /** @type {any} */ (null);
    this.res = response;
    // A reader that stops lets the bytes wait in the socket.
    const { socket } = this;
    const pause = response.pause.bind(response);
    const resume = response.resume.bind(response);
    response.pause = () => {
      socket?.pause();
      return pause();
    };
    response.resume = () => {
      if (socket?.isPaused()) socket.resume();
      return resume();
    };
    response.on('end', () => socket?.destroy());
    if (!this.emit('response', response)) response.resume();
    return response;
  }

  #flush() {
    const { socket } = this;
    if (!this.writableEnded || this.#isSent || socket === null || socket.connecting) return;
    this.#isSent = true;
    const body = Buffer.concat(this.#body);
    const { host, port, path } = this.#target;
    /** @type {Record<string, string>} */
    const headers = { host: `${host}:${port}`, ...this.#headers };
    if (body.length > 0 || this.#method !== 'GET') headers['content-length'] = `${body.length}`;
    let head = `${this.#method} ${path} HTTP/1.1\r\n`;
    for (const [name, value] of Object.entries(headers)) head += `${name}: ${value}\r\n`;
    socket.write(Buffer.concat([Buffer.from(`${head}\r\n`), body]), () => {
      this.writableFinished = true;
      this.emit('finish');
    });
  }

  /** @param {string} name @param {string} value */
  setHeader(name, value) {
    this.#headers[name.toLowerCase()] = String(value);
  }

  setNoDelay() {}

  setTimeout() {
    return this;
  }

  /** @param {string|Buffer} data */
  write(data) {
    this.#body.push(Buffer.from(/** @type {any} */ (data)));
    return true;
  }

  /** @param {string|Buffer} [data] */
  end(data) {
    if (data !== undefined) this.write(data);
    this.writableEnded = true;
    this.#flush();
    return this;
  }

  abort() {
    this.aborted = true;
    return this.destroy();
  }

  /** @param {Error|null} [error] */
  destroy(error = null) {
    if (this.destroyed) return this;
    this.destroyed = true;
    const reason =
      error ?? (this.res === null ? socketError('ECONNRESET', 'socket hang up') : null);
    const { socket } = this;
    process.nextTick(() => {
      if (reason !== null && this.res === null) this.emit('error', reason);
      if (socket === null) this.emit('close');
    });
    if (this.res !== null && !this.res.complete) this.res.destroy(error ?? undefined);
    socket?.destroy();
    return this;
  }
}

/**
 * The global fetch, as far as clients of Fanfare use it.
 * @param {SimulatedProcess} owner @param {string|URL} url @param {any} [options]
 */
export function fetchFrom(owner, url, { method = 'GET', headers = {}, body, signal } = {}) {
  return new Promise((resolve, reject) => {
    const refused = () => reject(signal.reason ?? new Error('aborted'));
    if (signal?.aborted) return refused();
    const plain = headers instanceof Headers ? Object.fromEntries(headers) : headers;
    const request = new ClientRequest(owner, [url, { method, headers: plain, signal }]);
    request.on('error', (error) =>
      signal?.aborted
        ? refused()
        : reject(Object.assign(new TypeError('fetch failed'), { cause: error })),
    );
    request.on('response', (/** @type {IncomingMessage} */ response) =>
      resolve(answerOf(response, request, signal)),
    );
    request.end(body === undefined || body === null ? undefined : body);
  });
}

/** @param {IncomingMessage} response @param {ClientRequest} request @param {AbortSignal} [signal] */
function answerOf(response, request, signal) {
  const status = Number(response.statusCode);
  const chunks = response[Symbol.asyncIterator]();
  signal?.addEventListener('abort', () => response.destroy(signal.reason));
  const text = async () => {
    const parts = [];
    for (let part = await chunks.next(); !part.done; part = await chunks.next())
      parts.push(part.value);
    return Buffer.concat(parts).toString();
  };
  const body = {
    getReader: () => ({
      read: () => chunks.next(),
      cancel: async () => void request.destroy(),
      releaseLock() {},
    }),
    cancel: async () => void request.destroy(),
    [Symbol.asyncIterator]: () => chunks,
    // The only transform that clients use is TextDecoderStream.
    pipeThrough: () => {
      const decoder = new StringDecoder('utf8');
      return {
        getReader: () => ({
          async read() {
            const { done, value } = await chunks.next();
            return { done, value: done ? undefined : decoder.write(value) };
          },
          cancel: async () => void request.destroy(),
          releaseLock() {},
        }),
      };
    },
  };
  return {
    status,
    ok: status >= 200 && status < 300,
    headers: new Headers(/** @type {any} */ (response.headers)),
    body,
    text,
    json: async () => JSON.parse(await text()),
    arrayBuffer: async () => Buffer.from(await text()),
  };
}

/** @param {SimulatedProcess} owner @returns {any} the members of the package ws */
export function wsModule(owner) {
  return { WebSocket: webSocketOf(owner), default: webSocketOf(owner) };
}

/** @param {SimulatedProcess} owner a class with the interface of WebSocket in ws */
export function webSocketOf(owner) {
  return class WebSocket extends SimulatedWebSocket {
    /** @param {string|URL} url @param {any} [protocols] @param {any} [options] */
    constructor(url, protocols, options) {
      super(owner, url, protocols, options);
    }
  };
}

class SimulatedWebSocket extends EventEmitter {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSING = 2;
  static CLOSED = 3;
  CONNECTING = 0;
  OPEN = 1;
  CLOSING = 2;
  CLOSED = 3;
  readyState = 0;
  protocol = '';
  extensions = '';
  binaryType = 'nodebuffer';
  /** @type {any} */
  onopen = null;
  /** @type {any} */
  onmessage = null;
  /** @type {any} */
  onclose = null;
  /** @type {any} */
  onerror = null;
  /** @type {Buffer} */
  #rest = EMPTY;
  #code = 1006;
  /** @type {Buffer} */
  #reason = EMPTY;
  #isClosed = false;
  /** @type {Map<string, Map<any, any>>} */
  #listeners = new Map();

  /** @param {SimulatedProcess} owner @param {string|URL} url @param {any} protocols @param {any} options */
  constructor(owner, url, protocols, options = {}) {
    super();
    const isOptions =
      typeof protocols === 'object' && protocols !== null && !Array.isArray(protocols);
    const given = isOptions ? protocols : options;
    const offered = isOptions || protocols === undefined ? [] : [protocols].flat();
    const target = new URL(url);
    this.url = String(url);
    const { network, fleet } = owner.machine;
    this.socket = new SimulatedSocket(network, owner, { allowHalfOpen: true });
    const { socket } = this;
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#closed());
    socket.on('end', () => socket.end());
    socket.once('connect', () => {
      let head = `GET ${target.pathname}${target.search} HTTP/1.1\r\nhost: ${target.host}\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n`;
      if (offered.length > 0) head += `sec-websocket-protocol: ${offered.join(', ')}\r\n`;
      const headers = { ...given.headers, ...(given.origin && { origin: given.origin }) };
      for (const [name, value] of Object.entries(headers)) head += `${name}: ${value}\r\n`;
      socket.write(`${head}\r\n`);
    });
    readMessage(socket, (head) => this.#answered(head));
    const host = fleet.addressOf(target.hostname) ?? target.hostname;
    network.connect(socket, {
      host,
      port: Number(target.port || 80),
      localAddress: given.localAddress,
    });
    if (given.handshakeTimeout)
      setTimeout(() => {
        if (this.readyState !== 0) return;
        this.#fail(new Error('Opening handshake has timed out'));
        socket.destroy();
      }, given.handshakeTimeout);
  }

  get isPaused() {
    return this.socket.isPaused();
  }

  get bufferedAmount() {
    return this.socket.writableLength;
  }

  /** @param {Head} head */
  #answered(head) {
    const { socket } = this;
    const status = Number(head.first.split(' ')[1]);
    if (status !== 101) return this.#refused(head, status);
    this.protocol = head.headers['sec-websocket-protocol'] ?? '';
    this.readyState = 1;
    socket.on('data', (bytes) => this.#read(bytes));
    this.#tell('open', {});
    if (head.rest.length > 0) this.#read(head.rest);
    return null;
  }

  /** @param {Head} head @param {number} status */
  #refused(head, status) {
    const { socket } = this;
    const response = new IncomingMessage(/** @type {any} */ (socket));
    Object.assign(response, { statusCode: status, headers: head.headers });
    response.method = /** @type {any} */ (null);
    const request = { destroy: () => socket.destroy(), abort: () => socket.destroy() };
    if (!this.emit('unexpected-response', request, response)) {
      this.#fail(new Error(`Unexpected server response: ${status}`));
      socket.destroy();
    }
    response.resume();
    return response;
  }

  /** @param {Buffer} bytes */
  #read(bytes) {
    let all = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    while (all.length >= 2 && !this.#isClosed) {
      let at = 2;
      let length = all[1] & 0x7f;
      if (length === 126) {
        if (all.length < 4) break;
        length = all.readUInt16BE(2);
        at = 4;
      } else if (length === 127) {
        if (all.length < 10) break;
        length = Number(all.readBigUInt64BE(2));
        at = 10;
      }
      if (all.length < at + length) break;
      const body = all.subarray(at, at + length);
      const opcode = all[0] & 0x0f;
      all = all.subarray(at + length);
      this.#frame(opcode, body);
    }
    this.#rest = all;
  }

  /** @param {number} opcode @param {Buffer} body */
  #frame(opcode, body) {
    if (opcode === 1 || opcode === 2) {
      const isBinary = opcode === 2;
      const data =
        this.binaryType === 'arraybuffer' && isBinary ? new Uint8Array(body).buffer : body;
      this.emit('message', data, isBinary);
      this.#call('message', { data: isBinary ? data : body.toString() });
    } else if (opcode === 9) {
      this.emit('ping', body);
      this.#send(0x8a, body);
    } else if (opcode === 10) this.emit('pong', body);
    else if (opcode === 8) {
      this.#code = body.length >= 2 ? body.readUInt16BE(0) : 1005;
      this.#reason = body.subarray(2);
      if (this.readyState < 2) this.#send(0x88, body);
      this.readyState = 2;
      this.socket.end();
    }
  }

  /** @param {number} first @param {Buffer} body */
  #send(first, body) {
    const { length } = body;
    const extra = length < 126 ? 0 : length < 65_536 ? 2 : 8;
    const frame = Buffer.alloc(2 + extra + MASK_BYTES + length);
    frame[0] = first;
    frame[1] = MASKED | (extra === 0 ? length : extra === 2 ? 126 : 127);
    if (extra === 2) frame.writeUInt16BE(length, 2);
    if (extra === 8) frame.writeBigUInt64BE(BigInt(length), 2);
    body.copy(frame, 2 + extra + MASK_BYTES);
    if (this.socket.writable) this.socket.write(frame);
  }

  /** @param {any} data @param {any} [options] @param {any} [done] */
  send(data, options, done) {
    const sent = typeof options === 'function' ? options : done;
    if (this.readyState === 0) throw new Error('WebSocket is not open: readyState 0 (CONNECTING)');
    if (this.readyState !== 1) {
      if (sent) process.nextTick(sent, new Error('WebSocket is not open'));
      return;
    }
    const isText = typeof data === 'string';
    const body = isText
      ? Buffer.from(data)
      : Buffer.from(data.buffer ?? data, data.byteOffset, data.byteLength);
    this.#send(isText || options?.binary === false ? 0x81 : 0x82, body);
    if (sent) process.nextTick(sent);
  }

  /** @param {any} [body] */
  ping(body = EMPTY) {
    this.#send(0x89, Buffer.from(body));
  }

  /** @param {number} [code] @param {string|Buffer} [reason] */
  close(code, reason = '') {
    if (this.readyState === 3) return;
    if (this.readyState === 0) {
      this.#fail(new Error('WebSocket was closed before the connection was established'));
      this.socket.destroy();
      return;
    }
    if (this.readyState === 2) return;
    this.readyState = 2;
    const text = Buffer.from(reason);
    const body =
      code === undefined ? EMPTY : Buffer.concat([Buffer.of(code >> 8, code & 0xff), text]);
    this.#send(0x88, body);
  }

  terminate() {
    if (this.readyState === 3) return;
    if (this.readyState === 0)
      this.#fail(new Error('WebSocket was closed before the connection was established'));
    this.readyState = 2;
    this.socket.destroy();
  }

  pause() {
    this.socket.pause();
  }

  resume() {
    this.socket.resume();
  }

  /** @param {Error} error */
  #fail(error) {
    if (this.#isClosed) return;
    process.nextTick(() => {
      if (this.listenerCount('error') > 0) this.emit('error', error);
      this.#call('error', { error, message: error.message });
    });
  }

  #closed() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    process.nextTick(() => {
      this.readyState = 3;
      this.emit('close', this.#code, this.#reason);
      this.#call('close', {
        code: this.#code,
        reason: this.#reason.toString(),
        wasClean: this.#code !== 1006,
      });
    });
  }

  /** @param {string} type @param {object} event */
  #tell(type, event) {
    this.emit(type);
    this.#call(type, event);
  }

  /** @param {string} type @param {object} event */
  #call(type, event) {
    const full = { type, target: this, ...event };
    /** @type {any} */ (this)[`on${type}`]?.call(this, full);
    for (const listener of this.#listeners.get(type)?.keys() ?? []) listener.call(this, full);
  }

  /** @param {string} type @param {any} listener */
  addEventListener(type, listener) {
    if (!this.#listeners.has(type)) this.#listeners.set(type, new Map());
    this.#listeners.get(type)?.set(listener, listener);
  }

  /** @param {string} type @param {any} listener */
  removeEventListener(type, listener) {
    this.#listeners.get(type)?.delete(listener);
  }
}
