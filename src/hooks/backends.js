// backends.js: hooks that are asked over HTTP, as functions like those of a file.
//
//   question -> kept answer?  -> the answer, without a request
//            -> paused?       -> refused
//            -> signed POST   -> 200 with JSON, or 204: the answer; anything else: refused
//
// hooks.js bounds the calls under way, in line and in time, and reads the answers, for both kinds.
// This file bounds what a backend can cost: the bytes of an answer, and requests while it fails.

import { randomUUID } from 'node:crypto';
import { AddressGuard } from '../outgoing/addresses.js';
import { Poster, PostFailure } from '../outgoing/poster.js';
import { isPayload, MAX_PAYLOAD_DEPTH } from '../protocol/decode.js';
import { signedHeaders } from '../protocol/webhook-signature.js';
import { AnswerError, HookError, readAnswer } from './answer.js';
import { AnswerCache } from './answer-cache.js';
import { BackendPause } from './pause.js';
import { nameOfQuestion, questionOf } from './question.js';

/** Longer than any answer without a payload, unless `data` is large. */
const MAX_ANSWER_BYTES = 16_384;
/** An answer with a payload may be escaped: PHP writes é as \u00e9. */
const MAX_ESCAPES = 4;
/** A header of an answer: for how many seconds it may be used again. */
const CACHE_HEADER = 'fanfare-cache-seconds';
const MAX_CACHE_S = 3600;
/** The hooks whose answers may be kept. @type {ReadonlySet<HookName>} */
const KEPT = new Set(['onConnect', 'onJoin']);
/**
 * A backend with these takes no requests now. Others may depend on what a client has sent, and one
 * client must not pause the backend for all.
 */
const OVERLOADED = new Set([429, 502, 503, 504]);

/** Why a call without an answer failed. */
const REASONS = /** @type {const} */ ({
  refused: 'unreachable',
  unreachable: 'unreachable',
  late: 'timeout',
  malformed: 'answer',
});

/** @import { IncomingMessage } from 'node:http' */
/** @import { HookBackendSettings, HookSettings } from '../config/hooks.js' */
/** @import { HookName } from '../observability/counters.js' */
/** @import { Question } from './question.js' */

/**
 * @typedef {object} BackendParts
 * @property {number} maxPayloadBytes of a changed payload or a result
 * @property {number} timeoutMs of a call, with its time in line
 * @property {import('../observability/counters.js').HookCounters} counters
 * @property {Pick<import('pino').Logger, 'info'|'error'>} log
 */

/**
 * @param {Pick<HookSettings, 'backends'|'publicOnly'>} settings @param {BackendParts} parts
 * @returns {import('./types.js').Hooks}
 */
export function backendHooks({ backends, publicOnly }, parts) {
  const cache = new AnswerCache(parts.counters.cache);
  return Object.fromEntries(
    backends.flatMap((settings) => {
      const backend = new HookBackend(settings, publicOnly, cache, parts);
      return settings.hooks.map((hook) => [
        hook,
        (/** @type {any[]} */ ...args) => backend.call(hook, args),
      ]);
    }),
  );
}

class HookBackend {
  /**
   * @param {HookBackendSettings} settings @param {boolean} publicOnly @param {AnswerCache} cache
   * @param {BackendParts} parts
   */
  constructor({ url, secrets, headers }, publicOnly, cache, parts) {
    const { maxPayloadBytes, timeoutMs, counters, log } = parts;
    this.url = url;
    this.secrets = secrets;
    this.headers = headers;
    this.cache = cache;
    this.maxPayloadBytes = maxPayloadBytes;
    this.timeoutMs = timeoutMs;
    /** Without the path and the query, which may have secrets. */
    this.origin = new URL(url).origin;
    this.pause = new BackendPause({ origin: this.origin, counters, log });
    const privateOnly = url.startsWith('http:');
    this.poster = new Poster({
      guard: new AddressGuard({ publicOnly, privateOnly }),
      userAgent: 'fanfare-hooks',
      maxAnswerBytes: this.#maxBytesOf('onPublish'),
    });
  }

