// cli.js: runs a command of src/cli/ in this process, because a process costs 0.25 s.

import { Readable, Writable } from 'node:stream';
import { runCli } from '../../src/cli/cli.js';

/**
 * @param {readonly string[]} command its name and arguments
 * @param {Record<string, string>} env
 * @param {{input?: string, isTerminal?: boolean}} [options]
 * @returns {Promise<{code: number, out: string, err: string, lines: any[]}>} `lines`: JSON
 */
export async function call([name, ...args], env, { input = '', isTerminal = false } = {}) {
  const said = { out: '', err: '' };
  const into = (/** @type {'out'|'err'} */ key) =>
    Object.assign(
      new Writable({
        write(chunk, _encoding, done) {
          said[key] += chunk;
          done();
        },
      }),
      { isTTY: isTerminal },
    );
  const stdin = Readable.from(input === '' ? [] : [Buffer.from(input)]);
  const streams = { stdin, stdout: into('out'), stderr: into('err') };
  const surroundings = /** @type {any} */ ({ env, ...streams });
  const code = await runCli(/** @type {any} */ (name), args, surroundings);
  const lines = said.out.startsWith('{') ? said.out.trim().split('\n') : [];
  return { code, ...said, lines: lines.map((line) => JSON.parse(line)) };
}
