// The swarm's report in a real browser, on a desktop and on a phone: nothing is cut off, and
// nothing is too small to see.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { writeReport } from '../../loadtest/swarm/report.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { finishedRun } from '../helpers/swarm-run.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** Narrower, a phase can't be seen. */
const MIN_PHASE_PX = 24;

test('the report fits a desktop and a phone, in letters of one size, and shows every phase', {
  skip: withoutChromium,
}, async (t) => {
  const folder = temporaryFolder(t);
  writeReport(join(folder, 'report'), finishedRun());
  const browser = await openBrowser(t);
  for (const [width, colorScheme] of /** @type {[number, 'light'|'dark'][]} */ ([
    [1200, 'light'],
    [390, 'dark'],
  ])) {
    await t.test(`${width} px wide, ${colorScheme}`, async () => {
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
      await page.goto(pathToFileURL(join(folder, 'report.html')).href);
      const seen = await page.evaluate(measure);
      await page.close();

      assert.equal(seen.pageWidth, width, 'the page does not scroll sideways');
      assert.deepEqual(seen.cutOff, [], 'what is wider than its box scrolls in it');
      if (width >= 1200) assert.deepEqual(seen.scrolling, [], 'a desktop has room for every table');
      assert.equal(seen.charts, 17);
      assert.deepEqual(seen.letters, [11], 'letters in all charts, in pixels');
      assert.equal(seen.phases.length, 16 * 4);
      assert.ok(
        Math.min(...seen.phases) >= MIN_PHASE_PX,
        `the narrowest phase: ${Math.min(...seen.phases)} px`,
      );
    });
  }

  await t.test(
    'the value under the pointer is that of its time, in a stretched phase too',
    async () => {
      const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
      await page.goto(pathToFileURL(join(folder, 'report.html')).href);
      const chart = page.locator('.chart').first();
      await chart.scrollIntoViewIfNeeded();
      /** @type {[string, number, RegExp][]} */
      const places = [
        ['burst', 0.9, /^0\.5 s/],
        ['endurance', 0.5, /^3[01](\.\d+)? s/],
        ['broadcast', 0.5, /^61(\.5)? s|^62 s/],
      ];
      for (const [name, share, text] of places) {
        const band = chart.locator(`rect:has(title:text-matches("^${name}:"))`);
        const box = await band.boundingBox();
        assert.ok(box, name);
        await page.mouse.move(box.x + box.width * share, box.y + box.height / 2);
        assert.match(await chart.locator('.tip').innerText(), text, name);
      }
      await page.close();
    },
  );
});

/** Runs in the page. */
function measure() {
  const { document, getComputedStyle } = /** @type {any} */ (globalThis);
  const all = (/** @type {string} */ selector) =>
    /** @type {any[]} */ ([...document.querySelectorAll(selector)]);
  const clips = (/** @type {any} */ node) =>
    ['hidden', 'clip'].includes(getComputedStyle(node).overflowX);
  return {
    pageWidth: document.documentElement.scrollWidth,
    cutOff: all('body *')
      .filter(
        (node) => node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 && clips(node),
      )
      .map((node) => node.outerHTML.slice(0, 80)),
    scrolling: all('.scroll')
      .filter((node) => node.scrollWidth > node.clientWidth)
      .map((node) => node.innerText.slice(0, 40)),
    charts: all('.chart').length,
    letters: [
      ...new Set(
        all('.tick').map((node) => {
          const scale =
            node.ownerSVGElement.getBoundingClientRect().width /
            node.ownerSVGElement.viewBox.baseVal.width;
          return Math.round(Number.parseFloat(getComputedStyle(node).fontSize) * scale * 10) / 10;
        }),
      ),
    ],
    phases: all('rect[class^=band]').map((node) => Math.round(node.getBoundingClientRect().width)),
  };
}
