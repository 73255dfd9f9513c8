// every-door.js: asks every door for the same, in a worker of this process.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { encodePublication, KIND, withAudience } from '../../src/protocol/publication.js';
import { KEY } from './centrifugo-api.js';
import { API_SECRET, APIS, DOORS } from './door-clients.js';
import { entryOf, writeApps } from './pusher.js';
import { shared } from './shared.js';
import { SECRET } from './tokens.js';
import { startWorker } from './whole-worker.js';

/** @typedef {import('./door-clients.js').DoorRow} DoorRow */
/** @typedef {import('./door-clients.js').Ability} Ability */
/** @typedef {import('./whole-worker.js').TestedWorker} TestedWorker */

/**
 * What a rule is tested with at one door.
 * @typedef {object} Asked
 * @property {import('node:test').TestContext} t @property {TestedWorker} at @property {DoorRow} door
 * @property {(who?: import('./door-clients.js').Who) => Promise<import('./door-clients.js').DoorClient>} open
 * @property {(name: string) => string} roomNamed the name of a room that no other test uses
 */

/**
 * @typedef {object} Rule
 * @property {string} name what holds at every door
 * @property {Record<string, string>} [env]
 * @property {readonly Ability[]} [needs] what clients must be able to ask
 * @property {Partial<Record<string, string>>} [none] doors that have no such thing, and why
 * @property {boolean} [hasApis] do applications ask for it, too?
 * @property {(asked: Asked) => Promise<void>} run
 */

/** Limits that no test reaches, so that only the one that a rule is about refuses anything. */
export const BASE = Object.freeze({
  FANFARE_CENTRIFUGO: 'on',
  JWT_SECRET: SECRET,
  FANFARE_AUTH: 'optional',
  FANFARE_HISTORY: '*log*=100/1h',
  FANFARE_PRESENCE: '*presence*',
  FANFARE_STATE: '*state*=10/1h',
  FANFARE_LIMITS: 'off',
  API_KEYS: `all ${API_SECRET} all`,
  FANFARE_CENTRIFUGO_API_KEY: KEY,
});

export const HOOKS = Object.freeze({
  FANFARE_HOOKS: fileURLToPath(new URL('./hooks/decided.js', import.meta.url)),
});

/** By environment, so that rules share workers. @type {Map<string, () => Promise<TestedWorker>>} */
const workers = new Map();
let rooms = 0;

/** @param {Record<string, string>} [env] */
function workerWith(env) {
  const key = JSON.stringify(env ?? {});
  const start = workers.get(key) ?? shared((owner) => startOwnWorker(owner, env));
  workers.set(key, start);
  return start;
}

/** @param {import('../harness/server.js').Owner} owner @param {Record<string, string>} [env] */
export function startOwnWorker(owner, env) {
  const apps = [entryOf({ shared: true, publicRooms: ['*'], maxEventBytes: 65_536 })];
  return startWorker(owner, { ...BASE, FANFARE_PUSHER_APPS: writeApps(owner, apps), ...env });
}

/** A test of each rule at each door. @param {readonly Rule[]} rules */
export function testAtEveryDoor(rules) {
  for (const { name, env, needs = [], none = {}, hasApis = false, run } of rules) {
    const start = workerWith(env);
    for (const unknown of Object.keys(none))
      assert.ok(
        [...DOORS, ...APIS].some((door) => door.name === unknown),
        unknown,
      );
    for (const door of hasApis ? [...DOORS, ...APIS] : DOORS) {
      const reason = none[door.name] ?? needs.map((one) => door.without[one]).find(Boolean);
      const options = { timeout: 20_000, skip: reason && `none: ${reason}` };
      test(`${name}: ${door.name}`, options, async (t) => {
        const at = await start();
        const number = ++rooms;
        const open = (/** @type {any} */ who) => door.open(t, at.port, who);
        await run({ t, at, door, open, roomNamed: (word) => `${word}-${number}` });
      });
    }
  }
}

/**
 * The counters that changed while `act` ran, by path; gauges and traffic are left out.
 * @param {TestedWorker} at @param {() => Promise<unknown>} act
 */
export async function countedBy({ counters }, act) {
  const before = flat(counters);
  await act();
  /** @type {Record<string, number>} */
  const changed = {};
  for (const [path, value] of flat(counters)) {
    const more = value - (before.get(path) ?? 0);
    if (more !== 0 && COUNTED.test(path)) changed[path] = more;
  }
  return changed;
}

const COUNTED =
  /^(errors|observed|readsRefused|rateLimitCloses|hooks\.(denied|failures)|publications|recoveries|stateFull|connectionFailures|auth\.closes|(api\.)?refused\.draining)/;

/** @param {object} counters @param {string} [path] @returns {Map<string, number>} */
function flat(counters, path = '') {
  return new Map(
    Object.entries(counters).flatMap(([name, value]) =>
      typeof value === 'number'
        ? /** @type {[string, number][]} */ ([[path + name, value]])
        : [...flat(value, `${path}${name}.`)],
    ),
  );
}

/**
 * What clients pay for while `act` runs: messages of commands, and bytes that they were sent.
 * @param {TestedWorker} at @param {() => Promise<unknown>} act
 */
export async function paidWhile({ entry: { limiter } }, act) {
  const paid = { messages: 0, bytes: 0 };
  const own = /** @type {any} */ (limiter);
  own.admitMessage = (/** @type {any} */ ...args) => {
    paid.messages++;
    return Object.getPrototypeOf(limiter).admitMessage.apply(limiter, args);
  };
  own.charge = (/** @type {any} */ ...args) => {
    paid.bytes += args[3];
    return Object.getPrototypeOf(limiter).charge.apply(limiter, args);
  };
  await act();
  delete own.admitMessage;
  delete own.charge;
  return paid;
}

/**
 * Publishes for an application.
 * @param {TestedWorker} at @param {string} room
 * @param {{ageMs?: number, bytes?: number, audience?: string}} [options]
 */
export async function publish({ delivery }, room, options = {}) {
  const { ageMs = 0, bytes = 8000, audience = '' } = options;
  const payload = Buffer.from(JSON.stringify('x'.repeat(bytes)));
  const head = /** @type {const} */ ([KIND.MESSAGE, Date.now() - ageMs, 0, '']);
  const publication = encodePublication(...head, payload, 0, payload.length);
  await delivery.backend.broker.publish(room, withAudience(publication, audience));
}

/** Resolves when the condition holds. @param {() => boolean} condition @param {string} what */
export async function until(condition, what) {
  const end = performance.now() + 1000;
  while (!condition()) {
    assert.ok(performance.now() < end, what);
    await new Promise(setImmediate);
  }
}

/** @param {TestedWorker} at @param {string} room @returns {number} members */
export function membersOf({ delivery }, room) {
  return delivery.hub.rooms.get(room)?.members.length ?? 0;
}
