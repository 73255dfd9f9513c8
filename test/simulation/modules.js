// modules.js: the modules of one simulated process.
//
// Each process has its own instances of all files of the program. Builtin modules that touch the
// machine are replaced (builtins.js), and so are a few files below the contract of transports
// (substitutes.js). Packages are shared by all processes; ioredis and ws get the simulated sockets.
//
// A file becomes a function that takes what it imports and returns what it exports. V8 compiles it
// once, and all processes share its code, while modules of node:vm are compiled for each process: a
// start cost 95 ms of processor time, and costs 40 ms. Only the statements `import` and `export`
// change, and no line moves. They must stand at the beginning of a line, as the formatter leaves
// them; a file that has others does not compile.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import vm from 'node:vm';
import { builtinFor } from './builtins.js';
import { sourceInstead, substituteFor } from './substitutes.js';

/** @import { SimulatedProcess } from './simulated-process.js' */
/** @typedef {Record<string, unknown>} Exports */

/** Packages that are the same for all processes. @type {Map<string, Exports>} */
const packages = new Map();
/** @type {Map<string, Source>} */
const sources = new Map();

/**
 * @typedef {object} Source a file of the program
 * @property {string} identifier its URL
 * @property {string[]} imports specifiers of static imports
 * @property {(imported: Record<string, Exports>, meta: object, load: Function) => any} run returns its
 *   exports, or a promise of them
 */
/** A dynamic import outside of comments. */
const DYNAMIC_IMPORT = /(?<=^(?!\s*(?:\/\*|\*)).*(?<!\/\*\*.*))\bimport\(/gm;
const TOP_LEVEL_AWAIT = /^(?:(?:if \(.*\) |else (?:if \(.*\) )?|const .* = )?await )/m;

/**
 * Loads packages before a simulation begins: while it runs, nothing may wait for the machine.
 * @param {readonly string[]} names
 */
export async function loadPackages(names) {
  for (const name of names)
    if (!packages.has(name)) packages.set(name, { .../** @type {Exports} */ (await import(name)) });
}

/** @param {string} url @returns {Source} */
function sourceOf(url) {
  let source = sources.get(url);
  if (source === undefined) {
    const other = sourceInstead(url);
    const text = other?.text ?? readFileSync(fileURLToPath(url), 'utf8');
    source = compileSource(text, other?.url ?? url);
    sources.set(url, source);
  }
  return source;
}

/** @param {string} text @param {string} identifier @returns {Source} */
function compileSource(text, identifier) {
  const { body, imports, exports } = asFunctionBody(text);
  const kind = TOP_LEVEL_AWAIT.test(text) ? 'async function' : 'function';
  const wrapped = `(${kind} ($imported, $meta, $load) {'use strict';${body}\nreturn {${exports}};})`;
  const run = new vm.Script(wrapped, { filename: fileURLToPath(identifier) }).runInThisContext();
  return { identifier, imports, run };
}

/**
 * The text of a module as the body of a function, with as many lines.
 * @param {string} text @returns {{body: string, imports: string[], exports: string}}
 */
export function asFunctionBody(text) {
  /** @type {string[]} */
  const imports = [];
  /** Members of the object that it returns. @type {string[]} */
  const exports = [];
  const from = (/** @type {string} */ specifier) => {
    imports.push(specifier);
    return `$imported['${specifier}']`;
  };
  const body = text
    .replace(/^#!.*/, '')
    .replace(/^import '([^']+)';/gm, (_, specifier) => `${from(specifier)};`)
    .replace(
      /^import (?:\* as (\w+)|(\w+)|(?:(\w+), )?\{([^}]*)\}) from '([^']+)';/gm,
      (_, all, only, first, names, specifier) => {
        if (all !== undefined) return `const ${all} = ${from(specifier)};`;
        const main = only ?? first;
        const members = [
          ...(main ? [`default: ${main}`] : []),
          names?.replace(/ as /g, ': ') ?? '',
        ];
        return `const {${members.join(', ')}} = ${from(specifier)};`;
      },
    )
    .replace(/^export \* from '([^']+)';/gm, (_, specifier) => {
      // What a file exports itself hides what it passes on.
      exports.unshift(`...${from(specifier)}`);
      return '';
    })
    .replace(/^export \{([^}]*)\}(?: from '([^']+)')?;/gm, (_, names, specifier) => {
      const source = specifier === undefined ? '' : `${from(specifier)}.`;
      for (const [name, as = name] of listed(names)) exports.push(`${as}: ${source}${name}`);
      return names.replace(/[^\n]/g, '');
    })
    .replace(/^export const \{([^}]*)\}/gm, (_, names) => {
      for (const [name, as = name] of listed(names.replace(/: /g, ' as '))) exports.push(as);
      return `const {${names}}`;
    })
    .replace(/^export default /gm, () => {
      exports.push('default: $default');
      return 'const $default = ';
    })
    .replace(/^export ((?:async )?function\*?|class|const) (\w+)/gm, (_, kind, name) => {
      exports.push(name);
      return `${kind} ${name}`;
    })
    .replace(DYNAMIC_IMPORT, '$load(')
    .replace(/\bimport\.meta\b/g, '$meta');
  return { body, imports, exports: exports.join(', ') };
}