  /** @param {HookName} hook */
  #maxBytesOf(hook) {
    const hasPayload = hook === 'onPublish' || hook === 'onRpc';
    return MAX_ANSWER_BYTES + (hasPayload ? MAX_ESCAPES * this.maxPayloadBytes : 0);
  }

  /**
   * @param {HookName} hook @param {any[]} args with the context
   * @returns {unknown} the answer, for readAnswer; a promise if a request is needed
   * @throws {HookError}
   */
  call(hook, args) {
    const question = questionOf(hook, args, this.headers);
    const name = KEPT.has(hook) ? nameOfQuestion(question) : '';
    const kept = name === '' ? undefined : this.cache.find(name);
    if (kept !== undefined) return this.#read(hook, kept);
    if (!this.pause.begin()) throw new HookError('paused', `${this.origin} has failed repeatedly`);
    return this.#ask(question, name, args.at(-1).signal);
  }

  /** @param {Question} question @param {string} name @param {AbortSignal} signal */
  async #ask(question, name, signal) {
    const beganMs = performance.now();
    let status = 0;
    try {
      const response = await this.#post(JSON.stringify(question), signal);
      status = response.statusCode ?? 0;
      const body = await this.#bodyOf(response, this.#maxBytesOf(question.hook), signal);
      const text = this.#textOf(question.hook, response, body);
      const answer = this.#read(question.hook, text);
      const seconds = name === '' ? 0 : cacheSecondsOf(response);
      if (seconds > 0) {
        // A fault is not kept: the next call asks a backend that may have been corrected.
        readAnswer(question.hook, answer, this.maxPayloadBytes);
        this.cache.keep(name, text, seconds);
      }
      this.pause.end(true);
      return answer;
    } catch (error) {
      const { reason, message } = /** @type {HookError} */ (error);
      // If the line has left it little time, that is not the backend's fault.
      const wasCut = reason === 'timeout' && performance.now() - beganMs < this.timeoutMs / 2;
      // Pauses do not cure answers that are wrong.
      const isAnswered = reason === 'answer' || (reason === 'status' && !OVERLOADED.has(status));
      if (!wasCut) this.pause.end(isAnswered, message);
      throw error;
    }
  }

  /** @param {string} body @param {AbortSignal} signal @returns {Promise<IncomingMessage>} */
  async #post(body, signal) {
    const id = `hook_${randomUUID()}`;
    const headers = signedHeaders(this.secrets, id, body, Math.floor(Date.now() / 1000));
    try {
      return await this.poster.post(this.url, { body, headers, signal });
    } catch (error) {
      if (!(error instanceof PostFailure)) throw error;
      throw new HookError(REASONS[error.kind], `${this.origin}: ${error.message}`);
    }
  }

  /**
   * @param {IncomingMessage} response @param {number} maxBytes
   * @param {AbortSignal} signal of the request, which bounds the time of the body, too
   * @returns {Promise<string>}
   */
  #bodyOf(response, maxBytes, signal) {
    return new Promise((resolve, reject) => {
      /** @type {Buffer[]} */
      const parts = [];
      let bytes = 0;
      response.on('data', (/** @type {Buffer} */ part) => {
        bytes += part.length;
        parts.push(part);
        if (bytes <= maxBytes) return;
        reject(new AnswerError(`${this.origin} answered with more than ${maxBytes} bytes`));
        response.destroy();
      });
      response.on('end', () => resolve(String(Buffer.concat(parts))));
      response.on('error', () => {}); // 'close' follows
      response.on('close', () => {
        const reason = signal.aborted ? 'timeout' : 'unreachable';
        if (!response.complete)
          reject(new HookError(reason, `${this.origin} did not finish its answer`));
      });
    });
  }

  /** @param {HookName} hook @param {IncomingMessage} response @param {string} body @returns {string} */
  #textOf(hook, { statusCode }, body) {
    if (statusCode === 204 || (statusCode === 200 && hook === 'onDisconnect')) return 'true';
    if (statusCode === 200) return body;
    throw new HookError('status', `${this.origin} answered with status ${statusCode}`);
  }

  /** @param {HookName} hook @param {string} text */
  #read(hook, text) {
    // Deeper `data` would have to be written in each later question. A payload has its own check.
    if (hook === 'onConnect' && !isPayload(Buffer.from(text)))
      throw new AnswerError(
        `${this.origin} answered ${hook} with no JSON of at most ${MAX_PAYLOAD_DEPTH} levels`,
      );
    try {
      return JSON.parse(text);
    } catch {
      throw new AnswerError(`${this.origin} answered ${hook} with a text that is not JSON`);
    }
  }
}

/** @param {IncomingMessage} response @returns {number} 0: the answer holds only now */
function cacheSecondsOf({ headers: { [CACHE_HEADER]: value = '0' } }) {
  const seconds =
    typeof value === 'string' && /^\d{1,4}$/.test(value) ? Number(value) : MAX_CACHE_S + 1;
  if (seconds <= MAX_CACHE_S) return seconds;
  throw new AnswerError(`${CACHE_HEADER} is not a number from 0 to ${MAX_CACHE_S}`);
}
