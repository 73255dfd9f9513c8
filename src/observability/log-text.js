// log-text.js: a log line for people: one event a line, in colour on a terminal.
//
//   09:41:02.123 info  worker ready  worker=0 workerPid=4711
//   09:41:02.456 ERROR worker died  signal=SIGKILL
//       Error: …                          (of an error: its stack below)
//
// What pino writes is JSON, and is taken apart again here. That is for terminals only, which are
// read by people: a few lines a second. pino-pretty would do the same with ten packages more in
// every installation.

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
/** Of every line: they say nothing on one's own terminal. */
const LEFT_OUT = new Set(['level', 'time', 'pid', 'server', 'msg', 'err']);

/**
 * @param {boolean} isColoured
 * @returns {(line: string) => string} from a line of JSON to a line of text; what is no JSON stays
 */
export function textFormat(isColoured) {
  /**
   * @param {string} colour
   * @param {string} text
   */
  const paint = (colour, text) => (isColoured && text !== '' ? `${colour}${text}${RESET}` : text);
  return (line) => {
    /** @type {Record<string, any>} */
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
          `${key}=${plain(typeof value === 'string' ? value : JSON.stringify(value))}`,
      )
      .join(' ');
    const message = plain(String(fields.msg ?? ''));
    const head = `${paint(DIM, clock(fields.time))} ${paint(colour, name)} ${fields.level > 40 ? paint(BOLD, message) : message}`;
    return `${head}${rest === '' ? '' : `  ${paint(DIM, rest)}`}\n${errorText(fields)}`;
  };
}

/**
 * The banner, for a terminal.
 * @param {readonly string[]} lines the first is the title
 * @param {boolean} isColoured
 */
export function bannerText([title, ...lines], isColoured) {
  const first = isColoured ? `\x1b[1;32m${title}${RESET}` : title;
  return `\n  ${first}\n\n${lines.map((line) => `  ${line.trimStart()}\n`).join('')}\n`;
}

/**
 * Below a warning only the message: a stack is of no use there.
 * @param {Record<string, any>} fields
 */
function errorText({ level, err }) {
  if (typeof err !== 'object' || err === null) return '';
  const text =
    level >= 50 && typeof err.stack === 'string'
      ? err.stack
      : `${err.type ?? 'Error'}: ${err.message}`;
  return text
    .split('\n')
    .map((/** @type {string} */ one) => `    ${plain(one)}\n`)
    .join('');
}

/**
 * @param {number} timeMs
 * @returns {string} local time of day
 */
function clock(timeMs) {
  const time = new Date(timeMs);
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  const ms = String(time.getMilliseconds()).padStart(3, '0');
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${ms}`;
}

/** Without what a terminal would obey: a stranger's text may be in a line. @param {string} text */
function plain(text) {
  return text.replace(
    /[\p{Cc}\u2028\u2029]/gu,
    (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
}
