// limits.js: the times and bounds of a shared connection (../limits.js).

/** Between two checks of the leader. In hidden pages browsers extend it to 1 s, later to 1 min. */
export const LOOK_MS = 500;
/** If a check is later than this, the page was suspended. */
export const MAX_LOOK_MS = 1250;
/** A leader that does not answer a ping within this time is dead. */
export const ANSWER_MS = 950;
/** Time to steal the lock. */
export const SEIZE_TIMEOUT_MS = 1000;
/** Messages kept for tabs that join. */
export const MAX_RECENT = 100;
/** Removals kept for tabs that join a room with state. */
export const MAX_REMOVED = 1000;
/** Messages in a page of `history`, of which the server may send fewer, and pages for one join. */
export const PAGE_SIZE = 1000;
export const MAX_PAGES = 20;
/** Messages that wait for an `ack`. */
export const MAX_HELD = 1000;
/** Own messages whose copies are awaited in a plain room. */
export const MAX_AWAITED = 100;
export const REJOIN_MS = 1000;
/** Messages for `lastSeconds`, as in the server. */
export const MAX_LAST = 10_000;
