// flooder.js: a process that floods, at the lowest priority: in the world attackers have machines
// of their own.
//
// It keeps `connections` sockets for each of its addresses. A socket that the server closes comes
// back after RECONNECT_MS, as an attacker's would. All that it learned goes to its parent at the
// end: how often, how much, and how it was closed.

import { connect } from 'node:net';
import { setPriority } from 'node:os';
import { closeCode, FrameParser, OPCODES } from '../../helpers/raw-frames.js';
import { handshake } from '../../helpers/raw-http.js';
import { KINDS } from './kinds.js';

const PRIORITY = 19;
const RECONNECT_MS = 100;
/** Connections of a process begun in one turn of STEP_MS. */
const STEP_MS = 10;
const BEGUN_PER_STEP = 20;
/** A half-open handshake sends a byte each second, or nothing. */
const DRIP_MS = 1000;
const HALF_HANDSHAKE = handshake().slice(0, -4);
const PLAIN_REQUEST = 'GET /livez HTTP/1.1\r\nHost: fanfare.test\r\n\r\n';
const HEAD_END = '\r\n\r\n';

/** @typedef {{kind: string, port: number, addresses: string[], connections: number}} Order */
/**
 * @typedef {{connects: number, opened: number, bytes: number, ends: Record<string, number>}}
 *   FastHistogram
 */

/** @type {FastHistogram} */
const tally = { connects: 0, opened: 0, bytes: 0, ends: {} };
let isOver = false;
/** Slots whose turn it is to connect, first in, first out. @type {Slot[]} */
const line = [];

/** @type {Slot[]} */
const slots = [];

/** A connection, and those that come after it. */
class Slot {
  /** @type {import('node:net').Socket|null} */
  socket = null;
  /** @type {NodeJS.Timeout|undefined} */
  dripping;
  /** The close code, if one came. */
  end = '';

  /**
   * @param {Order} order
   * @param {string} address
   * @param {number} number
   * @param {readonly Buffer[]} blocks
   */
  constructor(order, address, number, blocks) {
    this.port = order.port;
    this.kind = KINDS[order.kind];
    this.address = address;
    this.number = number;
    this.blocks = blocks;
    this.block = number;
    this.request = this.kind.request ?? PLAIN_REQUEST;
    this.handshake = handshake({ target: this.kind.path });
  }

  connect() {
    tally.connects++;
    this.end = '';
    const socket = connect({ port: this.port, host: '127.0.0.1', localAddress: this.address });
    this.socket = socket;
    let head = '';
    const parser = new FrameParser(({ opcode, body }) => {
      if (opcode === OPCODES.close) this.end = String(closeCode(body));
    });
    let isOpen = false;
    socket.on('connect', () => this.#speak(socket));
    socket.on('data', (bytes) => {
      if (this.kind.http === 'keep-alive') {
        this.end = `HTTP ${bytes.toString('latin1', 9, 12)}`;
        tally.opened++;
        socket.write(this.request);
        return;
      }
      if (isOpen) return parser.push(bytes);
      head += bytes.toString('latin1');
      if (!head.includes(HEAD_END)) return;
      const status = head.slice(9, 12);
      if (status !== '101') {
        this.end = `HTTP ${status}`;
        return;
      }
      isOpen = true;
      tally.opened++;
      if (this.kind.http === 'connects') {
        this.end = 'own';
        socket.resetAndDestroy();
      } else this.#flood(socket);
    });
    socket.on('error', (error) => {
      this.end ||= /** @type {NodeJS.ErrnoException} */ (error).code ?? 'error';
    });
    socket.on('close', () => {
      clearInterval(this.dripping);
      tally.bytes += socket.bytesWritten;
      if (isOver) return;
      /** @type {string} */
      const end = this.end || 'closed';
      tally.ends[end] = (tally.ends[end] ?? 0) + 1;
      if (end === 'own') line.push(this);
      else setTimeout(() => line.push(this), RECONNECT_MS);
    });
  }

  /** @param {import('node:net').Socket} socket */
  #speak(socket) {
    if (this.kind.http === 'keep-alive') socket.write(this.request);
    else if (this.kind.http !== 'half-open') socket.write(this.handshake);
    else if (this.kind.request !== undefined) {
      socket.write(this.request);
      this.dripping = setInterval(() => socket.write('x'), DRIP_MS);
    } else if (this.number % 2 === 0) {
      socket.write(`${HALF_HANDSHAKE}\r\nX-Slow: `);
      this.dripping = setInterval(() => socket.write('x'), DRIP_MS);
    }
  }

  /** @param {import('node:net').Socket} socket */
  #flood(socket) {
    if (this.kind.isDeaf) socket.pause();
    if (this.kind.once) socket.write(this.kind.once(this.address));
    const pump = () => {
      // Once a turn is enough: the socket asks again as soon as the kernel has taken this.
      if (!socket.destroyed) socket.write(this.blocks[this.block++ % this.blocks.length]);
    };
    socket.on('drain', pump);
    pump();
    if (socket.writableNeedDrain) return;
    pump();
  }
}

setPriority(PRIORITY);
process.on('message', (/** @type {Order|'stop'} */ order) => {
  if (order === 'stop') return stop();
  const blocks = KINDS[order.kind].blocks?.() ?? [];
  // Address by address in turn, so that all of them are there from the start.
  for (let i = 0; i < order.connections; i++) {
    for (const address of order.addresses) slots.push(new Slot(order, address, i, blocks));
  }
  line.push(...slots);
  setInterval(() => {
    for (const slot of line.splice(0, BEGUN_PER_STEP)) slot.connect();
  }, STEP_MS);
});
process.on('disconnect', () => process.exit(0));

function stop() {
  isOver = true;
  for (const { socket } of slots) {
    if (socket === null || socket.destroyed) continue;
    tally.bytes += socket.bytesWritten;
    socket.resetAndDestroy();
  }
  process.send?.(tally, () => process.exit(0));
}
