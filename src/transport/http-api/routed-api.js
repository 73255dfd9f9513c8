// routed-api.js: what the HTTP APIs of all doors share: the way of an admitted request, from its
// body to the table of routes, and refusals in the API's own form.

import { createApp } from './app.js';
import { ApiFault } from './fault.js';
import { Requests } from './requests.js';

/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { ApiName } from '../../observability/audit-log.js' */
/** @import { Answer } from '../../protocol/refusal.js' */
/** @import { AppRoute } from './app.js' */
/** @import { Call, Meters, Services } from './call.js' */
/** @import { Holder } from './holder.js' */
/** @import { Refused } from './requests.js' */

/** @template {Call<any>} C */
export class RoutedApi {
  #app;
  /** @type {WeakMap<IncomingMessage, C>} */
  #calls = new WeakMap();
  #toAnswer;

  /**
   * @param {object} parts @param {ApiName} parts.api for the log
   * @param {Pick<Services, 'config'|'phase'|'log'>} parts.services
   * @param {Meters} parts.meters @param {number} parts.holders number of API keys or apps
   * @param {readonly AppRoute<C>[]} parts.routes
   * @param {(fault: ApiFault) => Answer} parts.toAnswer
   */
  constructor({ api, services, meters, holders, routes, toAnswer }) {
    this.api = api;
    this.meters = meters;
    this.requests = new Requests({ ...services, ...meters }, holders);
    this.#toAnswer = toAnswer;
    const callOf = (/** @type {IncomingMessage} */ request) =>
      /** @type {C} */ (this.#calls.get(request));
    this.#app = createApp(routes, { callOf, toAnswer, log: services.log });
  }

  /**
   * Refuses a request above a limit, or with a compressed body.
   * @param {Holder} holder @param {IncomingMessage} request @param {boolean} hasBody
   * @returns {Answer|null}
   */
  limit(holder, request, hasBody) {
    const refused = this.requests.admitRequest(holder) ?? this.requests.admitLength(request);
    if (refused !== null) return this.refuse(refused);
    if (!hasBody || request.headers['content-encoding'] === undefined) return null;
    const message = 'The body must not have a content encoding.';
    const fault = new ApiFault('UNSUPPORTED_MEDIA_TYPE', { message });
    return this.refuse({ reason: 'media_type', fault });
  }

  /**
   * @param {C} call @param {IncomingMessage} request @param {ServerResponse} response
   * @param {(answer: Answer) => void} onCut instead, if the body is refused before its end
   * @param {unknown} _flow
   * @param {() => void} onUnread closes the socket: the client does not take the answer
   */
  handle(call, request, response, onCut, _flow, onUnread) {
    const leave = this.requests.enter(call, response, onUnread);
    this.requests.readBody(
      request,
      leave,
      (body) => this.received(call, body, request, response),
      (refused) => onCut(this.refuse(refused)),
    );
  }

  /**
   * Hands a request with its body to its route. @param {C} call @param {Buffer} body
   * @param {IncomingMessage} request @param {ServerResponse} response
   */
  received(call, body, request, response) {
    call.received(body);
    this.#calls.set(request, call);
    this.#app(
      /** @type {import('express').Request} */ (request),
      /** @type {import('express').Response} */ (response),
    );
  }

  /** A request is refused before it is under way. @param {Refused} refused @returns {Answer} */
  refuse({ reason, fault }) {
    const answer = this.#toAnswer(fault);
    this.requests.countRefused(reason, answer.status);
    return answer;
  }

  /** A request has no valid key. @param {IncomingMessage} request @param {ApiFault} fault */
  refuseKey(request, fault) {
    const { audit, addressOf } = this.meters;
    audit.refused({ api: this.api, address: addressOf(request), reason: fault.message });
    return this.refuse({ reason: 'key', fault });
  }

  /** Waits for the requests under way. @param {number} timeoutMs @returns {Promise<void>} */
  drain(timeoutMs) {
    return this.requests.drain(timeoutMs);
  }
}
