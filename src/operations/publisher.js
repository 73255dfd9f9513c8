// publisher.js: publishes messages of clients and applications, through whichever door they come.
//
//   client        room, right -> size and key -> hook onPublish -> charged for members -> broker
//   application   size and key -> its own rate -> broker
//
// A client's message to a large room costs more of its rate, because the work is in its deliveries
// (rate-limit.js). If it hides a key of a state, members get the state again: the client pays for
// that when the message is answered, or with its next one. Messages without an answer are counted,
// so that a drain can wait for them.

import { EVERYONE } from '../hub/hub.js';
import {
  audienceTextOf,
  hasKey,
  isRestricted,
  keyTextOf,
  payloadText,
  senderOf,
  stateKeyOf,
  withAudience,
  withPayload,
} from '../protocol/publication.js';
import { refusal } from '../protocol/refusal.js';
import { refusalOfBroker } from './broker-refusal.js';
import { encodeMessage, MessageRules, optionsOf } from './message.js';

/** @import { PublishOptions } from '../backend/broker.js' */
/** @import { Connection } from '../hub/connection.js' */
/** @import { Position } from '../protocol/position.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Message } from './message.js' */
/** @typedef {string|number|undefined} Id */
/**
 * Counts against the rate of a sender.
 * @typedef {object} Charges
 * @property {(connection: Connection, bytes: number) => void} charge the bytes of a message, beyond the
 *   first 4 KB
 * @property {(connection: Connection, members: number, bytes: number) => void} chargeMembers the
 *   deliveries of a message to a large room
 */

/**
 * A message that a client has sent.
 * @typedef {Message & {mayPublish: boolean, asked?: AskedPayload}} ClientMessage `mayPublish`: does the
 *   door permit the client to publish in the room? `asked` if hooks see another payload than the
 *   members
 */

/**
 * @typedef {object} AskedPayload
 * @property {unknown} payload
 * @property {(answer: Buffer) => Buffer|null} changed the payload for the members, from JSON of the
 *   hook; null: that is no payload of this door
 */

/**
 * Whoever publishes. One object serves all publications of a command.
 * @typedef {object} PublishListener
 * @property {(connection: Connection, id: Id, position: Position|void) => void} onPublished
 * @property {(connection: Connection, id: Id, refused: Refusal) => void} onRefused
 * @property {(connection: Connection, id: Id) => void} [onPublish] called before the broker gets it
 */

/**
 * Records clients' messages for webhooks when the broker has accepted them. Those of applications
 * are not recorded, because their back ends receive the webhooks.
 * @typedef {object} Recorder
 * @property {(room: string) => boolean} coversMessages
 * @property
 *   {(room: string, message: {sender: string, payload: string, offset: number|undefined, key: string|undefined, audience: string, idempotencyKey: string|undefined}) => void}
 *   publish
 */

/** A message that the hook has allowed. @typedef {{publication: Buffer, options: PublishOptions|undefined}} Allowed */

/** @type {Charges} */
const FREE = Object.freeze({ charge() {}, chargeMembers() {} });
const INVALID_ROOM = refusal('INVALID_ROOM', undefined, 0);
const FORBIDDEN = refusal(
  'PERMISSION_DENIED',
  "The token's rooms.publish does not name this room.",
  0,
);
const NO_AUDIENCE = refusal(
  'PERMISSION_DENIED',
  "The token's rooms.audience does not name this room.",
  0,
);
const UNAVAILABLE = refusal('UNAVAILABLE', undefined, 0);
const FOR_EVERYBODY = refusal('DENIED', 'onPublish named an audience for a broadcast.', 0);
const NOT_A_PAYLOAD = refusal('DENIED', 'The answer of onPublish is no payload.', 0);

export class Publisher {
  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config
   * @param {Pick<import('../backend/broker.js').Broker, 'publish'>} parts.broker
   * @param {Pick<import('../hub/hub.js').Hub, 'rooms'>} parts.hub
   * @param {{readonly isSettling: boolean}} parts.phase of the worker
   * @param {import('../backend/broker.js').HistoryOf} parts.historyOf
   * @param {Recorder|null} [parts.recorder] null: no endpoint of webhooks wants messages
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {{error(fields: object, text: string): void}} parts.log
   */
  constructor({ config, broker, hub, phase, historyOf, recorder = null, counters, log }) {
    this.rules = new MessageRules(config, historyOf);
    this.broker = broker;
    this.hub = hub;
    this.phase = phase;
    this.recorder = recorder;
    this.counters = counters;
    this.log = log;
    /** @type {Charges} */
    this.charges = FREE;
    /** @type {import('./hook-gate.js').HookGate|null} */
    this.gate = null;
    /** Publications that the broker has not answered. */
    this.unanswered = 0;
  }

  /**
   * Call it before the first publication of a client.
   * @param {Charges} charges
   */
  limitBy(charges) {
    this.charges = charges;
  }

  /** Call it as early. @param {import('./hook-gate.js').HookGate} gate */
  askBy(gate) {
    if (gate.hooks.has('onPublish')) this.gate = gate;
  }

