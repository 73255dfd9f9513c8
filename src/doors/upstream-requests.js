// upstream-requests.js: messages that clients of streams send in separate requests. All doors with
// such streams share it.
//
//   POST <session, worker, messages> -> the worker, perhaps of another server
//     -> the stream with the session (hub/upstreams.js) -> 204
//
// Only the client knows its session, so nothing else authenticates it. Messages count against the
// limits of their connection. A wrong session costs as much as a new connection, so guessing is
// slow. Open requests are bounded, and do not use the places of back ends. At the bound, the
// address with the most unfinished bodies loses its oldest, so slow senders shut out nobody else.

import { createAddressResolver } from '../admission/address.js';
import { createOriginCheck } from '../admission/origin.js';
import { numberText, refusal, toHttp } from '../protocol/refusal.js';
import { createCorsHeaders, preflightAnswer } from '../transport/cors.js';
import { Crowd } from '../transport/crowd.js';
import { respond } from '../transport/http-answers.js';
import { readBody } from '../transport/http-api/body.js';
import { whenOver } from '../transport/http-api/requests.js';

/** Open requests. With their bodies they take at most 64 MB. */
const MAX_REQUESTS = 1000;

/** @import { Answer, Refusal } from '../protocol/refusal.js' */
/** @import { Headers } from '../transport/cors.js' */
/** @import { Group } from '../transport/crowd.js' */
/** @import { Api, ApiCall } from '../transport/route.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { DoorServices } from './contract.js' */

/** What a request brings; null: malformed. @typedef {(body: Buffer) => {node: string, session: string, data: Buffer}|null} ReadUpstream */

/** How a request has ended. @typedef {keyof import('../observability/counters.js').Counters['emulation']} Outcome */

/** A request under way. @implements {ApiCall} */
class Call {
  isOfClient = true;
  isLast = false;
  /** Its body is incomplete: where it is in the crowd. @type {Group<Call>|null} */
  group = null;
  /** Answers without reading the rest of the body. @type {(answer: Answer) => void} */
  onCut = () => {};
  isCut = false;

  /** @param {string} address @param {Headers} headers of its answer @param {ReadUpstream} read */
  constructor(address, headers, read) {
    this.address = address;
    this.headers = headers;
    this.read = read;
  }

  /** @param {Answer} answer */
  cut(answer) {
    if (this.isCut) return;
    this.isCut = true;
    this.onCut(answer);
  }

  endConnection() {
    this.isLast = true;
  }
}

/** @implements {Api} */
export class UpstreamRequests {
  /** @type {Set<Call>} */
  #underWay = new Set();
  /** Those whose bodies are incomplete. @type {Crowd<Call>} */
  #sending = new Crowd();
  maxRequests = MAX_REQUESTS;

  /**
   * @param {Pick<DoorServices, 'config'|'counters'|'api'>} services
   * @param {(headers: import('node:http').IncomingHttpHeaders) => ReadUpstream} readerOf
   * @param {number} maxBodyBytes
   */
  constructor({ config, api: { fleet }, counters }, readerOf, maxBodyBytes) {
    this.readerOf = readerOf;
    this.maxBodyBytes = maxBodyBytes;
    this.fleet = fleet;
    this.counters = counters;
    this.corsHeaders = createCorsHeaders(config.allowedOrigins, true);
    this.isOriginAllowed = createOriginCheck(config.allowedOrigins);
    this.addressOf = createAddressResolver(config.trustProxy);
  }

  /** Unanswered requests. */
  get underWay() {
    return this.#underWay.size;
  }

