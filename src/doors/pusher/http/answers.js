// answers.js: errors of Pusher's HTTP API.

import { ApiFault, statusOf } from '../../../transport/http-api/fault.js';

/** @import { Answer } from '../../../protocol/refusal.js' */

/** Pusher documents no other statuses for bad requests. */
const BAD_REQUEST = 400;
const STATUSES = new Map([
  [409, BAD_REQUEST],
  [415, BAD_REQUEST],
  [422, BAD_REQUEST],
  [504, 503],
]);

/** @param {ApiFault} fault @returns {Answer} */
export function toAnswer(fault) {
  const { status: usual, headers } = statusOf(fault);
  const status = STATUSES.get(usual) ?? usual;
  return { status, headers, body: JSON.stringify({ error: fault.message, code: status }) };
}

/** @param {string} message @returns {ApiFault} 400 */
export function badRequest(message) {
  return new ApiFault('INVALID_REQUEST', { message });
}
