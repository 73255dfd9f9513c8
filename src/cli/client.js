// client.js: a command as a client of the server, by the client library.

import { Fanfare } from '../client/node.js';
import { checked, unexpected } from './answers.js';
import { EXIT, Failure } from './failure.js';

/** @import { Room } from '../client/room.js' */
/** @import { Shape } from './answers.js' */
/** @import { Context } from './command.js' */

/** No later attempt has another outcome: the token stays the same. */
const FINAL = ['REFUSED', 'INVALID_TOKEN', 'TOKEN_EXPIRED'];
/** What a client without a token may get for that reason. */
const DENIALS = ['REFUSED', 'PERMISSION_DENIED'];

/**
 * Connects, acts, and closes the connection. The first attempt has to succeed; later it reconnects.
 * @param {Pick<Context, 'target'|'signal'|'output'>} context
 * @param {(client: Fanfare, ended: Promise<never>) => Promise<void>} act `ended` rejects when the
 *   server refuses the connection for good, and when the command is stopped
 */
export async function withClient({ target: { url, token }, signal, output }, act) {
  const client = new Fanfare(url, { token: token || undefined });
  /** @type {(reason: unknown) => void} */
  let end = () => {};
  const ended = /** @type {Promise<never>} */ (
    new Promise((_, reject) => {
      end = reject;
    })
  );
  ended.catch(() => {}); // whoever waits has it, too
  signal.addEventListener('abort', () => end(signal.reason), { once: true });
  // The library trusts its server. What another program sends throws in a listener of the socket.
  const onThrown = (/** @type {Error} */ { message }) => end(unexpected(url, message));
  process.on('uncaughtException', onThrown);
  let isFirst = true;
  client.on('error', (error) => {
    if (typeof error.code !== 'string') end(unexpected(url, 'an error without a code'));
    // A command that is refused before the welcome has nothing to wait for.
    else if (FINAL.includes(error.code) || (isFirst && !error.retryable)) end(error);
    else output.note(error.message);
  });
  client.on('state', (state, { code, reason, delayMs = 0 }) => {
    if (state === 'waiting' && isFirst)
      end(new Failure(EXIT.unavailable, `cannot reach ${url} (${reason || 'no connection'})`));
    else if (state === 'waiting')
      output.note(`connection lost (${code}), trying again in ${(delayMs / 1000).toFixed(1)} s`);
  });
  try {
    await Promise.race([client.connect(), ended]);
    isFirst = false;
    await Promise.race([act(client, ended), ended]);
  } catch (error) {
    throw token === '' ? withHint(error) : error;
  } finally {
    await client.close();
    process.off('uncaughtException', onThrown);
  }
}

/**
 * @param {Pick<Context, 'target'>} context @param {Fanfare} client
 * @param {{type: string} & Record<string, unknown>} command
 * @param {Shape} shape of the reply, as far as the command reads it
 * @returns {Promise<Record<string, any>>}
 */
export async function ask({ target: { url } }, client, command, shape) {
  return checked(url, await client.request(command), shape);
}

/**
 * Joins a room without being listed in its presence.
 * @param {Fanfare} client @param {string} name @param {{last?: number}} [options]
 * @returns {{room: Room, refused: Promise<never>}} `refused` rejects when the server does not
 *   permit the room, or takes the connection out of it
 */
export function watch(client, name, options) {
  const room = client.join(name, { ...options, presence: false });
  const refused = /** @type {Promise<never>} */ (
    new Promise((_, reject) => room.on('error', reject))
  );
  refused.catch(() => {});
  return { room, refused };
}

/** A server with tokens refuses a client without one. @param {unknown} error */
function withHint(error) {
  const { code = '', message } = /** @type {{code?: string, message: string}} */ (error);
  if (!DENIALS.includes(code)) return error;
  return Failure.ofCode(code, `${message}; if the server requires tokens, set FANFARE_TOKEN`);
}
