// stock-clients.js: the client processes of a run (client.js), asked together.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { until } from '../../test/harness/server.js';

const CLIENT = fileURLToPath(new URL('client.js', import.meta.url));
const OPEN_MS = 120_000;

/** @typedef {{downMs: number, losses: number, joins: number, lost: number, twice: number, isBack: boolean}} Figures */

export class StockClients {
  /** @type {import('node:child_process').ChildProcess[]} */
  #processes = [];

  /**
   * @param {import('../../test/harness/server.js').Owner} owner
   * @param {{kind: string, port: number, count: number, processes: number}} options
   */
  constructor(owner, { kind, port, count, processes }) {
    this.count = count;
    for (let i = 0; i < processes; i++) {
      const first = Math.floor((count * i) / processes);
      const own = Math.floor((count * (i + 1)) / processes) - first;
      const args = [kind, port, first, own].map(String);
      const child = fork(CLIENT, args, { serialization: 'advanced' });
      this.#processes.push(child);
      owner.after(() => child.kill('SIGKILL'));
    }
  }

  /** @param {object} message */
  async #ask(message) {
    return Promise.all(
      this.#processes.map(async (child) => {
        const answer = once(child, 'message');
        child.send(message);
        return (await answer)[0];
      }),
    );
  }

  /** @returns {Promise<number>} how many are in their room now */
  async joined() {
    const answers = await this.#ask({ what: 'joined' });
    return answers.reduce((sum, { joined }) => sum + joined, 0);
  }

  /** @param {number} [timeoutMs] @returns {Promise<boolean>} whether all are in their rooms in time */
  async allJoined(timeoutMs = OPEN_MS) {
    try {
      await until(async () => (await this.joined()) === this.count, timeoutMs);
      return true;
    } catch {
      return false;
    }
  }

  /** Forgets what has happened so far. */
  begin() {
    return this.#ask({ what: 'begin' });
  }

  /** @param {ReadonlyMap<number, readonly number[]>} published @returns {Promise<Figures[]>} */
  async report(published) {
    const answers = await this.#ask({ what: 'report', published: [...published] });
    return answers.flatMap(({ report }) => report);
  }
}
