// node.js: `fanfare/client` for Node, on `ws`.
//
// `ws` shows the HTTP answer of a refused handshake, which no global WebSocket does. So a client in
// Node waits as long as `Retry-After` requests, and stops if a new handshake cannot succeed. It
// also says why a connection failed.

import { WebSocket } from 'ws';
import { Fanfare as Base } from './fanfare.js';
import { CLOSE_TIMEOUT_MS } from './limits.js';

export * from './index.js';

/** The HTTP answers after which a new handshake would end in the same way (docs/protocol.md). */
const FINAL_STATUS = [400, 403, 404, 405, 417, 426, 431];

/** A Socket of connection.js. */
class NodeSocket extends WebSocket {
  /** A dead connection does not answer a close frame. @override @type {WebSocket['close']} */
  close(code, reason) {
    super.close(code, reason);
    setTimeout(() => this.terminate(), CLOSE_TIMEOUT_MS).unref();
  }

  /** @param {string} url @param {string|string[]} [protocols] */
  constructor(url, protocols) {
    super(url, protocols);
    // An error ends it once, with its reason: the event for `onerror` has none.
    Object.defineProperty(this, 'onerror', { set() {} });
    // A name with several addresses has an error for each, and the error of them all only a code.
    this.on('error', (/** @type {NodeJS.ErrnoException} */ { message, code }) =>
      this.#end({ reason: message || code }),
    );
    this.once('unexpected-response', (_, response) => {
      const seconds = Number(response.headers['retry-after'] ?? Number.NaN);
      // Whole seconds: without the random part all clients of one second would come at once.
      const retryAfterMs = seconds >= 0 ? (seconds + Math.random()) * 1000 : undefined;
      const { statusCode: status = 0 } = response;
      const isFinal = FINAL_STATUS.includes(status);
      this.#end({ reason: `HTTP status ${status}`, isFinal, retryAfterMs });
    });
  }

  /** The connection lets go of this socket. @param {import('./connection.js').Ending} ending */
  #end(ending) {
    this.onclose?.(/** @type {any} */ (ending));
  }
}

export class Fanfare extends Base {
  /** @param {string} url `wss://chat.example` @param {import('./fanfare.js').Options} [options] */
  constructor(url, options = {}) {
    super(url, { WebSocket: NodeSocket, ...options });
  }
}
