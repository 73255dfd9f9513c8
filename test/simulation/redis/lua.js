// lua.js: translates scripts of Redis to JavaScript. luaparse reads them; the numbers of Lua 5.1
// are those of JavaScript, and its strings are Latin-1, one character for each byte.
//
// fengari has integers of 32 bits, which no time in milliseconds fits; wasmoon takes strings for
// UTF-8. Each function of Lua becomes one that returns an array, because it may have several
// results. The functions of Lua that it may call are in lua-library.js.

import luaparse from 'luaparse';
import {
  arithmetic,
  concat,
  indexOf,
  LuaError,
  lengthOf,
  less,
  lessOrEqual,
} from './lua-library.js';
import { LuaTable } from './lua-table.js';

/** @typedef {Record<string, any>} Node of luaparse */

const RUNTIME = { arithmetic, concat, indexOf, lengthOf, less, lessOrEqual, LuaError, LuaTable };

/**
 * @param {string} text of a script, in Latin-1
 * @param {{get: (name: string) => unknown, line: number}} globals `line` becomes that of the latest call
 * @returns {() => any[]} runs it
 */
export function compileScript(text, globals) {
  const ast = luaparse.parse(text, {
    luaVersion: '5.1',
    encodingMode: 'pseudo-latin1',
    comments: false,
    locations: true,
    scope: false,
  });
  const body = new Translator().chunk(ast);
  const run = new Function('$g', '$r', body);
  return run(globals, RUNTIME);
}

/** Names of JavaScript for the locals of Lua. */
class Scope {
  /** @param {Scope|null} outer */
  constructor(outer) {
    this.outer = outer;
    /** @type {Map<string, string>} */
    this.names = new Map();
  }

  /** @param {string} name @returns {string|undefined} */
  find(name) {
    return this.names.get(name) ?? this.outer?.find(name);
  }
}

const ARITHMETIC = new Set(['+', '-', '*', '/', '%', '^']);

class Translator {
  constructor() {
    this.scope = new Scope(null);
    this.count = 0;
  }

  /** @param {Node} ast @returns {string} */
  chunk(ast) {
    const names = Object.keys(RUNTIME).join(', ');
    return `'use strict'; const {${names}} = $r;\nreturn function () {${this.#block(ast.body)}\nreturn [];};`;
  }

