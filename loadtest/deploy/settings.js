// settings.js: names and secrets that servers, clients and publishers share.

/** A Pusher app. */
export const APP = Object.freeze({
  id: '1',
  key: 'app-key',
  secret: 'a-secret-of-32-or-more-characters',
});
/** The key of HTTP APIs. */
export const API_KEY = 'a-key-of-32-or-more-characters-0000';
/** Members of a room. Each message goes to one room. */
export const ROOM_SIZE = 100;

/** @param {number} index @returns {string} */
export const roomOf = (index) => `deploy.${index}`;
