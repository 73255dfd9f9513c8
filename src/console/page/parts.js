// parts.js: what several views show: icons, states, heads, fields, tables.

import { html } from './html.js';

/** @import { Child, Element } from './html.js' */

/** Columns of a table with ordinary space between them. */
const MAX_WIDE = 8;

/** Paths of 20 x 20 icons, drawn as lines. */
const ICONS = Object.freeze({
  overview: 'M3 13.5 7 9l3.5 3L17 5M3 17h14',
  rooms: 'M4 4.500h12v8.500H9.500L6 16v-3H4z',
  users: 'M10 9.500a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM4 16.500c.6-3.2 3-5 6-5s5.4 1.8 6 5',
  publish: 'M3.5 10 16.5 4l-4 12.5-3-5.500zM9.5 11l7-7',
  servers: 'M4 4h12v5H4zM4 11h12v5H4zM7 6.500h.010M7 13.500h.01',
  limits: 'M4 14a6 6 0 1 1 12 0M10 14l3-4.5',
  doctor: 'M2.5 10.500H6l2-5 3.5 10 2.5-5h3.5',
  table: 'M3.5 4.500h13v11h-13zM3.5 8.200h13M3.5 11.900h13M8.5 4.500v11',
  sun: 'M10 6.500a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM10 2v1.500M10 16.500V18M2 10h1.500M16.5 10H18M4.3 4.300l1.1 1.100M14.6 14.600l1.1 1.100M4.3 15.700l1.1-1.100M14.6 5.400l1.1-1.1',
  moon: 'M16 11.500A6.5 6.5 0 0 1 8.5 4a6.5 6.5 0 1 0 7.5 7.500Z',
  system: 'M3 4h14v9.500H3zM7.5 17h5M10 13.500V17',
  check: 'm4.5 10.5 3.5 3.5 7.5-8',
  alert: 'M10 3.5 17.5 16.500h-15zM10 8.500v3.500M10 14.300h.01',
  search: 'M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4ZM12.8 12.8 16.5 16.5',
  play: 'M6.5 4.500v11l9-5.500z',
  stop: 'M5.5 5.500h9v9h-9z',
  key: 'M12.5 3.500a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM9.5 10.500l-6 6M5.5 14.500l2 2',
  back: 'M12.5 4.5 7 10l5.5 5.5',
  plug: 'M7 3.500v4M13 3.500v4M5 7.500h10v2.500a5 5 0 0 1-10 0zM10 15v2.500',
});

/** @typedef {keyof typeof ICONS} IconName */
/** @typedef {'good'|'warn'|'bad'|'plain'} Tone */

/** @param {IconName} name */
export function icon(name) {
  return html`<svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
    <path d=${ICONS[name]} />
  </svg>`;
}

/** A state as a coloured word. @param {Tone} tone @param {string} text */
export function pill(tone, text) {
  return html`<span class="pill ${tone}">${text}</span>`;
}

/** A place without data. @param {IconName} name @param {string} title @param {string} text */
export function empty(name, title, text) {
  return html`<div class="empty">
    ${icon(name)}
    <p class="empty-title">${title}</p>
    <p>${text}</p>
  </div>`;
}

/** What a visitor sees whose key may not read it. @param {string} right */
export function denied(right) {
  return empty('key', 'Not permitted', lacks(right));
}

/** @param {string} right */
export function lacks(right) {
  return `Your key lacks the right ${right}.`;
}

/** @param {string} text */
export function warning(text) {
  return html`<p class="warning">${text}</p>`;
}

/** @param {string} title @param {Child} [text] @param {Child} [aside] buttons at the right */
export function pageHead(title, text, aside) {
  return html`<header class="page-head flex wrap">
    <div>
      <h1 tabindex="-1">${title}</h1>
      ${text && html`<p class="lead">${text}</p>`}
    </div>
    <div class="row flex wrap">${aside}</div>
  </header>`;
}

/** A labelled field. @param {string} label @param {Element} input */
export function field(label, input) {
  return html`<label class="field stack"><span>${label}</span>${input}</label>`;
}

/**
 * Views of the same kind, of which one is open.
 * @param {string} label @param {readonly (readonly [href: string, title: string])[]} links
 * @param {string} current its `href`
 */
export function choice(label, links, current) {
  return html`<nav class="choice" aria-label=${label}>
    ${links.map(
      ([href, title]) =>
        html`<a href=${href} aria-current=${href === current ? 'page' : null}>${title}</a>`,
    )}
  </nav>`;
}

/** A link to a room, a user or an address. @param {string} path @param {string} name */
export function hrefOf(path, name) {
  return `#/${path}/${encodeURIComponent(name)}`;
}

/** A column; the title is '' for buttons. @typedef {string|{title: string, isNumber: true}} Column */

/** A column of numbers. @param {string} title @returns {Column} */
export function numeric(title) {
  return { title, isNumber: true };
}

/**
 * A table, for a card. In a narrow window each row becomes a block with titles beside its values,
 * which needs the roles: an element that is not displayed as a table is none to a screen reader.
 * @param {string} caption @param {readonly Column[]} columns
 * @param {readonly Child[][]} rows a cell for each column; the first is the row's head
 * @param {{isCaptionShown?: boolean}} [options] otherwise it is for screen readers only
 */
export function dataTable(caption, columns, rows, { isCaptionShown = false } = {}) {
  const titles = columns.map((column) => (typeof column === 'string' ? column : column.title));
  const classes = columns.map((column) => (typeof column === 'string' ? null : 'number'));
  return html`<table class="data ${columns.length > MAX_WIDE ? 'dense' : ''}" role="table">
    <caption class=${isCaptionShown ? null : 'visually-hidden'}>${caption}</caption>
    <thead role="rowgroup">
      <tr role="row">
        ${titles.map((title, i) =>
          title === ''
            ? html`<td role="cell" />`
            : html`<th scope="col" role="columnheader" class=${classes[i]}>${title}</th>`,
        )}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map(
        ([head, ...cells]) => html`<tr role="row">
          <th scope="row" role="rowheader">${head}</th>
          ${cells.map(
            (cell, i) =>
              html`<td role="cell" data-title=${titles[i + 1] || null} class=${classes[i + 1]}>
                ${cell}
              </td>`,
          )}
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** A table in a card of its own. @type {typeof dataTable} */
export function tableCard(...table) {
  return html`<div class="card table-card">${dataTable(...table)}</div>`;
}

/** The bars of a column align. @param {number} value @param {number} most @param {string} text */
export function barred(value, most, text) {
  return html`<span class="barred">
    <svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="bar-back" width="100" height="6" />
      <rect class="bar-front" width=${most > 0 ? (100 * value) / most : 0} height="6" />
    </svg>
    <span>${text}</span>
  </span>`;
}
