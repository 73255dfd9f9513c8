// requests.js: the requests of an HTTP API that are under way: how many there may be, the sizes of
// their bodies, and how long clients may take for their answers. Each door's API has one.
//
// One of several holders, which are API keys or apps, has half of the places at most. A request is
// under way until its client has taken the answer, so places bound the memory of answers, too.
// After maxUnsentAgeMs for each started maxUnsentBytes its socket is closed.

import { sizeText } from '../../protocol/refusal.js';
import { BODY_TIMEOUT_MS, readBody } from './body.js';
import { ApiFault } from './fault.js';

/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Call, Meters } from './call.js' */
/** @import { Holder } from './holder.js' */
/** @typedef {typeof import('../../observability/counters.js').API_REFUSALS[number]} Reason */
/** Why a request is refused: for the metrics, and for the client. */
/** @typedef {{reason: Reason, fault: ApiFault}} Refused */

export class Requests {
  #underWay = 0;
  /** Called when no request is under way. @type {(() => void)|null} */
  #onIdle = null;

  /**
   * @param {Meters & Pick<import('./call.js').Services, 'config'|'phase'>} parts
   * @param {number} holders number of API keys or apps
   */
  constructor({ config, phase, take, counters, overText }, holders) {
    this.overText = overText;
    this.phase = phase;
    this.take = take;
    this.counters = counters;
    /** The most requests of all APIs of the worker. */
    this.maxRequests = config.apiMaxRequests;
    this.maxRequestsPerHolder = holders > 1 ? Math.ceil(this.maxRequests / 2) : this.maxRequests;
    this.maxBodyBytes = config.apiMaxBodyBytes;
    this.maxUnsentBytes = config.maxUnsentBytes;
    this.maxUnsentAgeMs = config.maxUnsentAgeMs;
  }

  /** @param {Holder} holder of a new request @returns {Refused|null} */
  admitRequest(holder) {
    if (this.phase.isDraining) return unavailable('draining', 'this server is draining');
    const retryAfterS = this.take(holder.bucket, 1, performance.now());
    if (retryAfterS > 0) {
      const details = { retryAfterS, message: this.overText };
      return { reason: 'rate', fault: new ApiFault('RATE_LIMIT_EXCEEDED', details) };
    }
    if (
      this.counters.api.inFlight >= this.maxRequests ||
      holder.inFlight >= this.maxRequestsPerHolder
    )
      return unavailable('busy', 'too many requests are under way');
    return null;
  }

  /** @param {IncomingMessage} request @param {number} [maxBytes] @returns {Refused|null} */
  admitLength({ headers }, maxBytes = this.maxBodyBytes) {
    if (Number(headers['content-length'] ?? 0) <= maxBytes) return null;
    return {
      reason: 'body_size',
      fault: this.#tooLarge(Number(headers['content-length']), maxBytes),
    };
  }

  /** @param {number|null} bytes null: not known @param {number} max of JSON, or of a raw body */
  #tooLarge(bytes, max) {
    const isJson = max === this.maxBodyBytes;
    const setting = isJson ? 'FANFARE_API_MAX_BODY_BYTES' : 'FANFARE_BLOB_MAX_BYTES';
    return new ApiFault('BODY_TOO_LARGE', { message: sizeText('The body', bytes, max, setting) });
  }

  /**
   * The request is under way until its response is closed.
   * @param {Call<any>} call @param {ServerResponse} response
   * @param {() => void} onUnread closes the socket: the client does not take the answer
   * @returns {() => void} ends it before
   */
  enter(call, response, onUnread) {
    const { counters } = this;
    counters.api.inFlight++;
    this.#underWay++;
    call.key.enter();
    let isOver = false;
    /** @type {NodeJS.Timeout|undefined} */
    let timer;
    const leave = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      call.key.leave();
      counters.api.inFlight--;
      if (--this.#underWay === 0) this.#onIdle?.();
    };
    whenOver(response, leave);
    call.whenUnsent((bytes) => {
      if (isOver) return;
      timer = setTimeout(
        () => {
          counters.api.unread++;
          onUnread();
        },
        Math.ceil(bytes / this.maxUnsentBytes) * this.maxUnsentAgeMs,
      );
    });
    return leave;
  }

  /**
   * Reads the body of a request that is under way.
   * @param {IncomingMessage} request @param {() => void} leave as `enter` has returned it
   * @param {(body: Buffer) => void} onBody
   * @param {(refused: Refused) => void} onCut called instead if the body is refused before its end;
   *   neither is called if the client has left
   */
  readBody(request, leave, onBody, onCut) {
    readBody(request, this.maxBodyBytes, onBody, (reason) => {
      leave();
      if (reason === 'gone') return;
      const isLarge = reason === 'body_size';
      onCut({ reason, fault: isLarge ? this.#tooLarge(null, this.maxBodyBytes) : late() });
    });
  }

  /** Counts a request that is refused before it is under way. @param {Reason} reason @param {number} status */
  countRefused(reason, status) {
    const { api } = this.counters;
    api.refused[reason]++;
    api.requests.unknown++;
    api.responses[status]++;
  }

  /** The phase refuses new ones. @param {number} timeoutMs @returns {Promise<void>} */
  async drain(timeoutMs) {
    if (this.#underWay === 0) return;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
  }
}

function late() {
  const message = `The body did not arrive within ${BODY_TIMEOUT_MS / 1000} s.`;
  return new ApiFault('REQUEST_TIMEOUT', { message });
}

/**
 * Calls `act` when a response is over, perhaps twice. A pipelined one may emit nothing at its end.
 * @param {ServerResponse} response @param {() => void} act
 */
export function whenOver(response, act) {
  const { socket } = response.req;
  socket.on('close', act);
  response.on('close', () => {
    socket.removeListener('close', act);
    act();
  });
}

/** @param {Reason} reason @param {string} cause @returns {Refused} */
export function unavailable(reason, cause) {
  const message = `Not accepted: ${cause}. Try again.`;
  return { reason, fault: new ApiFault('UNAVAILABLE', { message }) };
}
