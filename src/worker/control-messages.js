// control-messages.js: what the primary and a worker say to each other over the cluster's IPC
// channel, which is for control only.
//
//   primary -> worker                                    worker -> primary
//                                                        {type:'loaded'}              it listens to messages from now
//   {type:'start', slot, relayPath}                      {type:'ready', address}      listening, broker started
//   {type:'metrics', request}                            {type:'metrics', request, metrics}  prom-client's JSON
//   {type:'unready'}      /readyz answers 503 from now   {type:'beat', connections, lagMs}   again and again
//   {type:'drain', deadlineMs}  stop accepting, send     {type:'final', metrics}      its last figures, before it exits
//                         the connections away, exit 0   {type:'failed', message}     it can't start; it exits 1

/**
 * The interval of a worker's heartbeats to the primary; a quarter of FANFARE_WORKER_TIMEOUT_MS if
 * that is shorter.
 */
export const BEAT_INTERVAL_MS = 1000;

/**
 * @typedef
 *   {{type:'start', slot: number, relayPath: string} | {type:'metrics', request: number} | {type:'unready'} | {type:'drain', deadlineMs: number}}
 *   ToWorker
 * @typedef
 *   {{type:'loaded'} | {type:'ready', address: {port: number, address: string}} | {type:'metrics', request: number, metrics: object[]} | {type:'beat', connections: number, lagMs: number} | {type:'final', metrics: object[]} | {type:'failed', message: string}}
 *   ToPrimary
 */
