// parts.js: what the targets share: a worker without sockets, a configuration, the corpus of each.

import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { loadConfig } from '../../../src/config/config.js';
import { RoomRules } from '../../../src/config/room-patterns.js';
import { ERRORS } from '../../../src/protocol/codes.js';
import { ANNOUNCEMENTS } from '../../../src/protocol/publication.js';
import { buildHub } from '../../helpers/hub.js';
import { createBackend } from '../../helpers/memory-backend/index.js';
import { Corpus } from './mutate.js';

export const RULE = Object.freeze({ size: 5, ttlMs: 1000 });
export const MAX_MESSAGE_BYTES = 4096;
export const EMPTY = Buffer.alloc(0);
/** Turns of the event loop in which all that follows from an input has happened. */
export const TURNS = 6;
/**
 * Close codes that a server may send: those of the table in docs/protocol.md, and echoes of a client’s.
 */
export const isCloseCode = (/** @type {number} */ code) =>
  code >= 1000 && code < 5000 && code !== 1006 && code !== 1015;

/**
 * @typedef
 *   {{run: (inputs: readonly Buffer[], numbers: readonly number[]) => Promise<string[]>, close: () => Promise<void>|void}}
 *   Running
 */
/**
 * @typedef
 *   {{name: string, file: URL, corpus: Corpus, share: number, start: () => Promise<Running>|Running}}
 *   Target
 */

/** @param {string} name */
export function from(name) {
  const file = new URL(`../corpus/${name}.json`, import.meta.url);
  return { file, corpus: new Corpus(JSON.parse(readFileSync(file, 'utf8'))) };
}

/** @param {string} [env] */
export function config(env) {
  const { config, faults } = loadConfig({
    FANFARE_LIMITS: 'off',
    FANFARE_MAX_MESSAGE_BYTES: String(MAX_MESSAGE_BYTES),
    ...(env === undefined ? {} : JSON.parse(env)),
  });
  assert.ok(config, faults.join());
  return config;
}

export async function turns() {
  for (let i = 0; i < TURNS; i++) await turn();
}

let workers = 0;

/** A whole worker but for its sockets: hub, commands, broker and presence of one process. */
export async function worker() {
  const historyRules = new RoomRules([{ pattern: 'h.*', value: RULE }]);
  const presenceRules = new RoomRules([{ pattern: 'p.*', value: /** @type {const} */ (true) }]);
  const historyOf = (/** @type {string} */ room) => historyRules.ruleFor(room);
  const backend = createBackend(
    /** @type {any} */ ({
      config: {
        serverId: `fuzz-${++workers}`,
        presence: presenceRules.own,
        presenceMaxMembers: 10,
      },
      historyRules,
      announcements: ANNOUNCEMENTS,
    }),
  );
  const { broker } = backend;
  /** @type {unknown[]} */
  const errors = [];
  const parts = buildHub({
    config: config(),
    broker,
    historyOf,
    presence: /** @type {import('../../../src/backend/presence.js').Presence} */ (backend.presence),
    covers: (room) => presenceRules.ruleFor(room) !== null,
    log: { debug() {}, warn() {}, error: (fields) => void errors.push(fields) },
  });
  const { hub, scheduler } = parts;
  await broker.start({
    onPublication: (room, publication, offset, epoch) =>
      hub.broadcast(room, publication, offset, epoch),
    onLost: (rooms) => scheduler.onLost(rooms),
    onState() {},
  });
  await hub.start();
  const close = () => {
    scheduler.close();
    return backend.close();
  };
  /** All that came has gone. */
  const isClean = () => {
    assert.deepEqual(errors, []);
    assert.equal(hub.connections.length, 0);
    assert.deepEqual([...hub.rooms.keys()], ['*']);
  };
  return { ...parts, isClean, close };
}

/** The kind of a message from the server. @param {any} message */
export function kindOfMessage(message) {
  assert.equal(typeof message.type, 'string');
  if (message.type !== 'error') return message.type;
  assert.ok(message.error in ERRORS, message.error);
  assert.notEqual(message.error, 'INTERNAL_ERROR');
  return message.error;
}

/** Requires UTF-8. @param {Buffer} bytes */
export function utf8(bytes) {
  assert.ok(isUtf8(bytes), 'UTF-8');
  return bytes.toString('utf8');
}
