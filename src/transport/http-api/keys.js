// keys.js: finds the API key of a request, and decides about its rights.
//
// Only hashes of keys are kept. A request's is compared with each, so the time tells nothing.

import { createHash, timingSafeEqual } from 'node:crypto';

import { fits } from '../../config/room-patterns.js';
import { namesOf } from '../../protocol/app-names.js';
import { quoted } from '../../protocol/refusal.js';
import { ApiFault } from './fault.js';
import { Holder } from './holder.js';

/** RFC 6750 2.1. A longer header is not hashed. */
const BEARER = /^Bearer +([\x21-\x7e]{1,256}) *$/i;

export const MAX_SECRET_LENGTH = 256;

/** @import { ApiKey, ApiRight } from '../../config/api-keys.js' */
/** @import { App } from '../../config/pusher.js' */
/** @import { AppNames } from '../../protocol/app-names.js' */
/** The apps that keys may name, by id. @typedef {ReadonlyMap<string, App>|null} Apps */

/**
 * Names are those of rooms and users. @type {Pick<AppNames, 'owner'|'roomOf'|'nameOf'|'userOf'|'nameOfUser'|'unnamed'>}
 */
const NATIVE_NAMES = Object.freeze({
  owner: '',
  unnamed: '',
  roomOf: (/** @type {string} */ name) => name,
  nameOf: (/** @type {string} */ room) => room,
  userOf: (/** @type {string} */ name) => name,
  nameOfUser: (/** @type {string} */ user) => user,
});

/** What the holder of one key may do. */
export class Key extends Holder {
  #hash;
  /** Patterns, split at their stars; null for all rooms. @type {string[][]|null} */
  #rooms;

  /** @param {ApiKey} settings @param {Apps} [apps] null: there are none */
  constructor({ name, hash, rights, rooms, app: id }, apps = null) {
    super();
    this.name = name;
    /** The app of the key. @type {App|null} */
    this.app = id === null ? null : (apps?.get(id) ?? null);
    this.isUsable = id === null || (this.app?.isEnabled ?? false);
    /** How its requests name rooms and users. Routes translate names on their way in and out. */
    this.names = id === null ? NATIVE_NAMES : namesOf(this.app ?? { id, isShared: false });
    this.#hash = Buffer.from(hash, 'hex');
    this.#rooms = rooms?.map((pattern) => pattern.split('*')) ?? null;
    /** @type {ReadonlySet<ApiRight>} */
    this.rights = new Set(rights);
  }

  get isForAllRooms() {
    return this.#rooms === null;
  }

  /** @param {Buffer} hash of a secret */
  is(hash) {
    return timingSafeEqual(this.#hash, hash);
  }

  /** @param {ApiRight} right @throws {ApiFault} PERMISSION_DENIED */
  requireRight(right) {
    if (!this.rights.has(right)) throw this.#denied(`lacks the right ${right}`);
  }

  /** @param {string} room */
  covers(room) {
    return this.#rooms === null || this.#rooms.some((parts) => fits(parts, room));
  }

  /** @param {readonly string[]} rooms @throws {ApiFault} even if absent, so no room is betrayed */
  requireRooms(rooms) {
    for (const room of rooms)
      if (!this.covers(room)) throw this.#denied(`does not cover the room ${quoted(room)}`);
  }

  /** @throws {ApiFault} PERMISSION_DENIED: what follows is about all apps */
  requireNoApp() {
    if (this.names !== NATIVE_NAMES)
      throw this.#denied('belongs to an app, and the request concerns all apps');
  }

  /** @throws {ApiFault} PERMISSION_DENIED */
  requireAllRooms() {
    if (!this.isForAllRooms)
      throw this.#denied('is limited to rooms, and the request concerns all rooms');
  }

  /** @param {string} why */
  #denied(why) {
    const message = `The API key ${quoted(this.name)} ${why} (API_KEYS).`;
    return new ApiFault('PERMISSION_DENIED', { message });
  }
}

/**
 * Why no key was found. It names nothing that the client sent.
 * @param {import('node:http').IncomingHttpHeaders} headers @returns {ApiFault}
 */
export function unauthorized({ authorization }) {
  const message =
    authorization === undefined
      ? 'An API key is required: send the header Authorization: Bearer SECRET (API_KEYS).'
      : BEARER.test(authorization)
        ? 'No API key has the secret of the header Authorization (API_KEYS).'
        : 'The header Authorization does not have the form of an API key: Bearer SECRET.';
  return new ApiFault('UNAUTHORIZED', { message });
}

export class KeyRing {
  /** @param {readonly ApiKey[]} settings @param {Apps} [apps] null: there are none */
  constructor(settings, apps = null) {
    this.keys = settings.map((one) => new Key(one, apps));
  }

  /** @param {string|undefined} authorization the header @returns {Key|null} null: no valid key */
  findByHeader(authorization) {
    const secret = BEARER.exec(authorization ?? '')?.[1];
    return secret === undefined ? null : this.findSecret(secret);
  }

  /** @param {string} secret at most MAX_SECRET_LENGTH @returns {Key|null} */
  findSecret(secret) {
    const hash = createHash('sha256').update(secret).digest();
    /** @type {Key|null} */
    let found = null;
    for (const key of this.keys) if (key.is(hash)) found = key;
    return found;
  }
}
