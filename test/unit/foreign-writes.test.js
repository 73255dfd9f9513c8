// foreign-writes.test.js: which files of src write fields of another file's objects.
//
// A field belongs to the class (or the typedef of an object) that declares it, and to the file of
// that class. The check asks TypeScript for the declared type of each assignment's target. A write
// to `this`, to a type of the same file, and to a plain counter is no foreign write. The foreign
// writes that remain are listed with their reasons in docs/architecture/foreign-writes.md.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const MAX_FOREIGN_WRITES = 15;

const root = fileURLToPath(new URL('../../', import.meta.url));
const src = `${root}src/`;
const files = readdirSync(src, { recursive: true })
  .map(String)
  .filter((path) => path.endsWith('.js'));

test('every write to a field of another file is listed with its reason, and they are few', () => {
  const page = readFileSync(`${root}docs/architecture/foreign-writes.md`, 'utf8');
  const listed = [...page.matchAll(/^\| `(src\/[^`]+)` \| `([^`]+)` \| (\d+) \| \S/gm)];
  const rows = new Map(listed.map(([, file, field, count]) => [`${file} ${field}`, Number(count)]));
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const { file, field } of files.flatMap(foreignWrites)) {
    const key = `src/${file} ${field}`;
    found.set(key, (found.get(key) ?? 0) + 1);
  }
  assert.deepEqual(
    [...found].sort(),
    [...rows].sort(),
    'docs/architecture/foreign-writes.md and the source differ',
  );
  const total = [...found.values()].reduce((sum, count) => sum + count, 0);
  assert.ok(total <= MAX_FOREIGN_WRITES, `${total} foreign writes`);
});

const TYPES = `
/** @typedef {import('./connection.js').Connection} Connection */
/** @typedef {import('./room.js').HubRoom} HubRoom */
/** @typedef {import('./slow-consumers.js').Lag} Lag */
`;

const FAULTS = /** @type {const} */ ([
  ['an assignment', '/** @param {Connection} c */ export const x = (c) => { c.index = 1; };'],
  ['an update', '/** @param {Connection} c */ export const x = (c) => { c.index++; };'],
  [
    'a compound assignment',
    '/** @param {Connection} c */ export const x = (c) => { c.index += 1; };',
  ],
  [
    'a logical assignment',
    '/** @param {Connection} c */ export const x = (c) => { c.otherRooms ??= null; };',
  ],
  ['a deletion', '/** @param {Connection} c */ export const x = (c) => { delete c.index; };'],
  [
    'a name in brackets',
    "/** @param {Connection} c */ export const x = (c) => { c['index'] = 1; };",
  ],
  [
    'an element of its array',
    '/** @param {HubRoom} r */ export const x = (r) => { r.members[0] = r.members[1]; };',
  ],
  [
    'the length of its array',
    '/** @param {HubRoom} r */ export const x = (r) => { r.members.length = 0; };',
  ],
  [
    'one that may be null',
    '/** @param {Connection|null} c */ export const x = (c) => { if (c) c.index = 1; };',
  ],
  [
    'a destructuring assignment',
    '/** @param {Connection} c */ export const x = (c) => { [c.index] = [1]; };',
  ],
  [
    'Object.assign',
    '/** @param {Connection} c */ export const x = (c) => { Object.assign(c, { index: 1 }); };',
  ],
  [
    'an object of a typedef',
    '/** @param {Lag} lag */ export const x = (lag) => { lag.sinceMs = 1; };',
  ],
  [
    'a change of its array',
    '/** @param {HubRoom} r */ export const x = (r) => { r.members.push(r.members[0]); };',
  ],
  [
    'a change of its map',
    '/** @param {Connection} c */ export const x = (c) => { c.otherRooms?.clear(); };',
  ],
]);

const FAIR = `
class Own { at = 0; list = [0]; }
/** @param {Connection} c @param {Own} own */
export const x = (c, own) => {
  own.at = 1;
  own.list.push(c.index);
  const copy = [c.index];
  copy[0] = 2;
  c.close({ code: 1, reason: '' });
};`;

/** Sources that are not on disk. They are beside src/hub/hub.js, so that imported types are found. */
const planted = new Map(
  [...FAULTS, ['fair', FAIR]].map(([name, source]) => [
    `hub/planted ${name}.js`,
    `${TYPES}${source}`,
  ]),
);

for (const [name] of FAULTS) {
  test(`the check finds ${name}`, () => {
    assert.equal(foreignWrites(`hub/planted ${name}.js`).length, 1);
  });
}

test('the check ignores writes to objects of the same file, and method calls', () => {
  assert.deepEqual(foreignWrites('hub/planted fair.js'), []);
});

/** Methods that change a collection. */
const CHANGES = new Set([
  ...['push', 'pop', 'shift', 'unshift', 'splice', 'fill', 'sort', 'reverse', 'copyWithin'],
  ...['set', 'add', 'delete', 'clear'],
]);

/** One program for all tests: making it takes most of their time. */
const program = programOf([...files, ...planted.keys()]);
const checker = program.getTypeChecker();

/** @param {readonly string[]} paths from src */
function programOf(paths) {
  /** @type {ts.CompilerOptions} */
  const options = {
    allowJs: true,
    checkJs: true,
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    types: ['node'],
  };
  const host = ts.createCompilerHost(options);
  const { fileExists, readFile } = host;
  const sourceOf = (/** @type {string} */ name) =>
    name.startsWith(src) ? planted.get(name.slice(src.length)) : undefined;
  host.fileExists = (name) => sourceOf(name) !== undefined || fileExists(name);
  host.readFile = (name) => sourceOf(name) ?? readFile(name);
  return ts.createProgram(
    paths.map((path) => src + path),
    options,
    host,
  );
}

