// client-bindings.js: applications with React, Vue or Svelte as a bundler makes them, in a page.

import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { compile, compileModule } from 'svelte/compiler';
import { compileScript, parse } from 'vue/compiler-sfc';

const root = fileURLToPath(new URL('../../', import.meta.url));

const VUE_FLAGS = {
  __VUE_OPTIONS_API__: 'true',
  __VUE_PROD_DEVTOOLS__: 'false',
  __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: 'false',
};

/** `fanfare-client` is src/client, as its `exports` say. @type {import('esbuild').Plugin} */
const fanfareClient = {
  name: 'fanfare-client',
  setup(build) {
    const { exports } = JSON.parse(readFileSync(`${root}src/client/package.json`, 'utf8'));
    build.onResolve({ filter: /^fanfare-client($|\/)/ }, ({ path }) => ({
      path: join(root, 'src/client', exports[path.replace('fanfare-client', '.')].default),
    }));
  },
};

/** Components of Svelte. @param {'client'|'server'} generate @returns {import('esbuild').Plugin} */
export const svelte = (generate) => ({
  name: 'svelte',
  setup(build) {
    build.onLoad({ filter: /\.svelte(\.js)?$/ }, ({ path }) => {
      const options = { filename: path, generate, dev: generate === 'client' };
      const { js } = (path.endsWith('.js') ? compileModule : compile)(
        readFileSync(path, 'utf8'),
        options,
      );
      return { contents: js.code };
    });
  },
});

/** Components of Vue. @type {import('esbuild').Plugin} */
const vue = {
  name: 'vue',
  setup(build) {
    build.onLoad({ filter: /\.vue$/ }, ({ path }) => {
      const { descriptor } = parse(readFileSync(path, 'utf8'), { filename: path });
      const { content } = compileScript(descriptor, { id: basename(path), inlineTemplate: true });
      return { contents: content, loader: 'ts' };
    });
  },
};

/**
 * @param {Record<string, string>} files by name; `app.js`, `app.tsx` … is the program
 * @param {{server?: boolean}} [options] server: a module for Node instead, with what `app` exports
 * @returns {Promise<string>} one script
 */
export async function bundleApp(files, { server = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-bindings-'));
  try {
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const app = Object.keys(files).find((name) => /^app\.[jt]sx?$/.test(name));
    const bundled = await build({
      entryPoints: [join(folder, String(app))],
      bundle: true,
      write: false,
      jsx: 'automatic',
      logLevel: 'error',
      define: { 'process.env.NODE_ENV': '"development"', ...VUE_FLAGS },
      plugins: [fanfareClient, svelte(server ? 'server' : 'client'), vue],
      ...(server
        ? { format: 'esm', platform: 'node', packages: 'external' }
        : { conditions: ['browser', 'development'] }),
    });
    return bundled.outputFiles[0].text;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Opens a page of a server's origin and runs a script in it.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {import('playwright-core').Browser} browser @param {number} port
 * @param {string} script
 */
export async function loadApp(t, browser, port, script) {
  const page = await browser.newPage();
  t.after(() => page.close());
  /** Joins and leaves that the page has sent. @type {[string, string][]} */
  const sent = [];
  page.on('websocket', (socket) =>
    socket.on('framesent', ({ payload }) => {
      const { type, room } = JSON.parse(String(payload));
      if (type === 'join' || type === 'leave') sent.push([type, room]);
    }),
  );
  /** What the page has reported. @type {string[]} */
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (line) => {
    const isOurs = !line.location().url.endsWith('/favicon.ico');
    if (isOurs && ['error', 'warning'].includes(line.type())) errors.push(line.text());
  });
  await page.goto(`http://127.0.0.1:${port}/livez`);
  await page.evaluate('document.body.innerHTML = "<div id=root></div>"');
  await page.addScriptTag({ content: script });
  return { page, sent, errors };
}
