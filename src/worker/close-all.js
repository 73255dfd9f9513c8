// close-all.js: closes connections together: those with an expired or revoked token, those above a
// limit over all servers, those that the HTTP API disconnects. What the share of a turn has no time
// for waits for later turns.

/** @import { Connection } from '../hub/connection.js' */
/** @import { Turn } from './turn.js' */
/** @typedef {{code: number, reason: string}} Close */
/** @typedef {(connections: readonly Connection[], close: Close) => void} CloseAll */

/** @param {Turn} turn @returns {CloseAll} */
export function createCloseAll(turn) {
  const line = turn.line('closes', closeOne);
  return (connections, close) => {
    for (const connection of connections) {
      if (line.isAwake || line.isSpent()) line.push({ connection, close });
      else connection.close(close);
    }
  };
}

/** @param {{connection: Connection, close: Close}} item */
function closeOne({ connection, close }) {
  connection.close(close);
}
