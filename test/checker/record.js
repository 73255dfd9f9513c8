// record.js: the record of a run: the events of publishers and subscribers, and the faults of the
// servers, one JSON text a line.
//
// Written while a run goes on, read afterwards by the checker. All times are of CLOCK_MONOTONIC, in
// microseconds, and a record is in the order of its times: one process writes it. Publications are
// identified by their value, `publisher:seq:room`, which is unique and contains the room.
//
// A client records deliveries to the application. Like a client library, it drops a message whose
// offset it has passed, and records it as a `repeat`.

import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';

/** Bytes that are gathered before a write. */
const WRITE_CHARACTERS = 1_048_576;
const READ_BYTES = 4_194_304;

/** Why an outcome is unknown: no answer came in time, and the connection is still open. */
export const NO_REPLY = 'no reply';

/** @typedef {{epoch: string, offset: number}} Position */
/** Of a room that nobody may have published to, without an epoch. @typedef {{epoch?: string, offset: number}} Expected */

/**
 * The first line: which rooms are of which kind, and how to run the same again. `kept`: the number of
 * messages that a room with history keeps, if it may matter. `narrow`: connections hold few bytes, so a
 * reply with `last` may omit the oldest messages. `capped`: users with
 * the connections that they may have over all servers, and those that they always want. `recorded`:
 * the rooms whose messages webhooks have.
 * @typedef {{type: 'run', history: string[], plain: string[], kept?: number, narrow?: boolean,
 *   presence?: string[], seed?: number,
 *   recorded?: string[], capped?: Record<string, {allowed: number, wanted: number}>}} RunEvent
 *
 * A publisher sends (`marker`: one of those that must reach every client at the end; `via`: the
 * number of its connection; `server`: that it goes to), and learns that it was accepted, that it
 * certainly was not, or nothing that can be relied on. A refusal may still follow an `info`.
 * `client`: it went over this client's connection, with `echo: false`.
 * `room`, `key`, `removes`: only in rooms with state, whose publications are StateEvents.
 * `audience`: only for these. `keyed`: with an idempotency key; it is sent again until it is answered. `expect`: it is accepted
 * at this position of the room only. `position`: the room's, with CONFLICT.
 * @typedef
 *   {{type: 'invoke', value: string, marker?: boolean, via?: number, server?: number, client?: number, room?: string, key?: string, removes?: boolean, keyed?: boolean, expect?: Expected, audience?: string[]}}
 *   InvokeEvent
 * @typedef {{type: 'ok', value: string, epoch?: string, offset?: number}} OkEvent
 * @typedef {{type: 'fail'|'info', value: string, reason: string, position?: Position}} NotOkEvent
 *
 * The answer to a message of unknown outcome came after all, and it was no refusal.
 * @typedef {{type: 'late', value: string}} LateEvent
 *
 * A subscriber. `user`: of its token. `last`: this many of the newest messages follow the reply.
 * `id`: the position of a stream's last event id in this room; `since`: the client's own position.
 * @typedef {{type: 'connect', client: number, server?: number, user?: string}} ConnectEvent
 * @typedef
 *   {{type: 'subscribe', client: number, room: string, since?: Position, last?: number, id?: Position}}
 *   SubscribeEvent
 * @typedef
 *   {{type: 'reply', client: number, room: string, epoch?: string, offset?: number, recovered?: boolean, replayed?: number}}
 *   ReplyEvent
 * @typedef
 *   {{type: 'deliver'|'repeat', client: number, room: string, value: string, epoch?: string, offset?: number}}
 *   DeliverEvent
 * @typedef {{type: 'resync', client: number, room: string, epoch: string, offset: number}}
 *   ResyncEvent
 * @typedef {{type: 'degraded', client: number, degraded: boolean}} DegradedEvent
 * It stops reading, or reads again: notices may wait meanwhile.
 * @typedef {{type: 'reads', client: number, reads: boolean}} ReadsEvent
 * @typedef {{type: 'leave', client: number, room: string}} LeaveEvent
 * @typedef {{type: 'close', client: number, code: number}} CloseEvent
 *
 * The users of a room with presence, as a member knows them that follows docs/presence.md.
 * null: it has asked, and has no list yet.
 * @typedef {{type: 'list', client: number, room: string, users: string[]|null}} ListEvent
 *
 * The number of subscribers that a Pusher client is told. `isSurvey`: it was told so last.
 * @typedef {{type: 'count', client: number, room: string, count: number, isSurvey?: boolean}} CountEvent
 *
 * The receiver of webhooks has accepted a message for the first time; `id` is that of its event. A gap:
 * it may lack some from before.
 * @typedef {{type: 'recorded', value: string, id: string, offset?: number, audience?: string[]}} RecordedEvent
 * @typedef {{type: 'gap'}} GapEvent
 *
 * All tokens that a user has are revoked: the server has confirmed it.
 * @typedef {{type: 'revoke', user: string}} RevokeEvent
 *
 * A moment at which the connections of each user are counted.
 * @typedef {{type: 'census'}} CensusEvent
 *
 * Rooms with state. A publisher puts a value to a key, or removes it. A member gets what its
 * application sees. In calm, the map of each member, and that of the backend.
 * @typedef
 *   {{what: 'put', value: string, room: string, key: string, removes?: boolean, keyed?: boolean, audience?: string[]}
 *   |{what: 'ok', value: string, epoch: string, offset: number}
 *   |{what: 'fail'|'info', value: string, reason: string}
 *   |{what: 'holds', client: number, room: string, may: string[], surely: string[]}
 *   |{what: 'joined', client: number, room: string, epoch: string, offset: number, recovered: boolean, since?: number}
 *   |{what: 'reset'|'synced', client: number, room: string, epoch: string, offset: number}
 *   |{what: 'change', client: number, room: string, key: string, value: string|null, epoch: string, offset: number}
 *   |{what: 'close', client: number}
 *   |{what: 'map', client: number, room: string, entries: [string, string][], hearsAll: boolean}
 *   |{what: 'truth', room: string, epoch: string, offset: number, entries: [string, string, number][]}}
 *   StateWhat
 * @typedef {StateWhat & {type: 'state', t: number}} StateEvent
 *
 * Rooms whose messages are partly for audiences (audience-people.js). `put`: to everybody, or to an
 * audience; `client` gets no echo of it. `holds`: what a member holds from now on (held.js). `asks`: it
 * joins; `tellsPositions`: it is told that it has passed messages for others. `passed`: it is told.
 * `page`: offsets and values of a reply with a history, which `reads` has asked for. `saw`: the value is
 * in any other bytes that it got. `again`: published again with the same idempotency key, for others,
 * and accepted. `recorded`: the receiver of webhooks has it.
 * @typedef
 *   {{what: 'put', value: string, audience: string[], client?: number}
 *   |{what: 'ok', value: string, epoch?: string, offset?: number}
 *   |{what: 'holds', client: number, room: string, may: string[], surely: string[]}
 *   |{what: 'asks', client: number, room: string, since?: Position, tellsPositions?: boolean}
 *   |{what: 'joined', client: number, room: string, epoch?: string, offset?: number, recovered: boolean, last?: number}
 *   |{what: 'got', client: number, room: string, value: string, epoch?: string, offset?: number}
 *   |{what: 'passed'|'resync', client: number, room: string, epoch: string, offset: number}
 *   |{what: 'page', client: number, room: string, epoch: string, rows: [number, string][]}
 *   |{what: 'reads', client: number, room: string}
 *   |{what: 'saw', client: number, room: string, value: string}
 *   |{what: 'again', value: string, epoch?: string, offset?: number}
 *   |{what: 'recorded', value: string, audience: string[]}
 *   |{what: 'left', client: number, room: string}
 *   |{what: 'close', client: number}}
 *   AudienceWhat
 * @typedef {AudienceWhat & {type: 'audience', t: number}} AudienceEvent
 *
 * A fault of the servers starts or stops; several may be in progress.
 * @typedef {{type: 'start'|'stop', name: string}} NemesisEvent
 *
 * Gauges that must return to their earlier values.
 * @typedef {{type: 'gauges', when: 'before'|'after', of: string, values: Record<string, number>}}
 *   GaugesEvent
 *
 * The time for markers is over; later events belong to the end of the run.
 * @typedef {{type: 'end'}} EndEvent
 *
 * @typedef
 *   {RunEvent|InvokeEvent|OkEvent|NotOkEvent|LateEvent|ConnectEvent|SubscribeEvent|ReplyEvent|DeliverEvent|ResyncEvent|DegradedEvent|ReadsEvent|LeaveEvent|CloseEvent|ListEvent|CountEvent|RecordedEvent|GapEvent|RevokeEvent|CensusEvent|NemesisEvent|GaugesEvent|EndEvent|(StateWhat & {type: 'state'})|(AudienceWhat & {type: 'audience'})}
 *   What
 * @typedef {What & {t: number}} Event `t`: microseconds
 */

