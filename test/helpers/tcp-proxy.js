// tcp-proxy.js: a wire between a server and its Redis or bucket that can be slow, narrow, in slices or
// silent.
//
// Late bytes keep their order, and bytes are never changed or lost, as in TCP. A silent wire takes
// and gives no bytes and closes no connection, like a firewall that has begun to drop packets.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** Bytes in flight in one direction, above which the sender has to wait. */
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
  /**
   * @param {TcpProxy} proxy
   * @param {import('node:net').Socket} from
   * @param {import('node:net').Socket} to
   */
  constructor(proxy, from, to) {
    this.proxy = proxy;
    this.from = from;
    this.to = to;
    this.pendingBytes = 0;
    /**
     * The next pieces, in order. With a timer for each, one could overtake another.
     * @type {{dueMs: number, act: () => void}[]}
     */
    this.coming = [];
    /** When the latest of them is due. */
    this.lastDueMs = 0;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    from.on('data', (data) => this.#take(data));
    from.on('end', () => this.#later(0, () => to.end()));
    from.on('close', () => to.destroy());
    to.on('drain', () => this.#throttle());
    // `close` follows. A reset stays a reset.
    from.on('error', (error) => {
      if ('code' in error && error.code === 'ECONNRESET') to.resetAndDestroy();
    });
  }

  /** @param {Buffer} data */
  #take(data) {
    const {
      latencyMs = 0,
      jitterMs = 0,
      bytesPerSecond = Number.POSITIVE_INFINITY,
      sliceBytes,
    } = this.proxy.weather;
    const step = sliceBytes ?? data.length;
    for (let at = 0; at < data.length; at += step) {
      const piece = data.subarray(at, at + step);
      const wobbleMs = jitterMs * (2 * Math.random() - 1);
      this.pendingBytes += piece.length;
      this.#later(
        latencyMs + wobbleMs,
        () => this.#give(piece),
        (1000 * piece.length) / bytesPerSecond,
      );
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

  /**
   * In order: not before an earlier piece.
   * @param {number} ms
   * @param {() => void} act
   * @param {number} [takesMs] on the wire
   */
  #later(ms, act, takesMs = 0) {
    this.lastDueMs = Math.max(performance.now() + ms, this.lastDueMs) + takesMs;
    this.coming.push({ dueMs: this.lastDueMs, act });
    if (this.timer === undefined) this.#turn();
  }

  #turn() {
    this.timer = undefined;
    const now = performance.now();
    let due = 0;
    while (due < this.coming.length && this.coming[due].dueMs <= now) this.coming[due++].act();
    this.coming.splice(0, due);
    if (this.coming.length > 0) {
      this.timer = setTimeout(() => this.#turn(), Math.max(1, this.coming[0].dueMs - now)).unref();
    }
  }
}

export class TcpProxy {
  /**
   * @param {number} target a port of 127.0.0.1; another one holds for connections made from then on
   * @param {readonly string[]} hosts addresses of this machine to listen at, all with the same port
   */
  constructor(target, hosts = ['127.0.0.1']) {
    this.target = target;
    this.hosts = hosts;
    this.port = 0;
    /** @type {Weather} */
    this.weather = {};
    /** @type {Set<Direction>} */
    this.directions = new Set();
    this.servers = hosts.map(() =>
      createServer({ allowHalfOpen: true }, (client) => this.#accept(client)),
    );
  }

  async start() {
    for (const [i, server] of this.servers.entries()) {
      server.listen(this.port, this.hosts[i]);
      await once(server, 'listening');
      this.port = /** @type {import('node:net').AddressInfo} */ (server.address()).port;
    }
  }

  get url() {
    return `redis://${this.hosts[0]}:${this.port}`;
  }

  /** @param {Weather} weather from now on; {}: fine */
  change(weather) {
    this.weather = weather;
    for (const direction of this.directions) direction.changed();
  }

  /** Ends all connections there are; new ones are accepted. */
  cut() {
    for (const { from } of this.directions) from.destroy();
  }

  close() {
    this.cut();
    for (const server of this.servers) server.close();
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

/**
 * @param {{after: (fn: () => unknown) => void}} t ends it
 * @param {number} target a port of 127.0.0.1
 * @param {readonly string[]} [hosts]
 */
export async function startTcpProxy(t, target, hosts) {
  const proxy = new TcpProxy(target, hosts);
  t.after(() => proxy.close());
  await proxy.start();
  return proxy;
}
