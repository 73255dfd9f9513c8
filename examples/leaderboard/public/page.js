// page.js: shows the state of the room, from server-sent events.

const RETRY_MS = 2000;
const get = (id) => document.getElementById(id);

// It moves a line in the document without an end to its animation.
const insert = 'moveBefore' in Element.prototype ? 'moveBefore' : 'insertBefore';

/** Scores by player: the state of the room. */
const state = new Map();
/** Lines by player. A line moves to its new place. */
const lines = new Map();
let count = 0;
let isDue = false;

/** Changes that come together are shown together. */
function showSoon() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    show([...state].sort(([, a], [, b]) => b - a));
  });
}

function show(value) {
  const best = value[0]?.[1] ?? 1;
  const gone = new Set(lines.keys());
  const board = get('board');
  for (const [place, [player, score]] of value.entries()) {
    gone.delete(player);
    const line = lines.get(player) ?? newLine(player);
    // Screen readers follow the order of the document.
    if (board.children[place] !== line) board[insert](line, board.children[place]);
    line.style.setProperty('--place', place);
    line.style.setProperty('--share', score / best);
    line.querySelector('b').textContent = place + 1;
    line.querySelector('data').textContent = score.toLocaleString('en');
  }
  for (const player of gone) {
    lines.get(player).remove();
    lines.delete(player);
  }
  get('count').textContent = count;
}

function newLine(player) {
  const line = document.createElement('li');
  const name = Object.assign(document.createElement('span'), { textContent: player });
  line.append(document.createElement('b'), name, document.createElement('data'));
  get('board').append(line);
  lines.set(player, line);
  return line;
}

// The browser reconnects by itself. If its token has ended, it stops, and gets a new one here.
async function listen() {
  const again = () => setTimeout(listen, RETRY_MS);
  const response = await fetch('stream').catch(() => null);
  if (!response?.ok) return again();
  const source = new EventSource(await response.text());
  source.onmessage = ({ data }) => {
    const { key, payload, timestamp } = JSON.parse(data);
    if (payload === null) state.delete(key);
    else state.set(key, payload);
    count++;
    get('age').textContent = `${Math.max(0, Date.now() - timestamp)} ms`;
    showSoon();
  };
  // The whole state follows, unless only changes are missing.
  source.addEventListener('joined', ({ data }) => JSON.parse(data).recovered || state.clear());
  source.addEventListener('reset', () => state.clear());
  source.addEventListener('synced', showSoon);
  source.onopen = () => {
    get('state').textContent = 'live';
  };
  source.onerror = () => {
    get('state').textContent = 'reconnecting';
    if (source.readyState === EventSource.CLOSED) again();
  };
}

listen();
