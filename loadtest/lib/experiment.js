// experiment.js: the skeleton of a script that answers one question.
//
//   await experiment({
//     question: 'What does a token add to the CPU of a handshake?',
//     options: 'rounds N | whole 1..100 | 3 | rounds',
//     variants: () => ['none', 'HS256'],
//     setup: ({ owner, variant }) => startBench(owner, …),
//     measure: (bench, { values }) => …,
//     report: (rounds, { values }) => ({ title, lines, data }),
//   });
//
// Each round measures every variant in turn, each with a setup of its own, so that a slow minute of
// the machine meets all of them. What a setup starts ends after its measurement, at a failure, and
// at Ctrl-C.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readOptions } from '../../test/harness/options.js';
import { onSignal, Run } from '../../test/harness/run.js';
import { describeMachine } from '../bench/machine.js';

const LOADTEST = fileURLToPath(new URL('../', import.meta.url));
const RESULTS = `${LOADTEST}bench/results/`;
const SAVE =
  'save PATH | | | path of the report without its ending; without, a file of bench/results/';

/** @typedef {{owner: Run, values: import('../../test/harness/options.js').Values, variant: string}} Trial */

/**
 * @typedef {object} Report
 * @property {string} title
 * @property {string} [note] follows the command line
 * @property {readonly string[]} lines Markdown
 * @property {object} data for the JSON file
 * @property {boolean} [failed] exit code 1
 */

/**
 * Reads the options, measures, prints and saves the report, and ends the process.
 * @template S, M
 * @param {object} parts
 * @param {string} parts.question
 * @param {string} [parts.options] a table (options.js); `rounds` repeats the variants, `save` is added
 * @param {(values: import('../../test/harness/options.js').Values) => readonly string[]} [parts.variants]
 * @param {(trial: Trial) => Promise<S>|S} parts.setup
 * @param {(setup: S, trial: Trial) => Promise<M>} parts.measure
 * @param {(rounds: M[][], values: import('../../test/harness/options.js').Values) => Report} parts.report gets the
 *   measurements by round and variant
 */
export async function experiment({ question, options = '', variants, setup, measure, report }) {
  const { values } = readOptions(question, `${options}\n${SAVE}`);
  const kinds = variants?.(values) ?? [''];
  let owner = new Run(question);
  onSignal(async () => {
    await owner.end();
    process.exit(1);
  });
  /** @type {M[][]} */
  const rounds = [];
  const count = 'rounds' in values ? values.rounds : 1;
  while (rounds.length < count) {
    /** @type {M[]} */
    const measured = [];
    for (const variant of kinds) {
      owner = new Run(question);
      try {
        const trial = { owner, values, variant };
        measured.push(await measure(await setup(trial), trial));
      } finally {
        await owner.end();
      }
    }
    rounds.push(measured);
    if (count > 1) console.log(`round ${rounds.length} of ${count} measured`);
  }
  const { failed = false, ...rest } = report(rounds, values);
  save(rest, values.save);
  process.exit(failed ? 1 : 0);
}

/**
 * Prints a report, and saves it as Markdown and JSON.
 * @param {Omit<Report, 'failed'>} report
 * @param {string} wanted path without its ending; '' for the usual one
 */
function save({ title, note = '', lines, data }, wanted) {
  const startedAt = new Date(Date.now() - performance.now()).toISOString();
  // loadtest/bench/scale.js -> scale, loadtest/deploy/compare.js -> deploy-compare
  const script = relative(LOADTEST, process.argv[1]);
  const name = script.replace(/^bench\/|\.js$/g, '').replaceAll('/', '-');
  // The place of the report is no part of the measurement.
  const args = process.argv
    .slice(2)
    .join(' ')
    .replace(/ ?--save[ =]\S+/, '');
  const command = `node loadtest/${script} ${args}`.trim();
  const machine = describeMachine();
  const text = [
    `# ${title}, ${startedAt}`,
    '',
    `\`${command}\`${note === '' ? '' : `: ${note}`}`,
    '',
    ...Object.entries(machine).map(([key, value]) => `- ${key}: ${value}`),
    '',
    ...lines,
    '',
  ].join('\n');
  const path = wanted || `${RESULTS}${name}-${startedAt.slice(0, 16).replace(':', '')}`;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.md`, text);
  const json = JSON.stringify({ startedAt, command, machine, ...data }, null, 1);
  writeFileSync(`${path}.json`, `${json}\n`);
  console.log(`\n${text}\nsaved as ${path}.md and .json`);
}
