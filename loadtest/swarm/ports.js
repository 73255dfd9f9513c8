// ports.js: chooses the source port of each connection, for each source address and target.
//
// Left to the kernel, a bound source address is slow and wasteful. libuv binds it with SO_REUSEADDR
// and port 0, before the target is known. Linux then gives each port once, however many targets
// there are, and searches the lower half of the range before the upper: once that half is in use,
// every bind looks at all of it. From one address with 28,232 ports, 3,000 connections a second
// became 150 when 23,000 were open, all of it the kernel's time on the client. A port named to bind
// is taken as it is, and serves a connection to each target.
//
// Ports come from net.ipv4.ip_local_port_range although any could be named: the others belong to
// other programs.

/** @typedef {{low: number, high: number}} PortRange both included */

/**
 * @param {PortRange} range
 * @param {readonly (readonly [number, number])[]} reserved ranges, both ends included
 * @returns {number[]}
 */
export function usablePorts({ low, high }, reserved) {
  const all = Array.from({ length: high - low + 1 }, (_, i) => low + i);
  return all.filter((port) => !reserved.some(([from, to]) => port >= from && port <= to));
}

/**
 * @typedef
 *   {{target: {url: URL, address: string}, source: string|undefined, next: number, free: number[]}}
 *   Way `next`: how many ports have been used at all
 */

/** The ways of one process; each of them may use each of its ports. */
export class Ways {
  #ways;
  #ports;
  #turn = 0;

  /**
   * @param {{url: URL, address: string}[]} targets
   * @param {string[]} sources empty: the kernel chooses address and port
   * @param {number[]} ports of this process alone; empty: the kernel chooses
   */
  constructor(targets, sources, ports) {
    this.#ports = sources.length > 0 ? ports : [];
    /** @type {Way[]} */
    this.#ways = targets.flatMap((target) =>
      (sources.length > 0 ? sources : [undefined]).map((source) => ({
        target,
        source,
        next: 0,
        free: [],
      })),
    );
  }

  /** Whether a port is left that is not in use here. */
  get hasMore() {
    return this.#ways.some((way) => this.#isLeft(way));
  }

  /**
   * A way that has a port left, each in its turn. If none has, a port in use, which the kernel
   * refuses.
   * @returns {{way: Way, port: number|undefined}}
   */
  take() {
    const turn = this.#turn++;
    const { length } = this.#ways;
    let way = this.#ways[turn % length];
    for (let i = 1; i < length && !this.#isLeft(way); i++) way = this.#ways[(turn + i) % length];
    return { way, port: this.#portOf(way, turn) };
  }

  /**
   * @param {Way} way
   * @param {number|undefined} port of a connection that is gone
   */
  release(way, port) {
    if (port !== undefined) way.free.push(port);
  }

  /** @param {Way} way */
  #isLeft(way) {
    return way.next < this.#ports.length || way.free.length > 0;
  }

  /**
   * One that was not used before, as long as there is one: the kernel may not be done with the
   * others.
   * @param {Way} way @param {number} turn
   */
  #portOf(way, turn) {
    if (this.#ports.length === 0) return undefined;
    if (way.next < this.#ports.length) return this.#ports[way.next++];
    return way.free.pop() ?? this.#ports[turn % this.#ports.length];
  }
}
