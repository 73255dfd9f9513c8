// polled-view.js: a view of one table, which is read again every few seconds.

import { textOf } from './dialog.js';
import { el, empty, fill, h, pageHead } from './dom.js';

const REFRESH_MS = 3000;

/** @import { Child } from './dom.js' */
/** @import { View } from './view.js' */

/**
 * @param {{title: string, about: string, fault: string, className?: string}} texts `fault`: above
 *   the error when a read fails
 * @param {() => Promise<Child|Child[]>} read @returns {View}
 */
export function polledView({ title, about, fault, className = '' }, read) {
  const result = h('div', { class: `result ${className}`.trim() });
  const load = async () => {
    try {
      fill(result, await read());
    } catch (error) {
      fill(result, empty('alert', fault, textOf(error)));
    }
  };
  load();
  const timer = setInterval(load, REFRESH_MS);
  return {
    element: el('div', pageHead(title, null, about), result),
    title,
    close: () => clearInterval(timer),
  };
}
