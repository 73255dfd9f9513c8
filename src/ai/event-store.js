// event-store.js: the event store of an MCP server over Streamable HTTP, which replicas share.
//
// A stream of a session is a room with history: `mcp.<session>/<stream>`. An event's id is its
// position and its stream, so any replica finds what follows it. Give each session a store of its
// own, because the SDK calls the standalone stream of every session by the same name.
//
// A replica that does not run the session has nothing to send but what the store gets from the one
// that does. There `waitMs` holds a replay back until the response to the request is stored.

/** @import { Position } from './part.js' */
/** @import { PublishingServer } from './writer.js' */

const EVENT_ID = /^([0-9a-f]{16}):(\d{1,16}):([A-Za-z0-9_.-]+)$/;
/** Of a page of the history. */
const PAGE = 1000;
/** Between two looks for a response. */
const LOOK_MS = 200;
/** The stream of a session that no request has begun: it has no response. */
const STANDALONE = '_GET_stream';

/** @typedef {object} Message a message of JSON-RPC; `{}`: the SDK primes a stream */

/** Implements `EventStore` of @modelcontextprotocol/sdk 1. */
export class FanfareEventStore {
  #server;
  #prefix;
  #waitMs;

  /**
   * @param {PublishingServer} server of `createServer`, with a key that may publish and read history
   * @param {string} sessionId 1 to 100 characters of `A-Z a-z 0-9 _ . -`
   * @param {object} [options]
   * @param {string} [options.prefix] of the rooms; `mcp`
   * @param {number} [options.waitMs] for which a replay waits for a response; 0
   */
  constructor(server, sessionId, { prefix = 'mcp', waitMs = 0 } = {}) {
    if (!/^[A-Za-z0-9_.-]{1,100}$/.test(sessionId)) throw new TypeError('a session id for a room');
    this.#server = server;
    // Both ids may have dots.
    this.#prefix = `${prefix}.${sessionId}/`;
    this.#waitMs = waitMs;
  }

  /**
   * @param {string} streamId @param {Message} message
   * @returns {Promise<string>} the id of the event
   */
  async storeEvent(streamId, message) {
    const { epoch, offset } = await this.#server.publish(this.#prefix + streamId, message);
    return `${epoch}:${offset}:${streamId}`;
  }

  /** @param {string} eventId @returns {Promise<string|undefined>} */
  async getStreamIdForEventId(eventId) {
    return EVENT_ID.exec(eventId)?.[3];
  }

  /**
   * @param {string} lastEventId
   * @param {{send: (eventId: string, message: any) => Promise<void>}} to
   * @returns {Promise<string>} the stream @throws {Error} if events after it are no longer kept
   */
  async replayEventsAfter(lastEventId, { send }) {
    const [, epoch, offset, streamId] = EVENT_ID.exec(lastEventId) ?? [];
    if (streamId === undefined) throw new Error(`no event id: ${lastEventId}`);
    const endMs = streamId === STANDALONE ? 0 : Date.now() + this.#waitMs;
    let after = Number(offset);
    for (;;) {
      const { last, isAnswered } = await this.#replay(streamId, { epoch, offset: after }, send);
      if (isAnswered || Date.now() >= endMs) return streamId;
      after = last;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /**
   * @param {string} streamId @param {Position} after
   * @param {(eventId: string, message: any) => Promise<void>} send
   * @returns {Promise<{last: number, isAnswered: boolean}>} the offset of the last event, and whether
   *   the response was among them
   */
  async #replay(streamId, { epoch, offset: after }, send) {
    let last = after;
    let isAnswered = false;
    for (;;) {
      const page = await this.#server.history(this.#prefix + streamId, {
        since: { epoch, offset: last },
        limit: PAGE,
      });
      const messages = /** @type {{payload: any, offset: number}[]} */ (page.messages);
      const next = messages.length > 0 ? messages[0].offset : page.offset + 1;
      if (page.epoch !== epoch || next !== last + 1)
        throw new Error(`events of ${streamId} after ${last} are gone`);
      for (const { payload, offset } of messages) {
        last = offset;
        // The SDK primes a stream with an event without a message.
        if (Object.keys(payload).length === 0) continue;
        isAnswered ||= payload.id !== undefined && payload.method === undefined;
        await send(`${epoch}:${offset}:${streamId}`, payload);
      }
      if (!(/** @type {{more?: boolean}} */ (page).more)) return { last, isAnswered };
    }
  }
}
