// tail.js: `fanfare tail`: the messages of a room as they arrive, until Ctrl-C.
//
// The library reconnects and recovers, so in a room with history no message is missing, or a note
// says so. In a room with state it prints all keys, then each change.

import { watch, withClient } from './client.js';
import { showMessage } from './messages.js';
import { numberIn } from './options.js';

/** @import { Room } from '../client/room.js' */
/** @import { Command, Context } from './command.js' */
/** @import { Line } from './messages.js' */

/** The most that the server sends after a join (MAX_LAST of protocol/decode.js). */
const MAX_LAST = 10_000;
const MAX_COUNT = 999_999_999;

/** @type {Command} */
export const command = {
  usage: `tail ROOM [options]

Prints the messages of a room as they arrive, until Ctrl-C. It connects as a client: with the token,
or without one to an open server. It reconnects; in a room with history it recovers what it missed.
In a room with state it prints all keys with their values, then each change; null is a removed key.

  --last N, -n N     begin with the last N messages, up to 10,000, in a room with history
  --count N          end after N messages
`,
  names: ['ROOM'],
  options: { last: { type: 'string', short: 'n' }, count: { type: 'string' } },
  async run(context) {
    const { args, values, output } = context;
    const last = numberIn(values, 'last', 0, MAX_LAST);
    let rest = numberIn(values, 'count', 1, MAX_COUNT) ?? Number.POSITIVE_INFINITY;
    const [name] = args;
    await withClient(context, async (client, ended) => {
      const { room, refused } = watch(client, name, { last });
      const counted = new Promise((resolve) => {
        const take = (/** @type {Line} */ line) => {
          if (rest > 0) showMessage(output, name, line);
          if (--rest === 0) resolve(undefined);
        };
        room.on('message', (payload, meta) => take({ payload, ...meta }));
        room.on('change', take);
      });
      follow(output, room, last);
      client.on('degraded', (isDegraded) =>
        output.note(isDegraded ? 'the server has lost its Redis' : 'Redis is back'),
      );
      await Promise.race([counted, refused, ended]);
    });
  },
};

/** Notes gaps. @param {Context['output']} output @param {Room} room @param {number} [last] */
function follow(output, room, last = 0) {
  let isFirst = true;
  room.on('joined', ({ recovered, position }) => {
    if (!isFirst) {
      if (recovered) output.note('connected again, nothing was missed');
      else if (!room.state) output.note('connected again, messages may be missing here');
      return;
    }
    isFirst = false;
    output.note(`listening to ${room.name}`);
    if (room.state && last > 0) output.note('a room with state begins with all its keys');
    else if (position === undefined && last > 0)
      output.note('the room has no history: there are no earlier messages');
  });
  room.on('resync', () => output.note('messages may be missing here'));
  room.on('reset', () => room.state && output.note('the state starts over: all keys follow'));
}
