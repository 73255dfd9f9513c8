// progress.js: how far a phase is: a bar on a terminal, a line now and then elsewhere.

import { print } from '../../test/harness/run.js';

/**
 * The bar is a development dependency. Without it (`npm ci --omit=dev`) a terminal gets the lines,
 * too.
 * @type {typeof import('cli-progress')|null}
 */
const cliProgress = await import('cli-progress').then(
  (module) => module.default,
  (error) => {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    return null;
  },
);

const LINE_MS = 5000;
const NAME_WIDTH = 10;

export class Progress {
  #stream;
  #name = '';
  /** @type {import('cli-progress').SingleBar|null} */
  #bar = null;
  #linedMs = 0;

  /** @param {NodeJS.WriteStream} [stream] */
  constructor(stream = process.stdout) {
    this.#stream = stream;
  }

  /** @param {string} name of the phase */
  begin(name) {
    this.#name = name;
    this.#linedMs = performance.now();
    if (!this.#stream.isTTY || cliProgress === null) return;
    this.#bar = new cliProgress.SingleBar(
      {
        stream: this.#stream,
        format: `${name.padEnd(NAME_WIDTH)} {bar} {percentage}% {value}/{total}  {text}`,
        formatValue: (value, _options, type) =>
          type === 'percentage'
            ? String(value).padStart(3)
            : Math.round(value).toLocaleString('en-US'),
        barsize: 30,
        hideCursor: true,
        clearOnComplete: true,
        gracefulExit: false, // the swarm has its own way to end
      },
      cliProgress.Presets.shades_classic,
    );
    this.#bar.start(1, 0, { text: '' });
  }

  /**
   * @param {number} done
   * @param {number} total
   * @param {string} text the rate, for one
   * @param {number} errors so far
   */
  update(done, total, text, errors) {
    const words = errors > 0 ? `${text}  ${errors.toLocaleString('en-US')} errors` : text;
    if (this.#bar) {
      this.#bar.setTotal(total);
      this.#bar.update(done, { text: words });
    } else if (performance.now() - this.#linedMs > LINE_MS) {
      this.#linedMs = performance.now();
      const [now, all] = [done, total].map((n) => Math.round(n).toLocaleString('en-US'));
      print(`${this.#name.padEnd(NAME_WIDTH)} ${now}/${all}  ${words}`);
    }
  }

  /** Takes the bar away. */
  end() {
    this.#bar?.stop();
    this.#bar = null;
  }
}
