// tcp-proxy.js: a wire between a server and its Redis that can be slow, narrow, in slices or silent.
//
// What comes late comes in its order, and what comes is never changed or lost: this is TCP. A silent wire takes nothing and
// gives nothing, and nobody is told: like a firewall that has begun to drop packets.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** What may be on its way in one direction before the sender has to wait. */
const MAX_PENDING_BYTES = 1_048_576;

/**
 * @typedef {object} Weather
 * @property {number} [latencyMs] of every piece
 * @property {number} [jitterMs] more or less
 * @property {number} [bytesPerSecond] of one connection in one direction
 * @property {number} [sliceBytes] pieces are no longer than this
 * @property {boolean} [isSilent]
 */

/** One direction of one connection. */
class Direction {
  /** @param {TcpProxy} proxy @param {import('node:net').Socket} from @param {import('node:net').Socket} to */
  constructor(proxy, from, to) {
    this.proxy = proxy;
    this.from = from;
    this.to = to;
    this.pendingBytes = 0;
    /** When the piece before this one is due. */
    this.lastDueMs = 0;
    from.on('data', (data) => this.#take(data));
    from.on('end', () => this.#later(0, () => to.end()));
    from.on('close', () => to.destroy());
    // `close` follows.
    from.on('error', () => {});
  }

  /** @param {Buffer} data */
  #take(data) {
    const { latencyMs = 0, jitterMs = 0, bytesPerSecond = Number.POSITIVE_INFINITY, sliceBytes } = this.proxy.weather;
    const step = sliceBytes ?? data.length;
    for (let at = 0; at < data.length; at += step) {
      const piece = data.subarray(at, at + step);
      const wobbleMs = jitterMs * (2 * Math.random() - 1);
      this.pendingBytes += piece.length;
      this.#later(latencyMs + wobbleMs, () => this.#give(piece), (1000 * piece.length) / bytesPerSecond);
    }
    this.#throttle();
  }

  /** @param {Buffer} piece */
  #give(piece) {
    this.pendingBytes -= piece.length;
    if (!this.to.destroyed) this.to.write(piece);
    this.#throttle();
  }

  #throttle() {
    const isFull = this.pendingBytes + this.to.writableLength > MAX_PENDING_BYTES;
    if (isFull || this.proxy.weather.isSilent) this.from.pause();
    else this.from.resume();
  }

  /** The weather has changed. */
  changed() {
    this.#throttle();
  }

  /** In order: not before what is due before it. @param {number} ms @param {() => void} act @param {number} [takesMs] on the wire */
  #later(ms, act, takesMs = 0) {
    const now = performance.now();
    const dueMs = Math.max(now + ms, this.lastDueMs) + takesMs;
    if (dueMs <= now && this.pendingBytes === 0) return act();
    this.lastDueMs = dueMs;
    if (dueMs <= now) act();
    else setTimeout(act, dueMs - now).unref();
  }
}

export class TcpProxy {
  /** @param {number} target a port of 127.0.0.1; another one holds for connections made from then on */
  constructor(target) {
    this.target = target;
    this.port = 0;
    /** @type {Weather} */
    this.weather = {};
    /** @type {Set<Direction>} */
    this.directions = new Set();
    this.server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  }

  async start() {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    this.port = /** @type {import('node:net').AddressInfo} */ (this.server.address()).port;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** @param {Weather} weather from now on; {}: fine */
  change(weather) {
    this.weather = weather;
    for (const direction of this.directions) direction.changed();
  }

  close() {
    for (const { from } of this.directions) from.destroy();
    this.server.close();
  }

  /** @param {import('node:net').Socket} client */
  #accept(client) {
    const server = connect({ port: this.target, host: '127.0.0.1', allowHalfOpen: true });
    const pair = [new Direction(this, client, server), new Direction(this, server, client)];
    for (const direction of pair) {
      this.directions.add(direction);
      direction.changed();
      direction.from.setNoDelay(true);
      direction.from.on('close', () => this.directions.delete(direction));
    }
  }
}

/** @param {{after: (fn: () => unknown) => void}} t ends it @param {number} target a port of 127.0.0.1 */
export async function startTcpProxy(t, target) {
  const proxy = new TcpProxy(target);
  t.after(() => proxy.close());
  await proxy.start();
  return proxy;
}
