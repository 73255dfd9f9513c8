// webhook-signature.js: the headers that sign a request to a backend (Standard Webhooks 1.0.0).

import { createHmac } from 'node:crypto';

/**
 * @param {readonly string[]} secrets `whsec_…`. Each one signs, so that receivers may have either
 *   while a secret is rotated
 * @param {string} id @param {string} body @param {number} timestampS Unix time of the attempt
 */
export function signedHeaders(secrets, id, body, timestampS) {
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestampS}.${body}`).digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestampS),
    'webhook-signature': signatures.join(' '),
  };
}
