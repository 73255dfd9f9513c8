// token-command.js: prints a token for development and tests, signed with the configured secret, or
// says whether a server with these settings accepts one.

import { SignJWT } from 'jose';
import { readCommandLine } from '../config/command-line.js';
import { EXIT } from '../config/exit-codes.js';
import { isUser } from './claims.js';
import { readHeldAudiences, readRights } from './rights.js';
import { checkToken } from './token-check.js';

export const TOKEN_USAGE = `fanfare token: print a token for development, signed with JWT_SECRET

  --user NAME         sub: the user (required)
  --join PATTERNS     rooms it may join, separated by commas: chat.*,news
  --publish PATTERNS  rooms it may publish to
  --presence PATTERNS rooms whose presence it may read
  --history PATTERNS  rooms whose history it may read
  --rooms PATTERNS    all four
  --audience PATTERNS rooms in which it may publish for an audience
  --audiences NAMES   audiences of the user: staff,moderators; * for all of them
  --broadcast         it may broadcast to every connection
  --autojoin ROOMS    rooms to join on connect
  --info JSON         what presence shows of the user
  --app ID            an app of FANFARE_PUSHER_APPS: the token is for its rooms and users
  --id ID             jti: the token can be revoked by it
  --expires SECONDS   lifetime, 3600 if absent
  --algorithm NAME    HS256, HS384 or HS512; HS256 if absent
  --check [TOKEN]     print whether a server with these settings accepts it, and why not. Without
                      TOKEN it is read from the standard input. Exit code 0, or 77: refused
  --help, -h          print this help
`;

const OPTIONS = /** @type {const} */ ({
  user: { type: 'string' },
  join: { type: 'string' },
  publish: { type: 'string' },
  presence: { type: 'string' },
  history: { type: 'string' },
  audience: { type: 'string' },
  audiences: { type: 'string' },
  rooms: { type: 'string' },
  broadcast: { type: 'boolean' },
  autojoin: { type: 'string' },
  info: { type: 'string' },
  app: { type: 'string' },
  id: { type: 'string' },
  expires: { type: 'string', default: '3600' },
  algorithm: { type: 'string', default: 'HS256' },
  check: { type: 'boolean' },
});

/**
 * @param {readonly string[]} args
 * @param {import('../config/tokens.js').TokenSettings|null} settings the first secret signs; null:
 *   no key is configured
 * @param {object} [parts] @param {number} [parts.nowMs] since 1970
 * @param {() => Promise<string>} [parts.readInput] the standard input, for `--check`
 * @param {import('./claims.js').Apps|null} [parts.apps]
 * @param {readonly import('./token-check.js').Door[]} [parts.doors] which `--check` tries
 * @returns {Promise<{code: number, out: string, err: string}>} exit code and texts; 64: usage
 */
export async function tokenCommand(args, settings, parts = {}) {
  const { nowMs = Date.now(), readInput = async () => '', apps, doors } = parts;
  let values;
  let given;
  try {
    ({ values, positionals: given } = parse(args));
  } catch (error) {
    return usage(/** @type {Error} */ (error).message);
  }
  if (values.check) {
    if (settings === null)
      return usage('no key is configured: set JWT_SECRET, for example', EXIT.config);
    if (given.length > 1) return usage('--check takes one token');
    const text = (given[0] ?? (await readInput())).trim();
    if (text === '') return usage('--check needs a token');
    const checked = await checkToken(text, { settings, apps, doors, nowMs });
    return { code: checked.isAccepted ? EXIT.ok : EXIT.permission, out: checked.text, err: '' };
  }
  if (given.length > 0) return usage(`unexpected argument ${JSON.stringify(given[0])}`);
  if (values.help) return { code: 0, out: TOKEN_USAGE, err: '' };
  const secret = settings?.secrets[0];
  if (settings === null || secret === undefined)
    return usage('set JWT_SECRET, for example to `openssl rand -hex 32`', EXIT.config);
  const { user, id, expires, algorithm } = values;
  if (!isUser(user)) return usage('--user is 1 to 128 characters');
  if (!/^[1-9]\d{0,8}$/.test(expires)) return usage('--expires is a number of seconds');
  if (!/^HS(256|384|512)$/.test(algorithm)) return usage('--algorithm is HS256, HS384 or HS512');
  const claims = claimsOf(values);
  if (typeof claims === 'string') return usage(claims);
  const nowS = Math.floor(nowMs / 1000);
  const token = new SignJWT(claims)
    .setProtectedHeader({ alg: algorithm, typ: 'JWT' })
    .setSubject(user)
    .setIssuedAt(nowS)
    .setExpirationTime(nowS + Number(expires));
  if (id !== undefined) token.setJti(id);
  if (settings.audience.length > 0) token.setAudience(settings.audience[0]);
  if (settings.issuer.length > 0) token.setIssuer(settings.issuer[0]);
  return { code: 0, out: `${await token.sign(Buffer.from(secret))}\n`, err: '' };
}

/** @param {readonly string[]} args */
function parse(args) {
  return readCommandLine(args, OPTIONS, true);
}

/** @param {ReturnType<typeof parse>['values']} values @returns {Record<string, unknown>|string} or a fault */
function claimsOf({ rooms, broadcast, autojoin, info, app, audience, audiences, ...lists }) {
  /** @type {Record<string, unknown>} */
  const claims = {};
  /** @type {Record<string, string[]>} */
  const rights = {};
  for (const right of /** @type {const} */ (['join', 'publish', 'presence', 'history'])) {
    const list = lists[right] ?? rooms;
    if (list !== undefined) rights[right] = split(list);
  }
  if (audience !== undefined) rights.audience = split(audience);
  if (readRights(rights) === null) return 'a room pattern is not valid, as chat.* is';
  if (Object.keys(rights).length > 0) claims.rooms = rights;
  if (broadcast && app !== undefined) return '--broadcast reaches all apps: not with --app';
  if (audiences !== undefined) claims.audiences = split(audiences);
  if (readHeldAudiences(claims.audiences) === null) return '--audiences is up to 16 names';
  if (broadcast) claims.broadcast = true;
  if (app !== undefined) claims.app = app;
  if (autojoin !== undefined) claims.autojoin = split(autojoin);
  if (info !== undefined) {
    try {
      claims.info = JSON.parse(info);
    } catch {
      return '--info is not JSON';
    }
  }
  return claims;
}

/** @param {string} list */
function split(list) {
  return list
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** @param {string} fault @param {number} [code] */
function usage(fault, code = EXIT.usage) {
  return { code, out: '', err: `fanfare token: ${fault}\n\n${TOKEN_USAGE}` };
}
