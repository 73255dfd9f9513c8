// index.js: `fanfare/client/shared` for browsers: one connection for all tabs of a page's origin.
//
// Tabs share a connection if they use the same URL and `name`. A browser without Web Locks or
// BroadcastChannel gets a connection for each tab.

import { ClientConnection } from '../connection.js';
import { Fanfare as Base } from '../fanfare.js';
import { canShare, thisBrowser } from './browser.js';
import { Tab } from './tab.js';

export * from '../index.js';

/**
 * @typedef {import('../fanfare.js').Options & {name?: string|undefined}} Options `name` keeps users
 *   of one page origin apart. `offline` defaults to `queue`, so that no message is lost when the
 *   leader changes
 */

export class Fanfare extends Base {
  /** @param {string} url `wss://chat.example`; it may be relative @param {Options} [options] */
  constructor(url, options = {}) {
    super(url, { offline: 'queue', ...options }, canShare(thisBrowser()) ? Tab : ClientConnection);
  }
}
