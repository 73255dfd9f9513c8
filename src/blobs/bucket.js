// bucket.js: requests to an S3-compatible bucket: store, look up, read and delete objects.
//
// A request fails if the bucket does not answer, or takes no bytes, for `timeoutMs`. The caller's
// signal bounds the whole request. Nothing is retried, because the body of an upload is consumed.
// Redirects are not followed.

import { request as requestPlain } from 'node:http';
import { request as requestTls } from 'node:https';
import { pipeline } from 'node:stream';
import { BlobError } from './blob-error.js';

/** @import { ClientRequest, IncomingMessage } from 'node:http' */

/** Usually an answer is some lines of XML. */
const MAX_ANSWER_BYTES = 65_536;

/**
 * If the body ends early, `fault` is the reason.
 * @typedef {AsyncIterable<Buffer> & {readonly fault: unknown}} Body
 */

/**
 * @typedef {object} Wanted
 * @property {string} method @property {string} key
 * @property {string} [query] with its question mark
 * @property {Record<string, string>} [headers] @property {Body|Buffer|null} [body]
 * @property {number} [bytes] of the body, if it is not a buffer
 * @property {AbortSignal} signal
 */

export class Bucket {
  /**
   * @param {object} parts
   * @param {string} parts.url @param {import('./signer.js').Signer} parts.signer
   * @param {number} parts.timeoutMs
   * @param {(seconds: number) => void} parts.observe each request
   * @param {(error: BlobError|null) => void} [parts.onOutcome] null: an expected answer
   */
  constructor({ url, signer, timeoutMs, observe, onOutcome = () => {} }) {
    this.url = url;
    this.signer = signer;
    this.timeoutMs = timeoutMs;
    this.observe = observe;
    this.onOutcome = onOutcome;
    this.send = url.startsWith('https:') ? requestTls : requestPlain;
  }

  /**
   * Stores an object, which is visible only if the body is complete.
   * @param {string} key @param {Body|Buffer} body
   * @param {{bytes: number, contentType: string, signal: AbortSignal}} options
   */
  async put(key, body, { bytes, contentType, signal }) {
    const headers = { 'content-type': contentType };
    await this.#do({ method: 'PUT', key, headers, body, bytes, signal }, drainBody);
  }

