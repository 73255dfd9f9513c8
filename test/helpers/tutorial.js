// tutorial.js: reads the code and the commands of docs/tutorial.md.

import assert from 'node:assert/strict';

/**
 * A block of code of the page: shell commands, a file, or a change of one.
 * @typedef {{kind: 'sh'|'save'|'change', path: string, code: string}} Block
 */

/**
 * @param {string} text of the page
 * @returns {Block[][]} those of each numbered section
 */
export function sectionsOf(text) {
  return text
    .split(/^## (?=\d)/m)
    .slice(1)
    .map((section) => {
      /** @type {Block[]} */
      const blocks = [];
      let path = '';
      const parts = section.split(/^```/m);
      for (let i = 1; i < parts.length; i += 2) {
        const before = parts[i - 1].replaceAll('\n', ' ');
        const named = [...before.matchAll(/(?:Save as|Change) `([^`]+)`/g)].at(-1);
        if (named !== undefined) path = named[1];
        const [language] = parts[i].split('\n', 1);
        const code = parts[i].slice(language.length + 1);
        const kind = language === 'sh' ? 'sh' : language === 'diff' ? 'change' : 'save';
        blocks.push({ kind, path, code });
      }
      return blocks;
    });
}

/**
 * Applies a change of the page to a file. Its lines must be in the file, and only once.
 * @param {string} text
 * @param {string} diff lines that begin with a space, - or +
 */
export function changed(text, diff) {
  const side = (/** @type {string} */ sign) =>
    diff
      .split(/(?<=\n)/)
      .filter((line) => line[0] !== sign)
      .map((line) => line.replace(/^[-+ ]/, ''))
      .join('');
  const parts = text.split(side('+'));
  assert.equal(parts.length, 2, `this is there once:\n${side('+')}`);
  return parts.join(side('-'));
}
