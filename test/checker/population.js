// population.js: the clients of a random run beside the subscribers and publishers: streams, the client
// libraries, visitors, users in rooms with presence, users with too many connections, users whose
// tokens are revoked, members and publishers of rooms with state, and clients of Pusher's and
// Centrifugo's protocols if the run wants them. For webhooks there are also commuters, whose rooms
// are often empty.
//
// They live through the faults. Now and then some of them act as clients do: leave, return, publish
// without an echo, join again.

import { pause } from '../harness/run.js';
import { COUNTED } from '../helpers/pusher.js';
import { SECRET, token } from '../helpers/tokens.js';
import { AUDIENCE_STATE, AudiencePeople } from './audience-people.js';
import { CentrifugoClient, TRANSPORTS } from './centrifugo-client.js';
import { SETTLE_US } from './indexed-run.js';
import { LibraryClient } from './library-client.js';
import { Person, Visitor } from './people.js';
import { PusherClient } from './pusher-client.js';
import { STATE_RULES, StatePeople } from './state-people.js';
import { StreamClient } from './stream-client.js';

/** Rooms with presence, for FANFARE_PRESENCE. */
export const PRESENCE_PREFIX = 'c.';
const PRESENCE_ROOMS = Object.freeze([`${PRESENCE_PREFIX}0`, `${PRESENCE_PREFIX}1`]);
/** A room with history and presence. FANFARE_HISTORY of each run covers it. */
export const KEPT_PRESENCE_ROOM = 'h.users';
/** Of commuters. */
export const COMMUTED_ROOMS = Object.freeze(
  Array.from({ length: 20 }, (_, i) => `${PRESENCE_PREFIX}${10 + i}`),
);
/** A room for clients that may be refused. */
const DOOR = 'door';
const CROWD = 'crowd';
const ALLOWED = 4;
const WANTED = 8;
const PEOPLE = 12;
const SUSPECTS = 40;
const COMMUTERS = 40;
const VISITORS = 6;
/** Clients of Pusher's protocol: in plain rooms, and in a channel with presence. */
const PUSHERS = 12;
const MEMBERS = 12;
export const PUSHER_ROOM = 'presence-0';
/** In channels of an app that tells subscribers how many they are. */
const SEATED = 8;
const SEATS = Object.freeze(['seats-0', 'seats-1']);
/**
 * Of Centrifugo's protocol, over each of its transports: without tokens, with tokens of subscriptions,
 * and with those of connections that subscribe them.
 */
const CENTRIFUGOS = 12;
/** After this time the library renews the token of a subscription. */
const SUBSCRIPTION_S = 8;
const LIBRARIES = 6;
/** Groups that a run may leave out. */
const GROUPS = /** @type {const} */ ([
  ...['visitors', 'streams', 'libraries', 'people', 'crowd', 'suspects', 'commuters'],
  ...['pushers', 'members', 'centrifugos', 'seated'],
]);
/** Less than any history keeps, and than a reply may hold. */
const LAST = 30;
const TICK_MS = 250;
/** Average numbers of ticks between two. */
const TICKS = Object.freeze({
  visit: 1,
  again: 12,
  move: 24,
  stir: 5,
  crowd: 8,
  revoke: 16,
  commute: 6,
  depart: 8,
});
const AWAY_MS = /** @type {const} */ ([1000, 40_000]);
const VISIT_MS = /** @type {const} */ ([50, 1500]);
/** Long enough for the messages of one room to pass the position in another. */
const MOVE_MS = /** @type {const} */ ([1000, 8000]);
const API_MS = 5000;
/** A little more than the checker demands. */
const CALM_MS = SETTLE_US / 1000 + 1500;
const RIGHTS = Object.freeze({
  rooms: { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] },
});
/** A revocation counts for the tokens of earlier seconds. */
const ISSUED_AGO_S = 10;

/** Settings of a server for these clients. @param {string} secret of the HTTP API */
export const settingsOf = (secret) => ({
  JWT_SECRET: SECRET,
  FANFARE_AUTH: 'optional',
  API_KEYS: `checker ${secret} all`,
  FANFARE_PRESENCE: `${PRESENCE_PREFIX}*,${KEPT_PRESENCE_ROOM}`,
  FANFARE_STATE: STATE_RULES,
  FANFARE_MAX_CONNECTIONS_PER_USER: `${ALLOWED}`,
  FANFARE_MAX_CONNECTIONS_PER_USER_MODE: 'enforce',
  FANFARE_FLEET_LIMITS_MODE: 'enforce',
});

/** How the first line of a record describes them. */
export const FACTS = Object.freeze({
  presence: [...PRESENCE_ROOMS, ...COMMUTED_ROOMS, PUSHER_ROOM, KEPT_PRESENCE_ROOM],
  capped: { [CROWD]: { allowed: ALLOWED, wanted: WANTED } },
});

