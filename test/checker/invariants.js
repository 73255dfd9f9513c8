// invariants.js: the table of invariants, which hold for every run and every fault. Each row names
// its anomaly.
//
// A row's functions are called at an event, with the run as it was before the event. They return
// null if the invariant does not apply, '' if it held, and otherwise the violation; functions that
// check many things yield such answers. A report counts how often each invariant applied, because
// an invariant that was never tested proves nothing.
//
// The borders between them are drawn so that one fault is one anomaly:
// - a gap between two offsets that a client got is I5, or I6 while a replay is under way;
// - a message after the last offset that a client got is no gap. It is I7 if the segment ended, and
//   I8 if the segment lasted to the end and the client had an undisturbed SETTLE_US. Before that it
//   may be late, and late is not lost;
// - I7 is also a publication that no client received although one was subscribed through its offset
//   (then I5 or I3 name the client);
// - I11 concerns notices: an epoch that changes without a `resync` or a reply, one that never
//   reaches a client, and one that continues although its messages are gone.
// - I2 is a message that was answered with a refusal, however late it is delivered; I14 is one of unknown outcome that is late.
// A delivery without a publisher, or of another room, is I1 and nothing else.
//
// I12 and those from I16 on are in invariants-of-clients.js: what single clients, users and tokens
// are promised. Those of rooms with state are in invariants-of-states.js, and those of publishers that
// expect a position in invariants-of-appends.js. invariants-of-webhooks.js has the messages of webhooks,
// and invariants-of-audiences.js those for an audience.

import { ARRIVING_US, SETTLE_US } from './indexed-run.js';
import { INVARIANTS_OF_APPENDS } from './invariants-of-appends.js';
import { INVARIANTS_OF_AUDIENCES } from './invariants-of-audiences.js';
import { INVARIANTS_OF_CLIENTS } from './invariants-of-clients.js';
import { INVARIANTS_OF_STATES } from './invariants-of-states.js';
import { INVARIANTS_OF_WEBHOOKS } from './invariants-of-webhooks.js';

/** How long servers may take to notice that some of them are at another Redis. */
const NOTICED_US = 10_000_000;
/**
 * The longest time to notice that the broker is down and to notify all clients: twice the limit in
 * the tests of each case.
 */
const TOLD_US = 10_000_000;

/** @typedef {import('./indexed-run.js').IndexedRun} Run */
/** @typedef {import('./indexed-run.js').Sight} Sight */
/** @typedef {import('./indexed-run.js').Member} Member */
/** @typedef {import('./publications.js').Publication} Publication */
/** @typedef {import('./publications.js').Stream} Stream */
/** @typedef {string|null} Answer null: does not apply; '': held; otherwise the violation */

/**
 * @typedef {{publication: Publication, t: number, stream: Stream|null, offset: number}} Acceptance
 */
/**
 * @typedef {{member: Member, stream: Stream|null, offset: number, isRecovered: boolean}} Told by a
 *   reply or a `resync`
 */

/** @typedef {import('./indexed-run.js').Refusal & {publication: Publication}} Refused */
/** @typedef {{member: Member, id: import('./record.js').Position|undefined}} Asking */

/**
 * The events at which a row is checked.
 * @typedef {object} Asked
 * @property {(run: Run, sight: Sight) => Answer} [deliver] of a publication of that room
 * @property {(run: Run, sight: Sight) => Answer} [repeat] the same, but the client dropped it
 *   because it had passed that offset
 * @property {(run: Run, sight: Sight) => Answer} [stray] of anything else
 * @property {(run: Run, acceptance: Acceptance) => Answer} [ok]
 * @property {(run: Run, refused: Refused) => Answer} [fail]
 * @property {(run: Run, told: Told) => Answer} [reply]
 * @property {(run: Run, told: Told) => Answer} [resync]
 * @property {(run: Run, asking: Asking) => Answer} [subscribe]
 * @property {(run: Run, about: {member: Member, users: string[]|null}) => Answer} [list]
 * @property {(run: Run, about: {member: Member, count: number, isSurvey: boolean}) => Answer} [count]
 * @property {(run: Run, record: {publication: Publication|undefined} & import('./record.js').RecordedEvent) => Answer} [recorded]
 * @property {(run: Run, event: import('./record.js').StateEvent) => Answer} [state]
 * @property {(run: Run, event: import('./record.js').AudienceEvent) => Answer} [audience]
 * @property {(run: Run) => Iterable<Answer>} [census]
 * @property {(run: Run, member: Member) => Answer} [ended] an open segment ends, by a close or with
 *   the run
 * @property {(run: Run) => Iterable<Answer>} [finish] the run's end
 * @property {(run: Run) => Iterable<Answer>} [after] everything has been taken down
 */

