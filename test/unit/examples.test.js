// examples.test.js: the sizes that the pages of examples/ promise.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

/** @param {string} path */
const linesOf = (path) =>
  readFileSync(new URL(`../../examples/${path}`, import.meta.url), 'utf8')
    .trimEnd()
    .split('\n');

test('the chat has less than 180 lines, and its pages name their number', () => {
  const files = ['server.js', 'public/chat.js', 'public/index.html'];
  const counts = files.map((file) => linesOf(`chat/${file}`).length);
  const sum = counts.reduce((total, count) => total + count, 0);
  assert.ok(sum < 180, `${sum} lines`);
  const readme = linesOf('chat/README.md').join('\n');
  for (const [i, file] of files.entries())
    assert.ok(readme.includes(`| [${file}](${file}) | ${counts[i]} |`), `${file}: ${counts[i]}`);
  assert.ok(linesOf('README.md').join('\n').includes(`in ${sum} lines`), `${sum} lines`);
  assert.ok(linesOf('../docs/tutorial.md').join('\n').includes(`: ${sum} lines`), `${sum} lines`);
});

test('the page of the leaderboard names the lines of code to copy', () => {
  const code = linesOf('leaderboard/changes.js').filter((line) => !/^\s*(\/?\*|\/\/|$)/.test(line));
  const page = linesOf('leaderboard/README.md').join('\n');
  assert.ok(page.includes(`in ${code.length} lines`), `${code.length} lines`);
});
