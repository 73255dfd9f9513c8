// output.js: what a command prints: columns for people, or a JSON object on each line.
//
// Names, payloads and error texts come from clients and servers. Nothing but this file writes, and
// it makes all of them printable, so no command can forget it.

import { styleText } from 'node:util';
import { printable } from '../observability/printable.js';

/** @typedef {Parameters<typeof styleText>[0]} Style */

/** A part of a line, perhaps in colour. @typedef {string|readonly [Style, string]} Part */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: Row) => unknown} of undefined: there is no value
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
      for (const row of rows) this.#writeJson(row);
      return;
    }
    if (rows.length === 0) return;
    const cells = rows.map((row) => columns.map(({ of }) => cellOf(of(row))));
    const isNumber = columns.map(({ of }) => rows.some((row) => typeof of(row) === 'number'));
    const lines = [columns.map(({ title }) => title.toUpperCase()), ...cells];
    const widths = columns.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
    lines.forEach((line, index) => {
      const text = line
        .map((cell, i) => (isNumber[i] ? cell.padStart(widths[i]) : cell.padEnd(widths[i])))
        .join('  ')
        .trimEnd();
      this.#write(index === 0 ? this.#paint('dim', text) : text);
    });
  }

  /** @param {object} record @param {() => readonly Part[]} toParts for a person */
  record(record, toParts) {
    if (!this.isText) return this.#writeJson(record);
    const parts = toParts().map((part) =>
      typeof part === 'string' ? printable(part) : this.#paint(part[0], printable(part[1])),
    );
    this.#write(parts.join('  '));
  }

  /** Tells about the command itself. @param {string} text */
  note(text) {
    this.#stderr.write(`${printable(text)}\n`);
  }

  /** @param {Style} style @param {string} text */
  #paint(style, text) {
    // Newer versions of Node would look at stdout and NO_COLOR again.
    return this.#hasColour ? styleText(style, text, { validateStream: false }) : text;
  }

  /** Escapes text in a pipe, too, which may end at a terminal. @param {object} record */
  #writeJson(record) {
    this.#write(printable(JSON.stringify(record)));
  }

  /** @param {string} line */
  #write(line) {
    this.#stdout.write(`${line}\n`);
  }
}

/** @param {unknown} value @returns {string} */
function cellOf(value) {
  if (value === undefined || value === null || value === '') return '–';
  return printable(typeof value === 'object' ? JSON.stringify(value) : value);
}
