// place-report.js: a server's report of the addresses, users and apps with many connections on it.
// It is a message to the fleet of servers (backend/membership.js), with connections by key.
//
// Each report is complete and replaces the former one.

import { decodeEnvelope, encodeEnvelope } from '../membership.js';

export const SERVER_BYTES = 8;
/** When a server's last report is as old, its places are free. */
export const LEASE_MS = 5000;
const KIND = 'places';
/** Other programs may publish on the same channel. */
const MAX_BYTES = 128 * 1024;
const MAX_KEY_CHARS = 255;
const MAX_CONNECTIONS = 0xffffffff;
const SERVER = new RegExp(`^[0-9a-f]{${2 * SERVER_BYTES}}$`);

/**
 * @typedef {object} PlaceReport
 * @property {string} server its id in hex @property {ReadonlyMap<string, number>} places
 */

/** @param {PlaceReport} report @returns {Buffer} */
export function encodeReport({ server, places }) {
  return encodeEnvelope(KIND, server, LEASE_MS, { places: Object.fromEntries(places) });
}

/**
 * @param {Buffer} bytes
 * @returns {PlaceReport & {leaseMs: number}|'malformed'|'unknown_version'}
 */
export function decodeReport(bytes) {
  const envelope = decodeEnvelope(bytes, MAX_BYTES);
  if (typeof envelope === 'string') return envelope;
  const { kind, from: server, leaseMs, fields } = envelope;
  if (kind !== KIND || !SERVER.test(server)) return 'malformed';
  const { places } = fields;
  if (typeof places !== 'object' || places === null) return 'malformed';
  const entries = Object.entries(places);
  if (!entries.every(isPlace)) return 'malformed';
  return { server, leaseMs, places: new Map(entries) };
}

/** @param {[key: string, connections: unknown]} entry */
function isPlace([key, connections]) {
  if (key === '' || key.length > MAX_KEY_CHARS || !Number.isInteger(connections)) return false;
  return Number(connections) >= 0 && Number(connections) <= MAX_CONNECTIONS;
}
