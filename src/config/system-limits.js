// system-limits.js: what a worker takes of the system, and what it keeps back for itself.
//
// Kept in one place since the server lives by these figures and the doctor (doctor/) foretells by
// them.

/**
 * Connections that wait to be accepted: what listen(2) is asked for. The kernel gives no more than
 * net.core.somaxconn.
 */
export const LISTEN_BACKLOG = 4096;

/**
 * What a worker may have under way to Redis: a burst of it has to fit into another worker's output
 * buffer there.
 */
export const MAX_BYTES_TO_REDIS = 32 * 1024 * 1024;

/** Descriptors a worker has open before its first connection, rounded up. */
export const OWN_DESCRIPTORS = 64;
/**
 * Descriptors kept for what is no client: Redis, the relay, logs, and the sockets that are being
 * refused.
 */
const RESERVED_DESCRIPTORS = 256;
/** Where there are few descriptors at all, the reserve is this part of them. */
const RESERVED_PART = 0.25;

/**
 * @param {number} limit of open files
 * @returns {number} how many may be open before new connections are refused
 */
export function usableDescriptors(limit) {
  return limit - Math.min(RESERVED_DESCRIPTORS, Math.floor(limit * RESERVED_PART));
}

/**
 * The limit of open files in the text of /proc/PID/limits (proc(5)). The soft one is in force; Node
 * raises its own to the hard one as it starts.
 * @param {string} text
 * @returns {{soft: number, hard: number}|null} Infinity where it says unlimited; null where the
 *   text has no such line
 */
export function parseOpenFiles(text) {
  const line = /^Max open files\s+(\d+|unlimited)\s+(\d+|unlimited)/m.exec(text);
  if (line === null) return null;
  const [soft, hard] = line
    .slice(1)
    .map((word) => (word === 'unlimited' ? Number.POSITIVE_INFINITY : Number(word)));
  return { soft, hard };
}
