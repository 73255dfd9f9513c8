// http-api.js: the HTTP API for backends, behind the public port.
//
//   http-server.js -> begin: key, rate, room for one more, kind of body -> the body -> express -> route
//
// `begin` decides from the head alone, so a request without a valid key is refused unread. Requests
// under way are bounded in number, and their bodies in size and time. One of several keys has half
// of the places at most.
//
// A request is under way until its client has taken the answer, so places bound the memory of
// answers, too. After maxUnsentAgeMs for each started maxUnsentBytes its socket is closed.

import { toHttp } from '../../protocol/refusal.js';
import { isJson, readBody } from './body.js';
import { Call } from './call.js';
import { ApiFault, faultOf } from './fault.js';
import { KeyRing } from './keys.js';
import { PublishRoutes } from './publish.js';
import { ClientGone, hasRawBody, isMediaType, rawBody } from './raw-body.js';
import { createApp, routesOf } from './routes.js';

/** @import { Answer } from '../http-answers.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @typedef {typeof import('../../observability/counters.js').API_REFUSALS[number]} Reason */

export class HttpApi {
  #app;
  /** @type {WeakMap<IncomingMessage, Call>} */
  #calls = new WeakMap();
  /** Called when no request is under way. @type {(() => void)|null} */
  #onIdle = null;

  /** @param {import('./call.js').Services & import('./call.js').Meters} parts */
  constructor({ take, observe, ...services }) {
    const { config, counters, blobs, phase, log } = services;
    this.phase = phase;
    this.log = log;
    this.blobs = blobs;
    this.counters = counters;
    this.take = take;
    this.meters = { take, observe, counters };
    this.maxRequests = config.apiMaxRequests;
    this.maxBodyBytes = config.apiMaxBodyBytes;
    this.maxUnsentBytes = config.maxUnsentBytes;
    this.maxUnsentAgeMs = config.maxUnsentAgeMs;
    this.keys = new KeyRing(config.apiKeys);
    const isShared = this.keys.keys.length > 1;
    this.maxRequestsPerKey = isShared ? Math.ceil(this.maxRequests / 2) : this.maxRequests;
    this.publish = new PublishRoutes(services);
    this.routes = routesOf(services, this.publish);
    const callOf = (/** @type {IncomingMessage} */ request) =>
      /** @type {Call} */ (this.#calls.get(request));
    this.#app = createApp(this.routes, callOf, log);
  }

  /**
   * Decides from the head of a request.
   * @param {IncomingMessage} request @param {boolean} hasBody
   * @returns {Call|Answer} an answer refuses the request
   */
  begin(request, hasBody) {
    const key = this.keys.find(request.headers.authorization);
    if (key === null) return this.#refuse('key', new ApiFault('UNAUTHORIZED'));
    if (this.phase.isDraining)
      return this.#refuse('draining', unavailable('this server is draining'));
    const retryAfterS = this.take(key.bucket, 1, performance.now());
    if (retryAfterS > 0)
      return this.#refuse('rate', new ApiFault('RATE_LIMIT_EXCEEDED', { retryAfterS }));
    if (this.counters.api.inFlight >= this.maxRequests || key.inFlight >= this.maxRequestsPerKey)
      return this.#refuse('busy', unavailable('too many requests are under way'));
    const call = new Call(this.meters, request, key);
    const { 'content-length': length, 'content-type': type } = request.headers;
    let maxBytes = this.maxBodyBytes;
    let isTyped = !hasBody || isJson(request);
    if (hasRawBody(request)) {
      if (this.blobs === null) return this.#refuse('media_type', new ApiFault('NO_BUCKET'));
      if (this.blobs.isBusy)
        return this.#refuse('busy', unavailable('too many uploads are under way'));
      call.takeRawBody();
      maxBytes = this.blobs.maxBytes;
      isTyped =
        request.headers['content-encoding'] === undefined &&
        (type === undefined || isMediaType(type));
    }
    if (!isTyped) return this.#refuse('media_type', new ApiFault('UNSUPPORTED_MEDIA_TYPE'));
    if (Number(length ?? 0) > maxBytes)
      return this.#refuse('body_size', new ApiFault('BODY_TOO_LARGE'));
    return call;
  }

  /**
   * Reads the body, and has the request answered.
   * @param {Call} call @param {IncomingMessage} request @param {ServerResponse} response
   * @param {(answer: Answer) => void} onCut called instead of an answer if the body is refused
   *   before its end
   * @param {import('./raw-body.js').BodyFlow} flow of the request's socket
   * @param {() => void} onUnread closes the socket: the client does not take the answer
   */
  handle(call, request, response, onCut, flow, onUnread) {
    this.counters.api.inFlight++;
    call.key.enter();
    let isOver = false;
    /** @type {NodeJS.Timeout|undefined} */
    let timer;
    const responseOnClose = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      call.key.leave();
      if (--this.counters.api.inFlight === 0) this.#onIdle?.();
    };
    response.on('close', responseOnClose);
    call.whenUnsent((bytes) => {
      if (isOver) return;
      timer = setTimeout(
        () => {
          this.counters.api.unread++;
          onUnread();
        },
        Math.ceil(bytes / this.maxUnsentBytes) * this.maxUnsentAgeMs,
      );
    });
    if (call.isRaw) {
      const body = rawBody(request, flow);
      this.#publishRaw(call, body, request, response).then((answer) => {
        body.destroy();
        if (answer === null) return;
        responseOnClose();
        onCut(answer);
      });
      return;
    }
    readBody(
      request,
      this.maxBodyBytes,
      (body) => {
        call.received(body);
        this.#calls.set(request, call);
        this.#app(
          /** @type {import('express').Request} */ (request),
          /** @type {import('express').Response} */ (response),
        );
      },
      (reason) => {
        responseOnClose();
        if (reason === 'gone') return;
        const code = reason === 'body_size' ? 'BODY_TOO_LARGE' : 'REQUEST_TIMEOUT';
        onCut(this.#refuse(reason, new ApiFault(code)));
      },
    );
  }

  /**
   * Publishes a body as the payload.
   * @param {Call} call @param {import('node:stream').Readable} body
   * @param {IncomingMessage} request @param {ServerResponse} response
   * @returns {Promise<Answer|null>} a refusal, if the body has not been read to its end
   */
  async #publishRaw(call, body, request, response) {
    call.routed('publish', {});
    try {
      call.answer(response, 200, {}, JSON.stringify(await this.publish.publishRaw(call, body)));
    } catch (error) {
      if (error instanceof ClientGone) return null;
      const answer = toHttp(faultOf(error, this.log));
      if (!request.complete) {
        call.count(answer.status);
        return answer;
      }
      call.answer(response, answer.status, answer.headers, answer.body);
    }
    return null;
  }

  /**
   * Waits for the requests under way. The phase refuses further ones.
   * @param {number} timeoutMs @returns {Promise<void>}
   */
  async drain(timeoutMs) {
    if (this.counters.api.inFlight === 0) return;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
  }

  /** @param {Reason} reason @param {ApiFault} fault @returns {Answer} */
  #refuse(reason, fault) {
    const { api } = this.counters;
    const answer = toHttp(fault);
    api.refused[reason]++;
    api.requests.unknown++;
    api.responses[answer.status]++;
    return answer;
  }
}

/** @param {string} cause */
function unavailable(cause) {
  return new ApiFault('UNAVAILABLE', { message: `Not accepted: ${cause}. Try again.` });
}
