// modules.js: the modules of one simulated process.
//
// Each process has its own instances of all files of the program, unmodified, in the main context.
// Builtin modules that touch the machine are replaced (builtins.js), and so are a few files below the
// contract of transports (substitutes.js). Packages are shared by all processes; ioredis and ws get
// the simulated sockets.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import vm from 'node:vm';
import { builtinFor } from './builtins.js';
import { sourceInstead, substituteFor } from './substitutes.js';

/** @import { SimulatedProcess } from './simulated-process.js' */
/** @typedef {Record<string, unknown>} Exports */

const { SourceTextModule, SyntheticModule } = /** @type {any} */ (vm);

/** Packages that are the same for all processes. @type {Map<string, Exports>} */
const packages = new Map();
/** @type {Map<string, {text: string, identifier: string, isDynamic: boolean, cachedData: Buffer|undefined}>} */
const sources = new Map();
/** A dynamic import; half of all files name one in a comment, as a type. */
const DYNAMIC_IMPORT = /^(?!\s*(?:\/\*|\*)).*?(?<!\/\*\*.*)\bimport\(/m;

/**
 * Loads packages before a simulation begins: while it runs, nothing may wait for the machine.
 * @param {readonly string[]} names
 */
export async function loadPackages(names) {
  for (const name of names)
    if (!packages.has(name)) packages.set(name, { .../** @type {Exports} */ (await import(name)) });
}

/** @param {string} url */
function sourceOf(url) {
  let source = sources.get(url);
  if (source === undefined) {
    const other = sourceInstead(url);
    const text = other?.text ?? readFileSync(fileURLToPath(url), 'utf8');
    const isDynamic = DYNAMIC_IMPORT.test(text);
    source = { text, identifier: other?.url ?? url, isDynamic, cachedData: undefined };
    sources.set(url, source);
  }
  return source;
}

export class Modules {
  /** @type {Map<string, any>} */
  #modules = new Map();

  /** @param {SimulatedProcess} owner */
  constructor(owner) {
    this.owner = owner;
    this.importModule = this.importModule.bind(this);
  }

  /** Runs a program. @param {string} path */
  async run(path) {
    await this.importModule(pathToFileURL(path).href);
  }

  /** @param {string} url @returns {Promise<Exports>} its exports */
  async load(url) {
    return (await this.importModule(url)).namespace;
  }

  /** @param {string} url */
  async importModule(url) {
    const module = this.#moduleFor(url);
    if (module.status === 'unlinked')
      await module.link((/** @type {string} */ specifier, /** @type {any} */ from) =>
        this.#moduleFor(resolve(specifier, from.identifier)),
      );
    if (module.status === 'linking' || module.status === 'linked') await module.evaluate();
    else if (module.status === 'evaluating') await module.evaluate();
    return module;
  }

  /** @param {string} url */
  #moduleFor(url) {
    const known = this.#modules.get(url);
    if (known !== undefined) return known;
    const module = this.#createModule(url);
    this.#modules.set(url, module);
    return module;
  }

  /** @param {string} url */
  #createModule(url) {
    const { owner } = this;
    const exports = this.#replacement(url);
    if (exports !== undefined) return synthetic(url, exports);
    const source = sourceOf(url);
    const { text, cachedData, identifier, isDynamic } = source;
    // V8 gives equal texts the dynamic imports of the first process.
    const own = isDynamic ? `${text}\n//${owner.pid}` : text;
    const module = new SourceTextModule(own, {
      identifier,
      cachedData,
      initializeImportMeta: (/** @type {any} */ meta) => {
        meta.url = identifier;
        meta.filename = fileURLToPath(identifier);
        meta.dirname = dirname(meta.filename);
        meta.resolve = (/** @type {string} */ specifier) => import.meta.resolve(specifier);
      },
      importModuleDynamically: (/** @type {string} */ specifier) =>
        this.importModule(resolve(specifier, identifier)),
    });
    // Code from the cache would have no dynamic imports, either.
    if (!isDynamic) source.cachedData ??= module.createCachedData();
    return module;
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

/** @param {string} url @param {Exports} exports */
function synthetic(url, exports) {
  const names = Object.keys(exports);
  return new SyntheticModule(
    names,
    /** @this {any} */ function () {
      for (const name of names) this.setExport(name, exports[name]);
    },
    { identifier: url },
  );
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
