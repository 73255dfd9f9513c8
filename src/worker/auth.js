// auth.js: puts the parts of token authentication together, for a worker whose configuration has
// tokens.

import { isatty } from 'node:tty';
import { Authentication } from '../auth/authentication.js';
import { Lobby } from '../auth/lobby.js';
import { RevocationLog } from '../auth/revocation-log.js';
import { Revocations } from '../auth/revocations.js';
import { Sessions } from '../auth/sessions.js';
import { TokenVerifier } from '../auth/verifier.js';
import { decodeRevocation, encodeRevocation, KEPT_MS } from '../backend/revocations.js';
import { EVERYONE } from '../hub/hub.js';
import { RareLog } from '../observability/rare-log.js';
import { encodeNotice, KIND, readNotice } from '../protocol/publication.js';

/** The time from a handshake to its token. */
const AUTH_TIMEOUT_MS = 5000;

export class WorkerAuth {
  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {import('../config/tokens.js').TokenSettings} parts.settings `config.tokens`
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {Awaited<ReturnType<typeof import('../backend/index.js').createBackend>>} parts.backend
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {import('../auth/app-places.js').AppPlaces} [parts.appPlaces]
   * @param {import('../worker/close-all.js').CloseAll} parts.closeAll
   * @param {(user: string) => void} [parts.onUserRefused] @param {import('pino').Logger} parts.log
   */
  constructor(parts) {
    const { config, settings, hub, backend, counters, appPlaces, closeAll, log } = parts;
    const { onUserRefused } = parts;
    const { maxLifetimeS } = settings;
    const revocations = (this.revocations = new Revocations({
      maxLifetimeS,
      centrifugo: config.centrifugo,
      counters,
    }));
    const sessions = new Sessions({ revocations, counters, reporter: backend.reporter, closeAll });
    this.log = new RevocationLog({
      store: backend.revocations,
      announce: async (revocation) => {
        const notice = encodeNotice(KIND.REVOCATION, encodeRevocation(revocation));
        await backend.broker.publish(EVERYONE, notice);
      },
      revocations,
      onRevoked: (revocation) => sessions.revoked(revocation),
      log,
    });
    this.rareLog = new RareLog(log);
    this.verifier = new TokenVerifier({
      settings,
      revocations: this.log,
      counters,
      apps: config.pusher?.byId,
      rareLog: this.rareLog,
      // Clients hear reasons on a terminal: their developer is the server's.
      tellsWhy: settings.reasons === 'on' || (settings.reasons === 'auto' && isatty(1)),
      log,
    });
    this.authentication = new Authentication({
      config,
      verifier: this.verifier,
      sessions,
      lobby: new Lobby({ max: config.maxHandshakes, timeoutMs: AUTH_TIMEOUT_MS, counters }),
      hub,
      places: backend.addresses,
      counters,
      appPlaces,
      onUserRefused,
      log,
    });
    hub.listenForNotices(KIND.REVOCATION, (publication) => this.#receiveRevocation(publication));
  }

  /** Call it when the broker has started. */
  async start() {
    await this.verifier.start();
    await this.log.start();
  }

  /** Call it once a second. */
  sweep() {
    this.authentication.sessions.sweep();
    this.revocations.sweep();
  }

  /** @param {Buffer} publication perhaps of another program @returns {boolean} false: malformed */
  #receiveRevocation(publication) {
    const revocation = decodeRevocation(readNotice(publication));
    if (revocation !== null) this.log.apply(revocation);
    return revocation !== null;
  }

  /** Notices of revocations may have been lost. */
  onNoticesLost() {
    this.log.refresh();
  }

  /**
   * Revokes on every server: see RevocationLog.
   * @param {Parameters<RevocationLog['revoke']>[0]} target
   * @returns {Promise<{keptUntilMs: number|null}|null>} ms since 1970, null: it has no end
   */
  async revoke(target) {
    try {
      const revocation = await this.log.revoke(target);
      if (revocation === null) return null;
      const { keepUntilMs } = revocation;
      return { keptUntilMs: keepUntilMs < KEPT_MS ? keepUntilMs : null };
    } catch (error) {
      // The caller gets no cause. It may be a full disk, for example.
      this.rareLog.warn({ err: error }, 'a revocation failed: its tokens may still be accepted');
      throw error;
    }
  }

  /** Called when the worker drains: unauthenticated connections need not wait. */
  drain() {
    this.authentication.lobby.close();
  }

  close() {
    this.log.close();
    this.verifier.close();
  }
}
