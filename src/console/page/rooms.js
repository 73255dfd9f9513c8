// rooms.js: the rooms of the fleet that have connections: by name, the largest, or the busiest.

import { act } from './api.js';
import { textOf } from './dialog.js';
import { barred, choice, dataTable, el, empty, field, fill, h, icon, pageHead } from './dom.js';
import { quantity, whole } from './format.js';

const PAGE = 100;
const REFRESH_MS = 5000;
const ORDERS = [
  { href: '#/rooms', title: 'By name' },
  { href: '#/largest', title: 'Largest' },
  { href: '#/busiest', title: 'Busiest' },
];

/** @import { App, View } from './view.js' */
/** @typedef {{room: string, connections: number, messagesPerSecond: number}} TopRoom */

/**
 * The rooms with the most connections, or the most messages.
 * @param {App} app @param {'connections'|'messages'} by @returns {View}
 */
export function topRoomsView(app, by) {
  const list = el('div.result');
  const load = async () => {
    if (!app.can('rooms')) return;
    try {
      const { rooms, partial } = await act('top_rooms', { query: { by } });
      fill(list, partial && lacking(), topTable(rooms, by));
    } catch (error) {
      fill(list, empty('alert', 'The rooms cannot be listed', textOf(error)));
    }
    if (!isClosed) setTimeout(load, REFRESH_MS);
  };
  let isClosed = false;
  load();
  return {
    element: el(
      'div',
      pageHead(
        'Rooms',
        null,
        by === 'connections'
          ? 'The rooms with the most connections, on every server.'
          : 'The rooms with the most messages in the last ten seconds, on every server.',
      ),
      choice('Order', ORDERS, by === 'connections' ? '#/largest' : '#/busiest'),
      app.can('rooms') ? list : empty('key', 'Not permitted', 'Your key lacks the right rooms.'),
    ),
    title: 'Rooms',
    close: () => {
      isClosed = true;
    },
  };
}

/** @param {readonly TopRoom[]} rooms @param {'connections'|'messages'} by */
function topTable(rooms, by) {
  if (rooms.length === 0)
    return empty('rooms', 'No rooms', 'A room is here while at least one connection is in it.');
  const most = Math.max(...rooms.map((one) => one.connections));
  const busiest = Math.max(...rooms.map((one) => one.messagesPerSecond));
  return el(
    'div.card.table-card',
    dataTable(
      'Rooms',
      [
        { title: 'Room' },
        { title: 'Connections', isNumber: true },
        { title: 'Messages', isNumber: true },
        { title: 'Deliveries', isNumber: true },
      ],
      rooms.map(({ room, connections, messagesPerSecond }) => {
        const rate = quantity('perSecond', messagesPerSecond);
        return [
          h('a.mono', { href: `#/rooms/${encodeURIComponent(room)}` }, room),
          by === 'connections' ? barred(connections, most, whole(connections)) : whole(connections),
          by === 'messages' ? barred(messagesPerSecond, busiest, rate) : rate,
          quantity('perSecond', messagesPerSecond * connections),
        ];
      }),
    ),
  );
}

function lacking() {
  return el('p.warning', 'A worker has not answered: the list may lack its part.');
}

/** @param {App} app @returns {View} */
export function roomsView(app) {
  const prefix = h('input', {
    type: 'search',
    name: 'prefix',
    placeholder: 'chat.',
    autocomplete: 'off',
    spellcheck: 'false',
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(load, 200);
    },
  });
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;
  const list = el('div.result');
  const total = h('p.muted.total', { role: 'status' });
  /** The rooms shown so far. @type {{room: string, connections: number}[]} */
  let rooms = [];
  let isPartial = false;

  /** @param {string} after */
  const read = async (after) => {
    const text = prefix.value.trim();
    /** @type {Record<string, string>} */
    const query = { limit: String(PAGE) };
    if (text !== '') query.prefix = text;
    if (after !== '') query.after = after;
    const page = await act('rooms', { query });
    if (text !== prefix.value.trim()) return;
    rooms = after === '' ? page.rooms : [...rooms, ...page.rooms];
    isPartial = page.partial;
    show(page.rooms.length === PAGE);
    if (after === '') await countAll(text, page.rooms.length === PAGE);
  };
  /** @param {string} text that the names begin with @param {boolean} isCut are there more? */
  const countAll = async (text, isCut) => {
    const shown = rooms.length;
    fill(total, isCut ? `The first ${shown}; counting all …` : roomCount(shown, false));
    if (!isCut) return;
    const { count, more, partial } = await act('count_rooms', {
      query: text === '' ? {} : { prefix: text },
    }).catch(() => ({ count: 0, more: false, partial: true }));
    if (text !== prefix.value.trim()) return;
    if (count > 0) fill(total, roomCount(count, more || partial));
    else fill(total, `The first ${shown}. All cannot be counted now.`);
  };
  const fail = (/** @type {unknown} */ error) => {
    fill(total);
    fill(list, empty('alert', 'The rooms cannot be listed', textOf(error)));
  };
  const load = () => read('').catch(fail);

  /** @param {boolean} hasMore */
  const show = (hasMore) => {
    if (rooms.length === 0) return fill(list, noRooms(prefix.value === ''));
    const more = () => read(rooms[rooms.length - 1].room).catch(fail);
    fill(
      list,
      isPartial && lacking(),
      roomTable(rooms),
      hasMore && h('button.button', { onclick: more }, 'More rooms'),
    );
  };
  load();
  return {
    element: el(
      'div',
      pageHead(
        'Rooms',
        [
          el('div.search', icon('search'), field('Name begins with', prefix)),
          h('button.button', { onclick: load }, 'Refresh'),
        ],
        'Rooms with connections, on every server.',
      ),
      choice('Order', ORDERS, '#/rooms'),
      total,
      app.can('rooms') ? list : empty('key', 'Not permitted', 'Your key lacks the right rooms.'),
    ),
    title: 'Rooms',
  };
}

/** @param {number} count @param {boolean} isLeast there may be more */
function roomCount(count, isLeast) {
  return `${isLeast ? 'At least ' : ''}${whole(count)} ${count === 1 ? 'room' : 'rooms'}`;
}

/** @param {boolean} isAll false: there are none with the prefix */
function noRooms(isAll) {
  return empty(
    'rooms',
    isAll ? 'No rooms' : 'No room begins like that',
    'A room is here while at least one connection is in it. A room that only has history can be opened by its name.',
  );
}

/** @param {{room: string, connections: number}[]} rooms at least one */
function roomTable(rooms) {
  const most = Math.max(...rooms.map(({ connections }) => connections));
  return el(
    'div.card.table-card',
    dataTable(
      'Rooms',
      [{ title: 'Room' }, { title: 'Connections', isNumber: true }],
      rooms.map((room) => row(room, most)),
    ),
  );
}

/** @param {{room: string, connections: number}} room @param {number} most of all listed */
function row({ room, connections }, most) {
  return [
    h('a.mono', { href: `#/rooms/${encodeURIComponent(room)}` }, room),
    barred(connections, most, whole(connections)),
  ];
}
