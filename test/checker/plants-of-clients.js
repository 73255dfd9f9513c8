// plants-of-clients.js: faults that the checker must find in records of single clients, users
// and tokens.

import { GUESTS, HISTORY_ROOMS, LOBBY, STREAMS } from './model.js';
import { accepted } from './story.js';

const [ROOM] = HISTORY_ROOMS;
const [STREAM] = STREAMS;
/** Guests, by their users. */
const [ANN, BOB, EVE, CROWD] = [10, 12, 13, 14];
const ALL = [...GUESTS.keys()];

/** @typedef {import('./model.js').Model} Model */

/**
 * No client is connected, and no revocation is in force; a story may have revoked any user.
 * @param {Model} model
 */
function emptied(model) {
  for (const guest of ALL) model.exit(guest);
  model.wait();
}

/** @param {number} guest */
const userOf = (guest) => String(GUESTS.get(guest));

/** @type {readonly import('./story.js').Plant[]} */
export const PLANTS_OF_CLIENTS = [
  {
    fault: 'a revoked token opens a connection',
    expected: ['I12'],
    isMixed: true,
    act: (model) => {
      emptied(model);
      model.revoke(EVE);
      model.t += 3_000_000;
      model.faults.ignoresRevocations = true;
      model.enter(EVE);
      model.faults.ignoresRevocations = false;
      model.exit(EVE);
    },
  },
  {
    fault: 'a revocation is forgotten when servers start again',
    expected: ['I12'],
    isMixed: true,
    act: (model) => {
      emptied(model);
      model.revoke(BOB);
      model.cut(0);
      model.wait();
      model.faults.ignoresRevocations = true;
      model.enter(BOB);
      model.faults.ignoresRevocations = false;
      model.exit(BOB);
    },
  },
  {
    fault: 'the connection of a revoked token stays open',
    expected: ['I12'],
    isMixed: true,
    act: (model) => {
      emptied(model);
      model.revoked.delete('eve');
      model.emit({ type: 'connect', client: EVE, user: 'mallory' });
      model.emit({ type: 'subscribe', client: EVE, room: 'door' });
      model.emit({ type: 'reply', client: EVE, room: 'door' });
      model.emit({ type: 'revoke', user: 'mallory' });
      model.wait();
      model.emit({ type: 'close', client: EVE, code: 1006 });
    },
  },
  {
    fault: 'a message comes back to its publisher, who wanted no echo',
    expected: ['I16'],
    isMixed: true,
    act: (model) => {
      model.faults.echoes = true;
      model.speak(2, ROOM);
      model.settle();
      model.faults.echoes = false;
    },
  },
  {
    fault: 'the same in a plain room',
    expected: ['I16'],
    isMixed: true,
    act: (model) => {
      model.faults.echoes = true;
      model.speak(2, 'p.0');
      model.settle();
      model.faults.echoes = false;
    },
  },
  {
    fault: 'a message comes back in a replay, and the library does not drop it',
    expected: ['I16'],
    isMixed: true,
    act: (model) => {
      accepted(model, ROOM, 1);
      model.close(2);
      model.open(2, 0);
      model.settle();
      model.speak(2, ROOM);
      model.close(2);
      model.faults.echoes = true;
      model.open(2, 0);
      model.settle();
      model.faults.echoes = false;
    },
  },
  {
    fault: 'a join with `last` begins one message late',
    expected: ['I17'],
    isMixed: true,
    act: (model) => {
      accepted(model, ROOM, 5);
      model.faults.cutsTails = true;
      model.visit(0, ROOM, 4);
      model.faults.cutsTails = false;
      accepted(model, ROOM, 1);
    },
  },
  {
    fault: 'the same, because messages without an echo lie in the range',
    expected: ['I17'],
    isMixed: true,
    act: (model) => {
      accepted(model, ROOM, 3);
      model.speak(3, ROOM);
      accepted(model, ROOM, 2);
      model.faults.cutsTails = true;
      model.visit(3, ROOM, 5);
      model.faults.cutsTails = false;
      accepted(model, ROOM, 1);
    },
    // A library does not say how many were announced.
    edit: (events) => {
      const reply = events.findLast((event) => event.type === 'reply' && event.client === 3);
      if (reply?.type === 'reply') delete reply.replayed;
    },
  },
  {
    fault: 'a join with `last` brings fewer messages than it announces',
    expected: ['I17'],
    isMixed: true,
    act: (model) => {
      model.crash(9, [ROOM]);
      accepted(model, ROOM, 3);
      model.visit(0, ROOM, 2);
      accepted(model, ROOM, 1);
    },
    edit: (events) => {
      const reply = events.findLast((event) => event.type === 'reply' && event.replayed === 2);
      Object.assign(reply ?? {}, { replayed: 3 });
    },
  },
  {
    fault: 'the first live message behind a join with `last` is missing',
    // It is a gap like any other.
    expected: ['I5'],
    isMixed: true,
    act: (model) => {
      accepted(model, ROOM, 3);
      model.visit(0, ROOM, 2);
      const missing = model.publish('a', ROOM);
      const { joined } = model.clients[0];
      joined.delete(ROOM);
      model.settle();
      joined.add(ROOM);
      accepted(model, ROOM, 1);
      void missing;
    },
  },
  {
    fault: 'a user has one connection too many',
    expected: ['I18'],
    isMixed: true,
    act: (model) => {
      model.faults.ignoresCaps = true;
      model.survey();
      model.faults.ignoresCaps = false;
      for (const guest of ALL) model.exit(guest);
    },
  },
  {
    fault: 'the place of a closed connection is not free again',
    expected: ['I18'],
    isMixed: true,
    act: (model) => {
      model.survey();
      model.exit([...model.guests].find((guest) => userOf(guest) === 'crowd') ?? CROWD);
      model.wait();
      model.emit({ type: 'census' });
    },
  },
  {
    fault: 'a list without a user who is there',
    expected: ['I19'],
    isMixed: true,
    act: (model) => {
      model.survey();
      model.lists([]);
    },
  },
  {
    fault: 'a list with a user who has left',
    expected: ['I19'],
    isMixed: true,
    act: (model) => {
      model.revoked.clear();
      emptied(model);
      model.enter(CROWD);
      model.emit({ type: 'connect', client: ANN, user: 'zoe' });
      model.emit({ type: 'subscribe', client: ANN, room: LOBBY });
      model.emit({ type: 'reply', client: ANN, room: LOBBY });
      model.emit({ type: 'close', client: ANN, code: 1000 });
      model.wait();
      model.lists(['crowd', 'zoe']);
    },
  },
  {
    fault: 'a ghost of a server that died stays for minutes',
    expected: ['I19'],
    isMixed: true,
    act: (model) => {
      model.revoked.clear();
      emptied(model);
      model.enter(CROWD);
      model.emit({ type: 'connect', client: ANN, user: 'zoe' });
      model.emit({ type: 'subscribe', client: ANN, room: LOBBY });
      model.emit({ type: 'reply', client: ANN, room: LOBBY });
      model.emit({ type: 'start', name: 'killed' });
      model.emit({ type: 'close', client: ANN, code: 1006 });
      model.emit({ type: 'stop', name: 'killed' });
      model.t += 90_000_000;
      model.lists(['crowd', 'zoe']);
    },
  },
  {
    fault: 'a member gets no list',
    expected: ['I19'],
    isMixed: true,
    act: (model) => {
      model.survey();
      model.lists(null);
    },
  },
  {
    fault: 'a subscriber is not told that another has left',
    expected: ['I34'],
    isMixed: true,
    act: (model) => {
      emptied(model);
      for (const guest of [CROWD, CROWD + 1]) model.enter(guest);
      model.exit(CROWD + 1);
      model.wait();
      model.counts(2);
    },
  },
  {
    fault: 'subscribers are told their number although nobody has come or gone',
    expected: ['I34'],
    isMixed: true,
    act: (model) => {
      emptied(model);
      model.enter(CROWD);
      model.wait();
      for (const count of [1, 1]) model.emit({ type: 'count', client: CROWD, room: LOBBY, count });
    },
  },
  {
    fault: 'the id of a stream names a message that has not come',
    expected: ['I20'],
    isMixed: true,
    act: (model) => {
      accepted(model, ROOM, 2);
      model.close(STREAM);
      model.open(STREAM, 0);
    },
    edit: (events) => {
      const at = events.findLast(
        (event) => event.type === 'subscribe' && event.client === STREAM && event.room === ROOM,
      );
      if (at?.type === 'subscribe' && at.id) at.id = { ...at.id, offset: at.id.offset + 1 };
    },
  },
];
