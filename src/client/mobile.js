// mobile.js: `fanfare-client/mobile`: lets the client follow an app to the background and back.
//
// iOS suspends an app some seconds after it has left the screen, and Android cuts its network off
// sooner or later. Both leave a connection that looks open. So the client closes it by itself, and
// opens a new one when the user returns (docs/mobile.md).

/** @import { Fanfare } from './fanfare.js' */

/**
 * What is used of React Native's AppState. iOS is `inactive` for moments, which changes nothing.
 * @typedef {object} AppStates
 * @property {string|null} [currentState] `active`, `background` or `inactive`
 * @property {(event: 'change', listener: (state: any) => void) => {remove: () => void}
 * } addEventListener
 */

/**
 * Puts the client to sleep while the app is in the background, and wakes it when it is active. A
 * client that you have closed stays closed.
 * @param {Fanfare} fanfare @param {AppStates} appStates React Native's AppState
 * @param {{sleepAfterMs?: number}} [options] time in the background before the connection is closed;
 *   0 by default: later, no timer may run
 * @returns {() => void} ends it
 */
export function followAppState(fanfare, appStates, { sleepAfterMs = 0 } = {}) {
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;
  const follow = (/** @type {string|null|undefined} */ state) => {
    clearTimeout(timer);
    if (state === 'active') fanfare.wake();
    else if (state === 'background') {
      if (sleepAfterMs > 0) timer = setTimeout(() => fanfare.sleep(), sleepAfterMs);
      else fanfare.sleep();
    }
  };
  const subscription = appStates.addEventListener('change', follow);
  follow(appStates.currentState);
  return () => {
    clearTimeout(timer);
    subscription.remove();
  };
}
