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
 * @typedef {object} App
 * @property {Session} session @property {import('./samples.js').Samples} samples
 * @property {(right: string) => boolean} can
 */

/**
 * A view is a component with these properties. The frame renders it again with new samples, and
 * begins another one for another address.
 * @typedef {object} ViewProps
 * @property {App} app @property {string} path of the address
 * @property {string} name of a room or a user, from the address; '' if it has none
 * @property {number} look grows if the theme or the width has changed
 */

export {};
