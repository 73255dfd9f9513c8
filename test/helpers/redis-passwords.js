// redis-passwords.js: a user of Redis whose password is rotated under connections.

import { writeFileSync } from 'node:fs';
import { RedisConnection } from '../../src/backend/redis/connection.js';

/** @typedef {import('../harness/redis.js').RedisServer} RedisServer */

export const RIGHTS = ['on', 'allkeys', 'allchannels', '+@all'];

/** @param {readonly RedisServer[]} servers @param {...string} rules of the user fanfare */
export const setUser = (servers, ...rules) =>
  Promise.all(servers.map((server) => server.cli('ACL', 'SETUSER', 'fanfare', ...rules)));

/** @param {readonly RedisServer[]} servers */
export const cut = (servers) =>
  Promise.all(servers.map((server) => server.cli('CLIENT', 'KILL', 'USER', 'fanfare')));

/**
 * The second step of a rotation: the file has the new password, and the old one ends.
 * @param {readonly RedisServer[]} servers @param {string} path @param {string} text of the file
 */
export async function rotate(servers, path, text) {
  await setUser(servers, '>new-password');
  writeFileSync(path, text);
  await setUser(servers, '<old-password');
  await cut(servers);
}

/**
 * @param {import('node:test').TestContext} t
 * @param {import('../../src/config/redis.js').RedisSettings} settings
 */
export function connect(t, settings) {
  /** @type {string[]} */
  const reasons = [];
  const connection = new RedisConnection({
    settings,
    name: 'test',
    timeoutMs: 1000,
    onReady: () => connection.prove(),
    onAway: (reason) => void reasons.push(reason),
  });
  t.after(() => connection.close());
  connection.open();
  return { connection, reasons };
}
