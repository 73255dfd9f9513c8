// keys.js: the names of channels and keys, after the configured prefix.
//   room:{<room>}                  channel of a room
//   workers                        channel of the fleet: the workers, and what they report
//   servers                        channel of the servers' reports for limits over all servers
//   census, limits                 the same in the forms of v0.2.0 (old-workers.js)
//   probe:<worker>                 channel of a worker's probes and of answers to it; in a cluster
//                                  probe:<worker>:{<tag>}, one for each primary
//   far                            exists while workers hear through replicas (publisher.js)
//   blob:{<room>}:<random>         a publication too large for pub/sub, in a room without history
//   history:{<room>}:meta          the position of the room's stream: fence, epoch, latest offset
//   history:{<room>}:stream        its publications
//   state:{<room>}:meta            the same as of a history, in a room with state
//   state:{<room>}:values          the newest publication of each key
//   state:{<room>}:log             its offset
//   state:{<room>}:removed         the offsets of removed keys
//   state:{<room>}:sums            bytes, and the highest offset of a forgotten removal
//   history:{<room>}:key:<hash>    the position and the fingerprint of an idempotency key
//   once:{<room>}:<hash>           the fingerprint of an idempotency key, in a room without history
//
// The room is the hash tag of all its names, so in a cluster they are on one node, and a script can
// both store and publish.
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/, "Hash tags")

import { createHash } from 'node:crypto';

/** The first byte after the prefix. */
export const CHANNEL_KIND = Object.freeze({
  ROOM: 0x72,
  PROBE: 0x70,
  FLEET: 0x77,
  REPORTS: 0x73,
  OLD_FLEET: 0x63,
  OLD_REPORTS: 0x6c,
});

export class Keys {
  /** @param {string} prefix */
  constructor(prefix) {
    this.prefix = prefix;
    this.roomHead = `${prefix}room:{`;
    this.fleetChannel = `${prefix}workers`;
    this.reportsChannel = `${prefix}servers`;
    this.farKey = `${prefix}far`;
    this.oldFleetChannel = `${prefix}census`;
    this.oldReportsChannel = `${prefix}limits`;
    this.kindAt = Buffer.byteLength(prefix);
    this.roomAt = Buffer.byteLength(this.roomHead);
  }

  /** @param {string} room */
  channelOf(room) {
    return `${this.roomHead}${room}}`;
  }

  /** @param {Buffer} channel of a room */
  roomOfRedisChannel(channel) {
    return channel.toString('latin1', this.roomAt, channel.length - 1);
  }

  /** @param {Buffer} channel @returns {number} a CHANNEL_KIND */
  kindOf(channel) {
    return channel[this.kindAt];
  }

  /** @param {string} worker @param {string} tag empty without a cluster */
  probeChannelOf(worker, tag) {
    return `${this.prefix}probe:${worker}${tag === '' ? '' : `:{${tag}}`}`;
  }

  /** Empty without a cluster. @param {string} channel of probes */
  tagOf(channel) {
    return /:\{(\d+)\}$/.exec(channel)?.[1] ?? '';
  }

  /** @param {string} room @param {string} id */
  blobOf(room, id) {
    return `${this.prefix}blob:{${room}}:${id}`;
  }

  /** @param {string} room */
  metaOf(room) {
    return `${this.prefix}history:{${room}}:meta`;
  }

  /** @param {string} room */
  streamOf(room) {
    return `${this.prefix}history:{${room}}:stream`;
  }

  /** @param {string} room @param {string} part meta, values, log, removed or sums */
  stateOf(room, part) {
    return `${this.prefix}state:{${room}}:${part}`;
  }

  /** @param {string} room with history @param {string} idempotencyKey the name has its hash */
  idempotencyOf(room, idempotencyKey) {
    return `${this.prefix}history:{${room}}:key:${hashOf(idempotencyKey)}`;
  }

  /** @param {string} room without history @param {string} idempotencyKey of any length */
  onceOf(room, idempotencyKey) {
    return `${this.prefix}once:{${room}}:${hashOf(idempotencyKey)}`;
  }
}

/** @param {string} idempotencyKey */
function hashOf(idempotencyKey) {
  return createHash('sha256').update(idempotencyKey).digest('base64url');
}