/**
 * @param {string} path from src
 * @returns {{file: string, line: number, field: string}[]}
 */
function foreignWrites(path) {
  const file = program.getSourceFile(src + path);
  assert.ok(file, path);
  return writesIn(file, path);
}

/** @param {ts.SourceFile} file @param {string} path */
function writesIn(file, path) {
  /** @type {ReturnType<typeof foreignWrites>} */
  const found = [];
  /** @param {ts.Node} node @param {string|null} field */
  const add = (node, field) => {
    if (field === null) return;
    const { line } = file.getLineAndCharacterOfPosition(node.getStart());
    found.push({ file: path, line: line + 1, field });
  };
  /** @param {ts.Expression} target */
  const write = (target) => add(target, foreignField(target, file));
  /** @param {ts.Node} node */
  const visit = (node) => {
    if (ts.isBinaryExpression(node) && isAssignment(node.operatorToken.kind)) {
      for (const target of targetsOf(node.left)) write(target);
    } else if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) {
      const { operator, operand } = node;
      if (operator === ts.SyntaxKind.PlusPlusToken || operator === ts.SyntaxKind.MinusMinusToken)
        write(operand);
    } else if (ts.isDeleteExpression(node)) write(node.expression);
    else if (ts.isCallExpression(node)) add(node, changedByCall(node, file));
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

/** @param {ts.SyntaxKind} kind */
function isAssignment(kind) {
  return kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment;
}

/**
 * The targets of an assignment, or of a destructuring one.
 * @param {ts.Expression} left @returns {ts.Expression[]}
 */
function targetsOf(left) {
  if (ts.isArrayLiteralExpression(left)) return left.elements.flatMap(targetsOf);
  if (ts.isSpreadElement(left)) return targetsOf(left.expression);
  if (ts.isObjectLiteralExpression(left)) {
    return left.properties.flatMap((one) =>
      ts.isPropertyAssignment(one) ? targetsOf(one.initializer) : [],
    );
  }
  if (ts.isBinaryExpression(left) && left.operatorToken.kind === ts.SyntaxKind.EqualsToken)
    return targetsOf(left.left);
  return [left];
}

/**
 * @param {ts.CallExpression} call
 * @param {ts.SourceFile} file
 * @returns {string|null} the foreign field, or object, that a call of a built-in method changes
 */
function changedByCall({ expression, arguments: args }, file) {
  if (!ts.isPropertyAccessExpression(expression)) return null;
  const method = expression.name.text;
  const owner = expression.expression;
  if (ts.isIdentifier(owner) && owner.text === 'Object' && method === 'assign') {
    const type = checker.getNonNullableType(checker.getTypeAtLocation(args[0]));
    const symbol = type.aliasSymbol ?? type.symbol;
    const isForeign = args[0].kind !== ts.SyntaxKind.ThisKeyword && isOther(symbol, file);
    return isForeign ? `${symbol.name}.*` : null;
  }
  if (!CHANGES.has(method) || !isCollection(owner)) return null;
  return foreignField(owner, file);
}

/**
 * @param {ts.Expression} target of a write
 * @param {ts.SourceFile} file
 * @returns {string|null} `Class.field` if another file of src declares it
 */
function foreignField(target, file) {
  const access = bare(target);
  if (!ts.isPropertyAccessExpression(access) && !ts.isElementAccessExpression(access)) return null;
  const owner = access.expression;
  if (bare(owner).kind === ts.SyntaxKind.ThisKeyword) return null;
  // An element of a field's array is a part of that field.
  if (ts.isElementAccessExpression(access) || access.name.text === 'length') {
    if (isCollection(owner)) return foreignField(owner, file);
  }
  const name = ts.isPropertyAccessExpression(access) ? access.name : access.argumentExpression;
  const type = checker.getNonNullableType(checker.getTypeAtLocation(owner));
  const property = checker.getPropertyOfType(type, textOf(name));
  if (property === undefined || !isOther(property, file)) return null;
  return `${ownerName(property, type)}.${property.name}`;
}

/**
 * The class that declares a property, or the name of the object's type.
 * @param {ts.Symbol} property @param {ts.Type} type
 */
function ownerName(property, type) {
  for (let node = property.declarations?.[0]?.parent; node !== undefined; node = node.parent)
    if (ts.isClassDeclaration(node)) return node.name?.text ?? 'class';
  return type.aliasSymbol?.name ?? 'object';
}

/** @param {ts.Expression|ts.MemberName} name */
function textOf(name) {
  return ts.isIdentifier(name) || ts.isPrivateIdentifier(name) || ts.isStringLiteralLike(name)
    ? name.text
    : name.getText();
}

/**
 * The same without parentheses, casts and `!`.
 * @param {ts.Expression} node @returns {ts.Expression}
 */
function bare(node) {
  return ts.isParenthesizedExpression(node) || ts.isNonNullExpression(node)
    ? bare(node.expression)
    : node;
}

const COLLECTIONS = new Set(['Array', 'Map', 'Set', 'WeakMap', 'WeakSet']);

/** @param {ts.Expression} node */
function isCollection(node) {
  const { symbol } = checker.getNonNullableType(checker.getTypeAtLocation(node));
  return symbol !== undefined && COLLECTIONS.has(symbol.name);
}

/**
 * Is it declared in another file of src? Counters are plain data that every part adds to.
 * @param {ts.Symbol|undefined} symbol @param {ts.SourceFile} file
 */
function isOther(symbol, file) {
  const declared = (symbol?.declarations ?? []).map((one) => one.getSourceFile().fileName);
  return (
    declared.length > 0 &&
    !declared.includes(file.fileName) &&
    declared.every((name) => name.startsWith(src) && !name.endsWith('/counters.js'))
  );
}
