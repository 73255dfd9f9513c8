// rooms.js: the rooms of a simulated fleet in a cluster. A room has members on one to four workers,
// on 2.5 in the average. So any process can compute who is in which room.

const MAX_MEMBERS = 4;

/** Spreads neighbouring numbers. @param {number} room */
function shareOf(room) {
  return 1 + ((Math.imul(room, 0x9e3779b1) >>> 16) % MAX_MEMBERS);
}

/** @param {number} room @param {number} workers of the fleet @returns {number} on how many it is */
export function countMembers(room, workers) {
  return Math.min(shareOf(room), workers);
}

/** The members of a room are this far apart. @param {number} workers */
function strideOf(workers) {
  return Math.max(1, Math.floor(workers / MAX_MEMBERS));
}

/**
 * @param {number} room @param {number} workers of the fleet
 * @returns {number} the first of its workers
 */
export function firstMember(room, workers) {
  return room % workers;
}

/**
 * @param {number} worker @param {number} workers of the fleet @param {number} rooms
 * @returns {Generator<number>} its rooms
 */
export function* roomsOf(worker, workers, rooms) {
  const stride = strideOf(workers);
  for (let member = 0; member < Math.min(MAX_MEMBERS, workers); member++) {
    const first = (((worker - member * stride) % workers) + workers) % workers;
    for (let room = first; room < rooms; room += workers)
      if (countMembers(room, workers) > member) yield room;
  }
}

/**
 * @param {number} room
 * @param {number} historyPercent of all rooms
 * @returns {string} its name; `quiet.*` has history
 */
export function nameOf(room, historyPercent) {
  return `${room % 100 < historyPercent ? 'quiet' : 'room'}.${room}`;
}
