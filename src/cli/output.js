// output.js: what a command prints: columns for people, or a JSON object on each line.
//
// Names and payloads come from clients, so a terminal gets their control characters escaped.

import { styleText } from 'node:util';

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are escaped
const CONTROLS = /[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/g;

/** @typedef {Parameters<typeof styleText>[0]} Style */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: Row) => string|number|undefined} of undefined: there is no value
 */

export class Output {
  #stdout;
  #stderr;
  #hasColour;

  /**
   * @param {object} parts
   * @param {NodeJS.WriteStream} parts.stdout @param {NodeJS.WriteStream} parts.stderr
   * @param {boolean} parts.isJson also on a terminal @param {boolean} parts.isPlain no colours
   */
  constructor({ stdout, stderr, isJson, isPlain }) {
    this.#stdout = stdout;
    this.#stderr = stderr;
    /** Does a person read it? */
    this.isText = stdout.isTTY && !isJson;
    this.#hasColour = this.isText && !isPlain;
  }

  /** @template {object} Row @param {readonly Column<Row>[]} columns @param {readonly Row[]} rows */
  list(columns, rows) {
    if (!this.isText) {
      for (const row of rows) this.#write(JSON.stringify(row));
      return;
    }
    if (rows.length === 0) return;
    const cells = rows.map((row) => columns.map(({ of }) => printable(of(row) ?? '–')));
    const isNumber = columns.map(({ of }) => rows.some((row) => typeof of(row) === 'number'));
    const lines = [columns.map(({ title }) => title.toUpperCase()), ...cells];
    const widths = columns.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
    lines.forEach((line, index) => {
      const text = line
        .map((cell, i) => (isNumber[i] ? cell.padStart(widths[i]) : cell.padEnd(widths[i])))
        .join('  ')
        .trimEnd();
      this.#write(index === 0 ? this.paint('dim', text) : text);
    });
  }

  /** @param {object} record @param {() => string} toText for a person */
  record(record, toText) {
    this.#write(this.isText ? toText() : JSON.stringify(record));
  }

  /** Tells about the command itself. @param {string} text */
  note(text) {
    this.#stderr.write(`${text}\n`);
  }

  /** @param {Style} style @param {string} text */
  paint(style, text) {
    // Newer versions of Node would look at stdout and NO_COLOR again.
    return this.#hasColour ? styleText(style, text, { validateStream: false }) : text;
  }

  /** @param {string} line */
  #write(line) {
    this.#stdout.write(`${line}\n`);
  }
}

/** @param {string|number} value */
export function printable(value) {
  return String(value).replace(
    CONTROLS,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
