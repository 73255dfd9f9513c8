// audience-people.js: members of rooms whose messages are partly for audiences: one with history, one
// whose audiences also come from hooks, a plain one and one with state. They come through each door,
// with tokens that change, and the HTTP API gives them audiences and takes them back. Publishers send
// to everybody and to audiences, by WebSocket and by the HTTP API.
//
// A member gets no message of some offsets, so these clients are not those of the other rooms: their
// events are AudienceEvents, which have invariants of their own.

import {
  AudienceClient,
  AudienceStateClient,
  audienceRecorder,
  audienceToken,
  Holder,
} from './audience-clients.js';
import { CentrifugoClient, TRANSPORTS } from './centrifugo-client.js';
import { LibraryClient } from './library-client.js';
import { largePayload } from './payloads.js';
import { Publisher } from './publisher.js';
import { PusherClient } from './pusher-client.js';
import { StateLibrary, stateRecorder } from './state-clients.js';
import { StreamClient } from './stream-client.js';

/** FANFARE_HISTORY and FANFARE_STATE of each run cover them. */
const STAFF = 'h.staff';
const TEAM = 'h.team';
const PLAIN = 'p.staff';
/** With history, which keeps no events of Pusher clients. */
const WHISPERED = 'private-staff';
export const AUDIENCE_STATE = 'k.staff';
/** Its messages are in webhooks, if there is an endpoint for messages. */
export const RECORDED_ROOM = STAFF;
const NAMES = Object.freeze(['a', 'b', 'c']);
/** Whoever gets a message that names nobody has got a message for nobody. */
const NOBODY = 'nobody';
const RESTRICTED_SHARE = 0.6;
const KEYS = 5;
const REMOVED_SHARE = 0.3;
const TICK_MS = 200;
/** Of padding, in some messages: a reader that stands still for seconds lags. */
const LARGE_BYTES = 12_000;
const LARGE_SHARE = 0.1;
const FLOOD = 30;
/** What lies in the bucket, if there is one, is larger than messages may be. */
const BUCKET_BYTES = 20_000;
const BUCKET_SHARE = 0.25;
/** Less than any history keeps. */
const LAST = 20;
const READERS = 6;
const STATE_READERS = 4;
/** Average numbers of ticks between two. */
const TICKS = Object.freeze({
  leave: 12,
  exodus: 40,
  renew: 6,
  give: 8,
  out: 16,
  read: 3,
  say: 3,
  flood: 60,
  revoke: 100,
  again: 20,
  post: 3,
  whisper: 2,
});
const AWAY_MS = /** @type {const} */ ([100, 3000]);
const EXODUS_MS = 400;
const STILL_MS = /** @type {const} */ ([1500, 5000]);
const API_MS = 5000;

/** @typedef {import('./record.js').Recorder} Recorder */
/** @typedef {AudienceClient|AudienceStateClient} Reader */

