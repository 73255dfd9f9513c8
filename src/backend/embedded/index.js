// index.js: the embedded backend: one machine, whose workers meet at the relay in the primary.

import { EmbeddedBroker } from './broker.js';
import { EmbeddedPresence } from './presence.js';

/** @type {import('../backend.js').CreateBackend} */
export function createBackend({ config, counters, historyRules, machine, events }) {
  const broker = new EmbeddedBroker({
    link: machine,
    roomLingerMs: config.roomLingerMs,
    historyOf: (room) => historyRules.of(room),
    counters,
  });
  const presence = config.presence.length > 0 ? new EmbeddedPresence(machine) : null;
  machine.listen({ onRoundTrip: events.onRoundTrip });
  return {
    broker,
    presence,
    close: async () => {
      await presence?.close();
      await broker.close();
    },
  };
}
