// page.js: lets the client follow the events of its page.
//
// An open WebSocket may keep a page out of the back-forward cache, so the client sleeps from
// `pagehide` on. When the page or the network comes back, the client notices a broken connection at
// once, not after the heartbeat.

/**
 * What is used of a page's globals. Node and workers have no page.
 * @typedef {object} Page
 * @property {(
 *   name: string,
 *   listener: () => unknown,
 *   options: {signal: AbortSignal, capture: true},
 * ) => void} [addEventListener]
 * @property {{hidden: boolean}} [document]
 */

/** @param {{_wake: () => void, _sleep: () => void}} link @returns {AbortController} ends it */
export function followPage(link) {
  const page = /** @type {Page} */ (/** @type {unknown} */ (globalThis));
  const controller = new AbortController();
  const options = /** @type {const} */ ({ signal: controller.signal, capture: true });
  const wakeIfVisible = () => page.document?.hidden || link._wake();
  page.addEventListener?.('pagehide', () => link._sleep(), options);
  // The last two are events of the document, which its window captures.
  for (const name of ['online', 'pageshow', 'resume', 'visibilitychange'])
    page.addEventListener?.(name, wakeIfVisible, options);
  return controller;
}
