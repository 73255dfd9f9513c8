// audience-hooks.js: what the back end of a simulated run answers to hooks about audiences. Clients
// know these rules, so the record says who holds what, and for whom a message is.

import { valueIn } from './payloads.js';

/** A room in which onJoin gives everybody an audience. Who has no user holds none there, either. */
const TEAM = /^h\.team$/;
const OF_TEAM = Object.freeze(['c']);
/** To each other reader onConnect gives one. */
const FAVOURED = /^reader\d*[02468]$/;
const OF_FAVOURED = Object.freeze(['b']);
/** onPublish replaces the audience of messages of one publisher, and of what a Pusher client sends. */
const HOOKED = /^s[13]:(\d+):/;
const OF_HOOKED = Object.freeze(['a', 'b', 'c']);
/** @type {readonly string[]} */
const NONE = Object.freeze([]);

/** @param {readonly string[]} hooks those that are asked @param {string|undefined} user */
export function givenOnConnect(hooks, user) {
  return hooks.includes('onConnect') && FAVOURED.test(user ?? '') ? OF_FAVOURED : NONE;
}

/** @param {readonly string[]} hooks @param {string} room */
export function givenOnJoin(hooks, room) {
  return hooks.includes('onJoin') && TEAM.test(room) ? OF_TEAM : NONE;
}

/** @param {readonly string[]} hooks @param {unknown} value @returns {readonly string[]} empty: the message's own */
export function audienceOnPublish(hooks, value) {
  const sequence = hooks.includes('onPublish') && HOOKED.exec(`${value}`)?.[1];
  return sequence ? [OF_HOOKED[Number(sequence) % OF_HOOKED.length]] : NONE;
}

/**
 * @param {readonly string[]} hooks @param {any} question as hooks over HTTP ask it
 * @returns {object|undefined} undefined: allowed
 */
export function answerAboutAudiences(hooks, { hook, request, room, payload }) {
  if (hook === 'onPublish') {
    const audience = audienceOnPublish(hooks, valueIn(payload));
    return audience.length > 0 ? { audience } : undefined;
  }
  const audiences =
    hook === 'onConnect' ? givenOnConnect(hooks, request?.user) : givenOnJoin(hooks, room);
  return audiences.length > 0 ? { audiences } : undefined;
}
