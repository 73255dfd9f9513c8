// all-rooms.js: all occupied rooms with a prefix, for APIs of doors that answer without pages.

import { ApiFault, incomplete } from './fault.js';
import { MAX_LIMIT } from './fields.js';

/** Pages of one request: beyond these, backends have to ask for a longer prefix. */
const MAX_PAGES = 20;

/** @import { FleetControl } from './call.js' */

/**
 * @param {Pick<FleetControl, 'rooms'>} fleet
 * @param {{prefix: string, except?: string}} which `prefix` of the rooms, and `except` of others
 * @param {string} advice what to ask for if there are too many
 * @returns {Promise<{room: string, connections: number}[]>} in the order of their names
 * @throws {ApiFault} UNAVAILABLE, also if a worker has not answered
 */
export async function allRooms(fleet, which, advice) {
  const found = [];
  let after = '';
  for (let page = 0; page < MAX_PAGES; page++) {
    const next = await fleet.rooms({ ...which, after, limit: MAX_LIMIT });
    if (next.isPartial) throw incomplete();
    for (const one of next.rooms) if (one.connections > 0) found.push(one);
    if (next.rooms.length < MAX_LIMIT) return found;
    after = next.rooms[next.rooms.length - 1].room;
  }
  const message = `More than ${MAX_LIMIT * MAX_PAGES} channels: ${advice}.`;
  throw new ApiFault('UNAVAILABLE', { message });
}
