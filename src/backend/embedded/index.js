// index.js: the embedded backend: one machine, whose workers meet at the relay in the primary.

import { dirname } from 'node:path';
import { EmbeddedBroker } from './broker.js';
import { EmbeddedPresence } from './presence.js';
import { RevocationFile } from './revocation-file.js';

/**
 * @param {import('../backend.js').BackendParts} parts
 * @param {{recorder?: typeof import('./event-store.js')|null}} [options] `recorder`: null: nothing is
 *   recorded for webhooks
 */
export function createBackend(parts, { recorder = null } = {}) {
  const { config, counters, historyRules, machine, events, log } = parts;
  const { link } = machine;
  const broker = new EmbeddedBroker({
    link,
    roomLingerMs: config.roomLingerMs,
    historyOf: (room) => historyRules.ruleFor(room),
    counters,
  });
  const presence = config.presence.length > 0 ? new EmbeddedPresence(link, broker.publisher) : null;
  link.listen({ onRoundTrip: events.onRoundTrip });
  return {
    broker,
    presence,
    eventStore: recorder === null ? null : new recorder.EmbeddedEventStore(link),
    // Beside the relay's socket, the file is removed when the server ends.
    revocations: new RevocationFile(config.stateDir || dirname(link.path), {
      onUnreadable: (lines, path) => {
        counters.auth.revocationsUnreadable = lines;
        const text = 'unreadable revocations have no effect: repair or delete these lines';
        log.error({ lines, path }, text);
      },
    }),
    close: async () => {
      await presence?.close();
      await broker.close();
    },
  };
}
