// bounds.js: how much a codec reads of one message, so that no message occupies a worker for long.
//
// An empty command is a byte in protobuf and three in JSON: 100 KB of them took 147 ms. Commands
// count, entries of maps count like commands, and fields count, also unknown ones.

/** However many rooms a connection may join: so many commands take up to 8 ms to decode. */
export const MAX_COMMANDS = 5000;
/** A subscription that recovers has twelve. */
const FIELDS_PER_COMMAND = 16;

/** The message has more than its bounds, and has not been read to its end. @type {'too_many'} */
export const TOO_MANY = 'too_many';

/** @param {number} maxCommands of a message @returns {number} fields that it may have */
export function maxFieldsOf(maxCommands) {
  return FIELDS_PER_COMMAND * maxCommands;
}
