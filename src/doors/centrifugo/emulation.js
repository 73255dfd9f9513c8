// emulation.js: commands that clients of streams send in separate requests.
//
//   POST /emulation {"session": S, "node": N, "data": "<commands>"}
//     -> the worker N, perhaps of another server -> the stream with the session S -> 204
//
// Only the client knows its session, so nothing else authenticates it. Commands count against the
// limits of their connection. A wrong session costs as much as a new connection, so guessing is
// slow. Open requests are bounded, and do not use the places of back ends.

import { createOriginCheck } from '../../admission/origin.js';
import { refusal, toHttp } from '../../protocol/refusal.js';
import { createCorsHeaders, preflightAnswer } from '../../transport/cors.js';
import { respond } from '../../transport/http-answers.js';
import { readBody } from '../../transport/http-api/body.js';
import { whenOver } from '../../transport/http-api/requests.js';
import { decodeEmulation as decodeJson } from './codec/json.js';
import { decodeEmulation as decodeProtobuf } from './codec/protobuf.js';
import { isProtobuf, MAX_BODY_BYTES } from './streams.js';

const PATH = '/emulation';
/** Open requests. With their bodies they take at most 64 MB. */
const MAX_REQUESTS = 1000;

/** @import { Answer, Refusal } from '../../protocol/refusal.js' */
/** @import { Headers } from '../../transport/cors.js' */
/** @import { Api, ApiCall } from '../../transport/route.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { DoorServices } from '../contract.js' */

/** How a request has ended. @typedef {keyof import('../../observability/counters.js').Counters['emulation']} Outcome */

/** A request under way. @implements {ApiCall} */
class Call {
  isOfClient = true;
  isLast = false;

  /** @param {Headers} headers of its answer @param {boolean} isBinary */
  constructor(headers, isBinary) {
    this.headers = headers;
    this.isBinary = isBinary;
  }

  endConnection() {
    this.isLast = true;
  }
}

/** @implements {Api} */
export class Emulation {
  /** @type {Set<Call>} */
  #underWay = new Set();

  /** @param {Pick<DoorServices, 'config'|'fleet'|'counters'>} services */
  constructor({ config, fleet, counters }) {
    this.fleet = fleet;
    this.counters = counters;
    this.corsHeaders = createCorsHeaders(config.allowedOrigins, true);
    this.isOriginAllowed = createOriginCheck(config.allowedOrigins);
  }

  /** Unanswered requests. */
  get underWay() {
    return this.#underWay.size;
  }

  /** @param {string} path without the configured prefix */
  isPath(path) {
    return path === PATH;
  }

  /** @param {IncomingMessage} request @param {boolean} hasBody @returns {Call|Answer} */
  begin(request, hasBody) {
    const { method, headers } = request;
    const common = this.corsHeaders(request);
    if (method === 'OPTIONS') return preflightAnswer(common, 'POST', 'Content-Type');
    if (method !== 'POST') {
      const answer = this.#refuse('malformed', common, refusal('method_not_allowed', 'Only POST.'));
      return { ...answer, headers: { ...answer.headers, Allow: 'POST, OPTIONS' } };
    }
    // As for the stream whose commands these are.
    if (!this.isOriginAllowed(headers.origin))
      return this.#refuse('malformed', common, refusal('origin'));
    if (!hasBody) return this.#refuse('malformed', common, NO_COMMANDS);
    if (headers['content-encoding'] !== undefined)
      return this.#refuse('malformed', common, refusal('UNSUPPORTED_MEDIA_TYPE'));
    if (Number(headers['content-length'] ?? 0) > MAX_BODY_BYTES)
      return this.#refuse('malformed', common, TOO_LARGE);
    if (this.#underWay.size >= MAX_REQUESTS)
      return this.#refuse('unavailable', common, refusal('service_unavailable'));
    return new Call(common, isProtobuf(headers));
  }

  /**
   * @param {Call} call @param {IncomingMessage} request @param {ServerResponse} response
   * @param {(answer: Answer) => void} onCut
   */
  handle(call, request, response, onCut) {
    this.#underWay.add(call);
    whenOver(response, () => this.#underWay.delete(call));
    readBody(
      request,
      MAX_BODY_BYTES,
      (body) => this.#deliver(call, body, response),
      (reason) => {
        const fault = reason === 'body_size' ? TOO_LARGE : refusal('REQUEST_TIMEOUT');
        if (reason !== 'gone') onCut(this.#refuse('malformed', call.headers, fault));
      },
    );
  }

  /** @param {Call} call @param {Buffer} body @param {ServerResponse} response */
  async #deliver(call, body, response) {
    const emulated = call.isBinary ? decodeProtobuf(body) : decodeJson(body);
    if (emulated === null)
      return send(call, response, this.#refuse('malformed', call.headers, NO_COMMANDS));
    const { node, session, data } = emulated;
    const outcome = await this.fleet.deliver(node, session, data).then(
      (isDelivered) => (isDelivered ? 'delivered' : 'unknown'),
      () => /** @type {const} */ ('unavailable'),
    );
    if (outcome === 'delivered') {
      this.counters.emulation.delivered++;
      send(call, response, { status: 204, headers: call.headers, body: '' });
    } else if (outcome === 'unknown') {
      call.endConnection();
      send(call, response, this.#refuse('unknown', call.headers, refusal('not_found')));
    } else {
      const refused = refusal('service_unavailable');
      send(call, response, this.#refuse('unavailable', call.headers, refused));
    }
  }

  /** @param {Outcome} outcome @param {Headers} common @param {Refusal} refused @returns {Answer} */
  #refuse(outcome, common, refused) {
    this.counters.emulation[outcome]++;
    const { status, headers, body } = toHttp(refused);
    return { status, headers: { ...common, ...headers }, body };
  }
}

const NO_COMMANDS = refusal('bad_request', 'The body must have session, node and data.');
const TOO_LARGE = refusal('BODY_TOO_LARGE');

/** @param {Call} call @param {ServerResponse} response @param {Answer} answer */
function send({ isLast }, response, { status, headers, body }) {
  respond(response, status, isLast ? { ...headers, Connection: 'close' } : headers, body);
}
