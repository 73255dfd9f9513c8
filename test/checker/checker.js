// checker.js: compares a record with the invariants, event by event, and makes a report.
//
//   const checker = new Checker();
//   for (const event of readRecord(path)) checker.see(event);
//   const report = checker.report();

import { Figures } from './figures.js';
import { IndexedRun } from './indexed-run.js';
import { INVARIANTS } from './invariants.js';

/** So many violations of each invariant are described; all are counted. */
const EXAMPLES = 5;

/** @typedef {import('./record.js').Event} Event */
/** @typedef {import('./invariants.js').Answer} Answer */
/** @typedef {import('./invariants.js').Asked} Asked */

/**
 * How one invariant fared.
 * @typedef {object} Finding
 * @property {string} id
 * @property {string} anomaly
 * @property {string} claim
 * @property {number} checks number of times it was tested
 * @property {number} violations
 * @property {string[]} examples the first few, with the second they happened in
 */

/**
 * @typedef {object} Report
 * @property {boolean} isComplete the record has an end: without one the invariants of the end were
 *   not asked
 * @property {boolean} isClean complete, and nothing was violated
 * @property {Finding[]} findings
 * @property {Figures} figures
 */

export class Checker {
  constructor() {
    this.run = new IndexedRun();
    this.figures = new Figures();
    /** @type {Finding[]} */
    this.findings = INVARIANTS.map(({ id, anomaly, claim }) => ({
      id,
      anomaly,
      claim,
      checks: 0,
      violations: 0,
      examples: [],
    }));
    /**
     * The functions of each event, with their rows of `findings`.
     * @type {Map<keyof Asked, [Finding, Function][]>}
     */
    this.asked = new Map();
    for (const [row, { asked }] of INVARIANTS.entries()) {
      for (const [when, ask] of /** @type {[keyof Asked, Function][]} */ (Object.entries(asked))) {
        if (!this.asked.has(when)) this.asked.set(when, []);
        this.asked.get(when)?.push([this.findings[row], ask]);
      }
    }
  }

  /**
   * @param {Event} event the next one
   * @throws if no run can produce this record, because then the recording is at fault
   */
  see(event) {
    const { run } = this;
    if (event.t < run.now)
      throw new Error(`the record is wrong: ${JSON.stringify(event)} comes before ${run.now}`);
    // All clients are closed and all servers stopped. Only their remains matter now.
    if (run.hasEnded && event.type !== 'gauges') return;
    run.now = event.t;
    this.figures.event(event);
    TAKEN[event.type](this, /** @type {never} */ (event));
  }

  /** @returns {Report} may be asked for once */
  report() {
    const isComplete = this.run.hasEnded;
    if (!isComplete) this.#finish();
    this.askAll('after');
    this.figures.finish(this.run);
    const { findings } = this;
    const isClean = isComplete && findings.every(({ violations }) => violations === 0);
    return { isComplete, isClean, findings, figures: this.figures };
  }

  /** @param {keyof Asked} when @param {unknown} about */
  ask(when, about) {
    const rows = this.asked.get(when);
    if (rows === undefined) return;
    for (let i = 0; i < rows.length; i++) this.#note(rows[i][0], rows[i][1](this.run, about));
  }

  /** @param {'census'|'finish'|'after'} when */
  askAll(when) {
    for (const [finding, ask] of this.asked.get(when) ?? []) {
      for (const answer of ask(this.run)) this.#note(finding, answer);
    }
  }

  end() {
    this.run.hasEnded = true;
    this.#finish();
  }

  #finish() {
    for (const member of this.run.members()) if (member.isOpen) this.ask('ended', member);
    this.askAll('finish');
  }

  /** @param {Finding} finding @param {Answer} answer */
  #note(finding, answer) {
    if (answer === null) return;
    finding.checks++;
    if (answer === '') return;
    finding.violations++;
    if (finding.examples.length < EXAMPLES) {
      const seconds = ((this.run.now - this.figures.firstAt) / 1e6).toFixed(3);
      finding.examples.push(`${seconds} s: ${answer}`);
    }
  }
}

/**
 * Handlers by type of event: each checks the invariants, then adds the event to the run.
 * @type {{[T in Event['type']]: (checker: Checker, event: Extract<Event, {type: T}>) => void}}
 */
