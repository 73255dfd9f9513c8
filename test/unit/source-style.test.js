// source-style.test.js: names and comments of src/ do not become harder to search and to follow.
//
// `node test/source-style.js` has the figures and their lists. Lower a bound when a figure falls.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sizesOf } from '../source-size.js';
import { figuresOf, sourcesOfSrc, styleOf } from '../source-style.js';

const BOUNDS = Object.freeze({
  commentsWithoutSubject: 2.5,
  definitionsWithSharedName: 14.9,
  classNamesExportedTwice: 0,
  classesAbove20Fields: 3,
});

test('comments have a subject, names can be searched, and classes stay small', () => {
  const figures = figuresOf(styleOf(sourcesOfSrc()));
  for (const [name, bound] of Object.entries(BOUNDS)) {
    const figure = figures[/** @type {keyof typeof BOUNDS} */ (name)];
    assert.ok(figure <= bound, `${name}: ${figure}, at most ${bound}: node test/source-style.js`);
  }
});

test('a door outside its codec and its HTTP API is small, because the rules are below the doors', () => {
  const sizes = sizesOf();
  for (const [door, most] of Object.entries({ pusher: 650, centrifugo: 1300, native: 960 })) {
    const lines = sizes.get(`doors/${door}`) ?? Number.POSITIVE_INFINITY;
    assert.ok(lines <= most, `doors/${door}: ${lines} lines, at most ${most}`);
  }
});

test('a comment without a subject is found in each form, and others are not', () => {
  const source = `
/** Of the list, or in one. */
/**
 * It is in no crowd.
 */
// Not for long.
const a = 1; // as before
/** Is it a list? */
/** @param {string} a */
// In-process state, and its bounds.
const b = 2;
// e.g. This.
const url = 'http://of';
`;
  const { comments, faults } = styleOf(new Map([['a.js', source]])).openings;
  assert.equal(comments, 7);
  assert.deepEqual(faults, [
    'a.js: Of the list, or in one.',
    'a.js: It is in no crowd.',
    'a.js: Not for long.',
    'a.js: as before',
  ]);
});

test('definitions are functions and methods, and five of a name are shared', () => {
  const source = `
export class A {
  #count = 0;
  total;

  constructor(a) {
    this.a = a;
    this.total = 0;
  }

  /** close() { */
  close() {
    if (this.a) {
    }
  }

  static async open(
    a,
  ) {}

  get size() {
    return 1;
  }
}

async function read() {}
`;
  const of = (/** @type {number} */ copies) =>
    styleOf(new Map(Array.from({ length: copies }, (_, i) => [`${i}.js`, source])));
  assert.equal(of(1).names.definitions, 4);
  assert.equal(of(4).names.shared.size, 0);
  assert.deepEqual([...of(5).names.shared.keys()].sort(), ['close', 'open', 'read', 'size']);
  assert.deepEqual([...of(2).classes], [['A', ['0.js', '1.js']]]);
  assert.deepEqual([...of(1).fields], [['0.js A', 3]]);
});

test('a class name is exported once, except by the builds of the client library', () => {
  const exportedTwice = (/** @type {string} */ name, /** @type {string[]} */ ...paths) => {
    const source = `export class ${name} {\n}\n`;
    const style = styleOf(new Map(paths.map((path) => [path, source])));
    return figuresOf(style).classNamesExportedTwice;
  };
  assert.equal(exportedTwice('Lobby', 'auth/lobby.js'), 0);
  assert.equal(exportedTwice('Lobby', 'auth/lobby.js', 'hub/lobby.js'), 1);
  assert.equal(exportedTwice('Emitter', 'client/a.js', 'client/b.js'), 1);
  assert.equal(exportedTwice('Room', 'client/room.js', 'client/sse/room.js'), 0);
  assert.equal(exportedTwice('Room', 'client/room.js', 'hub/room.js'), 1);
  assert.equal(exportedTwice('Room', 'hub/room.js'), 1);
});
