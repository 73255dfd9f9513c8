// disconnect.js: `fanfare disconnect`: closes the connections of a user, or one connection.

import { callApi } from './api.js';
import { exactlyOne, numberIn } from './options.js';

/** @import { Command } from './command.js' */

/** Close codes of an application (docs/protocol.md). */
const CODES = /** @type {const} */ ([4000, 4999]);

/** @type {Command} */
export const command = {
  usage: `disconnect --user NAME | --connection ID [options]

Closes all connections of a user, or one connection, on all servers. They may connect again: to
prevent that, revoke the tokens. Needs an API key with the right disconnect.

  --user NAME        all connections of this user
  --connection ID    the connection with this id
  --code N           the close code, 4000 to 4999; 4503 if absent, after which clients stop
`,
  names: [],
  options: {
    user: { type: 'string' },
    connection: { type: 'string' },
    code: { type: 'string' },
  },
  async run(context) {
    const { values, output } = context;
    const [by, name] = exactlyOne(values, ['user', 'connection']);
    const code = numberIn(values, 'code', ...CODES);
    const target = by === 'user' ? { user: name } : { connectionId: name };
    const shape = /** @type {const} */ ({ connections: 'number' });
    const body = JSON.stringify({ ...target, code });
    const { connections } = await callApi(context, '/disconnect', shape, body);
    output.record({ ...target, connections }, () => [
      `${connections} ${connections === 1 ? 'connection' : 'connections'} of ${name} closed`,
    ]);
  },
};
