// page.js: events of a browser page that the client follows.
//
// An open WebSocket may keep a page out of the back-forward cache, so the client sleeps while its
// page is hidden for good (`pagehide`). If the page or the network comes back, a broken connection
// is noticed at once, not after the heartbeat.

const OF_WINDOW = ['online', 'pageshow'];
const OF_DOCUMENT = ['resume', 'visibilitychange'];

/**
 * @typedef {(name: string, listener: () => void, options: {signal: AbortSignal}) => void} Listen
 */

/**
 * The part of a page's globals that is used here. Node and workers have no page.
 * @typedef {object} Page
 * @property {Listen} [addEventListener]
 * @property {{addEventListener: Listen, visibilityState: string}} [document]
 */

/**
 * @param {{wake: () => void, sleep: () => void}} listener @param {Page} [page]
 * @returns {() => void} stops listening
 */
export function followPage(
  { wake, sleep },
  page = /** @type {Page} */ (/** @type {unknown} */ (globalThis)),
) {
  const { document } = page;
  const wakeIfVisible = () => {
    if (document?.visibilityState !== 'hidden') wake();
  };
  const controller = new AbortController();
  const { signal } = controller;
  for (const name of OF_WINDOW) page.addEventListener?.(name, wakeIfVisible, { signal });
  for (const name of OF_DOCUMENT) document?.addEventListener(name, wakeIfVisible, { signal });
  page.addEventListener?.('pagehide', sleep, { signal });
  return () => controller.abort();
}
