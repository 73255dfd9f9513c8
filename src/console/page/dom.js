// dom.js: builds elements. Text is always text: nothing here reads HTML.

/** Columns of a table with ordinary space between them. */
const MAX_WIDE = 8;

/** @typedef {Node|string|number|null|undefined|false} Child */
/** @typedef {Record<string, any>} Attributes */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @template {keyof HTMLElementTagNameMap} T @param {T|`${T}.${string}`} name tag and classes:
 *   `p.muted`
 * @param {Attributes} attributes a function is a listener: `onclick`; true is an attribute
 *   without a value; false, null and undefined are none
 * @param {...(Child|Child[])} children @returns {HTMLElementTagNameMap[T]}
 */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split('.');
  const element = document.createElement(/** @type {T} */ (tag));
  element.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (name === 'value') /** @type {HTMLInputElement} */ (element).value = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children.flat());
  return element;
}

/**
 * An element without other attributes.
 * @template {keyof HTMLElementTagNameMap} T @param {T|`${T}.${string}`} name as for `h`
 * @param {...(Child|Child[])} children @returns {HTMLElementTagNameMap[T]}
 */
export function el(name, ...children) {
  return h(name, {}, ...children);
}

/** Replaces the children. @param {Element} element @param {...(Child|Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children.flat());
}

/** @param {Element} element @param {Child[]} children */
function append(element, children) {
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      element.append(typeof child === 'number' ? String(child) : child);
}

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

/** @param {IconName} name */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 20 20');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/** A state as a coloured word. @param {'good'|'warn'|'bad'|'plain'} tone @param {string} text */
export function pill(tone, text) {
  return h('span', { class: `pill ${tone}` }, text);
}

/** A place without data. @param {IconName} name @param {string} title @param {string} text */
export function empty(name, title, text) {
  return el('div.empty', icon(name), el('p.empty-title', title), el('p', text));
}

/** @param {string} title @param {Child|Child[]} aside buttons at the right @param {Child} [text] */
export function pageHead(title, aside, text) {
  return el(
    'header.page-head',
    el('div', h('h1', { tabindex: -1 }, title), text && el('p.lead', text)),
    el('div.actions', aside),
  );
}

/** A labelled field. @param {string} label @param {HTMLElement} input */
export function field(label, input) {
  return el('label.field', el('span', label), input);
}

/**
 * Views of the same kind, of which one is open.
 * @param {string} label @param {readonly {href: string, title: string}[]} links
 * @param {string} current its `href`
 */
export function choice(label, links, current) {
  return h(
    'nav.choice',
    { 'aria-label': label },
    links.map(({ href, title }) =>
      h('a', { href, 'aria-current': href === current ? 'page' : null }, title),
    ),
  );
}

/**
 * @typedef {object} Column
 * @property {string} title '' for a column of buttons
 * @property {boolean} [isNumber]
 */

/**
 * A table in a card. In a narrow window each row becomes a block with the titles beside the values,
 * which needs the roles: an element that is not displayed as a table is none to a screen reader.
 * @param {string|HTMLElement} caption a text is for screen readers only
 * @param {readonly Column[]} columns
 * @param {readonly (Child|Child[])[][]} rows a cell for each column; the first is the row's head
 */
export function dataTable(caption, columns, rows) {
  return h(
    /** @type {'table'|`table.${string}`} */ (
      columns.length > MAX_WIDE ? 'table.data.dense' : 'table.data'
    ),
    { role: 'table' },
    typeof caption === 'string' ? el('caption.visually-hidden', caption) : caption,
    h(
      'thead',
      { role: 'rowgroup' },
      h(
        'tr',
        { role: 'row' },
        columns.map(({ title, isNumber }) =>
          title === ''
            ? h('td', { role: 'cell' })
            : h(
                'th',
                { scope: 'col', role: 'columnheader', class: isNumber ? 'number' : null },
                title,
              ),
        ),
      ),
    ),
    h(
      'tbody',
      { role: 'rowgroup' },
      rows.map((cells) =>
        h(
          'tr',
          { role: 'row' },
          cells.map((cell, i) =>
            i === 0
              ? h('th', { scope: 'row', role: 'rowheader' }, cell)
              : h(
                  'td',
                  {
                    role: 'cell',
                    'data-title': columns[i].title || null,
                    class: columns[i].isNumber ? 'number' : null,
                  },
                  cell,
                ),
          ),
        ),
      ),
    ),
  );
}

/** The bars of a column align. @param {number} value @param {number} most @param {string} text */
export function barred(value, most, text) {
  return el('span.barred', bar(value, most), el('span', text));
}

/** SVG: the page's policy forbids style attributes. @param {number} value @param {number} most */
function bar(value, most) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 100 6');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('class', 'bar');
  svg.setAttribute('aria-hidden', 'true');
  for (const [width, name] of /** @type {const} */ ([
    [100, 'bar-back'],
    [most > 0 ? (100 * value) / most : 0, 'bar-front'],
  ])) {
    const rect = document.createElementNS(SVG, 'rect');
    rect.setAttribute('width', String(width));
    rect.setAttribute('height', '6');
    rect.setAttribute('class', name);
    svg.append(rect);
  }
  return svg;
}
