// channels.js: routes that show which channels are occupied, by how many, and by whom.

import { EVERY_AUDIENCE } from '../../../protocol/audiences.js';
import { isChannel, kindOf, roomOf } from '../../../protocol/pusher-channels.js';
import { inParallel } from '../../../transport/http-api/in-parallel.js';
import { readMember } from '../codec/frames.js';
import { badRequest } from './answers.js';
import { Occupancy } from './occupancy.js';

const PRESENCE = 'presence-';

/** @import { App } from '../../../config/pusher.js' */
/** @import { AppCall, RouteServices } from './app-call.js' */

/**
 * @typedef {object} Info
 * @property {number} [user_count] of a presence channel
 * @property {number} [subscription_count]
 */

export class ChannelRoutes {
  /** @param {RouteServices} services */
  constructor(services) {
    this.tracker = services.tracker;
    this.historyOf = services.historyOf;
    this.historyReader = services.historyReader;
    this.occupancy = new Occupancy(services);
  }

  /** `GET channels` @param {AppCall} call */
  list = async (call) => {
    const { app, info } = call;
    const prefix = call.parameter('filter_by_prefix') ?? '';
    if (info.has('user_count') && !prefix.startsWith(PRESENCE))
      throw badRequest(
        'user_count may only be requested for presence channels - please supply filter_by_prefix beginning with presence-',
      );
    if (info.has('subscription_count') && !countsSubscriptions(app, prefix)) throw notCounted();
    const counts = await this.occupancy.listChannels(app, prefix);
    const names = [...counts.keys()];
    // Each count reads from the backend.
    if (info.has('user_count')) call.charge(names.length - 1);
    const users = info.has('user_count')
      ? await inParallel(names, (name) => this.#userCount(app, name))
      : null;
    const rows = names.map((name, index) => {
      const count = counts.get(name);
      const row = {
        user_count: users?.[index],
        subscription_count:
          info.has('subscription_count') || app.extraChannelInfo ? count : undefined,
        occupied: app.extraChannelInfo ? true : undefined,
      };
      return /** @type {const} */ ([name, row]);
    });
    return { channels: Object.fromEntries(rows) };
  };

  /** `GET channels/:channel` @param {AppCall} call */
  one = async (call) => {
    const { app, info } = call;
    const channel = channelOfPath(call);
    const { isPresence, isCache } = kindOf(channel);
    if (info.has('user_count') && !isPresence)
      throw badRequest('Cannot retrieve the user count unless the channel is a presence channel');
    if (info.has('subscription_count') && !countsSubscriptions(app, channel)) throw notCounted();
    if (info.has('cache') && !isCache)
      throw badRequest('Cannot retrieve the cache unless the channel is a cache channel');
    const [count, users, cache] = await Promise.all([
      this.occupancy.count(app, channel),
      info.has('user_count') ? this.#userCount(app, channel) : undefined,
      info.has('cache') ? this.#cached(app, channel) : undefined,
    ]);
    const hasCount = info.has('subscription_count') || app.extraChannelInfo;
    return {
      occupied: count > 0,
      user_count: users,
      subscription_count: hasCount ? count : undefined,
      cache,
    };
  };

  /** `GET channels/:channel/users` @param {AppCall} call */
  users = async (call) => {
    const channel = channelOfPath(call);
    if (!kindOf(channel).isPresence)
      throw badRequest('Users can only be retrieved for presence channels');
    const { members } = await this.tracker.read(roomOf(call.app, channel));
    // A shared channel with native clients, or members of more than 16 MB.
    if (members === null) throw badRequest('The channel has too many users for a list.');
    const users = members.map((member) => readMember(member.toString())?.user);
    return { users: users.filter((user) => user !== undefined).map((id) => ({ id })) };
  };

  /**
   * @param {App} app @param {readonly string[]} channels
   * @param {ReadonlySet<string>} info attributes; those that do not apply are left out
   * @returns {Promise<Info[]>} in the order of `channels`
   */
  infoOf(app, channels, info) {
    return inParallel(channels, async (channel) => {
      const { isPresence } = kindOf(channel);
      const hasCount = info.has('subscription_count') && countsSubscriptions(app, channel);
      const [users, count] = await Promise.all([
        info.has('user_count') && isPresence ? this.#userCount(app, channel) : undefined,
        hasCount ? this.occupancy.count(app, channel) : undefined,
      ]);
      return { user_count: users, subscription_count: count };
    });
  }

  /** @param {App} app @param {string} channel of presence */
  async #userCount(app, channel) {
    const { count } = await this.tracker.read(roomOf(app, channel), true);
    return count;
  }

  /**
   * The last event of a cache channel. `ttl`: seconds until it expires.
   * @param {App} app @param {string} channel @returns {Promise<{data: string, ttl: number}|null>}
   */
  async #cached(app, channel) {
    const room = roomOf(app, channel);
    // The backend asks.
    const { messages } = await this.historyReader.read(room, { limit: 1 }, () => EVERY_AUDIENCE);
    if (messages.length === 0) return null;
    const { payload, timestamp } = JSON.parse(messages.toString());
    const ttlMs = this.historyOf(room)?.ttlMs ?? 0;
    const ttl = Math.max(0, Math.ceil((timestamp + ttlMs - Date.now()) / 1000));
    const { data } = /** @type {{data?: unknown}} */ (payload ?? {});
    return { data: typeof data === 'string' ? data : JSON.stringify(payload), ttl };
  }
}

/**
 * Pusher's documentation gives the count for apps that enable it. It contradicts itself about
 * presence channels, where the count does no harm.
 * @param {App} app @param {string} channel or the prefix of several
 */
function countsSubscriptions(app, channel) {
  return app.subscriptionCount || app.extraChannelInfo || channel.startsWith(PRESENCE);
}

function notCounted() {
  return badRequest('subscription_count is not enabled for this app');
}

/** @param {AppCall} call */
function channelOfPath({ app, params: { channel } }) {
  if (!isChannel(channel) || channel.length > app.maxChannelLength)
    throw badRequest('The path does not name a channel.');
  return channel;
}
