// view.js: the contract between the frame of the page and its views.

/**
 * @typedef {object} Session
 * @property {string} key name of the key; '' without one
 * @property {string[]} rights @property {string} server @property {string} version
 * @property {'embedded'|'redis'} broker @property {boolean} hasTokens
 * @property {import('./charts.js').ChartInfo[]} charts @property {number} sampleMs
 * @property {number} points
 */

/**
 * @typedef {{session: Session, store: import('./store.js').Store,
 *   can: (right: string) => boolean}} App
 */

/**
 * @typedef {object} View
 * @property {HTMLElement} element @property {string} title
 * @property {() => void} [update] new samples have come
 * @property {() => void} [redraw] the theme or the width has changed
 * @property {() => void} [close]
 */

export {};