const TAKEN = {
  run({ run }, { history, kept, narrow = false, presence = [], recorded = [], capped = {} }) {
    run.kept = kept ?? run.kept;
    run.isNarrow = narrow;
    for (const room of recorded) run.recorded.add(room);
    for (const room of history) run.history.add(room);
    for (const room of presence) run.users.presence.add(room);
    for (const [user, cap] of Object.entries(capped)) run.users.capped.set(user, cap);
  },

  invoke({ run }, event) {
    run.invoke(event);
  },

  ok(checker, { t, value, epoch, offset = 0 }) {
    const { run } = checker;
    const publication = run.publication(value);
    const stream = run.stream(publication.room, epoch);
    checker.ask('ok', { publication, t, stream, offset });
    run.ok(publication, t, stream, offset);
    checker.figures.accepted(publication.publisher, t);
  },

  fail(checker, { t, value, reason, position }) {
    const publication = checker.run.publication(value);
    checker.ask('fail', { publication, reason, position, t });
    checker.run.notOk(publication, 'fail', { reason, position, t });
  },

  info({ run }, { t, value, reason, position }) {
    run.notOk(run.publication(value), 'info', { reason, position, t });
  },

  late({ run }, { value }) {
    run.publication(value).isAnswered = true;
  },

  connect({ run }, { t, client, server, user }) {
    run.connect(client, t, server, user);
  },

  subscribe(checker, { client, room, since, last, id }) {
    const { run } = checker;
    const member = run.member(client, room);
    checker.ask('subscribe', { member, id });
    run.subscribe(member, since, last);
    // The rooms of its token have changed: their positions follow in another order.
    member.isMisplaced = id !== undefined && since !== undefined && id.epoch !== since.epoch;
  },

  reply(checker, { t, client, room, epoch, offset = 0, recovered = false, replayed }) {
    const { run, figures } = checker;
    const member = run.member(client, room);
    const stream = run.stream(room, epoch);
    checker.ask('reply', { member, stream, offset, isRecovered: recovered });
    run.reply(member, t, stream, offset, recovered, replayed);
    figures.replied(member, recovered, t);
  },

  deliver(checker, event) {
    const { run, figures } = checker;
    const sight = run.sighted(event);
    if (sight.isGenuine) checker.ask('deliver', sight);
    else checker.ask('stray', sight);
    run.deliver(sight);
    figures.delivered(sight);
  },

  repeat(checker, event) {
    const { run } = checker;
    const sight = run.sighted(event);
    checker.ask(sight.isGenuine ? 'repeat' : 'stray', sight);
    run.repeat(sight);
  },

  resync(checker, { client, room, epoch, offset }) {
    const { run } = checker;
    const member = run.member(client, room);
    const stream = run.stream(room, epoch);
    checker.ask('resync', { member, stream, offset, isRecovered: false });
    // With `last` it names the position before the messages that follow, where their span has begun.
    const { tail } = member;
    if (tail?.stream !== stream || offset !== tail.to - tail.replayed)
      member.beginSpan(stream, offset);
  },

  degraded({ run }, { t, client, degraded }) {
    run.told(client, degraded, t);
  },

  reads({ run }, { t, client, reads }) {
    run.reads(client, reads, t);
  },

  leave(checker, { t, client, room }) {
    const { run, figures } = checker;
    const member = run.member(client, room);
    checker.ask('ended', member);
    member.leftAt = t;
    run.close(member);
    // It returns as a new one.
    figures.away.delete(member);
  },

  list(checker, { client, room, users }) {
    checker.ask('list', { member: checker.run.member(client, room), users });
  },

  count(checker, { client, room, count, isSurvey = false }) {
    const member = checker.run.member(client, room);
    checker.ask('count', { member, count, isSurvey });
    member.count = count;
  },

  recorded(checker, event) {
    const { t, value, audience = [] } = event;
    if (checker.run.audiences.messages.has(value))
      return checker.ask('audience', { t, what: 'recorded', value, audience });
    const publication = checker.run.publications.get(event.value);
    checker.ask('recorded', { ...event, publication });
    publication?.records.push({ id: event.id, offset: event.offset });
  },

  gap({ run }) {
    run.owed.clear();
  },

  revoke({ run }, { t, user }) {
    run.users.revoked.set(user, t);
  },

  census(checker) {
    checker.askAll('census');
  },

  close(checker, { t, client }) {
    const { run, figures } = checker;
    run.links.delete(client);
    for (const member of run.clients.get(client)?.values() ?? []) {
      if (!member.isOpen) continue;
      checker.ask('ended', member);
      run.close(member);
      figures.closed(member, t);
    }
    run.users.sessions.delete(client);
  },

  state(checker, event) {
    checker.ask('state', event);
    checker.run.states.see(event);
  },

  audience(checker, event) {
    checker.ask('audience', event);
    checker.run.audiences.see(event);
  },

  start({ run }, { t }) {
    run.disturb(t);
  },

  stop({ run }, { t }) {
    run.undisturb(t);
  },

  gauges({ run }, { when, of, values }) {
    const entry = run.gauges.get(of) ?? {};
    run.gauges.set(of, { ...entry, [when]: values });
  },

  end(checker) {
    checker.end();
  },
};
