// plain-commands.js: the slow path: sends a command through ioredis's documented interface.
// It takes the arguments out of the RESP bytes that the publisher and the history write.

import { Command } from 'ioredis';

const CR = 0x0d;

/** The publisher has time-outs of its own. */
class PlainCommand extends Command {
  /** @override */
  setTimeout() {}
}

/**
 * @param {import('ioredis').Redis} redis
 * @param {{resolve(reply: unknown): void, reject(error: Error): void}} command gets the answer
 * @param {Buffer} bytes the command as RESP
 */
export function sendPlain(redis, command, bytes) {
  const [name, ...args] = argumentsOf(bytes);
  const plain = new PlainCommand(name.toString().toLowerCase(), args);
  plain.promise.then(
    (reply) => command.resolve(reply),
    (error) => {
      // An error has the arguments of its command, and payloads must not be logged.
      if (error.command !== undefined) error.command = { name: plain.name, args: [] };
      command.reject(error);
    },
  );
  redis.sendCommand(plain);
}

/** @param {Buffer} bytes `*<count>`, then `$<length>` and bytes of each argument */
function argumentsOf(bytes) {
  const found = [];
  let at = bytes.indexOf(CR) + 2;
  while (at < bytes.length) {
    const lineEnd = bytes.indexOf(CR, at);
    const start = lineEnd + 2;
    const end = start + Number(bytes.toString('latin1', at + 1, lineEnd));
    found.push(bytes.subarray(start, end));
    at = end + 2;
  }
  return found;
}