  /** @param {IncomingMessage} request @param {boolean} hasBody @returns {Call|Answer} */
  begin(request, hasBody) {
    const { method, headers } = request;
    const common = this.corsHeaders(request);
    if (method === 'OPTIONS') return preflightAnswer(common, 'POST', 'Content-Type');
    if (method !== 'POST') {
      const answer = this.#answerRefused(
        'malformed',
        common,
        refusal('method_not_allowed', 'Only POST.'),
      );
      return { ...answer, headers: { ...answer.headers, Allow: 'POST, OPTIONS' } };
    }
    // As for the stream whose commands these are.
    if (!this.isOriginAllowed(headers.origin))
      return this.#answerRefused('malformed', common, refusal('origin'));
    if (!hasBody) return this.#answerRefused('malformed', common, NO_COMMANDS);
    if (headers['content-encoding'] !== undefined)
      return this.#answerRefused('malformed', common, refusal('UNSUPPORTED_MEDIA_TYPE'));
    if (Number(headers['content-length'] ?? 0) > this.maxBodyBytes)
      return this.#answerRefused('malformed', common, this.#tooLarge());
    if (this.#underWay.size >= this.maxRequests && !this.#makeRoom())
      return this.#answerRefused('unavailable', common, refusal('service_unavailable'));
    return new Call(this.addressOf(request), common, this.readerOf(headers));
  }

  /** @returns {boolean} false: all requests have their bodies, and will be answered soon */
  #makeRoom() {
    const call = this.#sending.oldest();
    if (call === undefined) return false;
    this.#over(call);
    call.cut(this.#answerRefused('unavailable', call.headers, refusal('service_unavailable')));
    return true;
  }

  /** @param {Call} call whose body is complete, or not awaited any more */
  #received(call) {
    if (call.group !== null) this.#sending.delete(call, call.group);
    call.group = null;
  }

  /** @param {Call} call */
  #over(call) {
    this.#received(call);
    this.#underWay.delete(call);
  }

  /**
   * @param {Call} call @param {IncomingMessage} request @param {ServerResponse} response
   * @param {(answer: Answer) => void} onCut
   */
  handle(call, request, response, onCut) {
    this.#underWay.add(call);
    call.onCut = onCut;
    call.group = this.#sending.add(call, call.address);
    whenOver(response, () => this.#over(call));
    readBody(
      request,
      this.maxBodyBytes,
      (body) => {
        this.#received(call);
        if (!call.isCut) this.#deliver(call, body, response);
      },
      (reason) => {
        this.#received(call);
        const fault = reason === 'body_size' ? this.#tooLarge() : refusal('REQUEST_TIMEOUT');
        if (reason !== 'gone' && !call.isCut)
          call.cut(this.#answerRefused('malformed', call.headers, fault));
      },
    );
  }

  /** @param {Call} call @param {Buffer} body @param {ServerResponse} response */
  async #deliver(call, body, response) {
    const upstream = call.read(body);
    if (upstream === null)
      return send(call, response, this.#answerRefused('malformed', call.headers, NO_COMMANDS));
    const { node, session, data } = upstream;
    const outcome = await this.fleet.deliver(node, session, data).then(
      (isDelivered) => (isDelivered ? 'delivered' : 'unknown'),
      () => /** @type {const} */ ('unavailable'),
    );
    if (outcome === 'delivered') {
      this.counters.emulation.delivered++;
      send(call, response, { status: 204, headers: call.headers, body: '' });
    } else if (outcome === 'unknown') {
      call.endConnection();
      send(call, response, this.#answerRefused('unknown', call.headers, refusal('not_found')));
    } else {
      const refused = refusal('service_unavailable');
      send(call, response, this.#answerRefused('unavailable', call.headers, refused));
    }
  }

  #tooLarge() {
    const text = `The body is over the limit of ${numberText(this.maxBodyBytes)} bytes.`;
    return refusal('BODY_TOO_LARGE', text);
  }

  /** @param {Outcome} outcome @param {Headers} common @param {Refusal} refused @returns {Answer} */
  #answerRefused(outcome, common, refused) {
    this.counters.emulation[outcome]++;
    const { status, headers, body } = toHttp(refused);
    return { status, headers: { ...common, ...headers }, body };
  }
}

const NO_COMMANDS = refusal('bad_request', 'The body must have session, node and data.');

/** @param {Call} call @param {ServerResponse} response @param {Answer} answer */
function send({ isLast }, response, { status, headers, body }) {
  respond(response, status, isLast ? { ...headers, Connection: 'close' } : headers, body);
}
