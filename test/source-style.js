// source-style.js: figures of src/ that show how well a reader can search it and follow its comments.
//
//   node test/source-style.js            the figures
//   node test/source-style.js names      names of five definitions or more, and where they are
//   node test/source-style.js comments   comments that begin without a subject
//   node test/source-style.js classes    classes by their number of fields
//
// test/unit/source-style.test.js holds the figures, so that they cannot grow. Sources are read by
// their indentation, which Biome keeps: a parser would take ten times as long.

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/**
 * First words that leave the reader to look for what is spoken of: "Of the list, or in one." says
 * less than "Is it a JSON object, and neither a list nor null?".
 */
export const OPENERS = new Set(
  'of it its not also for as by without in with from at on to'.split(' '),
);
/** Classes that each build of the client library exports, under the name that its users know. */
const PUBLIC_CLASSES = new Set(['Fanfare', 'FanfareError', 'Room']);
/** From this many definitions on, a search for a name finds too much. */
const SHARED = 5;

const COMMENT = /\/\*\*([\s\S]*?)\*\/|((?:^[ \t]*\/\/.*\n)+)|(?<=\S[ \t]+)\/\/ (.*)$/gm;
const DEFINITION =
  /^(?:export )?(?:default )?(?:async )?function\*? (\w+)|^ {2}(?:static )?(?:async )?\*?(?:get |set )?(#?\w+)\((?:[^\n]*|[^\n]*(?:\n {4}[^\n]*)+\n {2}[^\n]*)\) \{\}?$/gm;
const CLASS = /^(export )?(?:default )?class (\w+)[^\n]*\{\n([\s\S]*?)^\}/gm;
const FIELD = /^ {2}(#?\w+)(?: = |;)/gm;
const CONSTRUCTOR = /^ {2}constructor\([\s\S]*?^ {2}\}$/m;
const ASSIGNED = /\bthis\.(#?\w+) = /g;
const NO_DEFINITION = new Set(['constructor']);

/**
 * @typedef {object} Style
 * @property {{comments: number, faults: string[]}} openings `faults`: comments without a subject
 * @property {{definitions: number, shared: Map<string, string[]>}} names `shared`: the files that
 *   define a name which SHARED definitions or more bear
 * @property {Map<string, string[]>} classes the files that export a class, by its name
 * @property {Map<string, number>} fields of each class, by `file Class`
 */

/** @param {ReadonlyMap<string, string>} sources by path @returns {Style} */
export function styleOf(sources) {
  /** @type {Style} */
  const style = {
    openings: { comments: 0, faults: [] },
    names: { definitions: 0, shared: new Map() },
    classes: new Map(),
    fields: new Map(),
  };
  /** @type {Map<string, string[]>} */
  const files = new Map();
  for (const [path, source] of sources) {
    readComments(path, source, style);
    const code = source.replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '));
    for (const [, ofModule, ofClass] of code.matchAll(DEFINITION)) {
      const name = ofModule ?? ofClass;
      if (NO_DEFINITION.has(name)) continue;
      style.names.definitions++;
      addTo(files, name, path);
    }
    for (const [, isExported, name, body] of code.matchAll(CLASS)) {
      if (isExported) addTo(style.classes, name, path);
      const assigned = (CONSTRUCTOR.exec(body)?.[0] ?? '').matchAll(ASSIGNED);
      const fields = [...body.matchAll(FIELD), ...assigned].map(([, field]) => field);
      style.fields.set(`${path} ${name}`, new Set(fields).size);
    }
  }
  for (const [name, paths] of files)
    if (paths.length >= SHARED) style.names.shared.set(name, paths);
  return style;
}

/** @param {string} path @param {string} source @param {Style} style */
function readComments(path, source, { openings }) {
  for (const [, block, lines, end] of source.matchAll(COMMENT)) {
    const text = (block ?? lines ?? end)
      .replace(block === undefined ? /^[ \t]*\/\/ ?/gm : /^[ \t]*\* ?/gm, '')
      .trim();
    if (text === '' || /^(?:@|biome-ignore)/.test(text)) continue;
    openings.comments++;
    const [word = ''] = /^[A-Za-z]+(?![\w'’.-]*\w)/.exec(text) ?? [];
    if (OPENERS.has(word.toLowerCase())) openings.faults.push(`${path}: ${text.split('\n')[0]}`);
  }
}

/** @param {Map<string, string[]>} lists @param {string} key @param {string} value */
function addTo(lists, key, value) {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** @returns {Map<string, string>} the sources of src by path */
export function sourcesOfSrc() {
  const src = fileURLToPath(new URL('../src/', import.meta.url));
  const paths = readdirSync(src, { recursive: true }).map(String);
  return new Map(
    paths
      .filter((path) => path.endsWith('.js'))
      .map((path) => [path, readFileSync(src + path, 'utf8')]),
  );
}

/** @param {Style} style */
export function figuresOf({ openings, names, classes, fields }) {
  const shared = [...names.shared.values()].reduce((sum, paths) => sum + paths.length, 0);
  return {
    commentsWithoutSubject: percent(openings.faults.length, openings.comments),
    definitionsWithSharedName: percent(shared, names.definitions),
    classNamesExportedTwice: [...classes].filter(isSharedClass).length,
    classesAbove20Fields: [...fields.values()].filter((count) => count > 20).length,
  };
}

/** @param {[name: string, paths: string[]]} exported @returns {boolean} */
function isSharedClass([name, paths]) {
  if (!PUBLIC_CLASSES.has(name)) return paths.length > 1;
  return paths.some((path) => !path.startsWith('client/'));
}

/** @param {number} part @param {number} whole */
const percent = (part, whole) => Math.round((1000 * part) / whole) / 10;

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const style = styleOf(sourcesOfSrc());
  const [, , what = ''] = process.argv;
  if (what === 'comments') console.log(style.openings.faults.join('\n'));
  else if (what === 'names') {
    const shared = [...style.names.shared].sort(([, a], [, b]) => b.length - a.length);
    for (const [name, paths] of shared) console.log(`${name} ${paths.length}: ${paths.join(' ')}`);
  } else if (what === 'classes') {
    for (const [name, paths] of [...style.classes].filter(isSharedClass))
      console.log(`${name}: ${paths.join(' ')}`);
    const large = [...style.fields].sort(([, a], [, b]) => b - a).slice(0, 20);
    for (const [name, count] of large) console.log(`${count} ${name}`);
  } else console.log(figuresOf(style));
}
