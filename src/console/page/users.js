// users.js: finds a user on every server, disconnects one, revokes the tokens.

import { act } from './api.js';
import { confirmed, run, textOf } from './dialog.js';
import { dataTable, empty, field, fill, h, icon, pageHead, pill } from './dom.js';
import { plural, whole } from './format.js';

/** @typedef {import('./view.js').App} App */
/** @typedef {{id: string, address: string, transport: string, roomCount: number, rooms: string[]}} UserConnection */

/**
 * @param {App} app
 * @param {string} name '' if there is none yet
 * @returns {import('./view.js').View}
 */
export function usersView(app, name) {
  const input = h('input', {
    type: 'search',
    name: 'user',
    value: name,
    placeholder: 'alice',
    required: true,
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const result = h('div', { class: 'result', 'aria-live': 'polite' });
  const about = app.session.hasTokens
    ? 'A user is the sub of a token.'
    : 'Without tokens, a user is a name in rooms with presence.';

  const load = async () => {
    if (!app.can('presence'))
      return fill(result, empty('key', 'Not permitted', 'Your key lacks the right presence.'));
    if (name === '')
      return fill(
        result,
        empty('users', 'Who are you looking for?', `Enter the exact name. ${about}`),
      );
    try {
      fill(result, await resultOf(app, name, load));
    } catch (error) {
      fill(result, empty('alert', 'The user cannot be looked up', textOf(error)));
    }
  };
  load();
  return {
    element: h(
      'div',
      null,
      pageHead(
        'Users',
        h(
          'form',
          {
            class: 'row',
            onsubmit: (/** @type {Event} */ event) => {
              event.preventDefault();
              const hash = `#/users/${encodeURIComponent(input.value.trim())}`;
              if (hash === location.hash) load();
              else location.hash = hash;
            },
          },
          h('div', { class: 'search' }, icon('search'), field('User', input)),
          h('button', { class: 'button primary' }, 'Find'),
        ),
        about,
      ),
      result,
    ),
    title: name === '' ? 'Users' : name,
  };
}

/**
 * @param {App} app
 * @param {string} user
 * @param {() => Promise<void>} reload
 */
async function resultOf(app, user, reload) {
  const { count, connections, partial } = await act('user', { params: { user } });
  const disconnect = h(
    'button',
    {
      class: 'button danger',
      disabled: !app.can('disconnect') || count === 0,
      onclick: async () => {
        const isSure = await confirmed({
          title: `Disconnect ${user}?`,
          text: `${plural(count, 'connection')} will be closed. The user may connect again; revoke the tokens to prevent that.`,
          action: 'Disconnect',
        });
        if (isSure)
          await run(disconnect, async () => {
            const body = JSON.stringify({ user });
            const closed = await act('disconnect', { body }).finally(reload);
            return `${plural(closed.connections, 'connection')} of ${user} closed.`;
          });
      },
    },
    'Disconnect',
  );
  const revoke = h(
    'button',
    {
      class: 'button danger',
      disabled: !app.can('revoke') || !app.session.hasTokens,
      onclick: async () => {
        const isSure = await confirmed({
          title: `Revoke the tokens of ${user}?`,
          text: 'All tokens issued until now stop working on every server, and their connections are closed. A new token lets the user in again.',
          action: 'Revoke tokens',
        });
        if (isSure)
          await run(revoke, async () => {
            await act('revoke', { body: JSON.stringify({ user }) }).finally(reload);
            return `The tokens of ${user} are revoked.`;
          });
      },
    },
    'Revoke tokens',
  );
  const why = [
    !app.can('disconnect') && 'Your key lacks the right disconnect.',
    !app.can('revoke') && 'Your key lacks the right revoke.',
    !app.session.hasTokens && 'Nothing to revoke: this server is not configured for tokens.',
  ].filter((text) => text !== false);
  return [
    h(
      'section',
      { class: 'card user-card' },
      h('div', { class: 'avatar', 'aria-hidden': 'true' }, user.slice(0, 1).toUpperCase()),
      h(
        'div',
        { class: 'user-name' },
        h('h2', null, user),
        h(
          'p',
          { class: 'muted' },
          count > 0 ? pill('good', 'online') : pill('plain', 'offline'),
          ` ${plural(count, 'connection')} on all servers`,
        ),
      ),
      h('div', { class: 'actions' }, disconnect, revoke),
      why.length > 0 && h('p', { class: 'muted user-note' }, why.join(' ')),
    ),
    partial &&
      h('p', { class: 'warning' }, 'A worker has not answered: connections may be missing.'),
    connections.length > 0 && connectionTable(app, connections, count, reload),
  ];
}

/**
 * @param {App} app
 * @param {UserConnection[]} connections
 * @param {number} count of all
 * @param {() => Promise<void>} reload
 */
function connectionTable(app, connections, count, reload) {
  return h(
    'div',
    { class: 'card table-card' },
    dataTable(
      h(
        'caption',
        null,
        count > connections.length
          ? `Connections: the first ${connections.length} of ${whole(count)}`
          : 'Connections',
      ),
      [
        { title: 'Connection' },
        { title: 'Transport' },
        { title: 'Address' },
        { title: 'Rooms' },
        { title: '' },
      ],
      connections.map((connection) => connectionRow(app, connection, reload)),
    ),
  );
}

/**
 * @param {App} app
 * @param {UserConnection} connection
 * @param {() => Promise<void>} reload
 */
function connectionRow(app, { id, address, transport, rooms, roomCount }, reload) {
  const button = h(
    'button',
    {
      class: 'button small',
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
  return [
    h('span', { class: 'mono' }, id),
    transport === 'sse' ? 'Server-sent events' : 'WebSocket',
    h('span', { class: 'mono' }, address),
    h(
      'div',
      { class: 'chips' },
      rooms.map((room) =>
        h('a', { class: 'chip', href: `#/rooms/${encodeURIComponent(room)}` }, room),
      ),
      roomCount > rooms.length &&
        h('span', { class: 'muted' }, `and ${whole(roomCount - rooms.length)} more`),
      roomCount === 0 && h('span', { class: 'muted' }, 'none'),
    ),
    button,
  ];
}
