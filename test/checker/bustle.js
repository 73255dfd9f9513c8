// bustle.js: the haste of a dense run. Clients lose their connections all the time, one by one or many
// at once, at the moment of a join too, and return within milliseconds or seconds. Users leave rooms
// and come back, ask for lists while others come, and readers pause.
//
// Faults then meet activity wherever they strike. `rest` ends it, so that what a fault has left wrong
// is not mended by the next visit of the same user before anybody looks. Some users go home then, by a
// connection that fails: they come and go within milliseconds for a while, and stay away.

/** @import { Random } from './random.js' */
/** @import { Workload } from './workload.js' */

const TICK_MS = 25;
/** The probability of each act in a tick. */
const CHANCES = Object.freeze({
  hop: 0.4,
  stir: 0.3,
  again: 0.05,
  ask: 0.15,
  nap: 0.08,
  suspect: 0.1,
  kick: 0.04,
  herd: 0.004,
});
/** How long somebody stays away. */
const AWAY_MS = /** @type {const} */ ([
  [0, 4],
  [0, 60],
  [0, 600],
  [200, 5000],
]);
const NAP_MS = /** @type {const} */ ([50, 8000]);
const RESTLESS = 0.1;
const HERD_MS = /** @type {const} */ ([0, 50]);
/** The back end removes a user about when the user joins. */
const KICK_MS = /** @type {const} */ ([0, 15]);
/** This share of the users goes home, each after so many short visits within FLICKER_MS. */
const HOMESICK = 0.3;
export const FLICKER_MS = 3000;
const FLICKERS = 12;
const FLICKER_AWAY_MS = /** @type {const} */ ([0, 200]);
/** This share of joins is followed by the end of the connection. */
const BROKEN_JOINS = 0.04;

export class Bustle {
  /** @param {Workload} workload @param {Random} random */
  constructor(workload, random) {
    this.workload = workload;
    this.random = random;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Readers that take a nap, and the timers that end it. @type {Map<any, NodeJS.Timeout>} */
    this.naps = new Map();
    /** Users at home. @type {Set<any>} */
    this.home = new Set();
  }

  begin() {
    this.comeBack();
    this.#beHasty(BROKEN_JOINS);
    this.timer = setInterval(() => this.#tick(), TICK_MS);
  }

  rest() {
    clearInterval(this.timer);
    this.#beHasty(0);
    for (const [reader, timer] of this.naps) {
      clearTimeout(timer);
      reader.resume();
    }
    this.naps.clear();
    this.#goHome();
  }

  /** Those at home return. */
  comeBack() {
    for (const one of this.home) one.start();
    this.home.clear();
  }

  #goHome() {
    const { random, workload } = this;
    const { people = [], members = [], commuters = [], seated = [] } = workload.population ?? {};
    const going = [...people, ...members, ...commuters, ...seated].filter(
      () => random.next() < HOMESICK,
    );
    const flicker = () => {
      const one = random.pick(going);
      const awayMs = random.between(...FLICKER_AWAY_MS);
      if (random.below(2) === 0) one.leave(awayMs);
      else one.stepOut(random.pick([...one.places.keys()]), awayMs);
    };
    for (let i = 0; i < FLICKERS * going.length; i++)
      setTimeout(flicker, random.between(0, FLICKER_MS));
    for (const one of going)
      setTimeout(() => one.stop().then(() => this.home.add(one)), random.between(0, FLICKER_MS));
  }

  /** @param {number} share of joins */
  #beHasty(share) {
    const { clients, population } = this.workload;
    const { visitors = [], people = [], states } = population ?? {};
    for (const client of [...clients, ...visitors]) client.brokenJoins = share;
    for (const client of [...clients, ...visitors, ...people, ...(states?.clients ?? [])])
      client.isRoaming = share > 0;
  }

  #tick() {
    const { random, workload } = this;
    const { visitors = [], people = [], members = [], commuters = [] } = workload.population ?? {};
    const { libraries = [], suspects = [], seated = [] } = workload.population ?? {};
    const isTime = (/** @type {keyof typeof CHANCES} */ what) => random.next() < CHANCES[what];
    const { pushers = [] } = workload.population ?? {};
    const hoppers = [...workload.readers, ...pushers, ...seated];
    const awayMs = () => {
      const [low, high] = random.pick(AWAY_MS);
      return random.between(low, high);
    };
    if (isTime('hop')) this.#hop(random.pick(hoppers), awayMs());
    if (isTime('stir'))
      workload.population?.stir([...people, ...members, ...commuters, ...seated], awayMs());
    if (isTime('again') && libraries.length > 0) {
      const library = random.pick(libraries);
      library.again(random.pick([...library.places.keys()]));
    }
    if (isTime('ask') && people.length > 0) {
      const person = random.pick(people);
      person.ask(random.pick([...person.places.keys()]));
    }
    if (isTime('nap')) this.#nap(random.pick([...workload.readers, ...people]));
    if (isTime('suspect') && suspects.length > 0) random.pick(suspects).leave(awayMs());
    if (isTime('kick') && people.length > 0) this.#kick(random.pick(people));
    if (isTime('herd'))
      for (const one of [...hoppers, ...people, ...visitors])
        if (random.below(2) === 0) one.leave(random.between(...HERD_MS));
  }

  /** Most of those that pause reading stay, so that they lag. @param {any} one @param {number} awayMs */
  #hop(one, awayMs) {
    if (!this.naps.has(one) || this.random.next() < RESTLESS) one.leave(awayMs);
  }

  /** @param {import('./people.js').Person} person */
  #kick(person) {
    const { random, workload } = this;
    const room = random.pick([...person.places.keys()]);
    person.leave(0);
    setTimeout(
      () => workload.population?.post(`api/users/${person.user}/leave`, { rooms: [room] }),
      random.between(...KICK_MS),
    );
  }

  /** @param {any} reader */
  #nap(reader) {
    if (this.naps.has(reader)) return;
    reader.pause();
    const timer = setTimeout(
      () => {
        this.naps.delete(reader);
        reader.resume();
      },
      this.random.between(...NAP_MS),
    );
    this.naps.set(reader, timer);
  }
}