export class AudiencePeople {
  /**
   * @param {object} parts
   * @param {number} parts.firstId of the members
   * @param {readonly string[]} parts.urls of the servers
   * @param {readonly string[]} parts.wires ways to them that break
   * @param {string} parts.secret of the HTTP API
   * @param {Recorder} parts.recorder
   * @param {import('./random.js').Random} parts.random
   * @param {boolean} parts.hasCentrifugo
   * @param {import('../helpers/pusher.js').Credentials|null} parts.app of Pusher clients
   * @param {readonly string[]} [parts.hooks] that the back end answers (audience-hooks.js)
   * @param {boolean} [parts.hasBucket] for large messages
   */
  constructor({ firstId, urls, wires, secret, recorder, random, hasCentrifugo, app, ...parts }) {
    const { hooks = [], hasBucket = false } = parts;
    this.urls = urls;
    this.wires = wires;
    this.secret = secret;
    this.recorder = recorder;
    this.random = random;
    this.app = app;
    this.hooks = hooks;
    this.hasBucket = hasBucket;
    this.nextId = firstId;
    /** Users of the members. @type {string[]} */
    this.named = [];
    this.readers = Array.from({ length: READERS }, (_, i) => this.#reader(i));
    this.states = Array.from({ length: STATE_READERS }, (_, i) => this.#stateReader(i));
    this.stateLibraries = [false, true].map((isStream) => this.#stateLibrary(isStream));
    this.libraries = [false, true].map((isStream) => this.#library(isStream));
    this.streams = [[STAFF], [STAFF, TEAM], [PLAIN]].map((rooms) => this.#stream(rooms));
    this.centrifugos = hasCentrifugo ? TRANSPORTS.map((one) => this.#centrifugo(one)) : [];
    this.pushers = app === null ? [] : [this.#pusher(app)];
    const query = (/** @type {string} */ user) =>
      urls.map((url) => `${url}ws?token=${audienceToken(user, { everywhere: [], some: [] })}`);
    const common = { window: 32, recorder: audienceRecorder(recorder, { hooks }) };
    this.publishers = ['s0', 's1'].map(
      (id) => new Publisher({ id, ...common, urls: query(`writer-${id}`) }),
    );
    const states = /** @type {Recorder} */ (/** @type {unknown} */ (stateRecorder(recorder)));
    this.setter = new Publisher({ id: 'k9', window: 4, recorder: states, urls: query('setter') });
    this.posted = 0;
    /** Events that Pusher clients have sent. */
    this.said = 0;
    this.isStirring = true;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** Nobody takes part. */
  dismiss() {
    for (const list of /** @type {const} */ (['readers', 'states', 'libraries', 'streams']))
      this[list] = [];
    this.stateLibraries = this.centrifugos = this.pushers = [];
  }

  get members() {
    const { readers, libraries, streams, centrifugos, pushers } = this;
    return [...readers, ...libraries, ...streams, ...centrifugos, ...pushers, ...this.stateMembers];
  }

  /** Of the room with state. */
  get stateMembers() {
    return [...this.states, ...this.stateLibraries];
  }

  /** Rooms in which Pusher clients send events. */
  get whispered() {
    return this.app === null ? [] : [WHISPERED];
  }

  /** Those that can lose their connection. */
  get leavers() {
    return [...this.readers, ...this.states, ...this.streams, ...this.centrifugos, ...this.pushers];
  }

  get senders() {
    return [...this.publishers, this.setter];
  }

  /** Those whose connections have a user. */
  get users() {
    if (this.members.length === 0) return [];
    return [...this.named, 'writer-s0', 'writer-s1', 'setter'];
  }

  start() {
    if (this.members.length === 0) return;
    for (const one of this.senders) one.start();
  }

  begin() {
    if (this.members.length > 0) this.timer = setInterval(() => this.#tick(), TICK_MS);
  }

  /**
   * May rights change, and members leave? The last rights to change are those of many at once, so that
   * no later change mends what is wrong.
   * @param {boolean} isStirring
   */
  stir(isStirring) {
    const { random } = this;
    if (this.isStirring && !isStirring)
      for (const one of this.#holders) if (random.below(2) === 0) one.renew();
    this.isStirring = isStirring;
  }

  silence() {
    clearInterval(this.timer);
  }

  /** @returns {import('./audience-clients.js').Named} */
  #draw() {
    const { random } = this;
    const some = () => NAMES.filter(() => random.next() < 0.35);
    const everywhere = random.next() < 0.06 ? ['*'] : some();
    return { everywhere, some: random.next() < 0.3 ? some() : [] };
  }

  /** @param {number} id @param {string|undefined} user @param {'audience'|'state'} [type] */
  #holder(id, user, type = 'audience') {
    const { hooks, recorder } = this;
    if (user !== undefined) this.named.push(user);
    return new Holder({ client: id, user, hooks, type, recorder, draw: () => this.#draw() });
  }

  /** One of them has no token, and some ask for the latest messages. @param {number} i */
  #reader(i) {
    const { urls, random, hooks } = this;
    const id = this.nextId++;
    const user = i === 0 ? undefined : `reader${i}`;
    const rooms = i % 3 === 2 ? [STAFF, PLAIN, ...this.whispered] : [STAFF, TEAM];
    const recorder = audienceRecorder(this.recorder, { hooks, tellsPositions: true });
    const client = new AudienceClient({ id, urls, rooms, random, user, recorder });
    if (i === 4) client.last = LAST;
    return client.with(this.#holder(id, user));
  }

  /** @param {number} i */
  #stateReader(i) {
    const { urls, random, recorder } = this;
    const id = this.nextId++;
    const user = i === 0 ? undefined : `reader${100 + i}`;
    const client = new AudienceStateClient({
      ...{ id, urls, rooms: [AUDIENCE_STATE], random, user, recorder },
    });
    return client.with(this.#holder(id, user, 'state'));
  }

  /**
   * What a client that begins each connection with another token needs.
   * @param {string} user @param {'audience'|'state'} [type]
   * @param {readonly string[]} [channels] to which the token subscribes it
   */
  #changing(user, type, channels) {
    const id = this.nextId++;
    const holder = this.#holder(id, user, type);
    holder.channels = channels;
    return {
      id,
      token: () => {
        holder.next = this.#draw();
        return holder.token;
      },
      /** @param {string} room */
      onConnected: (room) => {
        // Its token stays until it asks for another one.
        const { next } = holder;
        holder.begin();
        holder.next = next;
        holder.enter(room);
      },
    };
  }

  /** @param {boolean} isStream */
  #library(isStream) {
    const { wires, hooks } = this;
    const user = isStream ? 'reader201' : 'reader200';
    const { id, token, onConnected } = this.#changing(user);
    const server = id % wires.length;
    return new LibraryClient({
      ...{ id, server, isStream, user, token, url: wires[server] },
      rooms: isStream ? [STAFF] : [STAFF, TEAM],
      recorder: audienceRecorder(this.recorder, { hooks, onConnected }),
    });
  }

  /** @param {boolean} isStream */
  #stateLibrary(isStream) {
    const { wires, recorder } = this;
    const { id, token, onConnected } = this.#changing(
      isStream ? 'reader301' : 'reader300',
      'state',
    );
    const write = (/** @type {any} */ event) => {
      if (event.what === 'joined') onConnected(event.room);
      recorder.write(event);
    };
    return new StateLibrary({
      ...{ id, isStream, token, url: wires[id % wires.length], rooms: [AUDIENCE_STATE] },
      recorder: /** @type {Recorder} */ (/** @type {unknown} */ ({ write })),
    });
  }

  /** A page that comes back with other tokens. @param {string[]} rooms */
  #stream(rooms) {
    const { urls, random, hooks } = this;
    const id = this.nextId++;
    const user = `reader${400 + rooms.length}${rooms[0][0] === 'p' ? 1 : 0}`;
    const holder = this.#holder(id, user);
    const named = [1, 2, 3].map(() => this.#draw());
    const visits = named.map((one) => ({ rooms, token: audienceToken(user, one) }));
    /** @type {StreamClient} */
    const client = new StreamClient({
      ...{ id, urls, visits, user, random },
      recorder: audienceRecorder(this.recorder, {
        hooks,
        onConnected: (room) => {
          holder.next = named[client.attempts % named.length];
          holder.begin();
          holder.enter(room);
        },
      }),
    });
    return client;
  }

  /** Two of them are subscribed by their tokens. @param {typeof TRANSPORTS[number]} transport */
  #centrifugo(transport) {
    const { urls, random, hooks } = this;
    const index = TRANSPORTS.indexOf(transport);
    const user = `reader5${index}`;
    const rooms = [STAFF, TEAM];
    const channels = index % 2 === 0 ? undefined : rooms;
    const { id, token, onConnected } = this.#changing(user, 'audience', channels);
    return new CentrifugoClient({
      ...{ id, urls, random, transport, token, rooms, ...(channels && { user }) },
      recorder: audienceRecorder(this.recorder, { hooks, onConnected }),
    });
  }

  /** Its protocol has no audiences. @param {import('../helpers/pusher.js').Credentials} app */
  #pusher(app) {
    const { urls, hooks } = this;
    const id = this.nextId++;
    const holder = this.#holder(id, undefined);
    const recorder = audienceRecorder(this.recorder, {
      hooks,
      onConnected: (room) => holder.enter(room),
    });
    return new PusherClient({ id, urls, rooms: [PLAIN, WHISPERED], app, recorder });
  }

  #tick() {
    const { random, isStirring, libraries } = this;
    const isTime = (/** @type {keyof typeof TICKS} */ what) => random.next() * TICKS[what] < 1;
    this.#publish();
    if (isTime('post')) this.#post();
    if (isTime('say')) this.#readerWith(STAFF)?.say(STAFF, this.#audience(), this.recorder);
    if (isTime('read')) this.#read();
    if (isTime('flood')) this.#flood();
    for (const pusher of this.pushers) if (isTime('whisper')) this.#whisper(pusher);
    if (!isStirring) return;
    if (isTime('leave')) random.pick(this.leavers).leave(random.between(...AWAY_MS));
    if (isTime('exodus')) this.#exodus();
    if (isTime('renew')) random.pick(this.#holders).renew();
    if (isTime('give')) this.#give();
    if (isTime('out')) {
      const reader = random.pick(this.#holders);
      reader.stepOut(random.pick([...reader.places.keys()]), random.between(...AWAY_MS));
    }
    if (isTime('again')) libraries[0].again(random.pick([...libraries[0].places.keys()]));
    if (isTime('revoke')) this.#revoke();
  }

  /** @returns {Reader[]} */
  get #holders() {
    return [...this.readers, ...this.states];
  }

  /** @param {string} room */
  #readerWith(room) {
    return this.random.pick(this.readers.filter(({ places }) => places.get(room)?.isJoined));
  }

  /** @returns {string[]|undefined} undefined: everybody */
  #audience() {
    const { random } = this;
    if (random.next() >= RESTRICTED_SHARE) return undefined;
    return random.shuffled(NAMES).slice(0, 1 + random.below(2));
  }

  /** Some at once, so that they are in one flush. */
  #publish() {
    const { random, publishers, isStirring } = this;
    for (let i = random.below(4); i > 0; i--) {
      const bytes = random.next() < LARGE_SHARE ? LARGE_BYTES : 0;
      const room = random.pick([STAFF, STAFF, TEAM, PLAIN, ...this.whispered]);
      // In calm, who may not see the last message there is told its position all the same.
      if (room === TEAM && !isStirring) continue;
      random.pick(publishers).publish(room, { audience: this.#audience(), bytes });
    }
    for (let i = isStirring ? random.below(3) : 0; i > 0; i--) {
      this.#set();
    }
    // Must be refused.
    if (random.next() < 0.02) this.#publishToNobody();
  }

  /** Some keys are for one audience for ever: nobody else may learn their names. */
  #set() {
    const { random, setter } = this;
    const removes = random.next() < REMOVED_SHARE;
    const only = random.pick([null, null, ...NAMES]);
    const key = `${only ?? 'key'}-${random.below(KEYS)}`;
    const audience = only === null || removes ? this.#audience() : [only];
    setter.publish(AUDIENCE_STATE, { key, removes, audience });
  }

  #publishToNobody() {
    const { recorder, publishers } = this;
    const value = publishers[0].publish(PLAIN, { audience: [] });
    if (value !== '') recorder.write({ type: 'audience', what: 'put', value, audience: [NOBODY] });
  }

  /** By the HTTP API: some are large, and some come a second time for others. */
  async #post() {
    const { random, recorder, hasBucket } = this;
    const room = random.pick([STAFF, PLAIN]);
    const isAgain = random.next() < 0.3;
    const audience = isAgain ? undefined : this.#audience();
    const value = `s2:${++this.posted}:${room}`;
    recorder.write({ type: 'audience', what: 'put', value, audience: audience ?? [] });
    const isLarge = hasBucket && random.next() < BUCKET_SHARE;
    const payload = isLarge ? largePayload(value, BUCKET_BYTES) : value;
    const message = { room, payload };
    const headers = { 'Idempotency-Key': value };
    const answer = await this.#ask('api/publish', { ...message, audience }, headers);
    if (answer === null) return;
    const { epoch, offset } = answer;
    recorder.write({ type: 'audience', what: 'ok', value, epoch, offset });
    if (!isAgain || epoch === undefined) return;
    const again = await this.#ask('api/publish', { ...message, audience: ['a'] }, headers);
    if (again !== null) recorder.write({ type: 'audience', what: 'again', value, ...again });
  }

