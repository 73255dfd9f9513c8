// revoke.js: `fanfare revoke`: refuses the tokens of a user, or one token, from now on.

import { callApi } from './api.js';
import { EXIT, Failure } from './failure.js';
import { exactlyOne, numberIn } from './options.js';

/** @import { Command } from './command.js' */

/** The last second of the year 9999. */
const MAX_SECONDS = 253_402_300_799;

/** @type {Command} */
export const command = {
  usage: `revoke --user NAME | --token-id ID [options]

Refuses the tokens that a user has now, or one token, on all servers, and closes their connections.
A new token lets the user in again. Needs an API key with the right revoke.

  --user NAME          all tokens of this user that were issued until now
  --token-id ID        the token with this jti
  --issued-before TIME with --user: tokens issued before this time, in seconds since 1970
`,
  names: [],
  options: {
    user: { type: 'string' },
    'token-id': { type: 'string' },
    'issued-before': { type: 'string' },
  },
  async run(context) {
    const { values, output } = context;
    const [by, name] = exactlyOne(values, ['user', 'token-id']);
    const issuedBefore = numberIn(values, 'issued-before', 0, MAX_SECONDS);
    if (issuedBefore !== undefined && by === 'token-id')
      throw new Failure(EXIT.usage, '--issued-before goes with --user, not with --token-id');
    const target = by === 'user' ? { user: name } : { tokenId: name };
    const body = JSON.stringify({ ...target, issuedBefore });
    // The time is in seconds, or null if the revocation has no end.
    const shape = /** @type {const} */ ({ keptUntil: 'any' });
    const { keptUntil } = await callApi(context, '/revoke', shape, body);
    output.record({ ...target, keptUntil }, () => [
      by === 'user' ? `the tokens of ${name} are revoked` : `the token ${name} is revoked`,
    ]);
  },
};
