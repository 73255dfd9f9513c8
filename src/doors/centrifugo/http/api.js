// api.js: Centrifugo's server API, for backends.
//
//   http-server.js -> begin: key, rate, place -> the body -> express -> POST {path}/{method}
//
// A request without a valid key is refused unread. Others are answered with status 200, as in
// Centrifugo: {"result":…}, or {"error":{"code","message"}}. A backend may ask for statuses.

import { createApp } from '../../../transport/http-api/app.js';
import { Call } from '../../../transport/http-api/call.js';
import { ApiFault } from '../../../transport/http-api/fault.js';
import { KeyRing, MAX_SECRET_LENGTH } from '../../../transport/http-api/keys.js';
import { Requests } from '../../../transport/http-api/requests.js';
import { toAnswer } from './answers.js';
import { routesOf } from './routes.js';

/** As SDKs for Centrifugo 2 to 5 send it. */
const OLD_SCHEME = /^apikey +([\x21-\x7e]+) *$/i;

/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Answer } from '../../../protocol/refusal.js' */
/** @import { Refused } from '../../../transport/http-api/requests.js' */
/** @import { ApiServices } from './method.js' */

/**
 * Is this a path of the API?
 * @param {string} path as received, without the query
 * @param {string} base the configured path
 */
export function isApiPath(path, base) {
  return path.startsWith(`${base}/`) || path === base;
}

export class CentrifugoApi {
  #app;
  /** @type {WeakMap<IncomingMessage, Call>} */
  #calls = new WeakMap();

  /** @param {ApiServices} services */
  constructor({ meters, ...services }) {
    const { config, log } = services;
    const { apiPath, apiKeyHashes } = /** @type {NonNullable<typeof config.centrifugo>} */ (
      config.centrifugo
    );
    this.meters = meters;
    this.keys = new KeyRing(
      apiKeyHashes.map((hash) => ({ name: '', hash, rights: [], rooms: null })),
    );
    this.requests = new Requests({ ...services, ...meters }, apiKeyHashes.length);
    const callOf = (/** @type {IncomingMessage} */ request) =>
      /** @type {Call} */ (this.#calls.get(request));
    const routes = routesOf(apiPath, { ...services, counters: meters.counters });
    this.#app = createApp(routes, { callOf, toAnswer, log });
  }

  /**
   * Decides from the head of a request.
   * @param {IncomingMessage} request @param {boolean} hasBody
   * @returns {Call|Answer} an answer refuses the request
   */
  begin(request, hasBody) {
    const key = this.keys.findSecret(secretOf(request));
    if (key === null) return this.#refuse({ reason: 'key', fault: unauthorized() });
    const refused = this.requests.admit(key) ?? this.requests.admitLength(request);
    if (refused !== null) return this.#refuse(refused);
    if (hasBody && request.headers['content-encoding'] !== undefined)
      return this.#refuse(encoded());
    return new Call(this.meters, request, key);
  }

  /**
   * Reads the body, and has the request answered.
   * @param {Call} call @param {IncomingMessage} request @param {ServerResponse} response
   * @param {(answer: Answer) => void} onCut called instead of an answer if the body is refused
   *   before its end
   * @param {unknown} _flow
   * @param {() => void} onUnread closes the socket: the client does not take the answer
   */
  handle(call, request, response, onCut, _flow, onUnread) {
    const leave = this.requests.enter(call, response, onUnread);
    this.requests.readBody(
      request,
      leave,
      (body) => {
        call.received(body);
        this.#calls.set(request, call);
        this.#app(
          /** @type {import('express').Request} */ (request),
          /** @type {import('express').Response} */ (response),
        );
      },
      (refused) => onCut(this.#refuse(refused)),
    );
  }

  /** Waits for the requests under way. @param {number} timeoutMs @returns {Promise<void>} */
  drain(timeoutMs) {
    return this.requests.drain(timeoutMs);
  }

  /** @param {Refused} refused @returns {Answer} */
  #refuse({ reason, fault }) {
    const answer = toAnswer(fault);
    this.requests.countRefused(reason, answer.status);
    return answer;
  }
}

/** @param {IncomingMessage} request @returns {string} '' if there is none, or it is too long */
function secretOf({ headers, url = '' }) {
  const header = headers['x-api-key'];
  const mark = url.indexOf('?');
  const secret =
    (typeof header === 'string' ? header : undefined) ??
    OLD_SCHEME.exec(headers.authorization ?? '')?.[1] ??
    (mark < 0 ? undefined : new URLSearchParams(url.slice(mark)).get('api_key')) ??
    '';
  return secret.length <= MAX_SECRET_LENGTH ? secret : '';
}

function unauthorized() {
  return new ApiFault('UNAUTHORIZED', { message: 'unauthorized: X-API-Key is not a valid key' });
}

/** @returns {Refused} */
function encoded() {
  const message = 'The body must not have a content encoding.';
  return { reason: 'media_type', fault: new ApiFault('UNSUPPORTED_MEDIA_TYPE', { message }) };
}
