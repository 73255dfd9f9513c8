// system-limits.js: the system resources that a worker uses and reserves. The doctor (doctor/) uses
// the same figures, so it predicts the server's behaviour.

/** Length of the accept queue, for listen(2). The kernel caps it at net.core.somaxconn. */
export const LISTEN_BACKLOG = 4096;

/**
 * Clients of a drained worker that may return in a second: their handshakes cost a fifth of a core
 * (deploys compared in loadtest/deploy: over 20 s, half of 1,000 clients would wait for 10 s and
 * more).
 */
export const RETURNS_PER_SECOND = 500;

/** Unanswered bytes to Redis: such a burst must fit into a worker's output buffer there. */
export const MAX_BYTES_TO_REDIS = 32 * 1024 * 1024;

/** Descriptors that a worker has open before its first connection, rounded up. */
export const OWN_DESCRIPTORS = 64;
/** Descriptors reserved for Redis, the relay, logs, and sockets that are being refused. */
const RESERVED_DESCRIPTORS = 256;
/** Upper bound of the reserve, as a share of the limit, for low limits. */
const RESERVED_PART = 0.25;

/** @param {number} limit of open files @returns {number} open before connections are refused */
export function usableDescriptors(limit) {
  return limit - Math.min(RESERVED_DESCRIPTORS, Math.floor(limit * RESERVED_PART));
}

/**
 * The limit of open files in the text of /proc/PID/limits (proc(5)). The soft limit applies. Node
 * raises its soft limit to the hard limit when it starts.
 * @param {string} text
 * @returns {{soft: number, hard: number}|null} Infinity for "unlimited"; null if the text has no
 *   such line
 */
export function parseOpenFiles(text) {
  const line = /^Max open files\s+(\d+|unlimited)\s+(\d+|unlimited)/m.exec(text);
  if (line === null) return null;
  const [soft, hard] = line
    .slice(1)
    .map((word) => (word === 'unlimited' ? Number.POSITIVE_INFINITY : Number(word)));
  return { soft, hard };
}
