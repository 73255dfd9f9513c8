// event-store.js: the event store of an MCP server over Streamable HTTP, which replicas share.
//
// A stream of a session is a room with history: `mcp.<session>.<stream>`. An event's id is its
// position and its stream, so any replica finds what follows it. Give each session a store of its
// own, because the SDK calls the standalone stream of every session by the same name.

/** @import { Position } from './part.js' */
/** @import { PublishingServer } from './writer.js' */

const EVENT_ID = /^([0-9a-f]{16}):(\d{1,16}):([A-Za-z0-9_.-]+)$/;
/** Of a page of the history. */
const PAGE = 1000;

/** @typedef {object} Message a message of JSON-RPC; `{}`: the SDK primes a stream */

/** Implements `EventStore` of @modelcontextprotocol/sdk 1. */
export class FanfareEventStore {
  #server;
  #prefix;

  /**
   * @param {PublishingServer} server of `createServer`, with a key that may publish and read history
   * @param {string} sessionId 1 to 100 characters of `A-Z a-z 0-9 _ . -`
   * @param {{prefix?: string}} [options] of the rooms; `mcp`
   */
  constructor(server, sessionId, { prefix = 'mcp' } = {}) {
    if (!/^[A-Za-z0-9_.-]{1,100}$/.test(sessionId)) throw new TypeError('a session id for a room');
    this.#server = server;
    this.#prefix = `${prefix}.${sessionId}.`;
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
    /** @type {Position} */
    let since = { epoch, offset: Number(offset) };
    for (;;) {
      const page = /** @type {any} */ (
        await this.#server.history(this.#prefix + streamId, { since, limit: PAGE })
      );
      const [first] = page.messages;
      const isWhole =
        page.epoch === epoch && (first === undefined || first.offset === since.offset + 1);
      if (!isWhole || (first === undefined && page.offset > since.offset))
        throw new Error(`events after ${lastEventId} are gone`);
      for (const message of page.messages) {
        since = { epoch, offset: message.offset };
        if (Object.keys(message.payload).length > 0)
          await send(`${epoch}:${message.offset}:${streamId}`, message.payload);
      }
      if (!page.more) return streamId;
    }
  }
}
