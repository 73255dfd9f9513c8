// entry.js: the parts of a worker that decide who may connect, and how much each may send.
//   handshake -> admission: rate, overload, origin, address -> token -> hook onConnect

import { Admission } from '../admission/admission.js';
import { MEMBERS_PER_TOKEN, RateLimiter, tokensOfMembers } from '../admission/rate-limit.js';
import { RefusedNames } from '../admission/refused.js';
import { AppPlaces } from '../auth/app-places.js';
import { Sessions } from '../auth/sessions.js';
import { UserPlaces } from '../auth/user-places.js';
import { RareLog } from '../observability/rare-log.js';
import { Health } from './health.js';

/** @import { UserReporter } from '../auth/sessions.js' */
/** @import { CommandParts } from '../doors/native/index.js' */
/** @import { OperationParts } from '../operations/index.js' */
/** @import { Basics } from './basics.js' */
/** @import { WorkerDelivery } from './delivery.js' */
/** @typedef {typeof import('./auth.js').WorkerAuth} WorkerAuth */

/**
 * Loads the libraries of tokens, and the hooks: without its hooks a worker must let nobody in.
 * @param {Basics} basics @param {WorkerDelivery} delivery
 */
export async function createEntry(basics, delivery) {
  const { tokens, hooks } = basics.config;
  const WorkerAuth = tokens === null ? null : (await import('./auth.js')).WorkerAuth;
  const createHooks =
    hooks === null ? null : await (await import('./hooks.js')).prepareHooks(hooks);
  return new Entry(basics, delivery, WorkerAuth, createHooks);
}

export class Entry {
  /**
   * @param {Basics} basics @param {WorkerDelivery} delivery
   * @param {WorkerAuth|null} WorkerAuth null if no tokens are configured
   * @param {Awaited<ReturnType<typeof import('./hooks.js').prepareHooks>>|null} createHooks null if
   *   there are none
   */
  constructor(basics, { hub, backend }, WorkerAuth, createHooks) {
    const { config, counters, memoryBytes, metrics, log, turn, closeAll } = basics;
    const { addresses } = backend;
    const refused = (this.refused = new RefusedNames());
    const onUserRefused = (/** @type {string} */ user) =>
      refused.countRefusal('connections', '', user);
    this.appPlaces = new AppPlaces({
      config,
      places: addresses,
      counters: counters.auth,
      appCounters: counters.apps,
    });
    this.auth =
      WorkerAuth &&
      config.tokens &&
      new WorkerAuth({
        config,
        settings: config.tokens,
        hub,
        backend,
        counters: counters.auth,
        appPlaces: this.appPlaces,
        closeAll,
        onUserRefused,
        log,
      });
    const authentication = (this.authentication = this.auth?.authentication ?? null);
    this.lobby = authentication?.lobby ?? null;
    /** Connections with a user, and those that have signed in through another door. */
    this.userSessions = authentication?.sessions ?? createSessions(basics, backend.reporter);
    /** Limits the connections of users that a hook named or that signed in through another door. */
    this.userPlaces = new UserPlaces({
      config,
      places: addresses,
      counters: counters.auth,
      onRefused: onUserRefused,
    });
    this.hooks =
      createHooks?.({
        config,
        hub,
        sessions: this.userSessions,
        userPlaces: this.userPlaces,
        authentication,
        counters,
        seconds: metrics.hookSeconds,
        turn,
        log,
      }) ?? null;
    /** The same sessions; null if neither tokens nor a hook name users. */
    this.sessions = authentication || this.hooks?.namesUsers ? this.userSessions : null;
    /** Null if neither tokens nor hooks are configured: each connection then enters the hub. */
    this.entrance = this.hooks?.entrance ?? authentication;
    const rareLog = new RareLog(log);
    this.limiter = new RateLimiter(config, counters, refused, (limit) =>
      rareLog.warn({ limit }, 'over a limit that FANFARE_LIMITS only observes', limit),
    );
    this.health = new Health({ counters, memoryBytes, loopLag: metrics.loopLag });
    this.admission = new Admission({
      config,
      addresses,
      health: this.health,
      counters,
      now: () => performance.now(),
      authenticator: this.entrance,
      refused,
    });
  }

  /** Call it when the broker has started. */
  async start() {
    await this.auth?.start();
  }

  /** @type {OperationParts['admitMessage']} */
  admitMessage = (connection, nowMs, bytes) => {
    const { address, session } = connection;
    return this.limiter.admitMessage(connection, address, nowMs, bytes, session.user);
  };

  /** @type {CommandParts['admitBroadcast']} */
  admitBroadcast = (connection, nowMs, bytes) =>
    this.limiter.admitBroadcast(connection, connection.address, nowMs, bytes);

  /** @type {OperationParts['takeFreeRead']} */
  takeFreeRead = ({ address }, bytes) =>
    this.limiter.takeFreeRead(address, performance.now(), bytes);

  /** @type {OperationParts['charge']} */
  charge = (connection, bytes) => {
    const { address, session } = connection;
    this.limiter.charge(connection, address, performance.now(), bytes, session.user);
  };

  /** @type {import('../operations/publisher.js').Charges['chargeMembers']} */
  chargeMembers = (connection, members, bytes) => {
    if (members <= MEMBERS_PER_TOKEN) return;
    const { address, session } = connection;
    const tokens = tokensOfMembers(members, bytes);
    const nowMs = performance.now();
    this.limiter.chargeTokens(connection, address, nowMs, tokens, session.user);
  };

  /** @type {OperationParts['overRateText']} */
  overRateText = () => this.limiter.exceeded;

  /** What operations need of all these. */
  get rates() {
    const { admitMessage, overRateText, takeFreeRead, charge } = this;
    return { admitMessage, overRateText, takeFreeRead, charge };
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.auth?.sweep();
    this.limiter.sweep(nowMs);
    this.refused.sweep(nowMs);
  }
}

/** A worker needs sessions only if it has tokens, as others are not revoked. @param {Basics} basics @param {UserReporter|null} reporter */
function createSessions({ counters, closeAll }, reporter) {
  const revocations = { isRevoked: () => false };
  return new Sessions({ revocations, counters: counters.auth, reporter, closeAll });
}
