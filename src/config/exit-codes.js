// exit-codes.js: the exit codes of the program and of all its commands (docs/cli.md).

/**
 * Numbers from 64 on are those of sysexits.h. A script may repeat a command after `unavailable`;
 * after `permission` it needs another key or token.
 */
export const EXIT = Object.freeze({
  ok: 0,
  failed: 1,
  usage: 64,
  data: 65,
  unavailable: 69,
  protocol: 76,
  permission: 77,
  config: 78,
});
