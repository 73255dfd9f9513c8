// lua-patterns.js: the patterns of Lua 5.1 as regular expressions. Fanfare's scripts use neither `%b`
// nor `%f`, so a script with one is refused.

/** What a class matches within brackets, in the C locale. @type {Record<string, string>} */
const CLASSES = {
  a: 'A-Za-z',
  c: '\\x00-\\x1f\\x7f',
  d: '0-9',
  l: 'a-z',
  p: '!-\\/:-@\\[-`{-~',
  s: '\\t-\\r ',
  u: 'A-Z',
  w: '0-9A-Za-z',
  x: '0-9A-Fa-f',
  z: '\\x00',
};
const QUANTIFIERS = new Map([
  ['*', '*'],
  ['+', '+'],
  ['-', '*?'],
  ['?', '?'],
]);

/** @type {Map<string, RegExp>} */
const compiled = new Map();

/**
 * @param {string} pattern of Lua, in Latin-1
 * @returns {RegExp} sticky if the pattern begins with `^`, otherwise global; either way it starts at
 *   `lastIndex`
 */
export function regExpOf(pattern) {
  let regExp = compiled.get(pattern);
  if (regExp === undefined) compiled.set(pattern, (regExp = compile(pattern)));
  return regExp;
}

/** @param {string} pattern @returns {RegExp} */
function compile(pattern) {
  const isAnchored = pattern[0] === '^';
  let source = '';
  let at = isAnchored ? 1 : 0;
  while (at < pattern.length) {
    const char = pattern[at];
    if (char === '(' || char === ')') {
      source += char;
      at += 1;
    } else if (char === '$' && at === pattern.length - 1) {
      source += '$';
      at += 1;
    } else {
      const [item, end] = readItem(pattern, at);
      const quantifier = QUANTIFIERS.get(pattern[end] ?? '');
      source += quantifier === undefined ? item : item + quantifier;
      at = quantifier === undefined ? end : end + 1;
    }
  }
  // With `()`, which captures a position, the indices are needed.
  return new RegExp(source, (isAnchored ? 'y' : 'g') + (pattern.includes('()') ? 'd' : ''));
}

/** @param {string} pattern @param {number} at @returns {[item: string, end: number]} */
function readItem(pattern, at) {
  const char = pattern[at];
  if (char === '.') return ['[\\s\\S]', at + 1];
  if (char === '%') return [readEscape(pattern, at, false), at + 2];
  if (char !== '[') return [literal(char), at + 1];
  let end = at + 1;
  let body = '';
  const isNegated = pattern[end] === '^';
  if (isNegated) end += 1;
  for (let isFirst = true; isFirst || pattern[end] !== ']'; isFirst = false) {
    if (end >= pattern.length) throw new Error("malformed pattern (missing ']')");
    if (pattern[end] === '%') {
      body += readEscape(pattern, end, true);
      end += 2;
    } else if (pattern[end + 1] === '-' && pattern[end + 2] !== ']' && end + 2 < pattern.length) {
      body += `${literal(pattern[end])}-${literal(pattern[end + 2])}`;
      end += 3;
    } else {
      body += literal(pattern[end]);
      end += 1;
    }
  }
  return [`[${isNegated ? '^' : ''}${body}]`, end + 1];
}

/** @param {string} pattern @param {number} at of the `%` @param {boolean} isInSet @returns {string} */
function readEscape(pattern, at, isInSet) {
  const char = pattern[at + 1];
  if (char === undefined) throw new Error("malformed pattern (ends with '%')");
  if (/[bf1-9]/.test(char)) throw new Error(`%${char} is unknown here`);
  const those = CLASSES[char.toLowerCase()];
  if (those === undefined) return literal(char);
  const isNegated = char !== char.toLowerCase();
  if (!isInSet) return `[${isNegated ? '^' : ''}${those}]`;
  if (isNegated) throw new Error(`%${char} within brackets is unknown here`);
  return those;
}

/** @param {string} char @returns {string} */
function literal(char) {
  return /[0-9A-Za-z]/.test(char) ? char : `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`;
}
