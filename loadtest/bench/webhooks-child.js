// webhooks-child.js: a process of webhooks.js that answers its requests: the users, the receiver.

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** @typedef {(wanted: any) => Promise<object>} Act */

/** In the child. @param {Record<string, Act>} acts */
export function answerParent(acts) {
  process.on('disconnect', () => process.exit());
  process.on(
    'message',
    async (/** @type {{id: number, act: string, wanted: object}} */ message) => {
      const { id, act, wanted } = message;
      process.send?.({ id, ...(await acts[act](wanted)) });
    },
  );
}

/**
 * Starts a child.
 * @param {import('../../test/harness/run.js').Run} owner
 * @param {string} script beside this file
 */
export function startChild(owner, script) {
  const child = fork(fileURLToPath(new URL(script, import.meta.url)));
  let lastId = 0;
  /** @type {Map<number, (answer: any) => void>} */
  const waiting = new Map();
  const ended = new Promise((_, reject) => {
    child.once('exit', () => reject(new Error(`${script} has ended`)));
  });
  ended.catch(() => {}); // whoever asks gets it
  child.on('message', (/** @type {{id: number}} */ answer) => {
    waiting.get(answer.id)?.(answer);
    waiting.delete(answer.id);
  });
  owner.after(() => child.kill('SIGKILL'));
  return {
    pid: /** @type {number} */ (child.pid),
    /** @param {string} act @param {object} [wanted] @returns {Promise<any>} */
    ask(act, wanted = {}) {
      const answer = new Promise((resolve) => {
        waiting.set(++lastId, resolve);
        child.send({ id: lastId, act, wanted });
      });
      return Promise.race([answer, ended]);
    },
  };
}
