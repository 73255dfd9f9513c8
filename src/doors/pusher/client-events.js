// client-events.js: events that clients send to each other in private and presence channels.
// Channels do not keep them, and the sender does not receive them.

import { Rate } from '../../admission/rate.js';
import { isChannel, kindOf, roomOf } from '../../protocol/pusher-channels.js';
import {
  changedEvent,
  EVENT_PREFIX,
  eventSender,
  payloadOf,
  readEvent,
} from './codec/client-event.js';
import { errorText } from './codec/frames.js';
import { socketIdOf } from './codec/socket-id.js';
import { OVER_QUOTA } from './codec/texts.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { ErrorCode } from '../../protocol/codes.js' */
/** @import { App } from '../../config/pusher.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { PusherClient, Handler } from './client.js' */
/** @import { ClientEvent } from './codec/client-event.js' */

export class ClientEvents {
  /** Rates by app. @type {Map<App, Rate>} */
  #rates = new Map();

  /** @param {DoorServices} services */
  constructor(services) {
    this.services = services;
  }

  /** @type {Handler} */
  receive = (connection, client, message) => {
    const { app } = client;
    const { event, channel } = message;
    if (!event.startsWith(EVENT_PREFIX))
      return this.#answerError(
        connection,
        'UNKNOWN_TYPE',
        null,
        'Client event rejected - event name must start with client-',
      );
    if (!app.clientEvents)
      return this.#answerError(
        connection,
        'PERMISSION_DENIED',
        4301,
        'To send client events, you must enable this feature in the Settings page of your dashboard.',
      );
    const kind =
      isChannel(channel) && channel.length <= app.maxChannelLength ? kindOf(channel) : null;
    if (!isChannel(channel) || kind === null || !kind.isPrivate || kind.isEncrypted)
      return this.#answerError(
        connection,
        kind === null ? 'INVALID_ROOM' : 'PERMISSION_DENIED',
        null,
        'Client event rejected - only supported on private and presence channels',
      );
    const room = this.services.hub.rooms.get(roomOf(app, channel));
    if (room === undefined || !room.has(connection))
      return this.#answerError(
        connection,
        'NOT_IN_ROOM',
        null,
        `Cannot broadcast client event (connection not subscribed to channel ${channel})`,
      );
    const sent = readEvent(app, message);
    if (event.length > app.maxEventNameLength)
      return this.#answerError(
        connection,
        'MESSAGE_TOO_LARGE',
        4301,
        `The event name is longer than the allowed ${app.maxEventNameLength} characters.`,
      );
    if (!this.#admit(client))
      return this.#answerError(
        connection,
        'RATE_LIMIT_EXCEEDED',
        4301,
        `${OVER_QUOTA} Too many client events from this connection: ` +
          `${app.clientEventsPerSecond} a second ("clientEventsPerSecond" of the app).`,
      );
    const user = kind.isPresence ? (room.users?.userOf(connection) ?? null) : null;
    this.#publish(connection, client, room.name, sent, message.data, user);
  };

  /** @param {PusherClient} client */
  #admit(client) {
    const { app } = client;
    if (app.clientEventsPerSecond === 0) return true;
    let rate = this.#rates.get(app);
    if (rate === undefined) {
      rate = new Rate(app.clientEventsPerSecond * 60, app.clientEventsPerSecond);
      this.#rates.set(app, rate);
    }
    const bucket = client.bucket('events');
    const now = performance.now();
    if (!rate.has(bucket, now)) return false;
    rate.take(bucket, now);
    return true;
  }

  /**
   * onPublish gets `{event, data}` and may change it.
   * @param {Connection} connection @param {PusherClient} client @param {string} room
   * @param {ClientEvent} sent @param {unknown} data as the client sent it
   * @param {string|null} user of a presence channel
   */
  #publish(connection, client, room, sent, data, user) {
    const { app } = client;
    const { reporter, operations } = this.services;
    const { publisher } = operations;
    let allowed = sent;
    const payload = payloadOf(sent, user);
    publisher.publishFor(
      {
        onPublished() {
          const { event, data: text } = allowed;
          const fields = {
            event,
            socket_id: socketIdOf(connection.id),
            user_id: user ?? undefined,
          };
          reporter?.report(room, 'client.event', fields, { data: text });
        },
        onRefused: (_connection, _id, refused) => {
          if (refused.code === 'DENIED')
            this.#answerError(connection, 'PERMISSION_DENIED', null, 'Client event rejected');
          else if (refused.code === 'HOOK_FAILED')
            this.#answerError(connection, 'UNAVAILABLE', null, refused.message);
          else operations.replies.refuse(connection, refused);
        },
      },
      connection,
      undefined,
      room,
      {
        ...{ source: payload, start: 0, end: payload.length, bytes: Buffer.byteLength(sent.data) },
        ...{
          sender: eventSender(connection, app, client.user, user),
          except: connection.id,
          key: undefined,
        },
        ...{ idempotencyKey: undefined, owner: '', app, mayPublish: true, isTransient: true },
        asked: {
          payload: { event: sent.event, data },
          changed(answer) {
            const changed = changedEvent(sent, answer);
            if (changed === null) return null;
            allowed = changed;
            return payloadOf(changed, user);
          },
        },
      },
    );
  }

  /**
   * @param {Connection} connection @param {ErrorCode} code @param {number|null} pusherCode
   * @param {string} text
   */
  #answerError(connection, code, pusherCode, text) {
    this.services.counters.errors[code]++;
    connection.send(errorText(pusherCode, text));
  }
}
