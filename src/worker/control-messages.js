// control-messages.js: the messages between the primary and a worker over the cluster's IPC
// channel. The channel is for control only.
//
// A reload may start workers of another version under this primary. RELAY_VERSION in
// backend/embedded/relay-wire.js is the version of these messages too: a worker compares it before
// it is ready. So `loaded`, `start` with its `relayPath`, and `failed` never change.
//
//   primary -> worker                                    worker -> primary
//                                                        {type:'loaded'}              the worker accepts messages from now
//   {type:'start', slot, relayPath, certificate}         {type:'ready', address}      listening, broker started
//   {type:'certificate', certificate}  for new handshakes
//   {type:'metrics', request}                            {type:'metrics', request, metrics}  prom-client's JSON
//   {type:'unready'}      /readyz answers 503 from now   {type:'beat', connections, lagMs, isSteady}   periodic
//   {type:'rebalance', connections}  relocate so many
//   {type:'drain', deadlineMs}  stop accepting, close    {type:'final', metrics}      the last metrics, before it exits
//                         the connections, exit 0        {type:'failed', message}     it can't start; it exits 1

/**
 * The interval of a worker's heartbeats to the primary; a quarter of FANFARE_WORKER_TIMEOUT_MS if
 * that is shorter.
 */
export const BEAT_INTERVAL_MS = 1000;

/** @typedef {import('../config/certificate.js').Certificate} Certificate */

/**
 * @typedef {object} Beat
 * @property {number} connections open ones, without those that are being relocated
 * @property {number} lagMs
 * @property {boolean} isSteady whether it would admit clients and could let them join rooms
 */

/**
 * @typedef
 *   {{type:'start', slot: number, relayPath: string, certificate: Certificate|null} | {type:'certificate', certificate: Certificate} | {type:'metrics', request: number} | {type:'unready'} | {type:'rebalance', connections: number} | {type:'drain', deadlineMs: number}}
 *   ToWorker
 * @typedef
 *   {{type:'loaded'} | {type:'ready', address: {port: number, address: string}} | {type:'metrics', request: number, metrics: object[]} | ({type:'beat'} & Beat) | {type:'final', metrics: object[]} | {type:'failed', message: string}}
 *   ToPrimary
 */