  /**
   * @param {string} key @param {AbortSignal} signal
   * @returns {Promise<{bytes: number, sha256: string|null, contentType: string}|null>} null if
   *   there is no such object; `sha256` in hexadecimal digits, null if the bucket does not know it
   */
  async head(key, signal) {
    const headers = { 'x-amz-checksum-mode': 'ENABLED' };
    return this.#do({ method: 'HEAD', key, headers, signal }, async (response) => {
      response.resume();
      if (response.statusCode === 404) return null;
      const sum = response.headers['x-amz-checksum-sha256'];
      return {
        bytes: Number(response.headers['content-length']),
        sha256: typeof sum === 'string' ? Buffer.from(sum, 'base64').toString('hex') : null,
        contentType: response.headers['content-type'] ?? 'application/octet-stream',
      };
    });
  }

  /**
   * @template T @param {string} key @param {AbortSignal} signal
   * @param {(body: AsyncIterable<Buffer>) => Promise<T>} read @returns {Promise<T>}
   */
  get(key, signal, read) {
    return this.#do({ method: 'GET', key, signal }, read);
  }

  /** @param {string} key @param {AbortSignal} signal */
  async delete(key, signal) {
    await this.#do({ method: 'DELETE', key, signal }, drainBody);
  }

  /**
   * Begins an upload in parts, which are invisible until `completeParts`.
   * @param {string} key @param {string} contentType @param {AbortSignal} signal @returns its id
   */
  async beginParts(key, contentType, signal) {
    const headers = { 'content-type': contentType };
    const xml = await this.#do(
      { method: 'POST', key, query: '?uploads=', headers, signal },
      readText,
    );
    const id = /<UploadId>([^<]+)<\/UploadId>/.exec(xml)?.[1];
    if (id === undefined) throw new BlobError('UNAVAILABLE', 'the bucket returned no upload id');
    return id.replaceAll('&amp;', '&');
  }

  /**
   * @param {string} key @param {string} id of the upload @param {number} number of the part, from 1
   * @param {Buffer} body @param {AbortSignal} signal @returns {Promise<string>} its ETag
   */
  putPart(key, id, number, body, signal) {
    const query = `?partNumber=${number}&uploadId=${encodeURIComponent(id)}`;
    return this.#do({ method: 'PUT', key, query, body, signal }, async (response) => {
      await drainBody(response);
      return response.headers.etag ?? '';
    });
  }

  /**
   * @param {string} key @param {string} id @param {readonly string[]} etags of the parts, in order
   * @param {AbortSignal} signal
   */
  async completeParts(key, id, etags, signal) {
    const parts = etags.map(
      (etag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${etag}</ETag></Part>`,
    );
    const body = Buffer.from(
      `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`,
    );
    const query = `?uploadId=${encodeURIComponent(id)}`;
    const headers = { 'content-type': 'application/xml' };
    const xml = await this.#do({ method: 'POST', key, query, headers, body, signal }, readText);
    // The bucket sends the status before it joins the parts, so an error may follow 200.
    if (xml.includes('<Error>'))
      throw new BlobError('UNAVAILABLE', `the bucket did not join the parts: ${codeOf(xml)}`);
  }

  /** @param {string} key @param {string} id @param {AbortSignal} signal */
  async abortParts(key, id, signal) {
    const query = `?uploadId=${encodeURIComponent(id)}`;
    await this.#do({ method: 'DELETE', key, query, signal }, drainBody);
  }

  /**
   * @template T @param {Wanted} wanted
   * @param {(response: IncomingMessage) => Promise<T>} read a response with an expected status
   */
  async #do(wanted, read) {
    const startedMs = performance.now();
    try {
      wanted.signal.throwIfAborted();
      const response = await this.#sendRequest(wanted);
      const { statusCode: status = 0 } = response;
      const isExpected =
        (status >= 200 && status < 300) || (status === 404 && wanted.method === 'HEAD');
      if (!isExpected) {
        // A bucket may refuse an upload before it has read the body.
        const code = codeOf(await readText(response).catch(() => ''));
        response.destroy();
        throw new BlobError('UNAVAILABLE', `the bucket answered ${status} ${code}`.trimEnd());
      }
      const result = await read(response);
      this.onOutcome(null);
      return result;
    } catch (error) {
      const { body, signal } = wanted;
      if (body && 'fault' in body && body.fault !== undefined) throw body.fault;
      const fault = blobErrorOf(signal.reason instanceof BlobError ? signal.reason : error);
      if (fault.code === 'UNAVAILABLE') this.onOutcome(fault);
      throw fault;
    } finally {
      this.observe((performance.now() - startedMs) / 1000);
    }
  }

  /** @param {Wanted} wanted @returns {Promise<IncomingMessage>} */
  #sendRequest({ method, key, query = '', headers = {}, body = null, bytes, signal }) {
    const url = `${this.url}/${key}${query}`;
    const length = Buffer.isBuffer(body) ? body.length : bytes;
    const sent = this.signer.headers({
      method,
      url,
      headers: length === undefined ? headers : { ...headers, 'content-length': String(length) },
      nowMs: Date.now(),
    });
    return new Promise((resolve, reject) => {
      const outgoing = this.send(url, {
        method,
        headers: sent,
        agent: false,
        timeout: this.timeoutMs,
      });
      const fail = (/** @type {unknown} */ error) => {
        reject(error);
        resetConnection(outgoing);
      };
      const signalOnAbort = () => fail(signal.reason);
      signal.addEventListener('abort', signalOnAbort);
      outgoing.on('close', () => signal.removeEventListener('abort', signalOnAbort));
      outgoing.on('timeout', () => {
        // If the bucket could take more bytes, the body is late.
        const isBucketLate = body === null || outgoing.writableNeedDrain || outgoing.writableEnded;
        fail(
          isBucketLate
            ? new BlobError('UNAVAILABLE', 'the bucket did not answer in time')
            : new BlobError('REQUEST_TIMEOUT', 'the body did not arrive in time'),
        );
      });
      outgoing.on('error', reject);
      outgoing.on('response', resolve);
      if (body === null || Buffer.isBuffer(body)) outgoing.end(body ?? undefined);
      else pipeline(untilFault(body, fail), outgoing, (error) => error && reject(error));
    });
  }
}

/** @param {AsyncIterable<Buffer>} body @param {(error: unknown) => void} onFault */
async function* untilFault(body, onFault) {
  try {
    yield* body;
  } catch (error) {
    onFault(error);
    throw error;
  }
}

/**
 * Resets the connection. Some servers take its end for the end of the body, and store what they
 * have.
 * @param {ClientRequest} outgoing
 */
function resetConnection(outgoing) {
  const { socket } = outgoing;
  if (socket !== null && !socket.connecting && !('encrypted' in socket)) socket.resetAndDestroy();
  outgoing.destroy();
}

/** @param {unknown} error @returns {BlobError} */
function blobErrorOf(error) {
  if (error instanceof BlobError) return error;
  const { code = 'no answer' } = /** @type {{code?: string}} */ (error);
  return new BlobError('UNAVAILABLE', `the bucket failed: ${code}`, error);
}

/** @param {IncomingMessage} response */
async function readText(response) {
  let text = '';
  response.setEncoding('latin1');
  for await (const part of response) {
    text += part;
    if (text.length > MAX_ANSWER_BYTES)
      throw new BlobError('UNAVAILABLE', 'the answer is too long');
  }
  return text;
}

/** @param {IncomingMessage} response */
async function drainBody(response) {
  for await (const _ of response);
}

/** The code of an S3 error, for logs. @param {string} xml */
function codeOf(xml) {
  return /<Code>(\w{1,64})<\/Code>/.exec(xml)?.[1] ?? '';
}
