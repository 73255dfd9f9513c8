// readers.js: one process of load.js: holds many streams of server-sent events, and keeps the map of
// each.

import { connect } from 'node:net';
import { Latency } from '../../test/harness/latency.js';

/** Requests that wait for their answer at once. */
const AT_ONCE = 50;
const END = '\n\n';
const DATA = 'data: ';
const MESSAGE = '"type":"message"';

/** The scores by player, of each reader. @type {Map<string, number>[]} */
const maps = [];
const latency = new Latency();
let events = 0;
let closed = 0;

/**
 * Opens a stream and resolves when it is in the room.
 * @param {URL} url
 * @param {number} index
 * @param {string} localAddress an address has some 28,000 ports
 * @returns {Promise<void>}
 */
function open(url, index, localAddress) {
  const { hostname: host, port } = url;
  const socket = connect({ host, port: Number(port), localAddress, noDelay: true });
  const head = `GET ${url.pathname}${url.search} HTTP/1.1\r\nHost: ${url.host}\r\n`;
  socket.write(`${head}Accept: text/event-stream\r\n\r\n`);
  return new Promise((resolve, reject) => {
    let rest = '';
    socket.on('data', (bytes) => {
      rest += bytes.toString('latin1');
      for (let end = rest.indexOf(END); end >= 0; end = rest.indexOf(END)) {
        const event = rest.slice(0, end);
        rest = rest.slice(end + END.length);
        if (/^event: (joined|reset)/.test(event)) maps[index] = new Map();
        if (event.startsWith('event: synced')) resolve();
        else if (event.includes(MESSAGE)) take(event, index);
      }
    });
    socket.on('error', reject);
    socket.on('close', () => {
      closed++;
      reject(new Error(`closed: ${rest}`));
    });
  });
}

/** @param {string} event @param {number} index */
function take(event, index) {
  events++;
  const { key, payload, timestamp } = JSON.parse(event.slice(event.indexOf(DATA) + DATA.length));
  if (payload === null) maps[index].delete(key);
  else maps[index].set(key, payload);
  latency.add(Date.now() - timestamp);
}

/** @param {{step: 'open', url: string, count: number, localAddress: string} | {step: 'report'}} ask */
async function act(ask) {
  if (ask.step === 'open') {
    const url = new URL(ask.url);
    for (let opened = 0; opened < ask.count; opened += AT_ONCE)
      await Promise.all(
        Array.from({ length: Math.min(AT_ONCE, ask.count - opened) }, (_, i) =>
          open(url, opened + i, ask.localAddress),
        ),
      );
    return {};
  }
  /** Readers by what they show. @type {Record<string, number>} */
  const tops = {};
  for (const map of maps) {
    const top = JSON.stringify([...map].sort());
    tops[top] = (tops[top] ?? 0) + 1;
  }
  return { tops, events, closed, latency: latency.drain() };
}

process.on('message', async (/** @type {any} */ ask) => {
  try {
    process.send?.(await act(ask));
  } catch (error) {
    process.send?.({ error: String(error) });
  }
});
process.on('disconnect', () => process.exit(0));
