// run-error.js: why a run cannot be written or read further.

/**
 * - `CONFLICT`: another producer writes the run. Stop: yours is the older one.
 * - `ENDED`: the run has its end mark.
 * - `STOPPED`: a reader has asked for the end.
 * - `FAILED`: the producer has ended the run with an error; the message is the producer's.
 * - `INCOMPLETE`: the room no longer keeps all chunks.
 * - `SILENT`: no part arrived within `silenceMs`.
 * - `BUFFER_FULL`: the run was read too slowly.
 * @typedef {'CONFLICT'|'ENDED'|'STOPPED'|'FAILED'|'INCOMPLETE'|'SILENT'|'BUFFER_FULL'} RunErrorCode
 */

export class RunError extends Error {
  /** @override */
  name = 'RunError';

  /** @param {RunErrorCode} code @param {string} message @param {{cause?: unknown}} [options] */
  constructor(code, message, options) {
    super(message, options);
    this.code = code;
  }
}
