// fast-paths.js: decides whether a fast path is used.
//
// A fast path uses something that Node, ws or ioredis does not document. Each lies in a `fast/`
// folder, with a guard that looks for the private fields it needs, and a slower way beside it that
// does without. src/transport/fast/README.md lists them.

/** @import { FastPath } from '../observability/counters.js' */

/**
 * Decides once for this process, and records the decision for the metric and the start-up log.
 * @param {FastPath} name @param {{fastPaths: 'on'|'off'}} config
 * @param {{fastPaths: Partial<Record<FastPath, string>>}} counters
 * @param {() => string} guard '' if the fast path works here; else the reason why it does not
 * @returns {boolean} whether to use it
 */
export function useFastPath(name, config, counters, guard) {
  const reason = config.fastPaths === 'off' ? 'FANFARE_FAST_PATHS is off' : guard();
  counters.fastPaths[name] = reason;
  return reason === '';
}

/**
 * Guards a fast path on the descriptor or the listeners of a TCP socket: TLS keeps state above it.
 * @param {{tls: unknown}} config @param {() => string} guard for a port without TLS
 * @returns {() => string}
 */
export function plainOnly(config, guard) {
  return config.tls ? () => 'the public port speaks TLS' : guard;
}

/**
 * @param {Partial<Record<FastPath, string>>} paths
 * @returns {{inUse: string[], notInUse?: Record<string, string>}} for the log; `notInUse` has the
 *   reasons
 */
export function describeFastPaths(paths) {
  const all = /** @type {[string, string][]} */ (Object.entries(paths));
  const notInUse = all.filter(([, reason]) => reason !== '');
  return {
    inUse: all.flatMap(([name, reason]) => (reason === '' ? [name] : [])),
    ...(notInUse.length === 0 ? {} : { notInUse: Object.fromEntries(notInUse) }),
  };
}
