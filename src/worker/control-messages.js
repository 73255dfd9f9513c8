// control-messages.js: the messages between the primary and a worker over the cluster's IPC
// channel. The channel is for control only.
//
// A reload may start workers of another version under this primary. A worker compares RELAY_VERSION
// (backend/embedded/relay-wire.js) before it is ready, so `loaded`, `start` with its `relayPath`,
// and `failed` never change.
//
//   primary -> worker                                    worker -> primary
//                                                        {type:'loaded'}              the worker accepts messages from now
//   {type:'start', slot, relayPath, certificate, config} {type:'ready', address, isBrokerUp}      listening, broker started
//   {type:'certificate', certificate}  for new handshakes
//   {type:'metrics', request, names, isScrape}           {type:'metrics', request, isPart, metrics}  forms while they are new
//   {type:'unready'}      /readyz answers 503 from now   {type:'beat', connections, lagMs, isSteady}   periodic
//   {type:'retire'}       accept no more, keep the connections: a new worker takes over
//   {type:'rebalance', connections}  relocate so many
//   {type:'operate', id, request}  of the console        {type:'operated', id, status, body}
//   {type:'tail', id, room}  begin to watch a room       {type:'tailed', id, lines, left}  {type:'tail-ended', id}
//   {type:'untail', id}
//   {type:'drain', deadlineMs, waitMs}  stop accepting,  {type:'final', metrics}      the last metrics, all forms; it exits
//     wait for last requests, close the connections, exit 0
//                                                        {type:'failed', message, isInvalidSetting}  it can't start; it exits 1

/** Heartbeats to the primary; a quarter of FANFARE_WORKER_TIMEOUT_MS if that is shorter. */
export const BEAT_INTERVAL_MS = 1000;

/** @typedef {import('../config/certificate.js').Certificate} Certificate */
/** @import { Sent } from '../config/handover.js' */
/** @import { Snapshot } from '../observability/aggregate.js' */

/**
 * @typedef {object} Beat
 * @property {number} connections open ones, without those that are being relocated
 * @property {number} lagMs
 * @property {boolean} isSteady whether it would admit clients and could let them join rooms
 */

/**
 * A request of the console: one of the routes of worker/operator.js.
 * @typedef {object} OperatorRequest
 * @property {string} route @property {Record<string, string>} params of its path
 * @property {Record<string, string>} query @property {string} body JSON; '' if there is none
 * @property {readonly import('../config/api-keys.js').ApiRight[]} rights of the operator
 * @property {readonly string[]|null} rooms patterns of the rooms in which the rights hold; null: all
 */

/**
 * @typedef {object} TailLine a publication that a watched room has got
 * @property {string} text as clients get it; its beginning if it is long
 * @property {number} bytes of the whole text
 */

/**
 * @typedef
 *   {{type:'start', slot: number, relayPath: string, certificate: Certificate|null, config: Sent} | {type:'certificate', certificate: Certificate} | {type:'metrics', request: number, names: readonly string[]|null, isScrape?: boolean} | {type:'unready'} | {type:'retire'} | {type:'rebalance', connections: number} | {type:'drain', deadlineMs: number, waitMs: number} | {type:'operate', id: number, request: OperatorRequest} | {type:'tail', id: number, room: string} | {type:'untail', id: number}}
 *   ToWorker
 * @typedef
 *   {{type:'loaded'} | {type:'ready', address: {port: number, address: string}, isBrokerUp?: boolean} | {type:'metrics', request: number, isPart: boolean, metrics: Snapshot[]} | ({type:'beat'} & Beat) | {type:'final', metrics: Snapshot[]} | {type:'failed', message: string, isInvalidSetting?: boolean} | {type:'operated', id: number, status: number, body: string} | {type:'tailed', id: number, lines: TailLine[], left: number} | {type:'tail-ended', id: number}}
 *   ToPrimary
 */
