// room-limit.js: how many rooms a connection may be in. Every way into a room asks here, so that
// `rooms=observe` counts what `rooms=enforce` would refuse, through whichever door.

/** @import { Config } from '../config/settings.js' */

/**
 * May a connection enter more rooms? In the mode `observe` it may, and each room above the limit is
 * counted.
 * @param {Pick<Config, 'maxRoomsPerConnection'|'maxRoomsPerConnectionMode'>} config
 * @param {{observed: {rooms: number}}} counters
 * @param {number} rooms that it is in @param {number} [more] that it wants
 */
export function mayEnterRooms(config, counters, rooms, more = 1) {
  const { maxRoomsPerConnection: max, maxRoomsPerConnectionMode: mode } = config;
  const over = Math.min(more, rooms + more - max);
  if (over <= 0 || mode === 'off') return true;
  if (mode === 'enforce') return false;
  counters.observed.rooms += over;
  return true;
}
