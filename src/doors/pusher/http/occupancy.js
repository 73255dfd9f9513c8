// occupancy.js: which channels of an app have connections, on all servers.

import { ApiFault } from '../../../transport/http-api/fault.js';
import { channelOf, kindOf, roomOf, roomOfUser, roomPrefixOf } from '../channels.js';

/** Rooms of one page. */
const PAGE = 1000;
/** Pages of one request: beyond these, clients have to ask for a prefix. */
const MAX_PAGES = 20;

/** @import { App } from '../../../config/pusher.js' */
/** @import { RouteServices } from './app-call.js' */

export class Occupancy {
  /** @param {Pick<RouteServices, 'fleet'>} services */
  constructor({ fleet }) {
    this.fleet = fleet;
  }

  /** Connections in a channel. @param {App} app @param {string} channel @returns {Promise<number>} */
  async count(app, channel) {
    const { connections, isPartial } = await this.fleet.room(roomOf(app, channel));
    if (isPartial) throw incomplete();
    return connections;
  }

  /**
   * @param {App} app @param {string} prefix of channels
   * @returns {Promise<Map<string, number>>} connections by channel, without those of users
   */
  async list(app, prefix) {
    /** @type {Map<string, number>} */
    const found = new Map();
    // The room of a prefix is the prefix of the rooms: names are escaped character by character.
    const rooms = prefix === '' ? roomPrefixOf(app) : roomOf(app, prefix);
    const except = roomOfUser(app, '');
    let after = '';
    for (let page = 0; page < MAX_PAGES; page++) {
      const next = await this.fleet.rooms({ prefix: rooms, after, limit: PAGE, except });
      if (next.isPartial) throw incomplete();
      for (const { room, connections } of next.rooms) {
        if (app.isShared && room.startsWith('~')) continue;
        const channel = channelOf(room);
        if (channel !== null && !kindOf(channel).isUser) found.set(channel, connections);
      }
      if (next.rooms.length < PAGE) return found;
      after = next.rooms[next.rooms.length - 1].room;
    }
    throw new ApiFault('UNAVAILABLE', {
      message: `More than ${PAGE * MAX_PAGES} channels: ask with filter_by_prefix.`,
    });
  }
}

function incomplete() {
  return new ApiFault('UNAVAILABLE', {
    message: 'Not known: a worker has not answered. Try again.',
  });
}
