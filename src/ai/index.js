// index.js: `fanfare/ai`: runs of models and agents, which survive reloads, restarts and second
// producers.
//
// The writer and the event store need `createServer` of fanfare-server, the reader and the
// transport a client of fanfare-client. Neither is imported, so either half is installed alone.

export { FanfareChatTransport } from './chat-transport.js';
export { FanfareDurability } from './durability.js';
export { FanfareEventStore } from './event-store.js';
export { read } from './reader.js';
export { RunError } from './run-error.js';
export { stream } from './writer.js';

/** @typedef {import('./part.js').Part} Part */
/** @typedef {import('./part.js').RunEnd} RunEnd */
/** @typedef {import('./run-error.js').RunErrorCode} RunErrorCode */
/** @template [Chunk=any] @typedef {import('./reader.js').RunReader<Chunk>} RunReader */
/** @typedef {import('./reader.js').RunPosition} RunPosition */
/** @typedef {import('./reader.js').ReadOptions} ReadOptions */
/** @typedef {import('./writer.js').RunWriter} RunWriter */
/** @typedef {import('./writer.js').StreamOptions} StreamOptions */
/** @typedef {import('./chat-transport.js').ChatTransportOptions} ChatTransportOptions */
/** @typedef {import('./writer.js').PublishingServer} PublishingServer */
/** @typedef {import('./durability.js').DurabilityOptions} DurabilityOptions */
