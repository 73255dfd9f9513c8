// invariants-of-clients.js: rows of the table of invariants: the promises to single clients,
// users and tokens.
//
// A user may be in a wrong list, or have too many connections, for a while after a fault. So these are
// asked when nothing has been done to the servers for SETTLE_US.

import { SETTLE_US } from './indexed-run.js';

/** @typedef {import('./invariants.js').Run} Run */
/** @typedef {import('./invariants.js').Sight} Sight */
/** @typedef {import('./invariants.js').Member} Member */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Invariant} Invariant */

/** @type {readonly Invariant[]} */
export const INVARIANTS_OF_CLIENTS = Object.freeze([
  {
    id: 'I12',
    anomaly: 'revoked and there',
    claim: 'a revoked token opens no connection, and its connections are closed',
    asked: {
      reply: wasNotRevoked,
      ended: wasClosedIfRevoked,
      census: revokedAreOut,
    },
  },
  {
    id: 'I16',
    anomaly: 'echo',
    claim: 'who publishes with echo:false does not get the message',
    asked: { deliver: isNoEcho, repeat: isNoEcho },
  },
  {
    id: 'I17',
    anomaly: 'incomplete tail',
    claim: 'a join with `last` brings all of the newest messages, and then the live ones',
    asked: { finish: tailsAreWhole },
  },
  {
    id: 'I18',
    anomaly: 'wrong cap',
    claim: 'a user has as many connections as it may over all servers, and no more',
    asked: { census: capsAreExact },
  },
  {
    id: 'I19',
    anomaly: 'wrong list of users',
    claim: 'a member that follows docs/presence.md knows the users that are in the room',
    asked: { list: knowsTheUsers },
  },
  {
    id: 'I20',
    anomaly: 'id ahead',
    claim: 'the last event id of a stream is not beyond what the stream has sent',
    asked: { subscribe: idIsNotAhead },
  },
  {
    id: 'I34',
    anomaly: 'wrong number of subscribers',
    claim: 'who is told the number of subscribers is told each change, and each change once',
    asked: { count: isTheirNumber },
  },
]);

/** @param {Run} run @param {{member: Member}} told @returns {Answer} */
function wasNotRevoked(run, { member }) {
  const { users } = run;
  if (users.revoked.size === 0 || !users.sessions.has(member.client)) return null;
  const user = users.isWronglyIn(member.client, run.calmSince, run.isSettled);
  return user === null ? '' : `${member} was let in as ${user}, whose token is revoked`;
}

/** @param {Run} run @param {Member} member @returns {Answer} */
function wasClosedIfRevoked(run, member) {
  const { sessions, revoked } = run.users;
  const user = sessions.get(member.client)?.user;
  const revokedAt = revoked.get(user ?? '');
  if (revokedAt === undefined || !member.isOpen) return null;
  return run.settledMoment(member) < revokedAt
    ? ''
    : `${member} is open as ${user}, long after its token was revoked`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* revokedAreOut(run) {
  const { users } = run;
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const member of run.members()) {
    const user = users.sessions.get(member.client)?.user;
    const fault = wasClosedIfRevoked(run, member);
    if (user !== undefined && fault) found.set(user, fault);
  }
  for (const user of users.revoked.keys()) yield found.get(user) ?? '';
}

/** @param {Run} run @param {Sight} sight @returns {Answer} */
function isNoEcho(run, { publication, member, value }) {
  if (publication === undefined || publication.client === null) return null;
  if (publication.client !== member.client) return '';
  const isSame = publication.link === run.links.get(member.client);
  // A library knows the positions of what it has published, until the application leaves the room.
  const { outcome, stream, invokedAt } = publication;
  const isKnown = outcome === 'ok' && stream !== null && invokedAt > member.leftAt;
  return isSame || isKnown ? `${value} came back to ${member}` : null;
}

/** A message may have been stored so long before its ack. */
const ACKED_US = 2_000_000;

/** @param {Run} run @returns {Iterable<Answer>} */
function* tailsAreWhole(run) {
  for (const { member, stream, to, asked, replayed, got, isComplete, at } of run.tails) {
    // If the connection ended first, its end may be missing.
    const end = isComplete ? to : Math.max(0, ...got);
    if (end === 0) continue;
    const about = `${member}, the last ${asked} up to ${stream.epoch}:${to}`;
    let missing = 0;
    // The room may have forgotten some of them already: the reply of a worker that is behind.
    const kept = stream.acceptedUntil(at + ACKED_US) - run.kept + 1;
    const first = run.isNarrow ? Math.min(...got) : 1;
    for (let offset = Math.max(first, to - asked + 1, kept); offset <= end; offset++) {
      const place = stream.places.get(offset);
      if (!got.has(offset) && place !== undefined && place.client !== member.client)
        missing = missing || offset;
    }
    if (missing > 0) yield `${about}: ${missing} is missing, ${[...got][0] ?? 'none'} is the first`;
    else if (isComplete && replayed >= 0 && replayed !== got.size)
      yield `${about}: ${replayed} were announced, ${got.size} came`;
    else yield '';
  }
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* capsAreExact({ users, isSettled }) {
  if (!isSettled) return;
  for (const [user, { allowed, wanted }] of users.capped) {
    const [open, due] = [users.connections(user), Math.min(allowed, wanted)];
    yield open === due
      ? ''
      : `${user} has ${open} connections, wants ${wanted} and may have ${due}`;
  }
}

/** @param {Run} run @param {{member: Member, users: string[]|null}} list @returns {Answer} */
function knowsTheUsers(run, { member, users }) {
  if (!run.isSettled || !member.isOpen || run.now - member.openedAt < SETTLE_US) return null;
  if (users === null) return `${member} has no list of users`;
  const fault = run.users.faultOf(member.room, users, run.now, SETTLE_US);
  return fault === '' ? '' : `${member} has a list ${fault}`;
}

/** Redis that lost the last number repeats it, within this time. */
const TOLD_AGAIN_US = 5_000_000;

/** @param {Run} run @param {{member: Member, count: number, isSurvey: boolean}} told @returns {Answer} */
function isTheirNumber(run, { member, count, isSurvey }) {
  if (!isSurvey) {
    if (run.disturbances > 0 || run.now - run.calmSince < TOLD_AGAIN_US) return null;
    return count === member.count ? `${member} was told twice that there are ${count}` : '';
  }
  const open = run.open.get(member.room) ?? 0;
  // Nobody has come a moment ago.
  if (!run.isSettled || run.residents(member.room) !== open) return null;
  return count === open ? '' : `${member} was told of ${count} subscribers, and there are ${open}`;
}

/** @param {Run} _ @param {import('./invariants.js').Asking} asking @returns {Answer} */
function idIsNotAhead(_, { member, id }) {
  if (id === undefined || member.stream === null || member.stream.epoch !== id.epoch) return null;
  if (id.offset <= member.last) return '';
  return `${member} has an id of ${id.epoch}:${id.offset}, and got ${member.last}`;
}
