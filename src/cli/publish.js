// publish.js: `fanfare publish`: messages to a room, by the HTTP API or as a client.

import { callApi } from './api.js';
import { withClient } from './client.js';
import { EXIT, Failure } from './failure.js';
import { publishLines } from './lines.js';
import { textOption } from './options.js';

/** @import { Command, Context } from './command.js' */

/** More than any payload that a server takes inline. */
const MAX_STDIN_BYTES = 16 * 1024 * 1024;
const POSITION = /** @type {const} */ ({ 'epoch?': 'string', 'offset?': 'number' });

/** @type {Command} */
export const command = {
  usage: `publish ROOM PAYLOAD [options]
       fanfare publish ROOM --lines [options]

Publishes PAYLOAD, which is JSON; - reads it from stdin. With an API key the message comes from the
backend. Otherwise it comes from the user of the token, or from a client of an open server.

  --text             PAYLOAD is a text, and not JSON
  --lines            each line of stdin is a payload, published in order; ends at the first refusal
  --key KEY          in a room with state: PAYLOAD becomes the value of KEY; null removes it
  --audience NAME    only members who hold this audience get it; up to four times, for any of them
`,
  names: ['ROOM', 'PAYLOAD?'],
  options: {
    text: { type: 'boolean', short: 't' },
    lines: { type: 'boolean' },
    key: { type: 'string' },
    audience: { type: 'string', multiple: true },
  },
  async run(context) {
    const { args, values, target, output } = context;
    const [room, argument] = args;
    const key = textOption(values, 'key');
    const audience = /** @type {string[]|undefined} */ (values.audience);
    const options = audience === undefined ? { key } : { key, audience };
    if (values.lines) {
      if (argument !== undefined && argument !== '-')
        throw new Failure(EXIT.usage, 'with --lines the payloads come from stdin, without PAYLOAD');
      return publishLines(context, room, options, (text) => payloadOf(text, values.text === true));
    }
    if (argument === undefined) throw new Failure(EXIT.usage, 'expected ROOM PAYLOAD');
    const given = argument === '-' ? await readStdin(context) : argument;
    const payload = payloadOf(given, values.text === true);
    /** @type {{epoch?: string, offset?: number}} */
    let position = {};
    if (target.apiKey !== '') {
      // The payload keeps its bytes.
      const fields = JSON.stringify({ room, ...options });
      const body = `${fields.slice(0, -1)},"payload":${payload}}`;
      position = await callApi(context, '/publish', POSITION, body);
    } else
      await withClient(context, async (client) => {
        position = await client.publish(room, JSON.parse(payload), options);
      });
    const { epoch, offset } = position;
    output.record({ room, ...options, epoch, offset }, () => [
      offset === undefined ? `published to ${room}` : `published to ${room}, offset ${offset}`,
    ]);
  },
};

/** @param {string} given @param {boolean} isText @returns {string} JSON */
function payloadOf(given, isText) {
  if (isText) return JSON.stringify(given);
  try {
    JSON.parse(given);
    return given;
  } catch {
    throw new Failure(
      EXIT.data,
      'PAYLOAD is not JSON. To send a text, add --text, or quote it: \'"hello"\'',
    );
  }
}

/** @param {Context} context */
async function readStdin({ stdin, signal, output }) {
  if (stdin.isTTY) output.note('reading the payload from the terminal: end it with Ctrl-D');
  signal.addEventListener('abort', () => stdin.destroy(), { once: true });
  const chunks = [];
  let bytes = 0;
  for await (const chunk of stdin) {
    bytes += chunk.length;
    if (bytes > MAX_STDIN_BYTES)
      throw new Failure(EXIT.data, `the payload is larger than ${MAX_STDIN_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
