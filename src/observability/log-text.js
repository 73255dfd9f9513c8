// log-text.js: log lines for people: one event per line, in colour on a terminal.
//   09:41:02.123 info  worker ready  worker=0 workerPid=4711
//   09:41:02.456 ERROR worker died  signal=SIGKILL
//       Error: …                          (the stack of an error follows)
//
// It parses the JSON that pino writes, which is fast enough here. pino-pretty has ten dependencies.

import { printable } from './printable.js';

const LEVELS = /** @type {Readonly<Record<number, readonly [string, string]>>} */ ({
  10: ['trace', '\x1b[90m'],
  20: ['debug', '\x1b[90m'],
  30: ['info ', '\x1b[32m'],
  40: ['WARN ', '\x1b[33m'],
  50: ['ERROR', '\x1b[31m'],
  60: ['FATAL', '\x1b[1;31m'],
});
const DIM = '\x1b[90m';
const BOLD = '\x1b[1m';
const RESET = '\x1b[0m';
const GREEN = '\x1b[1;32m';
const YELLOW = '\x1b[1;33m';
/** Fields of every line, which are useless on one's own terminal. */
const LEFT_OUT = new Set(['level', 'time', 'pid', 'server', 'msg', 'err']);

/** @param {boolean} isColoured @returns {(line: string) => string} formats lines of JSON */
export function textFormat(isColoured) {
  const paint = painter(isColoured);
  return (line) => {
    let fields;
    try {
      fields = JSON.parse(line);
    } catch {
      return line;
    }
    const [name, colour] = LEVELS[fields.level] ?? ['     ', ''];
    const rest = Object.entries(fields)
      .filter(([key]) => !LEFT_OUT.has(key))
      .map(
        ([key, value]) =>
          `${key}=${printable(typeof value === 'string' ? value : JSON.stringify(value))}`,
      )
      .join(' ');
    const message = printable(String(fields.msg ?? ''));
    const head = `${paint(DIM, clock(fields.time))} ${paint(colour, name)} ${fields.level > 40 ? paint(BOLD, message) : message}`;
    return `${head}${rest === '' ? '' : `  ${paint(DIM, rest)}`}\n${errorText(fields)}`;
  };
}

/**
 * The banner, for a terminal.
 * @param {readonly {text: string, isWarning: boolean}[]} lines the first is the title
 * @param {boolean} isColoured
 */
export function bannerText([title, ...lines], isColoured) {
  const paint = painter(isColoured);
  const first = paint(title.isWarning ? YELLOW : GREEN, title.text);
  const others = lines.map(({ text, isWarning }) => {
    const line = text.trimStart();
    return `  ${isWarning ? paint(YELLOW, line) : line}\n`;
  });
  return `\n  ${first}\n\n${others.join('')}\n`;
}

/** @param {boolean} isColoured @returns {(colour: string, text: string) => string} */
function painter(isColoured) {
  return (colour, text) => (isColoured && text !== '' ? `${colour}${text}${RESET}` : text);
}

/** Below level warn only the message, without the stack. @param {Record<string, any>} fields */
function errorText({ level, err }) {
  if (typeof err !== 'object' || err === null) return '';
  const text =
    level >= 50 && typeof err.stack === 'string'
      ? err.stack
      : `${err.type ?? 'Error'}: ${err.message}`;
  return text
    .split('\n')
    .map((/** @type {string} */ one) => `    ${printable(one)}\n`)
    .join('');
}

/** @param {number} timeMs @returns {string} local time of day */
function clock(timeMs) {
  const time = new Date(timeMs);
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  const ms = String(time.getMilliseconds()).padStart(3, '0');
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${ms}`;
}