  #read() {
    const { random, recorder } = this;
    const room = random.pick([STAFF, TEAM]);
    // Also one that has just left it.
    const reader = random.pick(this.readers.filter(({ places }) => places.has(room)));
    const { position } = reader?.places.get(room) ?? {};
    if (!reader || !position) return;
    const { epoch, offset } = position;
    const place = { epoch, offset: Math.max(0, offset - random.below(2 * LAST)) };
    const query = random.pick([{}, { before: place }, { since: place }]);
    reader.read(room, { limit: 1 + random.below(LAST), ...query }, recorder);
  }

  /** @param {PusherClient} pusher */
  #whisper(pusher) {
    pusher.whisper(WHISPERED, `s3:${++this.said}:${WHISPERED}`);
  }

  /** Some stand still while many large messages come. */
  #flood() {
    const { random, publishers, readers, streams, centrifugos } = this;
    const room = random.pick([STAFF, ...this.whispered]);
    const still = random.shuffled([...readers, ...streams, ...centrifugos]).slice(0, 3);
    for (const one of still) one.pause();
    for (let i = 0; i < FLOOD; i++)
      publishers[0].publish(room, { audience: this.#audience(), bytes: LARGE_BYTES });
    setTimeout(
      () => {
        for (const one of still) one.resume();
      },
      random.between(...STILL_MS),
    );
  }

  /** All lose their connections, and come back at the same time from the same position. */
  #exodus() {
    for (const one of this.leavers) one.leave(EXODUS_MS);
  }

  #give() {
    const { random } = this;
    const reader = random.pick(this.#holders);
    const { user } = reader;
    if (user === undefined) return;
    const room = random.pick([...reader.places.keys()]);
    const names = NAMES.filter(() => random.next() < 0.3);
    const body = { rooms: [room], audiences: names };
    reader.receive(room, names, async () => {
      const answer = await this.#ask(`api/users/${user}/join`, body);
      return answer !== null && !answer.partial && answer.connections > 0;
    });
  }

  /** Its connections close, and it comes back with a later token. */
  #revoke() {
    const reader = this.random.pick(this.#holders);
    const { user, holder } = reader;
    if (user === undefined) return;
    reader.mayBeRefused = true;
    holder.issuedAgoS = 0;
    this.#ask('api/revoke', { user });
  }

  /**
   * @param {string} path @param {object} body @param {Record<string, string>} [headers]
   * @returns {Promise<any>} null: no answer, or a refusal
   */
  async #ask(path, body, headers) {
    try {
      const url = this.random.pick(this.urls).replace(/^ws/, 'http');
      const response = await fetch(`${url}${path}`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${this.secret}`,
          'Content-Type': 'application/json',
          ...headers,
        },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(API_MS),
      });
      return response.status === 200 ? await response.json() : null;
    } catch {
      return null; // a server that is unavailable or too slow
    }
  }
}