/** @param {string} user @param {object} [claims] */
function tokenOf(user, claims = {}) {
  const iat = Math.floor(Date.now() / 1000) - ISSUED_AGO_S;
  return token({ sub: user, iat, exp: iat + 3600, ...RIGHTS, ...claims });
}

/** As CENTRIFUGOS has them. @type {readonly ((user: string, rooms: readonly string[]) => object)[]} */
const CENTRIFUGO_TOKENS = Object.freeze([
  () => ({}),
  () => ({ tokenOf: subscriptionToken }),
  (/** @type {string} */ user, /** @type {readonly string[]} */ rooms) => ({
    user,
    token: () => tokenOf(user, { channels: rooms }),
  }),
]);

/** @param {string} channel */
function subscriptionToken(channel) {
  const nowS = Math.floor(Date.now() / 1000);
  const times = { iat: nowS - ISSUED_AGO_S, exp: nowS + SUBSCRIPTION_S };
  return token({ sub: undefined, channel, ...times });
}

export class Population {
  /**
   * @param {object} parts
   * @param {number} parts.firstId of their clients
   * @param {readonly string[]} parts.urls of the servers
   * @param {readonly string[]} parts.wires ways to them that break
   * @param {string} parts.secret of the HTTP API
   * @param {readonly string[]} parts.rooms of the workload
   * @param {readonly string[]} parts.history those of them with history
   * @param {import('../helpers/pusher.js').Credentials|null} parts.app of Pusher clients; null: there
   *   are none
   * @param {boolean} [parts.hasCentrifugo] are there clients of Centrifugo's protocol?
   * @param {import('./record.js').Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   * @param {readonly string[]} [parts.kept] a room with history and presence in a busy run, in which
   *   others decide when users come and go
   * @param {boolean} [parts.hasCommuters]
   * @param {boolean} [parts.hasAudiences] are there messages for an audience?
   * @param {boolean} [parts.hasBucket] for large ones of these
   * @param {readonly string[]} [parts.hooks] that a back end answers
   * @param {number} [parts.bytes] of padding in the values of rooms with state
   * @param {number} [parts.last] the most messages that a join asks for
   * @param {number} [parts.stubborn] so many publishers of rooms with state repeat what was refused
   * @param {readonly string[]} [parts.groups] only these of GROUPS, and `states`; without it: all
   */
  constructor({
    groups,
    firstId,
    urls,
    wires,
    secret,
    rooms,
    history,
    app,
    hasCentrifugo = false,
    recorder,
    random,
    kept = [],
    hasCommuters = false,
    hasAudiences = false,
    hasBucket,
    hooks,
    bytes,
    last = LAST,
    stubborn,
  }) {
    this.urls = urls;
    this.secret = secret;
    this.recorder = recorder;
    this.random = random;
    this.isBusy = kept.length > 0;
    let id = firstId;
    const common = () => ({ id: id++, urls, recorder, random });
    /** @param {readonly string[]} from @param {number} count */
    const some = (from, count) => random.shuffled(from).slice(0, count);
    // The first room gets floods of messages that no reply with `last` can hold.
    const small = history.slice(1);

    this.visitors = Array.from(
      { length: VISITORS },
      () => new Visitor({ ...common(), rooms: some(small, 2), last }),
    );
    const streamOf = (/** @type {string[]} */ asked, /** @type {object} */ more = {}) =>
      new StreamClient({ ...common(), visits: [{ rooms: asked }], ...more });
    this.mover = this.#shifting(common(), some(history, 3));
    this.streams = [
      this.mover,
      ...[1, 1, 2, 2, 3, 4].map((count) => streamOf(some(history, count))),
      ...[2, 3].map((count) => streamOf(some(rooms, count), { urls: wires })),
      ...[1, 2].map((count) => streamOf(some(small, count), { last })),
    ];
    this.libraries = Array.from({ length: LIBRARIES }, (_, i) => {
      const user = `lib${i}`;
      const isStream = i % 3 === 2;
      return new LibraryClient({
        id: id++,
        url: wires[i % wires.length],
        server: i % wires.length,
        isStream,
        rooms: some(small, 2),
        presence: isStream ? [] : [PRESENCE_ROOMS[0]],
        ...(i % 2 === 0 && { last }),
        user,
        token: () => tokenOf(user),
        recorder,
      });
    });
    const person = (/** @type {string} */ user, /** @type {readonly string[]} */ where) =>
      new Person({ ...common(), rooms: where, user, token: tokenOf(user) });
    this.people = Array.from({ length: PEOPLE }, (_, i) =>
      // A room of its own has no other members: each visit opens it.
      person(`u${i}`, [
        ...PRESENCE_ROOMS.slice(0, i % 3 === 0 ? 1 : 2),
        ...kept,
        ...(kept.length > 0 ? [`${PRESENCE_PREFIX}own.${i}`] : []),
      ]),
    );
    this.crowd = Array.from({ length: WANTED }, () => person(CROWD, PRESENCE_ROOMS.slice(1)));
    this.suspects = Array.from({ length: SUSPECTS }, (_, i) => {
      const user = `s${i}`;
      if (i % 3 > 0) return person(user, [DOOR]);
      return streamOf([], { user, visits: [{ rooms: [DOOR], token: tokenOf(user) }] });
    });
    this.commuters = Array.from({ length: hasCommuters ? COMMUTERS : 0 }, (_, i) =>
      person(`w${i}`, some(COMMUTED_ROOMS, 2)),
    );
    /** Those who have left for good. @type {Person[]} */
    this.departed = [];
    for (const client of this.crowd) client.mayBeRefused = true;
    const plain = rooms.filter((room) => !history.includes(room));
    const pushersOf = (/** @type {number} */ length, /** @type {(i: number) => object} */ what) =>
      app === null
        ? []
        : Array.from(
            { length },
            (_, i) => new PusherClient({ ...common(), rooms: [], app, ...what(i) }),
          );
    this.pushers = pushersOf(PUSHERS, () => ({ rooms: some(plain, 3) }));
    // Some users have two connections.
    this.members = pushersOf(MEMBERS, (i) => ({
      rooms: [PUSHER_ROOM],
      user: `m${i % (MEMBERS - 4)}`,
    }));
    this.centrifugos = Array.from({ length: hasCentrifugo ? CENTRIFUGOS : 0 }, (_, i) => {
      const own = some(history, 3);
      return new CentrifugoClient({
        ...common(),
        urls: i % 3 === 0 ? wires : urls,
        rooms: own,
        transport: TRANSPORTS[i % TRANSPORTS.length],
        ...CENTRIFUGO_TOKENS[Math.floor(i / TRANSPORTS.length)](`cf${i}`, own),
      });
    });
    const ofStates = { firstId: id, urls, wires, secret, recorder, random, bytes, stubborn };
    this.states = new StatePeople(ofStates);
    id += this.states.members.length;
    // Nothing is drawn if nobody takes part.
    this.audiences = hasAudiences
      ? new AudiencePeople({
          ...{ firstId: id, urls, wires, secret, recorder, random, hasCentrifugo, app, hooks },
          hasBucket,
        })
      : null;
    if (this.audiences !== null) this.states.watch(AUDIENCE_STATE, this.audiences.stateMembers);
    // Only a busy run rests until all servers know who is dead.
    this.seated = Array.from({ length: app !== null && this.isBusy ? SEATED : 0 }, (_, i) => {
      const own = SEATS.slice(0, 1 + (i % 2));
      return new PusherClient({ ...common(), rooms: own, app: COUNTED });
    });
    if (groups !== undefined) this.#keep(groups);
    /** How many of the suspects are revoked. */
    this.revoked = 0;
    this.isRevoking = false;
    /** Users come and go. */
    this.isStirring = true;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** @param {readonly string[]} groups */
  #keep(groups) {
    for (const group of GROUPS) if (!groups.includes(group)) this[group] = [];
    if (!groups.includes('states')) this.states.dismiss();
  }

