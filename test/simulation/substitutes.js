// substitutes.js: the few files of the program that a simulation replaces: the public port below the
// contract of transports, the operations port, and what writes to a terminal.

import { readFileSync } from 'node:fs';
import * as web from './web.js';

/** @import { SimulatedProcess } from './simulated-process.js' */
/** @typedef {Record<string, unknown>} Exports */

/**
 * Files that are read from this folder instead, as if they were in the tree of the program.
 * @type {Record<string, string>}
 */
const FILES = { '/src/transport/http-server.js': 'public-port.js' };

/** @param {string} url @returns {{text: string, url: string}|undefined} */
export function sourceInstead(url) {
  for (const [path, name] of Object.entries(FILES)) {
    if (!url.endsWith(path)) continue;
    const text = readFileSync(new URL(name, import.meta.url), 'utf8');
    return { text, url: `${url.slice(0, -path.length)}/test/simulation/${name}` };
  }
  return undefined;
}

/** @param {SimulatedProcess} owner @param {string} url @returns {Exports|undefined} */
export function substituteFor(owner, url) {
  if (url.endsWith('/test/simulation/web.js')) return { ...web };
  if (url.endsWith('/src/observability/log.js')) return logModule(owner);
  if (url.endsWith('/src/primary/ops-server.js')) return { OpsServer };
  if (url.endsWith('/src/doctor/doctor.js'))
    return {
      glance: () => '',
      endedNote: () => '',
      runDoctor: async () => 0,
      DOCTOR_USAGE: '',
      examineServer: async () => [],
      parseOptions: () => ({}),
    };
  return undefined;
}

/** @param {SimulatedProcess} owner */
function logModule(owner) {
  const { fleet } = owner.machine;
  /** @param {object} base @returns {any} */
  const logger = (base) => {
    const line =
      (/** @type {string} */ level) =>
      (/** @type {any} */ fields, /** @type {string|undefined} */ text) => {
        const isText = typeof fields === 'string';
        fleet.noteLog(
          owner,
          level,
          isText ? fields : (text ?? ''),
          isText ? base : { ...base, ...fields },
        );
      };
    return {
      level: 'info',
      child: (/** @type {object} */ more) => logger({ ...base, ...more }),
      isLevelEnabled: () => false,
      trace() {},
      debug: line('debug'),
      info: line('info'),
      warn: line('warn'),
      error: line('error'),
      fatal: line('fatal'),
    };
  };
  return {
    createLog: () => logger({}),
    writeBanner: () => true,
    flushLog: async () => {},
    droppedLines: () => 0,
    redactUrl: (/** @type {string} */ text) => text,
  };
}

/** The operations port: nobody scrapes a simulated server. */
class OpsServer {
  closed = { full: 0, pipelined: 0 };

  async start() {
    return 0;
  }

  async close() {}
}
