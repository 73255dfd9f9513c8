// occupancy.js: counts connections in an app's channels on all servers.

import { roomPrefixOf } from '../../../protocol/app-names.js';
import { channelOf, kindOf, roomOf, roomOfUser } from '../../../protocol/pusher-channels.js';
import { allRooms } from '../../../transport/http-api/all-rooms.js';
import { incomplete } from '../../../transport/http-api/fault.js';

/** @import { App } from '../../../config/pusher.js' */
/** @import { RouteServices } from './app-call.js' */

export class Occupancy {
  /** @param {Pick<RouteServices, 'fleet'>} services */
  constructor({ fleet }) {
    this.fleet = fleet;
  }

  /** @param {App} app @param {string} channel @returns {Promise<number>} connections */
  async count(app, channel) {
    const { connections, isPartial } = await this.fleet.room(roomOf(app, channel));
    if (isPartial) throw incomplete();
    return connections;
  }

  /**
   * @param {App} app @param {string} prefix of channels
   * @returns {Promise<Map<string, number>>} connections by channel, without users' own channels
   */
  async listChannels(app, prefix) {
    /** @type {Map<string, number>} */
    const found = new Map();
    // Names are escaped character by character, so a prefix maps to the prefix of the rooms.
    const rooms = {
      prefix: prefix === '' ? roomPrefixOf(app) : roomOf(app, prefix),
      except: roomOfUser(app, ''),
    };
    const occupied = await allRooms(this.fleet, rooms, 'ask with filter_by_prefix');
    for (const { room, connections } of occupied) {
      if (app.isShared && room.startsWith('~')) continue;
      const channel = channelOf(room);
      if (channel !== null && !kindOf(channel).isUser) found.set(channel, connections);
    }
    return found;
  }
}
