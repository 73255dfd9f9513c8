// recorded-publisher.js: reports clients' messages for webhooks once the broker has accepted them.
// Used only if an endpoint wants rooms' messages. Messages from the HTTP API are not reported,
// because its callers are the back ends that receive webhooks.

import { hasKey, keyTextOf, payloadText, senderOf } from '../protocol/publication.js';
import { Publisher } from './publisher.js';

/** @import { PublishListener } from './publisher.js' */

/**
 * @typedef {object} Recorder
 * @property {(room: string) => boolean} coversMessages
 * @property
 *   {(room: string, message: {sender: string, payload: string, offset: number|undefined, key: string|undefined, idempotencyKey: string|undefined}) => void}
 *   publish
 */

export class RecordedPublisher extends Publisher {
  /** @param {ConstructorParameters<typeof Publisher>[0] & {recorder: Recorder}} parts */
  constructor({ recorder, ...parts }) {
    super(parts);
    this.recorder = recorder;
  }

  /** @override @type {Publisher['publishFor']} */
  publishFor(listener, connection, id, room, publication, options) {
    const { recorder } = this;
    const told = recorder.coversMessages(room)
      ? new Reporting(listener, recorder, room, publication, options?.idempotencyKey)
      : listener;
    super.publishFor(told, connection, id, room, publication, options);
  }
}

/** A listener that reports its only publication. @implements {PublishListener} */
class Reporting {
  /**
   * @param {PublishListener} listener @param {Recorder} recorder @param {string} room
   * @param {Buffer} publication @param {string} [idempotencyKey]
   */
  constructor(listener, recorder, room, publication, idempotencyKey) {
    this.listener = listener;
    this.recorder = recorder;
    this.room = room;
    this.publication = publication;
    this.idempotencyKey = idempotencyKey;
  }

  /** @type {PublishListener['onPublish']} */
  onPublish(connection, id) {
    this.listener.onPublish(connection, id);
  }

  /** @type {PublishListener['onPublished']} */
  onPublished(connection, id, position) {
    const { publication, idempotencyKey } = this;
    this.recorder.publish(this.room, {
      sender: senderOf(publication),
      payload: payloadText(publication),
      offset: position?.offset,
      key: hasKey(publication) ? keyTextOf(publication) : undefined,
      idempotencyKey,
    });
    this.listener.onPublished(connection, id, position);
  }

  /** @type {PublishListener['onRefused']} */
  onRefused(connection, id, error) {
    this.listener.onRefused(connection, id, error);
  }
}