  /**
   * Publishes for a client. A listener gets the answer, which saves a promise.
   * @param {PublishListener} listener @param {Connection} connection @param {Id} id
   * @param {string|null} room null: what the client calls it is no name of a room
   * @param {ClientMessage} message
   * @param {Allowed|null} [allowed] null: nothing is checked yet. The method calls itself, because
   *   one more would be on the stack of every message
   */
  publishFor(listener, connection, id, room, message, allowed = null) {
    if (room === null) return listener.onRefused(connection, id, INVALID_ROOM);
    if (allowed === null) {
      if (!message.mayPublish) return listener.onRefused(connection, id, FORBIDDEN);
      if (message.audience && !connection.session.hasRight('audience', room))
        return listener.onRefused(connection, id, NO_AUDIENCE);
      const refused = this.rules.refusalOf(room, message);
      if (refused !== null) return listener.onRefused(connection, id, refused);
    }
    const publication = allowed === null ? encodeMessage(message) : allowed.publication;
    const options = allowed === null ? optionsOf(message, publication) : allowed.options;
    if (allowed === null && this.gate !== null)
      return this.#ask(listener, connection, id, room, message, { publication, options });
    if (this.phase.isSettling) return listener.onRefused(connection, id, UNAVAILABLE);
    listener.onPublish?.(connection, id);
    // Broadcasts have a limit of their own.
    const members = room === EVERYONE ? 0 : (this.hub.rooms.get(room)?.members.length ?? 0);
    this.charges.chargeMembers(connection, members, publication.length);
    const { app } = message;
    this.counters.publications++;
    this.unanswered++;
    this.broker.publish(room, publication, options).then(
      (position) => {
        this.unanswered--;
        if (isRestricted(publication)) this.#chargeDebt(connection, room, senderOf(publication));
        if (app !== null) this.counters.apps.events[`${app.id},client`]++;
        if (this.recorder !== null)
          recordPublication(this.recorder, room, publication, position, options?.idempotencyKey);
        listener.onPublished(connection, id, position);
      },
      (error) => {
        this.unanswered--;
        listener.onRefused(connection, id, this.#failed(error));
      },
    );
  }

  /**
   * Members got a state again: that counts like a message with its bytes.
   * @param {Connection} connection @param {string} room @param {string} sender
   */
  #chargeDebt(connection, room, sender) {
    const local = this.hub.rooms.get(room);
    const bytes = local?.sync?.takeDebt(sender) ?? 0;
    if (local === undefined || bytes === 0) return;
    this.charges.charge(connection, bytes);
    this.charges.chargeMembers(connection, local.members.length, bytes);
  }

  /**
   * Asks onPublish. The message is published even if its connection has closed.
   * @param {PublishListener} listener @param {Connection} connection @param {Id} id
   * @param {string} room @param {ClientMessage} message @param {Allowed} checked
   */
  #ask(listener, connection, id, room, message, { publication, options }) {
    const { asked } = message;
    const payload = asked === undefined ? JSON.parse(payloadText(publication)) : asked.payload;
    const key = hasKey(publication) ? stateKeyOf(publication) : undefined;
    /** @param {import('./hook-gate.js').Verdict} verdict */
    const act = ({ refusal: refused, answer }) => {
      if (refused !== null) return listener.onRefused(connection, id, lasting(refused));
      const given = answer.payload;
      const changed = given === null || asked === undefined ? given : asked.changed(given);
      if (given !== null && changed === null)
        return listener.onRefused(connection, id, NOT_A_PAYLOAD);
      if (answer.audience !== '' && room === EVERYONE)
        return listener.onRefused(connection, id, FOR_EVERYBODY);
      const made = changed === null ? publication : withPayload(publication, changed);
      const allowed = answer.audience === '' ? made : withAudience(made, answer.audience);
      this.publishFor(listener, connection, id, room, message, { publication: allowed, options });
    };
    const { length } = publication;
    const audience = message.audience ? message.audience.split(',') : undefined;
    this.gate?.askAbout('onPublish', connection, [room, payload], length, act, { key, audience });
  }

  /**
   * Publishes for an application: accepted requests also while the worker drains.
   * @param {string} room @param {Buffer} publication @param {PublishOptions} [options]
   */
  async publish(room, publication, options) {
    this.counters.publications++;
    this.unanswered++;
    try {
      return await this.broker.publish(room, publication, options);
    } catch (error) {
      this.#countFull(error);
      throw error;
    } finally {
      this.unanswered--;
    }
  }

  /** @param {unknown} error of the broker @returns {Refusal} */
  #failed(error) {
    this.#countFull(error);
    return refusalOfBroker(error, this.log);
  }

  /** @param {unknown} error */
  #countFull(error) {
    if (/** @type {{code?: string}} */ (error).code === 'STATE_FULL') this.counters.stateFull++;
  }
}

/** Without a time to try again: only the client knows what the message is worth then. @param {Refusal} refused */
function lasting({ code, message }) {
  return refusal(code, message, 0);
}

/**
 * @param {Recorder} recorder @param {string} room @param {Buffer} publication
 * @param {Position|void} position
 * @param {string|undefined} idempotencyKey as the broker has it, with its owner: the record of the
 *   key says whether the message has been recorded
 */
function recordPublication(recorder, room, publication, position, idempotencyKey) {
  if (!recorder.coversMessages(room)) return;
  recorder.publish(room, {
    sender: senderOf(publication),
    payload: payloadText(publication),
    offset: position?.offset,
    key: hasKey(publication) ? keyTextOf(publication) : undefined,
    audience: audienceTextOf(publication),
    idempotencyKey,
  });
}
