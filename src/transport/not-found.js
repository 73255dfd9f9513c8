// not-found.js: what is said about a path that this server does not have. Clients of other servers,
// and of doors that are off, come to paths that are well known: their answer names the setting.

import { refusal } from '../protocol/refusal.js';
import { partsOf } from '../protocol/url-parts.js';

/** @import { Config } from '../config/settings.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */

/** @type {readonly [path: RegExp, text: (config: Config) => string][]} */
const PATHS = [
  [
    /^\/socket\.io(?:\/|$)/,
    () =>
      'This server does not speak Socket.IO. docs/migration.md says how to move a Socket.IO application.',
  ],
  [
    /^\/apps?\/[^/]/,
    ({ pusher }) =>
      pusher === null
        ? "Pusher's protocol is off: set FANFARE_PUSHER_APP_ID, FANFARE_PUSHER_APP_KEY and FANFARE_PUSHER_APP_SECRET, or FANFARE_PUSHER_APPS."
        : "Not a path of Pusher's protocol, which has /app/KEY for clients and /apps/ID/… for backends.",
  ],
  [
    /^\/(?:connection\/|emulation$)/,
    ({ centrifugo }) =>
      centrifugo === null
        ? "Centrifugo's protocol is off: set FANFARE_CENTRIFUGO=on."
        : `Centrifugo's clients connect at ${centrifugo.pathPrefix}/connection/websocket, /http_stream and /sse (FANFARE_CENTRIFUGO_PATH).`,
  ],
  [
    /^\/centrifugo(?:\/|$)/,
    ({ centrifugo }) =>
      centrifugo === null
        ? "Centrifugo's protocol is off: set FANFARE_CENTRIFUGO=on, and FANFARE_CENTRIFUGO_API_KEY for its server API."
        : centrifugo.apiKeyHashes.length === 0
          ? "Centrifugo's server API is off: set FANFARE_CENTRIFUGO_API_KEY."
          : `Centrifugo's server API is at ${centrifugo.apiPath} (FANFARE_CENTRIFUGO_API_PATH).`,
  ],
  [/^\/api(?:\/|$)/, () => 'The HTTP API is off: set API_KEYS.'],
  [/^\/sse$/, () => 'Server-sent events are off: set FANFARE_SSE=on.'],
  [
    /^\/(?:console|metrics)(?:\/|$)/,
    () =>
      'The console and /metrics are on another port, METRICS_PORT: http://localhost:9090/ by default.',
  ],
];

/**
 * @param {Config} config
 * @returns {(request: Pick<IncomingMessage, 'url'>) => Refusal} for a path without a route
 */
export function createNotFound(config) {
  const texts = PATHS.map(([path, text]) => /** @type {const} */ ([path, text(config)]));
  const plain = refusal('not_found', 'Not found. WebSockets are at /ws.');
  return ({ url }) => {
    const { path } = partsOf(url);
    const found = texts.find(([pattern]) => pattern.test(path));
    return found === undefined ? plain : refusal('not_found', found[1]);
  };
}
