// plain-http.js: answers plain HTTP on the public port: health checks, the HTTP API and stray
// requests. It decides how long a socket is kept alive.

import { toHttp } from '../protocol/refusal.js';
import { CLOSED, discard, HANDSHAKE } from './accepted-socket.js';
import { hasBody } from './handshake.js';
import { askForBody, plainAnswer, requestFault, respond, responseText } from './http-answers.js';
import { forPerson } from './start-page.js';

/** After so many requests, or this time, plain HTTP closes a kept-alive socket. */
const MAX_REQUESTS = 100;
const MAX_AGE_MS = 60_000;
/** A socket with a valid API key is closed at the first answer after this time. */
const MAX_API_AGE_MS = 600_000;

/** @import { Exchange, TrackedSocket } from './accepted-socket.js' */
/** @import { Answer } from './http-answers.js' */
/** @import { Api, ApiCall, Route, Streams } from './route.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */

export class PlainHttp {
  /**
   * @param {object} parts
   * @param {Pick<import('../admission/admission.js').Admission, 'admitPeer'>} parts.admission
   * @param {Api|null} parts.api null if no API keys are configured
   * @param {(route: Route) => Streams|null} parts.streamsOf
   * @param {(request: IncomingMessage) => import('../protocol/refusal.js').Refusal} parts.notFound
   * @param {() => string|null} parts.readiness null if ready; otherwise the reason
   * @param {{readonly isRetired: boolean}} parts.phase if retired, each answer is the last of its
   *   socket
   * @param {import('./idle-sockets.js').IdleSockets} parts.idle
   * @param {import('./last-answers.js').LastAnswers} parts.answers
   * @param {Pick<import('../observability/counters.js').Counters, 'refused'>} parts.counters
   */
  constructor({ admission, api, notFound, streamsOf, readiness, phase, idle, answers, counters }) {
    this.admission = admission;
    this.api = api;
    this.notFound = notFound;
    this.streamsOf = streamsOf;
    this.readiness = readiness;
    this.phase = phase;
    this.idle = idle;
    this.answers = answers;
    this.counters = counters;
  }

  /**
   * @param {IncomingMessage} request @param {Route} route @param {ServerResponse} response
   * @param {TrackedSocket} socket that neither waits nor is idle
   * @param {Exchange} http the socket's
   */
  request(request, route, response, socket, http) {
    const handshake = socket[HANDSHAKE];
    handshake.serve();
    const isFirst = http.isFirstRequest();
    let apiRefusal = null;
    const api = route.name === 'api' ? this.#apiOf(route, request) : null;
    if (api !== null) {
      apiRefusal = requestFault(request);
      if (apiRefusal === null) {
        const call = api.begin(request, hasBody(request));
        if (!('status' in call)) return this.#call(call, api, request, response, socket, http);
        apiRefusal = call;
      }
    }
    // The connection itself has paid the token of the first request.
    const refused = isFirst ? null : this.admission.admitPeer(handshake.address);
    const given =
      refused === null
        ? (apiRefusal ?? this.#answerOf(request, route, this.streamsOf(route)))
        : toHttp(refused);
    // Clients of the API read the refusal of a body that they are still sending.
    if (apiRefusal !== null && hasBody(request) && http.calls === 0)
      return this.#cutShort(socket, given);
    const isLast =
      this.phase.isRetired ||
      refused !== null ||
      http.requests >= MAX_REQUESTS ||
      performance.now() - http.sinceMs >= MAX_AGE_MS ||
      // The previous answer is not sent yet: one turn must not answer all pipelined requests.
      response.socket === null ||
      hasBody(request);
    const { status, headers, body } = given;
    respond(response, status, isLast ? { Connection: 'close', ...headers } : headers, body);
    // Node decides with the headers: it closes if it refuses a body that the client announced with
    // `Expect` (RFC 9110 10.1.1), and no request after such an answer counts (RFC 9112 9.6).
    http.endAfter(isLast || headers.Connection !== undefined || !response.shouldKeepAlive);
    if (!http.isEnding) this.idle.addPlain(socket);
    else if (http.calls === 0) this.answers.linger(socket); // no earlier answer is under way
  }

  /** @param {Route} route @param {IncomingMessage} request @returns {Api|null} */
  #apiOf({ door }, request) {
    if (door === null) return this.api;
    return door.apiFor === undefined ? door.api : door.apiFor(request);
  }

  /** @param {IncomingMessage} request @param {Route} route @param {Streams|null} streams */
  #answerOf(request, route, streams) {
    const { health, notFound } = this;
    const given = plainAnswer(request, route, { health, notFound, streams });
    // A load balancer may not forward `Upgrade`, for example.
    if (given.status >= 400 && given.status < 500) this.counters.refused.bad_request++;
    return forPerson(request, given);
  }

  /** A health check. @param {'livez'|'readyz'} route @returns {Answer} */
  health = (route) => {
    const reason = route === 'livez' ? null : this.phase.isRetired ? 'draining' : this.readiness();
    if (reason === null) return { status: 200, headers: {}, body: '{"status":"ok"}' };
    return { status: 503, headers: {}, body: JSON.stringify({ status: 'unavailable', reason }) };
  };

  /**
   * Passes a request to an HTTP API, which has limits by key.
   * @param {ApiCall} call @param {Api} api @param {IncomingMessage} request
   * @param {ServerResponse} response @param {TrackedSocket} socket @param {Exchange} http
   */
  #call(call, api, request, response, socket, http) {
    const isLast =
      this.phase.isRetired ||
      response.socket === null || // pipelined
      performance.now() - http.sinceMs >= MAX_API_AGE_MS;
    if (isLast) call.endConnection();
    http.endAfter(isLast || !response.shouldKeepAlive);
    http.called(request);
    const isOfClient = call.isOfClient === true;
    response.on('close', () => this.#called(socket, http, isOfClient));
    askForBody(request, response);
    const onCut = (/** @type {Answer} */ given) => this.#cutShort(socket, given);
    const onUnread = () => discard(socket);
    api.handle(call, request, response, onCut, flowOf(socket), onUnread);
  }

  /** @param {TrackedSocket} socket @param {Exchange} http @param {boolean} isOfClient */
  #called(socket, http, isOfClient) {
    if (!http.answered() || socket[HANDSHAKE].phase === CLOSED || socket.destroyed) return;
    if (http.isEnding || this.phase.isRetired) return this.answers.linger(socket);
    if (isOfClient) this.idle.addClient(socket);
    else this.idle.addBackend(socket);
  }

  /** A request is refused, its body unread. @param {TrackedSocket} socket @param {Answer} given */
  #cutShort(socket, { status, headers, body }) {
    // A pipelined request cannot be answered before the one ahead of it.
    const { http } = socket[HANDSHAKE];
    if (http !== null && http.calls > 1) return discard(socket);
    this.answers.answer(socket, lastText(status, headers, body));
  }
}

/** @param {number} status @param {Readonly<Record<string, string>>} headers @param {string} body */
function lastText(status, headers, body) {
  return responseText(status, { 'Cache-Control': 'no-store', ...headers }, body);
}

/**
 * Stops and continues the reads of a socket. The bytes of the present read are still parsed.
 * @param {TrackedSocket} socket @returns {import('./http-api/raw-body.js').BodyFlow}
 */
function flowOf(socket) {
  let isPaused = false;
  return {
    pause() {
      isPaused = true;
      process.nextTick(() => {
        if (isPaused) socket.pause();
      });
    },
    resume() {
      if (isPaused) socket.resume();
      isPaused = false;
    },
  };
}
