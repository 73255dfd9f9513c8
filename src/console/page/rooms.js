// rooms.js: the rooms of the fleet that have connections, by name.

import { act } from './api.js';
import { textOf } from './dialog.js';
import { barred, dataTable, empty, field, fill, h, icon, pageHead } from './dom.js';
import { whole } from './format.js';

const PAGE = 100;

/** @typedef {import('./view.js').App} App */

/**
 * @param {App} app
 * @returns {import('./view.js').View}
 */
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
  const list = h('div', { class: 'result' });
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
  };
  const fail = (/** @type {unknown} */ error) =>
    fill(list, empty('alert', 'The rooms cannot be listed', textOf(error)));
  const load = () => read('').catch(fail);

  /** @param {boolean} hasMore */
  const show = (hasMore) => {
    if (rooms.length === 0)
      return fill(
        list,
        empty(
          'rooms',
          prefix.value === '' ? 'No rooms' : 'No room begins like that',
          'A room is here while at least one connection is in it. A room that only has history can be opened by its name.',
        ),
      );
    const most = Math.max(...rooms.map(({ connections }) => connections));
    fill(
      list,
      isPartial &&
        h('p', { class: 'warning' }, 'A worker has not answered: the list may lack its part.'),
      h(
        'div',
        { class: 'card table-card' },
        dataTable(
          'Rooms',
          [{ title: 'Room' }, { title: 'Connections', isNumber: true }],
          rooms.map((room) => row(room, most)),
        ),
      ),
      hasMore &&
        h(
          'button',
          {
            class: 'button',
            onclick: () => read(rooms[rooms.length - 1].room).catch(fail),
          },
          'More rooms',
        ),
    );
  };
  load();
  return {
    element: h(
      'div',
      null,
      pageHead(
        'Rooms',
        [
          h('div', { class: 'search' }, icon('search'), field('Name begins with', prefix)),
          h('button', { class: 'button', onclick: load }, 'Refresh'),
        ],
        'Rooms with connections, on every server.',
      ),
      app.can('rooms') ? list : empty('key', 'Not permitted', 'Your key lacks the right rooms.'),
    ),
    title: 'Rooms',
  };
}

/**
 * @param {{room: string, connections: number}} room
 * @param {number} most connections of a room in the list
 */
function row({ room, connections }, most) {
  return [
    h('a', { href: `#/rooms/${encodeURIComponent(room)}`, class: 'mono' }, room),
    barred(connections, most, whole(connections)),
  ];
}
