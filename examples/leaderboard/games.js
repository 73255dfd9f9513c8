// games.js: simulated game servers. Each adds points to the scores of its players in Redis.

const NAMES = 'Ada Alan Barbara Claude Donald Edsger Frances Grace Hedy Ivan John Katherine Leslie'
  .concat(' Margaret Niklaus Ole Peter Radia Sophie Tim Vint Whitfield Yukihiro Zhenyi')
  .split(' ');
const TICK_MS = 20;
const MAX_POINTS = 50;

/**
 * @param {import('ioredis').Redis} redis
 * @param {string} key of the sorted set
 * @param {{updatesPerSecond: number, players?: number, onScores: () => void}} options
 *   `onScores`: called when scores have been written
 * @returns {() => Promise<number>} ends all games; resolves with the number of updates
 */
export function playGames(redis, key, { updatesPerSecond, players = 500, onScores }) {
  const startedMs = performance.now();
  /** @type {Promise<unknown>} */
  let written = Promise.resolve();
  let updates = 0;
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - startedMs) / 1000) * updatesPerSecond);
    const pipeline = redis.pipeline();
    for (; updates < due; updates++) {
      // Half of the points go to a few good players, so that they compete for the first places.
      const rivals = Math.random() < 0.5 ? NAMES.length : players;
      const player = Math.floor(rivals * Math.random() ** 1.2);
      const points = 1 + Math.floor(Math.random() * MAX_POINTS);
      pipeline.zincrby(key, points, nameOf(player));
    }
    if (pipeline.length === 0) return;
    written = Promise.all([written, pipeline.exec().then(onScores)]);
    written.catch((error) => console.error('scores are lost:', error.message));
  }, TICK_MS);
  return async () => {
    clearInterval(timer);
    await written;
    return updates;
  };
}

/** @param {number} player */
function nameOf(player) {
  const round = Math.floor(player / NAMES.length);
  return round === 0 ? NAMES[player] : `${NAMES[player % NAMES.length]} ${round + 1}`;
}
