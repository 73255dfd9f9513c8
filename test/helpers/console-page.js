// console-page.js: the console in a real browser, watched for faults: errors, violations of its
// policy, and requests to other machines.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { openBrowser } from './browser.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** @typedef {import('playwright-core').Page} Page */

/**
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {string} url
 * @param {import('playwright-core').BrowserContextOptions & {hash?: string, browser?: import('playwright-core').Browser}}
 *   [options] `hash`: of the first view; `browser`: one of its own if it is absent
 */
export async function openConsole(t, url, { hash = '', browser, ...options } = {}) {
  browser ??= await openBrowser(t);
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, ...options });
  t.after(() => page.close());
  page.setDefaultTimeout(10_000);
  /** Events that must not happen. @type {string[]} */
  const faults = [];
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // Chromium reports each refused request as an error of the console; tests refuse some.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      faults.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${url}/`) && !request.url().startsWith('data:'))
      faults.push(`request to ${request.url()}`);
  });
  await page.goto(`${url}/#/${hash}`);
  return { page, faults };
}

/**
 * Serious faults of accessibility, by the rules of axe.
 * @param {Page} page @returns {Promise<string[]>}
 */
export async function seriousFaults(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => {
    const { axe } = /** @type {any} */ (globalThis);
    return axe.run({ resultTypes: ['violations'] });
  });
  return violations
    .filter((/** @type {any} */ { impact }) => impact === 'serious' || impact === 'critical')
    .flatMap((/** @type {any} */ { id, nodes }) =>
      nodes.map((/** @type {any} */ node) => `${id}: ${node.html} ${node.any[0]?.message ?? ''}`),
    );
}

/**
 * Parts that are cut, lie outside the window, or cover something else. Parts that scroll by design
 * are left out: messages, members, code. So are names that are cut and have a title.
 * @param {Page} page @returns {Promise<string[]>}
 */
export function misplaced(page) {
  return page.evaluate(() => {
    const { document, innerWidth, NodeFilter, getComputedStyle } = /** @type {any} */ (globalThis);
    const SCROLLS =
      '.messages, .members, pre, textarea, .chart-table, .visually-hidden, .skip, .name[title]';
    /** @type {string[]} */
    const faults = [];
    /** @type {{name: string, box: any, owner: any}[]} */
    const texts = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      const owner = node.parentElement;
      if (node.data.trim() === '' || owner.closest(SCROLLS) !== null) continue;
      if (!owner.checkVisibility({ visibilityProperty: true })) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects())
        if (box.width > 0) texts.push({ name: node.data.trim().slice(0, 30), box, owner });
    }
    for (const { name, box, owner } of texts) {
      if (box.left < -0.5 || box.right > innerWidth + 0.5) faults.push(`outside: ${name}`);
      for (let around = owner; around !== document.body; around = around.parentElement) {
        if (getComputedStyle(around).overflowX === 'visible') continue;
        const { left, right } = around.getBoundingClientRect();
        if (box.left < left - 0.5 || box.right > right + 0.5) faults.push(`cut: ${name}`);
      }
    }
    for (const [i, one] of texts.entries())
      for (const other of texts.slice(i + 1)) {
        const wide =
          Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
        const high =
          Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
        // The lines of one text may touch.
        if (wide > 1 && high > 4) faults.push(`overlap: ${one.name} / ${other.name}`);
      }
    return faults;
  });
}

/**
 * Has a page remember the texts and areas that it draws on canvases, for `axisFaults` and
 * `areasOf`.
 * @param {Page} page before its navigation, or before it draws again
 */
export async function watchCanvases(page) {
  const watch = () => {
    const { CanvasRenderingContext2D } = /** @type {any} */ (globalThis);
    const { fillText, fillRect, clearRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (/** @type {any[]} */ ...area) {
      this.canvas.drawnTexts = [];
      this.canvas.drawnAreas = [];
      return clearRect.apply(this, area);
    };
    CanvasRenderingContext2D.prototype.fillRect = function (/** @type {number[]} */ ...area) {
      this.canvas.drawnAreas?.push({ left: area[0], width: area[2] });
      return fillRect.apply(this, area);
    };
    CanvasRenderingContext2D.prototype.fillText = function (
      /** @type {string} */ text,
      /** @type {number} */ x,
      /** @type {number} */ y,
    ) {
      const size = this.measureText(text);
      const { e, f } = this.getTransform();
      this.canvas.drawnTexts?.push({
        text,
        left: e + x - size.actualBoundingBoxLeft,
        right: e + x + size.actualBoundingBoxRight,
        top: f + y - size.actualBoundingBoxAscent,
        bottom: f + y + size.actualBoundingBoxDescent,
      });
      return fillText.call(this, text, x, y);
    };
  };
  await page.addInitScript(watch);
}

/**
 * Labels of axes that are cut by their canvas or lie over each other.
 * @param {Page} page of `watchCanvases`
 * @returns {Promise<{labels: number, faults: string[]}>}
 */
export function axisFaults(page) {
  return page.evaluate(() => {
    const { document } = /** @type {any} */ (globalThis);
    /** @type {string[]} */
    const faults = [];
    let labels = 0;
    for (const canvas of document.querySelectorAll('.plot canvas')) {
      const texts = canvas.drawnTexts ?? [];
      labels += texts.length;
      for (const [i, one] of texts.entries()) {
        if (one.left < 0 || one.right > canvas.width || one.bottom > canvas.height)
          faults.push(`cut: ${one.text}`);
        for (const other of texts.slice(i + 1)) {
          const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
          const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
          if (wide > 0 && high > 0) faults.push(`overlap: ${one.text} / ${other.text}`);
        }
      }
    }
    return { labels, faults };
  });
}

/**
 * The widths of the areas that the charts draw behind their lines: the outages.
 * @param {Page} page of `watchCanvases`
 * @returns {Promise<number[][]>} by chart
 */
export function areasOf(page) {
  return page.evaluate(() => {
    const { document } = /** @type {any} */ (globalThis);
    return [...document.querySelectorAll('.plot canvas')].map(({ drawnAreas = [] }) =>
      drawnAreas.map((/** @type {{width: number}} */ { width }) => width),
    );
  });
}
