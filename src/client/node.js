// node.js: `fanfare/client` for Node, on `ws`.
//
// Unlike the global WebSocket, `ws` shows the HTTP answer that refused a handshake. So a client in
// Node obeys `Retry-After`, stops if a new handshake cannot succeed, and reports why a connection
// failed. It stops only if the answer is Fanfare's: during a deploy, a proxy may answer 404 or 403
// for some seconds.

import { WebSocket } from 'ws';
import { Fanfare as Base } from './fanfare.js';
import { CLOSE_TIMEOUT_MS } from './limits.js';

export * from './index.js';

/** A Socket for connection.js. */
class NodeSocket extends WebSocket {
  /** A dead connection does not answer a close frame. @override @type {WebSocket['close']} */
  close(code, reason) {
    super.close(code, reason);
    setTimeout(() => this.terminate(), CLOSE_TIMEOUT_MS).unref();
  }

  /** @param {string} url @param {string|string[]} [protocols] */
  constructor(url, protocols) {
    super(url, protocols);
    // Only the listener below handles errors: the event for `onerror` has no reason.
    Object.defineProperty(this, 'onerror', { set() {} });
    // Node's error for a host name with several addresses has a code but no message.
    this.on('error', (/** @type {NodeJS.ErrnoException} */ { message, code }) =>
      this.#endConnection({ reason: message || code }),
    );
    this.once('unexpected-response', (_, response) => {
      const { statusCode: status, headers } = response;
      const seconds = Number(headers['retry-after'] ?? Number.NaN);
      // Adds part of a second: `Retry-After` has whole seconds, so clients would return together.
      const retryAfterMs = seconds >= 0 ? (seconds + Math.random()) * 1000 : undefined;
      // Fanfare names its error, and says when waiting helps.
      const isFinal = 'fanfare-error' in headers && retryAfterMs === undefined;
      this.#endConnection({ reason: `HTTP status ${status}`, isFinal, retryAfterMs });
    });
  }

  /** @param {import('./connection.js').Ending} ending */
  #endConnection(ending) {
    this.onclose?.(/** @type {any} */ (ending));
  }
}

export class Fanfare extends Base {
  /** @param {string} url `wss://chat.example` @param {import('./fanfare.js').Options} [options] */
  constructor(url, options = {}) {
    super(url, { WebSocket: NodeSocket, ...options });
  }
}