/** @returns {number} microseconds of CLOCK_MONOTONIC: one clock for all processes of a machine */
function nowUs() {
  return Number(process.hrtime.bigint() / 1000n);
}

export class Recorder {
  /** @param {string} path is overwritten */
  constructor(path) {
    this.path = path;
    this.events = 0;
    this.pending = '';
    /** @type {number|null} */
    this.file = openSync(path, 'w');
  }

  /** Adds the time, and keeps it. @param {What} what */
  write(what) {
    if (this.file === null) return;
    this.events++;
    // The stamp comes first, so that a record can be sorted and cut by hand.
    this.pending += `{"t":${nowUs()},${JSON.stringify(what).slice(1)}\n`;
    if (this.pending.length >= WRITE_CHARACTERS) this.#flush(this.file);
  }

  /** May be called twice; later events are not kept. */
  close() {
    if (this.file === null) return;
    this.#flush(this.file);
    closeSync(this.file);
    this.file = null;
  }

  /** @param {number} file */
  #flush(file) {
    // To the page cache, and a megabyte at a time: that takes less than a millisecond.
    writeSync(file, this.pending);
    this.pending = '';
  }
}

/**
 * The events of a record, which need not fit into memory.
 * @param {string} path @returns {Generator<Event>}
 */
export function* readRecord(path) {
  const file = openSync(path, 'r');
  try {
    const buffer = Buffer.alloc(READ_BYTES);
    const decoder = new StringDecoder('utf8');
    let rest = '';
    let number = 0;
    for (let length; (length = readSync(file, buffer)) > 0; ) {
      const lines = (rest + decoder.write(buffer.subarray(0, length))).split('\n');
      rest = /** @type {string} */ (lines.pop());
      for (const line of lines) yield parse(line, ++number);
    }
    // A killed run may leave an incomplete last line.
  } finally {
    closeSync(file);
  }
}

/** @param {string} line @param {number} number @returns {Event} */
function parse(line, number) {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new Error(`line ${number} of the record is no JSON: ${line.slice(0, 200)}`, { cause });
  }
}
