// refusal.test.js: a refusal as an HTTP answer, as an error reply and as a close.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { API_ERRORS, CLOSES, ERRORS, REFUSALS } from '../../src/protocol/codes.js';
import { refusal, spread, toClose, toHttp, toReply } from '../../src/protocol/refusal.js';
import { ApiFault } from '../../src/transport/http-api/fault.js';

/**
 * @type {[code: import('../../src/protocol/codes.js').RefusalCode, error: string, status: number,
 *   retryAfterS: number, close: import('../../src/protocol/codes.js').Close][]}
 */
const ROWS = [
  ['INVALID_MESSAGE_FORMAT', 'INVALID_MESSAGE_FORMAT', 400, 0, CLOSES.BAD_REQUESTS],
  ['ROOM_LIMIT', 'ROOM_LIMIT', 400, 0, CLOSES.ROOM_LIMIT],
  ['RATE_LIMIT_EXCEEDED', 'RATE_LIMIT_EXCEEDED', 429, 0, CLOSES.RATE_LIMITED],
  ['PERMISSION_DENIED', 'PERMISSION_DENIED', 403, 0, CLOSES.INTERNAL],
  ['INVALID_TOKEN', 'INVALID_TOKEN', 401, 0, CLOSES.INVALID_TOKEN],
  ['TOKEN_EXPIRED', 'TOKEN_EXPIRED', 401, 0, CLOSES.TOKEN_EXPIRED],
  ['TOKEN_NOT_YET_VALID', 'TOKEN_NOT_YET_VALID', 401, 0, CLOSES.TOKEN_NOT_YET_VALID],
  ['UNAVAILABLE', 'UNAVAILABLE', 503, 5, CLOSES.OVERLOAD],
  ['OUTCOME_UNKNOWN', 'OUTCOME_UNKNOWN', 504, 0, CLOSES.INTERNAL],
  ['INTERNAL_ERROR', 'INTERNAL_ERROR', 500, 0, CLOSES.INTERNAL],
  ['NO_HISTORY', 'NO_HISTORY', 404, 0, CLOSES.INTERNAL],
  ['UNAUTHORIZED', 'UNAUTHORIZED', 401, 0, CLOSES.INTERNAL],
  ['DENIED', 'PERMISSION_DENIED', 403, 0, CLOSES.DENIED],
  ['HOOK_FAILED', 'UNAVAILABLE', 503, 5, CLOSES.OVERLOAD],
  ['USER_LIMIT', 'CONNECTION_LIMIT', 429, 5, CLOSES.USER_LIMIT],
  ['APP_LIMIT', 'CONNECTION_LIMIT', 429, 5, CLOSES.APP_LIMIT],
  ['NO_APP', 'INVALID_TOKEN', 401, 0, CLOSES.INVALID_TOKEN],
  ['origin', 'origin', 403, 0, CLOSES.INTERNAL],
  ['per_ip', 'per_ip', 429, 10, CLOSES.INTERNAL],
  ['uncounted', 'per_ip', 503, 5, CLOSES.INTERNAL],
  ['loop_lag', 'loop_lag', 503, 5, CLOSES.INTERNAL],
  ['bad_request', 'bad_request', 400, 0, CLOSES.INTERNAL],
  ['websocket_version', 'upgrade_required', 426, 0, CLOSES.INTERNAL],
  ['stream_headers', 'bad_request', 431, 0, CLOSES.INTERNAL],
];

for (const [code, error, status, retryAfterS, close] of ROWS) {
  test(`${code} is ${status} in HTTP, ${error} as a reply and ${close.code} as a close`, () => {
    const { message } = REFUSALS[code];
    const refused = refusal(code);
    const answer = toHttp(refused);
    assert.equal(answer.status, status);
    assert.deepEqual(JSON.parse(answer.body), { error, message });
    const {
      'Retry-After': wait,
      'WWW-Authenticate': scheme,
      'Fanfare-Error': name,
    } = answer.headers;
    assert.equal(name, error, 'clients know by it that no proxy has answered');
    assert.equal(wait, retryAfterS === 0 ? undefined : String(retryAfterS));
    assert.equal(scheme, status === 401 ? 'Bearer' : undefined);
    const reply = { type: 'error', error, message, id: 'i', timestamp: 5 };
    assert.deepEqual(
      JSON.parse(toReply(refused, 'i', 5)),
      retryAfterS === 0 ? reply : { ...reply, retryAfter: retryAfterS },
    );
    assert.equal(toClose(refused), close);
  });
}

test('a refusal may have a text and a time of its own', () => {
  const refused = refusal('UNAVAILABLE', 'Not now.', 7);
  const reply = JSON.parse(toReply(refused, undefined, 5));
  assert.deepEqual([reply.message, reply.retryAfter, 'id' in reply], ['Not now.', 7, false]);
  assert.equal(toHttp(refused).headers['Retry-After'], '7');
  assert.equal(JSON.parse(toHttp(refused).body).message, 'Not now.');
  assert.ok(!('retryAfter' in JSON.parse(toReply(refusal('UNAVAILABLE', '', 0), 1, 5))));
});

test('a spread refusal has up to twice the time, and none if waiting does not help', () => {
  const times = [0, 0.5, 0.999].map((n) => spread(refusal('per_ip'), () => n).retryAfterS);
  assert.deepEqual(times, [10, 15, 20]);
  assert.equal(spread(refusal('origin'), () => 0.999).retryAfterS, 0);
});

test('a refusal of the HTTP API has the text and time of its own table, and names a field', () => {
  const { headers, body } = toHttp(new ApiFault('UNAVAILABLE', { field: 'room' }));
  const { message } = API_ERRORS.UNAVAILABLE;
  assert.deepEqual(JSON.parse(body), { error: 'UNAVAILABLE', message, field: 'room' });
  assert.deepEqual(headers, { 'Fanfare-Error': 'UNAVAILABLE', 'Retry-After': '1' });
});

test('what a code becomes does not depend on its table', () => {
  for (const code of /** @type {(keyof typeof ERRORS & keyof typeof API_ERRORS)[]} */ (
    Object.keys(ERRORS).filter((one) => one in API_ERRORS)
  ))
    for (const column of /** @type {const} */ (['error', 'status', 'headers', 'close']))
      assert.equal(API_ERRORS[code][column], ERRORS[code][column], code);
});
