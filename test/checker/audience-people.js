// audience-people.js: members of a room with history whose messages are partly for an audience. Half
// of the members hold it, by their tokens. A publisher sends for everybody and for the audience.
//
// A member gets no message of some offsets, so these clients are not those of the other rooms: their
// events are AudienceEvents, which have invariants of their own.

import { token } from '../helpers/tokens.js';
import { HANDLERS, RecoveringClient } from './client.js';
import { Publisher } from './publisher.js';

/** FANFARE_HISTORY of each run covers it. */
const ROOM = 'h.staff';
const AUDIENCE = 'staff';
const MEMBERS = 8;
const RESTRICTED_SHARE = 0.5;
const TICK_MS = 200;
/** Average number of ticks until a member leaves, and how long it stays away. */
const AWAY_TICKS = 20;
const AWAY_MS = /** @type {const} */ ([100, 3000]);

/** @typedef {import('./record.js').Recorder} Recorder */

/**
 * Records what a client of the room does as AudienceEvents.
 * @param {Recorder} recorder @param {boolean} [holds] the audience
 */
function audienceRecorder(recorder, holds = false) {
  /** @type {import('./record.js').Position|undefined} */
  let since;
  /** @param {any} event */
  const write = ({ type, value, client, epoch, offset, recovered, ...about }) => {
    const place = { client, epoch, offset };
    if (type === 'ok') recorder.write({ type: 'audience', what: 'ok', value, epoch, offset });
    else if (type === 'subscribe') since = about.since;
    else if (type === 'reply')
      recorder.write({ type: 'audience', what: 'joined', ...place, holds, since, recovered });
    else if (type === 'deliver')
      recorder.write({ type: 'audience', what: 'got', ...place, holds, value });
    else if (type === 'resync' || type === 'passed')
      recorder.write({ type: 'audience', what: type, ...place });
    else if (type === 'close') recorder.write({ type: 'audience', what: 'close', client });
  };
  return /** @type {Recorder} */ (/** @type {unknown} */ ({ write }));
}

/** @type {import('./client.js').Handlers} */
const AUDIENCE_HANDLERS = {
  ...HANDLERS,
  position({ id, places, recorder }, { room, epoch, offset }) {
    const place = places.get(room);
    if (place === undefined) return;
    const { position } = place;
    if (position !== null && position.epoch === epoch && offset <= position.offset) return;
    recorder.write(/** @type {any} */ ({ type: 'passed', client: id, epoch, offset }));
    place.position = { epoch, offset };
  },
};

class AudienceMember extends RecoveringClient {
  /** @param {ConstructorParameters<typeof RecoveringClient>[0]} parts */
  constructor(parts) {
    super(parts);
    this.handlers = AUDIENCE_HANDLERS;
  }
}

/** @param {string} user @param {object} [claims] */
const tokenOf = (user, claims = {}) =>
  token({ sub: user, rooms: { join: [ROOM], publish: [ROOM], audience: [ROOM] }, ...claims });

export class AudiencePeople {
  /**
   * @param {object} parts
   * @param {number} parts.firstId of the members
   * @param {readonly string[]} parts.urls of the servers
   * @param {Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   */
  constructor({ firstId, urls, recorder, random }) {
    this.random = random;
    this.recorder = recorder;
    this.members = Array.from({ length: MEMBERS }, (_, i) => {
      const holds = i % 2 === 0;
      return new AudienceMember({
        ...{ id: firstId + i, urls, rooms: [ROOM], random },
        token: tokenOf(`reader${i}`, holds ? { audiences: [AUDIENCE] } : {}),
        recorder: audienceRecorder(recorder, holds),
      });
    });
    const query = `ws?token=${tokenOf('writer')}`;
    this.publisher = new Publisher({
      ...{ id: 's0', window: 8, recorder: audienceRecorder(recorder) },
      urls: urls.map((url) => `${url}${query}`),
    });
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** Nobody takes part. */
  dismiss() {
    this.members = [];
  }

  start() {
    if (this.members.length > 0) this.publisher.start();
  }

  begin() {
    if (this.members.length > 0) this.timer = setInterval(() => this.#tick(), TICK_MS);
  }

  silence() {
    clearInterval(this.timer);
  }

  #tick() {
    const { random, publisher, members, recorder } = this;
    if (random.next() * AWAY_TICKS < 1) random.pick(members).leave(random.between(...AWAY_MS));
    const audience = random.next() < RESTRICTED_SHARE ? [AUDIENCE] : undefined;
    const value = publisher.publish(ROOM, { audience });
    if (value !== '')
      recorder.write({
        type: 'audience',
        what: 'put',
        value,
        isRestricted: audience !== undefined,
      });
  }
}
