// tables.js: the generated tables of docs/ get a filter, and each of their rows an address.

/**
 * The columns that name a row. What stands before the name keeps addresses of one page apart.
 * @type {Readonly<Record<string, {columns: readonly number[], before?: string}>>}
 */
const NAMED_BY = {
  errors: { columns: [0] },
  apiErrors: { columns: [1] },
  closes: { columns: [0] },
  refusals: { columns: [0, 1], before: 'refusal-' },
  pusherCloses: { columns: [0] },
  centrifugoCloses: { columns: [0] },
  settings: { columns: [0] },
  apps: { columns: [0], before: 'app-' },
  metrics: { columns: [0] },
  limits: { columns: [0], before: 'limit-' },
};
/** What the filter is said to look for. @type {Readonly<Record<string, string>>} */
const LABELS = {
  errors: 'errors',
  apiErrors: 'errors',
  closes: 'close codes',
  refusals: 'refusals',
  pusherCloses: 'close codes',
  centrifugoCloses: 'close codes',
  settings: 'settings',
  apps: 'fields',
  metrics: 'metrics',
};
const MARKED = /<!-- table: (\w+) -->\n([\s\S]*?)<!-- end -->\n/g;
const ANCHOR = /<a id="([^"]+)"><\/a>/;

/**
 * A line does not end within a range of figures: `6.3–8.1`.
 * @param {string} text
 */
export const wholeRanges = (text) => text.replace(/(\d)–(?=\d)/g, '$1\u2060–\u2060');

/**
 * Keeps the ranges in cells of tables whole.
 * @param {any} markdown the parser of VitePress
 */
export function keepRanges(markdown) {
  markdown.core.ruler.push('ranges', (/** @type {any} */ { tokens }) => {
    for (const [i, { type, children }] of tokens.entries())
      if (type === 'inline' && tokens[i - 1]?.type === 'td_open')
        for (const child of children)
          if (child.type === 'text') child.content = wholeRanges(child.content);
  });
}

/** @param {string} text of a page in docs/ @returns {string} */
export function withFilters(text) {
  /** Addresses of the page, with how many rows have each. @type {Map<string, number>} */
  const taken = new Map();
  return text.replace(MARKED, (_all, name, body) => {
    const rows = NAMED_BY[name] === undefined ? body : withAddresses(body, name, taken);
    if (LABELS[name] === undefined) return rows;
    return `<FilterRows what="${LABELS[name]}">\n\n${rows}\n</FilterRows>\n`;
  });
}

/** @param {string} body @param {string} name of the table @param {Map<string, number>} taken */
function withAddresses(body, name, taken) {
  const { columns, before = '' } = NAMED_BY[name];
  return body.replace(/^\| (?!---)(.*) \|$/gm, (row, /** @type {string} */ inner) => {
    const cells = inner.split(' | ');
    // The head of a table has no code and no number.
    if (!/[`\d]/.test(cells[columns[0]])) return row;
    const whole = before + columns.map((i) => nameIn(cells[i])).join('-');
    const count = (taken.get(whole) ?? 0) + 1;
    taken.set(whole, count);
    const id = count === 1 ? whole : `${whole}-${count}`;
    const [first, ...others] = cells;
    const link = `<a id="${id}" class="row-link" href="#${id}" aria-label="Link to ${id}"></a>`;
    return `| ${[link + first.replace(ANCHOR, ''), ...others].join(' | ')} |`;
  });
}

/** @param {string} cell @returns {string} `fanfare_x_total` of a cell with a label */
function nameIn(cell) {
  const [, id = cell.replace(/[`\s]|\{.*\}/g, '')] = ANCHOR.exec(cell) ?? [];
  return id;
}
