// lines.js: `fanfare publish --lines`: each line of stdin is a message.
//
// The next message is sent after the answer to the one before. So the order holds, and it is clear
// which messages were published when one is refused. A rate limit is waited for.

import { setTimeout as delay } from 'node:timers/promises';
import { callApi } from './api.js';
import { withClient } from './client.js';
import { EXIT, Failure } from './failure.js';

/** @import { Context } from './command.js' */
/** @typedef {{epoch?: string, offset?: number}} Position */

const MAX_LINE_BYTES = 16 * 1024 * 1024;
const RETRY_MS = 1000;
const POSITION = /** @type {const} */ ({ 'epoch?': 'string', 'offset?': 'number' });
const NEWLINE = 0x0a;

/**
 * @param {Context} context @param {string} room
 * @param {{key?: string, audience?: string[]}} options of each message
 * @param {(line: string) => string} payloadOf JSON of a line @throws {Failure} with the line
 */
export async function publishLines(context, room, options, payloadOf) {
  const { target, stdin, signal, output } = context;
  if (stdin.isTTY) output.note('reading payloads from the terminal: end them with Ctrl-D');
  signal.addEventListener('abort', () => stdin.destroy(), { once: true });
  const fields = JSON.stringify({ room, ...options }).slice(0, -1);
  /** @param {(payload: string) => Promise<Position>} publish */
  const publishAll = async (publish) => {
    let count = 0;
    for await (const line of linesOf(stdin)) {
      try {
        const payload = payloadOf(line);
        const { epoch, offset } = await patient(context, () => publish(payload));
        count++;
        if (!output.isText) output.record({ room, ...options, epoch, offset }, () => []);
      } catch (error) {
        const failure = Failure.of(error);
        failure.message = `line ${count + 1}: ${failure.message} (${count} published before)`;
        throw failure;
      }
    }
    if (output.isText) output.record({}, () => [`published ${count} messages to ${room}`]);
  };
  if (target.apiKey !== '')
    return publishAll((payload) =>
      callApi(context, '/publish', POSITION, `${fields},"payload":${payload}}`),
    );
  return withClient(context, (client, ended) =>
    publishAll((payload) =>
      Promise.race([client.publish(room, JSON.parse(payload), options), ended]),
    ),
  );
}

/**
 * Repeats a publish that the rate limit has refused.
 * @param {Context} context @param {() => Promise<Position>} publish
 */
async function patient({ output, signal }, publish) {
  for (;;) {
    try {
      return await publish();
    } catch (error) {
      const { code, retryAfterMs = RETRY_MS } = Failure.of(error);
      if (code !== 'RATE_LIMIT_EXCEEDED') throw error;
      output.note(`rate limit reached: waiting ${(retryAfterMs / 1000).toFixed(1)} s`);
      await delay(retryAfterMs, undefined, { signal });
    }
  }
}

/** @param {AsyncIterable<Buffer>} stream @returns {AsyncGenerator<string>} without empty lines */
async function* linesOf(stream) {
  /** @type {Buffer[]} */
  let waiting = [];
  let bytes = 0;
  for await (const chunk of stream) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const line = Buffer.concat([...waiting, chunk.subarray(start, end)]).toString();
      if (line.trim() !== '') yield line;
      [waiting, bytes, start] = [[], 0, end + 1];
    }
    waiting.push(chunk.subarray(start));
    bytes += chunk.length - start;
    if (bytes > MAX_LINE_BYTES)
      throw new Failure(EXIT.data, `a line is larger than ${MAX_LINE_BYTES} bytes`);
  }
  const last = Buffer.concat(waiting).toString();
  if (last.trim() !== '') yield last;
}
