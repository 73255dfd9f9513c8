// run.js: the frame of a load test: required and observed figures, an exit code, and no process
// left behind.
//
//   await run('title', async (test) => {
//     const server = await startServer(test, env);
//     test.check('what', 'required', observed, isMet);
//   });
//
// What the body starts is stopped at the end, last one first; also at the time limit, and at SIGINT
// and SIGTERM.

/** @typedef {{what: string, required: string, observed: string, met: boolean}} Row */

const CLEAN_UP_MS = 10_000;

export class Run {
  /** @param {string} title */
  constructor(title) {
    this.title = title;
    /** @type {Row[]} */
    this.rows = [];
    /** @type {(() => unknown)[]} */
    this.cleanups = [];
  }

  /** Runs when the test is over, last one first. @param {() => unknown} cleanup */
  after(cleanup) {
    this.cleanups.push(cleanup);
  }

  /**
   * A figure worth knowing that nothing is required of.
   * @param {string} what @param {unknown} observed
   */
  note(what, observed) {
    print(`     ${what}: ${observed}`);
  }

  /**
   * @param {string} what
   * @param {string|number} required
   * @param {unknown} observed
   * @param {boolean} [met] absent: they are equal
   */
  check(what, required, observed, met = String(required) === String(observed)) {
    this.rows.push({ what, required: String(required), observed: String(observed), met });
    print(`${met ? 'ok  ' : 'FAIL'} ${what}: ${observed} (required: ${required})`);
  }

  async end() {
    for (const cleanup of this.cleanups.splice(0).reverse()) {
      try {
        await cleanup();
      } catch (error) {
        print(`     cleaning up: ${/** @type {Error} */ (error).message}`);
        process.exitCode = 1;
      }
    }
  }
}

/**
 * Runs one load test and exits with 0 if every requirement is met, else with 1.
 * @param {string} title @param {(test: Run) => Promise<void>} body @param {number} [limitMs]
 */
export async function run(title, body, limitMs = 60_000) {
  const test = new Run(title);
  const started = performance.now();
  print(`\n${title}`);
  /** @param {string} error */
  const finish = async (error) => {
    finishing = true;
    clearTimeout(timer);
    const seconds = Math.round((performance.now() - started) / 100) / 10;
    const stuck = setTimeout(() => process.exit(1), CLEAN_UP_MS);
    await test.end();
    clearTimeout(stuck);
    const failed = test.rows.filter((row) => !row.met).length;
    if (error !== '') print(`FAIL ${error}`);
    const met = error === '' && failed === 0 && test.rows.length > 0 && !process.exitCode;
    print(
      `${met ? 'ok' : 'FAIL'}: ${title}: ${test.rows.length - failed} of ${test.rows.length} met, in ${seconds} s`,
    );
    process.exit(met ? 0 : 1);
  };
  let finishing = false;
  const timer = setTimeout(() => finish(`not done within ${limitMs / 1000} s`), limitMs);
  onSignal((signal) => {
    if (!finishing) finish(`ended by ${signal}`);
  });
  process.once('uncaughtException', (error) => {
    if (!finishing) finish(error.stack ?? String(error));
  });
  try {
    await body(test);
  } catch (error) {
    if (!finishing) await finish(/** @type {Error} */ (error).stack ?? String(error));
    return;
  }
  if (!finishing) await finish('');
}

/**
 * Ends a tool in an orderly way: Ctrl-C and SIGTERM no longer end the process by themselves.
 * @param {(signal: NodeJS.Signals) => unknown} act is called for each signal
 */
export function onSignal(act) {
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
    process.on(signal, () => act(signal));
}

/** @param {string} line */
export function print(line) {
  process.stdout.write(`${line}\n`);
}

/**
 * Columns as wide as they need be.
 * @param {readonly (readonly (string|number)[])[]} rows the first is the head
 */
export function table(rows) {
  const widths = rows[0].map((_, column) =>
    Math.max(...rows.map((row) => String(row[column]).length)),
  );
  for (const row of rows)
    print(
      row
        .map((cell, column) => String(cell).padEnd(widths[column]))
        .join('  ')
        .trimEnd(),
    );
}

/**
 * @param {number} number
 * @returns {string} 1234567 -> 1,234,567
 */
export function count(number) {
  return Math.round(number).toLocaleString('en-US');
}

/** @param {number} ms @returns {Promise<void>} */
export function pause(ms) {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
