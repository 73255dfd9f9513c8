// check.js: `fanfare check`: are the settings valid? The server does not start.

import { readCommandLine } from '../config/command-line.js';
import { EXIT } from '../config/exit-codes.js';
import { printable } from '../observability/printable.js';

export const CHECK_USAGE = `Usage: fanfare check [options]

Reads the settings as the server does, from the environment and from FANFARE_CONFIG_FILE, with all
files that they name, and prints what is wrong. It connects to nothing and runs no code of yours: a
hooks file is found, but not loaded.

  --json             print JSON: {"valid":…,"faults":[…],"warnings":[…]}
  --help, -h         print this help

Exit codes: ${EXIT.ok} the server would start, ${EXIT.config} it would not, ${EXIT.usage} wrong option.
`;

/**
 * @param {readonly string[]} args
 * @param {() => Promise<{settings: unknown, faults: string[], warnings: string[]}>} loadSettings
 *   `settings`: null if there are faults
 * @returns {Promise<{code: number, out: string, err: string}>}
 */
export async function checkCommand(args, loadSettings) {
  let values;
  try {
    ({ values } = readCommandLine(args, { json: { type: 'boolean' } }));
  } catch (error) {
    const fault = /** @type {Error} */ (error).message;
    return { code: EXIT.usage, out: '', err: `fanfare check: ${fault}\n\n${CHECK_USAGE}` };
  }
  if (values.help) return { code: EXIT.ok, out: CHECK_USAGE, err: '' };
  const { faults, warnings } = await loadSettings();
  const code = faults.length === 0 ? EXIT.ok : EXIT.config;
  if (values.json) {
    const text = JSON.stringify({ valid: code === EXIT.ok, faults, warnings });
    return { code, out: `${printable(text)}\n`, err: '' };
  }
  const lines = [
    ...faults.map((fault) => `  ${fault}`),
    ...warnings.map((warning) => `  warning: ${warning}`),
  ];
  const head =
    faults.length === 0
      ? 'The configuration is valid.'
      : 'The configuration is invalid, the server would not start:';
  const text = [head, ...lines].map((line) => `${printable(line)}\n`).join('');
  return faults.length === 0 ? { code, out: text, err: '' } : { code, out: '', err: text };
}
