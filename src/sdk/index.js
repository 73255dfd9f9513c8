// index.js: `fanfare/server`: what a backend does with a Fanfare server: publish, look, act, sign
// tokens, verify webhooks.
//
// It uses fetch and WebCrypto only, so it runs on Node, Bun, Deno and edge runtimes.

export { FanfareApiError } from './api-error.js';
export { createServer } from './server.js';
export { sign } from './sign.js';
export { verifyWebhook } from './verify-webhook.js';

/** @typedef {import('./api-error.js').Code} Code */
/** @typedef {import('./api-error.js').Position} Position */
/** @typedef {import('./api-error.js').Result} Result */
/** @typedef {import('./api-calls.js').Options} Options */
/** @typedef {import('./api-calls.js').CallOptions} CallOptions */
/** @template {object} [Rooms=Record<string, any>] @typedef {import('./server.js').FanfareServer<Rooms>} FanfareServer */
/** @template {object} [Rooms=Record<string, any>] @typedef {import('./rooms.js').Message<Rooms>} Message */
/** @typedef {import('./server.js').PublishOptions} PublishOptions */
/** @typedef {import('./server.js').Published} Published */
/** @template [Payload=any] @typedef {import('./server.js').HistoryPage<Payload>} HistoryPage */
/** @template [Payload=any] @typedef {import('./server.js').StatePage<Payload>} StatePage */
/** @typedef {import('./server.js').Connection} Connection */
/** @typedef {import('./sign.js').Claims} Claims */
/** @typedef {import('./sign.js').SignOptions} SignOptions */
/** @typedef {import('./verify-webhook.js').WebhookEvent} WebhookEvent */