/** @typedef {{id: string, anomaly: string, claim: string, asked: Asked}} Invariant */

/** @type {readonly Invariant[]} */
export const INVARIANTS = Object.freeze([
  {
    id: 'I1',
    anomaly: 'fabricated or leaked',
    claim: 'what is delivered was published, and to that room',
    asked: { deliver: () => '', repeat: () => '', stray: (_, sight) => belongsElsewhere(sight) },
  },
  {
    id: 'I2',
    anomaly: 'aborted read',
    claim: 'what was refused is never delivered',
    asked: {
      deliver: wasNotRefused,
      repeat: wasNotRefused,
      fail: (_, { publication: { value, sights } }) =>
        sights > 0 ? `${value} is refused, and had been delivered` : '',
    },
  },
  {
    id: 'I3',
    anomaly: 'inconsistent offsets',
    claim: 'an epoch and offset name one publication, in all deliveries and acks',
    asked: { deliver: isThePlaces, repeat: isThePlaces, ok: acceptedPlaceIsFree },
  },
  {
    id: 'I4',
    anomaly: 'duplicate or out of order',
    claim: 'offsets rise for each client, and no room sends anything twice on a connection',
    asked: { deliver: rises, repeat: wasThere },
  },
  {
    id: 'I5',
    anomaly: 'poll-skip',
    claim: 'within a span offsets follow one another without a gap',
    asked: { deliver: followsLive, finish: gapsAreOwn },
  },
  {
    id: 'I6',
    anomaly: 'false recovery',
    claim:
      'after recovered:true the replay begins behind `since`, has no gap, reaches the reply’s offset and is all that was accepted',
    asked: { deliver: followsInReplay, reply: mayBeRecovered, ended: replayIsComplete },
  },
  {
    id: 'I7',
    anomaly: 'lost write',
    claim: 'what was accepted is seen by those who are subscribed through it',
    asked: {
      ended: sawWhatWasAccepted,
      census: (run) => ofEachOpen(run, sawWhatWasAccepted),
      finish: everyAcceptedWasSeen,
    },
  },
  {
    id: 'I8',
    anomaly: 'unseen',
    claim:
      'when all is calm again a marker reaches every client, and with it all that the last epoch has',
    asked: { finish: markersArrived },
  },
  {
    id: 'I9',
    anomaly: 'inversion',
    claim:
      'what a publisher sends after the reply to the one before arrives after it, and in a room with history all that it sends on a connection',
    asked: { deliver: keepsOrder, ok: keepsOrderOfOffsets, finish: offsetsFollowSending },
  },
  {
    id: 'I10',
    anomaly: 'double publish',
    claim: 'what was published once has one offset in an epoch',
    asked: {
      deliver: (_, { publication, stream, offset }) => hasOnePlace(publication, stream, offset),
      repeat: (_, { publication, stream, offset }) => hasOnePlace(publication, stream, offset),
      ok: (_, { publication, stream, offset }) => hasOnePlace(publication, stream, offset),
    },
  },
  {
    id: 'I11',
    anomaly: 'undeclared loss',
    claim: 'who is subscribed when a stream loses something is told so, by a new epoch',
    asked: {
      deliver: epochWasDeclared,
      // A client without a position may reach a worker that is behind, and get messages again.
      reply: (run, told) => (told.member.since === undefined ? null : doesNotGoBack(run, told)),
      resync: doesNotGoBack,
      ended: knowsTheEpoch,
      census: (run) => ofEachOpen(run, knowsTheEpoch),
    },
  },
  {
    id: 'I13',
    anomaly: 'leak',
    claim: 'connections, subscriptions and buffers return to where they were',
    asked: { after: gaugesAreBack },
  },
  {
    id: 'I14',
    anomaly: 'overtaken',
    claim:
      'a message of unknown outcome takes effect before those that its publisher sends after that answer, or never',
    asked: { deliver: isNotOvertaken, finish: unknownsComeFirst },
  },
  {
    id: 'I15',
    anomaly: 'untold outage',
    claim:
      'while a server accepts no publish in any room, its clients are told that the broker is away',
    asked: {
      ok: (run, { publication }) => outageWasTold(run, publication.server),
      finish: (run) => [...run.refusals.keys()].map((server) => outageWasTold(run, server)),
    },
  },
  {
    id: 'I31',
    anomaly: 'no answer',
    claim: 'a publish is answered while its connection lasts, late after a fault',
    asked: {
      census: (run) => publishesAreAnswered(run, connectionsInUse(run)),
      finish: (run) => publishesAreAnswered(run, lastConnections(run)),
    },
  },
  ...INVARIANTS_OF_CLIENTS,
  ...INVARIANTS_OF_STATES,
  ...INVARIANTS_OF_APPENDS,
  ...INVARIANTS_OF_WEBHOOKS,
  ...INVARIANTS_OF_AUDIENCES,
]);

