// history.js: `fanfare history`: a page of the messages that a room keeps.

import { callApi, path, query } from './api.js';
import { ask, withClient } from './client.js';
import { EXIT, Failure } from './failure.js';
import { showMessage } from './messages.js';
import { numberIn, textOption } from './options.js';

/** @import { Command, Context, Values } from './command.js' */

const MOST = 1000;
const POSITION = /^([0-9a-f]{16}):(\d{1,15})$/;
const PAGE = /** @type {const} */ ({
  messages: [{ from: 'string', timestamp: 'number', offset: 'number' }],
  'epoch?': 'string',
  'offset?': 'number',
  more: 'boolean',
});

/** @type {Command} */
export const command = {
  usage: `history ROOM [options]

Prints the latest messages of a room with history, oldest first. Needs an API key or a token with the
right history. It prints one page: a note tells how to get the next one.

  --limit N, -n N          the most messages, 1 to 1,000; 100 if absent
  --before EPOCH:OFFSET    those before this position
  --since EPOCH:OFFSET     those after this position
  --since-time TIME        those from this time: 2026-11-29T12:00:00Z, or ms since 1970
`,
  names: ['ROOM'],
  options: {
    limit: { type: 'string', short: 'n' },
    before: { type: 'string' },
    since: { type: 'string' },
    'since-time': { type: 'string' },
  },
  async run(context) {
    const { args, values, output } = context;
    const [room] = args;
    const limit = numberIn(values, 'limit', 1, MOST);
    const place = placeOf(values);
    const { messages, epoch, more } = await read(context, room, limit, place);
    if (epoch === undefined) throw new Failure(EXIT.failed, `${room} has no history`);
    for (const message of messages) showMessage(output, room, { ...message, epoch });
    if (messages.length === 0) output.note('no messages');
    if (!more || messages.length === 0) return;
    const isForward = place.since !== undefined || place.sinceTime !== undefined;
    output.note(
      isForward
        ? `There are newer messages: --since ${epoch}:${messages[messages.length - 1].offset}`
        : `There are older messages: --before ${epoch}:${messages[0].offset}`,
    );
  },
};

/** @typedef {{before?: string, since?: string, sinceTime?: number}} Place */

/**
 * @param {Context} context @param {string} room @param {number|undefined} limit
 * @param {Place} place @returns {Promise<Record<string, any>>}
 */
async function read(context, room, limit, place) {
  if (context.target.apiKey !== '')
    return callApi(context, path`/rooms/${room}/history` + query({ limit, ...place }), PAGE);
  const { sinceTime } = place;
  const before = readPosition(place.before);
  const since = readPosition(place.since);
  const request = { type: 'history', room, limit, before, since, sinceTime };
  /** @type {Record<string, any>} */
  let page = {};
  await withClient(context, async (client) => {
    page = await ask(context, client, request, PAGE);
  });
  return page;
}

/** @param {string|undefined} text */
function readPosition(text) {
  const [, epoch, offset] = POSITION.exec(text ?? '') ?? [];
  return epoch === undefined ? undefined : { epoch, offset: Number(offset) };
}

/** @param {Values} values @returns {Place} with at most one field */
function placeOf(values) {
  const before = textOption(values, 'before');
  const since = textOption(values, 'since');
  const time = textOption(values, 'since-time');
  if ([before, since, time].filter((one) => one !== undefined).length > 1)
    throw new Failure(EXIT.usage, 'give only one of --before, --since, --since-time');
  for (const [name, position] of Object.entries({ before, since }))
    if (position !== undefined && !POSITION.test(position))
      throw new Failure(
        EXIT.usage,
        `--${name} is a position as this command prints it: EPOCH:OFFSET`,
      );
  if (time === undefined) return { before, since };
  const sinceTime = /^\d{1,16}$/.test(time) ? Number(time) : Date.parse(time);
  if (Number.isNaN(sinceTime))
    throw new Failure(
      EXIT.usage,
      '--since-time is a time as 2026-11-29T12:00:00Z, or in ms since 1970',
    );
  return { sinceTime };
}
