// http-api.js: the HTTP API for backends, behind the public port.
//
//   http-server.js -> begin: key, rate, room for one more, kind of body -> the body -> express -> route
//
// `begin` decides from the head alone, so a request without a valid key is refused unread.
// requests.js bounds those under way.

import { quoted, toHttp } from '../../protocol/refusal.js';
import { audited } from './audited.js';
import { isJson } from './body.js';
import { Call } from './call.js';
import { ApiFault, faultOf } from './fault.js';
import { KeyRing, unauthorized } from './keys.js';
import { PublishRoutes } from './publish.js';
import { ClientGone, hasRawBody, isMediaType, rawBody } from './raw-body.js';
import { unavailable } from './requests.js';
import { RoutedApi } from './routed-api.js';
import { routesOf } from './routes.js';

/** @import { Answer } from '../http-answers.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Refused } from './requests.js' */

/** @extends {RoutedApi<Call>} */
export class HttpApi extends RoutedApi {
  /** @param {import('./call.js').Services & import('./call.js').Meters} parts */
  constructor({ take, observe, audit, addressOf, overText, ...services }) {
    const { config, counters } = services;
    const keys = new KeyRing(config.apiKeys, config.pusher?.byId);
    const publish = new PublishRoutes(services);
    super({
      services,
      api: 'http',
      meters: { take, observe, counters, audit, addressOf, overText },
      holders: keys.keys.length,
      routes: routesOf(services, publish).map(permitted),
      toAnswer: toHttp,
    });
    this.keys = keys;
    this.publish = publish;
    this.blobs = services.blobs;
    this.log = services.log;
  }

  /** @param {IncomingMessage} request @param {boolean} hasBody @returns {Call|Answer} or refuses */
  begin(request, hasBody) {
    const key = this.keys.findByHeader(request.headers.authorization);
    if (key === null) return this.refuseKey(request, unauthorized(request.headers));
    if (!key.isUsable) return this.refuseKey(request, disabled());
    const refused = this.requests.admitRequest(key);
    if (refused !== null) return this.refuse(refused);
    const call = new Call(this.meters, request, key);
    const unfit = hasRawBody(request) ? this.#takeRaw(call, request) : null;
    if (unfit !== null) return this.refuse(unfit);
    if (!call.isRaw && hasBody && !isJson(request)) return this.refuse(untyped(request));
    const large = this.requests.admitLength(request, call.isRaw ? this.blobs?.maxBytes : undefined);
    return large === null ? call : this.refuse(large);
  }

  /** @param {Call} call @param {IncomingMessage} request with it as body @returns {Refused|null} */
  #takeRaw(call, request) {
    const { headers } = request;
    if (this.blobs === null) return { reason: 'media_type', fault: new ApiFault('NO_BUCKET') };
    if (this.blobs.isBusy) return unavailable('busy', 'too many uploads are under way');
    call.takeRawBody();
    const type = headers['content-type'];
    const isTyped = type === undefined || isMediaType(type);
    return isTyped && headers['content-encoding'] === undefined ? null : untyped(request);
  }

  /**
   * @override
   * @param {Call} call @param {IncomingMessage} request @param {ServerResponse} response
   * @param {(answer: Answer) => void} onCut
   * @param {import('./raw-body.js').BodyFlow} flow of the request's socket
   * @param {() => void} onUnread
   */
  handle(call, request, response, onCut, flow, onUnread) {
    if (!call.isRaw) return super.handle(call, request, response, onCut, flow, onUnread);
    const leave = this.requests.enter(call, response, onUnread);
    const body = rawBody(request, flow);
    this.#publishRaw(call, body, request, response).then((answer) => {
      body.destroy();
      if (answer === null) return;
      leave();
      onCut(answer);
    });
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
}

function disabled() {
  return new ApiFault('PERMISSION_DENIED', { message: 'The app of the API key is disabled.' });
}

/** @param {IncomingMessage} request @returns {Refused} */
function untyped({ headers }) {
  const { 'content-type': type = '', 'content-encoding': encoding } = headers;
  const message =
    encoding === undefined
      ? `The header Content-Type is ${quoted(type)}, not application/json.`
      : `The header Content-Encoding is ${quoted(encoding)}: send the body without one.`;
  return { reason: 'media_type', fault: new ApiFault('UNSUPPORTED_MEDIA_TYPE', { message }) };
}

/** @param {import('./routes.js').Route} route */
function permitted({ right, handle, ...route }) {
  return {
    ...route,
    handle: (/** @type {Call} */ call) =>
      audited(call, route.name, async () => {
        call.key.requireRight(right);
        return handle(call);
      }),
  };
}