  /**
   * The page of a user who leaves and joins a team: its tokens join other rooms.
   * @param {{id: number, urls: readonly string[], recorder: any, random: any}} common
   * @param {string[]} rooms
   */
  #shifting(common, [lobby, team, alerts]) {
    const user = 'mover';
    const visit = (/** @type {string[]} */ ...joined) => ({
      rooms: [lobby],
      joined,
      token: tokenOf(user, { autojoin: joined }),
    });
    const visits = [visit(team, alerts), visit(alerts), visit(alerts, team)];
    return new StreamClient({ ...common, visits, user });
  }

  /** Those whom every message has to reach. */
  get listeners() {
    const { visitors, streams, libraries, pushers, centrifugos, states } = this;
    const { members } = states;
    const others = [
      ...members,
      ...(this.audiences?.members ?? []),
      ...(this.isBusy ? this.people : []),
    ];
    return [...visitors, ...streams, ...libraries, ...pushers, ...centrifugos, ...others];
  }

  get everybody() {
    const { listeners, members, people, crowd, suspects, commuters, departed, seated } = this;
    const others = [...members, ...people, ...crowd, ...suspects, ...commuters, ...departed];
    return [...new Set([...listeners, ...others, ...seated])];
  }

  /** Those whose connections have a user. */
  get users() {
    const natives = this.everybody.flatMap((client) =>
      client instanceof PusherClient ? [] : [client],
    );
    const ofAudiences = this.audiences?.users ?? [];
    return [...new Set([...natives.flatMap(({ user }) => user ?? []), ...ofAudiences])];
  }

  start() {
    for (const client of this.everybody) client.start();
    for (const publisher of this.states.publishers) publisher.start();
    this.audiences?.start();
  }

  /** They begin to do things. */
  begin() {
    this.timer = setInterval(() => this.#tick(), TICK_MS);
    this.states.begin();
    this.audiences?.begin();
  }

  /** Some of them lose their connections. @param {number} share @param {() => number} delayMs */
  lose(share, delayMs) {
    const { streams, visitors, pushers, members, centrifugos, states } = this;
    const others = [...pushers, ...members, ...this.seated, ...centrifugos, ...states.clients];
    const clients = [...streams, ...visitors, ...others, ...(this.audiences?.leavers ?? [])];
    const count = Math.ceil(share * clients.length);
    for (const client of this.random.shuffled(clients).slice(0, count)) client.leave(delayMs());
  }

  /** Nobody comes or goes from now on. */
  rest() {
    this.#stirs(false);
  }

  /** They come and go again. */
  goOn() {
    this.#stirs(true);
  }

  /** Waits for calm, and records the state that must hold then. */
  async census() {
    this.rest();
    await pause(CALM_MS);
    const { people, members, libraries, commuters, seated } = this;
    for (const client of [...people, ...members, ...libraries, ...commuters, ...seated])
      client.list();
    this.recorder.write({ type: 'census' });
    await this.states.compare();
    this.goOn();
  }

  /** @param {boolean} isStirring */
  #stirs(isStirring) {
    this.isStirring = this.states.isStirring = isStirring;
    this.audiences?.stir(isStirring);
  }

  /** No client acts any more, and all return. */
  silence() {
    clearInterval(this.timer);
    this.states.silence();
    this.audiences?.silence();
    if (!this.streams.includes(this.mover)) return;
    this.mover.visits = this.mover.visits.slice(0, 1);
    this.mover.leave(0);
  }

  #tick() {
    const { random, visitors, streams, libraries, crowd } = this;
    const isTime = (/** @type {keyof typeof TICKS} */ what) => random.next() * TICKS[what] < 1;
    for (const library of libraries)
      if (!library.isStream) library.publish(random.pick([...library.places.keys()]));
    if (isTime('visit') && visitors.length > 0)
      random.pick(visitors).leave(random.between(...VISIT_MS));
    if (isTime('again') && libraries.length > 0) {
      const library = random.pick(libraries);
      library.again(random.pick([...library.places.keys()]));
    }
    if (isTime('move') && streams.includes(this.mover))
      this.mover.leave(random.between(...MOVE_MS));
    if (isTime('revoke')) this.#revoke();
    if (!this.isStirring) return;
    if (isTime('crowd') && crowd.length > 0) random.pick(crowd).leave(random.between(...VISIT_MS));
    if (isTime('stir') && !this.isBusy) this.stir([...this.people, ...this.members]);
    if (isTime('commute') && this.commuters.length > 0) this.stir(this.commuters);
    if (this.commuters.length > 0 && isTime('depart')) this.#depart();
  }

  /**
   * Somebody leaves, and returns later.
   * @param {readonly (Person|PusherClient)[]} [people] @param {number} [awayMs]
   */
  stir(people = this.people, awayMs = this.random.between(...AWAY_MS)) {
    const { random } = this;
    if (people.length === 0) return;
    const person = random.pick(people);
    if (random.below(2) === 0) person.leave(awayMs);
    else person.stepOut(random.pick([...person.places.keys()]), awayMs);
  }

  /** One of the commuters leaves for good, so that a lost event of its leaving shows. */
  #depart() {
    const { commuters, departed, random } = this;
    if (2 * departed.length >= COMMUTERS) return;
    const [one] = commuters.splice(random.below(commuters.length), 1);
    departed.push(one);
    one.stop();
  }

  /** Revokes the next one. It is asked for again until a server confirms it. */
  async #revoke() {
    const suspect = this.suspects[this.revoked];
    if (suspect === undefined || this.isRevoking) return;
    const { user } = suspect;
    this.isRevoking = true;
    suspect.mayBeRefused = true;
    const isDone = await this.post('api/revoke', { user });
    this.isRevoking = false;
    if (!isDone) return;
    this.recorder.write({ type: 'revoke', user: String(user) });
    this.revoked++;
  }

  /**
   * A request of the back end to one of the servers.
   * @param {string} path @param {unknown} body
   * @returns {Promise<boolean>} false: it was refused, or the server is unavailable or too slow
   */
  async post(path, body) {
    const url = this.random.pick(this.urls).replace(/^ws/, 'http');
    try {
      const { status } = await fetch(`${url}${path}`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${this.secret}`, 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(API_MS),
      });
      return status === 200;
    } catch {
      return false;
    }
  }
}
