// connections.js: the routes that look at connections: those of a user, a room or an address, or
// one by its id. An answer names all rooms of a connection, so a key needs the right for all rooms.
// A key of an app sees the connections of that app, and of its rooms.

import { isRoom, isUser } from '../../protocol/decode.js';
import { isConnectionId } from '../../protocol/publication.js';
import { ApiFault, badValue, incomplete } from './fault.js';
import { A_CONNECTION, A_ROOM, readLimit, user } from './fields.js';

/** @import { Key } from './keys.js' */

/** An IPv6 address with a zone is shorter. */
const MAX_ADDRESS_LENGTH = 100;

/** @import { Call, ConnectionTarget, SeenConnection, Services } from './call.js' */

/**
 * What can be asked for: is the value valid, and what must it be?
 * @type {Readonly<Record<string, {isValid: (value: string) => boolean, rule: string}>>}
 */
const TARGETS = Object.freeze({
  user: { isValid: isUser, rule: user.rule },
  room: { isValid: isRoom, rule: A_ROOM },
  address: {
    isValid: (value) => value !== '' && value.length <= MAX_ADDRESS_LENGTH,
    rule: `1 to ${MAX_ADDRESS_LENGTH} characters`,
  },
});

export class ConnectionRoutes {
  /** @param {Pick<Services, 'fleet'>} services */
  constructor({ fleet }) {
    this.fleet = fleet;
  }

  /** `GET connections` @param {Call} call */
  list = async (call) => {
    const { limit: most, ...given } = call.readQuery([...Object.keys(TARGETS), 'limit']);
    const limit = readLimit(most);
    const [[name, value] = ['', ''], ...others] = Object.entries(given);
    if (name === '' || others.length > 0)
      throw badValue('user', 'exactly one of user, room and address is required');
    const { isValid, rule } = TARGETS[name];
    if (!isValid(value ?? '')) throw badValue(name, rule);
    call.key.requireAllRooms();
    const target = targetOf(call.key, name, value ?? '');
    const { count, listed, isPartial } = await this.fleet.connections(target, limit);
    const connections = listed.map((one) => shown(call.key, one));
    return { count, connections, partial: isPartial };
  };

  /** `GET connections/:connectionId` @param {Call} call */
  one = async (call) => {
    call.readQuery([]);
    const { connectionId } = call.params;
    if (!isConnectionId(connectionId)) throw badValue('connectionId', A_CONNECTION);
    call.key.requireAllRooms();
    const { listed, isPartial } = await this.fleet.connections({ connectionId });
    const [found] = listed;
    if (found !== undefined && sees(call.key, found)) return shown(call.key, found);
    if (found === undefined && isPartial) throw incomplete();
    throw new ApiFault('NO_CONNECTION');
  };
}

/** @param {Key} key @param {string} name of TARGETS @param {string} value @returns {ConnectionTarget} */
function targetOf(key, name, value) {
  if (name === 'user') return { user: key.names.userOf(value) };
  if (name === 'room') return { room: key.names.roomOf(value) };
  key.requireNoApp(); // clients of other apps have the same address
  return { address: value };
}

/** @param {Key} key @param {SeenConnection} connection @returns {boolean} is it of the key's app? */
export function sees({ app }, connection) {
  return app === null || app.id === connection.app;
}

/** Fields without a value are left out. @param {Key} key @param {SeenConnection} connection */
function shown({ app, names }, connection) {
  const { user: name = '', address, rooms: all, roomCount } = connection;
  const user = names.nameOfUser(name) || undefined;
  const seen = { ...connection, user, address: address || undefined };
  if (app === null) return seen;
  const rooms = all.map(names.nameOf).filter((room) => room !== null);
  return { ...seen, rooms, roomCount: roomCount - (all.length - rooms.length) };
}
