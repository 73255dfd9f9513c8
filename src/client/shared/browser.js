// browser.js: what `fanfare/client/shared` needs from a browser.

/**
 * Grants a lock to one callback at a time, in order, until its promise settles. When a page ends,
 * its locks are released.
 * @typedef {object} Locks
 * @property {(
 *   name: string,
 *   options: {mode?: 'shared', steal?: boolean, ifAvailable?: boolean, signal?: AbortSignal},
 *   callback: (lock: unknown) => unknown,
 * ) => Promise<unknown>} request rejects with an AbortError if `signal` is aborted before the
 *   grant, or if another request steals the lock
 */

/**
 * A BroadcastChannel. Messages reach all others with the same name, even in this page.
 * @typedef {{postMessage: (message: unknown) => void, close: () => void,
 *   addEventListener: (name: 'message', listener: (event: {data: any}) => void) => void}} Channel
 */

/**
 * @typedef {{navigator?: {locks?: Locks}, BroadcastChannel?: new (name: string) => Channel,
 *   location?: {origin: string}, localStorage?: unknown,
 *   document?: Pick<EventTarget, 'addEventListener'|'removeEventListener'>}} Browser
 */

/** @returns {Browser} */
export function thisBrowser() {
  return /** @type {any} */ (globalThis);
}

/**
 * Web Locks need HTTPS or localhost, no opaque origin, and Safari 15.4. A browser that blocks a
 * page's storage also refuses it locks, but only when they are requested.
 * @param {Browser} browser
 */
export function canShare(browser) {
  try {
    browser.localStorage;
  } catch {
    return false;
  }
  const { navigator, BroadcastChannel, location } = browser;
  return !!navigator?.locks && !!BroadcastChannel && location?.origin !== 'null';
}

/** @param {unknown} error AbortError: the lock request was withdrawn, or another tab stole the lock */
export function ignoreAbort(error) {
  if (/** @type {Error} */ (error).name !== 'AbortError') throw error;
}
