// api.js: Centrifugo's server API, for backends.
//
//   http-server.js -> begin: key, rate, place -> the body -> express -> POST {path}/{method}
//
// A request without a valid key is refused unread. Others are answered with status 200, as in
// Centrifugo: {"result":…}, or {"error":{"code","message"}}. A backend may ask for statuses.

import { partsOf } from '../../../protocol/url-parts.js';
import { Call } from '../../../transport/http-api/call.js';
import { ApiFault } from '../../../transport/http-api/fault.js';
import { KeyRing, MAX_SECRET_LENGTH } from '../../../transport/http-api/keys.js';
import { RoutedApi } from '../../../transport/http-api/routed-api.js';
import { toAnswer } from './answers.js';
import { routesOf } from './routes.js';

/** As SDKs for Centrifugo 2 to 5 send it. */
const OLD_SCHEME = /^apikey +([\x21-\x7e]+) *$/i;

/** @import { IncomingMessage } from 'node:http' */
/** @import { Answer } from '../../../protocol/refusal.js' */
/** @import { ApiServices } from './method.js' */
/** @typedef {NonNullable<ApiServices['config']['centrifugo']>} CentrifugoSettings */

/** @param {string} path as received, without the query @param {string} base the configured path */
export function isApiPath(path, base) {
  return path.startsWith(`${base}/`) || path === base;
}

/** @extends {RoutedApi<Call>} */
export class CentrifugoApi extends RoutedApi {
  /** @param {ApiServices} parts */
  constructor({ meters, ...services }) {
    const { apiPath, apiKeyHashes } = /** @type {CentrifugoSettings} */ (
      services.config.centrifugo
    );
    const routes = routesOf(apiPath, { ...services, counters: meters.counters });
    super({ api: 'centrifugo', services, meters, holders: apiKeyHashes.length, routes, toAnswer });
    this.keys = new KeyRing(
      apiKeyHashes.map((hash, index) => ({
        name: String(index + 1),
        hash,
        rights: [],
        rooms: null,
        app: null,
      })),
    );
  }

  /** @param {IncomingMessage} request @param {boolean} hasBody @returns {Call|Answer} or refuses */
  begin(request, hasBody) {
    const key = this.keys.findSecret(secretOf(request));
    if (key === null) return this.refuseKey(request, unauthorized());
    const refused = this.limit(key, request, hasBody);
    if (refused !== null) return refused;
    return new Call(this.meters, request, key);
  }
}

/** @param {IncomingMessage} request @returns {string} '' if there is none, or it is too long */
function secretOf({ headers, url = '' }) {
  const header = headers['x-api-key'];
  const secret =
    (typeof header === 'string' ? header : undefined) ??
    OLD_SCHEME.exec(headers.authorization ?? '')?.[1] ??
    new URLSearchParams(partsOf(url).query).get('api_key') ??
    '';
  return secret.length <= MAX_SECRET_LENGTH ? secret : '';
}

function unauthorized() {
  return new ApiFault('UNAUTHORIZED', { message: 'unauthorized: X-API-Key is not a valid key' });
}
