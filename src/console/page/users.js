// users.js: finds connections on every server, and those whom limits refuse most; acts on users.

import { ApiError, act } from './api.js';
import { confirmed, run, textOf } from './dialog.js';
import { choice, dataTable, el, empty, field, fill, h, icon, pageHead, pill } from './dom.js';
import { bytes, duration, plural, whole } from './format.js';

const REFRESH_MS = 5000;
/** Names in a list of those who are refused. */
const MAX_SHOWN = 20;
/** Connections of an answer; each worker lists fewer. */
const LIMIT = '1000';

/**
 * @typedef {object} Kind what can be searched for
 * @property {string} title @property {string} example @property {string} hint
 * @property {string} [query] the parameter of the search; absent: the id of one connection
 * @property {readonly [string, string]} none title and text if there is no connection
 */

/** By path. @type {Readonly<Record<string, Kind>>} */
const KINDS = Object.freeze({
  users: {
    title: 'User',
    example: 'alice',
    hint: 'the exact name',
    query: 'user',
    none: ['', ''],
  },
  members: {
    title: 'Room',
    example: 'chat.lobby',
    hint: 'the exact name of a room',
    query: 'room',
    none: ['No connection in this room', 'Nobody is in it now.'],
  },
  addresses: {
    title: 'Address',
    example: '192.0.2.17',
    hint: 'an address as the limits count it: IPv4, or an IPv6 address for its /64',
    query: 'address',
    none: [
      'No connection from this address',
      'If all limits that count addresses are off, a connection has no address.',
    ],
  },
  connections: {
    title: 'Connection',
    example: 'c4nG0dKx1f',
    hint: 'the id that `welcome`, a hook or the log has',
    none: ['No such connection', 'It is closed, or has never been open here.'],
  },
});

/** @type {Readonly<Record<string, string>>} */
const TRANSPORTS = Object.freeze({
  websocket: 'WebSocket',
  sse: 'SSE',
  pusher: 'Pusher',
  centrifugo: 'Centrifugo',
});

/** @typedef {import('./view.js').App} App */
/**
 * A connection of `GET /api/connections`. An older worker leaves out some fields.
 * @typedef {{id: string, address?: string, transport: string, app?: string, roomCount: number, rooms: string[], server?: string, worker?: number, connectedAt?: number, user?: string, unsentBytes?: number, laggingRooms?: number, refusedMessages?: number}}
 *   UserConnection
 */

/**
 * @param {App} app @param {string} name '' if there is none yet @param {string} path a key of KINDS
 * @returns {import('./view.js').View}
 */
