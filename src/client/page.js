// page.js: events of a browser page that the client follows.
//
// A page with an open WebSocket may be kept out of the back-forward cache, so the client sleeps
// while its page is hidden for good (`pagehide`). If the page comes back, or the network does, a
// broken connection is noticed at once and not after the heartbeat.

const OF_WINDOW = ['online', 'pageshow'];
const OF_DOCUMENT = ['resume', 'visibilitychange'];

/**
 * @typedef {object} Page the part of a page's globals that is used here
 * @property {EventTarget['addEventListener']} [addEventListener]
 * @property {EventTarget & {visibilityState: string}} [document]
 */

/**
 * @param {object} listener
 * @param {() => void} listener.wake
 * @param {() => void} listener.sleep
 * @param {Page} [page]
 * @returns {() => void} stops listening
 */
export function followPage({ wake, sleep }, page = /** @type {Page} */ (globalThis)) {
  // Node and workers have no page.
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