/** @param {string} names of an import or export @returns {string[][]} each, and as what */
function listed(names) {
  return names
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '')
    .map((one) => one.split(' as '));
}

export class Modules {
  /** A file with a top-level await is a promise at first. @type {Map<string, Exports|Promise<Exports>>} */
  #modules = new Map();
  /** URLs of files that are being loaded. @type {Set<string>} */
  #begun = new Set();

  /** @param {SimulatedProcess} owner */
  constructor(owner) {
    this.owner = owner;
  }

  /** Runs a program. @param {string} path */
  async run(path) {
    await this.load(pathToFileURL(path).href);
  }

  /** @param {string} url @returns {Promise<Exports>} its exports */
  async load(url) {
    return this.#exportsOf(url);
  }

  /** @param {string} url @returns {Exports|Promise<Exports>} */
  #exportsOf(url) {
    let exports = this.#modules.get(url);
    if (exports !== undefined) return exports;
    if (this.#begun.has(url)) throw new Error(`${url} imports itself by way of others`);
    this.#begun.add(url);
    exports = this.#replacement(url) ?? this.#evaluate(url);
    this.#modules.set(url, exports);
    return exports;
  }

  /** @param {string} url @returns {Exports|Promise<Exports>} */
  #evaluate(url) {
    const { identifier, imports, run } = sourceOf(url);
    /** @type {Record<string, Exports>} */
    const imported = {};
    for (const specifier of imports) {
      const exports = this.#exportsOf(resolve(specifier, identifier));
      if (exports instanceof Promise) throw new Error(`${specifier} has a top-level await`);
      imported[specifier] = exports;
    }
    const filename = fileURLToPath(identifier);
    const meta = {
      ...{ url: identifier, filename, dirname: dirname(filename) },
      resolve: (/** @type {string} */ specifier) => import.meta.resolve(specifier),
    };
    return run(imported, meta, (/** @type {string} */ specifier) =>
      this.load(resolve(specifier, identifier)),
    );
  }

  /** @param {string} url @returns {Exports|undefined} */
  #replacement(url) {
    const { owner } = this;
    if (url.startsWith('node:')) return builtinFor(owner, url.slice('node:'.length));
    return url.startsWith('file:') ? substituteFor(owner, url) : packageFor(owner, url);
  }
}

/** @param {string} specifier @param {string} from */
function resolve(specifier, from) {
  if (specifier.startsWith('.') || specifier.startsWith('/')) return new URL(specifier, from).href;
  return specifier;
}

/** @param {SimulatedProcess} owner @param {string} name @returns {Exports} */
function packageFor(owner, name) {
  const own = owner.machine.packageFor(owner, name);
  if (own !== undefined) return own;
  const shared = packages.get(name);
  if (shared === undefined) throw new Error(`the simulator has not loaded the package ${name}`);
  return shared;
}

/**
 * A CommonJS package whose builtin modules are replaced, in one instance for all processes.
 * @param {string} name @param {Record<string, unknown>} builtins
 * @returns {any} its exports
 */
export function loadCommonJs(name, builtins) {
  /** @type {Map<string, {exports: any}>} */
  const loaded = new Map();
  const outer = createRequire(import.meta.url);
  const load = (/** @type {string} */ path) => {
    const known = loaded.get(path);
    if (known !== undefined) return known.exports;
    const module = { exports: /** @type {any} */ ({}) };
    loaded.set(path, module);
    const text = readFileSync(path, 'utf8');
    if (path.endsWith('.json')) {
      module.exports = JSON.parse(text);
      return module.exports;
    }
    const inner = createRequire(path);
    const require = Object.assign(
      (/** @type {string} */ specifier) => {
        const builtin = specifier.replace(/^node:/, '');
        if (Object.hasOwn(builtins, builtin)) return builtins[builtin];
        const resolved = inner.resolve(specifier);
        return resolved.startsWith('/') ? load(resolved) : inner(specifier);
      },
      { resolve: inner.resolve },
    );
    const wrapped = vm.compileFunction(
      text,
      ['exports', 'require', 'module', '__filename', '__dirname'],
      {
        filename: path,
      },
    );
    wrapped.call(module.exports, module.exports, require, module, path, dirname(path));
    return module.exports;
  };
  return load(outer.resolve(name));
}
