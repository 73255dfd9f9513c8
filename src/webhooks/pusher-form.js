// pusher-form.js: webhooks as Pusher sends them, for the apps of Pusher clients.
//   {"time_ms":1327078148132,"events":[{"name":"channel_occupied","channel":"chat"}]}
//
// `X-Pusher-Signature` signs the body with the app's first secret. Requests have the headers of
// Standard Webhooks, too. `time_ms` is the time of the event, so it is the same in all attempts.
// Receivers refuse one that is more than five minutes old, so the endpoint's `maxAgeS` is less.

import { createHash } from 'node:crypto';
import { APP_EVENT_TYPES } from '../config/pusher.js';
import { appIdOf, channelOf, userOfChannel } from '../protocol/pusher-channels.js';
import { sign } from '../protocol/pusher-signature.js';
import { messageOf } from './message.js';

/** @import { Form, Sendable } from './message.js' */

/** @type {Readonly<Record<string, string>>} */
const NAMES = Object.freeze(
  Object.fromEntries(Object.entries(APP_EVENT_TYPES).map(([name, type]) => [type, name])),
);
/** Retries for five minutes. */
const SCHEDULE_MS = [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000];

/** @implements {Form} */
export class PusherForm {
  /**
   * @param {import('../config/webhooks.js').Endpoint} endpoint
   * @param {import('../config/webhooks.js').PusherEndpoint} pusher
   */
  constructor({ types }, { app, startsWith, endsWith, batchMs, headers }) {
    /** @type {ReadonlySet<string>} */
    this.types = new Set(types);
    this.app = app;
    this.startsWith = startsWith;
    this.endsWith = endsWith;
    this.batchMs = batchMs;
    this.headers = headers;
    this.scheduleMs = SCHEDULE_MS;
    this.entersAtOnce = true;
    this.tellsGaps = false;
  }

  /** @type {Form['wants']} */
  wants({ type, room }) {
    if (room === undefined || !this.types.has(type)) return false;
    if (appIdOf(room) !== (this.app.isShared ? null : this.app.id)) return false;
    const channel = channelOf(room);
    return (
      channel !== null &&
      userOfChannel(channel) === null &&
      channel.startsWith(this.startsWith) &&
      channel.endsWith(this.endsWith)
    );
  }

  /** @type {Form['messageOf']} */
  messageOf(events) {
    const body = JSON.stringify({
      time_ms: Math.max(...events.map(({ at }) => at)),
      events: events.flatMap((event) => (event.room === undefined ? [] : [eventOf(event)])),
    });
    return {
      id: idOf(events.map((event) => messageOf(event).id)),
      body,
      headers: {
        ...this.headers,
        'x-pusher-key': this.app.key,
        'x-pusher-signature': sign(this.app, body),
      },
    };
  }
}

/** @param {readonly string[]} ids of the events of a request */
function idOf(ids) {
  if (ids.length === 1) return ids[0];
  return `evt_${createHash('sha256').update(ids.join()).digest('base64url').slice(0, 22)}`;
}

/** @param {Sendable} event */
function eventOf(event) {
  const { type, room = '', user, event: name, data, socket_id, user_id, count } = event;
  const head = { name: NAMES[type], channel: channelOf(room) };
  switch (type) {
    case 'member.joined':
    case 'member.left':
      return { ...head, user_id: user };
    case 'client.event':
      return { ...head, event: name, data, socket_id, user_id };
    case 'room.counted':
      return { ...head, subscription_count: count };
    default:
      return head;
  }
}
