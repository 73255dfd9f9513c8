// haproxy.js: HAProxy with the configuration of ops/, and its own counters.
//
// Clients and the publisher have a frontend each, so that only handshakes are counted as handshakes.

import { readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Program } from './program.js';

const SAMPLE_MS = 100;
const WINDOW_MS = 1000;

/** @typedef {Record<string, string>} Row of `show stat` */

export class Haproxy {
  /** @type {{atMs: number, accepted: number[]}[]} */
  #samples = [];
  /** @type {NodeJS.Timeout|undefined} */
  #timer;

  /** @param {string} socket @param {number} clientPort @param {number} publishPort */
  constructor(socket, clientPort, publishPort) {
    this.socket = socket;
    this.clientPort = clientPort;
    this.publishPort = publishPort;
  }

  /**
   * @param {import('../../test/harness/server.js').Owner} owner
   * @param {object} options
   * @param {string} options.folder
   * @param {readonly number[]} options.servers their ports
   * @param {string} options.readyPath
   * @param {readonly [number, number]} options.ports its own, for clients and for the publisher
   */
  static async start(owner, { folder, servers, readyPath, ports }) {
    const [clientPort, publishPort] = ports;
    const socket = join(folder, 'haproxy.sock');
    const source = new URL('../../ops/haproxy/haproxy.cfg', import.meta.url);
    let text = await readFile(source, 'utf8');
    for (const [from, to] of /** @type {[string, string][]} */ ([
      ['global\n', `global\n  stats socket ${socket}\n`],
      ['bind :3000', `bind 127.0.0.1:${clientPort}`],
      ['uri /readyz', `uri ${readyPath}`],
      ...servers.map((port, i) => [`fanfare-${i + 1}:3000`, `127.0.0.1:${port}`]),
    ])) {
      if (!text.includes(from)) throw new Error(`haproxy.cfg has no ${from}`);
      text = text.replace(from, to);
    }
    text += `\nfrontend publisher\n  bind 127.0.0.1:${publishPort}\n  default_backend fanfare\n`;
    text = text.replace(
      '\nfrontend publisher\n',
      '\nfrontend publisher\n  http-request disable-l7-retry\n',
    );
    const file = join(folder, 'haproxy.cfg');
    await writeFile(file, text);
    const program = new Program(['haproxy', '-db', '-f', file], {}, clientPort);
    owner.after(() => program.kill());
    await program.start();
    const haproxy = new Haproxy(socket, clientPort, publishPort);
    owner.after(() => haproxy.stopWatching());
    return haproxy;
  }

  /** @returns {Promise<Row[]>} */
  async stats() {
    const [head, ...lines] = (await ask(this.socket, 'show stat\n')).trim().split('\n');
    const names = head.replace('# ', '').split(',');
    return lines.map((line) => {
      const cells = line.split(',');
      return Object.fromEntries(names.map((name, i) => [name, cells[i]]));
    });
  }

  /** @param {number} server from 0 @returns {Promise<boolean>} whether it gets connections */
  async isUp(server) {
    const rows = await this.stats();
    return rows.some(({ svname, status }) => svname === `fanfare-${server + 1}` && status === 'UP');
  }

  /** Handshakes of clients so far. */
  async handshakes() {
    const rows = await this.stats();
    const front = rows.find((row) => row.pxname === 'public' && row.svname === 'FRONTEND') ?? {};
    const sum = (/** @type {string[]} */ keys) =>
      keys.reduce((total, key) => total + Number(front[key]), 0);
    return { accepted: Number(front.hrsp_1xx), refused: sum(['hrsp_4xx', 'hrsp_5xx', 'hrsp_3xx']) };
  }

  /** Begins to watch the rate of handshakes at each server. */
  watch() {
    clearInterval(this.#timer);
    this.#timer = setInterval(async () => {
      // It may end meanwhile.
      const rows = await this.stats().catch(() => []);
      if (rows.length === 0) return;
      const servers = rows.filter(({ svname }) => svname.startsWith('fanfare-'));
      const accepted = servers.map((row) => Number(row.hrsp_1xx));
      this.#samples.push({ atMs: performance.now(), accepted });
    }, SAMPLE_MS);
  }

  /** @returns {number} the most handshakes that one server accepted in a second */
  stopWatching() {
    clearInterval(this.#timer);
    return peakOf(this.#samples, WINDOW_MS);
  }
}

/**
 * @param {readonly {atMs: number, accepted: readonly number[]}[]} samples counts so far, by server
 * @param {number} windowMs
 * @returns {number} the largest increase of one server within the window
 */
export function peakOf(samples, windowMs) {
  let peak = 0;
  let from = 0;
  for (const { atMs, accepted } of samples) {
    while (samples[from].atMs < atMs - windowMs) from++;
    for (const [i, count] of accepted.entries())
      peak = Math.max(peak, count - samples[from].accepted[i]);
  }
  return peak;
}

/** @param {string} path @param {string} command @returns {Promise<string>} */
function ask(path, command) {
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(path, () => socket.write(command));
    socket.setEncoding('utf8').on('data', (part) => {
      text += part;
    });
    socket.on('error', reject);
    socket.on('end', () => resolve(text));
  });
}
