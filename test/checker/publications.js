// publications.js: the publications of a record, and the offsets of each room and epoch.

/** @typedef {import('./record.js').Position} Position */
/** @typedef {import('./record.js').Expected} Expected */
/** @typedef {import('./indexed-run.js').Link} Link */

/** A publication. */
export class Publication {
  /**
   * @param {string} value
   * @param {number} t
   * @param {boolean} isMarker
   * @param {number} connection of its publisher
   * @param {number} server that the connection leads to
   * @param {number|null} client that published it without an echo
   * @param {Link|null} link its connection
   */
  constructor(value, t, isMarker, connection, server, client = null, link = null) {
    const [publisher, , room] = split(value);
    this.value = value;
    this.publisher = publisher;
    this.room = room;
    /** How many were sent to its room before it. */
    this.number = 0;
    this.invokedAt = t;
    this.isMarker = isMarker;
    this.connection = connection;
    this.server = server;
    this.client = client;
    this.link = link;
    /** @type {'invoked'|'ok'|'fail'|'info'} */
    this.outcome = 'invoked';
    this.okAt = Number.POSITIVE_INFINITY;
    /** Time at which its publisher learnt that the outcome is unknown. */
    this.unknownAt = Number.POSITIVE_INFINITY;
    /** False: no answer has come, although it was waited for. */
    this.isAnswered = true;
    /** Where it stands, as first heard of. @type {Stream|null} */
    this.stream = null;
    this.offset = 0;
    /** Deliveries of it. */
    this.sights = 0;
    /**
     * Of a plain room: members whose subscription is older than the message, and how many of those
     * received it.
     */
    this.members = 0;
    this.reached = 0;
    /** Of a plain room: members that had been there for long when it was accepted, if all was calm. */
    this.inCalmTo = 0;
    /** It may be sent several times. */
    this.isKeyed = false;
    /**
     * The last accepted position of its publisher in this room before it was sent.
     * @type {Position|null}
     */
    this.behind = null;
    /** Its events of webhooks, as first accepted. @type {{id: string, offset: number|undefined}[]} */
    this.records = [];
    /** Where alone it may stand: behind this position. @type {Expected|null} */
    this.expect = null;
  }
}

/** The offsets of one room and epoch. */
export class Stream {
  /** @param {string} room @param {string} epoch @param {number} t */
  constructor(room, epoch, t) {
    this.room = room;
    this.epoch = epoch;
    /** When it was first heard of. */
    this.heardAt = t;
    /** @type {Map<number, Publication>} by offset; the first heard of */
    this.places = new Map();
    /** Highest offset delivered to anybody. */
    this.highest = 0;
    /** Offsets that a client was subscribed through and did not get. @type {Set<number>} */
    this.skipped = new Set();
    /**
     * Times of acceptance; the highest offset accepted until then, and when the latest of those was
     * sent.
     * @type {number[]}
     */
    this.okTimes = [];
    /** @type {number[]} */
    this.okHighest = [];
    /** @type {number[]} */
    this.okSentAt = [];
  }

  /** @param {number} offset @param {number} sentAt @param {number} t */
  accepted(offset, sentAt, t) {
    this.okTimes.push(t);
    this.okHighest.push(Math.max(offset, this.okHighest.at(-1) ?? 0));
    this.okSentAt.push(Math.max(sentAt, this.okSentAt.at(-1) ?? 0));
  }

  /**
   * @param {number} t
   * @returns {number} highest offset accepted until then, 0 if no offset was
   */
  acceptedUntil(t) {
    return this.okHighest[this.#acceptances(t) - 1] ?? 0;
  }

  /**
   * Did this stream take something until `t` that was sent when `other` was known already? Then it
   * is the later one of the two, however late an ack may be. If a replaced primary goes on beside
   * its successor, both did; the later one is then the one that went on longer.
   * @param {Stream} other @param {number} t
   */
  succeeded(other, t) {
    if (this === other || !this.tookAfter(other.heardAt, t)) return false;
    return !other.tookAfter(this.heardAt, t) || this.tookAfter(other.#latestSent(t), t);
  }

  /** @param {number} t @returns {number} when the latest of those accepted until then was sent */
  #latestSent(t) {
    return this.okSentAt[this.#acceptances(t) - 1] ?? Number.NEGATIVE_INFINITY;
  }

  /**
   * Did this stream accept something until `t` that was sent after `sentAt`?
   * @param {number} sentAt @param {number} t
   */
  tookAfter(sentAt, t) {
    return this.#latestSent(t) > sentAt;
  }

  /**
   * @param {number} t
   * @returns {number} how many there were until then
   */
  #acceptances(t) {
    let low = 0;
    let high = this.okTimes.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.okTimes[middle] <= t) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** @param {string} value @returns {[publisher: string, seq: string, room: string]} */
function split(value) {
  const first = value.indexOf(':');
  const second = value.indexOf(':', first + 1);
  return [value.slice(0, first), value.slice(first + 1, second), value.slice(second + 1)];
}
