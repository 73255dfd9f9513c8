// figures.js: the figures of the start page. Each is read from the page that measures it, so it
// cannot say something else.

/** @typedef {{page: string, find: RegExp, unit: string, about: string, command: string}} Figure */

/** `find` captures the figure in the text of `page`. @type {readonly Figure[]} */
export const FIGURES = [
  {
    page: 'README.md',
    find: /\*\*Fast fan-out\.\*\*[^|]*?: (\d+ to \d+) times the\s+deliveries of a careful `ws` server/,
    unit: '×',
    about: 'the deliveries of a careful ws server on the same two cores',
    command: 'npm run bench',
  },
  {
    page: 'docs/scale.md',
    find: /\| … deliveries; connections lost \|[^|]*\| ([\d,]+) of \1; 0 \|/,
    unit: '',
    about: 'deliveries to a million connections on one machine, none lost',
    command: 'npm run scale -- --connections 1000000',
  },
  {
    page: 'docs/scale.md',
    find: /\| memory of the server per connection: growth \(PSS\) \|[^|]*\| ([\d.]+) kB \|/,
    unit: ' kB',
    about: 'of server memory for each of a million connections',
    command: 'npm run scale -- --connections 1000000',
  },
  {
    page: 'docs/client.md',
    find: /`dist\/fanfare\.min\.js` of either package \(([\d.]+) KB gzipped\)/,
    unit: ' KB',
    about: 'for a client that reconnects, recovers and renews tokens, without dependencies',
    command: 'node --test test/unit/client-size.test.js',
  },
  {
    page: 'docs/deployment.md',
    find: /(no) handshake fails while one of two servers reloads\s+or drains/,
    unit: '',
    about: 'handshakes that fail while one of two servers reloads or drains behind HAProxy',
    command: 'node --test test/e2e/proxy.test.js',
  },
];
const MARK = '<!-- figures -->';

/**
 * @param {string} text of a page
 * @param {(path: string) => string} read
 * @returns {string} with the figures in place of their mark
 */
export function withFigures(text, read) {
  if (!text.includes(MARK)) return text;
  const rows = FIGURES.map(
    (figure) =>
      `| **${figureIn(figure, read(figure.page))}** | ${figure.about} | \`${figure.command}\` |`,
  );
  return text.replace(MARK, ['| | | measured by |', '|---|---|---|', ...rows].join('\n'));
}

/** @param {Figure} figure @param {string} text of its page @returns {string} */
export function figureIn({ page, find, unit }, text) {
  const value = find.exec(text)?.[1];
  if (value === undefined) throw new Error(`${page} has no figure like ${find} for the start page`);
  return `${value === 'no' ? '0' : value}${unit}`;
}
