// browser.js: the parts of a browser that `fanfare/client/shared` uses, and whether they are there.

/**
 * Grants a lock to one callback at a time, in order, until its promise settles. If the page ends,
 * its locks are free.
 * @typedef {object} Locks
 * @property {(
 *   name: string,
 *   options: {mode?: 'shared', steal?: boolean, ifAvailable?: boolean, signal?: AbortSignal},
 *   callback: (lock: unknown) => unknown,
 * ) => Promise<unknown>} request rejects with an AbortError if `signal` is aborted before the
 *   grant, or if another request steals the lock
 */

/**
 * A BroadcastChannel: its messages reach all others of the same name, also in this page.
 * @typedef {{postMessage: (message: unknown) => void, close: () => void,
 *   addEventListener: (name: 'message', listener: (event: {data: any}) => void) => void}} Channel
 */

/**
 * @typedef {{navigator?: {locks?: Locks}, BroadcastChannel?: new (name: string) => Channel,
 *   location?: {origin: string}, localStorage?: unknown,
 *   document?: Pick<EventTarget, 'addEventListener'|'removeEventListener'>}} Browser
 */

/** @returns {Browser} the globals of this page */
export function thisBrowser() {
  return /** @type {any} */ (globalThis);
}

/**
 * Web Locks: HTTPS or localhost, no opaque origin, Safari 15.4. A browser that blocks the storage
 * of a page refuses it locks, too, but only when they are requested.
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

/** @param {unknown} error of a request for a lock: withdrawn, or stolen by another tab */
export function ignoreAbort(error) {
  if (/** @type {Error} */ (error).name !== 'AbortError') throw error;
}
