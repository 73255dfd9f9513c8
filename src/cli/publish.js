// publish.js: `fanfare publish`: one message to a room, by the HTTP API or as a client.

import { callApi } from './api.js';
import { withClient } from './client.js';
import { EXIT, Failure } from './failure.js';

/** @import { Command, Context } from './command.js' */

/** More than any payload that a server takes inline. */
const MAX_STDIN_BYTES = 16 * 1024 * 1024;

/** @type {Command} */
export const command = {
  usage: `publish ROOM PAYLOAD [options]

Publishes PAYLOAD, which is JSON; - reads it from stdin. With an API key the message comes from the
backend. Otherwise it comes from the user of the token, or from a client of an open server.

  --text             PAYLOAD is a text, and not JSON
  --key KEY          in a room with state: PAYLOAD becomes the value of KEY; null removes it
`,
  names: ['ROOM', 'PAYLOAD'],
  options: { text: { type: 'boolean', short: 't' }, key: { type: 'string' } },
  async run(context) {
    const { args, values, target, output } = context;
    const [room] = args;
    const key = /** @type {string|undefined} */ (values.key);
    const given = args[1] === '-' ? await readStdin(context) : args[1];
    const payload = values.text ? JSON.stringify(given) : checked(given);
    /** @type {{epoch?: string, offset?: number}} */
    let position = {};
    if (target.apiKey !== '') {
      // The payload keeps its bytes.
      const fields = JSON.stringify({ room, key });
      const body = `${fields.slice(0, -1)},"payload":${payload}}`;
      position = await callApi(context, '/publish', body);
    } else
      await withClient(context, async (client) => {
        position = await client.publish(room, JSON.parse(payload), { key });
      });
    const { epoch, offset } = position;
    output.record({ room, key, epoch, offset }, () =>
      offset === undefined ? `published to ${room}` : `published to ${room}, offset ${offset}`,
    );
  },
};

/** @param {string} text */
function checked(text) {
  try {
    JSON.parse(text);
    return text;
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
