// place-report.js: a server's report of the addresses and users with many connections on it.
//   u8 version, 8 bytes server, then for each key: u8 length, key, u32 connections
//
// Each report is complete and replaces the former one. A server drops reports of another version
// (docs/architecture/versions.md).

const VERSION = 1;
export const SERVER_BYTES = 8;
const HEAD_BYTES = 1 + SERVER_BYTES;
const COUNT_BYTES = 4;
/** Other programs may publish on the same channel. */
const MAX_BYTES = 65_536;

/** @typedef {{server: string, places: ReadonlyMap<string, number>}} PlaceReport `server`: id in hex */

/** @param {PlaceReport} report keys of at most 255 ASCII characters @returns {Buffer} */
export function encodeReport({ server, places }) {
  let bytes = HEAD_BYTES;
  for (const key of places.keys()) bytes += 1 + key.length + COUNT_BYTES;
  const report = Buffer.allocUnsafe(bytes);
  report[0] = VERSION;
  let at = 1 + report.write(server, 1, 'hex');
  for (const [key, connections] of places) {
    report[at] = key.length;
    at += 1 + report.write(key, at + 1, 'latin1');
    at = report.writeUInt32BE(connections, at);
  }
  return report;
}

/** Has another version of Fanfare written it? @param {Buffer} report */
export function isOtherVersion(report) {
  return report.length >= HEAD_BYTES && report[0] !== VERSION;
}

/** @param {Buffer} report @returns {PlaceReport|null} null if malformed or of another version */
export function decodeReport(report) {
  if (report.length < HEAD_BYTES || report.length > MAX_BYTES || report[0] !== VERSION) return null;
  const server = report.toString('hex', 1, HEAD_BYTES);
  /** @type {Map<string, number>} */
  const places = new Map();
  let at = HEAD_BYTES;
  while (at < report.length) {
    const keyEnd = at + 1 + report[at];
    if (keyEnd + COUNT_BYTES > report.length) return null;
    places.set(report.toString('latin1', at + 1, keyEnd), report.readUInt32BE(keyEnd));
    at = keyEnd + COUNT_BYTES;
  }
  return { server, places };
}
