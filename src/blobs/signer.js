// signer.js: signs requests to an S3-compatible bucket (AWS Signature Version 4), and URLs of
// objects.
//
// aws4fetch makes the canonical form of a request, but signs asynchronously. A worker signs URLs
// while it delivers messages in order, so the HMACs come from node:crypto. Payloads are not signed:
// the body of an upload is not known when it begins, and TLS protects it.

import { createHash, createHmac } from 'node:crypto';
import { AwsV4Signer } from 'aws4fetch';

const UNSIGNED = 'UNSIGNED-PAYLOAD';

/**
 * @typedef {object} Unsigned
 * @property {string} method @property {string} url
 * @property {Record<string, string>} [headers] for a signed URL: the client must send them
 * @property {number} nowMs since 1970
 */

export class Signer {
  #options;
  #key = { scope: '', bytes: Buffer.alloc(0) };

  /** @param {import('../config/blobs.js').BlobSettings} settings */
  constructor({ region, accessKeyId, secretAccessKey, sessionToken }) {
    this.#options = {
      service: 's3',
      region: region === '' ? undefined : region,
      accessKeyId,
      secretAccessKey,
      sessionToken: sessionToken === '' ? undefined : sessionToken,
    };
  }

  /** @param {Unsigned} request @returns its headers with the signature */
  headers({ method, url, headers = {}, nowMs }) {
    const datetime = timeText(nowMs);
    const signer = new AwsV4Signer({ ...this.#options, method, url, headers, datetime });
    signer.headers.set(
      'authorization',
      `AWS4-HMAC-SHA256 Credential=${this.#options.accessKeyId}/${signer.credentialString}, SignedHeaders=${signer.signedHeaders}, Signature=${this.#signatureOf(signer)}`,
    );
    return Object.fromEntries(signer.headers);
  }

  /** @param {Unsigned} request @param {number} ttlS from `nowMs` on */
  url(request, ttlS) {
    const signer = this.#presigner(request, ttlS);
    signer.url.searchParams.set('X-Amz-Signature', this.#signatureOf(signer));
    return signer.url.href;
  }

  /**
   * Signs URLs that differ only in their last part. They share a canonical form, so a reference
   * costs 9 us instead of 48.
   * @param {Unsigned} request its URL ends with a slash @param {number} ttlS
   * @returns {(name: string) => string} the URL of an object whose name needs no escapes
   */
  urls(request, ttlS) {
    const signer = this.#presigner(request, ttlS);
    const { origin, pathname, search } = signer.url;
    return (name) => {
      const signature = this.#signatureOf(signer, signer.encodedPath + name);
      return `${origin}${pathname}${name}${search}&X-Amz-Signature=${signature}`;
    };
  }

  /** @param {Unsigned} request @param {number} ttlS */
  #presigner({ method, url, headers = {}, nowMs }, ttlS) {
    const expiring = new URL(url);
    expiring.searchParams.set('X-Amz-Expires', String(ttlS));
    return new AwsV4Signer({
      ...this.#options,
      method,
      url: expiring.href,
      headers,
      datetime: timeText(nowMs),
      signQuery: true,
      allHeaders: true,
    });
  }

  /** @param {AwsV4Signer} signer @param {string} [path] escaped */
  #signatureOf(signer, path = signer.encodedPath) {
    const { method, encodedSearch, canonicalHeaders, signedHeaders } = signer;
    const { credentialString, datetime } = signer;
    const canonical = [
      method,
      path,
      encodedSearch,
      `${canonicalHeaders}\n`,
      signedHeaders,
      UNSIGNED,
    ].join('\n');
    const hash = createHash('sha256').update(canonical).digest('hex');
    return hmac(
      this.#keyOf(credentialString),
      `AWS4-HMAC-SHA256\n${datetime}\n${credentialString}\n${hash}`,
    ).toString('hex');
  }

  /** @param {string} scope day/region/service/aws4_request */
  #keyOf(scope) {
    if (this.#key.scope !== scope) {
      const secret = Buffer.from(`AWS4${this.#options.secretAccessKey}`);
      this.#key = { scope, bytes: scope.split('/').reduce(hmac, secret) };
    }
    return this.#key.bytes;
  }
}

/** @param {Buffer} key @param {string} text */
function hmac(key, text) {
  return createHmac('sha256', key).update(text).digest();
}

/** A time as signatures have it: 20261122T101500Z. @param {number} nowMs */
function timeText(nowMs) {
  return new Date(nowMs).toISOString().replace(/[:-]|\.\d{3}/g, '');
}
