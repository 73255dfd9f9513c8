// place-keys.js: keys of places: connections are counted by client address, by user and by app.
//
// A key is short ASCII: an address as limits count it (admission/address.js), the hash of a user's
// name, or the id of a door's app.

/** @typedef {'address'|'user'|'app'} PlaceKind */

/** Prefix of users' keys. No address begins with it. */
export const USER_PREFIX = 'user:';
const APP_PREFIX = 'app:';

/** @param {string} key @returns {PlaceKind} */
export function kindOfKey(key) {
  if (key.startsWith(USER_PREFIX)) return 'user';
  return key.startsWith(APP_PREFIX) ? 'app' : 'address';
}

/** @param {string} id of an app, short ASCII @returns {string} its key */
export function appPlaceKey(id) {
  return APP_PREFIX + id;
}