export function usersView(app, name, path) {
  const kind = KINDS[path];
  const input = h('input', {
    type: 'search',
    name: path,
    value: name,
    placeholder: kind.example,
    required: true,
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const result = h('div.result', { 'aria-live': 'polite' });
  const about = app.session.hasTokens
    ? 'A user is the sub of a token.'
    : 'Without tokens, a user is a name in rooms with presence.';
  let isClosed = false;

  const load = async () => {
    if (!app.can('presence'))
      return fill(result, empty('key', 'Not permitted', 'Your key lacks the right presence.'));
    try {
      if (name === '') {
        fill(result, await refusedLists());
        if (!isClosed) setTimeout(load, REFRESH_MS);
      } else if (path === 'users') fill(result, await resultOf(app, name, load));
      else fill(result, await connectionsOf(app, path, name, load));
    } catch (error) {
      fill(result, empty('alert', 'Nothing can be looked up now', textOf(error)));
      if (name === '' && !isClosed) setTimeout(load, REFRESH_MS);
    }
  };
  load();
  return {
    element: el(
      'div',
      pageHead(
        'Users',
        searchForm(kind.title, path, input, load),
        `Enter ${kind.hint}.${path === 'users' ? ` ${about}` : ''}`,
      ),
      choice(
        'Search for',
        Object.entries(KINDS).map(([key, { title }]) => ({ href: `#/${key}`, title })),
        `#/${path}`,
      ),
      result,
    ),
    title: name === '' ? 'Users' : name,
    close: () => {
      isClosed = true;
    },
  };
}

/**
 * @param {string} title @param {string} path @param {HTMLInputElement} input
 * @param {() => void} reload called if the same name is looked up again
 */
function searchForm(title, path, input, reload) {
  return h(
    'form.row',
    {
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        const hash = `#/${path}/${encodeURIComponent(input.value.trim())}`;
        if (hash === location.hash) reload();
        else location.hash = hash;
      },
    },
    el('div.search', icon('search'), field(title, input)),
    el('button.button.primary', 'Find'),
  );
}

async function refusedLists() {
  const { addresses, users, forgotten, partial } = await act('refused');
  return [
    partial && el('p.warning', 'A worker has not answered: its refusals are missing.'),
    el(
      'div.halves',
      refusedCard('addresses', 'Addresses refused most often', addresses),
      refusedCard('users', 'Users refused most often', users),
    ),
    forgotten > 0 && el('p.muted', `${whole(forgotten)} names that were refused less made room.`),
  ];
}

/** @param {string} path @param {string} title @param {[string, number, number][]} rows */
function refusedCard(path, title, rows) {
  const shown = rows.slice(0, MAX_SHOWN);
  return el(
    'section.card.table-card',
    el('header.card-head', el('h2', title), el('p.muted', 'in the last 5 to 10 minutes')),
    shown.length === 0
      ? el('p.muted.none', 'None: no limit refused anything.')
      : dataTable(
          title,
          [
            { title: KINDS[path].title },
            { title: 'Connections', isNumber: true },
            { title: 'Messages', isNumber: true },
          ],
          shown.map(([name, connections, messages]) => [
            h('a.mono', { href: `#/${path}/${encodeURIComponent(name)}` }, name),
            whole(connections),
            whole(messages),
          ]),
        ),
  );
}

/**
 * @param {string} path @param {string} name
 * @returns {Promise<{count: number, connections: UserConnection[], partial: boolean}>}
 */
async function search(path, name) {
  const { query } = KINDS[path];
  if (query !== undefined)
    return /** @type {any} */ (
      await act('connections', { query: { [query]: name, limit: LIMIT } })
    );
  try {
    const one = await act('connection', { params: { connectionId: name } });
    return { count: 1, connections: [/** @type {any} */ (one)], partial: false };
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'NO_CONNECTION') throw error;
    return { count: 0, connections: [], partial: false };
  }
}

/**
 * @param {App} app @param {string} path
 * @param {string} name a room, an address, or the id of a connection
 * @param {() => Promise<void>} reload
 */
async function connectionsOf(app, path, name, reload) {
  const { count, connections, partial } = await search(path, name);
  return [
    partial && el('p.warning', 'A worker has not answered: connections may be missing.'),
    connections.length === 0
      ? empty('users', ...KINDS[path].none)
      : connectionTable(app, connections, count, reload),
  ];
}

/** @param {App} app @param {string} user @param {() => Promise<void>} reload */
async function resultOf(app, user, reload) {
  const { count, connections, partial } = await search('users', user);
  const disconnect = disconnectButton(app, user, count, reload);
  const revoke = revokeButton(app, user, reload);
  const why = [
    !app.can('disconnect') && 'Your key lacks the right disconnect.',
    !app.can('revoke') && 'Your key lacks the right revoke.',
    !app.session.hasTokens && 'Nothing to revoke: this server is not configured for tokens.',
  ].filter((text) => text !== false);
  return [
    el(
      'section.card.user-card',
      h('div.avatar', { 'aria-hidden': 'true' }, user.slice(0, 1).toUpperCase()),
      el(
        'div.user-name',
        el('h2', user),
        el(
          'p.muted',
          count > 0 ? pill('good', 'online') : pill('plain', 'offline'),
          ` ${plural(count, 'connection')} on all servers`,
        ),
      ),
      el('div.actions', disconnect, revoke),
      why.length > 0 && el('p.muted.user-note', why.join(' ')),
    ),
    partial && el('p.warning', 'A worker has not answered: connections may be missing.'),
    connections.length > 0 && connectionTable(app, connections, count, reload),
  ];
}

/** @param {App} app @param {string} user @param {number} count @param {() => Promise<void>} reload */
function disconnectButton(app, user, count, reload) {
  const question = {
    title: `Disconnect ${user}?`,
    text: `${plural(count, 'connection')} will be closed. The user may connect again; revoke the tokens to prevent that.`,
    action: 'Disconnect',
  };
  return askingButton('Disconnect', !app.can('disconnect') || count === 0, question, async () => {
    const body = JSON.stringify({ user });
    const closed = await act('disconnect', { body }).finally(reload);
    return `${plural(closed.connections, 'connection')} of ${user} closed.`;
  });
}