/** @param {Sight} sight @returns {Answer} */
function belongsElsewhere(sight) {
  const { publication } = sight;
  return `${sight}: ${publication === undefined ? 'nobody has published it' : `it belongs to ${publication.room}`}`;
}

/** @param {Run} _ @param {Sight} sight @returns {Answer} */
function wasNotRefused(_, sight) {
  return sight.publication?.outcome === 'fail' ? `${sight} was refused` : '';
}

/** @param {Run} _ @param {Sight} sight @returns {Answer} */
function isThePlaces(_, sight) {
  const { member, stream, offset, publication } = sight;
  if (!member.hasHistory) return null;
  if (stream === null) return `${sight} has no offset`;
  const other = stream.places.get(offset);
  return other === undefined || other === publication
    ? ''
    : `${sight}: that is the place of ${other.value}`;
}

/** @param {Run} run @param {Acceptance} acceptance @returns {Answer} */
function acceptedPlaceIsFree(run, { publication, stream, offset }) {
  if (!run.history.has(publication.room)) return null;
  if (stream === null) return `the ack of ${publication.value} has no offset`;
  const other = stream.places.get(offset);
  if (other === undefined || other === publication) return '';
  return `${publication.value} is accepted at ${stream.epoch}:${offset}, the place of ${other.value}`;
}

/** @param {Run} _ @param {Sight} sight @returns {Answer} */
function rises(_, sight) {
  const { member, stream, offset, isRepeated } = sight;
  if (!member.hasHistory) return isRepeated ? `${sight} a second time on one connection` : '';
  if (stream === null || stream !== member.stream) return null;
  return offset > member.last ? '' : `${sight} behind ${member.last}`;
}

/** @param {Run} _ @param {Sight} sight @returns {Answer} */
function wasThere(_, sight) {
  const { member, stream, offset, publication } = sight;
  // A stream whose id was behind gets messages again, in order. Another message there is I3's.
  if (offset <= member.wireAt && stream?.places.get(offset) === publication)
    return `${sight}, behind ${member.wireAt} on the same connection`;
  if (stream === member.stream && member.has(offset)) return '';
  return `${sight} behind ${member.last}: dropped as a repeat, but it had not been there`;
}

