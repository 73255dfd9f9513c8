// limits.js: the times and bounds of a shared connection (../limits.js).

/** Between two looks at the leader. In hidden pages it becomes a second, and later a minute. */
export const LOOK_MS = 500;
/** If a look comes later than this, the page was suspended. */
export const MAX_LOOK_MS = 1250;
/** A leader that has been asked for so long is dead. */
export const ANSWER_MS = 950;
/** Until a tab that seizes the lock has it. */
export const SEIZE_TIMEOUT_MS = 1000;
/** Messages kept for tabs that join. */
export const MAX_RECENT = 100;
/** Removed keys of a room with state that are kept for tabs that join. */
export const MAX_REMOVED = 1000;
/** Messages in one `history`, and such reads for one join. The server may send fewer. */
export const PAGE_SIZE = 1000;
export const MAX_PAGES = 20;
/** Messages that wait for an `ack`. */
export const MAX_HELD = 1000;
/** Messages in a plain room whose own copies are awaited. */
export const MAX_AWAITED = 100;
export const REJOIN_MS = 1000;
/** Messages of `lastSeconds`, as at the server. */
export const MAX_LAST = 10_000;
