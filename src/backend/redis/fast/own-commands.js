// own-commands.js: commands that ioredis queues and answers but does not write.
//
// An own command has no promise, timer or copies. It waits in ioredis' queue of unanswered
// commands, and ioredis calls `resolve` or `reject`. The caller writes the bytes of a tick's
// commands at once.
//
// Private in ioredis 6.0: which methods it calls on a Command, and that sendCommand writes to the
// stream its caller passes: built/Redis.js (sendCommand), built/DataHandler.js (returnReply,
// returnError), built/redis/event_handler.js (closeHandler).

import { Command } from 'ioredis';

/** @import { Redis } from 'ioredis' */

/** The methods of Command in ioredis 6.0. */
const METHODS = Object.freeze([
  'constructor',
  'extractBlockingTimeout',
  'getKeys',
  'getSlot',
  'initPromise',
  'setBlockingTimeout',
  'setReplyContext',
  'setTimeout',
  'stringifyArguments',
  'toWritable',
  'transformReply',
]);

/** @returns '' if commands of ioredis have the expected methods; otherwise the reason */
export function ownCommandsFault() {
  const methods = Object.getOwnPropertyNames(Command.prototype)
    .filter((name) => !name.startsWith('_'))
    .sort();
  return methods.join() === METHODS.join()
    ? ''
    : 'commands of ioredis have other methods than those of version 6.0';
}

/** The members that ioredis uses on a command. @abstract */
export class OwnCommand {
  constructor() {
    this.name = 'publish';
    /** Empty, because they would be logged with an error. @type {string[]} */
    this.args = [];
    this.isTraced = true;
  }

  setReplyContext() {}

  setTimeout() {}

  toWritable() {
    return '';
  }
}

/** Writes nothing: the publisher writes for all commands of a tick. */
class Nowhere {
  isPipeline = /** @type {const} */ (true);

  /** @param {Redis} redis */
  constructor(redis) {
    this.destination = { redis };
  }

  write() {}
}

/**
 * @param {Redis} redis
 * @returns {(command: OwnCommand) => void} queues a command whose bytes the caller writes later in
 *   this turn
 */
export function queueOf(redis) {
  const nowhere = /** @type {any} */ (new Nowhere(redis));
  return (command) => {
    redis.sendCommand(/** @type {Command} */ (/** @type {unknown} */ (command)), nowhere);
  };
}