/** @param {Run} run @param {Sight} sight @returns {Answer} */
function followsLive(run, sight) {
  const { member, stream, offset } = sight;
  if (stream === null) return null;
  if (!member.isOpen) return `${sight}, who is not subscribed`;
  if (stream !== member.stream || member.isReplaying || offset <= member.last) return null;
  // The gaps of a client that publishes without an echo are judged at the end.
  if (member.tail !== null || run.quiet.has(member.client)) return null;
  return offset === member.last + 1 ? '' : `${sight} after ${member.last}`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* gapsAreOwn(run) {
  for (const { member, stream, offset } of run.holes) {
    if (run.isOwn(stream, offset, member.client)) yield '';
    // That message is unknown: perhaps its own, of unknown outcome.
    else if (stream.places.has(offset))
      yield `${stream.places.get(offset)?.value} at ${stream.epoch}:${offset} has not come to ${member}`;
  }
}

/** @param {Run} run @param {Sight} sight @returns {Answer} */
function followsInReplay(run, sight) {
  const { member, stream, offset } = sight;
  if (stream === null || stream !== member.stream || !member.isReplaying || offset <= member.last)
    return null;
  if (run.quiet.has(member.client)) return null;
  if (offset === member.last + 1) return '';
  return `${sight} after ${member.last}, in a replay up to ${member.replayTo}`;
}

/** @param {Run} run @param {Told} told @returns {Answer} */
function mayBeRecovered(run, { member, stream, offset, isRecovered }) {
  if (!isRecovered) return null;
  const { since } = member;
  const reply = `${member} is recovered at ${stream?.epoch}:${offset}`;
  if (since === undefined) return `${reply} and had not asked`;
  if (stream === null || since.epoch !== stream.epoch || offset < since.offset)
    return `${reply}, from ${since.epoch}:${since.offset}`;
  for (const other of run.streamsOf(member.room)) {
    if (other !== stream && other.tookAfter(member.closedAt, run.now - NOTICED_US))
      return `${reply}, and ${other.epoch} had accepted messages since it left`;
  }
  return '';
}

/** @param {Run} run @param {Member} member @returns {Answer} */
function replayIsComplete(run, member) {
  if (!member.isReplaying || run.settledMoment(member) === Number.NEGATIVE_INFINITY) return null;
  const { stream, client } = member;
  let due = member.replayTo;
  while (stream !== null && due > member.last && run.isOwn(stream, due, client)) due--;
  if (due === member.last) return '';
  return `${member} was promised a replay up to ${member.replayTo} and got it up to ${member.last}`;
}

/** @param {Run} run @param {Member} member @returns {Answer} */
function sawWhatWasAccepted(run, member) {
  // At the run's end this is I8's.
  if (run.hasEnded || member.stream === null || member.isReplaying) return null;
  const moment = run.settledMoment(member);
  if (moment === Number.NEGATIVE_INFINITY) return null;
  const { stream } = member;
  const accepted = run.dueTo(member, moment);
  if (accepted <= member.last) return '';
  return `${member} ended at ${member.last} of ${stream.epoch}, long after ${accepted} was accepted`;
}

/**
 * @param {Run} run @param {(run: Run, member: Member) => Answer} ask
 * @returns {Iterable<Answer>} about each member that is subscribed
 */
function* ofEachOpen(run, ask) {
  for (const member of run.members()) if (member.isOpen) yield ask(run, member);
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* everyAcceptedWasSeen({ publications, now }) {
  for (const publication of publications.values()) {
    const { outcome, stream, offset, sights, value, client, inCalmTo, okAt } = publication;
    // Who publishes without an echo does not get it.
    const due = client === null ? inCalmTo : inCalmTo - 1;
    if (due > 1 && okAt <= now - ARRIVING_US)
      yield sights >= due ? '' : `${value}, accepted in calm, was seen by ${sights} of ${due}`;
    // Above every offset that a client has seen, it is not yet lost.
    if (outcome !== 'ok' || stream === null || offset > stream.highest) continue;
    if (sights > 0) yield '';
    else if (stream.skipped.has(offset))
      yield `${value}, accepted at ${stream.epoch}:${offset}, was seen by nobody`;
    else if ((stream.places.get(offset)?.sights ?? 0) > 0)
      yield `${value}, accepted at ${stream.epoch}:${offset}, was seen by nobody: ${stream.places.get(offset)?.value} was`;
  }
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* markersArrived(run) {
  for (const marker of run.markers.values()) {
    yield marker.outcome === 'ok'
      ? ''
      : `${marker.value}, the marker, was not accepted: ${marker.outcome}`;
  }
  for (const member of run.members()) {
    const marker = run.markers.get(member.room);
    if (marker !== undefined) {
      if (member.markerAt - marker.invokedAt <= SETTLE_US) yield '';
      else yield `${member} has not got the marker ${marker.value} in time`;
    } else if (member.isOpen && member.stream !== null) {
      const moment = run.settledMoment(member);
      const accepted = run.dueTo(member, moment);
      if (moment === Number.NEGATIVE_INFINITY) continue;
      if (accepted <= member.last) yield '';
      else
        yield `${member} is at ${member.last} of ${member.stream.epoch}, long after ${accepted} was accepted`;
    }
  }
}

/** @param {Run} run @param {Sight} sight @returns {Answer} */
function keepsOrder(run, sight) {
  const { publication, member, stream, offset } = sight;
  // I4 covers messages that come a second time, or too late to be passed on.
  if (
    publication === undefined ||
    sight.isRepeated ||
    (stream === member.stream && offset <= member.last && stream)
  )
    return null;
  const latest = member.latest.get(publication.publisher);
  if (latest === undefined) return null;
  if (publication.okAt >= latest.invokedAt) return '';
  // A plain room may be heard of over two ways while Redis fails over.
  if (!member.hasHistory && !run.isSettled) return null;
  return `${sight} after what ${publication.publisher} sent ${latest.invokedAt - publication.okAt} us after its ack`;
}

/** @param {Run} _ @param {Acceptance} acceptance @returns {Answer} */
function keepsOrderOfOffsets(_, { publication, stream, offset }) {
  const { behind } = publication;
  if (behind === null || behind.epoch !== stream?.epoch) return null;
  // The same offset twice is another anomaly.
  if (offset >= behind.offset) return '';
  return `${publication.value} is accepted at ${offset}, and was sent after the ack of ${behind.offset}`;
}

/**
 * A publisher with keys sends some of its messages again, on another connection too.
 * @param {Run} run @returns {Iterable<Answer>}
 */
function* offsetsFollowSending({ publications }) {
  /** The latest of each publisher, connection and stream. @type {Map<string, Publication>} */
  const latest = new Map();
  for (const publication of publications.values()) {
    const { publisher, connection, room, stream, offset, outcome, client, isKeyed } = publication;
    if (outcome !== 'ok' || stream === null || client !== null || isKeyed) continue;
    const key = `${publisher} ${connection} ${room} ${stream.epoch}`;
    const before = latest.get(key);
    latest.set(key, publication);
    if (before === undefined) continue;
    if (before.offset <= offset) yield '';
    else
      yield `${publication.value} is at ${offset}, and ${before.value}, sent before it on the same connection, at ${before.offset}`;
  }
}

/**
 * @param {Publication|undefined} publication
 * @param {Stream|null} stream
 * @param {number} offset
 * @returns {Answer}
 */
function hasOnePlace(publication, stream, offset) {
  if (stream === null || publication?.stream !== stream) return null;
  if (publication.offset === offset) return '';
  return `${publication.value} is at ${publication.offset} and at ${offset} of ${stream.epoch}`;
}

/** @param {Run} _ @param {Sight} sight @returns {Answer} */
function epochWasDeclared(_, sight) {
  const { member, stream } = sight;
  if (stream === null || !member.isOpen) return null;
  return stream === member.stream
    ? ''
    : `${sight}, who was in ${member.stream?.epoch} and has not been told`;
}

/** @param {Run} _ @param {Told} told @returns {Answer} */
function doesNotGoBack(_, { member, stream, offset, isRecovered }) {
  if (isRecovered || stream === null || stream !== member.stream) return null;
  if (member.isMisplaced) return null;
  if (offset >= member.last) return '';
  return `${member} is told ${stream.epoch}:${offset}, and had got ${member.last} of it`;
}

/** @param {Run} run @param {Member} member @returns {Answer} */
function knowsTheEpoch(run, member) {
  if (member.stream === null) return null;
  const moment = run.settledMoment(member);
  if (moment === Number.NEGATIVE_INFINITY) return null;
  for (const stream of run.streamsOf(member.room)) {
    if (stream.succeeded(member.stream, moment))
      return `${member} is in ${member.stream.epoch}, long after ${stream.epoch} began`;
  }
  return '';
}

/**
 * In a plain room: by the deliveries of each connection.
 * @param {Run} _ @param {Sight} sight @returns {Answer}
 */
function isNotOvertaken(_, { publication, member, isRepeated, value }) {
  if (publication?.outcome !== 'info' || member.hasHistory || isRepeated) return null;
  const latest = member.latest.get(publication.publisher);
  // Order is promised within a connection. Messages of an earlier connection may wait in a frozen
  // worker and come at any time.
  if (latest === undefined || latest.connection !== publication.connection) return null;
  if (latest.invokedAt <= publication.unknownAt) return '';
  return `${value}, of unknown outcome, to ${member} behind ${latest.value}, sent ${latest.invokedAt - publication.unknownAt} us after that answer`;
}

/**
 * In rooms with history: by offsets.
 * @param {Run} run @returns {Iterable<Answer>}
 */
function* unknownsComeFirst({ publications }) {
  /**
   * @type {Map<string, {accepted: Publication[], unknown: Publication[]}>} of one connection in one
   *   stream
   */
  const sequences = new Map();
  for (const publication of publications.values()) {
    const { publisher, connection, room, stream, outcome } = publication;
    if (stream === null || (outcome !== 'ok' && outcome !== 'info')) continue;
    const key = `${publisher} ${connection} ${room} ${stream.epoch}`;
    let sequence = sequences.get(key);
    if (sequence === undefined) sequences.set(key, (sequence = { accepted: [], unknown: [] }));
    if (outcome === 'ok') sequence.accepted.push(publication);
    else sequence.unknown.push(publication);
  }
  for (const { accepted, unknown } of sequences.values()) {
    for (const { value, offset, unknownAt } of unknown) {
      const before = accepted.find((other) => other.invokedAt > unknownAt && other.offset < offset);
      if (before === undefined) yield '';
      else
        yield `${value}, of unknown outcome, is at ${offset}, behind ${before.value} at ${before.offset}`;
    }
  }
}

/**
 * Is a client told of an outage? Those who have left all of their rooms are not.
 * @param {ReadonlyMap<string, Member>|undefined} rooms of a client @param {number} since
 * @param {number} until
 */
function isListening(rooms, since, until) {
  if (rooms === undefined) return true;
  return [...rooms.values()].some(
    ({ isOpen, openedAt, closedAt }) => openedAt < since && (isOpen || closedAt > until),
  );
}

/**
 * Refusals without a pause bound an outage. One refusal alone does not: if every publisher has moved
 * to another server afterwards, the time to the next accepted publish does not describe this server.
 * @param {Run} run @param {number} server @returns {Answer}
 */
function outageWasTold({ refusals, links, clients: all }, server) {
  const { since, latest } = refusals.get(server) ?? { since: 0, latest: 0 };
  const until = since + TOLD_US;
  if (latest <= until) return null;
  const clients = [...links].filter(
    ([client, link]) =>
      link.server === server &&
      link.openedAt < since &&
      link.unreadUntil < since &&
      !link.isLate &&
      isListening(all.get(client), since, until),
  );
  const missed = clients.filter(([, link]) => !link.wasTold(since, until));
  if (missed.length === 0) return '';
  const seconds = ((latest - since) / 1e6).toFixed(1);
  return `no publish was accepted for ${seconds} s, and ${missed.length} of ${clients.length} clients were not told, like client ${missed[0][0]}`;
}

/** @param {Run} run @param {Set<string>} open connections @returns {Iterable<Answer>} */
function* publishesAreAnswered(run, open) {
  if (!run.isSettled) return;
  for (const publication of run.publications.values()) {
    const { value, invokedAt, isAnswered } = publication;
    if (!open.has(connectionOf(publication)) || run.now - invokedAt < SETTLE_US) continue;
    yield isAnswered ? '' : `no answer to ${value} has come, and its connection is open`;
  }
}

/**
 * Those over which a publish was accepted since all is calm. One with a key may have been accepted
 * over a later connection.
 * @param {Run} run @returns {Set<string>}
 */
function connectionsInUse({ publications, calmSince }) {
  const inCalm = [...publications.values()].filter(
    ({ okAt, outcome, isKeyed }) => outcome === 'ok' && okAt >= calmSince && !isKeyed,
  );
  return new Set(inCalm.map(connectionOf));
}

/** Each publisher's last one was open in the calm at the end. @param {Run} run @returns {Set<string>} */
function lastConnections({ publications }) {
  /** @type {Map<string, Publication>} */
  const last = new Map();
  for (const publication of publications.values()) {
    const { publisher, connection } = publication;
    if (connection >= (last.get(publisher)?.connection ?? 0)) last.set(publisher, publication);
  }
  return new Set([...last.values()].map(connectionOf));
}

/** @param {Publication} publication @returns {string} its publisher's connection */
function connectionOf({ publisher, connection }) {
  return `${publisher} ${connection}`;
}

/** @param {Run} run @returns {Iterable<Answer>} */
function* gaugesAreBack({ gauges }) {
  for (const [of, { before, after }] of gauges) {
    if (before === undefined || after === undefined) continue;
    for (const [name, value] of Object.entries(before)) {
      const now = after[name];
      yield now !== undefined && now <= value ? '' : `${name} of ${of} was ${value} and is ${now}`;
    }
  }
}
