// body.js: reads JSON bodies of the console's requests. It is the only user of express's parsers.
//
// They would decode gzip, deflate and Brotli. Here a body with a content encoding is refused before
// any decoder, as the doors of the public port refuse it. `inflate: false` holds if this check is
// ever passed by.

import express from 'express';
import { refusal, toHttp } from '../protocol/refusal.js';

const ENCODED = toHttp(refusal('UNSUPPORTED_MEDIA_TYPE'));

/**
 * @param {string} limit as express has it
 * @returns {import('express').RequestHandler[]}
 */
export function jsonBody(limit) {
  return [refuseEncoded, express.json({ limit, inflate: false })];
}

/** @type {import('express').RequestHandler} */
function refuseEncoded(request, response, next) {
  if (request.headers['content-encoding'] === undefined) return next();
  response.status(ENCODED.status).set(ENCODED.headers).type('json').end(ENCODED.body);
}
