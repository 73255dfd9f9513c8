// api.js: Pusher's HTTP API, for apps' back ends.
//
//   http-server.js -> begin: app, signature, rate, place -> the body, its MD5 -> express -> route
//
// A request without a valid signature is refused unread, and counts for its address like a request
// with an unknown API key.

import { partsOf } from '../../../protocol/url-parts.js';
import { ApiFault } from '../../../transport/http-api/fault.js';
import { RoutedApi } from '../../../transport/http-api/routed-api.js';
import { toAnswer } from './answers.js';
import { AppCall, AppHolder } from './app-call.js';
import { isSignedBody, keyOf, verifyRequest } from './request-signature.js';
import { routesOf } from './routes.js';

const APP_PATH = /^\/apps\/([^/]+)(?:\/|$)/;
/** The Python SDK 3.3 leaves out the app in this path, and signs it so. */
const SHORT_PATH = /^\/users\/[^/]+\/terminate_connections$/;
/** The health check of Laravel Reverb. */
const HEALTH_PATH = '/up';

const NO_KEY = 'auth_key is not the key of an app';

/** @import { IncomingMessage } from 'node:http' */
/** @import { Answer } from '../../../protocol/refusal.js' */
/** @import { ApiServices } from './app-call.js' */

/** Is this a path of the API? @param {string} path without the configured prefix */
export function isApiPath(path) {
  return APP_PATH.test(path) || SHORT_PATH.test(path) || path === HEALTH_PATH;
}

/** @param {string} path without the query @param {string} prefix that may be left out */
export function ownPath(path, prefix) {
  return prefix !== '' && path.startsWith(`${prefix}/`) ? path.slice(prefix.length) : path;
}

/** @extends {RoutedApi<AppCall>} */
export class PusherApi extends RoutedApi {
  /** @param {ApiServices} parts */
  constructor({ meters, counters, ...services }) {
    const { config } = services;
    const { apps, pathPrefix } = /** @type {NonNullable<typeof config.pusher>} */ (config.pusher);
    const routes = routesOf({ ...services, counters: meters.counters, appCounters: counters.apps });
    super({ api: 'pusher', services, meters, holders: apps.length, routes, toAnswer });
    this.readiness = services.readiness;
    this.pathPrefix = pathPrefix;
    this.holders = apps.map((app) => new AppHolder(app));
    this.byId = new Map(this.holders.map((holder) => [holder.app.id, holder]));
    this.byKey = new Map(this.holders.map((holder) => [holder.app.key, holder]));
  }

  /**
   * @param {IncomingMessage} request @param {boolean} hasBody
   * @returns {AppCall|Answer} an answer: a refusal, or the health check
   */
  begin(request, hasBody) {
    const { method = '', url = '' } = request;
    const { path: given, query } = partsOf(url);
    const path = ownPath(given, this.pathPrefix);
    if (path === HEALTH_PATH) return this.#health();
    const holder = this.#holderOf(path, query);
    if (holder === undefined)
      return this.refuseKey(request, SHORT_PATH.test(path) ? unsigned(NO_KEY) : unknownApp());
    const { app } = holder;
    const signed = verifyRequest(app, { method, path, query, hasBody }, Date.now() / 1000);
    if (typeof signed === 'string') return this.refuseKey(request, unsigned(signed));
    if (!app.isEnabled) return this.refuseKey(request, disabled());
    const refused = this.limit(holder, request, hasBody);
    if (refused !== null) return refused;
    request.url = query === '' ? path : `${path}?${query}`;
    return new AppCall(this.meters, request, holder, signed);
  }

  /** @override @type {RoutedApi<AppCall>['received']} */
  received(call, body, request, response) {
    if (isSignedBody(call.signed, body)) return super.received(call, body, request, response);
    const fault = unsigned('body_md5 is not the MD5 of the body');
    const { status, headers, body: text } = toAnswer(fault);
    call.answer(response, status, headers, text);
  }

  /** @param {string} path @param {string} query @returns {AppHolder|undefined} */
  #holderOf(path, query) {
    const id = APP_PATH.exec(path)?.[1];
    return id === undefined ? this.byKey.get(keyOf(query) ?? '') : this.byId.get(id);
  }

  /** @returns {Answer} */
  #health() {
    const reason = this.readiness();
    if (reason === null) return { status: 200, headers: {}, body: '{"health":"OK"}' };
    return { status: 503, headers: {}, body: JSON.stringify({ error: reason, code: 503 }) };
  }
}

function unknownApp() {
  return new ApiFault('NOT_FOUND', { message: 'Unknown app.' });
}

/** @param {string} why */
function unsigned(why) {
  return new ApiFault('UNAUTHORIZED', { message: `Unauthorized: ${why}.` });
}

function disabled() {
  return new ApiFault('PERMISSION_DENIED', { message: 'The app is disabled.' });
}