  /** @param {string} name @returns {string} */
  #declare(name) {
    const own = `${name}$${++this.count}`;
    this.scope.names.set(name, own);
    return own;
  }

  /** @param {() => string} translate @returns {string} */
  #within(translate) {
    this.scope = new Scope(this.scope);
    const text = translate();
    this.scope = /** @type {Scope} */ (this.scope.outer);
    return text;
  }

  /** @param {Node[]} statements @returns {string} */
  #block(statements) {
    return this.#within(() => statements.map((node) => this.#statement(node)).join('\n'));
  }

  /** @param {Node} node @returns {string} */
  #statement(node) {
    switch (node.type) {
      case 'LocalStatement':
        return this.#local(node);
      case 'AssignmentStatement':
        return this.#assignment(node);
      case 'CallStatement':
        return `${this.#call(node.expression)};`;
      case 'FunctionDeclaration': {
        if (!node.isLocal) throw new Error('a script of Redis may not set globals');
        const name = this.#declare(node.identifier.name);
        return `let ${name} = ${this.#function(node)};`;
      }
      case 'IfStatement':
        return node.clauses
          .map((/** @type {Node} */ clause) => this.#clause(clause))
          .join(' else ');
      case 'ForNumericStatement':
        return this.#numericFor(node);
      case 'ForGenericStatement':
        return this.#genericFor(node);
      case 'WhileStatement':
        return `while (${this.#condition(node.condition)}) {${this.#block(node.body)}}`;
      case 'RepeatStatement':
        return this.#within(() => {
          const body = node.body.map((/** @type {Node} */ one) => this.#statement(one)).join('\n');
          return `for (;;) {${body}\nif (${this.#condition(node.condition)}) break;}`;
        });
      case 'ReturnStatement':
        return `return [${this.#list(node.arguments)}];`;
      case 'BreakStatement':
        return 'break;';
      case 'DoStatement':
        return `{${this.#block(node.body)}}`;
      default:
        throw new Error(`${node.type} is unknown here`);
    }
  }

  /** @param {Node} node @returns {string} */
  #local({ variables, init }) {
    const value = this.#values(init, variables.length);
    const names = variables.map((/** @type {Node} */ { name }) => this.#declare(name));
    if (Array.isArray(value)) {
      return `let ${names.map((/** @type {string} */ name, /** @type {number} */ i) => `${name} = ${value[i] ?? 'undefined'}`).join(', ')};`;
    }
    return `let [${names.join(', ')}] = ${value};`;
  }

  /** @param {Node} node @returns {string} */
  #assignment({ variables, init }) {
    const value = this.#values(init, variables.length);
    if (variables.length === 1 && Array.isArray(value)) return this.#assign(variables[0], value[0]);
    const temporary = `$t${++this.count}`;
    const list = Array.isArray(value) ? `[${value.join(', ')}]` : value;
    // Lua finds all places before it assigns to any.
    const places = variables.map((/** @type {Node} */ { type, base }, /** @type {number} */ i) =>
      type === 'Identifier'
        ? ''
        : `const ${temporary}b${i} = ${this.#expression(base)}, ${temporary}k${i} = ${this.#key(variables[i])};`,
    );
    const each = variables.map((/** @type {Node} */ variable, /** @type {number} */ i) =>
      variable.type === 'Identifier'
        ? this.#assign(variable, `${temporary}[${i}]`)
        : `${temporary}b${i}.set(${temporary}k${i}, ${temporary}[${i}]);`,
    );
    return `{${places.join(' ')} const ${temporary} = ${list}; ${each.join(' ')}}`;
  }

  /** @param {Node} target @param {string} value @returns {string} */
  #assign(target, value) {
    if (target.type === 'Identifier') {
      const name = this.scope.find(target.name);
      if (name === undefined) throw new Error(`Attempt to set the global ${target.name}`);
      return `${name} = ${value};`;
    }
    return `${this.#expression(target.base)}.set(${this.#key(target)}, ${value});`;
  }

  /**
   * @param {Node[]} nodes @param {number} count of variables
   * @returns {string[]|string} one expression for each, or one that makes an array
   */
  #values(nodes, count) {
    const last = nodes.at(-1);
    if (last !== undefined && isMultiple(last) && count > nodes.length)
      return `[${this.#list(nodes)}]`;
    return nodes.map((node) => this.#expression(node));
  }

  /** @param {Node} clause @returns {string} */
  #clause(clause) {
    const body = `{${this.#block(clause.body)}}`;
    return clause.type === 'ElseClause'
      ? body
      : `if (${this.#condition(clause.condition)}) ${body}`;
  }

  /** @param {Node} node @returns {string} */
  #numericFor({ variable, start, end, step, body }) {
    const at = `$i${++this.count}`;
    const [first, last, by] = [start, end, step].map((node) =>
      node === null ? '1' : `Number(${this.#expression(node)})`,
    );
    return this.#within(() => {
      const name = this.#declare(variable.name);
      return `for (let ${at} = ${first}, ${at}e = ${last}, ${at}s = ${by}; ${at}s > 0 ? ${at} <= ${at}e : ${at} >= ${at}e; ${at} += ${at}s) {let ${name} = ${at}; ${this.#block(body)}}`;
    });
  }

  /** @param {Node} node @returns {string} */
  #genericFor({ variables, iterators, body }) {
    const state = `$f${++this.count}`;
    const list = `[${this.#list(iterators)}]`;
    return this.#within(() => {
      const names = variables.map((/** @type {Node} */ { name }) => this.#declare(name));
      const [first] = names;
      return `for (let ${state} = ${list}, ${state}c = ${state}[2];;) {let [${names.join(', ')}] = ${state}[0](${state}[1], ${state}c); if (${first} === undefined) break; ${state}c = ${first}; ${this.#block(body)}}`;
    });
  }

  /** @param {Node} node @returns {string} */
  #function({ parameters, body }) {
    return this.#within(() => {
      const names = parameters.map((/** @type {Node} */ parameter) => {
        if (parameter.type === 'VarargLiteral') return '...$rest';
        return this.#declare(parameter.name);
      });
      return `((${names.join(', ')}) => {${this.#block(body)}\nreturn [];})`;
    });
  }

  /** @param {Node[]} nodes @returns {string} expressions, the last one with all of its values */
  #list(nodes) {
    return nodes
      .map((node, i) =>
        i === nodes.length - 1 && isMultiple(node)
          ? `...${this.#multiple(node)}`
          : this.#expression(node),
      )
      .join(', ');
  }

  /** @param {Node} node @returns {string} */
  #multiple(node) {
    return node.type === 'VarargLiteral' ? '$rest' : this.#call(node);
  }

  /** @param {Node} node @returns {string} an expression that JavaScript takes for a condition */
  #condition(node) {
    if (node.type === 'UnaryExpression' && node.operator === 'not')
      return `!(${this.#condition(node.argument)})`;
    if (node.type === 'LogicalExpression') {
      const operator = node.operator === 'and' ? '&&' : '||';
      return `(${this.#condition(node.left)} ${operator} ${this.#condition(node.right)})`;
    }
    const text = this.#expression(node);
    if (node.type === 'BinaryExpression' && /[=<>]/.test(node.operator)) return text;
    const value = `$v${++this.count}`;
    return `((${value}) => ${value} !== undefined && ${value} !== false)(${text})`;
  }

  /** @param {Node} node @returns {string} an expression of one value */
  #expression(node) {
    switch (node.type) {
      case 'NumericLiteral':
        return String(node.value);
      case 'StringLiteral':
        return JSON.stringify(node.value);
      case 'BooleanLiteral':
        return String(node.value);
      case 'NilLiteral':
        return 'undefined';
      case 'VarargLiteral':
        return '$rest[0]';
      case 'Identifier':
        return this.scope.find(node.name) ?? `$g.get(${JSON.stringify(node.name)})`;
      case 'MemberExpression':
      case 'IndexExpression':
        return `indexOf(${this.#expression(node.base)}, ${this.#key(node)})`;
      case 'FunctionDeclaration':
        return this.#function(node);
      case 'TableConstructorExpression':
        return this.#table(node);
      case 'UnaryExpression':
        return this.#unary(node);
      case 'BinaryExpression':
        return this.#binary(node);
      case 'LogicalExpression':
        return this.#logical(node);
      default:
        return `${this.#call(node)}[0]`;
    }
  }

  /** @param {Node} node @returns {string} */
  #key(node) {
    return node.type === 'MemberExpression'
      ? JSON.stringify(node.identifier.name)
      : this.#expression(node.index);
  }

  /** @param {Node} node @returns {string} */
  #table({ fields }) {
    const last = fields.at(-1);
    const items = fields.filter((/** @type {Node} */ { type }) => type === 'TableValue');
    const rest = fields.filter((/** @type {Node} */ { type }) => type !== 'TableValue');
    const values = items.map((/** @type {Node} */ { value }) => value);
    const list =
      last?.type === 'TableValue' && isMultiple(last.value)
        ? this.#list(values)
        : values.map((/** @type {Node} */ value) => this.#expression(value)).join(', ');
    const sets = rest.map(
      (/** @type {Node} */ { type, key, value }) =>
        `.with(${type === 'TableKeyString' ? JSON.stringify(key.name) : this.#expression(key)}, ${this.#expression(value)})`,
    );
    return `LuaTable.of([${list}])${sets.join('')}`;
  }

  /** @param {Node} node @returns {string} */
  #unary({ operator, argument }) {
    if (operator === 'not') return `!(${this.#condition(argument)})`;
    const value = this.#expression(argument);
    return operator === '#' ? `lengthOf(${value})` : `arithmetic('-', 0, ${value})`;
  }

  /** @param {Node} node @returns {string} */
  #binary({ operator, left, right }) {
    const [a, b] = [this.#expression(left), this.#expression(right)];
    if (ARITHMETIC.has(operator)) return `arithmetic('${operator}', ${a}, ${b})`;
    switch (operator) {
      case '..':
        return `concat(${a}, ${b})`;
      case '==':
        return `(${a} === ${b})`;
      case '~=':
        return `(${a} !== ${b})`;
      case '<':
        return `less(${a}, ${b})`;
      case '>':
        return `less(${b}, ${a})`;
      case '<=':
        return `lessOrEqual(${a}, ${b})`;
      case '>=':
        return `lessOrEqual(${b}, ${a})`;
      default:
        throw new Error(`the operator ${operator} is unknown here`);
    }
  }

  /** @param {Node} node @returns {string} */
  #logical({ operator, left, right }) {
    const value = `$v${++this.count}`;
    const isFalse = `${value} === undefined || ${value} === false`;
    const [whenFalse, whenTrue] =
      operator === 'and' ? [value, this.#expression(right)] : [this.#expression(right), value];
    return `((${value}) => (${isFalse}) ? ${whenFalse} : ${whenTrue})(${this.#expression(left)})`;
  }

  /** @param {Node} node @returns {string} an expression of an array of values */
  #call(node) {
    if (node.type === 'StringCallExpression' || node.type === 'TableCallExpression') {
      const argument = node.type === 'StringCallExpression' ? node.argument : node.arguments;
      return `${this.#expression(node.base)}(${this.#expression(argument)})`;
    }
    const line = node.loc.start.line;
    if (node.base.type === 'MemberExpression' && node.base.indexer === ':') {
      const self = `$s${++this.count}`;
      const list = this.#list(node.arguments);
      return `((${self}) => indexOf(${self}, ${this.#key(node.base)})(${self}${list && `, ${list}`}))(${this.#expression(node.base.base)})`;
    }
    const name = node.base.type === 'MemberExpression' ? node.base.identifier.name : '';
    const call = `${this.#expression(node.base)}(${this.#list(node.arguments)})`;
    return name === 'call' ? `($g.line = ${line}, ${call})` : call;
  }
}

/** @param {Node} node @returns {boolean} may it have several values? */
function isMultiple({ type, inParens }) {
  return !inParens && /Call|Vararg/.test(type);
}
