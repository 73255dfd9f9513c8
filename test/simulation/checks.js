// checks.js: what a script may demand at a moment, beside the invariants of test/checker. Each check
// says what is wrong, or ''.

/** @import { Stage } from './stage.js' */

/** @type {Readonly<Record<string, (stage: Stage, about: any) => string>>} */
export const CHECKS = Object.freeze({
  /** A plain client was sent a frame like this, so often; without `times` at least once. */
  told(stage, { who, frame, times }) {
    const { length } = tellings(stage, who, frame);
    const isRight = times === undefined ? length > 0 : length === times;
    return isRight ? '' : `${who} was told ${length} times ${JSON.stringify(frame)}`;
  },
  /** A plain client was sent a frame like this before the first one like `before`. */
  toldBefore(stage, { who, frame, before }) {
    const early = framesBefore(stage, who, before);
    if (early === null) return `${who} was never told ${JSON.stringify(before)}`;
    const isTold = early.some((one) => isLike(one, frame));
    return isTold ? '' : `${who} was not told ${JSON.stringify(frame)}`;
  },
  /** A plain client was sent nothing like `frame` before the first one like `before`. */
  notToldBefore(stage, { who, frame, before }) {
    const early = framesBefore(stage, who, before);
    if (early === null) return `${who} was never told ${JSON.stringify(before)}`;
    const one = early.find((told) => isLike(told, frame));
    return one === undefined ? '' : `${who} was told too early ${JSON.stringify(one)}`;
  },
  /** An answer of the HTTP API. */
  answer(stage, { to, is }) {
    const answer = stage.answers.get(to);
    return isLike(answer, is) ? '' : `the answer ${to} is ${JSON.stringify(answer).slice(0, 400)}`;
  },
  /** An answer of the HTTP API is one state: each key once, no entry newer than its position. */
  oneState(stage, { to }) {
    const { status, body } = stage.answers.get(to) ?? {};
    if (status !== 200) return `the answer ${to} has the status ${status}`;
    /** @type {{key: string, offset: number}[]} */
    const entries = body.entries;
    const keys = new Set(entries.map(({ key }) => key));
    if (keys.size < entries.length) return `${entries.length - keys.size} keys are there twice`;
    const newer = entries.find(({ offset }) => offset > body.offset);
    return newer ? `${newer.key} is of ${newer.offset}, after ${body.offset}` : '';
  },
  /** The receiver of webhooks got so many events like this, each counted once. */
  webhooks({ receiver }, { event, times }) {
    const { length } = receiver.accepted.filter((one) => isLike(one, event));
    return length === times ? '' : `${length} events like ${JSON.stringify(event)}, not ${times}`;
  },
  /** A person knows exactly these users of a room. */
  list(stage, { who, room, users }) {
    const known = [...(stage.client(who).rosters.get(room)?.users ?? ['no list'])].sort();
    return isLike(known, users) && known.length === users.length
      ? ''
      : `${who} knows of ${known} in ${room}, and not of ${users}`;
  },
  /** The connection of a plain client ended with this code. */
  closed(stage, { who, code }) {
    const { code: was } = stage.client(who);
    return was === code ? '' : `${who} was closed with ${was}, not with ${code}`;
  },
  /** A server of Redis has accepted at most so many connections. */
  connections(stage, { node, most }) {
    const { clients } = stage.redis(node).server;
    return clients <= most ? '' : `Redis has accepted ${clients} connections, more than ${most}`;
  },
  /** No plain client's connection ended with this code. */
  notClosed(stage, { code }) {
    const { length } = stage.others.filter((client) => client.code === code);
    return length === 0 ? '' : `${length} connections were closed with ${code}`;
  },
});

/** @param {Stage} stage @param {string} who @param {any} frame @returns {any[]|null} null: it never came */
function framesBefore(stage, who, frame) {
  const { told } = stage.client(who);
  const first = told.findIndex((/** @type {any} */ one) => isLike(one, frame));
  return first === -1 ? null : told.slice(0, first);
}

/** @param {Stage} stage @param {string} who @param {any} frame @returns {any[]} frames like it */
export function tellings(stage, who, frame) {
  return stage.client(who).told.filter((/** @type {any} */ one) => isLike(one, frame));
}

/** @param {any} value @param {any} like @returns {boolean} has it all that `like` has? */
export function isLike(value, like) {
  if (typeof like !== 'object' || like === null) return value === like;
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(like).every(([name, one]) => isLike(value[name], one));
}