/** @param {App} app @param {string} user @param {() => Promise<void>} reload */
function revokeButton(app, user, reload) {
  const question = {
    title: `Revoke the tokens of ${user}?`,
    text: 'All tokens issued until now stop working on every server, and their connections are closed. A new token lets the user in again.',
    action: 'Revoke tokens',
  };
  const isDisabled = !app.can('revoke') || !app.session.hasTokens;
  return askingButton('Revoke tokens', isDisabled, question, async () => {
    await act('revoke', { body: JSON.stringify({ user }) }).finally(reload);
    return `The tokens of ${user} are revoked.`;
  });
}

/**
 * @param {string} label @param {boolean} disabled @param {Parameters<typeof confirmed>[0]} question
 * @param {() => Promise<string>} action
 */
function askingButton(label, disabled, question, action) {
  const onclick = async () => {
    if (await confirmed(question)) await run(button, action);
  };
  const button = h('button.button.danger', { disabled, onclick }, label);
  return button;
}

/**
 * @param {App} app @param {UserConnection[]} connections @param {number} count of all
 * @param {() => Promise<void>} reload
 */
function connectionTable(app, connections, count, reload) {
  return el(
    'div.card.table-card',
    dataTable(
      el(
        'caption',
        count > connections.length
          ? `Connections: the first ${connections.length} of ${whole(count)}`
          : 'Connections',
      ),
      [
        { title: 'Connection' },
        { title: 'User' },
        { title: 'Address' },
        { title: 'Server · worker' },
        { title: 'Transport' },
        { title: 'Open for' },
        { title: 'Unsent', isNumber: true },
        { title: 'Refused', isNumber: true },
        { title: 'Rooms' },
        { title: '' },
      ],
      connections.map((connection) => connectionRow(app, connection, reload)),
    ),
  );
}

/** @param {App} app @param {UserConnection} connection @param {() => Promise<void>} reload */
function connectionRow(app, connection, reload) {
  const {
    id,
    address = '',
    transport,
    app: appId = '',
    rooms,
    roomCount,
    server = '',
    worker,
    connectedAt,
    user = '',
    unsentBytes,
    laggingRooms = 0,
    refusedMessages,
  } = connection;
  return [
    el('span.mono', id),
    user === ''
      ? '–'
      : h('a.name', { href: `#/users/${encodeURIComponent(user)}`, title: user }, user),
    address === ''
      ? '–'
      : h(
          'a.mono.name',
          { href: `#/addresses/${encodeURIComponent(address)}`, title: address },
          address,
        ),
    server === '' ? '–' : `${server}${worker === undefined ? '' : ` · ${worker}`}`,
    [TRANSPORTS[transport] ?? transport, appId !== '' && el('p.muted', `app ${appId}`)],
    connectedAt === undefined ? '–' : duration((Date.now() - connectedAt) / 1000),
    [
      unsentBytes === undefined ? '–' : bytes(unsentBytes),
      laggingRooms > 0 && el('p.muted', `behind in ${plural(laggingRooms, 'room')}`),
    ],
    refusedMessages === undefined ? '–' : whole(refusedMessages),
    el(
      'div.chips',
      rooms.map((room) =>
        h('a.chip.name', { href: `#/rooms/${encodeURIComponent(room)}`, title: room }, room),
      ),
      roomCount > rooms.length && el('span.muted', `and ${whole(roomCount - rooms.length)} more`),
      roomCount === 0 && el('span.muted', 'none'),
    ),
    closeButton(app, id, reload),
  ];
}

/** @param {App} app @param {string} id @param {() => Promise<void>} reload */
function closeButton(app, id, reload) {
  const button = h(
    'button.button.small',
    {
      disabled: !app.can('disconnect'),
      'aria-label': `Close connection ${id}`,
      onclick: () =>
        run(button, async () => {
          const body = JSON.stringify({ connectionId: id });
          // If the outcome is unknown, the table shows it.
          const { connections } = await act('disconnect', { body }).finally(reload);
          return connections > 0
            ? `Connection ${id} closed.`
            : `Connection ${id} was gone already.`;
        }),
    },
    'Close',
  );
  return button;
}
