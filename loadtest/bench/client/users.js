// users.js: users that come and go in rooms with presence. webhooks.js forks it.
//
//   open    opens the connections, and every user joins
//   churn   users come and go at a rate, until rest
//   count   -> moves so far
//   rest    finishes its work -> the users of each room: the truth
//
// A user leaves by a command or by closing the connection, and comes back the same way. Each move
// is that of a random user.

import { setTimeout as sleep } from 'node:timers/promises';
import { each, WsClient } from '../../../test/harness/ws-client.js';
import { answerParent } from '../webhooks-child.js';

const OPENED_AT_ONCE = 100;
const TICK_MS = 10;
const SOURCES = 200;

/** @typedef {{room: string, user: string, client: WsClient, isIn: boolean, isBusy: boolean}} Seat */

/** @type {URL} */
let url;
/** @type {Seat[]} */
let seats = [];
/** @type {NodeJS.Timeout|undefined} */
let timer;
let moves = 0;
let failed = 0;

answerParent({
  /**
   * @param {object} wanted
   * @param {string} wanted.target @param {number} wanted.first number of the first user
   * @param {number} wanted.users @param {number} wanted.rooms
   * @param {number} wanted.seatsPerConnection above 1, users do not close their connections
   */
  async open({ target, first, users, rooms, seatsPerConnection }) {
    url = new URL(target);
    /** @type {WsClient[]} */
    const clients = Array.from({ length: Math.ceil(users / seatsPerConnection) }, (_, i) =>
      clientOf(first + i),
    );
    seats = Array.from({ length: users }, (_, i) => ({
      room: `chat.${(first + i) % rooms}`,
      user: `user-${first + i}`,
      client: clients[Math.floor(i / seatsPerConnection)],
      isIn: false,
      isBusy: false,
    }));
    await each(clients.length, OPENED_AT_ONCE, (i) => clients[i].open());
    await each(seats.length, OPENED_AT_ONCE, (i) => join(seats[i]));
    return {};
  },

  /** @param {{perSecond: number, closes: number}} wanted `closes`: share of moves by the connection */
  async churn({ perSecond, closes }) {
    const startMs = performance.now();
    let started = 0;
    timer = setInterval(() => {
      const due = Math.floor(((performance.now() - startMs) / 1000) * perSecond);
      for (; started < due; started++) {
        const seat = seats[Math.floor(Math.random() * seats.length)];
        if (!seat.isBusy) move(seat, closes);
      }
    }, TICK_MS);
    return {};
  },

  async count() {
    return { moves };
  },

  async rest() {
    clearInterval(timer);
    while (seats.some(({ isBusy }) => isBusy)) await sleep(TICK_MS);
    const truth = seats.filter(({ isIn }) => isIn).map(({ room, user }) => `${room} ${user}`);
    return { truth, moves, failed };
  },
});

/** @param {number} i */
function clientOf(i) {
  return new WsClient(url, { localAddress: `127.0.0.${2 + (i % SOURCES)}` });
}

/** @param {Seat} seat @param {number} closes */
async function move(seat, closes) {
  seat.isBusy = true;
  try {
    if (seat.isIn && Math.random() < closes) {
      seat.isIn = false;
      await seat.client.close();
    } else if (seat.isIn) {
      const { type } = await seat.client.request({ type: 'leave', room: seat.room });
      if (type === 'left') seat.isIn = false;
      else failed++;
    } else {
      if (!seat.client.isOpen) {
        seat.client = clientOf(Number(seat.user.slice(5)));
        await seat.client.open();
      }
      await join(seat);
    }
    moves++;
  } catch {
    failed++;
    seat.client.reset();
    seat.isIn = false;
  }
  seat.isBusy = false;
}

/** @param {Seat} seat */
async function join(seat) {
  const { room, user } = seat;
  const { type } = await seat.client.request({ type: 'join', room, presence: { user } });
  if (type === 'joined') seat.isIn = true;
  else failed++;
}
