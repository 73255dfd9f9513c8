// event-recorder.js: records events for webhooks in the primary, as record.lua does in Redis.
//
// The relay calls it at each transition, so exactly the transitions that happened are recorded.
// Users and members are JSON, as hub/room-users.js writes them.

import { keyOfTag, transitionsOf } from '../webhook-reporter.js';
import { EmbeddedEventQueue } from './event-queue.js';

/** A room whose sequence was forgotten begins a new one with another epoch. */
const MAX_SEQUENCES = 100_000;

/** @typedef {import('../../config/webhooks.js').EventType} EventType */
/** @typedef {{epoch: number, seq: number, mark: string}} Sequence */

export class EventRecorder {
  /**
   * By room or user, in two generations. Those that begin in one generation share their epoch, so
   * that many new rooms in a moment do not push epochs ahead of the clock.
   * @type {Map<string, Sequence>}
   */
  #sequences = new Map();
  /** Those not used since the last generation began. @type {Map<string, Sequence>} */
  #former = new Map();
  #epoch = 0;

  /**
   * @param {object} parts @param {import('../webhook-reporter.js').Covers} parts.covers may change
   *   at a reload
   * @param {Pick<import('./event-queue.js').EmbeddedEventQueue, 'append'>} parts.queue
   * @param {() => number} [parts.now] ms since 1970
   */
  constructor({ covers, queue, now = Date.now }) {
    this.covers = covers;
    this.queue = queue;
    this.now = now;
  }

  /**
   * A user's first join or last leave.
   * @param {string} room @param {'join'|'leave'} event @param {string} user JSON
   * @param {Buffer} member a JSON object that begins with the user
   * @param {number} count of users after it
   */
  member(room, event, user, member, count) {
    if (!this.covers('member.joined', room) && !this.covers('member.left', room)) return;
    const who = event === 'join' ? String(member).slice(1, -1) : `"user":${user}`;
    const type = event === 'join' ? 'member.joined' : 'member.left';
    this.#record(room, type, `"room":"${room}",${who},"count":${count}`);
  }

  /**
   * The first or last connection of a room or user.
   * @param {'join'|'leave'} event @param {string} tag
   */
  transition(event, tag) {
    const [first, last, fields] = transitionsOf(tag, this.covers);
    const type = event === 'join' ? first : last;
    if (type !== '') this.#record(tag, type, fields);
    if (event === 'join') return;
    const known = this.#sequences.get(tag) ?? this.#former.get(tag);
    if (known !== undefined) known.mark = '';
  }

  /** The room was told how many connections it has. @param {string} room @param {number} count */
  count(room, count) {
    if (this.covers('room.counted', room))
      this.#record(room, 'room.counted', `"room":"${room}","count":${count}`);
  }

  /**
   * A client's message, or what a door reports. RecordedMessage in webhook-reporter.js explains the
   * mark.
   * @param {string} room
   * @param {{kind: EventType, mark: string, fields: string}} message `fields`: JSON without braces
   */
  message(room, { kind, mark, fields }) {
    if (mark !== '') {
      const one = this.#sequenceOf(room, this.now());
      if (one.mark === mark) return;
      one.mark = mark;
    }
    this.#record(room, kind, fields);
  }

  /** @param {string} tag @param {EventType} type @param {string} fields */
  #record(tag, type, fields) {
    const at = this.now();
    const one = this.#sequenceOf(tag, at);
    one.seq++;
    const body = `{"type":"${type}",${fields},"seq":${one.seq},"epoch":"${one.epoch}","at":${at}}`;
    this.queue.append(keyOfTag(tag), body);
  }

  /** @param {string} tag @param {number} at */
  #sequenceOf(tag, at) {
    const known = this.#sequences.get(tag);
    if (known !== undefined) return known;
    if (this.#epoch === 0 || this.#sequences.size >= MAX_SEQUENCES / 2) {
      this.#former = this.#sequences;
      this.#sequences = new Map();
      // Not one that was used, even if the clock goes back.
      this.#epoch = Math.max(this.#epoch + 1, at);
    }
    const sequence = this.#former.get(tag) ?? { epoch: this.#epoch, seq: 0, mark: '' };
    this.#former.delete(tag);
    this.#sequences.set(tag, sequence);
    return sequence;
  }
}

/**
 * A server's queue, which continues where the former server stopped, and its recorder.
 * @param {object} parts @param {import('../webhook-reporter.js').Covers} parts.covers
 * @param {string} parts.stateDir FANFARE_STATE_DIR; empty: the queue ends with this server
 * @param {{warn(text: string): void, error(fields: object, text: string): void}} parts.log
 */
export async function openRecorder({ covers, stateDir, log }) {
  const queue = new EmbeddedEventQueue();
  if (stateDir === '')
    log.warn(
      'webhooks: undelivered events are lost when this server stops: set FANFARE_STATE_DIR, or use Redis',
    );
  else
    await queue.open(stateDir).catch((error) => {
      log.error(
        { err: error },
        'cannot use FANFARE_STATE_DIR: undelivered webhook events will be lost',
      );
    });
  return {
    queue,
    recorder: new EventRecorder({ covers, queue }),
    /** Call it after the last event and the last commit. */
    async save() {
      if (stateDir === '') return;
      await queue.save(stateDir).catch((error) => {
        log.error({ err: error }, 'cannot save undelivered webhook events');
      });
    },
  };
}
