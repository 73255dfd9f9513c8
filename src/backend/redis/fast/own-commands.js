// own-commands.js: commands of our own that ioredis queues and answers but does not write.
//
// ioredis's general commands cost 6.6 us of CPU each, these 1.9 us (300 rooms a tick, 154-byte
// bodies; a pipeline 13 us). A command of ours has no promise, timer or copies of its own. ioredis
// puts it into its queue of unanswered commands and calls `resolve` or `reject`. The caller writes
// the bytes of all commands of a tick at once.
//
// Private: the methods that ioredis 6.0 calls on a Command (built/Redis.js, sendCommand;
// built/DataHandler.js, returnReply and returnError; built/redis/event_handler.js, closeHandler),
// and that sendCommand writes to the stream it is given.

import { Command } from 'ioredis';

/** @typedef {import('ioredis').Redis} Redis */

/** The methods of ioredis's Command that this file was written for. */
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

/**
 * @returns {string} '' if ioredis's commands have the expected methods; otherwise the reason why
 *   not
 */
export function ownCommandsFault() {
  const methods = Object.getOwnPropertyNames(Command.prototype)
    .filter((name) => !name.startsWith('_'))
    .sort();
  return methods.join() === METHODS.join()
    ? ''
    : 'commands of ioredis have other methods than those of version 6.0';
}

/**
 * The members that ioredis uses on a command.
 * @abstract
 */
export class OwnCommand {
  constructor() {
    this.name = 'publish';
    /**
     * An error reply names its command by its arguments. There are none, so no payload is logged.
     * @type {string[]}
     */
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
