// gate.js: decides whether a request may use the console, and with which rights.
//
// On loopback the console is open without a key. Then a page of another site in a browser of this
// machine is the attacker, and three checks keep it out:
// - `Host` has to be a loopback name, against names that lead to 127.0.0.1 (DNS rebinding).
// - Requests of the interface need the header X-Fanfare-Console. A page of another origin cannot
//   send it without a preflight, and no preflight is answered.
// - `Sec-Fetch-Site` and `Origin`, if there are any, have to be those of the page itself.
//
// There are no cookies: a key is in the header Authorization, which no other page knows.

import { API_RIGHTS } from '../config/api-keys.js';
import { consoleAccess } from '../config/console.js';
import { refusal } from '../protocol/refusal.js';
import { KeyRing } from '../transport/http-api/keys.js';

const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const HEADER = 'x-fanfare-console';

/** @import { ApiRight } from '../config/api-keys.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */

/**
 * @typedef {object} Admitted
 * @property {string} name of the key; '' without one
 * @property {readonly ApiRight[]} rights
 * @property {readonly string[]|null} rooms patterns; null: all rooms
 * @property {(room: string) => boolean} covers
 */

export class Gate {
  /** Keys of one configuration; a reload brings another one. */
  #keys = new KeyRing([]);
  /** @type {Config|null} */
  #config = null;

  /** @param {() => Config} configOf the configuration at this time */
  constructor(configOf) {
    this.configOf = configOf;
  }

  /** May it get the page, without data? @param {IncomingMessage} request @returns {Refusal|null} */
  refusePage(request) {
    const { access, why } = consoleAccess(this.configOf());
    if (access === 'off') return refusal('CONSOLE_OFF', `The console is off: ${why}.`);
    if (access === 'open' && !LOOPBACK_HOST.test(request.headers.host ?? ''))
      return refusal('HOST_NOT_ALLOWED');
    return null;
  }

  /** @param {IncomingMessage} request of the interface @returns {Admitted|Refusal} */
  admitVisitor(request) {
    const refused = this.refusePage(request) ?? refuseForeign(request);
    if (refused !== null) return refused;
    const config = this.configOf();
    if (consoleAccess(config).access === 'open')
      return { name: '', rights: API_RIGHTS, rooms: null, covers: () => true };
    if (config !== this.#config) {
      this.#config = config;
      this.#keys = new KeyRing(config.apiKeys);
    }
    const found = this.#keys.findByHeader(request.headers.authorization);
    if (found === null)
      return refusal(
        'UNAUTHORIZED',
        request.headers.authorization === undefined
          ? 'This console needs an API key with the right console.'
          : 'This key is not valid: it is none of the API keys of this server.',
      );
    const { name, rights, rooms } = config.apiKeys[this.#keys.keys.indexOf(found)];
    if (!rights.includes('console'))
      return refusal('PERMISSION_DENIED', 'This API key does not have the right console.');
    return { name, rights, rooms, covers: (room) => found.covers(room) };
  }
}

/** @param {IncomingMessage} request @returns {Refusal|null} */
function refuseForeign({ headers }) {
  const { host, origin, 'sec-fetch-site': site = 'same-origin' } = headers;
  const isOwn = origin === undefined || origin === `http://${host}` || origin === `https://${host}`;
  if (headers[HEADER] !== undefined && isOwn && site === 'same-origin') return null;
  return refusal('FOREIGN_REQUEST');
}
