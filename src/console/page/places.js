// places.js: the places of the navigation, and which view an address shows.

import { DoctorView } from './doctor.js';
import { LimitsView } from './limits.js';
import { Overview } from './overview.js';
import { PublishView } from './publish.js';
import { RoomView } from './room.js';
import { RoomsView, TopRoomsView } from './rooms.js';
import { ServersView } from './servers.js';
import { UsersView } from './users.js';
import { WebhooksView } from './webhooks.js';

/** @typedef {import('preact').ComponentType<import('./view.js').ViewProps>} View */

/**
 * @typedef {object} Place
 * @property {string} path the first of its views
 * @property {string} title @property {import('./parts.js').IconName} icon
 * @property {Readonly<Record<string, View>>} views by path
 * @property {View} [named] if the address has a name after `path`
 */

/** @type {readonly Place[]} */
export const PLACES = [
  { path: '', title: 'Overview', icon: 'overview', views: { '': Overview } },
  {
    path: 'rooms',
    title: 'Rooms',
    icon: 'rooms',
    views: { rooms: RoomsView, largest: TopRoomsView, busiest: TopRoomsView },
    named: RoomView,
  },
  {
    path: 'users',
    title: 'Users',
    icon: 'users',
    views: {
      users: UsersView,
      members: UsersView,
      addresses: UsersView,
      connections: UsersView,
    },
  },
  { path: 'publish', title: 'Publish', icon: 'publish', views: { publish: PublishView } },
  { path: 'servers', title: 'Servers', icon: 'servers', views: { servers: ServersView } },
  { path: 'webhooks', title: 'Webhooks', icon: 'plug', views: { webhooks: WebhooksView } },
  { path: 'limits', title: 'Limits', icon: 'limits', views: { limits: LimitsView } },
  { path: 'doctor', title: 'Doctor', icon: 'doctor', views: { doctor: DoctorView } },
];

/** @param {string} hash of the address, such as `#/rooms/chat.42`; the overview if it is unknown */
export function lookUp(hash) {
  const [wanted, encoded = ''] = hash.replace(/^#\//, '').split('/');
  const place = PLACES.find(({ views }) => Object.hasOwn(views, wanted)) ?? PLACES[0];
  const path = Object.hasOwn(place.views, wanted) ? wanted : place.path;
  const name = decoded(encoded);
  const named = path === place.path && name !== '' ? place.named : undefined;
  return { place, path, name, View: named ?? place.views[path] };
}

/** @param {string} text of the hash */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
