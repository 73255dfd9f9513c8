// session.js: the commands hello, echo and ping.

import { ECHO_PREFIX, echoSuffix, encodePong, encodeWelcome } from '../../protocol/encode.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Handler } from './handler.js' */
/** @import { Id } from '../../operations/replies.js' */

export class SessionCommands {
  /**
   * @param {object} parts @param {import('../../config/settings.js').Config} parts.config
   * @param {number} parts.idempotencyMs
   * @param {{readonly isOn: boolean}} parts.outageNotice
   * @param {import('../../operations/replies.js').Replies} parts.replies
   */
  constructor({ config, idempotencyMs, outageNotice, replies }) {
    const { serverId, pingIntervalMs, maxMessageBytes, maxRoomsPerConnection, messagesPerMinute } =
      config;
    this.outageNotice = outageNotice;
    this.replies = replies;
    this.server = { serverId, heartbeatMs: pingIntervalMs };
    /** Only limits that are enforced. */
    this.limits = {
      maxMessageBytes,
      maxRooms: config.maxRoomsPerConnectionMode === 'enforce' ? maxRoomsPerConnection : undefined,
      messagesPerMinute: config.messagesPerMinuteMode === 'enforce' ? messagesPerMinute : undefined,
      idempotencyMs,
    };
  }

  /** @type {Handler} */
  hello(connection, { id }) {
    this.welcome(connection, id);
  }

  /** @param {Connection} connection @param {Id} id */
  welcome(connection, id) {
    connection.greet();
    const { limits, outageNotice } = this;
    const userId = connection.session.name || undefined;
    const welcome = { connectionId: connection.id, userId, ...this.server, limits };
    connection.send(encodeWelcome({ ...welcome, degraded: outageNotice.isOn }, id));
  }

  /** @type {Handler} */
  echo(connection, { id, source, payloadStart, payloadEnd }) {
    if (payloadStart < 0) return this.replies.invalid(connection, id, 'The payload is missing.');
    connection.sendAround(ECHO_PREFIX, source, payloadStart, payloadEnd, echoSuffix(id));
  }

  /** @type {Handler} */
  ping(connection, { id }) {
    connection.send(encodePong(id));
  }
}
