// html.js: templates of the page: htm's syntax, preact's elements. Values are text or elements: no
// template and no value is parsed as HTML.

import htm from 'htm';
import { h } from 'preact';

/** @typedef {import('preact').ComponentChild} Child */
/** @typedef {import('preact').VNode} Element */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => Element} */
export const html = /** @type {any} */ (htm).bind(h);
