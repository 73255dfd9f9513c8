// look.js: the methods that look at channels and servers.

import { CHANNEL_SPACE, escapeChannel, isNativeName } from '../../../config/channel-names.js';
import { fits } from '../../../config/room-patterns.js';
import { EVERY_AUDIENCE } from '../../../protocol/audiences.js';
import { payloadOf } from '../../../protocol/publication.js';
import { allRooms } from '../../../transport/http-api/all-rooms.js';
import { channelOf } from '../codec/channels.js';
import { DoorError } from '../codec/errors.js';
import { infoOf } from '../codec/frames.js';
import { membersOf, statsOf } from '../codec/members.js';
import { readStream } from '../stream.js';
import { flag, position, roomOfChannel, text, whole } from './fields.js';

/** The most publications of one answer, as many as a room may keep. */
const MAX_PUBLICATIONS = 10_000;
/** What Centrifugo's patterns have beside stars. */
const GLOB = /[?[\]{}\\!]/;

/** @import { ClientInfo } from '../codec/messages.js' */
/** @import { Method, MethodServices } from './method.js' */

export class LookMethods {
  /** @param {MethodServices} services */
  constructor({ fleet, tracker, historyReader, historyOf }) {
    this.fleet = fleet;
    this.tracker = tracker;
    this.historyReader = historyReader;
    this.historyOf = historyOf;
  }

  /** @type {Method} */
  presence = {
    route: 'centrifugo_presence',
    shape: { channel: text },
    run: async ({ channel }) => {
      const { members } = await this.#readPresence(channel);
      if (members === null)
        throw new DoorError(108, 'the channel has too many users for a list; see presence_stats');
      const rows = [...membersOf(members)].map(
        ([client, info]) => `${JSON.stringify(client)}:${encodeInfo(info)}`,
      );
      return Buffer.from(`{"presence":{${rows.join(',')}}}`);
    },
  };

  /** @type {Method} */
  presenceStats = {
    route: 'centrifugo_presence_stats',
    shape: { channel: text },
    run: async ({ channel }) => statsOf(await this.#readPresence(channel)),
  };

  /** @type {Method} */
  history = {
    route: 'centrifugo_history',
    shape: { channel: text, limit: whole, since: position, reverse: flag },
    run: async ({ channel, limit = 0, since = null, reverse: isReverse = false }) => {
      const room = roomOfChannel(channel);
      const most = limit < 0 ? MAX_PUBLICATIONS : Math.min(limit, MAX_PUBLICATIONS);
      const from = since && { offset: 0, epoch: '', ...since };
      const query = { limit: most, since: from, isReverse };
      const { historyReader } = this;
      const stream = await readStream(historyReader, room, query, () => EVERY_AUDIENCE);
      const { publications, epoch, offset } = stream;
      return Buffer.concat([
        Buffer.from('{"publications":['),
        ...publications.flatMap((one, index) => encodePublication(one, index > 0)),
        Buffer.from(`],"epoch":${JSON.stringify(epoch)},"offset":${offset}}`),
      ]);
    },
  };

  /** @type {Method} */
  historyRemove = {
    route: 'centrifugo_history_remove',
    shape: { channel: text },
    run: async ({ channel }) => {
      const room = roomOfChannel(channel);
      if (this.historyOf(room) === null) throw new DoorError(108, 'the channel has no history');
      await this.fleet.deleteHistory(room);
      return {};
    },
  };

  /** @type {Method} */
  channels = {
    route: 'centrifugo_channels',
    shape: { pattern: text },
    run: async ({ pattern = '' }) => {
      if (GLOB.test(pattern)) throw new DoorError(107, 'pattern: only stars are supported');
      const parts = (pattern || '*').split('*');
      const prefix = parts[0];
      const advice = 'ask with a pattern that begins with more characters';
      const isNative = prefix === '' || isNativeName(prefix);
      const pages = await Promise.all([
        isNative ? allRooms(this.fleet, { prefix }, advice) : [],
        allRooms(this.fleet, { prefix: CHANNEL_SPACE + escapeChannel(prefix) }, advice),
      ]);
      /** @type {Map<string, {num_clients: number}>} */
      const found = new Map();
      for (const { room, connections } of pages.flat()) {
        const channel = channelOf(room);
        if (channel !== null && fits(parts, channel))
          found.set(channel, { num_clients: connections });
      }
      return Buffer.from(`{"channels":${encodeMap(found)}}`);
    },
  };

  /** @type {Method} */
  info = {
    route: 'centrifugo_info',
    shape: {},
    run: async () => {
      const { workers } = await this.fleet.workers();
      const nodes = workers.map(({ server, slot, version, connections, rooms, uptimeS }) => ({
        uid: `${server}/${slot}`,
        name: server,
        version,
        num_clients: connections,
        num_channels: rooms,
        uptime: uptimeS,
      }));
      return { nodes };
    },
  };

  /** @param {string|undefined} channel */
  async #readPresence(channel) {
    const room = roomOfChannel(channel);
    if (!this.tracker.covers(room)) throw new DoorError(108, 'the channel has no presence');
    return this.tracker.read(room);
  }
}

/** @param {ClientInfo} info @returns {string} JSON */
function encodeInfo({ user = '', client = '', conn_info: info = null }) {
  const head = JSON.stringify({ user, client });
  return info === null ? head : `${head.slice(0, -1)},"conn_info":${info.toString()}}`;
}

/** @param {{offset: number, publication: Buffer}} row @param {boolean} isNext does one precede? */
function encodePublication({ offset, publication }, isNext) {
  const info = infoOf(publication);
  return [
    Buffer.from(`${isNext ? ',' : ''}{"data":`),
    payloadOf(publication),
    Buffer.from(`,"offset":${offset}${info === null ? '' : `,"info":${encodeInfo(info)}`}}`),
  ];
}

/** @param {ReadonlyMap<string, object>} map perhaps with `__proto__` @returns {string} JSON */
function encodeMap(map) {
  const rows = [...map].map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  return `{${rows.join(',')}}`;
}
