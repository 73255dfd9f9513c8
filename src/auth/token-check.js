// token-check.js: says whether a server with these settings would accept a token, and why not:
// `fanfare token --check`. It knows neither revocations nor hooks, because it asks no server.

import { asciiJson } from './claims.js';
import { ROOM_RIGHTS } from './rights.js';
import { TokenError } from './token-error.js';
import { TokenVerifier } from './verifier.js';

/** @import { Apps, Identity } from './claims.js' */
/** @import { ReadClaims } from './verifier.js' */

/**
 * A way in, with its own claims.
 * @typedef {{name: string, read?: ReadClaims}} Door without `read`: the native one
 */

/**
 * @param {string} token
 * @param {object} parts @param {import('../config/tokens.js').TokenSettings} parts.settings
 * @param {Apps|null} [parts.apps] @param {readonly Door[]} [parts.doors] @param {number} parts.nowMs
 * @returns {Promise<{isAccepted: boolean, text: string}>} accepted at one of the doors
 */
export async function checkToken(token, { settings, apps = null, doors = NATIVE, nowMs }) {
  const verifier = new TokenVerifier({
    settings,
    apps,
    revocations: { isRevoked: () => false },
    counters: /** @type {any} */ ({ tokens: {}, keyReads: {} }),
    log: { info() {}, warn() {} },
    now: () => nowMs,
  });
  await (await verifier.start()).remote;
  const lines = [];
  let isAccepted = false;
  for (const { name, read } of doors) {
    try {
      const identity = await verifier.verify(token, read);
      isAccepted = true;
      lines.push(
        `${name}: accepted`,
        ...describeToken(identity, nowMs),
        ...notesOn(identity, token),
      );
    } catch (error) {
      if (!(error instanceof TokenError)) throw error;
      const wait = error.retryAfterS > 0 ? `, try again in ${error.retryAfterS} s` : '';
      lines.push(`${name}: refused (${error.code}${wait}): ${error.why}`);
    }
  }
  verifier.close();
  return { isAccepted, text: `${lines.join('\n')}\n` };
}

/** @type {readonly Door[]} */
const NATIVE = Object.freeze([{ name: 'native' }]);

/** @param {Identity & {endS?: number}} identity @param {number} nowMs @returns {string[]} */
function describeToken({ name, app, tokenId, issuedAtMs, expiresAtMs, endS }, nowMs) {
  // Clients of Centrifugo's door may stay for some seconds after that.
  const endMs = endS ? endS * 1000 : expiresAtMs;
  const seconds = (/** @type {number} */ ms) => Math.round(ms / 1000);
  const end = Number.isFinite(endMs) ? `in ${seconds(endMs - nowMs)} s` : 'never';
  return [
    `  user "${asciiJson(name)}"${app === null ? '' : `, app "${asciiJson(app.id)}"`}`,
    `  issued ${issuedAtMs === 0 ? 'at an unknown time' : `${seconds(nowMs - issuedAtMs)} s ago`}, expires ${end}`,
    ...(tokenId === null ? [] : [`  id "${asciiJson(tokenId)}"`]),
  ];
}

/**
 * The rights as the token has them, and names in `rooms` that are no rights: they are ignored. A
 * subscription token has no rights: its door has not looked at `rooms`.
 * @param {Identity & {channel?: string}} identity @param {string} token accepted
 * @returns {string[]}
 */
function notesOn({ channel }, token) {
  if (channel !== undefined) return [`  channel "${asciiJson(channel)}"`];
  const { rooms = {}, audiences = [] } = JSON.parse(
    Buffer.from(token.split('.')[1], 'base64url').toString(),
  );
  const given = ROOM_RIGHTS.filter((right) => rooms[right]?.length > 0);
  const shown = given.map((right) => `${right} ${rooms[right].map(asciiJson).join(', ')}`);
  const others = Object.keys(rooms).filter((name) => !ROOM_RIGHTS.some((one) => one === name));
  const patterns = others.filter((name) => rooms[name]?.audiences !== undefined);
  const unknown = others.filter((name) => !patterns.includes(name));
  const held = patterns.map((name) => `${rooms[name].audiences.join(', ')} in ${asciiJson(name)}`);
  if (audiences.length > 0) held.unshift(`${audiences.join(', ')} in all rooms`);
  return [
    `  rooms: ${shown.join('; ') || 'none'}`,
    ...(held.length > 0 ? [`  audiences: ${held.join('; ')}`] : []),
    ...unknown.map(
      (name) => `  rooms.${asciiJson(name)} is no right: there are ${ROOM_RIGHTS.join(', ')}`,
    ),
  ];
}
