// capacity-table.js: the rows that capacity.js measures, as a table for people, and its place in a
// README.

import { markdownTable, show } from './figures.js';

/**
 * One number of connections.
 * @typedef {object} Row
 * @property {number} connections
 * @property {string} date
 * @property {string} commit
 * @property {number} workers of the server
 * @property {number} processes of the client
 * @property {number} rooms
 * @property {number} serverMb memory of all the server's processes (PSS) after the run, in MB
 * @property {number} kbPerConnection memory of the server's processes for a connection, at rest, in kB
 * @property {number} systemKbPerConnection … to the whole machine: kernel, both ends, and client
 * @property {number} handshakeCpuMs the server's processor time for a connection and its join
 * @property {number} restCores processors that the server uses without messages
 * @property {Load} everyday each connection says something once a minute
 * @property {number|null} most the highest messages/s of the search; null without a search
 * @property {Load} held
 */

/**
 * Messages for some seconds.
 * @typedef {object} Load
 * @property {number} messagesPerSecond
 * @property {number} deliveriesPerSecond
 * @property {number} meanMs from the time a message was due to its delivery
 * @property {number} p99Ms
 * @property {number} serverCores processors in use meanwhile
 * @property {number} clientCores
 * @property {number} clientBusiest the busiest client process, as a share of one processor
 * @property {number} cpuPerMillion the server's CPU-seconds for a million deliveries
 * @property {number} stolenCores time that the hypervisor gave to others
 */

/**
 * @typedef {object} Results
 * @property {Record<string, unknown>} machine
 * @property {number} limitP99Ms
 * @property {number} seconds
 * @property {number} payloadBytes
 * @property {Row[]} rows by connections
 */

const BEGIN = '<!-- capacity: npm run capacity -- --readme -->';
const END = '<!-- end -->';
/**
 * Less memory than this, in kB, comes and goes with the garbage of the start: a share of it for a
 * connection says nothing.
 */
const NOISE_KB = 15_000;
/** Above this share of a processor, the client process is the limit. */
const BUSY = 0.85;

/** @typedef {readonly [title: string, cell: (row: Row) => string][]} Columns */

/** @param {'everyday' | 'held'} load @returns {Columns} */
const columnsOf = (load) => [
  ['connections', (row) => show(row.connections)],
  ['messages/s', (row) => show(row[load].messagesPerSecond)],
  ['deliveries/s', (row) => show(row[load].deliveriesPerSecond)],
  ['average, ms', (row) => show(row[load].meanMs, 1)],
  ['p99, ms', (row) => show(row[load].p99Ms, 1)],
  ['server CPU, cores', (row) => show(row[load].serverCores, 2)],
  [
    'client CPU, cores',
    (row) =>
      `${show(row[load].clientCores, 2)}${row[load].clientBusiest > BUSY ? ' (the limit)' : ''}`,
  ],
  ['server CPU s per million deliveries', (row) => show(row[load].cpuPerMillion, 1)],
];

/** @type {Columns} */
const AT_REST = [
  ['connections', (row) => show(row.connections)],
  ['rooms', (row) => show(row.rooms)],
  ['workers', (row) => show(row.workers)],
  ['server memory, MB', (row) => show(row.serverMb)],
  ['… kB a connection', (row) => memory(row.kbPerConnection, row)],
  ['whole machine, kB a connection', (row) => memory(row.systemKbPerConnection, row)],
  ['handshake and join, CPU ms', (row) => show(row.handshakeCpuMs, 2)],
  ['at rest, cores', (row) => show(row.restCores, 2)],
  ['measured', (row) => `${row.date}, ${row.commit}`],
];

/**
 * @param {Results} results
 * @returns {string} three tables, and the machine and options of the run
 */
export function markdown({ machine, limitP99Ms, seconds, payloadBytes, rows }) {
  const highest = rows.map(
    ({ held, most }) => `${show(held.messagesPerSecond)} of ${most === null ? '–' : show(most)}`,
  );
  return [
    `\`npm run capacity\`: ${machine.processor}, ${machine.memoryGb} GB, Linux ${machine.kernel}, Node ${machine.node}, C client, both on the same`,
    `processors. Payloads of ${payloadBytes} bytes; no message lost.`,
    '',
    `**Held**, for ${seconds} s with p99 ≤ ${limitP99Ms} ms: 70 % (or else 50, or 35) of the highest rate that a step of 2 s passed with: ${highest.join('; ')}.`,
    '',
    ...table(columnsOf('held'), rows),
    '',
    '**Everyday**: each connection says something once a minute.',
    '',
    ...table(columnsOf('everyday'), rows),
    '',
    '**Connections** alone, and what holds them:',
    '',
    ...table(AT_REST, rows),
  ].join('\n');
}

/** @param {Columns} columns @param {readonly Row[]} rows */
function table(columns, rows) {
  const titles = columns.map(([title]) => title);
  return markdownTable(
    titles,
    rows.map((row) => columns.map(([, cell]) => cell(row))),
  );
}

/**
 * @param {string} text of a README
 * @param {string} tables
 * @returns {string} with them between the marks; throws if it has no marks
 */
export function withTable(text, tables) {
  const begin = text.indexOf(BEGIN);
  const end = text.indexOf(END, begin);
  if (begin < 0 || end < 0) throw new Error(`the README has no ${BEGIN} … ${END}`);
  return `${text.slice(0, begin + BEGIN.length)}\n${tables}\n${text.slice(end)}`;
}

/**
 * @param {number} kb for a connection
 * @param {Row} row
 */
function memory(kb, { connections }) {
  return kb * connections < NOISE_KB ? '–' : show(kb, 1);
}
