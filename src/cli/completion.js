// completion.js: `fanfare completion`: scripts that complete commands and options in a shell.
//
// The options of a command are read from its help, which a test holds equal to what it accepts.

import { EXIT } from '../config/exit-codes.js';
import { printable } from '../observability/printable.js';
import { CHECK_USAGE } from './check.js';
import { isCliCommand, usageOf } from './cli.js';
import { COMMANDS } from './commands.js';

/** @typedef {{name: string, about: string, usage: string}} Described a command with its help */

export const COMPLETION_USAGE = `Usage: fanfare completion bash|zsh|fish

Prints a script that completes the commands and options of fanfare:

  bash               fanfare completion bash > /etc/bash_completion.d/fanfare
  zsh                fanfare completion zsh > "\${fpath[1]}/_fanfare"
  fish               fanfare completion fish > ~/.config/fish/completions/fanfare.fish

  --help, -h         print this help
`;

/**
 * @param {readonly string[]} args
 * @param {Readonly<Record<string, () => Promise<string>>>} helps of commands outside this folder
 * @returns {Promise<{code: number, out: string, err: string}>}
 */
export async function completionCommand(args, helps) {
  const [shell = '', ...others] = args;
  if (args.includes('--help') || args.includes('-h'))
    return { code: EXIT.ok, out: COMPLETION_USAGE, err: '' };
  if (others.length > 0 || !Object.hasOwn(SHELLS, shell)) {
    const fault = shell === '' ? 'name a shell' : `no completion for ${printable(args.join(' '))}`;
    const err = `fanfare completion: ${fault}\n\n${COMPLETION_USAGE}`;
    return { code: EXIT.usage, out: '', err };
  }
  const described = COMMANDS.map(async ([name, , about]) => {
    const help = helps[name] ?? (isCliCommand(name) ? () => usageOf(name) : () => OWN[name] ?? '');
    return { name, about, usage: await help() };
  });
  return { code: EXIT.ok, out: SHELLS[shell](await Promise.all(described)), err: '' };
}

/** Helps of commands of this folder that need no server. @type {Readonly<Record<string, string>>} */
const OWN = { check: CHECK_USAGE, completion: COMPLETION_USAGE };

/** Scripts by shell. @type {Readonly<Record<string, (commands: readonly Described[]) => string>>} */
export const SHELLS = Object.freeze({ bash, zsh, fish });

/** @param {string} usage @returns {string[]} the options that the help lists, with their hyphens */
export function optionsIn(usage) {
  const lines = usage.split('\n').filter((line) => /^ {2}-/.test(line));
  // Options stand before the meaning, which begins after two spaces or in column 20.
  const heads = lines.map((line) => line.trim().split(/ {2,}/)[0]);
  return [...new Set(heads.flatMap((head) => head.match(/(?<![\w-])--?[a-z][a-z-]*/g) ?? []))];
}

/** @param {readonly Described[]} commands */
function bash(commands) {
  const cases = commands.map(
    ({ name, usage }) => `    ${name}) words="${optionsIn(usage).join(' ')}" ;;`,
  );
  return `# Completion of fanfare for bash.
_fanfare() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${[...commands.map(({ name }) => name), '--help', '--version'].join(' ')}"
  else case "\${COMP_WORDS[1]}" in
${cases.join('\n')}
  esac; fi
  if [ "$COMP_CWORD" -eq 2 ]; then case "\${COMP_WORDS[1]}" in
    help) words="${commands.map(({ name }) => name).join(' ')}" ;;
    completion) words="$words ${Object.keys(SHELLS).join(' ')}" ;;
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _fanfare fanfare
`;
}

/** @param {readonly Described[]} commands */
function zsh(commands) {
  const cases = commands.map(
    ({ name, usage }) => `    ${name}) compadd -- ${optionsIn(usage).join(' ')} ;;`,
  );
  return `#compdef fanfare
# Completion of fanfare for zsh.
_fanfare() {
  local -a commands
  commands=(
${commands.map(({ name, about }) => `    '${name}:${about}'`).join('\n')}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    compadd -- --help --version
    return
  fi
  if (( CURRENT == 3 )); then case $words[2] in
    help) _describe command commands; return ;;
    completion) compadd -- ${Object.keys(SHELLS).join(' ')}; return ;;
  esac; fi
  case $words[2] in
${cases.join('\n')}
  esac
}
# Also if the file is sourced, and not found by its name.
if [ "$funcstack[1]" = _fanfare ]; then _fanfare "$@"; else compdef _fanfare fanfare; fi
`;
}

/** @param {readonly Described[]} commands */
function fish(commands) {
  const lines = commands.flatMap(({ name, about, usage }) => [
    `complete -c fanfare -n __fish_use_subcommand -a ${name} -d '${about}'`,
    ...optionsIn(usage).map((option) => {
      const kind = option.startsWith('--') ? `-l ${option.slice(2)}` : `-s ${option.slice(1)}`;
      return `complete -c fanfare -n '__fish_seen_subcommand_from ${name}' ${kind}`;
    }),
  ]);
  return `# Completion of fanfare for fish.
complete -c fanfare -f
${lines.join('\n')}
complete -c fanfare -n '__fish_seen_subcommand_from help' -a '${commands.map(({ name }) => name).join(' ')}'
complete -c fanfare -n '__fish_seen_subcommand_from completion' -a '${Object.keys(SHELLS).join(' ')}'
`;
}
