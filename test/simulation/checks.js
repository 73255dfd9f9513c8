// checks.js: what a script may demand at a moment, beside the invariants of test/checker. Each check
// says what is wrong, or ''.

/** @import { Stage } from './acts.js' */

/** @type {Readonly<Record<string, (stage: Stage, about: any) => string>>} */
export const CHECKS = Object.freeze({
  /** A plain client was sent a frame like this, so often; without `times` at least once. */
  told(stage, { who, frame, times }) {
    const { length } = tellings(stage, who, frame);
    const isRight = times === undefined ? length > 0 : length === times;
    return isRight ? '' : `${who} was told ${length} times ${JSON.stringify(frame)}`;
  },
  /** A plain client was sent nothing like `frame` before the first one like `before`. */
  toldFirst(stage, { who, frame, before }) {
    const { told } = stage.client(who);
    const first = told.findIndex((/** @type {any} */ one) => isLike(one, before));
    if (first === -1) return `${who} was never told ${JSON.stringify(before)}`;
    const early = told.slice(0, first).find((/** @type {any} */ one) => isLike(one, frame));
    return early === undefined ? '' : `${who} was told too early ${JSON.stringify(early)}`;
  },
  /** An answer of the HTTP API. */
  answer(stage, { to, is }) {
    const answer = stage.answers.get(to);
    return isLike(answer, is) ? '' : `the answer ${to} is ${JSON.stringify(answer)}`;
  },
  /** A person knows exactly these users of a room. */
  list(stage, { who, room, users }) {
    const known = [...(stage.client(who).rosters.get(room)?.users ?? ['no list'])].sort();
    return isLike(known, users) && known.length === users.length
      ? ''
      : `${who} knows of ${known} in ${room}, and not of ${users}`;
  },
  /** A client's connection is open. */
  open: (stage, { who }) =>
    stage.client(who).socket?.readyState === 1 ? '' : `${who} is not connected`,
  closed: (stage, { who, code }) => {
    const { code: was } = stage.client(who);
    return was === code ? '' : `${who} was closed with ${was}, and not with ${code}`;
  },
});

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
